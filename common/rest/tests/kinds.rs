//! Every kind through its routes: what it is called, who may write it, what comes back.

use serde_json::{Value, json};

use super::{ask, config, mesh};
use crate::{
    document::Document,
    mode::Mode,
    model::Kind,
    registry,
    rest::{ApiConfig, standard_admissions},
    testing::api::TestApi,
};

const SOURCES: [&str; 13] = [
    "CircuitBreaker",
    "FaultInjection",
    "HealthCheck",
    "RateLimit",
    "Retry",
    "Timeout",
    "TrafficLog",
    "TrafficPermission",
    "TrafficRoute",
    "ProxyTemplate",
    "TrafficTrace",
    "VirtualOutbound",
    "MeshGatewayRoute",
];

fn selected(conf: Value) -> Value {
    let any = json!([{ "match": { "kuma.io/service": "*" } }]);
    json!({ "sources": any, "destinations": any, "conf": conf })
}

/// The members of a document of `kind` beside its meta, as they come back.
fn content(kind: &str) -> Value {
    let target = json!({ "kind": "Mesh" });
    let to = |default: Value| json!({ "spec": { "to": [{ "targetRef": target, "default": default }] } });
    match kind {
        "Mesh" => json!({ "mtls": { "enabledBackend": "ca", "backends": [{
            "name": "ca", "type": "builtin", "mode": "PERMISSIVE",
            "dpCert": { "rotation": { "expiration": "1d" }, "requestTimeout": "10s" },
            "conf": { "caCert": { "RSAbits": 2048 } } }] },
            "routing": { "zoneEgress": true }, "networking": { "outbound": { "passthrough": false } },
            "meshServices": { "mode": "Exclusive" } }),
        "Zone" => json!({ "enabled": true }),
        "AccessRole" => {
            json!({ "spec": { "rules": [{ "verbs": ["write"], "kinds": ["*"], "names": ["a"] }] } })
        }
        "AccessRoleBinding" => {
            json!({ "spec": { "subjects": [{ "type": "User", "name": "a" }], "roles": ["a"] } })
        }
        "Rollout" => json!({ "spec": {
            "waves": [{ "zones": { "names": ["zone-1"] }, "pause": "10m0s" }, { "zones": { "share": 25 }, "pause": "manual" }],
            "haltOn": { "zoneRefuses": true, "proxyRefuses": true, "zoneLost": false, "converge": "5m0s",
                "queries": [{ "promql": "up", "below": 0.5 }] },
            "requiredFor": [{ "kinds": ["MeshTimeout"], "meshes": ["default"] }] } }),
        "EnvoyConfig" => json!({ "spec": { "nodes": [{ "id": "*" }], "clusters": [{ "name": "a" }] } }),
        "Secret" | "GlobalSecret" => json!({ "data": "dGVzdAo=" }),
        "Dataplane" => json!({ "networking": { "address": "10.0.0.1",
            "inbound": [{ "port": 80, "servicePort": 8080, "name": "http", "protocol": "http",
                "tags": { "kuma.io/service": "web", "kuma.io/zone": "east" } }],
            "outbound": [{ "port": 9000, "backendRef": { "kind": "MeshService", "name": "db", "port": 5432 } }],
            "transparentProxying": { "redirectPortInbound": 15006, "redirectPortOutbound": 15001,
                "ipFamilyMode": "IPv4", "reachableBackends": { "refs": [{ "kind": "MeshService", "name": "db", "port": 80 }] } } } }),
        "ZoneIngress" => json!({ "networking": { "address": "10.0.0.1", "port": 10001,
            "advertisedAddress": "ingress.example.com", "advertisedPort": 10001 } }),
        "ZoneEgress" => json!({ "networking": { "address": "10.0.0.1", "port": 10002 } }),
        "ExternalService" => json!({ "networking": { "address": "example.com:443", "tls": { "enabled": true,
            "allowRenegotiation": false, "serverName": "example.com", "caCert": { "secret": "ca" } } }, "tags": { "kuma.io/service": "ext" } }),
        "MeshGateway" => {
            json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }], "conf": { "listeners": [
            { "port": 443, "protocol": "HTTPS", "hostname": "a.example.com", "tls": { "mode": "TERMINATE",
                "certificates": [{ "secret": "cert" }] }, "tags": { "port": "https" } },
            { "port": 80, "protocol": "HTTP", "resources": { "connectionLimit": 7 } }] } })
        }
        "MeshGatewayRoute" => {
            json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }], "conf": { "http": {
            "rules": [{ "matches": [{ "path": { "match": "PREFIX", "value": "/" }, "method": "GET" }],
                "filters": [{ "mirror": { "backend": { "weight": 1, "destination": { "kuma.io/service": "b" } },
                    "percentage": 0.5 } }],
                "backends": [{ "weight": 1, "destination": { "kuma.io/service": "b" } }] }] } } })
        }
        "CircuitBreaker" => {
            selected(json!({ "interval": "1s", "baseEjectionTime": "30s", "maxEjectionPercent": 20,
            "splitExternalAndLocalErrors": true, "thresholds": { "maxConnections": 2, "maxRetries": 3 },
            "detectors": { "totalErrors": { "consecutive": 20 }, "localErrors": {},
                "standardDeviation": { "requestVolume": 10, "minimumHosts": 5, "factor": 1.9 } } }))
        }
        "FaultInjection" => {
            let mut faulty = selected(json!({ "delay": { "percentage": 50.5, "value": "5s" },
                "abort": { "percentage": 50, "httpStatus": 500 },
                "responseBandwidth": { "percentage": 50, "limit": "50 mbps" } }));
            faulty["destinations"][0]["match"]["kuma.io/protocol"] = json!("http");
            faulty
        }
        "HealthCheck" => selected(json!({ "interval": "10s", "timeout": "2s", "unhealthyThreshold": 3,
            "healthyThreshold": 1, "healthyPanicThreshold": 50.5, "failTrafficOnPanic": false,
            "http": { "path": "/health", "expectedStatuses": [200, 201], "requestHeadersToAdd": [
                { "append": false, "header": { "key": "Content-Type", "value": "application/json" } }] } })),
        "RateLimit" => {
            selected(json!({ "http": { "requests": 5, "interval": "10s", "onRateLimit": { "status": 423,
            "headers": [{ "key": "x-limited", "value": "true", "append": true }] } } }))
        }
        "Retry" => selected(json!({ "http": { "numRetries": 5, "perTryTimeout": "0.200s",
            "backOff": { "baseInterval": "0.020s", "maxInterval": "1s" }, "retriableStatusCodes": [500, 504],
            "retriableMethods": ["GET", "DELETE"], "retryOn": ["gateway_error", "retriable_4xx"] },
            "tcp": { "maxConnectAttempts": 3 }, "grpc": { "retryOn": ["unavailable"] } })),
        "Timeout" => selected(json!({ "connectTimeout": "10s", "tcp": { "idleTimeout": "3600s" },
            "http": { "requestTimeout": "5s", "streamIdleTimeout": "0s" }, "grpc": { "maxStreamDuration": "1.500s" } })),
        "TrafficLog" => selected(json!({ "backend": "file" })),
        "TrafficPermission" => {
            let any = json!([{ "match": { "kuma.io/service": "*" } }]);
            json!({ "sources": any, "destinations": any })
        }
        "TrafficRoute" => {
            selected(json!({ "split": [{ "weight": 0, "destination": { "kuma.io/service": "a" } },
                { "weight": 1, "destination": { "kuma.io/service": "b" } }],
            "loadBalancer": { "ringHash": { "hashFunction": "MURMUR_HASH_2", "minRingSize": "1024", "maxRingSize": "65536" } },
            "http": [{ "match": { "method": { "exact": "GET" }, "path": { "prefix": "/v1" },
                "headers": { "x": { "regex": ".*" } } }, "destination": { "kuma.io/service": "b" },
                "modify": { "path": { "rewritePrefix": "/" }, "requestHeaders": { "add": [{ "name": "a", "value": "b" }] } } }] }))
        }
        "ProxyTemplate" => json!({ "selectors": [{ "match": { "kuma.io/service": "web" } }], "conf": {
            "imports": ["default-proxy"], "resources": [{ "name": "raw", "version": "v1",
                "resource": "'@type': type.googleapis.com/envoy.config.cluster.v3.Cluster\nname: raw\n" }],
            "modifications": [{ "cluster": { "operation": "add", "value": "name: c" } },
                { "networkFilter": { "operation": "patch", "match": { "name": "c", "listenerTags": { "a": "b" } },
                    "value": "name: c" } }] } }),
        "TrafficTrace" => {
            json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": { "backend": "zipkin" } })
        }
        "VirtualOutbound" => json!({ "selectors": [{ "match": { "kuma.io/service": "*" } }], "conf": {
            "host": "{{.service}}.mesh", "port": "80", "parameters": [{ "name": "service", "tagKey": "kuma.io/service" }] } }),
        "HostnameGenerator" => {
            json!({ "spec": { "selector": { "meshService": { "matchLabels": { "a": "b" } } },
            "template": "{{ .DisplayName }}.svc" } })
        }
        "MeshExternalService" => {
            json!({ "spec": { "match": { "type": "HostnameGenerator", "port": 443, "protocol": "tcp" },
            "endpoints": [{ "address": "example.com", "port": 443 }] } })
        }
        "MeshIdentity" => json!({ "spec": { "selector": { "dataplane": { "matchLabels": {} } }, "provider": {
            "type": "Bundled", "bundled": { "autogenerate": { "enabled": true } } } } }),
        "MeshMultiZoneService" => {
            json!({ "spec": { "selector": { "meshService": { "matchLabels": { "a": "b" } } },
            "ports": [{ "port": 80, "appProtocol": "http" }] } })
        }
        "MeshOpenTelemetryBackend" => {
            json!({ "spec": { "endpoint": { "address": "otel", "port": 4317 }, "protocol": "grpc" } })
        }
        "MeshService" => {
            json!({ "spec": { "state": "Unavailable", "selector": { "dataplaneTags": { "app": "a" } },
            "ports": [{ "port": 80, "targetPort": "http", "appProtocol": "http" }] } })
        }
        "MeshTrust" => {
            json!({ "spec": { "trustDomain": "example.com", "caBundles": [{ "type": "Pem", "pem": {
                "value": "-----BEGIN CERTIFICATE-----\nZm9v\n-----END CERTIFICATE-----\n" } }] } })
        }
        "MeshZoneAddress" => json!({ "spec": { "address": "10.0.0.1", "port": 10001 } }),
        "Workload" => json!({ "spec": {} }),
        "MeshAccessLog" => to(json!({ "backends": [{ "type": "File", "file": { "path": "/log",
            "format": { "type": "Json", "json": [{ "key": "a", "value": "%START_TIME%" }], "omitEmptyValues": false } } }] })),
        "MeshCircuitBreaker" => to(json!({ "connectionLimits": { "maxConnections": 1 } })),
        "MeshFaultInjection" => to(json!({ "http": [{ "delay": { "value": "5s", "percentage": "50.5" } }] })),
        "MeshHealthCheck" => {
            to(json!({ "interval": "10s", "http": { "path": "/", "expectedStatuses": [200] } }))
        }
        "MeshHTTPRoute" => {
            json!({ "spec": { "to": [{ "targetRef": { "kind": "MeshService", "name": "a" }, "rules": [
            { "matches": [{ "path": { "value": "/", "type": "Exact" } }], "default": { "backendRefs": [
                { "kind": "MeshService", "name": "b", "weight": 1 }] } }] }] } })
        }
        "MeshLoadBalancingStrategy" => to(json!({ "loadBalancer": { "type": "RingHash", "ringHash": {
            "minRingSize": 64 } }, "hashPolicies": [{ "type": "Header", "header": { "name": "x" } }] })),
        "MeshMetric" => json!({ "spec": { "default": { "backends": [{ "type": "Prometheus", "prometheus": {
            "port": 5670, "path": "/metrics" } }], "applications": [{ "port": 8080, "path": "/metrics" }] } } }),
        "MeshPassthrough" => json!({ "spec": { "default": { "appendMatch": [
            { "type": "Domain", "value": "*.example.com", "port": 443, "protocol": "tls" }] } } }),
        "MeshProxyPatch" => json!({ "spec": { "default": { "appendModifications": [
            { "cluster": { "operation": "Add", "value": "name: c" } }] } } }),
        "MeshRateLimit" => {
            json!({ "spec": { "targetRef": { "kind": "Mesh", "proxyTypes": ["Sidecar"] },
            "rules": [{ "default": { "local": { "http": {
            "requestRate": { "num": 5, "interval": "1s" }, "onRateLimit": { "status": 429 } } } } }] } })
        }
        "MeshRetry" => to(json!({ "http": { "numRetries": 3 } })),
        "MeshTCPRoute" => {
            json!({ "spec": { "to": [{ "targetRef": { "kind": "MeshService", "name": "a" }, "rules": [
            { "default": { "backendRefs": [{ "kind": "MeshService", "name": "b", "weight": 1 }] } }] }] } })
        }
        "MeshTimeout" => to(json!({ "idleTimeout": "1h0m0s" })),
        "MeshTLS" => {
            json!({ "spec": { "rules": [{ "default": { "mode": "Strict", "tlsVersion": { "min": "TLS12", "max": "TLSAuto" } } }] } })
        }
        "MeshTrace" => json!({ "spec": { "default": { "backends": [{ "type": "Zipkin", "zipkin": {
            "url": "http://zipkin:9411/api", "apiVersion": "httpJson", "sharedSpanContext": true,
            "traceId128bit": false } }], "sampling": { "overall": 80 } } } }),
        "MeshTrafficPermission" => {
            json!({ "spec": { "rules": [{ "default": { "allow": [
                { "spiffeID": { "type": "Prefix", "value": "spiffe://a.example/ns" } }] } }] } })
        }
        other => panic!("a new kind {other} needs a document here"),
    }
}

