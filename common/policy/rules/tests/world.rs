//! Small meshes in which everything happens: names that are also hashes, labels half of them share,
//! policies of every target.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Map, Value, json};

use super::*;
use crate::{document::Document, model::names};

/// A kind with a `to` list whose configurations are merged as they come.
pub(super) const KIND: &str = "MeshHealthCheck";

fn one_of(values: &'static [&'static str]) -> impl Strategy<Value = String> {
    select(values).prop_map(str::to_owned)
}

fn tags(max: usize) -> impl Strategy<Value = Value> {
    let tag = (one_of(&["version", "team", labels::TAG_SERVICE]), one_of(&["v1", "v2", "web", "*"]));
    vec(tag, 0..=max)
        .prop_map(|tags| tags.into_iter().map(|(k, v)| (k, Value::from(v))).collect::<Map<_, _>>().into())
}

fn labelled() -> impl Strategy<Value = Vec<(String, String)>> {
    let label = prop_oneof![
        (Just(labels::ORIGIN), select(&["global", "zone"][..])),
        (Just(labels::ZONE), select(&["east", "west"][..])),
        (Just(labels::NAMESPACE), select(&["shop", ""][..])),
        (Just(labels::POLICY_ROLE), select(&["producer", "consumer", "workload-owner"][..])),
        (Just(labels::DISPLAY_NAME), select(&["web", "api", "r1"][..])),
        (Just(labels::EFFECT), Just("shadow")),
        (Just("app"), select(&["shop", "till"][..])),
    ];
    // Four make one that came from another zone and speaks of its own.
    vec(label.prop_map(|(k, v)| (k.to_owned(), v.to_owned())), 0..6)
}

fn with_labels(resource: &Resource, labelled: Vec<(String, String)>) -> Arc<Resource> {
    Arc::new(labelled.into_iter().fold(resource.clone(), |r, (key, value)| r.with_label(&key, &value)))
}

fn labels_of_target() -> impl Strategy<Value = Value> {
    let label = prop_oneof![
        (Just("app"), select(&["shop", "till"][..])),
        (Just(labels::ZONE), select(&["east", "west"][..])),
        (Just(labels::DISPLAY_NAME), select(&["web", "api"][..])),
    ];
    vec(label, 0..3)
        .prop_map(|all| all.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<Map<_, _>>().into())
}

/// The top of a policy.
fn top() -> impl Strategy<Value = Value> {
    let name = || one_of(&["web", "api", "admin", "*"]);
    prop_oneof![
        3 => Just(json!({"kind": "Mesh"})),
        1 => select(&["Sidecar", "Gateway"][..]).prop_map(|t| json!({"kind": "Mesh", "proxyTypes": [t]})),
        2 => tags(2).prop_map(|tags| json!({"kind": "MeshSubset", "tags": tags})),
        2 => name().prop_map(|name| json!({"kind": "MeshService", "name": name})),
        1 => (name(), tags(1)).prop_map(|(name, tags)| json!({"kind": "MeshServiceSubset", "name": name, "tags": tags})),
        1 => Just(json!({"kind": "Dataplane"})),
        1 => one_of(&["web-1", "web-2"]).prop_map(|name| json!({"kind": "Dataplane", "name": name})),
        2 => labels_of_target().prop_map(|labels| json!({"kind": "Dataplane", "labels": labels, "sectionName": "http"})),
        1 => gateway_name().prop_map(|name| json!({"kind": "MeshGateway", "name": name})),
        1 => route_name().prop_map(|name| json!({"kind": "MeshHTTPRoute", "name": name})),
        1 => name().prop_map(|name| json!({"kind": "MeshExternalService", "name": name})),
    ]
}

fn gateway_name() -> impl Strategy<Value = String> {
    select(vec!["edge".to_owned(), names::hashed("default", "edge", None, None), "other".to_owned()])
}

fn route_name() -> impl Strategy<Value = String> {
    select(vec!["r1".to_owned(), names::hashed("default", "r1", None, None), "r2".to_owned()])
}

