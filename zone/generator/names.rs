//! Names of generated resources, which operators, metrics and patches know.

use std::{collections::BTreeMap, net::IpAddr};

use common::model::labels;
use sha2::{Digest, Sha256};

use crate::mesh::{Edge, ZoneListener};

/// `<ip>:<port>` with brackets around IPv6.
pub(super) fn socket(address: IpAddr, port: u32) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{port}"),
        IpAddr::V6(v6) => format!("[{v6}]:{port}"),
    }
}

/// An inbound listener.
pub(super) fn inbound_listener(address: IpAddr, port: u32) -> String {
    format!("inbound:{}", socket(address, port))
}

/// An outbound listener.
pub(super) fn outbound_listener(address: IpAddr, port: u32) -> String {
    format!("outbound:{}", socket(address, port))
}

/// A listener at the address of an endpoint.
pub(super) fn direct_listener(address: IpAddr, port: u32) -> String {
    format!("direct_access_{}", socket(address, port))
}

/// The cluster of the workload itself.
pub(super) fn local_cluster(workload_port: u32) -> String {
    format!("localhost:{workload_port}")
}

/// Whether a service of this name would be taken for the workload itself, for who gives it its identity, or for a port of
/// a service that is a resource.
pub(super) fn is_reserved(service: &str) -> bool {
    service.starts_with("localhost:") || service == AGENT || is_of_resource(service)
}

/// The cluster of the agent beside the proxy that hands out identities.
pub(crate) const AGENT: &str = "system_identity_sds-spire-agent";
/// By what that agent is asked for everybody it believes, with the domains its own is federated with.
pub(super) const AGENT_BUNDLES: &str = "ALL";

/// Whether this is how [`crate::mesh::ZoneService::destination`] and its like call their clusters.
fn is_of_resource(cluster: &str) -> bool {
    let mut parts = cluster.rsplit('_');
    let (port, short) = (parts.next(), parts.next());
    port.is_some_and(|port| port.parse::<u16>().is_ok())
        && short.is_some_and(|short| ["msvc", "mzsvc", "extsvc"].contains(&short))
        && parts.count() >= 4
}

/// The cluster of a tagged service: its name, and a hash of the tags beyond it.
pub(crate) fn service_cluster(service: &str, tags: &BTreeMap<String, String>) -> String {
    let mut extra = tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE).peekable();
    if extra.peek().is_none() {
        return service.to_owned();
    }
    let mut hash = Sha256::new();
    for (key, value) in tags {
        hash.update(key);
        hash.update(value);
    }
    let digest = hash.finalize();
    let suffix: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{service}-{suffix}")
}

