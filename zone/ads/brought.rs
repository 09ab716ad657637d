//! What a proxy may say about itself in the resource it brings along: what its token says. Whatever gives it a part to
//! play for others, an identity or a place behind a service would otherwise be for whoever has any token of the mesh.

use std::collections::BTreeMap;

use common::{
    model::{FieldPath, Labels, Violations, labels},
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::networking::{Gateway, gateway::GatewayType, listener},
    },
    token::{DataplaneClaims, scope},
};

use crate::mesh::{EGRESS_SERVICE, tag_name};

/// Labels in the domains of control planes that a proxy may bring.
const OF_PROXIES: [&str; 4] =
    [labels::WORKLOAD, labels::NAMESPACE, labels::SERVICE_ACCOUNT, labels::KDS_SYNC];
/// Tags that need no token: the zone writes one itself, and the other says how the workload is spoken to.
const OF_ANYBODY: [&str; 2] = [labels::ZONE, labels::TAG_PROTOCOL];

/// Whether a proxy has a say in this label: whose it is, who wrote it and what it is are not for it to say.
pub(super) fn is_for_proxies(label: &str) -> bool {
    let domain = label.split_once('/').map_or("", |(domain, _)| domain);
    OF_PROXIES.contains(&label) || !tag_name::is_domain_of_control_planes(domain)
}