pub(super) fn document(kind: &Kind) -> Value {
    let mut document = json!({ "type": kind.name, "name": "a", "creationTime": "0001-01-01T00:00:00Z",
        "modificationTime": "0001-01-01T00:00:00Z", "kri": "kri_x_default___a_" });
    if kind.is_mesh_scoped() {
        document["mesh"] = json!("default");
    }
    if kind.is_json() {
        document["status"] = json!({ "conditions": [] });
    }
    document.as_object_mut().unwrap().extend(content(kind.name).as_object().unwrap().clone());
    document
}

/// A mesh, and in it what the documents refer to.
fn referred_to() -> Vec<Value> {
    let serves = |service: &str| {
        json!({ "type": "Dataplane", "mesh": "default", "name": service, "networking": {
        "address": "10.0.0.2", "inbound": [{ "port": 80, "tags": { "kuma.io/service": service } }] } })
    };
    let secret =
        |name: &str| json!({ "type": "Secret", "mesh": "default", "name": name, "data": "dGVzdAo=" });
    let mut shared = serves("a");
    // Documents are called so as well.
    shared["name"] = json!("serves-a");
    vec![mesh("default"), serves("b"), shared, secret("ca"), secret("cert")]
}

pub(super) fn path(kind: &Kind) -> String {
    if kind.is_mesh_scoped() { format!("/meshes/default/{}", kind.path) } else { format!("/{}", kind.path) }
}

