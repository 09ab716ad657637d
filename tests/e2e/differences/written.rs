//! What is written: refused, completed and warned of as Kuma does.

use common::{mode::Mode, registry};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{ControlPlane, Global};

/// Puts a spec of a kind that keeps it in `spec`.
async fn put(global: &ControlPlane, kind: &str, name: &str, spec: &Value) -> (StatusCode, Value) {
    write(global, kind, name, &json!({ "spec": spec })).await
}

/// Puts a document with these members besides those that every document has.
async fn write(global: &ControlPlane, kind: &str, name: &str, members: &Value) -> (StatusCode, Value) {
    let kind = registry::by_name(kind).unwrap();
    let mut document = members.clone();
    document["type"] = json!(kind.name);
    document["name"] = json!(name);
    let path = match kind.is_mesh_scoped() {
        true => {
            document["mesh"] = json!("default");
            format!("/meshes/default/{}/{name}", kind.path)
        }
        false => format!("/{}/{name}", kind.path),
    };
    global.call(Method::PUT, &path, Some(document)).await
}

async fn shown(global: &ControlPlane, kind: &str, name: &str) -> Value {
    let kind = registry::by_name(kind).unwrap();
    let path = if kind.is_mesh_scoped() { "/meshes/default/" } else { "/" };
    global.get(&format!("{path}{}/{name}", kind.path)).await
}

