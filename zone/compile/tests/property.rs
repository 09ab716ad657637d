//! Any zone the API accepts gets configuration that holds together.

mod gateway;
mod identities;

use std::collections::BTreeSet;

use common::testing::needs;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

mod legacy;
mod redirected;

use super::{
    envoy_check,
    fixture::{self, Fixture, ZONE},
    references,
};
use crate::{
    compile::scratch::Generated,
    generator::{ResourceSet, type_url},
    mesh::{Problem, problem::Subject},
};

const SERVICES: &[&str] = &["web", "Web", "store", "far", "localhost:1080", "a_b.c"];
const PROTOCOLS: &[&str] = &["http", "http2", "grpc", "tcp", "kafka", "odd"];
const DURATIONS: &[&str] = &["0s", "1ns", "15ms", "3s", "4m", "100h"];
const WEIGHTS: &[u32] = &[0, 1, 90, u32::MAX];
const TEXTS: &[&str] = &["x-a", "X-Set", "host", "a b", ":path", "(((", "a+", "v1", "käse", "line\nbreak"];
/// Names of headers, which are in lower case wherever a policy names them.
const NAMES: &[&str] = &["x-a", "x-set", "host", "a+", "v1"];
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
    let services = select(&["Disabled", "Everywhere", "Exclusive"][..]);
    let all = (option::of(select(&["STRICT", "PERMISSIVE"][..])), any::<bool>(), services);
    all.prop_map(|(mode, local, services)| {
        let mut mesh = json!({"type": "Mesh", "name": "demo", "meshServices": {"mode": services}});
        mesh["routing"] =
            json!({"localityAwareLoadBalancing": local, "zoneEgress": mode.is_some() && !local});
        mesh["logging"] = json!({"defaultBackend": "a", "backends": [
            {"name": "a", "type": "file", "conf": {"path": "/dev/null"}, "format": "%START_TIME% %KUMA_WORKLOAD%"},
            {"name": "b", "type": "tcp", "conf": {"address": "logs:5000"}},
            {"name": "c", "type": "file", "conf": {"path": "/dev/null"}, "format": "%REQ(X-A?:PATH):10% 5%%"}]});
        mesh["tracing"] = json!({"backends": [
            {"name": "a", "type": "zipkin", "sampling": 99.9, "conf": {"url": "http://zipkin:9411/api"}},
            {"name": "b", "type": "datadog", "conf": {"address": "127.0.0.1", "port": 8126, "splitService": true}},
            {"name": "c", "type": "zipkin", "conf": {"url": "https://[::1]:443", "apiVersion": "httpProto",
                "traceId128bit": local, "sharedSpanContext": !local}}]});
        let conf = json!({"port": 1008, "tags": {"kuma.io/service": "web"}, "tls": {"mode": "activeMTLSBackend"},
            "envoy": {"filterRegex": "a+", "usedOnly": local}});
        let enabled = if local { "m" } else { "" };
        mesh["metrics"] =
            json!({"enabledBackend": enabled, "backends": [{"name": "m", "type": "prometheus", "conf": conf}]});
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
    let outbound = (outbound, 0..4_u32).prop_map(|((port, address, tags), kind)| match address {
        _ if kind == 0 => json!({"port": port, "backendRef": {
            "kind": "MeshMultiZoneService", "name": format!("all-{}", tags["kuma.io/service"].as_str().unwrap()), "port": 80}}),
        Some(address) => json!({"port": port, "address": address, "tags": tags}),
        None => json!({"port": port, "tags": {"kuma.io/service": tags["kuma.io/service"]}}),
    });
    let edges = vec((select(&["ZoneIngress", "ZoneEgress"][..]), 10_001..10_003_u32), 0..3);
    // With two of one name, or a protocol that nobody knows, the whole dataplane would be refused.
    let inbounds = vec(inbound, 1..4).prop_map(|mut all| {
        let mut ports = BTreeSet::new();
        all.retain(|inbound: &Value| ports.insert(inbound["port"].as_u64()));
        for tags in all.iter_mut().filter_map(|inbound| inbound["tags"].as_object_mut()) {
            tags.retain(|_, value| value != "odd");
        }
        all
    });
    let inbounds = (inbounds, edges);
    let is = (any::<bool>(), any::<bool>());
    let all = (inbounds, vec(outbound, 0..4), option::of(redirected::redirection()), is);
    all.prop_map(move |((inbound, edges), outbound, redirection, (probed, named))| {
        let address = format!("127.0.1.{index}");
        let mut networking = json!({"address": address, "inbound": inbound, "outbound": outbound});
        let edge = |(index, (kind, port)): (usize, &(&str, u32))| {
            json!({"type": kind, "address": address, "port": port, "name": format!("edge-{index}")})
        };
        let edges: Vec<Value> = edges.iter().enumerate().map(edge).collect();
        networking["listeners"] = json!(edges);
        if let Some(redirection) = redirection {
            networking["transparentProxying"] = redirection;
        }
        // One of them is perhaps an application with a gRPC library, and perhaps known by its workload.
        let name = if named && index == 3 { "grpc-3".to_owned() } else { format!("dp-{index}") };
        let mut dataplane = json!({"type": "Dataplane", "mesh": "demo", "name": name});
        if named {
            dataplane["labels"] = json!({"kuma.io/workload": "x"});
        }
        if probed {
            let endpoint =
                |path: &str| json!({"inboundPort": inbound[0]["port"], "inboundPath": "/a", "path": path});
            dataplane["probes"] = json!({"port": 1009, "endpoints": [endpoint("/a"), endpoint("/b?c=d")]});
        }
        dataplane["networking"] = networking;
        dataplane
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

/// A service of this or another zone, and perhaps one made of it.
fn services(index: usize) -> impl Strategy<Value = Vec<Value>> {
    let away = select(&[ZONE, "zone-2"][..]);
    let state = select(&["Available", "Unavailable"][..]);
    let protocol = select(&["http", "tcp", "grpc"][..]);
    (select(SERVICES), away, state, protocol, any::<bool>(), any::<bool>()).prop_map(
        move |(service, zone, state, protocol, all, given)| {
            let ports = json!([{"port": 80, "targetPort": 1000 + index, "appProtocol": protocol}]);
            let mut identities = vec![json!({"type": "ServiceTag", "value": service})];
            if given {
                let value = format!("spiffe://demo.{zone}.mesh.local/a");
                identities.push(json!({"type": "SpiffeID", "value": value}));
            }
            let part = json!({"type": "MeshService", "mesh": "demo", "name": format!("ms-{index}"),
                "labels": {"kuma.io/zone": zone, "kuma.io/display-name": service},
                "spec": {"state": state, "selector": {"dataplaneTags": {"kuma.io/service": service}},
                    "ports": ports, "identities": identities}});
            let composed = json!({"type": "MeshMultiZoneService", "mesh": "demo", "name": format!("all-{service}"),
                "spec": {"selector": {"meshService": {"matchLabels": {"kuma.io/display-name": service}}},
                    "ports": [{"port": 80, "appProtocol": protocol}]}});
            if all { vec![part, composed] } else { vec![part] }
        },
    )
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
    let header = (
        select(&["Exact", "Present", "RegularExpression", "Absent", "Prefix"][..]),
        select(NAMES),
        select(TEXTS),
    );
    let header = header.prop_map(|(kind, name, text)| match kind {
        "Present" | "Absent" => json!({"type": kind, "name": name}),
        _ => json!({"type": kind, "name": "x-h", "value": text}),
    });
    let change = (select(NAMES), select(TEXTS)).prop_map(|(name, value)| {
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

fn load_balancer() -> impl Strategy<Value = Value> {
    let size = || option::of(select(&[1_u32, 17, 1023, 65_536, 5_000_011][..]));
    prop_oneof![
        Just(json!({"type": "RoundRobin"})),
        Just(json!({"type": "Random"})),
        (option::of(2..4_u32), option::of(select(&["0", "1.5", "1e300"][..]))).prop_map(|(choices, bias)| {
            json!({"type": "LeastRequest", "leastRequest": {"choiceCount": choices, "activeRequestBias": bias}})
        }),
        (size(), size()).prop_map(|(min, max)| {
            let ring = json!({"hashFunction": "MurmurHash2", "minRingSize": min, "maxRingSize": max});
            json!({"type": "RingHash", "ringHash": ring})
        }),
        size().prop_map(|size| json!({"type": "Maglev", "maglev": {"tableSize": size}})),
    ]
}

fn hashed() -> impl Strategy<Value = Value> {
    let text = || select(TEXTS);
    prop_oneof![
        text().prop_map(|name| json!({"type": "Header", "header": {"name": name}, "terminal": true})),
        (text(), select(DURATIONS), option::of(select(PATHS))).prop_map(|(name, ttl, path)| {
            json!({"type": "Cookie", "cookie": {"name": name, "ttl": ttl, "path": path}})
        }),
        Just(json!({"type": "SourceIP", "connection": {"sourceIP": true}})),
        text().prop_map(|name| json!({"type": "QueryParameter", "queryParameter": {"name": name}})),
        text().prop_map(|key| json!({"type": "FilterState", "filterState": {"key": key}})),
    ]
}

fn locality() -> impl Strategy<Value = Value> {
    let tag = |weight| json!({"key": "version", "weight": weight});
    let tags = option::of(option::of(select(&[1, 90, u32::MAX][..])));
    let tags = tags.prop_map(move |weight| match weight {
        Some(weight) => json!({"affinityTags": [tag(weight), tag(weight)]}),
        None => Value::Null,
    });
    let zones = select(&["None", "Any", "Only", "AnyExcept"][..]).prop_map(|kind| match kind {
        "None" | "Any" => json!({"to": {"type": kind}}),
        _ => json!({"to": {"type": kind, "zones": ["zone-2"]}}),
    });
    let threshold = select(&["0.0001", "50", "100"][..]);
    let cross = (vec(zones, 0..3), threshold).prop_map(
        |(failover, threshold)| json!({"failover": failover, "failoverThreshold": {"percentage": threshold}}),
    );
    (option::of(any::<bool>()), tags, option::of(cross)).prop_map(
        |(disabled, local, cross)| json!({"disabled": disabled, "localZone": local, "crossZone": cross}),
    )
}

fn to(default: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (option::of(select(SERVICES)), default).prop_map(|(service, default)| match service {
        Some(name) => json!({"targetRef": {"kind": "MeshService", "name": name}, "default": default}),
        None => json!({"targetRef": {"kind": "Mesh"}, "default": default}),
    })
}

fn modification() -> impl Strategy<Value = Value> {
    let origin = || option::of(select(&["inbound", "outbound", "admin"][..]));
    let header = (origin(), select(&["x-a", "x-b"][..])).prop_map(|(origin, header)| {
        let value = format!("responseHeadersToAdd: [{{header: {{key: {header}, value: v}}}}]");
        json!({"virtualHost": {"operation": "Patch", "match": {"origin": origin}, "value": value}})
    });
    let cluster = (option::of(select(SERVICES)), 1..9_u32).prop_map(|(name, seconds)| {
        let value = format!("connectTimeout: {seconds}.5s");
        json!({"cluster": {"operation": "Patch", "match": {"name": name}, "value": value}})
    });
    let json_patch = select(&["/connectTimeout", "/altStatName", "/none/here", "broken"][..]).prop_map(|path| {
        json!({"cluster": {"operation": "Patch", "jsonPatches": [{"op": "replace", "path": path, "value": "3s"}]}})
    });
    let place = select(&["AddFirst", "AddBefore", "AddAfter"][..]);
    let filter = (origin(), place).prop_map(|(origin, operation)| {
        let value = "{name: lua, typedConfig: {'@type': type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua, defaultSourceCode: {inlineString: '-- a'}}}";
        let name = if operation == "AddAfter" { "envoy.filters.http.grpc_stats" } else { "envoy.filters.http.router" };
        json!({"httpFilter": {"operation": operation, "match": {"name": name, "origin": origin}, "value": value}})
    });
    let added = Just(json!({"cluster": {"operation": "Add", "value": "{name: more, type: STATIC}"}}));
    prop_oneof![header, cluster, json_patch, filter, added]
}

fn log_backends() -> impl Strategy<Value = Value> {
    let text =
        select(&["%START_TIME%", "100%", "%REQ(a)% %KUMA_SOURCE_ADDRESS%", "%KUMA_WORKLOAD%", "%%"][..]);
    let backend = (text, select(&["logs:4317", "127.0.0.1", "::1", "[::1]:4317"][..]), 0..5).prop_map(
        |(text, endpoint, form)| match form {
            0 => json!({"type": "File", "file": {"path": "/dev/null"}}),
            1 => json!({"type": "File", "file": {
                "path": "/dev/null", "format": {"type": "Plain", "plain": text}}}),
            2 => json!({"type": "Tcp", "tcp": {
                "address": "logs:5000", "format": {"type": "Json", "json": [{"key": "a", "value": text}]}}}),
            3 => json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": endpoint}}),
            _ => json!({"type": "OpenTelemetry", "openTelemetry": {
                "endpoint": endpoint, "body": text, "attributes": [{"key": "a", "value": text}]}}),
        },
    );
    vec(backend, 0..3).prop_map(|backends| json!({ "backends": backends }))
}

fn trace_conf() -> impl Strategy<Value = Value> {
    let url =
        select(&["http://zipkin:9411/api/v2/spans", "https://zipkin", "http://[::1]:80/a", "zipkin:1"][..]);
    (url, select(TEXTS), 0..4, option::of(0..101_u32)).prop_map(|(url, text, form, share)| {
        let backend = match form {
            0 => json!({"type": "Zipkin", "zipkin": {"url": url}}),
            1 => json!({"type": "Datadog", "datadog": {"url": "http://agent:8126", "splitService": true}}),
            2 => json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": url}}),
            _ => json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": "::1"}}),
        };
        let tags = json!([{"name": text, "literal": text}, {"name": "b", "header": {"name": text}}]);
        json!({"backends": [backend], "tags": tags, "sampling": {"random": share}})
    })
}

fn metric_conf() -> impl Strategy<Value = Value> {
    let modes = select(&["Disabled", "ProvidedTLS", "ActiveMTLSBackend"][..]);
    let prometheus = (modes, option::of(select(TEXTS)), 1000..1008_u32, select(PATHS)).prop_map(
        |(mode, client, port, path)| {
            let tls = json!({ "mode": mode });
            json!({"type": "Prometheus", "prometheus": {"clientId": client, "port": port, "path": path, "tls": tls}})
        },
    );
    let told = select(&["logs:4317", "127.0.0.1", "[::1]:1"][..])
        .prop_map(|at| json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": at}}));
    vec(prop_oneof![prometheus, told], 0..4)
        .prop_map(|backends| json!({"backends": backends, "applications": [{"port": 1, "name": "a"}]}))
}

fn policy() -> impl Strategy<Value = (&'static str, Value)> {
    let span = || select(DURATIONS);
    let timeout = (span(), span()).prop_map(|(a, b)| {
        json!({"connectionTimeout": "2s", "idleTimeout": a, "http": {"requestTimeout": b, "maxStreamDuration": a}})
    });
    let retry = (span(), span(), 0..3_u32, select(NAMES), select(TEXTS)).prop_map(
        |(base, max, retries, header, text)| {
            let headers = json!([{"type": "RegularExpression", "name": header, "value": text}]);
            json!({
            "http": {"numRetries": retries, "backOff": {"baseInterval": base, "maxInterval": max},
                "retryOn": ["5xx", "404", "HttpMethodPut"], "retriableResponseHeaders": headers,
                "rateLimitedBackOff": {"resetHeaders": [{"name": header, "format": "Seconds"}]}},
            "grpc": {"numRetries": retries, "backOff": {"baseInterval": base}},
            "tcp": {"maxConnectAttempt": retries + 1}})
        },
    );
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
    let balance = (load_balancer(), option::of(locality()), vec(hashed(), 0..3)).prop_map(
        |(balancer, locality, hashed)| {
            let mut conf = json!({"loadBalancer": balancer, "hashPolicies": hashed});
            if let Some(locality) = locality {
                conf["localityAwareness"] = locality;
            }
            conf
        },
    );
    let http = (select(SERVICES), vec(http_conf(), 1..3)).prop_map(
        |(name, rules)| json!({"to": [{"targetRef": {"kind": "MeshService", "name": name}, "rules": rules}]}),
    );
    let tcp = (select(SERVICES), vec(backend_ref(), 1..3)).prop_map(|(name, refs)| {
        json!({"to": [{"targetRef": {"kind": "MeshService", "name": name},
            "rules": [{"default": {"backendRefs": refs}}]}]})
    });
    let listed = |item: Value| json!({"to": [item]});
    let limits = prop_oneof![rate_limit(), fault(), health_check(), tls()];
    let log = (to(log_backends()), select(TEXTS), log_backends(), any::<bool>()).prop_map(
        |(to, value, backends, outside)| {
            let matches = json!([{"sni": {"type": "Exact", "value": value}}]);
            let rules = json!([{"default": backends}, {"matches": matches, "default": backends}]);
            if outside { json!({"to": [to]}) } else { json!({ "rules": rules }) }
        },
    );
    let telemetry = prop_oneof![
        log.prop_map(|spec| ("MeshAccessLog", spec)),
        trace_conf().prop_map(|default| ("MeshTrace", json!({ "default": default }))),
        metric_conf().prop_map(|default| ("MeshMetric", json!({ "default": default }))),
    ];
    prop_oneof![
        limits,
        telemetry,
        redirected::passthrough(),
        to(timeout).prop_map(move |item| ("MeshTimeout", listed(item))),
        to(retry).prop_map(move |item| ("MeshRetry", listed(item))),
        to(breaker).prop_map(move |item| ("MeshCircuitBreaker", listed(item))),
        permission.prop_map(|spec| ("MeshTrafficPermission", spec)),
        to(balance).prop_map(move |item| ("MeshLoadBalancingStrategy", listed(item))),
        vec(modification(), 1..4)
            .prop_map(|list| ("MeshProxyPatch", json!({"default": {"appendModifications": list}}))),
        http.prop_map(|spec| ("MeshHTTPRoute", spec)),
        tcp.prop_map(|spec| ("MeshTCPRoute", spec)),
    ]
}

/// Rules for everybody and for some, or a list of groups.
fn of_inbounds(default: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let some = json!([{"spiffeID": {"type": "Exact", "value": "spiffe://demo/web"}}, {"sni": {"type": "Exact", "value": "a.b"}}]);
    (default, any::<bool>(), select(SERVICES)).prop_map(move |(default, rules, service)| {
        let top = json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]});
        let groups = json!([{"targetRef": {"kind": "Mesh"}, "default": default},
            {"targetRef": {"kind": "MeshService", "name": service}, "default": default}]);
        let ruled = json!([{"default": default}, {"matches": some, "default": default}]);
        if rules {
            json!({"targetRef": top, "rules": ruled})
        } else {
            json!({"targetRef": top, "from": groups})
        }
    })
}

fn rate_limit() -> impl Strategy<Value = (&'static str, Value)> {
    let conf = (select(WEIGHTS), select(DURATIONS), 0..600_u32, select(NAMES), select(TEXTS));
    let conf = conf.prop_map(|(num, interval, status, name, text)| {
        let headers = json!({"set": [{"name": name, "value": "a,b"}], "add": [{"name": "x-a", "value": text}]});
        json!({"local": {
            "http": {"requestRate": {"num": num, "interval": interval}, "onRateLimit": {"status": status, "headers": headers}},
            "tcp": {"connectionRate": {"num": num, "interval": interval}}}})
    });
    // Only the whole mesh can stand in its `from`.
    of_inbounds(conf).prop_map(|mut spec| {
        if let Some(groups) = spec["from"].as_array_mut() {
            groups.truncate(1);
        }
        // Connections are counted before a client is known.
        for rule in
            spec["rules"].as_array_mut().into_iter().flatten().filter(|rule| rule["matches"].is_array())
        {
            rule["default"]["local"].as_object_mut().map(|local| local.remove("tcp"));
        }
        ("MeshRateLimit", spec)
    })
}

fn fault() -> impl Strategy<Value = (&'static str, Value)> {
    let limit = select(&["0 kbps", "1 kbps", "7Gbps"][..]);
    let conf = (select(&["0", "0.001", "33.3", "100"][..]), select(DURATIONS), 100..600_u32, limit);
    let conf = conf.prop_map(|(percentage, value, status, limit)| {
        json!({"http": [
            {"abort": {"httpStatus": status, "percentage": percentage}},
            {"delay": {"value": value, "percentage": percentage},
                "responseBandwidth": {"limit": limit, "percentage": percentage}},
            {}]})
    });
    of_inbounds(conf).prop_map(|spec| ("MeshFaultInjection", spec))
}

fn health_check() -> impl Strategy<Value = (&'static str, Value)> {
    let conf = (select(DURATIONS), 1..7_i32, select(NAMES), select(TEXTS), any::<bool>());
    let conf = conf.prop_map(|(span, count, name, text, flag)| {
        let headers = json!({"set": [{"name": name, "value": text}], "add": [{"name": "x-a", "value": "b"}]});
        json!({
            "interval": span, "timeout": span, "initialJitter": span, "noTrafficInterval": span,
            "unhealthyThreshold": count, "intervalJitterPercent": count, "healthyPanicThreshold": "12.5",
            "failTrafficOnPanic": flag, "reuseConnection": flag, "eventLogPath": "/tmp/checks.log",
            "tcp": {"send": text, "receive": [text, ""]},
            "http": {"disabled": flag, "path": text, "requestHeadersToAdd": headers, "expectedStatuses": [200, 599]},
            "grpc": {"disabled": flag, "serviceName": text, "authority": text}})
    });
    to(conf).prop_map(|item| ("MeshHealthCheck", json!({"to": [item]})))
}

fn tls() -> impl Strategy<Value = (&'static str, Value)> {
    let version = || select(&["TLSAuto", "TLS10", "TLS11", "TLS12", "TLS13"][..]);
    let mode = option::of(select(&["Strict", "Permissive"][..]));
    (version(), version(), mode).prop_map(|(min, max, mode)| {
        let mut conf =
            json!({"tlsVersion": {"min": min, "max": max}, "tlsCiphers": ["ECDHE-RSA-AES128-GCM-SHA256"]});
        if let Some(mode) = mode {
            conf["mode"] = json!(mode);
        }
        ("MeshTLS", json!({"rules": [{"default": conf}]}))
    })
}

fn zone() -> impl Strategy<Value = Vec<Value>> {
    let dataplanes = (dataplane(1), dataplane(2), dataplane(3));
    let ingresses = (ingress(1), ingress(2));
    let services = (services(1), services(2));
    let edges = (outside(), gateway::documents(), redirected::addresses(), identities::documents());
    let policies = (vec(policy(), 0..6), vec(legacy::policy(), 0..8));
    (mesh(), dataplanes, ingresses, services, edges, policies).prop_map(
        |(mesh, dataplanes, ingresses, services, edges, (policies, older))| {
            let mut all = vec![mesh, dataplanes.0, dataplanes.1, dataplanes.2, ingresses.0, ingresses.1];
            all.extend(services.0.into_iter().chain(services.1));
            all.extend(edges.0.into_iter().chain(edges.1));
            all.extend(policies.into_iter().enumerate().map(|(index, (kind, spec))| {
            json!({"type": kind, "mesh": "demo", "name": format!("policy-{index}"), "spec": spec})
        }));
            all.extend(older.into_iter().enumerate().map(|(index, mut document)| {
                document["mesh"] = json!("demo");
                document["name"] = json!(format!("older-{index}"));
                document
            }));
            all.extend(edges.2);
            all.extend(edges.3);
            all.push(json!({"type": "MeshZoneAddress", "mesh": "demo", "name": "door",
                "labels": {"kuma.io/zone": "zone-2"}, "spec": {"address": "127.0.4.1", "port": 10001}}));
            all
        },
    )
}

/// Services outside the mesh, of either kind, and an egress.
fn outside() -> impl Strategy<Value = Vec<Value>> {
    let hosts = select(&["10.9.0.1", "a.example", "::1"][..]);
    let tls = || {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(enabled, ca, skip)| {
            (enabled, ca.then(|| json!({ "inlineString": super::fixture::authority() })), skip)
        })
    };
    let older = (tags(), hosts.clone(), tls()).prop_map(|(tags, host, (enabled, ca, skip))| {
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let mut tls = json!({"enabled": enabled, "skipHostnameVerification": skip});
        if let Some(ca) = ca {
            tls["caCert"] = ca;
        }
        json!({"type": "ExternalService", "tags": tags, "networking": {"address": format!("{host}:443"), "tls": tls}})
    });
    let modes = select(&["SkipSAN", "SkipCA", "SkipAll", "Secured"][..]);
    let versions = select(&["TLSAuto", "TLS12", "TLS13"][..]);
    let newer = (select(&PROTOCOLS[..4]), vec((hosts, option::of(0..3_u32)), 0..3), tls(), modes, versions).prop_map(
        |(protocol, endpoints, (enabled, ca, _), mode, max)| {
            let endpoint = |(host, priority): (&str, Option<u32>)| json!({"address": host, "port": 1, "priority": priority});
            let endpoints: Vec<Value> = endpoints.into_iter().map(endpoint).collect();
            let mut verification = json!({"mode": mode, "subjectAltNames": [{"type": "Prefix", "value": "a"}]});
            if let Some(ca) = ca {
                verification["caCert"] = ca;
            }
            let tls = json!({"enabled": enabled, "version": {"max": max}, "verification": verification});
            let spec = json!({"match": {"port": 80, "protocol": protocol}, "endpoints": endpoints, "tls": tls});
            json!({"type": "MeshExternalService", "spec": spec})
        },
    );
    vec(prop_oneof![older, newer], 0..4).prop_map(|services| {
        let named = |(index, mut service): (usize, Value)| {
            service["mesh"] = json!("demo");
            service["name"] = json!(format!("outside-{index}"));
            service
        };
        let mut all: Vec<Value> = services.into_iter().enumerate().map(named).collect();
        all.push(json!({"type": "ZoneEgress", "name": "out", "networking": {"address": "127.0.3.1", "port": 10002}}));
        all
    })
}

/// What the proxies of the zone get. What is refused is left out of it; without its mesh nothing would be left that
/// could be wrong.
fn made(documents: &[Value]) -> Vec<(String, Generated)> {
    let fixture = Fixture::of_valid(documents);
    assert_eq!(fixture.meshes.len(), 1, "there is no mesh: {:?}", fixture::resource(&documents[0]));
    let all = fixture.generate();
    let mut sidecars =
        all.iter().filter(|(name, _)| fixture.meshes[0].dataplanes.contains_key(name.as_str()));
    let listens = |set: &ResourceSet| set.count(type_url::LISTENER) > 0;
    assert!(sidecars.any(|(_, generated)| listens(&generated.set)), "no sidecar listens");
    all.into_iter().collect()
}

/// What of it refers to nothing. That there is a cluster which a library of gRPC cannot have is told as a problem.
fn broken(name: &str, generated: &Generated) -> Vec<String> {
    let told = generated.problems.iter().filter_map(|problem| match &problem.subject {
        Subject::Part(cluster) => Some(format!("names cluster {cluster:?}")),
        _ => None,
    });
    let told: Vec<String> = told.filter(|_| Fixture::is_library(name)).collect();
    let mut broken = references::broken(&generated.set);
    broken.retain(|reference| !told.iter().any(|told| reference.ends_with(told.as_str())));
    broken
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_valid_gives_configuration_that_holds_together(documents in zone()) {
        for (name, generated) in made(&documents) {
            let broken = broken(&name, &generated);
            prop_assert!(broken.is_empty(), "{name}: {broken:?}");
            let refused: Vec<&Problem> = generated.problems.iter().filter(|p| p.refused().is_some()).collect();
            prop_assert!(refused.is_empty(), "{name}: {refused:?}");
            // Libraries have rules of their own.
            for resource in generated.set.iter().filter(|_| !Fixture::is_library(&name)) {
                let broken = resource.broken_rules();
                prop_assert!(broken.is_empty(), "{name}: {} {}: {broken:?}", resource.type_url, resource.name);
            }
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
        let mut all = made(&documents);
        all.retain(|(proxy, _)| !Fixture::is_library(proxy));
        let sets: Vec<_> = all.into_iter().map(|(proxy, generated)| (proxy, generated.set)).collect();
        let verdict = envoy_check::check_all(&envoy, &sets);
        prop_assert!(verdict.is_ok(), "{}", verdict.unwrap_err());
        Ok(())
    });
    if let Err(error) = result {
        panic!("{error}");
    }
}
