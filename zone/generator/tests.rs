//! Whole configurations: golden files, invariants, and Envoy itself as the judge.

#![allow(clippy::unwrap_used)]

mod admin;
mod envoy_check;
mod fixture;
mod golden;
mod kuma;
mod property;
mod references;

use std::sync::Arc;

use super::{Interner, ResourceSet, type_url};
use fixture::Fixture;

const TWO_SERVICES: &str = include_str!("testdata/http-mtls.input.yaml");

fn set(fixture: &Fixture, proxy: &str) -> ResourceSet {
    fixture.generate()[proxy].set.clone()
}

#[test]
fn equal_input_gives_equal_bytes_and_versions() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let client = fixture.sidecar("client");
    let fresh = || super::sidecar(&client, &fixture.meshes[0], &Interner::default()).unwrap().set;
    for _ in 0..10 {
        // Hash maps are seeded anew for each value, so ten rounds would show a leak of their order.
        assert_eq!(fresh(), fresh());
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

#[test]
fn without_a_certificate_a_mesh_with_mutual_tls_gets_nothing() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let mut proxy = fixture.sidecar("client");
    proxy.certificate = None;
    let error = super::sidecar(&proxy, &fixture.meshes[0], &fixture.interner).unwrap_err();
    assert!(error.to_string().contains("no certificate for client"), "{error}");
}

#[test]
fn equal_resources_of_two_proxies_are_held_once() {
    let fixture = Fixture::parse(TWO_SERVICES);
    let first = set(&fixture, "client");
    let second = set(&fixture, "client");
    for (name, resource) in first.of_type(type_url::CLUSTER) {
        assert!(Arc::ptr_eq(resource, second.get(type_url::CLUSTER, name).unwrap()), "{name}");
    }
}