/// What the bearer of a token with these claims may not say about itself. The token was found to fit all that it names;
/// with `bound` it has to name everything by which a proxy is known or found.
pub(super) fn check(
    claims: &DataplaneClaims,
    dataplane: &Dataplane,
    labels: &Labels,
    bound: bool,
) -> Violations {
    let mut violations = Violations::none();
    let path = FieldPath::new("networking");
    let Some(networking) = &dataplane.networking else { return violations };
    for (i, listener) in networking.listeners.iter().enumerate() {
        let (edge, named) = (listener.r#type(), DataplaneClaims::edge(&claims.r#type));
        let path = path.field("listeners").index(i).field("type");
        violations.check(named != Some(edge), path, no_edge(edge));
    }
    if let Some(gateway) = &networking.gateway {
        check_gateway(claims, gateway, &path.field("gateway"), &mut violations);
    }
    let inbounds = networking.inbound.iter().enumerate();
    let sets = inbounds.map(|(i, inbound)| (path.field("inbound").index(i), &inbound.tags));
    let gateway = networking.gateway.iter().map(|gateway| (path.field("gateway"), &gateway.tags));
    for (path, tags) in sets.chain(gateway) {
        check_tags(claims, tags, &path.field("tags"), bound, &mut violations);
    }
    if !bound {
        return violations;
    }
    check_labels(claims, labels, &mut violations);
    violations
}

/// Why a proxy without a token for it is no such edge.
fn no_edge(edge: listener::Type) -> String {
    let scope = if edge == listener::Type::ZoneIngress { scope::INGRESS } else { scope::EGRESS };
    format!(
        "traffic of others goes through it, so it takes a token made with `straitctl generate dataplane-token \
         --proxy-type {scope}`, or an operator who applies the Dataplane"
    )
}

/// A builtin gateway is sent the certificates of its listeners with their keys, and is found by its tags.
fn check_gateway(claims: &DataplaneClaims, gateway: &Gateway, path: &FieldPath, violations: &mut Violations) {
    let is_named = claims.tags.contains_key(labels::TAG_SERVICE);
    violations.check(
        gateway.r#type() == GatewayType::Builtin && !is_named,
        path.field("type"),
        "a builtin gateway is sent the keys of its listeners, so its token has to name its service: make one with \
         `--tag kuma.io/service=...`",
    );
}

/// A certificate says tag and value in one text. What it says of a tag that the token names, or that control planes give a
/// meaning, no other tag may say. Nor is a proxy what its clients believe about all that is outside the mesh.
fn check_tags(
    claims: &DataplaneClaims,
    tags: &BTreeMap<String, String>,
    path: &FieldPath,
    bound: bool,
    violations: &mut Violations,
) {
    for (tag, value) in tags {
        if tag == labels::TAG_SERVICE && value == EGRESS_SERVICE {
            let reason = "the egresses of the mesh are called so, and no proxy besides";
            violations.add(path.key(tag), reason);
        }
        if claims.tags.contains_key(tag) {
            continue;
        }
        let mut claimed = claims.tags.keys();
        let of_claimed =
            claimed.find_map(|other| Some((other.clone(), tag_name::said_of(other, tag, value)?)));
        if let Some((other, said)) = of_claimed.or_else(|| tag_name::forged(tag, value)) {
            let reason =
                format!("a certificate that says so would be taken for one that says {other}={said}");
            violations.add(path.key(tag), reason);
        } else if bound && !OF_ANYBODY.contains(&tag.as_str()) {
            let reason = format!("the token has to name it: make one with `--tag {tag}={value}`");
            violations.add(path.key(tag), reason);
        }
    }
}

fn check_labels(claims: &DataplaneClaims, labels: &Labels, violations: &mut Violations) {
    for (key, value) in labels.iter().filter(|(key, _)| is_for_proxies(key) && *key != labels::KDS_SYNC) {
        let path = || FieldPath::new("labels").key(key);
        if key == labels::WORKLOAD {
            let reason = || format!("the token has to name it: make one with `--workload {value}`");
            violations.check(claims.workload.is_empty(), path(), reason());
        } else {
            violations
                .add(path(), "no token can name it: leave it out, or let an operator apply the Dataplane");
        }
    }
}

#[cfg(test)]
mod tests {
    use common::proto::kuma::mesh::v1alpha1::dataplane::{
        Networking,
        networking::{Inbound, Listener},
    };

    use super::*;

    fn claims(r#type: &str, tags: &[&str], workload: &str) -> DataplaneClaims {
        DataplaneClaims {
            r#type: r#type.to_owned(),
            tags: tags.iter().map(|tag| ((*tag).to_owned(), ["any".to_owned()].into())).collect(),
            workload: workload.to_owned(),
            ..DataplaneClaims::default()
        }
    }

    fn fields(
        claims: &DataplaneClaims,
        networking: Networking,
        labels: &[(&str, &str)],
        bound: bool,
    ) -> Vec<String> {
        let dataplane = Dataplane { networking: Some(networking), ..Dataplane::default() };
        let labels = labels.iter().copied().collect();
        let violations = check(claims, &dataplane, &labels, bound);
        violations.iter().map(|violation| violation.field.to_string()).collect()
    }

    fn listeners(types: &[listener::Type]) -> Networking {
        let listeners = types.iter().map(|edge| Listener { r#type: *edge as i32, ..Listener::default() });
        Networking { listeners: listeners.collect(), ..Networking::default() }
    }

    fn inbounds(tags: &[&[&str]]) -> Networking {
        let set = |tags: &&[&str]| tags.iter().map(|tag| ((*tag).to_owned(), "any".to_owned())).collect();
        let inbound = tags.iter().map(|tags| Inbound { tags: set(tags), ..Inbound::default() });
        Networking { inbound: inbound.collect(), ..Networking::default() }
    }

    #[test]
    fn an_edge_of_a_mesh_is_who_has_a_token_for_it() {
        use listener::Type::{Unspecified, ZoneEgress, ZoneIngress};
        for (r#type, edges, wrong) in [
            ("", &[][..], &[][..]),
            ("", &[ZoneEgress], &[0]),
            ("dataplane", &[ZoneIngress], &[0]),
            ("egress", &[ZoneEgress, ZoneEgress], &[]),
            ("egress", &[ZoneEgress, ZoneIngress], &[1]),
            ("ingress", &[ZoneIngress], &[]),
            ("ingress", &[ZoneEgress], &[0]),
            // Of a version that knows more of them.
            ("egress", &[Unspecified], &[0]),
        ] {
            for bound in [false, true] {
                let expected: Vec<_> =
                    wrong.iter().map(|i| format!("networking.listeners[{i}].type")).collect();
                let claims = claims(r#type, &["kuma.io/service"], "");
                assert_eq!(fields(&claims, listeners(edges), &[], bound), expected, "{type} {edges:?}");
            }
        }
    }

    #[test]
    fn a_builtin_gateway_is_who_has_a_token_for_its_service() {
        let gateway = |r#type: GatewayType| Networking {
            gateway: Some(Gateway {
                tags: [("kuma.io/service".to_owned(), "any".to_owned())].into(),
                r#type: r#type as i32,
            }),
            ..Networking::default()
        };
        let of = |tags: &[&str], r#type| fields(&claims("", tags, ""), gateway(r#type), &[], false);
        assert_eq!(of(&[], GatewayType::Builtin), ["networking.gateway.type"]);
        assert!(of(&["kuma.io/service"], GatewayType::Builtin).is_empty());
        assert!(of(&[], GatewayType::Delegated).is_empty());
    }

    #[test]
    fn a_bound_token_names_every_tag_and_the_workload() {
        let web = claims("", &["kuma.io/service"], "");
        let tags: &[&[&str]] = &[&["kuma.io/service", "kuma.io/zone", "kuma.io/protocol"], &[], &["team"]];
        let labels = [
            ("kuma.io/workload", "payments"),
            ("k8s.kuma.io/namespace", "bank"),
            ("k8s.kuma.io/service-account", "bank"),
            ("team", "bank"),
            // None of these is for the proxy to say, or makes it somebody.
            ("kuma.io/kds-sync", "disabled"),
            ("kuma.io/origin", "zone"),
        ];
        let expected = [
            "networking.inbound[2].tags[\"team\"]",
            "labels[\"k8s.kuma.io/namespace\"]",
            "labels[\"k8s.kuma.io/service-account\"]",
            "labels[\"kuma.io/workload\"]",
            "labels[\"team\"]",
        ];
        assert_eq!(fields(&web, inbounds(tags), &labels, true), expected);
        assert!(fields(&web, inbounds(tags), &labels, false).is_empty(), "Kuma takes it");
        let workload = claims("", &[], "web");
        let service = ["networking.inbound[0].tags[\"kuma.io/service\"]"];
        assert_eq!(fields(&workload, inbounds(&[&["kuma.io/service"]]), &[], true), service);
        assert!(fields(&workload, inbounds(&[&[]]), &[("kuma.io/workload", "web")], true).is_empty());
    }

    #[test]
    fn no_tag_says_what_another_says_that_the_token_names_or_a_control_plane_gives() {
        let of = |claimed: &[&str], tag: &str, value: &str| {
            let inbound = Inbound { tags: [(tag.to_owned(), value.to_owned())].into(), ..Inbound::default() };
            let networking = Networking { inbound: vec![inbound], ..Networking::default() };
            let found = fields(&claims("", claimed, ""), networking, &[], false);
            assert!(
                found.is_empty() || found == [format!("networking.inbound[0].tags[{tag:?}]")],
                "{found:?}"
            );
            !found.is_empty()
        };
        let team = &["kuma.io/service", "example.com/team"][..];
        assert!(of(team, "example.com", "team/b") && of(team, "example.com/team/b", "c"));
        assert!(of(&["example.com"], "example.com/team", "b"));
        assert!(of(&[], "kuma.io", "zone/west") && of(&[], "kuma.io/zone/we", "st"));
        assert!(!of(&[], "example.com", "team/b"), "nobody said anything of either");
        assert!(!of(team, "example.com", "path/b") && !of(team, "kuma.io/service", "team/web"));
        assert!(!of(team, "example.com/team", "a"), "it fits the token, which was found before");
        // The egresses of the mesh are called so, whatever a token says.
        assert!(of(&[], "kuma.io/service", "zone-egress") && of(team, "kuma.io/service", "zone-egress"));
        assert!(!of(&[], "team", "zone-egress"));
    }

    #[test]
    fn labels_of_control_planes_are_not_for_proxies() {
        for (label, expected) in [
            ("team", true),
            ("app.kubernetes.io/name", true),
            ("notkuma.io/a", true),
            ("kuma.io/workload", true),
            ("k8s.kuma.io/namespace", true),
            ("kuma.io/zone", false),
            ("kuma.io/registered-by", false),
            ("kuma.io/managed-by", false),
            ("k8s.kuma.io/anything", false),
            ("strait.io/provided-by", false),
            ("strait.io/signature", false),
        ] {
            assert_eq!(is_for_proxies(label), expected, "{label}");
        }
    }
}
