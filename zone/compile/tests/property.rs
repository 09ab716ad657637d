//! Any zone the API accepts gets configuration that holds together.

mod gateway;
mod identities;
mod legacy;
mod meshes;
mod policies;
mod redirected;

use common::testing::needs;
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use self::{
    meshes::{dataplane, ingress, mesh, outside, services},
    policies::policy,
};
use super::{
    envoy_check,
    fixture::{self, Fixture},
    references,
};
use crate::{
    compile::scratch::Generated,
    generator::{ResourceSet, type_url},
    mesh::{Problem, problem::Subject},
};

const SERVICES: &[&str] = &["web", "Web", "store", "far", "localhost:1080", "a_b.c"];
const PROTOCOLS: &[&str] = &["http", "http2", "grpc", "tcp", "kafka", "odd"];
const DURATIONS: &[&str] = &["0s", "1ns", "15ms", "3s", "4m", "100h"];
const WEIGHTS: &[u32] = &[0, 1, 90, u32::MAX];
const TEXTS: &[&str] = &["x-a", "X-Set", "host", "a b", ":path", "(((", "a+", "v1", "käse", "line\nbreak"];
/// Names of headers, which are in lower case wherever a policy names them.
const NAMES: &[&str] = &["x-a", "x-set", "host", "a+", "v1"];
const PATHS: &[&str] = &["/", "/a", "/a/b", "/A?x=1", "((("];

fn zone() -> impl Strategy<Value = Vec<Value>> {
    let dataplanes = (dataplane(1), dataplane(2), dataplane(3));
    let ingresses = (ingress(1), ingress(2));
    let services = (services(1), services(2));
    let edges = (outside(), gateway::documents(), redirected::addresses(), identities::documents());
    let policies = (vec(policy(), 0..6), vec(legacy::policy(), 0..8));
    (mesh(), dataplanes, ingresses, services, edges, policies).prop_map(
        |(mesh, dataplanes, ingresses, services, edges, (policies, older))| {
            let mut all = vec![mesh, dataplanes.0, dataplanes.1, dataplanes.2, ingresses.0, ingresses.1];
            all.extend(services.0.into_iter().chain(services.1));
            all.extend(edges.0.into_iter().chain(edges.1));
            all.extend(policies.into_iter().enumerate().map(|(index, (kind, spec))| {
            json!({"type": kind, "mesh": "demo", "name": format!("policy-{index}"), "spec": spec})
        }));
            all.extend(older.into_iter().enumerate().map(|(index, mut document)| {
                document["mesh"] = json!("demo");
                document["name"] = json!(format!("older-{index}"));
                document
            }));
            all.extend(edges.2);
            all.extend(edges.3);
            all.push(json!({"type": "MeshZoneAddress", "mesh": "demo", "name": "door",
                "labels": {"kuma.io/zone": "zone-2"}, "spec": {"address": "127.0.4.1", "port": 10001}}));
            all
        },
    )
}

/// What the proxies of the zone get. What is refused is left out of it; without its mesh nothing would be left that
/// could be wrong.
fn made(documents: &[Value]) -> Vec<(String, Generated)> {
    let fixture = Fixture::of_valid(documents);
    assert_eq!(fixture.meshes.len(), 1, "there is no mesh: {:?}", fixture::resource(&documents[0]));
    let all = fixture.generate();
    let mut sidecars =
        all.iter().filter(|(name, _)| fixture.meshes[0].dataplanes.contains_key(name.as_str()));
    let listens = |set: &ResourceSet| set.count(type_url::LISTENER) > 0;
    assert!(sidecars.any(|(_, generated)| listens(&generated.set)), "no sidecar listens");
    all.into_iter().collect()
}

/// What of it refers to nothing. That there is a cluster which a library of gRPC cannot have is told as a problem.
fn broken(name: &str, generated: &Generated) -> Vec<String> {
    let told = generated.problems.iter().filter_map(|problem| match &problem.subject {
        Subject::Part(cluster) => Some(format!("names cluster {cluster:?}")),
        _ => None,
    });
    let told: Vec<String> = told.filter(|_| Fixture::is_library(name)).collect();
    let mut broken = references::broken(&generated.set);
    broken.retain(|reference| !told.iter().any(|told| reference.ends_with(told.as_str())));
    broken
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_valid_gives_configuration_that_holds_together(documents in zone()) {
        for (name, generated) in made(&documents) {
            let broken = broken(&name, &generated);
            prop_assert!(broken.is_empty(), "{name}: {broken:?}");
            let refused: Vec<&Problem> = generated.problems.iter().filter(|p| p.refused().is_some()).collect();
            prop_assert!(refused.is_empty(), "{name}: {refused:?}");
            // Libraries have rules of their own.
            for resource in generated.set.iter().filter(|_| !Fixture::is_library(&name)) {
                let broken = resource.broken_rules();
                prop_assert!(broken.is_empty(), "{name}: {} {}: {broken:?}", resource.type_url, resource.name);
            }
        }
    }
}

/// Fewer cases, since each asks Envoy several times.
#[test]
fn envoy_accepts_whatever_is_valid() {
    let Some(envoy) = needs::envoy() else { return };
    let cases = ProptestConfig::default().cases / 32;
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let result = runner.run(&zone(), |documents| {
        let mut all = made(&documents);
        all.retain(|(proxy, _)| !Fixture::is_library(proxy));
        let sets: Vec<_> = all.into_iter().map(|(proxy, generated)| (proxy, generated.set)).collect();
        let verdict = envoy_check::check_all(&envoy, &sets);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
