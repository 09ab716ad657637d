//! Any zone the API accepts gets configuration that holds together.

use common::testing::needs;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    envoy_check,
    fixture::{Fixture, ZONE},
    references,
};
use crate::generator::ResourceSet;

const SERVICES: &[&str] = &["web", "Web", "store", "far", "localhost:1080", "a_b.c"];
const PROTOCOLS: &[&str] = &["http", "http2", "grpc", "tcp", "kafka", "odd"];
const DURATIONS: &[&str] = &["0s", "1ns", "15ms", "3s", "4m", "100h"];
const WEIGHTS: &[u32] = &[0, 1, 90, u32::MAX];
const TEXTS: &[&str] = &["x-a", "X-Set", "host", "a b", ":path", "(((", "a+", "v1", "käse", "line\nbreak"];
const PATHS: &[&str] = &["/", "/a", "/a/b", "/A?x=1", "((("];

fn tags() -> impl Strategy<Value = Value> {
    (select(SERVICES), option::of(select(PROTOCOLS)), option::of(select(&["v1", "v2"][..]))).prop_map(
        |(service, protocol, version)| {
            let mut tags = json!({"kuma.io/service": service, "kuma.io/zone": ZONE});
            if let Some(protocol) = protocol {
                tags["kuma.io/protocol"] = json!(protocol);
            }
            if let Some(version) = version {
                tags["version"] = json!(version);
            }
            tags
        },
    )
}

fn mesh() -> impl Strategy<Value = Value> {
    (option::of(select(&["STRICT", "PERMISSIVE"][..])), any::<bool>()).prop_map(|(mode, local)| {
        let mut mesh = json!({"type": "Mesh", "name": "demo"});
        mesh["routing"] = json!({"localityAwareLoadBalancing": local});
        if let Some(mode) = mode {
            let backend = json!({"name": "ca-1", "type": "builtin", "mode": mode});
            mesh["mtls"] = json!({"enabledBackend": "ca-1", "backends": [backend]});
        }
        mesh
    })
}

fn dataplane(index: usize) -> impl Strategy<Value = Value> {
    let state = select(&["Ready", "NotReady", "Ignored"][..]);
    let inbound = (1000..1006_u32, option::of(1080..1084_u32), tags(), state).prop_map(
        |(port, service_port, tags, state)| {
            let mut inbound = json!({"port": port, "tags": tags, "state": state});
            inbound["servicePort"] = json!(service_port.unwrap_or(port + 1000));
            inbound
        },
    );
    let outbound = (2000..2004_u32, option::of(select(&["127.0.0.1", "127.0.1.0", "::1"][..])), tags());
    let outbound = outbound.prop_map(|(port, address, tags)| match address {
        Some(address) => json!({"port": port, "address": address, "tags": tags}),
        None => json!({"port": port, "tags": {"kuma.io/service": tags["kuma.io/service"]}}),
    });
    (vec(inbound, 1..4), vec(outbound, 0..4)).prop_map(move |(inbound, outbound)| {
        let address = format!("127.0.1.{index}");
        let networking = json!({"address": address, "inbound": inbound, "outbound": outbound});
        json!({"type": "Dataplane", "mesh": "demo", "name": format!("dp-{index}"), "networking": networking})
    })
}

fn ingress(index: usize) -> impl Strategy<Value = Value> {
    let service = (tags(), select(WEIGHTS))
        .prop_map(|(tags, instances)| json!({"mesh": "demo", "tags": tags, "instances": instances}));
    (vec(service, 0..4), option::of(Just("zone-2"))).prop_map(move |(services, zone)| {
        let address = format!("127.0.2.{index}");
        let networking =
            json!({"address": address, "port": 10001, "advertisedAddress": address, "advertisedPort": 10001});
        let mut ingress = json!({"type": "ZoneIngress", "name": format!("zi-{index}")});
        ingress["networking"] = networking;
        ingress["availableServices"] = json!(services);
        if let Some(zone) = zone {
            ingress["zone"] = json!(zone);
        }
        ingress
    })
}

fn backend_ref() -> impl Strategy<Value = Value> {
    (select(SERVICES), any::<bool>(), select(WEIGHTS)).prop_map(|(name, subset, weight)| {
        if subset {
            json!({"kind": "MeshServiceSubset", "name": name, "tags": {"version": "v1"}, "weight": weight})
        } else {
            json!({"kind": "MeshService", "name": name, "weight": weight})
        }
    })
}

