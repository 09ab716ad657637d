//! `TrafficPermission`: who may call an inbound of which no newer permission speaks.

use std::collections::BTreeSet;

use common::{
    policy::{
        legacy::{LegacySet, Tags, choice, traffic_permission::KIND},
        rules::{SelectableProxy, Selection},
    },
    proto::envoy::{
        config::{listener::v3::Filter, rbac::v3::Rbac as Rules},
        extensions::filters::network::rbac::v3::Rbac,
    },
};

use super::{candidates, overridden};
use crate::{
    generator::{Draft, envoy::filter, metric_name},
    mesh::{MeshContext, Problem},
    policy::{
        PolicyEffect, Reporter, inbound_of,
        lookup::inbound_key,
        mesh_traffic_permission::{self, MeshTrafficPermissionEffect},
    },
};

/// Puts a filter over connections in place of the one that lets in nobody. An inbound for which there is no policy
/// keeps that.
pub(super) fn apply(
    mesh: &MeshContext,
    subject: Option<&SelectableProxy>,
    (newer, encrypted): (&Selection, bool),
    draft: &mut Draft,
    problems: &mut BTreeSet<Problem>,
) {
    let permissions = candidates(mesh, subject, &KIND);
    if permissions.is_empty() {
        return;
    }
    let mut reporter = Reporter { kind: &KIND, problems };
    if !encrypted {
        return reporter.report(mesh_traffic_permission::NO_CLIENTS);
    }
    for listener in draft.listeners.values_mut() {
        let Some(inbound) = inbound_of(&listener.role) else { continue };
        let Some(policy) = choice::for_inbound(permissions.iter().copied(), &inbound.tags) else { continue };
        if !newer.inbound(&inbound_key(inbound)).is_empty() {
            reporter.report(overridden("inbounds", MeshTrafficPermissionEffect::KIND));
            continue;
        }
        let filter = permission(&listener.message.name, mesh_traffic_permission::of_sources(mesh, policy));
        for chain in listener.chains.iter_mut().filter(|chain| chain.tls.is_some()) {
            mesh_traffic_permission::forget(chain);
            chain.filters.permission = Some(filter.clone());
        }
    }
}

/// The filter over connections to a listener of the proxy itself, which lets in who may call what has these `tags`; and
/// whether that is anybody.
pub(crate) fn permission_to_call(mesh: &MeshContext, listener: &str, tags: &Tags) -> (Filter, bool) {
    let policies = mesh.legacy(&KIND).into_iter().flat_map(LegacySet::iter);
    let found = choice::for_inbound(policies, tags);
    let rules = found.map(|policy| mesh_traffic_permission::of_sources(mesh, policy));
    let some = rules.is_some();
    (permission(listener, rules.unwrap_or_else(mesh_traffic_permission::nobody)), some)
}

fn permission(listener: &str, rules: Rules) -> Filter {
    let stat_prefix = format!("{}.", metric_name(listener));
    let config = Rbac { stat_prefix, rules: Some(rules), ..Rbac::default() };
    filter::network("envoy.filters.network.rbac", &config)
}