pub(super) fn written() -> impl Iterator<Item = &'static Kind> {
    registry::ALL.iter().copied().filter(|kind| !kind.path.is_empty() && !kind.read_only)
}

#[tokio::test]
async fn what_is_put_comes_back_and_goes() {
    for kind in written() {
        let config = ApiConfig {
            admissions: standard_admissions(false, None),
            ..ApiConfig::new(Mode::standalone_zone("east"))
        };
        let api = TestApi::start(config, &referred_to()).await.unwrap();
        let (list, item) = (path(kind), format!("{}/a", path(kind)));
        let body = document(kind);
        let spec = Document::parse_as(kind, &body).unwrap().spec;
        let told = (kind.caveat)(&spec).map_or_else(|| json!({}), |c| json!({ "warnings": [c] }));
        assert_eq!(ask(&api, "PUT", &item, Some(body.clone())).await, (201, told.clone()), "{}", kind.name);
        let (status, shown) = ask(&api, "GET", &item, None).await;
        assert_eq!(status, 200, "{}", kind.name);
        for (member, value) in content(kind.name).as_object().unwrap() {
            assert_eq!(&shown[member], value, "{} {member}", kind.name);
        }
        assert_eq!(shown["kri"].is_string(), !kind.short.is_empty(), "{shown}");
        assert_eq!(shown["status"].is_object(), kind.has_status(), "{shown}");
        assert_eq!(shown.get("mesh").is_some(), kind.is_mesh_scoped(), "{shown}");

        // What is shown may be put again, which changes nothing.
        assert_eq!(ask(&api, "PUT", &item, Some(shown.clone())).await, (200, told), "{}", kind.name);
        let (_, again) = ask(&api, "GET", &item, None).await;
        assert_eq!(again, shown, "an equal put leaves even the modification time");
        let (_, all) = ask(&api, "GET", &format!("{list}?name=a"), None).await;
        assert!(all["items"].as_array().unwrap().contains(&shown), "{all}");
        assert_eq!(ask(&api, "DELETE", &item, None).await, (200, json!({})), "{}", kind.name);
        let (status, gone) = ask(&api, "DELETE", &item, None).await;
        assert_eq!((status, &gone["title"]), (404, &json!("Could not delete a resource")), "{}", kind.name);
    }
}

