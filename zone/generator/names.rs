//! Names of generated resources, which operators, metrics and patches know.

use std::{collections::BTreeMap, net::IpAddr};

use common::model::labels;
use sha2::{Digest, Sha256};

/// `<ip>:<port>` with brackets around IPv6.
fn socket(address: IpAddr, port: u32) -> String {
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

/// The cluster of the workload itself.
pub(super) fn local_cluster(workload_port: u32) -> String {
    format!("localhost:{workload_port}")
}

/// Whether a service of this name would be taken for the workload itself.
pub(super) fn is_reserved(service: &str) -> bool {
    service.starts_with("localhost:")
}

/// The cluster of a tagged service: its name, and a hash of the tags beyond it.
pub(super) fn service_cluster(service: &str, tags: &BTreeMap<String, String>) -> String {
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

/// The admin endpoint of the proxy, and the listener before it.
pub(crate) const ADMIN: &str = "kuma:envoy:admin";
/// Who says that the proxy is ready.
pub(super) const READINESS: &str = "kuma:readiness";

/// The cluster of a service at a zone ingress.
pub(super) fn ingress_cluster(mesh: &str, service: &str) -> String {
    format!("{mesh}:{service}")
}

/// The secret with the certificate of the proxy.
pub(super) fn identity_secret(mesh: &str) -> String {
    format!("identity_cert:secret:{mesh}")
}

/// The secret with the CA of the mesh.
pub(super) fn ca_secret(mesh: &str) -> String {
    format!("mesh_ca:secret:{mesh}")
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
    fn addresses_of_both_families_have_names() {
        assert_eq!(inbound_listener([127, 0, 0, 1].into(), 80), "inbound:127.0.0.1:80");
        assert_eq!(outbound_listener("::1".parse().expect("an address"), 80), "outbound:[::1]:80");
        assert_eq!(metric("inbound:[::1]:80"), "inbound____1__80");
    }
}
