#![allow(clippy::unwrap_used)]
use chrono::DateTime;
use serde_json::json;

use super::*;
use crate::{document::Document, model::ResourceKey, registry};

/// A proxy of zone `east` with two inbounds, or a delegated gateway.
fn proxy(networking: &Value) -> SelectableProxy {
    let document = json!({
        "type": "Dataplane", "mesh": "default", "name": "web-1",
        "labels": {"app": "shop", labels::ORIGIN: "zone", labels::ZONE: "east"},
        "networking": networking,
    });
    let resource = Document::parse(&document).unwrap().into_resource(DateTime::UNIX_EPOCH);
    SelectableProxy::of(&resource).unwrap().unwrap()
}

fn sidecar() -> SelectableProxy {
    proxy(&json!({"address": "10.0.0.1", "inbound": [
        {"port": 80, "name": "http", "tags": {labels::TAG_SERVICE: "web", "version": "v1"}},
        {"port": 81, "tags": {labels::TAG_SERVICE: "admin"}},
    ]}))
}

/// The ports of the inbounds a policy with these labels selects by this target.
fn selected(proxy: &SelectableProxy, target: &Value, labelled: &[(&str, &str)]) -> Vec<u32> {
    let kind = registry::by_name("MeshTrafficPermission").unwrap();
    let spec = json!({"targetRef": target, "from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]});
    let resource = Resource::new(ResourceKey::new(kind, "default", "p"), DateTime::UNIX_EPOCH);
    let resource = labelled.iter().fold(resource, |r, (key, value)| r.with_label(key, value));
    let set = PolicySet::parse(kind, &[Arc::new(resource.with_spec(spec.to_string()))]);
    assert!(set.broken.is_empty(), "{:?}", set.broken);
    let selection = Selection::of(&set, proxy, &Destinations::default(), false);
    assert!(selection.warnings.is_empty(), "{:?}", selection.warnings);
    assert_eq!(selection.policies.is_empty(), selection.inbounds.is_empty());
    selection.inbounds.keys().map(|key| key.port).collect()
}

#[test]
fn a_target_selects_inbounds() {
    let proxy = sidecar();
    let check = |target: Value, ports: &[u32]| {
        assert_eq!(selected(&proxy, &target, &[(labels::ZONE, "east")]), ports, "{target}");
    };
    check(json!({"kind": "Mesh"}), &[80, 81]);
    check(json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]}), &[80, 81]);
    check(json!({"kind": "Mesh", "proxyTypes": ["Gateway"]}), &[]);
    check(json!({"kind": "MeshSubset", "tags": {"version": "v1"}}), &[80]);
    check(json!({"kind": "MeshSubset", "tags": {"version": "*"}}), &[80]);
    check(json!({"kind": "MeshSubset", "tags": {"version": "v2"}}), &[]);
    check(json!({"kind": "MeshSubset", "tags": {"version": "v1"}, "proxyTypes": ["Gateway"]}), &[]);
    check(json!({"kind": "MeshService", "name": "admin"}), &[81]);
    check(json!({"kind": "MeshServiceSubset", "name": "web", "tags": {"version": "v1"}}), &[80]);
    check(json!({"kind": "MeshServiceSubset", "name": "admin", "tags": {"version": "v1"}}), &[]);
    check(json!({"kind": "MeshGateway", "name": "web"}), &[]);
    check(json!({"kind": "Dataplane"}), &[80, 81]);
    check(json!({"kind": "Dataplane", "name": "web-1"}), &[80, 81]);
    check(json!({"kind": "Dataplane", "name": "web-2"}), &[]);
    check(json!({"kind": "Dataplane", "labels": {"app": "shop"}}), &[80, 81]);
    check(json!({"kind": "Dataplane", "labels": {"app": "shop", "tier": "x"}}), &[]);
    check(json!({"kind": "Dataplane", "sectionName": "http"}), &[80]);
    check(json!({"kind": "Dataplane", "name": "web-1", "sectionName": "81"}), &[81]);
    // An inbound with a name is not called by its port.
    check(json!({"kind": "Dataplane", "sectionName": "80"}), &[]);
}

#[test]
fn a_policy_stays_in_its_zone_and_namespace_unless_it_speaks_for_a_destination() {
    let proxy = sidecar();
    let all = json!({"kind": "Mesh"});
    let check = |labelled: &[(&str, &str)], expected: bool| {
        assert_eq!(!selected(&proxy, &all, labelled).is_empty(), expected, "{labelled:?}");
    };
    let zone = (labels::ORIGIN, "zone");
    check(&[], true);
    check(&[(labels::ORIGIN, "global")], true);
    check(&[zone, (labels::ZONE, "east")], true);
    check(&[zone, (labels::ZONE, "west")], false);
    check(&[zone, (labels::ZONE, "west"), (labels::POLICY_ROLE, "producer")], true);
    check(&[zone, (labels::ZONE, "east"), (labels::POLICY_ROLE, "consumer")], false);
    check(&[(labels::POLICY_ROLE, "workload-owner"), (labels::NAMESPACE, "shop")], false);
    check(&[(labels::EFFECT, "shadow")], false);
}

#[test]
fn a_delegated_gateway_is_selected_as_a_whole() {
    let gateway = json!({"type": "DELEGATED", "tags": {labels::TAG_SERVICE: "edge"}});
    let proxy = proxy(&json!({"address": "10.0.0.2", "gateway": gateway}));
    let kind = registry::by_name("MeshTimeout").unwrap();
    let selects = |target: Value| {
        let spec = json!({"targetRef": target, "to": [{"targetRef": {"kind": "Mesh"}, "default": {"idleTimeout": "1s"}}]});
        let resource = Resource::new(ResourceKey::new(kind, "default", "p"), DateTime::UNIX_EPOCH);
        let set = PolicySet::parse(kind, &[Arc::new(resource.with_spec(spec.to_string()))]);
        Selection::of(&set, &proxy, &Destinations::default(), false).policies.len() == 1
    };
    assert!(selects(json!({"kind": "Mesh"})));
    assert!(selects(json!({"kind": "Mesh", "proxyTypes": ["Gateway"]})));
    assert!(!selects(json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]})));
    assert!(selects(json!({"kind": "MeshService", "name": "edge"})));
    assert!(!selects(json!({"kind": "MeshService", "name": "web"})));
    assert!(selects(json!({"kind": "Dataplane", "labels": {}})));
}
