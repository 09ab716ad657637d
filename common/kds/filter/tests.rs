use chrono::DateTime;

use super::*;
use crate::{
    model::{Kind, ResourceKey, kinds},
    policy::{mesh_http_route, mesh_proxy_patch, mesh_timeout, mesh_traffic_permission},
};

fn resource(kind: &'static Kind, name: &str, origin: Origin) -> Resource {
    let mut r = Resource::new(ResourceKey::new(kind, "default", name), DateTime::UNIX_EPOCH);
    r.origin = origin;
    r
}

fn zone(name: &str) -> Origin {
    Origin::Zone(name.into())
}

fn down(resource: &Resource, features: &Features) -> bool {
    let receiver = Receiver { zone: "zone-1", features, issues: false };
    Audience::of(resource).iter().any(|all| all.includes(receiver, |zone| zone != "switched-off"))
}

#[test]
fn what_does_not_go_down_has_a_reason_and_nothing_else_has() {
    let ours = Features::ours();
    let of_kuma = Features::default();
    let policy = |origin| {
        let spec = br#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"}}]}"#;
        resource(&mesh_timeout::KIND, "t", origin).with_spec(&spec[..])
    };
    let ingress = |owner| resource(&kinds::zone_ingress::KIND, "in", zone(owner));
    let insight = |owner| resource(&kinds::zone_ingress_insight::KIND, "in", zone(owner));
    for (resource, features, expected) in [
        (policy(Origin::Global), &ours, None),
        (resource(&kinds::zone::KIND, "zone-1", Origin::Global), &ours, Some("stay on global")),
        (policy(Origin::Global).with_label(labels::KDS_SYNC, "disabled"), &ours, Some("kuma.io/kds-sync")),
        (resource(&kinds::dataplane::KIND, "d", zone("zone-2")), &ours, Some("is from zone zone-2, and")),
        (policy(zone("zone-2")), &ours, Some("for its own proxies")),
        (ingress("zone-2"), &ours, None),
        (ingress("zone-1"), &ours, Some("from this zone itself")),
        (ingress("switched-off"), &ours, Some("switched-off, where it is from, is disabled")),
        (insight("zone-2"), &ours, None),
        (insight("zone-2"), &of_kuma, Some("does not announce the feature \"strait-ingress-insights\"")),
        (insight("zone-1"), &ours, Some("from this zone itself")),
        (insight("switched-off"), &ours, Some("switched-off, where it is from, is disabled")),
        (
            resource(&mesh_timeout::KIND, "t", Origin::Global).with_spec(&b"{}"[..]),
            &of_kuma,
            Some("does not announce"),
        ),
    ] {
        let receiver = Receiver { zone: "zone-1", features, issues: false };
        let told = why_not_sent(&resource, receiver, |zone| zone != "switched-off");
        assert_eq!(told.is_none(), down(&resource, features), "{told:?}");
        match (expected, &told) {
            (None, None) => {}
            (Some(expected), Some(told)) => assert!(told.contains(expected), "{told}"),
            _ => panic!("{}: {told:?}, expected {expected:?}", resource.key),
        }
    }
}

#[test]
fn what_goes_down() {
    let ours = Features::ours();
    let check = |r: Resource, expected: bool| assert_eq!(down(&r, &ours), expected, "{}", r.key);
    let global = |kind, name| resource(kind, name, Origin::Global);
    check(global(&kinds::mesh::KIND, "default"), true);
    check(global(&mesh_timeout::KIND, "t"), true);
    check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "disabled"), false);
    check(global(&mesh_timeout::KIND, "t").with_label(labels::KDS_SYNC, "enabled"), true);
    check(global(&kinds::config::KIND, config::CLUSTER_ID), true);
    check(global(&kinds::config::KIND, "other"), false);
    check(global(&kinds::secret::GLOBAL_SECRET, ca::ADMIN_SECRET), false);
    check(global(&kinds::secret::GLOBAL_SECRET, "user-token-signing-key-1"), false);
    check(global(&kinds::secret::GLOBAL_SECRET, "zone-token-signing-key-1"), true);
    check(global(&kinds::secret::SECRET, "ca"), true);
    check(global(&kinds::zone::KIND, "zone-1"), false);
    check(global(&kinds::zone_insight::KIND, "zone-1"), false);
}