/// Kind, what is wrong, and where the error says that it is.
fn refused() -> Vec<(&'static str, Value, &'static str)> {
    let anybody = || json!([{ "match": { "kuma.io/service": "*" } }]);
    // About everybody's calls of everybody, with this to say.
    let calls = |conf: Value| json!({ "sources": anybody(), "destinations": anybody(), "conf": conf });
    let spec = |spec: Value| json!({ "spec": spec });
    let to =
        |default: Value| spec(json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": default }] }));
    let rules = |default: Value| {
        spec(json!({ "targetRef": { "kind": "Dataplane" }, "rules": [{ "default": default }] }))
    };
    let outside = |protocol: &str| {
        spec(json!({ "match": { "type": "HostnameGenerator", "port": 80, "protocol": protocol },
            "endpoints": [{ "address": "192.0.2.1", "port": 80 }] }))
    };
    let provided = json!({ "cert": { "secret": "nobody" }, "key": { "secret": "nobody" } });
    vec![
        ("TrafficRoute", json!({ "sources": anybody(), "destinations": anybody() }), "conf"),
        ("TrafficPermission", json!({ "destinations": anybody() }), "sources"),
        (
            "HealthCheck",
            calls(json!({ "interval": "-1s", "timeout": "1s", "unhealthyThreshold": 1,
            "healthyThreshold": 1, "tcp": {} })),
            "conf.interval",
        ),
        ("CircuitBreaker", calls(json!({})), "conf"),
        ("FaultInjection", calls(json!({})), "conf"),
        ("TrafficLog", json!({ "destinations": anybody() }), "sources"),
        (
            "VirtualOutbound",
            json!({ "selectors": anybody(), "conf": { "host": "", "port": "80" } }),
            "conf.host",
        ),
        (
            "ProxyTemplate",
            json!({ "selectors": anybody(), "conf": { "imports": ["nobody"] } }),
            "conf.imports[0]",
        ),
        ("Retry", calls(json!({})), "conf"),
        ("TrafficTrace", json!({ "conf": { "backend": "b" } }), "selectors"),
        ("MeshGatewayRoute", json!({ "conf": { "http": { "rules": [] } } }), "selectors"),
        (
            "MeshFaultInjection",
            rules(json!({ "http": [{ "abort": { "httpStatus": 42, "percentage": 50 } }] })),
            "spec.rules[0].default",
        ),
        (
            "MeshRateLimit",
            rules(json!({ "local": { "http": { "requestRate": { "num": 0, "interval": "1s" } } } })),
            "spec.rules[0].default.local.http",
        ),
        ("MeshHealthCheck", to(json!({ "interval": "-1s", "tcp": {} })), "spec.to[0].default.interval"),
        (
            "MeshPassthrough",
            spec(json!({ "default": { "appendMatch": [{ "type": "IP", "value": "nowhere" }] } })),
            "spec",
        ),
        (
            "MeshProxyPatch",
            spec(json!({ "default": { "appendModifications": [] } })),
            "spec.default.appendModifications",
        ),
        ("MeshTLS", rules(json!({ "tlsVersion": { "min": "TLS13", "max": "TLS12" } })), "spec"),
        (
            "MeshLoadBalancingStrategy",
            to(json!({ "loadBalancer": { "type": "Nobody" } })),
            "spec.to[0].default.loadBalancer",
        ),
        ("MeshTrust", spec(json!({ "trustDomain": "", "caBundles": [] })), "spec"),
        ("HostnameGenerator", spec(json!({ "template": "{{ .Name }}.mesh" })), "spec.selector"),
        ("MeshExternalService", outside("kafka"), "spec.match.protocol"),
        ("MeshExternalService", outside("nonsense"), "spec.match.protocol"),
        (
            "Mesh",
            json!({ "mtls": { "enabledBackend": "c", "backends": [
            { "name": "c", "type": "provided", "conf": provided }] } }),
            "mtls.backends[0].conf.cert",
        ),
        (
            "Mesh",
            json!({ "tracing": { "backends": [
            { "name": "z", "type": "zipkin", "conf": { "url": "http://zipkin/api" } }] } }),
            "tracing.backends[0].config.url",
        ),
    ]
}

#[tokio::test]
async fn what_kuma_refuses_is_refused_with_the_field() {
    let global = Global::start().await;
    let mut wrong = Vec::new();
    for (kind, members, field) in refused() {
        let (status, answer) = write(&global, kind, "bad", &members).await;
        let named = answer["invalid_parameters"].as_array().cloned().unwrap_or_default();
        let is_named = named.iter().any(|one| one["field"].as_str().is_some_and(|is| is.starts_with(field)));
        let titles = ["Could not process a resource", "Failed to create a resource"];
        let is_titled = titles.iter().any(|title| answer["title"] == *title);
        if status != StatusCode::BAD_REQUEST || !is_named || !is_titled {
            wrong.push(format!("{kind} {members}: no {field} in {status} {answer}"));
        }
        // The older names of both members are what kumactl of before reads.
        if answer["details"] != answer["detail"]
            || answer["causes"].as_array().map(Vec::len) != Some(named.len())
        {
            wrong.push(format!("{kind}: {answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let protocol = write(&global, "MeshExternalService", "bad", &refused()[20].1).await.1.to_string();
    assert!(!protocol.contains("kafka"), "{protocol}");
}

#[tokio::test]
async fn what_is_left_out_is_filled_in() {
    let global = Global::start().await;
    let mesh = || json!({ "kind": "Mesh" });
    let cases = [
        (
            "MeshMetric",
            json!({ "default": { "backends": [{ "type": "Prometheus", "prometheus": {} }] } }),
            "/default/backends/0/prometheus/port",
            json!(5670),
        ),
        (
            "MeshExternalService",
            json!({ "match": { "type": "HostnameGenerator", "port": 80 },
            "endpoints": [{ "address": "192.0.2.1", "port": 80 }] }),
            "/match/protocol",
            json!("tcp"),
        ),
        (
            "MeshMultiZoneService",
            json!({ "selector": { "meshService": { "matchLabels": { "a": "b" } } },
            "ports": [{ "port": 80 }] }),
            "/ports/0/appProtocol",
            json!("tcp"),
        ),
        (
            "MeshPassthrough",
            json!({ "default": { "appendMatch": [{ "type": "IP", "value": "192.0.2.1", "port": 80 }] } }),
            "/default/appendMatch/0/protocol",
            json!("tcp"),
        ),
        (
            "MeshTrace",
            json!({ "default": { "backends": [{ "type": "Zipkin", "zipkin": { "url": "http://z:9411/api" } }] } }),
            "/default/backends/0/zipkin",
            json!({ "url": "http://z:9411/api", "apiVersion": "httpJson",
                "sharedSpanContext": true, "traceId128bit": false }),
        ),
        (
            "MeshTLS",
            json!({ "rules": [{ "default": { "tlsVersion": {} } }] }),
            "/rules/0/default/tlsVersion",
            json!({ "min": "TLSAuto", "max": "TLSAuto" }),
        ),
        (
            "MeshTimeout",
            json!({ "to": [{ "targetRef": mesh(), "default": { "idleTimeout": "90s",
            "connectionTimeout": "0.5s", "http": { "requestTimeout": "3600s" } } }] }),
            "/to/0/default",
            json!({ "idleTimeout": "1m30s", "connectionTimeout": "500ms", "http": { "requestTimeout": "1h0m0s" } }),
        ),
        (
            "MeshRetry",
            json!({ "to": [{ "targetRef": mesh(), "default": { "http": { "perTryTimeout": "90s" } } }] }),
            "/to/0/default/http/perTryTimeout",
            json!("1m30s"),
        ),
        (
            "MeshRateLimit",
            json!({ "targetRef": { "kind": "Dataplane" }, "rules": [{ "default": { "local": { "http": {
            "requestRate": { "num": 1, "interval": "60s" } } } } }] }),
            "/rules/0/default/local/http/requestRate/interval",
            json!("1m0s"),
        ),
    ];
    for (kind, spec, place, expected) in cases {
        let (status, answer) = put(&global, kind, "short", &spec).await;
        assert_eq!(status, StatusCode::CREATED, "{kind}: {answer}");
        let stored = shown(&global, kind, "short").await;
        assert_eq!(stored["spec"].pointer(place), Some(&expected), "{kind} {place}: {stored:#}");
        // What is shown can be applied again as it is, and changes nothing.
        let (status, answer) = write(&global, kind, "short", &stored).await;
        assert_eq!(
            (status, shown(&global, kind, "short").await),
            (StatusCode::OK, stored),
            "{kind}: {answer}"
        );
    }
    // kumactl sends what it was shown, with times of its own and with members that are not its to write.
    let mut sent = shown(&global, "MeshExternalService", "short").await;
    sent["creationTime"] = json!("0001-01-01T00:00:00Z");
    sent["modificationTime"] = json!("0001-01-01T00:00:00Z");
    sent["status"] = json!({ "vip": { "ip": "192.0.2.9" } });
    sent["snis"] = json!([]);
    sent["labels"]["team"] = json!("a");
    let (status, answer) = write(&global, "MeshExternalService", "short", &sent).await;
    assert_eq!((status, &answer), (StatusCode::OK, &json!({})), "without a warning");
    let stored = shown(&global, "MeshExternalService", "short").await;
    assert_eq!(
        (&stored["labels"]["team"], &stored["status"]),
        (&json!("a"), &json!({ "vip": {} })),
        "{stored:#}"
    );
    assert_ne!(stored["creationTime"], sent["creationTime"]);
    let prometheus = json!({ "name": "p", "type": "prometheus", "conf": { "skipMTLS": true } });
    let metrics = json!({ "metrics": { "enabledBackend": "p", "backends": [prometheus] } });
    let (status, answer) = write(&global, "Mesh", "measured", &metrics).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let mesh = shown(&global, "Mesh", "measured").await;
    let conf = &mesh["metrics"]["backends"][0]["conf"];
    assert_eq!((&conf["port"], &conf["path"]), (&json!(5670), &json!("/metrics")), "{mesh:#}");
    assert_eq!(conf["tls"], json!({ "mode": "disabled" }), "{mesh:#}");
}

#[tokio::test]
async fn a_mesh_begins_with_the_policies_of_kuma() {
    let global = Global::start().await;
    let (status, answer) = write(&global, "Mesh", "shop", &json!({})).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let spec = async |path: &str| global.get(&format!("/meshes/shop/{path}-all-shop")).await["spec"].clone();
    let gateways = spec("meshtimeouts/mesh-gateways-timeout").await;
    let towards = &gateways["to"][0]["default"];
    assert_eq!(
        towards,
        &json!({ "idleTimeout": "1h0m0s", "http": { "streamIdleTimeout": "5s" } }),
        "{gateways:#}"
    );
    assert_eq!(spec("meshtimeouts/mesh-timeout").await["to"][0]["default"]["connectionTimeout"], "5s");
    assert!(spec("meshcircuitbreakers/mesh-circuit-breaker").await.is_object());
    assert!(spec("meshretries/mesh-retry").await.is_object());
    let none = json!({ "skipCreatingInitialPolicies": ["*"] });
    assert_eq!(write(&global, "Mesh", "bare", &none).await.0, StatusCode::CREATED);
    for kind in registry::ALL.iter().filter(|kind| kind.policy.is_some()) {
        assert_eq!(global.get(&format!("/meshes/bare/{}", kind.path)).await["total"], 0, "{}", kind.name);
    }
}

#[tokio::test]
async fn what_is_out_of_date_is_warned_of() {
    let global = Global::start().await;
    let default = json!({ "idleTimeout": "1s" });
    let to = json!([{ "targetRef": { "kind": "Mesh" }, "default": default }]);
    let subset = json!({ "kind": "MeshSubset", "tags": { "a": "b" } });
    let ring = json!({ "type": "RingHash", "ringHash": { "hashPolicies": [
        { "type": "Connection", "connection": { "sourceIP": true } }] } });
    let collector = json!({ "type": "OpenTelemetry", "openTelemetry": { "endpoint": "otel:4317" } });
    let cases = [
        ("MeshTimeout", json!({ "from": to }), "'from' field is deprecated"),
        ("MeshTimeout", json!({ "targetRef": subset, "to": to }), "MeshSubset value for 'targetRef.kind'"),
        (
            "MeshTimeout",
            json!({ "targetRef": { "kind": "MeshService", "name": "b" }, "to": to }),
            "MeshService value for 'targetRef.kind'",
        ),
        (
            "MeshAccessLog",
            json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "backends": [collector] } }] }),
            "openTelemetry.endpoint is deprecated",
        ),
        (
            "MeshTrace",
            json!({ "default": { "backends": [collector] } }),
            "openTelemetry.endpoint is deprecated",
        ),
        (
            "MeshLoadBalancingStrategy",
            json!({ "to": [{ "targetRef": { "kind": "Mesh" },
            "default": { "loadBalancer": ring } }] }),
            "hashPolicies' is deprecated",
        ),
    ];
    for (number, (kind, spec, words)) in cases.into_iter().enumerate() {
        let (status, answer) = put(&global, kind, &format!("old-{number}"), &spec).await;
        let warnings = answer["warnings"].to_string();
        assert!(
            status == StatusCode::CREATED && warnings.contains(words),
            "{kind} {spec}: {status} {answer}"
        );
    }
    let (status, answer) = write(&global, "Zone", "a.b", &json!({ "enabled": true })).await;
    assert!(status == StatusCode::CREATED && answer["warnings"].to_string().contains("RFC 1035"), "{answer}");
}

