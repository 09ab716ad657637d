//! Policies that limit, break, ask and encrypt.

use serde_json::{Value, json};

use super::{normalized, wrong};
use crate::policy::{
    mesh_fault_injection, mesh_health_check, mesh_passthrough, mesh_rate_limit, mesh_tls,
    mesh_traffic_permission,
};

#[test]
fn rate_limits_are_checked() {
    let sidecars = || json!({"kind": "Mesh", "proxyTypes": ["Sidecar"]});
    let rules = |default: Value| {
        wrong(&mesh_rate_limit::KIND, &json!({"targetRef": sidecars(), "rules": [{"default": default}]}))
    };
    let good = json!({"local": {"http": {"requestRate": {"num": 5, "interval": "60s"}}}});
    assert_eq!(rules(good.clone()), Vec::<String>::new());
    assert_eq!(rules(json!({})), ["spec.rules[0].default.local: must be defined"]);
    assert_eq!(
        rules(json!({"local": {}})),
        ["spec.rules[0].default.local: must have at least one defined: tcp, http"]
    );
    assert_eq!(
        rules(json!({"local": {"http": {}, "tcp": {}}})),
        [
            "spec.rules[0].default.local.http: must have at least one defined: disabled, requestRate, onRateLimit",
            "spec.rules[0].default.local.tcp: must have at least one defined: disabled, connectionRate",
        ]
    );
    assert_eq!(
        rules(
            json!({"local": {"http": {"requestRate": {"num": 0, "interval": "50ms"}, "onRateLimit": {"status": 0}}}})
        ),
        [
            "spec.rules[0].default.local.http.requestRate.num: must be greater than 0",
            "spec.rules[0].default.local.http.requestRate.interval: must be greater than: 50ms",
            "spec.rules[0].default.local.http.onRateLimit.status: must be greater than 0",
        ]
    );
    let mesh = || json!({"kind": "Mesh"});
    let from = json!([{"targetRef": mesh(), "default": good}]);
    assert_eq!(
        wrong(&mesh_rate_limit::KIND, &json!({"targetRef": mesh(), "from": from})),
        [
            "spec.from: must not be defined when the scope includes a Gateway, select only proxyType Sidecar or select only gateways and use spec.to"
        ]
    );
    assert_eq!(
        wrong(&mesh_rate_limit::KIND, &json!({"targetRef": sidecars(), "to": from})),
        ["spec.to: must not be defined"]
    );
    let both = json!({"targetRef": sidecars(), "from": from, "rules": [{"default": good}]});
    assert_eq!(
        wrong(&mesh_rate_limit::KIND, &both),
        ["spec: fields 'to' and 'from' must be empty when 'rules' is defined"]
    );
    let nobody = json!({"targetRef": sidecars(), "rules": [{"matches": [{}], "default": good}]});
    assert_eq!(
        wrong(&mesh_rate_limit::KIND, &nobody),
        ["spec.rules[0].matches[0]: must specify at least one of 'spiffeID' or 'sni'"]
    );
}

#[test]
fn faults_are_checked() {
    let rules = |fault: Value| {
        wrong(&mesh_fault_injection::KIND, &json!({"rules": [{"default": {"http": [{}, fault]}}]}))
    };
    let good = json!({
        "abort": {"httpStatus": 503, "percentage": "2.5"},
        "delay": {"value": "5s", "percentage": 5},
        "responseBandwidth": {"limit": "50 Mbps", "percentage": 100},
    });
    assert_eq!(rules(good), Vec::<String>::new());
    let bad = json!({
        "abort": {"httpStatus": 600, "percentage": 101},
        "delay": {"value": "-5s", "percentage": "half"},
        "responseBandwidth": {"limit": "50 furlongs", "percentage": -1},
    });
    assert_eq!(
        rules(bad),
        [
            "spec.rules[0].default.http.abort[1].httpStatus: must be in inclusive range [100, 599]",
            "spec.rules[0].default.http.abort[1].percentage: must be in inclusive range [0.0, 100.0]",
            "spec.rules[0].default.http.delay[1].value: must not be negative when defined",
            "spec.rules[0].default.http.delay[1].percentage: string must be a valid number",
            "spec.rules[0].default.http.responseBandwidth[1].responseBandwidth: must be in kbps/Mbps/Gbps units",
            "spec.rules[0].default.http.responseBandwidth[1].percentage: must be in inclusive range [0.0, 100.0]",
        ]
    );
    let from = |top: Value, from: Value| {
        let item = json!({"targetRef": from, "default": {"http": []}});
        wrong(&mesh_fault_injection::KIND, &json!({"targetRef": top, "from": [item]}))
    };
    let mesh = || json!({"kind": "Mesh"});
    assert_eq!(from(mesh(), mesh()), ["spec.from: must not be defined"]);
    let web = json!({"kind": "Dataplane", "labels": {"app": "web"}, "sectionName": "http"});
    let subset = json!({"kind": "MeshServiceSubset", "name": "client", "tags": {"version": "v1"}});
    assert_eq!(from(web.clone(), subset), Vec::<String>::new());
    let external = json!({"kind": "MeshExternalService", "name": "a"});
    assert_eq!(
        from(web, external),
        ["spec.from[0].targetRef.kind: value 'MeshExternalService' is not supported"]
    );
}

