#![allow(clippy::unwrap_used)]

use chrono::DateTime;
use common::{
    document::Document,
    model::ResourceKey,
    store::{Change, Snapshot, StoreIdentity},
};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn resource(json: &Value) -> Arc<Resource> {
    let document = Document::parse(json).unwrap();
    Arc::new(document.into_resource(DateTime::UNIX_EPOCH))
}

fn empty() -> Index {
    Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 })
}

fn index_of(all: &[Value]) -> Arc<Index> {
    let resources = all.iter().map(resource).collect();
    Arc::new(Index::of(empty().store, Snapshot { revision: 1, commit: None, resources }))
}

fn mesh(enabled: &str) -> Value {
    let backend = json!({ "name": "m", "type": "prometheus", "conf": { "port": 1234, "path": "/older" } });
    json!({ "type": "Mesh", "name": "default", "metrics": { "enabledBackend": enabled, "backends": [backend] } })
}

fn dataplane(name: &str, address: &str, service: &str) -> Value {
    let tags = json!({ "kuma.io/service": service, "version": "v1" });
    let networking = json!({ "address": address, "inbound": [{ "port": 80, "tags": tags }] });
    json!({ "type": "Dataplane", "mesh": "default", "name": name, "networking": networking })
}

fn policy(name: &str, service: Option<&str>, client: Option<&str>, port: u32) -> Value {
    let target = match service {
        Some(service) => json!({ "kind": "MeshSubset", "tags": { "kuma.io/service": service } }),
        None => json!({ "kind": "Mesh" }),
    };
    let mut prometheus = json!({ "port": port, "path": "/stats" });
    prometheus["clientId"] = json!(client);
    let backends = json!([{ "type": "Prometheus", "prometheus": prometheus }]);
    json!({ "type": "MeshMetric", "mesh": "default", "name": name,
        "spec": { "targetRef": target, "default": { "backends": backends } } })
}

/// Client, dataplane, address and path of all there are.
fn told(assignments: &Assignments) -> Vec<(Option<String>, String, String, String)> {
    let told = assignments.told();
    let each = told.iter().flat_map(|(client, all)| all.iter().map(move |one| (client, &one.targets[0])));
    let shown = each.map(|(client, target)| {
        let (name, address, path) =
            (target.name.clone(), target.address.clone(), target.metrics_path.clone());
        (client.as_deref().map(str::to_owned), name, address, path)
    });
    shown.collect()
}

#[test]
fn a_dataplane_answers_as_the_policy_says_that_selects_it_else_as_its_mesh_does() {
    let index = index_of(&[
        mesh("m"),
        dataplane("backend-1", "10.0.0.1", "backend"),
        dataplane("web-1", "2001:db8::1", "web"),
        policy("for-backends", Some("backend"), Some("east"), 5671),
    ]);
    let owned = |client: Option<&str>, name: &str, address: &str, path: &str| {
        (client.map(str::to_owned), name.to_owned(), address.to_owned(), path.to_owned())
    };
    let expected = [
        owned(None, "web-1", "[2001:db8::1]:1234", "/older"),
        owned(Some("east"), "backend-1", "10.0.0.1:5671", "/stats"),
    ];
    assert_eq!(told(&Assignments::new(&index)), expected);
}

#[test]
fn a_client_that_a_policy_names_keeps_its_place_without_a_dataplane() {
    let policy = policy("for-backends", Some("backend"), Some("east"), 5671);
    let with = index_of(&[mesh("m"), dataplane("backend-1", "10.0.0.1", "backend"), policy.clone()]);
    let mut assignments = Assignments::new(&with);
    let east: ClientId = Some("east".into());
    assert_eq!(assignments.told()[&east].iter().count(), 1);
    // Its last dataplane goes.
    let without = |with: &Arc<Index>, gone: &Value| {
        let (mut index, key) = (Index::clone(with), resource(gone).key.clone());
        index.apply(&Change { revision: index.revision + 1, key, resource: None });
        Arc::new(index)
    };
    let alone = without(&with, &dataplane("backend-1", "10.0.0.1", "backend"));
    assert!(assignments.follow(&alone));
    assert_eq!(
        assignments.told().get(&east).map(|told| told.iter().count()),
        Some(0),
        "not what is for everybody"
    );
    assert_eq!(Assignments::new(&alone).told().get(&east).map(|told| told.iter().count()), Some(0));
    // And then the policy.
    assert!(assignments.follow(&without(&alone, &policy)), "from now on it is told what everybody is");
    assert!(!assignments.told().contains_key(&east));
}

#[test]
fn an_assignment_is_as_a_collector_for_kuma_reads_it() {
    let index = index_of(&[mesh("m"), dataplane("web-1", "10.0.0.1", "web")]);
    let told = Assignments::new(&index).told();
    let shown = serde_json::to_value(told[&None].iter().collect::<Vec<_>>()).unwrap();
    let labels =
        json!({ "kuma_io_service": "web", "kuma_io_services": ",web,", "version": "v1", "versions": ",v1," });
    let target = json!({ "name": "web-1", "scheme": "http", "address": "10.0.0.1:1234", "metrics_path": "/older",
        "labels": labels });
    let type_url = "type.googleapis.com/kuma.observability.v1.MonitoringAssignment";
    let expected = json!([{ "@type": type_url, "mesh": "default", "service": "web", "targets": [target] }]);
    assert_eq!(shown, expected);
}

fn document() -> impl Strategy<Value = Value> {
    let address = prop::sample::select(vec!["10.0.0.1", "10.0.0.2"]);
    let service = prop::sample::select(vec!["web", "backend"]);
    let client = prop::option::of(prop::sample::select(vec!["east", "west"]));
    prop_oneof![
        prop::sample::select(vec!["m", ""]).prop_map(mesh),
        (0..4_u8, address, service.clone()).prop_map(|(n, a, s)| dataplane(&format!("dp-{n}"), a, s)),
        (0..3_u8, prop::option::of(service), client, 1..3_u32).prop_map(|(n, s, c, port)| policy(
            &format!("policy-{n}"),
            s,
            c,
            port
        )),
    ]
}

proptest! {
    /// Step by step it comes to the same as at once, version and all, and what is told differs when it says so.
    #[test]
    fn what_follows_change_by_change_is_what_follows_from_nothing(
        steps in prop::collection::vec((document(), prop::bool::weighted(0.3)), 1..24),
    ) {
        let mut index = empty();
        let mut followed = Assignments::new(&Arc::new(index.clone()));
        for (revision, (document, goes)) in (1..).zip(steps) {
            let resource = resource(&document);
            let key: ResourceKey = resource.key.clone();
            index.apply(&Change { revision, key, resource: (!goes).then_some(resource) });
            let newer = Arc::new(index.clone());
            let before = followed.told();
            let differs = followed.follow(&newer);
            let after = followed.told();
            prop_assert_eq!(differs, before != after);
            prop_assert_eq!(after, Assignments::new(&newer).told());
        }
    }
}
