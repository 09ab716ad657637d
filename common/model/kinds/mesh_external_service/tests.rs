#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::KIND;

fn wrong(spec: &Value) -> Vec<String> {
    let violations = KIND.validate(spec.to_string().as_bytes()).unwrap();
    violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
}

#[test]
fn what_is_left_out_is_filled_in() {
    let spec = json!({
        "match": {"port": 443},
        "endpoints": [{"address": "example.com", "port": 443}],
        "tls": {"version": {}, "verification": {"subjectAltNames": [{"value": "a"}]}}});
    let normal: Value =
        serde_json::from_slice(&KIND.normalize(spec.to_string().as_bytes()).unwrap()).unwrap();
    assert_eq!(
        normal,
        json!({
            "match": {"type": "HostnameGenerator", "port": 443, "protocol": "tcp"},
            "endpoints": [{"address": "example.com", "port": 443}],
            "tls": {
                "enabled": false, "allowRenegotiation": false,
                "version": {"min": "TLSAuto", "max": "TLSAuto"},
                "verification": {"mode": "Secured", "subjectAltNames": [{"type": "Exact", "value": "a"}]}}})
    );
}

#[test]
fn each_member_is_checked() {
    let of =
        |endpoints: Value, tls: Value| json!({"match": {"port": 80}, "endpoints": endpoints, "tls": tls});
    let good = json!([{"address": "10.0.0.1", "port": 1}, {"address": "a.b", "port": 1, "priority": 1},
        {"address": "unix:///tmp/a"}]);
    assert_eq!(wrong(&of(good, json!({}))), [""; 0]);
    let bad = json!([{"address": "10.0.0.1"}, {"address": "10.0.0.1", "port": 99999}, {"address": "a.b"},
        {"address": "!!"}, {"address": "unix:///tmp/a", "port": 1}]);
    assert_eq!(
        wrong(&of(bad, json!({}))),
        [
            "spec.endpoints[0].port: must be defined when endpoint is an IP",
            "spec.endpoints[1].port: port must be a valid (1-65535)",
            "spec.endpoints[2].port: must be defined when endpoint is a hostname",
            "spec.endpoints[3].address: address has to be a valid IP or hostname",
            "spec.endpoints[4].port: must not be defined when endpoint is a unix path",
        ]
    );
    let tls = json!({"version": {"min": "TLS13", "max": "TLS12"}, "verification": {
        "serverName": "a b", "clientCert": {"secret": "c"},
        "caCert": {"type": "File"}}});
    assert_eq!(
        wrong(&of(json!([]), tls)),
        [
            "spec.tls.version.min: min version must be lower than max",
            "spec.tls.verification.serverName: must be a valid DNS name",
            "spec.tls.verification.caCert.type: must be one of SecretRef, InsecureInline",
            "spec.tls.verification.clientKey: must be defined when clientCert is defined",
        ]
    );
    assert_eq!(wrong(&json!({"match": {"port": 0}})), ["spec.match.port: port must be a valid (1-65535)"]);
    let extension =
        json!({"match": {"port": 1}, "extension": {"type": ""}, "endpoints": [{"address": "!!"}]});
    assert_eq!(wrong(&extension), ["spec.extension.type: must not be empty"]);
}
