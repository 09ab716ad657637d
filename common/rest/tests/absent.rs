//! Who puts a resource is told what of it leads nowhere yet.

use serde_json::{Value, json};

use super::{ask, dataplane, mesh, zone};
use crate::{registry, testing::api::TestApi};

/// The fields named in what is told of references by whoever puts this.
async fn told(api: &TestApi, kind: &str, content: &Value) -> Vec<String> {
    let path = registry::by_name(kind).unwrap().path;
    let mut document = json!({ "type": kind, "mesh": "default", "name": "p" });
    document.as_object_mut().unwrap().extend(content.as_object().unwrap().clone());
    let (status, answer) = ask(api, "PUT", &format!("/meshes/default/{path}/p"), Some(document)).await;
    assert!([200, 201].contains(&status), "{kind}: {answer}");
    let warnings = answer["warnings"].as_array().cloned().unwrap_or_default();
    let of = warnings.iter().filter_map(Value::as_str).filter_map(|text| text.split_once(": there is no "));
    of.map(|(field, _)| field.to_owned()).collect()
}

fn put(kind: &str, name: &str, members: Value) -> Value {
    let mut document = json!({ "type": kind, "mesh": "default", "name": name });
    document.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    document
}

/// Everything the cases refer to.
fn there() -> Vec<Value> {
    let collector =
        json!({ "spec": { "endpoint": { "address": "otel", "port": 4317 }, "protocol": "grpc" } });
    let outside = json!({ "spec": { "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
        "endpoints": [{ "address": "example.com", "port": 443 }] } });
    let edge = json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }],
        "conf": { "listeners": [{ "port": 80, "protocol": "HTTP" }] } });
    vec![
        dataplane("web-1"),
        put("Secret", "cert", json!({ "data": "dGVzdAo=" })),
        put("MeshOpenTelemetryBackend", "shared", collector),
        put("MeshExternalService", "outside", outside),
        put("MeshGateway", "edge", edge),
    ]
}

fn cases() -> Vec<(&'static str, Value, &'static [&'static str])> {
    let service = |name: &str| json!({ "kind": "MeshService", "name": name });
    let timeout = |target: Value| json!({ "targetRef": target, "default": { "idleTimeout": "1s" } });
    let backend = json!({ "type": "OpenTelemetry", "openTelemetry": {
        "backendRef": { "kind": "MeshOpenTelemetryBackend", "name": "shared" } } });
    let outside = json!({ "kind": "MeshExternalService", "name": "outside", "port": 443, "weight": 1 });
    let route = json!({ "targetRef": { "kind": "MeshGateway", "name": "edge" }, "to": [{
        "targetRef": { "kind": "Mesh" }, "hostnames": ["*"], "rules": [{
            "matches": [{ "path": { "type": "PathPrefix", "value": "/" } }],
            "default": { "backendRefs": [outside], "filters": [{ "type": "RequestMirror", "requestMirror": {
                "backendRef": service("web") } }] } }] }] });
    let listener = json!({ "port": 443, "protocol": "HTTPS", "hostname": "a.example.com", "tls": {
        "mode": "TERMINATE", "certificates": [{ "secret": "cert" }] } });
    let selected = |conf: Value| {
        let any = json!([{ "match": { "kuma.io/service": "*" } }]);
        json!({ "sources": any, "destinations": any, "conf": conf })
    };
    let rule = "spec.to[0].rules[0].default";
    let mirror: &'static str = Box::leak(format!("{rule}.filters[0].requestMirror.backendRef").into());
    let backends: &'static str = Box::leak(format!("{rule}.backendRefs[0]").into());
    vec![
        ("MeshTimeout", json!({ "spec": { "to": [timeout(service("web"))] } }), &["spec.to[0].targetRef"]),
        (
            "MeshTimeout",
            json!({ "spec": { "targetRef": { "kind": "Dataplane", "name": "web-1" },
                "to": [timeout(json!({ "kind": "Mesh" }))] } }),
            &["spec.targetRef"],
        ),
        (
            "MeshMetric",
            json!({ "spec": { "default": { "backends": [backend] } } }),
            &["spec.default.backends[0].openTelemetry.backendRef"],
        ),
        (
            "MeshHTTPRoute",
            json!({ "spec": route }),
            Box::leak(Box::new(["spec.targetRef", backends, mirror])),
        ),
        (
            "MeshGateway",
            json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }], "conf": { "listeners": [listener] } }),
            &["conf.listeners[0].tls.certificates[0].secret"],
        ),
        (
            "TrafficRoute",
            selected(json!({ "destination": { "kuma.io/service": "web", "version": "1" } })),
            &["conf.destination"],
        ),
    ]
}

#[tokio::test]
async fn what_leads_nowhere_is_told_until_it_is_there() {
    let (empty, full) = (zone(&[mesh("default")]).await, {
        let mut documents = vec![mesh("default")];
        documents.extend(there());
        zone(&documents).await
    });
    for (kind, content, expected) in cases() {
        let mut found = told(&empty, kind, &content).await;
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected, "{kind}: {content}");
        assert_eq!(told(&full, kind, &content).await, [""; 0], "{kind}: {content}");
    }
}

#[tokio::test]
async fn what_chooses_by_labels_or_means_any_refers_to_nothing() {
    let api = zone(&[mesh("default")]).await;
    let labelled = json!({ "kind": "Dataplane", "labels": { "app": "web" } });
    let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": { "idleTimeout": "1s" } }]);
    let spec = json!({ "spec": { "targetRef": labelled, "to": to } });
    assert_eq!(told(&api, "MeshTimeout", &spec).await, [""; 0]);
    let any = json!([{ "match": { "kuma.io/service": "*" } }]);
    let route =
        json!({ "sources": any, "destinations": any, "conf": { "destination": { "kuma.io/service": "*" } } });
    assert_eq!(told(&api, "TrafficRoute", &route).await, [""; 0]);
}