#[test]
fn keys_of_a_mesh_whose_zones_have_their_own() {
    let features = Features::ours();
    // Whether it goes, and as public half, to those who have a key of their own and to those who have none.
    let forms = |name: &str, by: &str| {
        let secret = resource(&kinds::secret::SECRET, name, Origin::Global).with_label(labels::ISSUING, by);
        [true, false].map(|issues| {
            let to = Receiver { zone: "zone-1", features: &features, issues };
            let all = Audience::of(&secret).into_iter().filter(|a| a.includes(to, |_| true));
            all.map(|audience| audience.gets_public_half()).collect::<Vec<_>>()
        })
    };
    let (key, root) = ("dataplane-token-signing-key-default-1", "default.ca-builtin-key-ca");
    assert_eq!(forms(key, "zone"), [vec![true], vec![false]]);
    assert_eq!(forms(root, "zone"), [vec![], vec![false]]);
    assert_eq!(forms(key, "mesh"), [vec![false], vec![false]]);
    assert_eq!(forms(root, "mesh"), [vec![false], vec![false]]);
    assert_eq!(forms(key, "zone-only"), [vec![true], vec![]]);
    assert!(forms(root, "zone-only").iter().all(Vec::is_empty));
}

#[test]
fn what_crosses_zones() {
    let ours = Features::ours();
    let check = |r: Resource, expected: bool| assert_eq!(down(&r, &ours), expected, "{}", r.key);
    let ingress = |owner| resource(&kinds::zone_ingress::KIND, "i", zone(owner));
    check(ingress("zone-2"), true);
    check(ingress("zone-1"), false);
    check(ingress("switched-off"), false);
    check(resource(&kinds::dataplane::KIND, "d", zone("zone-2")), false);
    check(resource(&kinds::zone_egress::KIND, "e", zone("zone-2")), false);
    check(resource(&mesh_timeout::KIND, "t", zone("zone-2")), false);
}

