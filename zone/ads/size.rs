//! How much a proxy may say in the resource it brings along, whatever its token, and what that counts of the share of its
//! token. From each inbound, service, tag and label follow resources, certificates and configuration of others.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::{FieldPath, Labels, Violations, labels},
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{Networking, networking::TransparentProxying},
    },
};
use prost::Message;

/// Inbounds of a Dataplane, its listeners for others among them.
const INBOUNDS: usize = 128;
/// Services that their tags name, and those of its gateway.
const SERVICES: usize = 64;
/// Bytes of the name of a service: as much as a host's may have. It stands in the configuration of whoever calls it, and
/// twice where its virtual address is kept.
const LONGEST_SERVICE: usize = 253;
/// Tags of one inbound, gateway or outbound, and labels by which it names a backend.
const TAGS: usize = 64;
/// Those of all that stand in one list.
const TAGS_OF_LIST: usize = 2048;
/// Outbounds, and entries of each list of what it may reach.
const LISTED: usize = 1024;
/// Labels, those included that the zone gives.
const LABELS: usize = 64;

/// Bytes, and tags, that count as one inbound does.
pub(super) const BYTES_OF_INBOUND: usize = 512;
pub(super) const TAGS_OF_INBOUND: usize = 16;

/// A map of tags or labels: where it stands and how many there are.
type TagCount = (FieldPath, usize);

/// What the resource of a proxy with these labels and, where it is one, this Dataplane has more than a proxy brings along.
pub(super) fn check(dataplane: Option<&Dataplane>, labels: &Labels) -> Violations {
    let mut found = Violations::none();
    limit(&mut found, FieldPath::new("labels"), "labels", labels.len(), LABELS);
    let Some(dataplane) = dataplane else { return found };
    let probed = dataplane.probes.as_ref().map_or(0, |probes| probes.endpoints.len());
    limit(&mut found, FieldPath::new("probes").field("endpoints"), "endpoints", probed, LISTED);
    let Some(networking) = &dataplane.networking else { return found };
    let path = FieldPath::new("networking");
    let inbound = path.field("inbound");
    limit(&mut found, inbound.clone(), "inbounds", inbounds(dataplane), INBOUNDS);
    limit(&mut found, inbound.clone(), "services", services(networking).len(), SERVICES);
    for (tags_path, tags) in tags_of_services(networking, &path) {
        let bytes = tags.get(labels::TAG_SERVICE).map_or(0, String::len);
        limit(&mut found, tags_path.key(labels::TAG_SERVICE), "bytes", bytes, LONGEST_SERVICE);
    }
    check_tags(&mut found, inbound, tags_of_inbounds(networking, &path));
    let outbound = path.field("outbound");
    limit(&mut found, outbound.clone(), "outbounds", networking.outbound.len(), LISTED);
    check_tags(&mut found, outbound.clone(), tags_of_outbounds(networking, &outbound));
    if let Some(proxying) = &networking.transparent_proxying {
        check_reachable(&mut found, proxying, &path.field("transparentProxying"));
    }
    found
}

fn check_reachable(found: &mut Violations, proxying: &TransparentProxying, path: &FieldPath) {
    for (name, services) in [
        ("reachableServices", &proxying.reachable_services),
        ("directAccessServices", &proxying.direct_access_services),
    ] {
        limit(found, path.field(name), "services", services.len(), LISTED);
    }
    let refs = path.field("reachableBackends").field("refs");
    let backends = || proxying.reachable_backends.iter().flat_map(|backends| &backends.refs);
    limit(found, refs.clone(), "backends", backends().count(), LISTED);
    let labels = backends().enumerate().map(|(i, to)| (refs.index(i).field("labels"), to.labels.len()));
    check_tags(found, refs.clone(), labels.collect());
}

/// Each map of a list is limited, and all of them together.
fn check_tags(found: &mut Violations, list: FieldPath, counts: Vec<TagCount>) {
    let together = counts.iter().map(|(_, number)| number).sum();
    for (path, number) in counts {
        limit(found, path, "tags or labels", number, TAGS);
    }
    limit(found, list, "tags or labels in all", together, TAGS_OF_LIST);
}

fn limit(found: &mut Violations, field: FieldPath, what: &str, number: usize, most: usize) {
    if number > most {
        let reason = format!(
            "{number} {what}: a proxy brings along {most} at most; an operator may apply a resource with more"
        );
        found.add(field, reason);
    }
}

