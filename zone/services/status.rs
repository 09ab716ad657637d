//! Who serves a service, and how they identify themselves.

use std::collections::BTreeSet;

use common::{
    clip::clipped,
    model::{
        Kind, Resource,
        kinds::{
            mesh_service::{MeshService, Port, Selector, ServiceIdentity, ServiceState},
            service_status::{
                Condition, DataplaneProxies, MatchedService, ServiceStatus, TLS_NOT_READY, TLS_READY,
                TlsReadiness,
            },
        },
        kri::Kri,
        labels,
    },
};
use serde_json::Value;

use super::population::{ProxyStatus, ServingProxy, WorkloadPort};
use crate::share::{IDENTITIES_OF_PARTS, PARTS_OF_ZONE};

/// Identities of either form in one service.
pub(super) const MOST_IDENTITIES: usize = 4096;
/// The type of an identity that a `MeshIdentity` gives.
pub(super) const SPIFFE_ID: &str = "SpiffeID";

/// Writes into `spec` and `status` what follows from the proxies of a service of this zone, of which the oldest come
/// first. `spiffe_ids` are those that identities of the mesh give them.
pub(super) fn of_zone(
    spec: &mut MeshService,
    status: &mut ServiceStatus,
    proxies: &[(&ServingProxy, ProxyStatus)],
    spiffe_ids: BTreeSet<String>,
    mtls: bool,
) {
    let counted = count(proxies, &spec.ports);
    spec.state = if counted.healthy > 0 { ServiceState::Available } else { ServiceState::Unavailable };
    spec.identities = identities(spec.selector.as_ref(), proxies, spiffe_ids);
    status.tls = Some(tls(status.tls.as_ref(), proxies, mtls));
    status.dataplane_proxies = Some(counted);
}

fn count(proxies: &[(&ServingProxy, ProxyStatus)], ports: &[Port]) -> DataplaneProxies {
    let serves = |proxy: &ServingProxy| {
        ports.iter().all(|port| proxy.inbounds.iter().find(|i| is_behind(i, port)).is_some_and(|i| i.ready))
    };
    DataplaneProxies {
        connected: proxies.iter().filter(|(_, seen)| seen.connected).count(),
        healthy: proxies.iter().filter(|(proxy, _)| serves(proxy)).count(),
        total: proxies.len(),
    }
}

fn is_behind(inbound: &WorkloadPort, port: &Port) -> bool {
    let named = port.name.as_ref().is_some_and(|name| !name.is_empty() && inbound.name == *name);
    named
        || match &port.target_port {
            Some(Value::String(name)) => inbound.name == *name,
            Some(number) => number.as_u64() == Some(u64::from(inbound.port)),
            None => inbound.port == port.port,
        }
}