#[tokio::test]
async fn each_control_plane_writes_its_own_kinds() {
    let zones = [
        "Dataplane",
        "EnvoyConfig",
        "MeshService",
        "MeshZoneAddress",
        "Workload",
        "ZoneEgress",
        "ZoneIngress",
    ];
    let globals = ["Mesh", "ExternalService", "MeshMultiZoneService", "Rollout"];
    let check = async |mode: Mode, closed: &dyn Fn(&Kind) -> bool, text: &str| {
        let api = TestApi::start(config(mode), &[mesh("default")]).await.unwrap();
        for kind in registry::ALL.iter().filter(|kind| !kind.path.is_empty()) {
            let item = format!("{}/none", path(kind));
            for (method, body) in [("PUT", Some(json!({}))), ("DELETE", None)] {
                let (status, answer) = ask(&api, method, &item, body).await;
                assert_eq!(status == 405, closed(kind), "{method} {}: {answer}", kind.name);
                if status == 405 && !kind.read_only {
                    assert_eq!(answer["title"], "Method not allowed", "{answer}");
                    assert!(answer["detail"].as_str().unwrap().contains(text), "{answer}");
                }
            }
        }
    };
    check(Mode::Global, &|kind| kind.read_only || zones.contains(&kind.name), "zone control plane").await;
    let by_global =
        |kind: &Kind| kind.read_only || globals.contains(&kind.name) || SOURCES.contains(&kind.name);
    check(Mode::federated_zone("east"), &by_global, "global control plane").await;
    check(Mode::standalone_zone("east"), &|kind| kind.read_only, "").await;
}