/// How much of the share of its token a Dataplane with these labels takes, in inbounds: by those it has, and not less than by
/// its length and its tags.
pub(super) fn weight(dataplane: &Dataplane, labels: &Labels) -> usize {
    let of_labels: usize = labels.iter().map(|(key, value)| key.len() + value.len()).sum();
    let bytes = dataplane.encoded_len() + of_labels;
    let networking = dataplane.networking.iter();
    let counts = networking.flat_map(|networking| tags_of_inbounds(networking, &FieldPath::root()));
    let tags: usize = counts.map(|(_, number)| number).sum();
    inbounds(dataplane).max(bytes / BYTES_OF_INBOUND).max(tags / TAGS_OF_INBOUND)
}

/// How many inbounds a Dataplane has, with its listeners for others.
fn inbounds(dataplane: &Dataplane) -> usize {
    let networking = dataplane.networking.as_ref();
    networking.map_or(0, |networking| networking.inbound.len() + networking.listeners.len())
}

fn services(networking: &Networking) -> BTreeSet<&String> {
    let of_inbounds = networking.inbound.iter().map(|inbound| &inbound.tags);
    let tags = of_inbounds.chain(networking.gateway.iter().map(|gateway| &gateway.tags));
    tags.filter_map(|tags| tags.get(labels::TAG_SERVICE)).collect()
}

/// Those of its gateway among them.
fn tags_of_inbounds(networking: &Networking, path: &FieldPath) -> Vec<TagCount> {
    tags_of_services(networking, path).map(|(path, tags)| (path, tags.len())).collect()
}

/// Tags by which it is a service, with where they stand.
fn tags_of_services<'a>(
    networking: &'a Networking,
    path: &'a FieldPath,
) -> impl Iterator<Item = (FieldPath, &'a BTreeMap<String, String>)> {
    let inbounds = networking.inbound.iter().enumerate();
    let of_inbounds = inbounds.map(move |(i, inbound)| (path.field("inbound").index(i), &inbound.tags));
    let of_gateway = networking.gateway.iter().map(move |gateway| (path.field("gateway"), &gateway.tags));
    of_inbounds.chain(of_gateway).map(|(path, tags)| (path.field("tags"), tags))
}

