//! Policies about services outside the mesh where a proxy of the mesh lets out those who call them: what is said of its
//! listener as a whole, and what is said of one server name.

use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

use common::{
    model::{Kind, labels},
    policy::{
        mesh_access_log, mesh_fault_injection, mesh_rate_limit, mesh_timeout, mesh_trace,
        mesh_traffic_permission,
        rules::{InboundKey, Policy, Selection},
    },
};

use super::{ALL, Outside, Reporter, Selections};
use crate::{
    generator::{Backend, Chain, ClusterDraft, Draft, ListenerDraft, Role, Sidecar},
    mesh::{ExternalService, Inbound, MeshContext, Problem, ZoneListener},
};

/// Those that say something of what comes in by such a listener.
static KINDS: [&Kind; 6] = [
    &mesh_access_log::KIND,
    &mesh_trace::KIND,
    &mesh_fault_injection::KIND,
    &mesh_rate_limit::KIND,
    &mesh_timeout::KIND,
    &mesh_traffic_permission::KIND,
];

/// What stands for `service` on the listener.
fn door(listener: &ZoneListener, service: &ExternalService, proxy: &Sidecar) -> Inbound {
    let known = super::caller::service_of(&proxy.dataplane);
    Inbound {
        address: listener.address.clone(),
        listen: Ipv4Addr::UNSPECIFIED.into(),
        port: listener.port,
        advertised: Ipv4Addr::UNSPECIFIED.into(),
        workload: Ipv4Addr::UNSPECIFIED.into(),
        workload_port: 0,
        section: listener.section.clone(),
        tags: [(labels::TAG_SERVICE.to_owned(), known)].into(),
        protocol: service.protocol,
        healthy: true,
    }
}

/// Applies policies to the chain by which `service` is called through `listener`.
pub(crate) fn apply_zone_listener(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    (listener, service): (&ZoneListener, &ExternalService),
    whole: &mut ListenerDraft,
    problems: &mut BTreeSet<Problem>,
) {
    let door = door(listener, service, proxy);
    let kept = std::mem::replace(&mut whole.role, Role::Inbound(door));
    let mut draft = Draft::default();
    draft.listeners.insert(String::new(), whole.clone());
    for policy in ALL.iter().filter(|policy| KINDS.contains(&policy.kind())) {
        let kind = policy.kind();
        let key = InboundKey { address: listener.address.clone(), port: listener.port };
        let all = selections.of(kind);
        // Who may call is decided by what the client asks for, which its filter looks at itself.
        let selection = if kind == &mesh_traffic_permission::KIND {
            scoped(all, &key, Arc::clone)
        } else {
            let names = server_names(&whole.chains);
            scoped(all, &key, |policy| Arc::new(policy.asked_for(&names)))
        };
        // What inbounds get without any policy is not for those outside.
        if selection.policies.is_empty() && kind != &mesh_traffic_permission::KIND {
            continue;
        }
        if kind == &mesh_timeout::KIND && selection.inbound_rules(&key).0.is_empty() {
            continue;
        }
        let mut reporter = Reporter { kind, problems };
        policy.inbounds(mesh, &selection, &mut draft, &mut reporter);
        policy.proxy(mesh, proxy, &selection, &mut draft, &mut reporter);
    }
    if let Some(made) = draft.listeners.remove("") {
        *whole = made;
    }
    whole.role = kept;
}

fn server_names(chains: &[Chain]) -> Vec<&str> {
    let matches = chains.iter().filter_map(|chain| chain.matches.as_ref());
    matches.flat_map(|matches| &matches.server_names).map(String::as_str).collect()
}

/// What is said of one listener of those that `all` is about.
fn scoped(all: &Selection, key: &InboundKey, read: impl Fn(&Arc<Policy>) -> Arc<Policy>) -> Selection {
    Selection::of_inbound(key.clone(), all.inbound(key).iter().map(read).collect())
}

/// Applies policies to the cluster of a service outside the mesh.
pub(crate) fn apply_way_out(
    outside: Outside<'_>,
    backend: &Backend,
    cluster: &mut ClusterDraft,
    problems: &mut BTreeSet<Problem>,
) {
    // How the mesh speaks TLS is nothing to those outside.
    let tls = cluster.tls.take();
    super::apply_cluster(outside, backend, cluster, problems);
    cluster.tls = tls;
    cluster.role = Role::ZoneEgress;
}