#[tokio::test]
async fn a_status_and_names_in_a_body_are_not_taken_over() {
    let api = TestApi::start(config(Mode::standalone_zone("east")), &[mesh("default")]).await.unwrap();
    let body = json!({ "type": "MeshService", "mesh": "default", "name": "a",
        "status": { "vips": [{ "ip": "10.0.0.2" }] }, "snis": [{ "port": 1, "sni": "x" }],
        "spec": { "ports": [{ "port": 80 }] } });
    assert_eq!(ask(&api, "PUT", "/meshes/default/meshservices/a", Some(body)).await.0, 201);
    let (_, shown) = ask(&api, "GET", "/meshes/default/meshservices/a", None).await;
    assert_eq!(shown["status"], json!({ "tls": {}, "dataplaneProxies": {} }));
    assert_eq!(shown["snis"], json!([{ "port": 80, "sni": "sni.msvc.default.east.a.80" }]));
}

#[tokio::test]
async fn resources_are_shown_as_kubernetes_has_them() {
    let documents = [
        mesh("default"),
        document(registry::by_name("MeshTimeout").unwrap()),
        document(registry::by_name("TrafficLog").unwrap()),
        document(registry::by_name("Secret").unwrap()),
    ];
    let api = TestApi::start(config(Mode::Global), &documents).await.unwrap();
    let check = async |path: &str, expected: Value| {
        let (status, mut shown) = ask(&api, "GET", path, None).await;
        assert_eq!(status, 200, "{path}: {shown}");
        assert!(shown["metadata"]["creationTimestamp"].take().is_string(), "{path}");
        assert_eq!(shown, expected, "{path}");
    };
    let api_version = "kuma.io/v1alpha1";
    check(
        "/meshes/default?format=k8s",
        json!({ "kind": "Mesh", "apiVersion": api_version, "spec": {},
            "metadata": { "name": "default", "creationTimestamp": null } }),
    )
    .await;
    let labels = json!({ "kuma.io/mesh": "default" });
    let timeout = |namespace: &str| {
        json!({ "kind": "MeshTimeout", "apiVersion": api_version, "spec": content("MeshTimeout")["spec"],
            "metadata": { "name": "a", "namespace": namespace, "creationTimestamp": null, "labels": labels } })
    };
    check("/meshes/default/meshtimeouts/a?format=kubernetes", timeout("kuma-system")).await;
    check("/meshes/default/meshtimeouts/a?format=k8s&namespace=shop", timeout("shop")).await;
    check("/_kri/kri_mt_default___a_?format=k8s", timeout("kuma-system")).await;
    check(
        "/meshes/default/traffic-logs/a?format=k8s",
        json!({ "kind": "TrafficLog", "apiVersion": api_version, "mesh": "default",
            "spec": content("TrafficLog"), "metadata": { "name": "a", "creationTimestamp": null } }),
    )
    .await;
    check(
        "/meshes/default/secrets/a?format=k8s",
        json!({ "kind": "Secret", "apiVersion": "v1", "type": "system.kuma.io/secret",
            "data": { "value": "dGVzdAo=" },
            "metadata": { "name": "a", "namespace": "kuma-system", "creationTimestamp": null, "labels": labels } }),
    )
    .await;
    let (status, body) = ask(&api, "GET", "/meshes/default?format=xml", None).await;
    assert_eq!((status, &body["invalid_parameters"][0]["field"]), (400, &json!("format")));
}

