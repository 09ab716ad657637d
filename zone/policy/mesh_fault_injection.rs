//! `MeshFaultInjection`: requests to an inbound that fail, wait or trickle on purpose.

mod by_match;
mod by_tags;
pub(super) mod fault;

use common::{
    model::Kind,
    policy::mesh_fault_injection::{self, FaultInjectionConf},
    proto::envoy::extensions::filters::network::http_connection_manager::v3::HttpFilter,
};

use super::{InboundConfs, OutboundConfs, PolicyEffect, Reporter, inbound_of, lookup};
use crate::{
    generator::{Chain, Draft, ListenerDraft, Terminal, envoy::filter},
    mesh::{Inbound, MeshContext},
};

/// The filter.
pub(super) const FAULT: &str = "envoy.filters.http.fault";

/// See the module.
pub(super) struct MeshFaultInjectionEffect;

impl PolicyEffect for MeshFaultInjectionEffect {
    const KIND: &'static Kind = &mesh_fault_injection::KIND;
    type Conf = FaultInjectionConf;

    fn inbounds(
        &self,
        _mesh: &MeshContext,
        confs: &InboundConfs<'_, FaultInjectionConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for listener in draft.listeners.values_mut() {
            let Some(inbound) = inbound_of(&listener.role).filter(|inbound| inbound.protocol.is_http())
            else {
                continue;
            };
            let (filters, needs_server_name) = filters(confs, inbound, reporter);
            for Chain { terminal, .. } in &mut listener.chains {
                if let Terminal::Http(http) = terminal {
                    http.filters.faults.clone_from(&filters);
                }
            }
            listener.inspects_tls |= needs_server_name;
        }
    }

    fn entrance(
        &self,
        confs: &OutboundConfs<'_, FaultInjectionConf>,
        listener: &mut ListenerDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.of_gateway(reporter) else { return };
        let filters = unconditional(&conf, reporter);
        for Chain { terminal, .. } in &mut listener.chains {
            if let Terminal::Http(http) = terminal {
                http.filters.faults.clone_from(&filters);
            }
        }
    }
}

/// The filters for everybody.
fn unconditional(conf: &FaultInjectionConf, reporter: &mut Reporter<'_>) -> Vec<HttpFilter> {
    fault::all(conf, reporter).into_iter().map(|config| filter::http(FAULT, &config)).collect()
}

/// The filters of an inbound, and whether one looks at the server name. Policies with `rules` win over those
/// with `from`.
fn filters(
    confs: &InboundConfs<'_, FaultInjectionConf>,
    inbound: &Inbound,
    reporter: &mut Reporter<'_>,
) -> (Vec<HttpFilter>, bool) {
    let key = lookup::inbound_key(inbound);
    let policies = confs.selection.inbound(&key);
    if policies.iter().any(|policy| !policy.rules.is_empty()) {
        let everybody = confs.of(inbound, reporter);
        let by_client = confs.by_client(inbound, reporter);
        let needs_server_name = by_client.iter().any(|(condition, _)| condition.sni.is_some());
        let rules = confs.selection.inbound_rules(&key);
        return (by_match::filters(&rules, &by_client, everybody, reporter), needs_server_name);
    }
    (by_tags::filters(policies, reporter), false)
}