/// The target of an item.
fn item_target(plain: bool) -> BoxedStrategy<Value> {
    let name = || one_of(&["web", "api", "web_shop_svc_80", "web_shop_svc"]);
    let common = prop_oneof![
        2 => Just(json!({"kind": "Mesh"})),
        4 => name().prop_map(|name| json!({"kind": "MeshService", "name": name})),
        2 => (name(), one_of(&["80", "http"])).prop_map(|(name, section)| json!({"kind": "MeshService", "name": name, "sectionName": section})),
        2 => labels_of_target().prop_map(|labels| json!({"kind": "MeshService", "labels": labels})),
        1 => name().prop_map(|name| json!({"kind": "MeshExternalService", "name": name})),
        1 => labels_of_target().prop_map(|labels| json!({"kind": "MeshMultiZoneService", "labels": labels, "sectionName": "http"})),
    ];
    if plain {
        return common.boxed();
    }
    prop_oneof![
        8 => common,
        1 => tags(2).prop_map(|tags| json!({"kind": "MeshSubset", "tags": tags})),
        1 => route_name().prop_map(|name| json!({"kind": "MeshHTTPRoute", "name": name})),
    ]
    .boxed()
}

/// A policy, selecting anything and about anything. A `plain` one is about the mesh and services only.
pub(super) fn policy_resource(plain: bool) -> impl Strategy<Value = Arc<Resource>> {
    let item =
        (item_target(plain), conf()).prop_map(|(target, conf)| json!({"targetRef": target, "default": conf}));
    let top = if plain { Just(json!({"kind": "Mesh"})).boxed() } else { top().boxed() };
    (one_of(&["a", "b", "c", "d", "e", "f"]), top, vec(item, 0..3), labelled()).prop_map(
        |(name, top, to, labelled)| {
            with_labels(&resource(KIND, &name, &json!({"targetRef": top, "to": to})), labelled)
        },
    )
}

/// Something that can be pointed at.
pub(super) fn destination() -> impl Strategy<Value = Arc<Resource>> {
    let name = || one_of(&["web", "api", "web-x", "other"]);
    let ports = || {
        select(vec![json!([]), json!([{"port": 80}]), json!([{"port": 80, "name": "http"}, {"port": 81}])])
    };
    let matches = json!([{"path": {"type": "Exact", "value": "/"}}]);
    let route =
        (route_name(), top(), option::of(one_of(&["web", "api"]))).prop_map(move |(name, top, service)| {
            let target = service
                .map_or_else(|| json!({"kind": "Mesh"}), |name| json!({"kind": "MeshService", "name": name}));
            let rules = json!([{"matches": matches, "default": {}}]);
            resource(
                "MeshHTTPRoute",
                &name,
                &json!({"targetRef": top, "to": [{"targetRef": target, "rules": rules}]}),
            )
        });
    let of = |kind: &'static str| {
        (name(), ports()).prop_map(move |(name, ports)| resource(kind, &name, &json!({"ports": ports})))
    };
    let all = prop_oneof![
        4 => of("MeshService"),
        1 => of("MeshMultiZoneService"),
        1 => of("MeshExternalService"),
        2 => route,
    ];
    let labelled = (all, labelled()).prop_map(|(resource, labelled)| with_labels(&resource, labelled));
    prop_oneof![9 => labelled, 2 => Just(mesh())]
}

/// A sidecar, a delegated gateway or a builtin one.
pub(super) fn proxy() -> impl Strategy<Value = SelectableProxy> {
    let inbound = (select(vec![80, 81]), tags(3))
        .prop_map(|(port, tags)| json!({"port": port, "name": "http", "tags": tags}));
    let networking = prop_oneof![
        4 => vec(inbound, 0..3).prop_map(|inbounds| json!({"address": "10.0.0.1", "inbound": inbounds})),
        1 => tags(2).prop_map(|tags| json!({"address": "10.0.0.1", "gateway": {"type": "DELEGATED", "tags": tags}})),
        1 => Just(json!({"address": "10.0.0.1", "gateway": {"tags": {labels::TAG_SERVICE: "edge"}}})),
    ];
    let gateway = (gateway_name(), tags(2), labelled());
    (one_of(&["web-1", "web-2"]), networking, labelled(), gateway).prop_map(
        |(name, networking, labelled, gateway)| {
            let document =
                |value: Value| Document::parse(&value).unwrap().into_resource(DateTime::<Utc>::MIN_UTC);
            let dataplane = document(
                json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": networking}),
            );
            let (name, tags, of_gateway) = gateway;
            let gateway = document(json!({
                "type": "MeshGateway", "mesh": "default", "name": name,
                "selectors": [{"match": {labels::TAG_SERVICE: "edge"}}],
                "conf": {"listeners": [{"port": 8080, "protocol": "HTTP", "tags": tags}]},
            }));
            let proxy = SelectableProxy::of(&with_labels(&dataplane, labelled)).unwrap().unwrap();
            proxy.with_gateway(&[with_labels(&gateway, of_gateway)])
        },
    )
}