/// A proxy shows all services it has, and a client wants one of them. So the one by which proxies are selected is
/// enough: the others would stand in each of their services, and one proxy with many would make them grow by the square.
fn identities(
    selector: Option<&Selector>,
    proxies: &[(&ServingProxy, ProxyStatus)],
    spiffe_ids: BTreeSet<String>,
) -> Vec<ServiceIdentity> {
    let by_tags = selector.filter(|s| s.dataplane_ref.is_none() && s.dataplane_labels.is_none());
    let named = by_tags.and_then(|selector| selector.dataplane_tags.get(labels::TAG_SERVICE));
    let mut tags: BTreeSet<&str> = BTreeSet::new();
    match named {
        Some(service) => tags.extend((!proxies.is_empty()).then_some(service.as_str())),
        None => {
            for service in proxies.iter().flat_map(|(proxy, _)| proxy.services()) {
                if tags.len() >= MOST_IDENTITIES {
                    break;
                }
                tags.insert(service);
            }
        }
    }
    let of_tags = tags
        .into_iter()
        .map(|value| ServiceIdentity { r#type: "ServiceTag".to_owned(), value: value.to_owned() });
    let of_ids = spiffe_ids.into_iter().map(|value| ServiceIdentity { r#type: SPIFFE_ID.to_owned(), value });
    of_tags.chain(of_ids).collect()
}

/// Goes one way for as long as the mesh has mutual TLS: a proxy that comes later begins with it, and must not take
/// the others back to plaintext while its certificate is being made.
fn tls(before: Option<&TlsReadiness>, proxies: &[(&ServingProxy, ProxyStatus)], mtls: bool) -> TlsReadiness {
    let latched = before.is_some_and(|tls| tls.status == TLS_READY);
    let ready = mtls && (latched || proxies.iter().all(|(_, seen)| seen.certified));
    TlsReadiness { status: if ready { TLS_READY } else { TLS_NOT_READY }.to_owned() }
}

/// Bytes that a status may have: as many as an insight, and far more than one needs.
const LONGEST_STATUS: usize = Kind::LARGEST_PROXY;

/// The form in which a status is stored. Where it is too long, what is for people goes first, and of its host names those
/// that come last.
pub(super) fn encode(status: &mut ServiceStatus) -> Vec<u8> {
    let fits = |encoded: &Vec<u8>| encoded.len() <= LONGEST_STATUS;
    let mut encoded = status.encode();
    while !fits(&encoded) {
        if !status.hostname_generators.is_empty() {
            status.hostname_generators.clear();
        } else if !status.mesh_services.is_empty() {
            status.mesh_services.clear();
        } else if !status.addresses.is_empty() {
            status.addresses.truncate(status.addresses.len() / 2);
        } else {
            break;
        }
        encoded = status.encode();
    }
    encoded
}

/// What is told of a name or namespace in another zone, in bytes: as long as such a name should be.
const LONGEST_NAME: usize = 253;

/// Writes into the status of a service of several zones which `services` it is made of. More of zone `crowded` there are
/// and do not count, so nothing that is said follows from how many more.
pub(super) fn of_parts<'a>(
    status: &mut ServiceStatus,
    services: impl Iterator<Item = &'a Resource>,
    crowded: Option<&str>,
) {
    const MATCHED: &str = "MeshServicesMatched";
    let matched = services.filter_map(Kri::of).map(|kri| MatchedService {
        name: clipped(kri.name, LONGEST_NAME),
        namespace: clipped(kri.namespace, LONGEST_NAME),
        zone: kri.zone,
        mesh: kri.mesh,
    });
    let matched: BTreeSet<MatchedService> = matched.collect();
    let found = |message: String| Condition::new(MATCHED, true, "MatchesFound", message);
    let condition = match (matched.len(), crowded) {
        (0, _) => {
            Condition::new(MATCHED, false, "NoMatchesFound", "no MeshService of this mesh has these labels")
        }
        (number, None) => found(format!("{number} have these labels")),
        (number, Some(zone)) => found(format!(
            "{number} that have these labels are used: zone {zone} has more than {PARTS_OF_ZONE}, or with more than \
             {IDENTITIES_OF_PARTS} identities or 64 KiB of them together, of which the rest is not"
        )),
    };
    status.conditions.retain(|known| known.r#type != MATCHED);
    status.conditions.push(condition);
    status.mesh_services = matched.into_iter().collect();
}

#[cfg(test)]
mod tests {
    use common::model::kinds::service_status::{Address, GeneratorStatus, Vip};

    use super::*;

    #[test]
    fn a_status_has_a_longest_form() {
        let condition = Condition::new("Generated", false, "TemplateError", "x".repeat(500));
        let generator = GeneratorStatus { conditions: vec![condition], ..GeneratorStatus::default() };
        let address =
            |n: usize| Address { hostname: format!("{n}.{}", "x".repeat(200)), ..Address::default() };
        let with = |generators: usize, addresses: usize| ServiceStatus {
            vips: vec![Vip { ip: "241.0.0.1".to_owned() }],
            hostname_generators: vec![generator.clone(); generators],
            addresses: (0..addresses).map(address).collect(),
            ..ServiceStatus::default()
        };
        for (generators, addresses) in [(10, 10), (1000, 10), (10, 5000), (1000, 5000)] {
            let mut status = with(generators, addresses);
            assert!(encode(&mut status).len() <= LONGEST_STATUS, "{generators} {addresses}");
            assert_eq!(status.vips.len(), 1);
            assert!(addresses > 10 || status.addresses.len() == addresses);
            assert_eq!(status.hostname_generators.len() == generators, generators + addresses == 20);
        }
    }
}