/// What no document may say about itself, of whatever kind it is.
#[tokio::test]
async fn every_kind_is_written_by_the_same_rules() {
    let global = Global::start().await;
    for kind in registry::ALL.iter().filter(|kind| Mode::Global.may_write(kind) && !kind.path.is_empty()) {
        let place = if kind.is_mesh_scoped() { "/meshes/default/" } else { "/" };
        let path = format!("{place}{}/some", kind.path);
        let document = |change: &[(&str, Value)]| {
            let mut document = json!({ "type": kind.name, "mesh": "default", "name": "some", "spec": {} });
            change.iter().for_each(|(member, value)| document[*member] = value.clone());
            document
        };
        // Nothing of it is stored whatever else is wrong with a document without a spec.
        for (change, status) in [
            (&[("name", json!("other"))][..], StatusCode::BAD_REQUEST),
            (&[("type", json!("Nonsense"))], StatusCode::BAD_REQUEST),
            (&[("labels", json!({ "-bad-": "x" }))], StatusCode::BAD_REQUEST),
            (&[("labels", json!({ "a": "not a value!" }))], StatusCode::BAD_REQUEST),
            (&[("labels", json!({ "kuma.io/origin": "zone" }))], StatusCode::BAD_REQUEST),
            (&[("labels", json!("none"))], StatusCode::BAD_REQUEST),
        ] {
            let (is, answer) = global.call(Method::PUT, &path, Some(document(change))).await;
            assert_eq!(is, status, "PUT {path} {change:?}: {answer}");
            assert!(answer["title"].is_string() && answer["detail"].is_string(), "{answer}");
        }
        if kind.is_mesh_scoped() {
            let nowhere = path.replace("default", "nowhere");
            let (status, answer) = global.call(Method::PUT, &nowhere, Some(document(&[]))).await;
            assert_eq!(
                (status, answer["title"].as_str()),
                (StatusCode::NOT_FOUND, Some("Failed to retrieve Mesh"))
            );
            let other = document(&[("mesh", json!("other"))]);
            assert_eq!(
                global.call(Method::PUT, &path, Some(other)).await.0,
                StatusCode::BAD_REQUEST,
                "{path}"
            );
        }
        for body in ["", "{", "[]", "null", "7"] {
            let request = global.admin().put(global.url(&path)).header("content-type", "application/json");
            let answer = request.body(body).send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "PUT {path} {body:?}");
            let answer: Value = answer.json().await.unwrap();
            assert_eq!(
                (&answer["status"], &answer["type"]),
                (&json!(400), &json!("/std-errors")),
                "{answer}"
            );
        }
        let (status, answer) = global.call(Method::DELETE, &path, None).await;
        assert_eq!(
            (status, answer["title"].as_str()),
            (StatusCode::NOT_FOUND, Some("Could not delete a resource")),
            "DELETE {path}"
        );
    }
}