#[test]
fn health_checks_are_checked() {
    let to = |default: Value| {
        wrong(&mesh_health_check::KIND, &json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]}))
    };
    assert_eq!(to(json!({"tcp": {}})), Vec::<String>::new());
    assert_eq!(
        to(json!({
            "interval": "0s", "timeout": "-1s", "unhealthyThreshold": 0, "healthyThreshold": -1,
            "initialJitter": "0s", "intervalJitter": "0s", "intervalJitterPercent": -1,
            "healthyPanicThreshold": "100.1", "noTrafficInterval": "0s", "eventLogPath": "",
            "http": {"path": "", "expectedStatuses": [200, 99]},
        })),
        [
            "spec.to[0].default.interval: must be greater than zero when defined",
            "spec.to[0].default.timeout: must be greater than zero when defined",
            "spec.to[0].default.unhealthyThreshold: must be greater than zero when defined",
            "spec.to[0].default.healthyThreshold: must be greater than zero when defined",
            "spec.to[0].default.initialJitter: must be greater than zero when defined",
            "spec.to[0].default.intervalJitter: must be greater than zero when defined",
            "spec.to[0].default.intervalJitterPercent: must be in inclusive range [0, 100]",
            "spec.to[0].default.healthyPanicThreshold: must be in inclusive range [0.0, 100.0]",
            "spec.to[0].default.noTrafficInterval: must be greater than zero when defined",
            "spec.to[0].default.eventLogPath: must be a valid path when defined",
            "spec.to[0].default.http.path: must be defined",
            "spec.to[0].default.http.expectedStatuses[1]: must be in inclusive range [100, 599]",
        ]
    );
    assert_eq!(
        to(json!({"interval": "10s"})),
        ["spec.to[0].default: must have at least one defined: http, tcp, grpc"]
    );
    // Who leaves the mesh by an egress among its own listeners is named as a dataplane.
    for (top, violations) in [("Mesh", 0), ("Dataplane", 0), ("MeshSubset", 1)] {
        let outside = json!({"targetRef": {"kind": top}, "to": [
            {"targetRef": {"kind": "MeshExternalService", "name": "a"}, "default": {"tcp": {}}}]});
        assert_eq!(wrong(&mesh_health_check::KIND, &outside).len(), violations, "{top}");
    }
}

#[test]
fn versions_and_ciphers_are_for_the_whole_mesh() {
    let tls = json!({"tlsVersion": {"min": "TLS13", "max": "TLS12"}, "tlsCiphers": ["ECDHE-RSA-AES128-GCM-SHA256"]});
    let spec = |top: Value| json!({"targetRef": top, "rules": [{"default": tls}]});
    assert_eq!(
        wrong(&mesh_tls::KIND, &spec(json!({"kind": "Mesh"}))),
        ["spec.rules[0].default.tlsVersion.min: min version must be lower than max"]
    );
    assert_eq!(
        wrong(&mesh_tls::KIND, &spec(json!({"kind": "Dataplane", "name": "a", "sectionName": "b"}))),
        [
            "spec.rules[0].default.tlsCiphers: tlsCiphers can only be defined with top level targetRef kind: Mesh",
            "spec.rules[0].default.tlsVersion: tlsVersion can only be defined with top level targetRef kind: Mesh",
        ]
    );
    let both = json!({"rules": [{"default": {}}], "from": [{"targetRef": {"kind": "Mesh"}, "default": {}}]});
    assert_eq!(wrong(&mesh_tls::KIND, &both), ["spec: field 'from' must be empty when 'rules' is defined"]);
    let spec = json!({"rules": [{"default": {"tlsVersion": {"min": "TLS12"}, "mode": "Permissive"}}]});
    let filled = json!({"rules": [{"default": {"tlsVersion": {"min": "TLS12", "max": "TLSAuto"}, "mode": "Permissive"}}]});
    assert_eq!(normalized(&mesh_tls::KIND, &spec), filled);
}