#[tokio::test]
async fn shapes_are_checked_where_nothing_decodes() {
    let api = TestApi::start(config(Mode::Global), &[mesh("default")]).await.unwrap();
    let check = async |kind: &str, spec: Value, field: &str, reason: &str| {
        let kind = registry::by_name(kind).unwrap();
        let body = json!({ "type": kind.name, "mesh": "default", "name": "a", "spec": spec });
        let (status, answer) = ask(&api, "PUT", &format!("{}/a", path(kind)), Some(body)).await;
        let found = &answer["invalid_parameters"][0];
        assert_eq!((status, &found["field"]), (400, &json!(field)), "{} {spec}: {answer}", kind.name);
        assert_eq!(found["reason"], reason, "{} {spec}", kind.name);
    };
    let object = "in body must be of type object: \"array\"";
    check("MeshTrace", json!({ "default": [] }), "spec.default", object).await;
    check("MeshExternalService", json!({}), "spec.match", "in body is required").await;
    check("MeshTrust", json!({ "trustDomain": "a" }), "spec.caBundles", "in body is required").await;
    let bad_unit = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "interval": "10" } }] });
    check(
        "MeshHealthCheck",
        bad_unit,
        "spec.to[0].default.interval",
        "time: missing unit in duration \"10\"",
    )
    .await;
    let no_kind = json!({ "from": [{ "targetRef": { "name": "a" } }] });
    check("MeshRateLimit", no_kind, "spec.from[0].targetRef.kind", "in body is required").await;
    let mode = json!({ "rules": [{ "default": { "mode": "strict" } }] });
    check("MeshTLS", mode, "spec.rules[0].default.mode", "in body should be one of [Strict Permissive]")
        .await;
    let tcp = json!({ "to": [{ "targetRef": { "kind": "Mesh" }, "default": { "backends": [{ "type": "Tcp" }] } }] });
    check("MeshAccessLog", tcp, "spec.to[0].default.backends[0].tcp", "must be defined").await;
}
