#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::*;
use crate::model::{Kind, SpecError};

mod limits;

/// What is wrong with a spec: `field: reason` per violation, of its shape or of its content.
fn wrong(kind: &Kind, spec: &Value) -> Vec<String> {
    match kind.validate(spec.to_string().as_bytes()) {
        Ok(violations) => violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
        Err(SpecError::Shape(all)) => all.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
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
        ["spec.to[0].targetRef.kind: value 'MeshServiceSubset' is not supported"]
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
fn load_balancing_is_checked() {
    let check = |target: Value, default: Value| {
        let spec = json!({"to": [{"targetRef": target, "default": default}]});
        wrong(&mesh_load_balancing_strategy::KIND, &spec)
    };
    let mesh = || json!({"kind": "Mesh"});
    assert_eq!(wrong(&mesh_load_balancing_strategy::KIND, &json!({})), ["spec.to: needs at least one item"]);
    let kinds = ["Header", "Cookie", "Connection", "QueryParameter", "FilterState", "SourceIP"];
    let nothing: Vec<Value> = kinds.iter().map(|kind| json!({"type": kind})).collect();
    let members = ["header", "cookie", "connection", "queryParameter", "filterState", "connection"];
    let expected = |at: &str| -> Vec<String> {
        let violation = |(i, member)| format!("spec.to[0].default.{at}[{i}].{member}: must be defined");
        members.iter().enumerate().map(violation).collect()
    };
    assert_eq!(check(mesh(), json!({"hashPolicies": nothing})), expected("hashPolicies"));
    assert_eq!(
        check(mesh(), json!({"loadBalancer": {"type": "Maglev", "maglev": {"hashPolicies": nothing}}})),
        expected("loadBalancer.maglev.hashPolicies")
    );
    assert_eq!(
        check(json!({"kind": "MeshHTTPRoute", "name": "a"}), json!({"loadBalancer": {"type": "Random"}})),
        [
            "spec.to[0].default.loadBalancer: field is not allowed when targetRef.kind is MeshHTTPRoute, only hashPolicies is supported"
        ]
    );
    assert_eq!(
        check(
            mesh(),
            json!({"loadBalancer": {"type": "LeastRequest", "leastRequest": {"choiceCount": 1, "activeRequestBias": -1}}})
        ),
        [
            "spec.to[0].default.loadBalancer.leastRequest.choiceCount: in body should be greater than or equal to 2",
            "spec.to[0].default.loadBalancer.leastRequest.activeRequestBias: must be greater or equal then: 0",
        ]
    );
    assert_eq!(
        check(mesh(), json!({"loadBalancer": {"type": "Any"}})),
        [
            "spec.to[0].default.loadBalancer.type: in body should be one of [RoundRobin LeastRequest RingHash Random Maglev]"
        ]
    );
    let tags = json!([{"key": "a", "weight": 0}, {"key": ""}]);
    assert_eq!(
        check(mesh(), json!({"localityAwareness": {"localZone": {"affinityTags": tags}}})),
        [
            "spec.to[0].default.localityAwareness.localZone.affinityTags[0].weight: must be greater than 0",
            "spec.to[0].default.localityAwareness.localZone.affinityTags[1].key: must not be empty",
            "spec.to[0].default.localityAwareness.localZone.affinityTags: all or none affinity tags should have weight",
        ]
    );
    let failover = json!([
        {"from": {"zones": []}, "to": {"type": "None"}},
        {"from": {"zones": ["a", ""]}, "to": {"type": "Any", "zones": ["b"]}},
        {"to": {"type": "Only"}},
        {"to": {"type": "AnyExcept", "zones": []}},
    ]);
    let cross = json!({"failover": failover, "failoverThreshold": {"percentage": "much"}});
    assert_eq!(
        check(mesh(), json!({"localityAwareness": {"crossZone": cross}})),
        [
            "spec.to[0].default.localityAwareness.crossZone.failover[0].from.zones: must not be empty",
            "spec.to[0].default.localityAwareness.crossZone.failover[1].from.zones[1]: must not be empty",
            "spec.to[0].default.localityAwareness.crossZone.failover[1].to.zones: must be empty when type is Any",
            "spec.to[0].default.localityAwareness.crossZone.failover[2].to.zones: must not be empty when type is Only",
            "spec.to[0].default.localityAwareness.crossZone.failover[3].to.zones: must not be empty when type is AnyExcept",
            "spec.to[0].default.localityAwareness.crossZone.failoverThreshold.percentage: string must be a valid number",
        ]
    );
    let local = json!({"kind": "MeshService", "name": "a", "sectionName": "http"});
    assert_eq!(
        check(local, json!({"localityAwareness": {"crossZone": {}}})),
        ["spec.to[0].default.localityAwareness.crossZone: must not be set: MeshService traffic is local"]
    );
    let gateway = json!({"targetRef": {"kind": "MeshGateway", "name": "edge"}, "to": [{
        "targetRef": {"kind": "MeshService", "name": "a"}, "default": {"loadBalancer": {"type": "Random"}}}]});
    assert_eq!(
        wrong(&mesh_load_balancing_strategy::KIND, &gateway),
        ["spec.to[0].targetRef.kind: value is not supported, only Mesh is allowed if loadBalancer is set"]
    );
}

#[test]
fn patches_are_checked() {
    let check = |modification: Value| {
        let spec = json!({"default": {"appendModifications": [modification]}});
        let at = "spec.default.appendModifications[0]";
        wrong(&mesh_proxy_patch::KIND, &spec).iter().map(|w| w.replace(at, "at")).collect::<Vec<_>>()
    };
    assert_eq!(
        wrong(&mesh_proxy_patch::KIND, &json!({})),
        ["spec.default.appendModifications: must not be empty"]
    );
    assert_eq!(
        check(json!({})),
        ["at: exactly one modification can be defined at a time. Currently, 0 modifications are defined"]
    );
    assert_eq!(
        check(json!({"cluster": {"operation": "Add", "match": {"name": "a"}}})),
        ["at.cluster.match: must not be defined", "at.cluster.value: must be defined"]
    );
    assert_eq!(
        check(json!({"listener": {"operation": "Remove", "value": "name: a"}})),
        ["at.listener.value: must not be defined"]
    );
    assert_eq!(
        check(json!({"httpFilter": {"operation": "AddBefore", "match": {}, "value": "name: a"}})),
        [
            "at.httpFilter.match.name: must be defined. You need to pick a filter before which this one will be added"
        ]
    );
    let broken = check(json!({"virtualHost": {"operation": "Patch", "value": "domains: 7"}}));
    assert!(
        broken[0].starts_with("at.virtualHost.value: native Envoy resource is not valid: "),
        "{broken:?}"
    );
    assert_eq!(
        check(json!({"cluster": {"operation": "Patch"}})),
        ["at.cluster: at.cluster must have exactly one defined: value, jsonPatches"]
    );
    let steps = json!([
        {"op": "add", "path": "/a"}, {"op": "remove", "path": "/"}, {"op": "move", "path": "/a", "value": 1}, {"op": "copy", "from": "/a"}
    ]);
    assert_eq!(
        check(json!({"cluster": {"operation": "Patch", "jsonPatches": steps}})),
        [
            "at.cluster.jsonPatches[0].value: must not be empty when op is one of [\"add\", \"replace\"]",
            "at.cluster.jsonPatches[1].path: root path cannot be removed",
            "at.cluster.jsonPatches[2].from: must not be empty when op is one of [\"move\", \"copy\"]",
            "at.cluster.jsonPatches[2].value: is allowed only when op is one of [\"add\", \"replace\"]",
            "at.cluster.jsonPatches[3].path: must be defined",
        ]
    );
}

#[test]
fn access_logs_are_checked() {
    let check = |backend: Value| {
        let to = json!([{"targetRef": {"kind": "Mesh"}, "default": {"backends": [backend]}}]);
        wrong(&mesh_access_log::KIND, &json!({ "to": to }))
    };
    let file = |path: &str, format: Value| json!({"type": "File", "file": {"path": path, "format": format}});
    let at = "spec.to[0].default.backends[0]";
    assert_eq!(
        wrong(&mesh_access_log::KIND, &json!({"to": [{"targetRef": {"kind": "Mesh"}}]})),
        ["spec.to[0].default.backends: must be defined"]
    );
    assert_eq!(
        check(file("#not_valid", json!({"type": "Plain", "plain": ""}))),
        [
            format!("{at}.file.format.plain: must not be empty"),
            format!("{at}.file.path: file backend requires a valid path")
        ]
    );
    assert_eq!(
        check(file("/log", json!({"type": "Json", "json": [{"key": "\"", "value": "v"}, {"value": "v"}]}))),
        [
            format!("{at}.file.format.json[0]: is not a valid JSON object"),
            format!("{at}.file.format.json[1].key: key cannot be empty")
        ]
    );
    assert_eq!(check(json!({"type": "Tcp"})), [format!("{at}.tcp: must be defined")]);
    assert_eq!(
        check(json!({"type": "Tcp", "tcp": {"address": "not_valid_url"}})),
        [format!("{at}.tcp.address: tcp backend requires valid address")]
    );
    assert_eq!(
        check(json!({"type": "OpenTelemetry", "openTelemetry": {"endpoint": ""}})),
        [format!("{at}.openTelemetry: openTelemetry must have exactly one defined: endpoint, backendRef")]
    );
    let plain = file("/log", json!({"type": "Plain", "plain": "%START_TIME%"}));
    assert_eq!(check(plain.clone()), Vec::<String>::new());
    let spec = json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": {"backends": [plain]}}]});
    let stored = normalized(&mesh_access_log::KIND, &spec);
    assert_eq!(stored["to"][0]["default"]["backends"][0]["file"]["format"]["omitEmptyValues"], false);
}

#[test]
fn traces_are_checked() {
    let check = |default: Value| wrong(&mesh_trace::KIND, &json!({ "default": default }));
    let at = "spec.default.backends[0]";
    assert_eq!(check(json!({})), ["spec.default.backends: must be defined"]);
    assert_eq!(
        check(json!({"backends": [{"type": "Zipkin"}, {"type": "Zipkin"}]})),
        ["spec.default.backends: must have zero or one backend defined"]
    );
    assert_eq!(check(json!({"backends": [{"type": "Zipkin"}]})), [format!("{at}.zipkin: must be defined")]);
    let agent = |url: &str| check(json!({"backends": [{"type": "Datadog", "datadog": {"url": url}}]}));
    assert_eq!(agent("http://agent:8126"), Vec::<String>::new());
    assert_eq!(agent("nowhere"), [format!("{at}.datadog.url: must be a valid url")]);
    assert_eq!(
        agent("https://agent/path"),
        [
            format!("{at}.datadog.url: scheme must be http"),
            format!("{at}.datadog.url: port must be defined"),
            format!("{at}.datadog.url: path must not be defined")
        ]
    );
    let collector =
        |at: &str| check(json!({"backends": [{"type": "OpenTelemetry", "openTelemetry": {"endpoint": at}}]}));
    assert_eq!(collector("collector:4317"), Vec::<String>::new());
    let neither = "openTelemetry must have exactly one defined: endpoint, backendRef";
    assert_eq!(collector(""), [format!("{at}.openTelemetry: {neither}")]);
    let url = "must be in host:port format, not a URL";
    assert_eq!(collector("http://collector"), [format!("{at}.openTelemetry.endpoint: {url}")]);
    assert_eq!(
        check(json!({"backends": [], "tags": [{"name": ""}], "sampling": {"client": 101, "random": "x"}})),
        [
            "spec.default.tags[0].name: must not be empty",
            "spec.default.tags[0]: tag must have only one type defined: header, literal",
            "spec.default.sampling.client: must be between 0 and 100",
            "spec.default.sampling.random: string is not a number"
        ]
    );
    let spec = json!({"default": {"backends": [{"type": "Zipkin", "zipkin": {"url": "http://z/a"}}]}});
    let stored = &normalized(&mesh_trace::KIND, &spec)["default"]["backends"][0]["zipkin"];
    let filled = json!({"url": "http://z/a", "traceId128bit": false, "apiVersion": "httpJson", "sharedSpanContext": true});
    assert_eq!(*stored, filled);
}

#[test]
fn metrics_are_checked() {
    let check = |default: Value| wrong(&mesh_metric::KIND, &json!({ "default": default }));
    let selectors = json!([{"type": "Regex", "match": "((("}]);
    assert_eq!(
        check(json!({"sidecar": {"profiles": {"exclude": selectors}}, "applications": [{"port": 0}]})),
        [
            "spec.default.sidecar.profiles.exclude[0].match: invalid regex",
            "spec.default.applications.application[0]: port must be a valid (1-65535)"
        ]
    );
    assert_eq!(
        check(json!({"backends": [
            {"type": "Prometheus"},
            {"type": "OpenTelemetry", "openTelemetry": {"endpoint": "a b"}},
            {"type": "OpenTelemetry", "openTelemetry": {
                "endpoint": "a:1", "backendRef": {"kind": "MeshOpenTelemetryBackend", "name": "a"}}}
        ]})),
        [
            "spec.default.backends.backend[0].prometheus: must be defined",
            "spec.default.backends.backend[1].openTelemetry.endpoint: must be in host:port format",
            "spec.default.backends.backend[2].openTelemetry: openTelemetry must have only one type defined: endpoint, backendRef"
        ]
    );
    let spec = json!({"default": {
        "sidecar": {}, "applications": [{"port": 1}], "backends": [{"type": "Prometheus", "prometheus": {"tls": {}}}]}});
    let stored = &normalized(&mesh_metric::KIND, &spec)["default"];
    assert_eq!(stored["sidecar"]["includeUnused"], false);
    assert_eq!(stored["applications"][0]["path"], "/metrics");
    let prometheus = json!({"port": 5670, "path": "/metrics", "tls": {"mode": "Disabled"}});
    assert_eq!(stored["backends"][0]["prometheus"], prometheus);
}

#[test]
fn the_other_policies_are_checked() {
    let to = |default: Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]});
    assert_eq!(
        wrong(&mesh_circuit_breaker::KIND, &to(json!({"outlierDetection": {"maxEjectionPercent": 101}}))),
        [
            "spec.to[0].default.outlierDetection.maxEjectionPercent: must be in inclusive range [0, 100]",
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