fn http_conf() -> impl Strategy<Value = Value> {
    let path = (select(&["Exact", "PathPrefix", "RegularExpression"][..]), select(PATHS));
    let path = path.prop_map(|(kind, value)| json!({"type": kind, "value": value}));
    let header = (select(&["Exact", "Present", "RegularExpression", "Absent", "Prefix"][..]), select(TEXTS));
    let header = header.prop_map(|(kind, text)| match kind {
        "Present" | "Absent" => json!({"type": kind, "name": text}),
        _ => json!({"type": kind, "name": "x-h", "value": text}),
    });
    let change = (select(TEXTS), select(TEXTS)).prop_map(|(name, value)| {
        json!({"type": "RequestHeaderModifier", "requestHeaderModifier": {
            "set": [{"name": name, "value": value}], "remove": [name]}})
    });
    let redirect = select(PATHS).prop_map(|path| {
        json!({"type": "RequestRedirect", "requestRedirect": {
            "path": {"type": "ReplaceFullPath", "replaceFullPath": path}, "statusCode": 302}})
    });
    let rewrite = select(PATHS).prop_map(|path| {
        json!({"type": "URLRewrite", "urlRewrite": {
            "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": path}}})
    });
    let mirror = backend_ref().prop_map(|backend| {
        json!({"type": "RequestMirror", "requestMirror": {"percentage": "33.3", "backendRef": backend}})
    });
    let filters = vec(prop_oneof![change, redirect, rewrite, mirror], 0..3);
    let matches = vec((option::of(path), vec(header, 0..2)), 1..3);
    (matches, filters, vec(backend_ref(), 0..3)).prop_map(|(matches, filters, refs)| {
        let condition = |(path, headers): (Option<Value>, Vec<Value>)| match path {
            Some(path) => json!({"path": path, "headers": headers}),
            None => json!({"headers": headers}),
        };
        let matches: Vec<Value> = matches.into_iter().map(condition).collect();
        json!({"matches": matches, "default": {"filters": filters, "backendRefs": refs}})
    })
}

fn to(default: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (option::of(select(SERVICES)), default).prop_map(|(service, default)| match service {
        Some(name) => json!({"targetRef": {"kind": "MeshService", "name": name}, "default": default}),
        None => json!({"targetRef": {"kind": "Mesh"}, "default": default}),
    })
}

fn policy() -> impl Strategy<Value = (&'static str, Value)> {
    let span = || select(DURATIONS);
    let timeout = (span(), span()).prop_map(|(a, b)| {
        json!({"connectionTimeout": "2s", "idleTimeout": a, "http": {"requestTimeout": b, "maxStreamDuration": a}})
    });
    let retry = (span(), span(), 0..3_u32, select(TEXTS)).prop_map(|(base, max, retries, header)| {
        let headers = json!([{"type": "RegularExpression", "name": header, "value": header}]);
        json!({
            "http": {"numRetries": retries, "backOff": {"baseInterval": base, "maxInterval": max},
                "retryOn": ["5xx", "404", "HttpMethodPut"], "retriableResponseHeaders": headers,
                "rateLimitedBackOff": {"resetHeaders": [{"name": header, "format": "Seconds"}]}},
            "grpc": {"numRetries": retries, "backOff": {"baseInterval": base}},
            "tcp": {"maxConnectAttempt": retries + 1}})
    });
    let breaker = (span(), 0..101_u32, any::<bool>()).prop_map(|(interval, share, split)| {
        json!({"connectionLimits": {"maxConnections": share + 1}, "outlierDetection": {
            "interval": interval, "maxEjectionPercent": share, "splitExternalAndLocalErrors": split,
            "detectors": {"gatewayFailures": {"consecutive": share + 1}, "failurePercentage": {"threshold": share}}}})
    });
    let action = select(&["Allow", "Deny", "AllowWithShadowDeny"][..]);
    let permission =
        (to(action.prop_map(|a| json!({"action": a}))), select(TEXTS)).prop_map(|(from, value)| {
            json!({"from": [from, {"targetRef": {"kind": "MeshSubset", "tags": {"version": value}},
            "default": {"action": "Allow"}}]})
        });
    let http = (select(SERVICES), vec(http_conf(), 1..3)).prop_map(
        |(name, rules)| json!({"to": [{"targetRef": {"kind": "MeshService", "name": name}, "rules": rules}]}),
    );
    let tcp = (select(SERVICES), vec(backend_ref(), 1..3)).prop_map(|(name, refs)| {
        json!({"to": [{"targetRef": {"kind": "MeshService", "name": name},
            "rules": [{"default": {"backendRefs": refs}}]}]})
    });
    let listed = |item: Value| json!({"to": [item]});
    prop_oneof![
        to(timeout).prop_map(move |item| ("MeshTimeout", listed(item))),
        to(retry).prop_map(move |item| ("MeshRetry", listed(item))),
        to(breaker).prop_map(move |item| ("MeshCircuitBreaker", listed(item))),
        permission.prop_map(|spec| ("MeshTrafficPermission", spec)),
        http.prop_map(|spec| ("MeshHTTPRoute", spec)),
        tcp.prop_map(|spec| ("MeshTCPRoute", spec)),
    ]
}

fn zone() -> impl Strategy<Value = Vec<Value>> {
    let dataplanes = (dataplane(1), dataplane(2), dataplane(3));
    let ingresses = (ingress(1), ingress(2));
    (mesh(), dataplanes, ingresses, vec(policy(), 0..6)).prop_map(
        |(mesh, dataplanes, ingresses, policies)| {
            let mut all = vec![mesh, dataplanes.0, dataplanes.1, dataplanes.2, ingresses.0, ingresses.1];
            all.extend(policies.into_iter().enumerate().map(|(index, (kind, spec))| {
            json!({"type": kind, "mesh": "demo", "name": format!("policy-{index}"), "spec": spec})
        }));
            all
        },
    )
}

fn sets(documents: &[Value]) -> Vec<(String, ResourceSet)> {
    let fixture = Fixture::of_valid(documents);
    fixture.generate().into_iter().map(|(name, generated)| (name, generated.set)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_valid_gives_configuration_that_holds_together(documents in zone()) {
        for (name, set) in sets(&documents) {
            let broken = references::broken(&set);
            prop_assert!(broken.is_empty(), "{name}: {broken:?}");
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
        let verdict = envoy_check::check_all(&envoy, &sets(&documents));
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
