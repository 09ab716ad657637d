//! The edge of the zone: TLS is passed through, and the server name decides where it goes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::labels,
    proto::envoy::{
        config::{
            core::v3::TrafficDirection,
            listener::v3::{FilterChainMatch, Listener},
        },
        extensions::filters::network::tcp_proxy::v3::{TcpProxy, tcp_proxy::ClusterSpecifier},
    },
};

use super::{
    Backend, Chain, ClusterDraft, Draft, EndpointsDraft, ListenerDraft, Role, Terminal, ZoneIngressProxy,
    envoy::{address, cluster, filter, seconds},
    names, sni,
};
use crate::{
    mesh::{MeshContext, MeshService, Problem, problem::Subject, topology::Endpoint},
    policy,
};

/// Adds the listener and a cluster per service of each mesh.
pub(super) fn generate(
    proxy: &ZoneIngressProxy,
    meshes: &[Arc<MeshContext>],
    draft: &mut Draft,
    problems: &mut Vec<Problem>,
) {
    let networking = proxy.ingress.spec.networking.clone().unwrap_or_default();
    let Some(listen) = proxy.ingress.listen else {
        problems.push(Problem {
            subject: Subject::of(&proxy.ingress.resource),
            reason: format!("the address {:?} to listen on is not resolved", networking.address),
        });
        return;
    };
    // Envoy compares server names without regard to case and refuses a second chain for one.
    let mut seen = BTreeSet::new();
    let mut chains = Vec::new();
    for mesh in meshes.iter().filter(|m| m.mtls.is_some()) {
        let destinations = policy::destination_tags(mesh);
        let tagged = if mesh.services_are_exclusive() { BTreeMap::new() } else { local_services(mesh) };
        for (service, endpoints) in tagged {
            chains.extend(add_service(mesh, &service, &endpoints, &destinations, &mut seen, draft));
        }
    }
    for mesh in meshes.iter().filter(|m| m.mtls.is_some()) {
        for service in mesh.mesh_services.iter().filter(|s| s.remote_zone.is_none()) {
            chains.extend(add_mesh_service(mesh, service, &mut seen, draft));
        }
    }
    if chains.is_empty() {
        // A listener without any chain is refused; this one at least says who answers.
        let zone = meshes.first().map_or("", |m| &*m.zone);
        let body = serde_json::json!({"proxy": proxy.ingress.name(), "zone": zone}).to_string();
        let terminal = Terminal::Other(Box::new(filter::direct_response(body)));
        chains.push(Chain { terminal, ..Chain::default() });
    }
    let message = Listener {
        name: names::inbound_listener(listen, networking.port),
        address: Some(address::socket(listen, networking.port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        listener_filters: vec![filter::tls_inspector()],
        enable_reuse_port: super::envoy::flag(proxy.metadata.has("feature-reuse-port")),
        ..Listener::default()
    };
    let listener = ListenerDraft { role: Role::ZoneIngress, message, chains };
    draft.listeners.insert(listener.message.name.clone(), listener);
}

/// Endpoints of this zone, by service, with the mesh as one more tag.
fn local_services(mesh: &MeshContext) -> BTreeMap<String, Vec<Endpoint>> {
    let mut services = BTreeMap::new();
    for (name, service) in mesh.topology.iter() {
        let mut local: Vec<Endpoint> = service.endpoints.iter().filter(|e| !e.remote).cloned().collect();
        for endpoint in &mut local {
            endpoint.tags.insert("mesh".to_owned(), mesh.mesh.to_string());
        }
        if !local.is_empty() {
            services.insert(name.to_owned(), local);
        }
    }
    services
}

/// Adds the clusters of one service; returns one chain per server name under which it is called.
fn add_service(
    mesh: &MeshContext,
    service: &str,
    endpoints: &[Endpoint],
    destinations: &BTreeSet<BTreeMap<String, String>>,
    seen: &mut BTreeSet<String>,
    draft: &mut Draft,
) -> Vec<Chain> {
    let mut tag_sets: BTreeSet<BTreeMap<String, String>> = BTreeSet::from([BTreeMap::new()]);
    for tags in destinations {
        let named = tags.get(labels::TAG_SERVICE);
        if named.is_some_and(|name| name == service || name == "*") {
            let extra = tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE);
            tag_sets.insert(extra.map(|(k, v)| (k.clone(), v.clone())).collect());
        }
    }
    let mut chains = Vec::new();
    for tags in tag_sets {
        let members: Vec<&Endpoint> = endpoints.iter().filter(|e| e.has_tags(&tags)).collect();
        let server_name = sni::of_tags(service, &mesh.mesh, &tags);
        if members.is_empty() || !seen.insert(server_name.to_lowercase()) {
            continue;
        }
        let base = names::ingress_cluster(&mesh.mesh, service);
        // A tag set that leaves out some of the addresses is a cluster of its own, where others use
        // subsets of one cluster: the proxy needs no metadata match then, and both forms route alike.
        let name = if members.len() == endpoints.len() { base } else { names::service_cluster(&base, &tags) };
        add_cluster(&name, members.into_iter().cloned().collect(), draft);
        chains.push(chain(server_name, name));
    }
    chains
}

/// Adds a cluster per port of a service that is a resource; returns their chains.
fn add_mesh_service(
    mesh: &MeshContext,
    service: &MeshService,
    seen: &mut BTreeSet<String>,
    draft: &mut Draft,
) -> Vec<Chain> {
    let mut chains = Vec::new();
    for port in &service.spec.ports {
        let backend = Backend::of_resource(mesh, service, port);
        let server_name = backend.resource.map(|r| r.sni).unwrap_or_default();
        if !seen.insert(server_name.to_lowercase()) {
            continue;
        }
        let mut endpoints = mesh.topology.destination(&backend.cluster).endpoints.clone();
        for endpoint in &mut endpoints {
            endpoint.tags.insert("mesh".to_owned(), mesh.mesh.to_string());
        }
        add_cluster(&backend.cluster, endpoints, draft);
        chains.push(chain(server_name, backend.cluster));
    }
    chains
}

fn add_cluster(name: &str, endpoints: Vec<Endpoint>, draft: &mut Draft) {
    if !draft.clusters.contains_key(name) {
        draft.endpoints.insert(name.to_owned(), EndpointsDraft::Listed(endpoints));
        let message = cluster::discovered(name);
        let cluster = ClusterDraft {
            role: Role::ZoneIngress,
            message,
            http: None,
            tls: None,
            tls_elsewhere: BTreeMap::new(),
        };
        draft.clusters.insert(name.to_owned(), cluster);
    }
}

fn chain(server_name: String, cluster: String) -> Chain {
    let matches = FilterChainMatch {
        transport_protocol: "tls".to_owned(),
        server_names: vec![server_name],
        ..FilterChainMatch::default()
    };
    let proxy = TcpProxy {
        stat_prefix: names::metric(&cluster),
        idle_timeout: Some(seconds(3600)),
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        ..TcpProxy::default()
    };
    Chain { matches: Some(matches), terminal: Terminal::Tcp(Box::new(proxy)), ..Chain::default() }
}