#[test]
fn producer_policies_cross_zones() {
    let produced = |spec: &str| {
        resource(&mesh_http_route::KIND, "r", zone("zone-2"))
            .with_label(labels::POLICY_ROLE, "producer")
            .with_label(labels::NAMESPACE, "demo")
            .with_spec(spec.as_bytes().to_vec())
    };
    let own = r#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"MeshService","name":"a"}}]}"#;
    let foreign = r#"{"targetRef":{"kind":"Mesh"},"to":[{"targetRef":{"kind":"Mesh"}}]}"#;
    let pinned = |to: &str| {
        format!(
            r#"{{"targetRef":{{"kind":"MeshSubset","tags":{{"kuma.io/zone":"{to}"}}}},
                 "to":[{{"targetRef":{{"kind":"MeshService","name":"a"}}}}]}}"#
        )
    };
    let ours = Features::ours();
    assert!(down(&produced(own), &ours));
    // Members that no decoder reads are no reason, nor is what stands beside what it may say.
    let to_own = r#""to":[{"targetRef":{"kind":"MeshService","name":"a"}}]"#;
    let with = |kind, more: &str| {
        let spec = format!(r#"{{"targetRef":{{"kind":"Mesh"}},{to_own},{more}}}"#);
        let key = ResourceKey::new(kind, "default", "r");
        Resource { key, ..produced(&spec) }
    };
    let lua =
        r#""default":{"appendModifications":[{"httpFilter":{"operation":"AddFirst","value":"name: x"}}]}"#;
    assert!(!down(&with(&mesh_proxy_patch::KIND, lua), &ours));
    let allowed = r#""rules":[{"default":{"allow":[{"spiffeID":{"type":"Prefix","value":"spiffe://"}}]}}]"#;
    assert!(!down(&with(&mesh_traffic_permission::KIND, allowed), &ours));
    let inbound = r#""rules":[{"default":{"idleTimeout":"1s"}}]"#;
    assert!(!down(&with(&mesh_timeout::KIND, inbound), &ours));
    assert!(down(&with(&mesh_timeout::KIND, r#""unread":1"#), &ours));
    assert!(!down(&produced(own), &ours.clone().without(PRODUCER_POLICY_FLOW)));
    assert!(!down(&produced(foreign), &ours));
    assert!(down(&produced(&pinned("zone-1")), &ours));
    assert!(!down(&produced(&pinned("zone-3")), &ours));
    let unlabelled = Resource { labels: Default::default(), ..produced(own) };
    assert!(!down(&unlabelled, &ours));
}

/// A word in the name of a trust domain may be that of a zone by chance.
#[test]
fn a_zone_vouches_for_the_domain_that_is_called_after_it() {
    let (ours, of_kuma) = (Features::ours(), Features::ours().without(ATTRIBUTION));
    let sent = |mesh: &str, owner: &str, domain: &str| {
        let key = ResourceKey::new(&mesh_trust::KIND, mesh, "t");
        let spec = format!(r#"{{"trustDomain":"{domain}","caBundles":[]}}"#);
        let mut trust = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec.into_bytes());
        trust.origin = zone(owner);
        (down(&trust, &ours), down(&trust, &of_kuma))
    };
    assert_eq!(sent("prod", "zone-2", "prod.zone-2.mesh.local"), (true, true));
    assert_eq!(sent("prod", "prod", "prod.prod.mesh.local"), (true, true));
    for owner in ["prod", "mesh", "local", "zone-3"] {
        assert_eq!(sent("prod", owner, "prod.zone-2.mesh.local"), (false, false), "{owner}");
    }
    // What a MeshIdentity gives a zone is known where that is at hand.
    assert_eq!(sent("prod", "zone-2", "zone-2.example.com"), (true, false));
    assert_eq!(sent("prod", "zone-2", "prod.zone-2.example.com"), (true, false));
    assert_eq!(sent("prod", "zone-2", "example.com"), (false, false));
}

#[test]
fn older_peers_are_spared_what_they_cannot_read() {
    let old = Features::ours().without(OPTIONAL_TOP_LEVEL_TARGET_REF).without(HOSTNAME_GENERATOR_MZ_SELECTOR);
    let bare = resource(&mesh_timeout::KIND, "t", Origin::Global);
    assert!(!down(&bare, &old));
    assert!(down(&bare.with_spec(&br#"{"targetRef":{"kind":"Mesh"}}"#[..]), &old));
    let generator = resource(&kinds::destinations::HOSTNAME_GENERATOR, "g", Origin::Global);
    let multi_zone = generator.clone().with_spec(&br#"{"selector":{"meshMultiZoneService":{}}}"#[..]);
    assert!(down(&generator, &old));
    assert!(!down(&multi_zone, &old));
    assert!(down(&multi_zone, &Features::ours()));
}

#[test]
fn what_goes_up() {
    let check = |r: Resource, expected: bool| assert_eq!(goes_up(&r, "zone-1"), expected, "{}", r.key);
    check(resource(&kinds::dataplane::KIND, "d", zone("zone-1")), true);
    check(resource(&kinds::dataplane::KIND, "d", Origin::Global), false);
    check(resource(&kinds::zone_ingress::KIND, "i", Origin::Global), false);
    check(resource(&mesh_timeout::KIND, "t", zone("zone-1")), true);
    check(resource(&mesh_timeout::KIND, "t", Origin::Global), false);
    let withheld =
        resource(&mesh_timeout::KIND, "t", zone("zone-1")).with_label(labels::KDS_SYNC, "disabled");
    check(withheld, false);
    check(resource(&kinds::secret::SECRET, "s", zone("zone-1")), false);
    check(resource(&kinds::zone::KIND, "zone-1", zone("zone-1")), false);
}
