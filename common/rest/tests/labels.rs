//! Labels and names of what is put: what each control plane takes, refuses and adds.

use serde_json::{Value, json};

use super::{ask, config, mesh};
use crate::{mode::Mode, testing::api::TestApi};

const NAME_FORM: &str = "name part must consist of alphanumeric characters";
const VALUE_FORM: &str = "a valid label must be an empty string or consist of alphanumeric characters";

/// The two kinds a zone and global may both write: a policy and a destination.
fn documents(labels: &Value) -> [(&'static str, Value); 2] {
    let timeout = json!({
        "type": "MeshTimeout", "mesh": "shop", "name": "a", "labels": labels,
        "spec": { "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "connectionTimeout": "5s" } }] },
    });
    let external = json!({
        "type": "MeshExternalService", "mesh": "shop", "name": "a", "labels": labels,
        "spec": { "match": { "type": "HostnameGenerator", "port": 80, "protocol": "http" } },
    });
    [("meshtimeouts", timeout), ("meshexternalservices", external)]
}

/// The violations of a put as `label: reason`, empty when it was created.
async fn refused(mode: &Mode, labels: &Value) -> Vec<String> {
    let mut outcomes = Vec::new();
    for (path, document) in documents(labels) {
        let api = TestApi::start(config(mode.clone()), &[mesh("shop")]).await.unwrap();
        let (status, body) = ask(&api, "PUT", &format!("/meshes/shop/{path}/a"), Some(document)).await;
        let parameters = body["invalid_parameters"].as_array().cloned().unwrap_or_default();
        assert_eq!(status, if parameters.is_empty() { 201 } else { 400 }, "{labels}: {body}");
        let text = |v: &Value, member: &str| v[member].as_str().unwrap().to_owned();
        let all = parameters.iter().map(|p| format!("{}: {}", text(p, "field"), text(p, "reason")));
        outcomes.push(all.collect::<Vec<_>>());
    }
    assert_eq!(outcomes[0], outcomes[1], "both kinds follow the same rules");
    outcomes.remove(0)
}

async fn check(mode: &Mode, labels: Value, expected: &[&str]) {
    let found = refused(mode, &labels).await;
    assert_eq!(found.len(), expected.len(), "{mode:?} {labels}: {found:?}");
    for (found, expected) in found.iter().zip(expected) {
        assert!(found.starts_with(expected), "{mode:?} {labels}: {found} instead of {expected}");
    }
}

#[tokio::test]
async fn global_takes_any_label_but_a_foreign_origin() {
    let mode = Mode::Global;
    let origin = "labels[\"kuma.io/origin\"]: ";
    let other = format!("{origin}the origin label must be set to 'global'");
    for labels in [
        json!({}),
        json!(null),
        json!({ "kuma.io/origin": "global" }),
        json!({ "kuma.io/foo": "bar", "k8s.kuma.io/baz": "qux" }),
        json!({ "kuma.io/display-name": "other", "kuma.io/env": "universal", "kuma.io/zone": "east" }),
        json!({ "kuma.io/mesh": "nonexistent", "kuma.io/policy-role": "system" }),
        json!({ "kuma.io/proxy-type": "sidecar", "kuma.io/workload": "w" }),
        json!({ "k8s.kuma.io/namespace": "ns", "k8s.kuma.io/service-account": "default" }),
        json!({ "kuma.io/empty": "" }),
    ] {
        check(&mode, labels, &[]).await;
    }
    check(&mode, json!({ "kuma.io/origin": "zone" }), &[&other]).await;
    let unknown = format!("{origin}unknown resource origin \"moon\"");
    check(&mode, json!({ "kuma.io/origin": "moon" }), &[&unknown, &other]).await;
    check(
        &mode,
        json!({ "kuma.io/Not Valid!": "value", "kuma.io/custom": "not valid!!" }),
        &[
            &format!("labels[\"kuma.io/Not Valid!\"]: {NAME_FORM}"),
            &format!("labels[\"kuma.io/custom\"]: {VALUE_FORM}"),
        ],
    )
    .await;
    let long = "x".repeat(64);
    check(&mode, json!({ "a": long }), &["labels[\"a\"]: must be no more than 63 characters"]).await;
}

#[tokio::test]
async fn a_federated_zone_takes_what_says_it_is_of_this_zone() {
    let mode = Mode::federated_zone("east");
    let own = "labels[\"kuma.io/origin\"]: the origin label must be set to 'zone'";
    let of_zone = |mut labels: Value| {
        labels["kuma.io/origin"] = json!("zone");
        labels
    };
    for labels in [
        json!({}),
        json!({ "kuma.io/zone": "east", "kuma.io/mesh": "shop" }),
        json!({ "kuma.io/foo": "bar", "kuma.io/env": "universal", "kuma.io/display-name": "other" }),
        json!({ "kuma.io/policy-role": "system", "kuma.io/proxy-type": "sidecar", "kuma.io/workload": "w" }),
        json!({ "k8s.kuma.io/namespace": "ns", "k8s.kuma.io/service-account": "default" }),
    ] {
        check(&mode, of_zone(labels), &[]).await;
    }
    check(&mode, json!({}), &[own]).await;
    check(&mode, json!({ "kuma.io/origin": "global" }), &[own]).await;
    let unknown = "labels[\"kuma.io/origin\"]: unknown resource origin \"moon\"";
    check(&mode, json!({ "kuma.io/origin": "moon" }), &[unknown, own]).await;
    let other_zone = "labels[\"kuma.io/zone\"]: kuma.io/zone label should have east value";
    check(&mode, of_zone(json!({ "kuma.io/zone": "west" })), &[other_zone]).await;
    let other_mesh = "labels[\"kuma.io/mesh\"]: kuma.io/mesh label must not differ from mesh set on resource";
    check(&mode, of_zone(json!({ "kuma.io/mesh": "other" })), &[other_mesh]).await;
}

#[tokio::test]
async fn a_zone_on_its_own_takes_both_origins() {
    let mode = Mode::standalone_zone("east");
    check(&mode, json!({}), &[]).await;
    check(&mode, json!({ "kuma.io/origin": "global", "kuma.io/zone": "west" }), &[]).await;
    let unknown = "labels[\"kuma.io/origin\"]: unknown resource origin \"moon\"";
    check(&mode, json!({ "kuma.io/origin": "moon" }), &[unknown]).await;
}

#[tokio::test]
async fn labels_are_replaced_not_merged_and_some_never_change() {
    let api = TestApi::start(config(Mode::standalone_zone("east")), &[mesh("shop")]).await.unwrap();
    let path = "/meshes/shop/meshtimeouts/a";
    let put = async |labels: Value| {
        let [(_, document), _] = documents(&labels);
        ask(&api, "PUT", path, Some(document)).await
    };
    let shown = async || ask(&api, "GET", path, None).await.1["labels"].clone();
    let computed = json!({
        "kuma.io/env": "universal", "kuma.io/mesh": "shop", "kuma.io/origin": "zone", "kuma.io/zone": "east",
    });
    assert_eq!(put(json!({ "team": "a" })).await.0, 201);
    let mut with_team = computed.clone();
    with_team["team"] = json!("a");
    assert_eq!(shown().await, with_team);
    assert_eq!(put(json!({ "kuma.io/display-name": "first" })).await.0, 200);
    assert_eq!(shown().await["team"], Value::Null);

    let field = async |labels: Value| {
        let (status, body) = put(labels).await;
        (status, body["title"].clone(), body["invalid_parameters"][0]["reason"].clone())
    };
    let refused = |reason: &str| (400, json!("Could not update a resource"), json!(reason));
    assert_eq!(
        field(json!({ "kuma.io/display-name": "second" })).await,
        refused("is immutable, cannot be changed from \"first\" to \"second\"")
    );
    assert_eq!(field(json!({})).await, refused("is immutable, cannot be removed (was \"first\")"));
    assert_eq!(
        field(json!({ "kuma.io/display-name": "first", "kuma.io/origin": "global" })).await,
        refused("is immutable, cannot be changed from \"zone\" to \"global\"")
    );
}

#[tokio::test]
async fn identities_agree_with_the_url_and_are_well_formed() {
    let api = TestApi::start(config(Mode::Global), &[mesh("shop")]).await.unwrap();
    let titled = async |title: &str, path: &str, body: Value, expected: &[(&str, &str)]| {
        let (status, answer) = ask(&api, "PUT", path, Some(body.clone())).await;
        assert_eq!((status, &answer["title"]), (400, &json!(title)), "{body}");
        let found = answer["invalid_parameters"].as_array().unwrap();
        assert_eq!(found.len(), expected.len(), "{body}: {answer}");
        for (found, (field, reason)) in found.iter().zip(expected) {
            assert_eq!(found["field"], *field, "{body}: {answer}");
            assert!(found["reason"].as_str().unwrap().contains(reason), "{body}: {answer}");
        }
    };
    let check = async |path: &str, body: Value, expected: &[(&str, &str)]| {
        titled("Could not process a resource", path, body, expected).await;
    };
    let same = "from the URL has to be the same as in body";
    check("/meshes/a", json!({ "type": "Mesh", "name": "b" }), &[("name", same)]).await;
    check("/meshes/a", json!({ "type": "Zone", "name": "a" }), &[("type", same)]).await;
    check("/meshes/a", json!({ "name": "a" }), &[("type", same)]).await;
    check(
        "/meshes/shop/traffic-routes/a",
        json!({ "type": "TrafficTrace", "name": "b", "sources": [{ "match": { "kuma.io/service": "*" } }],
            "destinations": [{ "match": { "kuma.io/service": "*" } }],
            "conf": { "destination": { "kuma.io/service": "*" } } }),
        &[("name", same), ("type", same), ("mesh", same)],
    )
    .await;
    check("/meshes/A_b", json!({ "type": "Mesh", "name": "A_b" }), &[("name", "RFC 1123 subdomain")]).await;
    let long = "m".repeat(64);
    let body = json!({ "type": "Mesh", "name": long });
    // That is looked at where meshes are made, not where documents are read.
    titled("Failed to create a resource", &format!("/meshes/{long}"), body, &[("name", "longer than 63")])
        .await;

    // Kinds with a JSON spec have a schema for the whole document.
    let [(_, good), _] = documents(&json!({}));
    for member in ["type", "name", "spec"] {
        let mut without = good.clone();
        without.as_object_mut().unwrap().remove(member);
        let reason = format!("{member} in body is required");
        check("/meshes/shop/meshtimeouts/a", without, &[("", &reason)]).await;
    }
    let mut other = good.clone();
    other["type"] = json!("Mesh");
    check("/meshes/shop/meshtimeouts/a", other, &[("", "type in body should be one of [MeshTimeout]")]).await;
    let mut elsewhere = good;
    elsewhere["mesh"] = json!("default");
    check("/meshes/shop/meshtimeouts/a", elsewhere, &[("mesh", same)]).await;
}

#[tokio::test]
async fn names_leave_room_for_the_zone() {
    let api = TestApi::start(config(Mode::federated_zone("east")), &[mesh("shop")]).await.unwrap();
    let put = async |length: usize| {
        let name = "n".repeat(length);
        let [(_, mut document), _] = documents(&json!({ "kuma.io/origin": "zone" }));
        document["name"] = json!(name);
        ask(&api, "PUT", &format!("/meshes/shop/meshtimeouts/{name}"), Some(document)).await
    };
    assert_eq!(put(252 - "east.".len()).await.0, 201);
    let (status, body) = put(253 - "east.".len()).await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("name")), "{body}");
}