/// The cluster of endpoints with these tags for what comes in by a listener of a gateway that has those: policies may
/// say something else about each listener.
pub(super) fn gateway_cluster(
    service: &str,
    tags: &BTreeMap<String, String>,
    of_listener: &BTreeMap<String, String>,
) -> String {
    let mut hash = Sha256::new();
    for (key, value) in tags.iter().chain(of_listener) {
        hash.update(key);
        hash.update(value);
    }
    let digest = hash.finalize();
    let suffix: String = digest[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{service}-{suffix}")
}

/// The admin endpoint of the proxy, and the listener before it.
pub(crate) const ADMIN: &str = "kuma:envoy:admin";
/// The listener that tells whoever runs the Envoy what to do.
pub(super) const DYNAMIC_CONFIG: &str = "_kuma:dynamicconfig";
/// Who says that the proxy is ready.
pub(super) const READINESS: &str = "kuma:readiness";

/// Where outgoing traffic goes that is for no other listener, by family of addresses.
pub(crate) const OUTBOUND_PASSTHROUGH: [&str; 2] = ["outbound:passthrough:ipv4", "outbound:passthrough:ipv6"];
/// Where incoming traffic goes that is for no other listener, by family of addresses.
pub(super) const INBOUND_PASSTHROUGH: [&str; 2] = ["inbound:passthrough:ipv4", "inbound:passthrough:ipv6"];
/// The listener that answers questions for names.
pub(super) const DNS: &str = "kuma:dns";
/// The listener that answers probes.
pub(super) const PROBES: &str = "probe:listener";
/// The cluster of endpoints that are called at their own addresses.
pub(super) const DIRECT_ACCESS: &str = "direct_access";
/// The cluster that leads nowhere.
pub(super) const NO_DESTINATION: &str = "self_transparentproxy_no_destination_inbound";

/// The listener of a proxy as the ingress or egress of its mesh.
pub(crate) fn zone_listener(listener: &ZoneListener) -> String {
    let edge = match listener.edge {
        Edge::Ingress => "zoneingress",
        Edge::Egress => "zoneegress",
    };
    format!("self_{edge}_dp_{}", listener.section)
}

/// The cluster of a service at a zone ingress.
pub(crate) fn ingress_cluster(mesh: &str, service: &str) -> String {
    format!("{mesh}:{service}")
}

/// The secret with the certificate of the proxy.
pub(crate) fn identity_secret(mesh: &str) -> String {
    format!("identity_cert:secret:{mesh}")
}

/// The secret with the trust domains of the mesh, and who vouches for their members.
pub(super) const TRUST_BUNDLE: &str = "system_trust_bundle";

/// The same at an egress, which is in several meshes.
pub(super) fn egress_trust_bundle(mesh: &str) -> String {
    format!("{TRUST_BUNDLE}:{mesh}")
}

/// The secret with the CAs of all meshes.
pub(super) const ALL_CAS: &str = "mesh_ca:secret:all";

/// The secret with the CA of the mesh. No mesh has that of all by being called so.
pub(super) fn ca_secret(mesh: &str) -> String {
    let name = format!("mesh_ca:secret:{mesh}");
    if name == ALL_CAS { format!("{ALL_CAS}:") } else { name }
}

/// `name` with everything replaced that would split or break a metric.
pub(crate) fn metric(name: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' };
    name.chars().map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_without_further_tags_keeps_its_name() {
        let tags = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(service_cluster("web", &tags(&[("kuma.io/service", "web")])), "web");
        let split = service_cluster("web", &tags(&[("kuma.io/service", "web"), ("version", "v1")]));
        assert_eq!(split.len(), "web-".len() + 16, "{split}");
    }

    #[test]
    fn clusters_of_gateways_are_called_as_kuma_calls_them() {
        let tags = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect::<BTreeMap<_, _>>()
        };
        let service = "envoyconfig-builtingateway_echo-service__kuma-3_msvc_80";
        let of_listener = tags(&[("kuma.io/service", "gateway-proxy"), ("kuma.io/zone", "kuma-3")]);
        let name = gateway_cluster(service, &tags(&[("kuma.io/service", service)]), &of_listener);
        assert_eq!(name, format!("{service}-3e607e0fbdf6b9a2"));
    }

    #[test]
    fn no_tag_takes_the_place_of_a_resource_or_of_the_workload() {
        for taken in ["localhost:8080", AGENT, "demo_backend__east_msvc_80", "demo_a_b_ns_east_extsvc_443"] {
            assert!(is_reserved(taken), "{taken}");
        }
        for free in ["backend", "backend_kuma-demo_svc_80", "a_msvc_80", "demo_backend__east_msvc_http"] {
            assert!(!is_reserved(free), "{free}");
        }
    }

    #[test]
    fn the_ca_of_no_mesh_is_that_of_all() {
        assert_eq!(ca_secret("default"), "mesh_ca:secret:default");
        assert_ne!(ca_secret("all"), ALL_CAS);
    }

    #[test]
    fn addresses_of_both_families_have_names() {
        assert_eq!(inbound_listener([127, 0, 0, 1].into(), 80), "inbound:127.0.0.1:80");
        assert_eq!(outbound_listener("::1".parse().expect("an address"), 80), "outbound:[::1]:80");
        assert_eq!(metric("inbound:[::1]:80"), "inbound____1__80");
    }
}