#[test]
fn what_passes_through_is_checked_and_filled_in() {
    let check = |matches: Value| {
        wrong(
            &mesh_passthrough::KIND,
            &json!({"default": {"passthroughMode": "Matched", "appendMatch": matches}}),
        )
    };
    assert_eq!(
        check(json!([
            {"type": "Domain", "value": "*.example.com", "port": 443, "protocol": "tls"},
            {"type": "CIDR", "value": "10.0.0.0/8"},
            {"type": "IP", "value": "fd00::1", "port": 3306, "protocol": "mysql"},
        ])),
        Vec::<String>::new()
    );
    let at = |i: usize, rest: &str| format!("spec.default.appendMatch[{i}].{rest}");
    assert_eq!(
        check(json!([
            {"type": "IP", "value": "example.com", "port": 0},
            {"type": "Domain", "value": "1.2.3.4", "port": 1, "protocol": "tls"},
            {"type": "Domain", "value": "example.com", "port": 999, "protocol": "tcp"},
            {"type": "CIDR", "value": "1.2.3.4", "port": 999},
            {"type": "Domain", "value": "example.com", "port": 8080, "protocol": "http"},
            {"type": "Domain", "value": "example.com", "port": 8080, "protocol": "http2"},
            {"type": "Domain", "value": "*w.example.com", "port": 9090, "protocol": "http2"},
            {"type": "Domain", "value": "example.com", "port": 8080, "protocol": "http"},
            {"type": "Domain", "value": "*", "protocol": "http"},
            {"type": "IP", "value": "1.2.3.4", "protocol": "mysql"},
        ])),
        [
            at(0, "port: port must be a valid (1-65535)"),
            at(0, "value: provided IP has incorrect value"),
            at(1, "value: provided DNS has incorrect value"),
            at(2, "protocol: protocol tcp is not supported for a domain"),
            at(3, "value: provided CIDR has incorrect value"),
            at(
                5,
                "port: using the same port in multiple matches requires the same protocol for the following protocols: [grpc http http2]"
            ),
            at(6, "value: provided DNS has incorrect value, partial wildcard is currently not supported"),
            at(7, "value: value example.com is already defiend for this port and protocol"),
            at(8, "port: wildcard domains doesn't work for all ports and layer 7 protocol"),
            at(9, "port: port must be defined for Mysql protocol"),
        ]
    );
    let spec = json!({"default": {"appendMatch": [{"type": "IP", "value": "1.2.3.4"}]}});
    let filled = json!({"default": {"appendMatch": [{"type": "IP", "value": "1.2.3.4", "protocol": "tcp"}]}});
    assert_eq!(normalized(&mesh_passthrough::KIND, &spec), filled);
}

#[test]
fn what_has_no_effect_says_so() {
    let caveat = |kind: &crate::model::Kind, spec: Value| (kind.caveat)(spec.to_string().as_bytes());
    assert_eq!(caveat(&mesh_passthrough::KIND, json!({})), None);
    let of_gateway = json!({"targetRef": {"kind": "MeshGateway", "name": "edge"}});
    assert_eq!(caveat(&mesh_rate_limit::KIND, of_gateway), None);
    assert_eq!(caveat(&mesh_rate_limit::KIND, json!({"targetRef": {"kind": "Mesh"}})), None);
}

#[test]
fn permissions_by_identity_are_checked() {
    let rules =
        |default: Value| wrong(&mesh_traffic_permission::KIND, &json!({"rules": [{"default": default}]}));
    let id = |value: &str| json!([{"spiffeID": {"type": "Exact", "value": value}}]);
    assert_eq!(
        rules(json!({"allow": id("spiffe://a/b"), "deny": [{"sni": {"type": "Exact", "value": "a.b"}}]})),
        Vec::<String>::new()
    );
    assert_eq!(
        rules(json!({"allow": [], "deny": null})),
        ["spec.rules[0]: at least one of 'allow', 'allowWithShadowDeny', 'deny' has to be defined"]
    );
    assert_eq!(
        rules(json!({"deny": id("spiffe://a/b/"), "allow": id("b")})),
        [
            "spec.rules[0].allow[0].spiffeID: must be a valid Spiffe ID: scheme is missing or invalid",
            "spec.rules[0].deny[0].spiffeID: must be a valid Spiffe ID: path cannot have a trailing slash",
        ]
    );
    assert_eq!(
        wrong(&mesh_traffic_permission::KIND, &json!({})),
        ["spec: at least one of 'from' or 'rules' has to be defined"]
    );
}
