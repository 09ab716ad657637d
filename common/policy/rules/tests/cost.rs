//! What changes and lookups cost, printed for whoever works on it:
//! `cargo test --release -p common --lib rules::tests::cost -- --ignored --nocapture`.

use std::time::Duration;

use tokio::time::Instant;

use super::*;

const KIND: &str = "MeshHealthCheck";

/// A policy for the whole mesh about one service.
fn about(i: usize, threshold: u32) -> Arc<Resource> {
    let to = json!([{"targetRef": {"kind": "MeshService", "name": format!("service-{i}")}, "default": {"healthyThreshold": threshold}}]);
    resource(KIND, &format!("policy-{i}"), &json!({"to": to}))
}

fn general() -> Arc<Resource> {
    let to =
        json!([{"targetRef": {"kind": "Mesh"}, "default": {"unhealthyThreshold": 3, "tcp": {"send": "x"}}}]);
    resource(KIND, "general", &json!({"to": to}))
}

fn sidecar() -> SelectableProxy {
    let document = json!({"type": "Dataplane", "mesh": "default", "name": "web", "networking": {
        "address": "10.0.0.1", "inbound": [{"port": 80, "tags": {labels::TAG_SERVICE: "web"}}]}});
    let document = crate::document::Document::parse(&document).unwrap();
    SelectableProxy::of(&document.into_resource(DateTime::<Utc>::MIN_UTC)).unwrap().unwrap()
}

/// The mean of `times` runs.
fn mean(times: u32, mut run: impl FnMut(u32)) -> Duration {
    let start = Instant::now();
    (0..times).for_each(&mut run);
    start.elapsed() / times
}

#[test]
#[ignore = "prints figures"]
fn cost_of_one_policy() {
    for count in [1_000, 3_000, 10_000, 30_000] {
        let resources: Vec<Arc<Resource>> =
            (0..count).map(|i| about(i, 1)).chain([general(), mesh()]).collect();
        let destinations = Destinations::new(&resources);
        let kind = registry::by_name(KIND).unwrap();
        let mut set = PolicySet::parse(kind, &resources);
        let proxy = sidecar();
        let select = mean(3, |_| drop(Selection::of(&set, &proxy, &destinations, false)));
        let mut selection = Selection::of(&set, &proxy, &destinations, false);
        let all = mean(3, |_| drop(to_rules(&selection.policies, &destinations).unwrap()));
        let rules = to_rules(&selection.policies, &destinations).unwrap();
        let lookup = mean(10, |_| {
            (0..200).for_each(|i| assert!(rules.tags.service(&format!("service-{i}")).is_some()));
        });
        let mut outbound = OutboundRules::new(&selection.policies, &destinations);
        let edited: Vec<Arc<Resource>> = (0..1_000).map(|i| about(7, i)).collect();
        let mut spent = [Duration::ZERO; 4];
        for resource in &edited {
            let mut start = Instant::now();
            let mut lap = |spent: &mut Duration| {
                *spent += start.elapsed();
                start = Instant::now();
            };
            let change = set.insert(resource);
            lap(&mut spent[0]);
            selection.apply(&change, &set, &proxy, &destinations, false);
            lap(&mut spent[1]);
            let before = outbound.clone();
            outbound.apply(&change, &destinations);
            lap(&mut spent[2]);
            assert!(!before.differences(&outbound, &destinations).is_empty());
            assert!(outbound.service("service-7").unwrap().is_some());
            lap(&mut spent[3]);
        }
        let demand = mean(10, |_| {
            (0..200).for_each(|i| assert!(outbound.service(&format!("service-{i}")).unwrap().is_some()));
        });
        println!(
            "{count} policies: all anew: select {select:?}, rules of all {all:?}; 200 looked up {lookup:?}, on demand {demand:?}; \
             one edit: set {:?}, selection {:?}, rules {:?}, differences and new rule {:?}",
            spent[0] / 1000,
            spent[1] / 1000,
            spent[2] / 1000,
            spent[3] / 1000,
        );
    }
}