fn tags_of_outbounds(networking: &Networking, path: &FieldPath) -> Vec<TagCount> {
    let mut counts = Vec::new();
    for (i, outbound) in networking.outbound.iter().enumerate() {
        let path = path.index(i);
        counts.push((path.field("tags"), outbound.tags.len()));
        if let Some(backend) = &outbound.backend_ref {
            counts.push((path.field("backendRef").field("labels"), backend.labels.len()));
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use common::proto::kuma::mesh::v1alpha1::dataplane::{
        Probes,
        networking::{
            Gateway, Inbound, Outbound,
            outbound::BackendRef,
            transparent_proxying::{ReachableBackendRef, ReachableBackends},
        },
        probes::Endpoint,
    };

    use super::*;

    fn tags(number: usize) -> BTreeMap<String, String> {
        (0..number).map(|n| (format!("t-{n}"), "x".to_owned())).collect()
    }

    fn with_tags(number: usize) -> Inbound {
        Inbound { tags: tags(number), ..Inbound::default() }
    }

    fn dataplane(networking: Networking) -> Dataplane {
        Dataplane { networking: Some(networking), ..Dataplane::default() }
    }

    fn found(dataplane: &Dataplane) -> Vec<String> {
        let found = check(Some(dataplane), &Labels::default());
        found.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
    }

    /// What is found is in these fields, with these words.
    fn refused(networking: Networking, expected: &[&str]) {
        let found = found(&dataplane(networking));
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.starts_with(expected), "{expected}: {found}");
        }
    }

    #[test]
    fn what_a_proxy_brings_has_inbounds_and_services() {
        let inbound = |service: usize| Inbound {
            tags: [(labels::TAG_SERVICE.to_owned(), format!("s-{service}"))].into(),
            ..Inbound::default()
        };
        let of = |number: usize, services: usize| Networking {
            inbound: (0..number).map(|n| inbound(n % services)).collect(),
            ..Networking::default()
        };
        refused(of(INBOUNDS, SERVICES), &[]);
        refused(of(INBOUNDS + 1, 1), &["networking.inbound: 129 inbounds: "]);
        refused(of(SERVICES + 1, SERVICES + 1), &["networking.inbound: 65 services: "]);
        assert_eq!(found(&dataplane(of(1500, 1500))).len(), 2);
        assert_eq!(found(&dataplane(of(4000, 4000))).len(), 3);
    }

    #[test]
    fn the_name_of_a_service_has_an_end() {
        let named = |bytes: usize| [(labels::TAG_SERVICE.to_owned(), "x".repeat(bytes))].into();
        let of = |bytes: usize, of_gateway: usize| Networking {
            inbound: vec![with_tags(1), Inbound { tags: named(bytes), ..Inbound::default() }],
            gateway: Some(Gateway { tags: named(of_gateway), ..Gateway::default() }),
            ..Networking::default()
        };
        refused(of(LONGEST_SERVICE, LONGEST_SERVICE), &[]);
        refused(
            of(3_700, LONGEST_SERVICE + 1),
            &[
                "networking.inbound[1].tags[\"kuma.io/service\"]: 3700 bytes: ",
                "networking.gateway.tags[\"kuma.io/service\"]: 254 bytes: ",
            ],
        );
    }

    #[test]
    fn tags_are_counted_wherever_they_stand() {
        let of = |inbounds: &[usize]| Networking {
            inbound: inbounds.iter().map(|number| with_tags(*number)).collect(),
            ..Networking::default()
        };
        refused(of(&[TAGS; TAGS_OF_LIST / TAGS]), &[]);
        refused(of(&[1, TAGS + 1]), &["networking.inbound[1].tags: 65 tags or labels: "]);
        refused(of(&[TAGS; TAGS_OF_LIST / TAGS + 1]), &["networking.inbound: 2112 tags or labels in all: "]);
        let gateway = Gateway { tags: tags(12_000), ..Gateway::default() };
        refused(
            Networking { gateway: Some(gateway), ..Networking::default() },
            &[
                "networking.gateway.tags: 12000 tags or labels: ",
                "networking.inbound: 12000 tags or labels in all: ",
            ],
        );
        let backend = BackendRef { labels: tags(65), ..BackendRef::default() };
        let outbound = Outbound { tags: tags(66), backend_ref: Some(backend), ..Outbound::default() };
        refused(
            Networking { outbound: vec![Outbound::default(), outbound], ..Networking::default() },
            &[
                "networking.outbound[1].tags: 66 tags or labels: ",
                "networking.outbound[1].backendRef.labels: 65 tags or labels: ",
            ],
        );
        let outbound = Outbound { tags: tags(3), ..Outbound::default() };
        refused(
            Networking { outbound: vec![outbound; LISTED], ..Networking::default() },
            &["networking.outbound: 3072 tags or labels in all: "],
        );
    }

    #[test]
    fn lists_have_an_end() {
        let outbound = vec![Outbound::default(); LISTED + 1];
        refused(Networking { outbound, ..Networking::default() }, &["networking.outbound: 1025 outbounds: "]);
        let reaching = |number: usize| {
            let refs = vec![ReachableBackendRef::default(); number];
            let proxying = TransparentProxying {
                reachable_services: vec!["web".to_owned(); number],
                direct_access_services: vec!["web".to_owned(); number],
                reachable_backends: Some(ReachableBackends { refs }),
                ..TransparentProxying::default()
            };
            Networking { transparent_proxying: Some(proxying), ..Networking::default() }
        };
        refused(reaching(LISTED), &[]);
        refused(
            reaching(LISTED + 1),
            &[
                "networking.transparentProxying.reachableServices: 1025 services: ",
                "networking.transparentProxying.directAccessServices: 1025 services: ",
                "networking.transparentProxying.reachableBackends.refs: 1025 backends: ",
            ],
        );
        let endpoints = vec![Endpoint::default(); LISTED + 1];
        let probes = Some(Probes { endpoints, ..Probes::default() });
        let probed = found(&Dataplane { probes, ..Dataplane::default() });
        assert!(probed.len() == 1 && probed[0].starts_with("probes.endpoints: 1025 "), "{probed:?}");
        let labels = Labels::from(tags(LABELS + 1));
        let labelled: Vec<String> = check(None, &labels).iter().map(|v| v.field.to_string()).collect();
        assert_eq!(labelled, ["labels"], "an ingress or egress, too");
    }

    #[test]
    fn what_is_long_weighs_as_much_as_what_has_many_inbounds() {
        let weighs = |networking: Networking, labels: usize| {
            weight(&dataplane(networking), &Labels::from(tags(labels)))
        };
        let inbounds = |number: usize, tags: usize| Networking {
            inbound: vec![with_tags(tags); number],
            ..Networking::default()
        };
        assert_eq!(weighs(inbounds(1, 8), 8), 1, "as most have");
        assert_eq!(weighs(inbounds(128, 8), 8), 128);
        assert_eq!(weighs(inbounds(4, TAGS), 0), 16, "by its tags");
        let long = |bytes: usize| Networking { address: "x".repeat(bytes), ..Networking::default() };
        let of_bytes = weighs(long(256 * 1024), 0);
        assert!((512..=513).contains(&of_bytes), "{of_bytes}");
        assert!(weighs(long(0), 400) >= 3, "labels have a length, too");
    }
}
