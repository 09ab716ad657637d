//! Policies about services outside the mesh, where an egress stands for them: it is to them what a sidecar is to its
//! workload.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use common::{
    model::Kind,
    policy::{
        mesh_circuit_breaker, mesh_fault_injection, mesh_rate_limit, mesh_traffic_permission,
        rules::{SelectableProxy, Selection},
    },
    proto::envoy::{
        config::{
            listener::v3::Listener,
            rbac::v3::{Permission, Policy as RbacPolicy, Principal, Rbac, permission, principal},
        },
        extensions::filters::{http::rbac::v3::Rbac as HttpRbac, network::rbac::v3::Rbac as NetworkRbac},
    },
};

use super::{ALL, Reporter, legacy};
use crate::{
    generator::{Chain, ClusterDraft, Draft, ListenerDraft, Role, Terminal, envoy::filter, metric_name},
    mesh::{ExternalService, Inbound, MeshContext, Problem},
};

/// Those that say something of what comes to a service outside the mesh.
static KINDS: [&Kind; 4] = [
    &mesh_circuit_breaker::KIND,
    &mesh_fault_injection::KIND,
    &mesh_rate_limit::KIND,
    &mesh_traffic_permission::KIND,
];

/// Whether what egresses do with calls follows from policies of `kind`.
pub(crate) fn is_of_egresses(kind: &Kind) -> bool {
    KINDS.contains(&kind) || legacy::is_of_egresses(kind)
}

/// A service outside the mesh as policies see what stands for it.
pub(crate) fn external_subject(service: &ExternalService) -> SelectableProxy {
    SelectableProxy::standing_for(&service.resource, service.tags.clone())
}

/// What stands for the service on an egress.
fn door(service: &ExternalService) -> Inbound {
    Inbound {
        address: String::new(),
        listen: Ipv4Addr::UNSPECIFIED.into(),
        port: 0,
        advertised: Ipv4Addr::UNSPECIFIED.into(),
        workload: Ipv4Addr::UNSPECIFIED.into(),
        workload_port: 0,
        section: String::new(),
        tags: service.tags.clone(),
        protocol: service.protocol,
        healthy: true,
    }
}

/// Applies policies to the chains by which `service` is called through an egress, and to its cluster.
pub(crate) fn apply_egress(
    mesh: &MeshContext,
    service: &Arc<ExternalService>,
    chains: &mut Vec<Chain>,
    cluster: &mut ClusterDraft,
    problems: &mut BTreeSet<Problem>,
) {
    let role = Role::Inbound(door(service));
    let mut draft = Draft::default();
    let message = Listener { name: service.service.to_string(), ..Listener::default() };
    let listener =
        ListenerDraft { role: role.clone(), message, inspects_tls: true, chains: std::mem::take(chains) };
    let kept = std::mem::replace(&mut cluster.role, role);
    draft.listeners.insert(String::new(), listener);
    draft.clusters.insert(String::new(), cluster.clone());
    let subject = external_subject(service);
    let mut permissions = Selection::default();
    for policy in ALL.iter().filter(|policy| is_of_egresses(policy.kind())) {
        let kind = policy.kind();
        // Who may call a resource outside is said by the mesh.
        if service.is_resource() && kind == &mesh_traffic_permission::KIND {
            continue;
        }
        let set = mesh.policies(kind).filter(|_| !service.is_resource());
        let selection = set.map(|set| Selection::of(set, &subject, &mesh.destinations, false));
        let selection = selection.unwrap_or_default();
        let mut reporter = Reporter { kind, problems };
        policy.inbounds(mesh, &selection, &mut draft, &mut reporter);
        if kind == &mesh_traffic_permission::KIND {
            permissions = selection;
        }
    }
    if !service.is_resource() {
        legacy::apply_incoming(
            mesh,
            Some(&subject),
            (&permissions, mesh.mtls.is_some()),
            &mut draft,
            problems,
        );
    }
    if let Some(listener) = draft.listeners.remove("") {
        *chains = listener.chains;
    }
    if let Some(made) = draft.clusters.remove("") {
        *cluster = made;
    }
    cluster.role = kept;
    if service.is_resource() {
        let allowed = !mesh.forbids_external_services();
        chains.iter_mut().for_each(|chain| permit(chain, &service.service, allowed));
    }
}

/// Lets everybody or nobody in.
fn permit(chain: &mut Chain, service: &str, allowed: bool) {
    let anybody = RbacPolicy {
        permissions: vec![Permission { rule: Some(permission::Rule::Any(true)) }],
        principals: vec![Principal { identifier: Some(principal::Identifier::Any(true)) }],
        ..RbacPolicy::default()
    };
    let name = mesh_traffic_permission::KIND.name.to_owned();
    let policies = if allowed { [(name, anybody)].into() } else { [].into() };
    let rules = Some(Rbac { policies, ..Rbac::default() });
    if let Terminal::Http(http) = &mut chain.terminal {
        let config = HttpRbac { rules, ..HttpRbac::default() };
        http.filters.permission = Some(filter::http("envoy.filters.http.rbac", &config));
    } else {
        let stat_prefix = format!("{}.", metric_name(service));
        let config = NetworkRbac { rules, stat_prefix, ..NetworkRbac::default() };
        chain.filters.permission = Some(filter::network("envoy.filters.network.rbac", &config));
    }
}
