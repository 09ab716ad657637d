//! Builtin gateways, their routes, and what policies say of them.

use std::sync::LazyLock;

use common::tls::KeyPairPem;
use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{
    DURATIONS, PATHS, TEXTS, WEIGHTS,
    policies::{backend_ref, http_conf},
};

const HOSTS: &[&str] = &["", "a.example.com", "b.example.com", "*.example.com", "*"];
const PORTS: &[u32] = &[80, 443, 6379];

/// Made once: it takes long.
static CERTIFICATE: LazyLock<String> = LazyLock::new(|| {
    let pair = KeyPairPem::self_signed(&["a.example.com".to_owned()]).unwrap();
    format!("{}{}", pair.certificate, pair.key)
});

fn listener() -> impl Strategy<Value = Value> {
    let source = select(&["inline", "secret", "file", "broken"][..]).prop_map(|form| match form {
        "inline" => json!({"inlineString": *CERTIFICATE}),
        "secret" => json!({"secret": "nowhere"}),
        "file" => json!({"file": "/nowhere"}),
        _ => json!({"inlineString": "no PEM"}),
    });
    (select(PORTS), select(HOSTS), vec(source, 1..3), option::of(select(TEXTS)), 0..3_u32).prop_map(
        |(port, hostname, certificates, tag, limit)| {
            let terminated = json!({"mode": "TERMINATE", "certificates": certificates});
            let (protocol, tls) = match (port, limit) {
                (80, _) => ("HTTP", Value::Null),
                (443, _) => ("HTTPS", terminated),
                (_, 0) => ("TLS", terminated),
                (_, 1) => ("TLS", json!({"mode": "PASSTHROUGH"})),
                _ => ("TCP", Value::Null),
            };
            let tags = tag.map_or_else(|| json!({}), |value| json!({"host": value}));
            json!({"port": port, "protocol": protocol, "hostname": hostname, "tls": tls, "tags": tags,
                "resources": {"connectionLimit": limit}})
        },
    )
}

fn of_gateway(spec: Value) -> Value {
    let mut spec = spec;
    spec["targetRef"] = json!({"kind": "MeshGateway", "name": "edge"});
    spec
}

fn route() -> impl Strategy<Value = Value> {
    let http = (vec(select(&HOSTS[1..]), 0..3), vec(http_conf(), 1..3)).prop_map(|(hostnames, rules)| {
        let to = json!([{"targetRef": {"kind": "Mesh"}, "hostnames": hostnames, "rules": rules}]);
        json!({"type": "MeshHTTPRoute", "spec": of_gateway(json!({ "to": to }))})
    });
    let tcp = vec(backend_ref(), 1..3).prop_map(|refs| {
        let to = json!([{"targetRef": {"kind": "Mesh"}, "rules": [{"default": {"backendRefs": refs}}]}]);
        json!({"type": "MeshTCPRoute", "spec": of_gateway(json!({ "to": to }))})
    });
    let older = (select(PATHS), select(TEXTS), vec(select(&HOSTS[1..]), 0..3), select(WEIGHTS)).prop_map(
        |(path, text, hostnames, weight)| {
            let backend = json!({"weight": weight, "destination": {"kuma.io/service": "web"}});
            let matches = json!([{"path": {"match": "PREFIX", "value": path},
                "headers": [{"name": text, "match": "REGEX", "value": text}]}]);
            let filters = json!([{"rewrite": {"replacePrefixMatch": path, "hostToBackendHostname": true}},
                {"responseHeader": {"set": [{"name": "x-a", "value": text}]}}]);
            let rules = json!([{"matches": matches, "filters": filters, "backends": [backend]}]);
            json!({"type": "MeshGatewayRoute", "selectors": [{"match": {"kuma.io/service": "edge"}}],
                "conf": {"http": {"hostnames": hostnames, "rules": rules}}})
        },
    );
    prop_oneof![http, tcp, older]
}

fn said() -> impl Strategy<Value = Value> {
    let to = |default: Value| json!({"to": [{"targetRef": {"kind": "Mesh"}, "default": default}]});
    let timeout = select(DURATIONS).prop_map(move |span| {
        json!({"type": "MeshTimeout", "spec": to(json!({"idleTimeout": span, "http": {"requestTimeout": span}}))})
    });
    let limit = (select(WEIGHTS), select(DURATIONS)).prop_map(move |(num, interval)| {
        let rate = json!({"num": num, "interval": interval});
        let local = json!({"http": {"requestRate": rate}, "tcp": {"connectionRate": rate}});
        json!({"type": "MeshRateLimit", "spec": to(json!({ "local": local }))})
    });
    let fault = (100..600_u32).prop_map(move |status| {
        let abort = json!([{"abort": {"httpStatus": status, "percentage": "1.5"}}]);
        json!({"type": "MeshFaultInjection", "spec": to(json!({ "http": abort }))})
    });
    let log = Just(json!({"type": "MeshAccessLog", "spec": to(json!({"backends": [
        {"type": "File", "file": {"path": "/dev/null"}}]}))}));
    let retry = (0..3_u32).prop_map(move |retries| {
        json!({"type": "MeshRetry", "spec": to(json!({"http": {"numRetries": retries}, "tcp": {"maxConnectAttempt": 2}}))})
    });
    (prop_oneof![timeout, limit, fault, log, retry], option::of(select(TEXTS))).prop_map(
        |(mut policy, tag)| {
            let mut top = json!({"kind": "MeshGateway", "name": "edge"});
            if let Some(value) = tag {
                top["tags"] = json!({"host": value});
            }
            policy["spec"]["targetRef"] = top;
            policy
        },
    )
}

/// A gateway with everything about it.
pub(super) fn documents() -> impl Strategy<Value = Vec<Value>> {
    let all = (vec(listener(), 1..5), vec(prop_oneof![route(), said()], 0..4), any::<bool>());
    all.prop_map(|(mut listeners, more, other_meshes)| {
        let plain = listeners.iter_mut().filter(|listener| other_meshes && listener["protocol"] == "HTTP");
        plain.for_each(|listener| listener["crossMesh"] = json!(true));
        let gateway = json!({"type": "BUILTIN", "tags": {"kuma.io/service": "edge"}});
        let proxy = json!({"type": "Dataplane", "mesh": "demo", "name": "edge-1",
            "networking": {"address": "127.0.3.1", "gateway": gateway}});
        let edge = json!({"type": "MeshGateway", "mesh": "demo", "name": "edge",
            "selectors": [{"match": {"kuma.io/service": "edge"}}], "conf": {"listeners": listeners}});
        let named = more.into_iter().enumerate().map(|(index, mut document)| {
            document["mesh"] = json!("demo");
            document["name"] = json!(format!("of-edge-{index}"));
            document
        });
        [proxy, edge].into_iter().chain(named).collect()
    })
}
