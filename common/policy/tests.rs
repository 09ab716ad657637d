#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::model::{Kind, SpecError};

/// What is wrong with a spec: `field: reason` per violation, or the one decode error.
fn wrong(kind: &Kind, spec: &Value) -> Vec<String> {
    match kind.validate(spec.to_string().as_bytes()) {
        Ok(violations) => violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
        Err(SpecError::Json { path, reason }) => vec![format!("{path}: {reason}")],
        Err(other) => vec![other.to_string()],
    }
}

fn normalized(kind: &Kind, spec: &Value) -> Value {
    serde_json::from_slice(&kind.normalize(spec.to_string().as_bytes()).unwrap()).unwrap()
}

#[test]
fn valid_specs_are_accepted_and_normalized() {
    let timeout = json!({
        "to": [{"targetRef": {"kind": "MeshService", "name": "a", "sectionName": "http", "x": 1},
                "default": {"idleTimeout": "90s", "http": {"requestTimeout": "0.5s"}}}],
        "y": 2
    });
    assert_eq!(wrong(&mesh_timeout::KIND, &timeout), Vec::<String>::new());
    let expected = json!({
        "to": [{"targetRef": {"kind": "MeshService", "name": "a", "sectionName": "http"},
                "default": {"idleTimeout": "1m30s", "http": {"requestTimeout": "500ms"}}}]
    });
    assert_eq!(normalized(&mesh_timeout::KIND, &timeout), expected);

    let route = json!({"targetRef": {"kind": "Mesh"}, "to": [{
        "targetRef": {"kind": "MeshService", "name": "a"},
        "rules": [{"matches": [{"path": {"type": "PathPrefix", "value": "/v1"}, "headers": [{"name": "x", "value": "1"}]}],
                   "default": {"backendRefs": [{"kind": "MeshService", "name": "b"}]}}]}]});
    assert_eq!(wrong(&mesh_http_route::KIND, &route), Vec::<String>::new());
    let rule = &normalized(&mesh_http_route::KIND, &route)["to"][0]["rules"][0];
    assert_eq!(rule["default"]["backendRefs"][0]["weight"], 1);
    assert_eq!(rule["matches"][0]["headers"][0]["type"], "Exact");
}

#[test]
fn targets_are_checked_by_kind() {
    let spec = |top: Value, to: Value| json!({"targetRef": top, "to": [{"targetRef": to, "default": {"idleTimeout": "1s"}}]});
    let check = |top, to| wrong(&mesh_timeout::KIND, &spec(top, to));
    let mesh = || json!({"kind": "Mesh"});
    assert_eq!(
        check(mesh(), json!({"kind": "MeshServiceSubset", "name": "a"})),
        ["spec.to[0].targetRef.kind: value is not supported"]
    );
    assert_eq!(
        check(mesh(), json!({"kind": "MeshService"})),
        ["spec.to[0].targetRef.name: must be set with kind MeshService"]
    );
    assert_eq!(
        check(mesh(), json!({"kind": "MeshService", "name": "a", "labels": {"b": "c"}})),
        ["spec.to[0].targetRef.labels: either labels or name and namespace must be specified"]
    );
    assert_eq!(
        check(json!({"kind": "Dataplane", "sectionName": "a"}), mesh()),
        ["spec.targetRef.sectionName: can only be used with inbound policies"]
    );
    assert_eq!(
        check(json!({"kind": "Mesh", "tags": {"a": "b"}}), mesh()),
        ["spec.targetRef.tags: must not be set with kind Mesh"]
    );
    assert_eq!(
        check(json!({"kind": "MeshSubset", "tags": {"a": "b c"}}), mesh()),
        [
            "spec.targetRef.tags[\"a\"]: tag value must consist of alphanumeric characters, dots, dashes and underscores"
        ]
    );
    assert_eq!(
        check(json!({"kind": "Nothing"}), mesh()),
        [
            "spec.targetRef.kind: in body should be one of [Mesh Dataplane MeshSubset MeshGateway MeshService MeshExternalService MeshMultiZoneService MeshServiceSubset MeshHTTPRoute]"
        ]
    );
}

#[test]
fn timeouts_are_checked() {
    let check = |default: Value| {
        wrong(&mesh_timeout::KIND, &json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}))
    };
    assert_eq!(check(json!({})), ["spec.to[0].default: at least one timeout should be configured"]);
    assert_eq!(
        check(json!({"connectionTimeout": "-1s", "http": {"requestTimeout": "-10s"}})),
        [
            "spec.to[0].default.connectionTimeout: must be greater than zero when defined",
            "spec.to[0].default.http.requestTimeout: must not be negative when defined"
        ]
    );
    assert_eq!(
        wrong(&mesh_timeout::KIND, &json!({})),
        ["spec: at least one of 'from', 'to' or 'rules' has to be defined"]
    );
    let identity = json!({"spiffeID": {"type": "Exact", "value": "spiffe://a/b"}});
    let rules = json!({"rules": [{"matches": [identity], "default": {"idleTimeout": "1s"}}]});
    assert_eq!(wrong(&mesh_timeout::KIND, &rules).len(), 1);
}

#[test]
fn the_other_policies_are_checked() {
    let to = |default: Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]});
    assert_eq!(
        wrong(&mesh_circuit_breaker::KIND, &to(json!({"outlierDetection": {"maxEjectionPercent": 101}}))),
        [
            "spec.to[0].default.outlierDetection.maxEjectionPercent: has to be in [0 - 100] range",
            "spec.to[0].default.outlierDetection.detectors: must be defined"
        ]
    );
    assert_eq!(
        wrong(&mesh_retry::KIND, &to(json!({"http": {"retryOn": ["5xx", "503", "Never"]}}))),
        ["spec.to[0].default.conf.http.retryOn[2]: unknown item 'Never'"]
    );
    assert_eq!(
        wrong(&mesh_traffic_permission::KIND, &json!({"from": [{"targetRef": {"kind": "Mesh"}}]})),
        ["spec.from[0].default.action: must be defined"]
    );
    let tcp =
        json!({"to": [{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": [{"default": {}}]}]});
    assert_eq!(
        wrong(&mesh_tcp_route::KIND, &tcp),
        ["spec.to[0].rules[0].default.backendRefs: must be defined"]
    );
    let http = json!({"to": [{"targetRef": {"kind": "MeshService", "name": "a"}, "rules": [{
        "matches": [{"path": {"type": "PathPrefix", "value": "/a/"}}, {"path": {"type": "Exact", "value": "/"}}],
        "default": {"filters": [{"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}}]}
    }]}]});
    assert_eq!(wrong(&mesh_http_route::KIND, &http).len(), 2);
}
