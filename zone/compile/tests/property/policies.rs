//! Policies, which select by `targetRef`.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{DURATIONS, NAMES, PATHS, SERVICES, TEXTS, WEIGHTS, redirected};

pub(super) fn backend_ref() -> impl Strategy<Value = Value> {
    (select(SERVICES), any::<bool>(), select(WEIGHTS)).prop_map(|(name, subset, weight)| {
        if subset {
            json!({"kind": "MeshServiceSubset", "name": name, "tags": {"version": "v1"}, "weight": weight})
        } else {
            json!({"kind": "MeshService", "name": name, "weight": weight})
        }
    })
}

pub(super) fn http_conf() -> impl Strategy<Value = Value> {
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

pub(super) fn load_balancer() -> impl Strategy<Value = Value> {
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

pub(super) fn hashed() -> impl Strategy<Value = Value> {
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

pub(super) fn locality() -> impl Strategy<Value = Value> {
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

pub(super) fn to(default: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    (option::of(select(SERVICES)), default).prop_map(|(service, default)| match service {
        Some(name) => json!({"targetRef": {"kind": "MeshService", "name": name}, "default": default}),
        None => json!({"targetRef": {"kind": "Mesh"}, "default": default}),
    })
}

pub(super) fn modification() -> impl Strategy<Value = Value> {
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

pub(super) fn log_backends() -> impl Strategy<Value = Value> {
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

pub(super) fn trace_conf() -> impl Strategy<Value = Value> {
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

pub(super) fn metric_conf() -> impl Strategy<Value = Value> {
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

pub(super) fn policy() -> impl Strategy<Value = (&'static str, Value)> {
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
pub(super) fn of_inbounds(default: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
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

pub(super) fn rate_limit() -> impl Strategy<Value = (&'static str, Value)> {
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

pub(super) fn fault() -> impl Strategy<Value = (&'static str, Value)> {
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

pub(super) fn health_check() -> impl Strategy<Value = (&'static str, Value)> {
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

pub(super) fn tls() -> impl Strategy<Value = (&'static str, Value)> {
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
