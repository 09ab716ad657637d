//! Whole configurations: golden files, invariants, and Envoy itself as the judge.

#![allow(clippy::unwrap_used)]

mod admin;
mod envoy_check;
mod fixture;
mod golden;
mod kuma;
mod kuma_egress;
mod kuma_zone_proxies;
mod left_out;
mod mutated;
mod names;
mod other_zones;
mod property;
mod references;

use super::scratch;
use crate::generator::{ResourceSet, type_url};
use fixture::Fixture;

const TWO_SERVICES: &str = include_str!("testdata/http-mtls.input.yaml");

fn set(fixture: &Fixture, proxy: &str) -> ResourceSet {
    fixture.generate()[proxy].set.clone()
}

#[test]
fn equal_input_gives_equal_bytes_and_versions() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let client = fixture.sidecar("client");
    let fresh = || scratch::sidecar(&client, &fixture.meshes[0]).unwrap().set;
    for _ in 0..10 {
        // Hash maps are seeded anew for each value, so ten rounds would show a leak of their order.
        assert!(fresh().changes_since(&fresh()).is_empty());
    }
}

#[test]
fn a_change_touches_only_what_depends_on_it() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let before = set(&fixture, "client");
    let moved = TWO_SERVICES.replace("address: 127.0.0.12", "address: 127.0.0.13");
    let after = set(&Fixture::parse(&moved).with_identities_of(&fixture), "client");
    let changes = after.changes_since(&before);
    assert_eq!(changes.0.keys().copied().collect::<Vec<_>>(), [type_url::ENDPOINT], "{changes:?}");
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["web"]);
    assert!(after.changes_since(&after).is_empty());
}

/// Its Envoy waits for the limits of its listeners before it starts.
#[test]
fn a_gateway_that_nobody_configures_is_told_that_nothing_is_limited() {
    let gateway = "
type: Mesh
name: default
---
type: Dataplane
mesh: default
name: edge
networking: { address: 10.0.0.1, gateway: { type: BUILTIN, tags: { kuma.io/service: edge } } }
";
    let delegated = gateway.replace("BUILTIN", "DELEGATED");
    let limits = |zone: &str| {
        let set = set(&Fixture::parse(zone), "edge");
        set.get(type_url::RUNTIME, "gateway.listeners").map(|encoded| encoded.to_json().unwrap())
    };
    let layer = limits(gateway).unwrap();
    assert_eq!(layer, serde_json::json!({"name": "gateway.listeners", "layer": {}}));
    assert_eq!(limits(&delegated), None);
}

#[test]
fn without_a_certificate_a_mesh_with_mutual_tls_gets_nothing() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let mut proxy = fixture.sidecar("client");
    proxy.shown = None;
    let error = scratch::sidecar(&proxy, &fixture.meshes[0]).unwrap_err();
    assert!(error.to_string().contains("no certificate for client"), "{error}");
}
