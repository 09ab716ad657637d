//! Random proxies whose traffic is redirected, and where it may go.

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::SERVICES;
use crate::compile::tests::fixture::ZONE;

pub(super) fn redirection() -> impl Strategy<Value = Value> {
    let family = select(&["UnSpecified", "DualStack", "IPv4", "IPv6"][..]);
    let services = || vec(select(SERVICES), 0..3);
    let backends =
        select(&[("MeshService", "web"), ("MeshService", "none"), ("MeshExternalService", "beyond")][..])
            .prop_map(|(kind, name)| json!([{"kind": kind, "name": name}]));
    (family, services(), services(), option::of(backends), 0..2_u32).prop_map(
        |(family, reachable, direct, backends, outbound)| {
            let mut proxying = json!({
                "redirectPortInbound": 15006, "redirectPortOutbound": 15001 * outbound, "ipFamilyMode": family,
                "reachableServices": reachable, "directAccessServices": direct,
            });
            if let Some(refs) = backends {
                proxying["reachableBackends"] = json!({"refs": refs});
            }
            proxying
        },
    )
}

/// Where services are called whose traffic is redirected.
pub(super) fn addresses() -> impl Strategy<Value = Vec<Value>> {
    let entry = (select(SERVICES), 0..9_u32, 0..3_u32).prop_map(|(service, last, port)| {
        let outbound =
            json!({"Port": port * 40, "TagSet": {"kuma.io/service": service}, "Origin": "service"});
        (format!("0:{service}"), json!({"address": format!("240.0.0.{last}"), "outbounds": [outbound]}))
    });
    (vec(entry, 0..4), 0..9_u32).prop_map(|(entries, last)| {
        let book: serde_json::Map<String, Value> = entries.into_iter().collect();
        let config = Value::Object(book).to_string();
        let status =
            json!({"vips": [{"ip": format!("241.0.0.{last}")}], "addresses": [{"hostname": "web.test"}]});
        let spec = json!({"selector": {"dataplaneTags": {"kuma.io/service": "web"}},
            "ports": [{"port": 80, "targetPort": 1000, "appProtocol": "http"}]});
        vec![
            json!({"type": "Config", "name": "kuma-demo-dns-vips", "config": config}),
            json!({"type": "MeshService", "mesh": "demo", "name": "web", "spec": spec, "status": status,
                "labels": {"kuma.io/zone": ZONE}}),
            json!({"type": "MeshExternalService", "mesh": "demo", "name": "beyond", "spec": {
                "match": {"port": 443, "protocol": "http"}, "endpoints": [{"address": "192.0.2.1", "port": 80}]},
                "status": {"vip": {"ip": format!("242.0.0.{last}")}, "addresses": [{"hostname": "beyond.test"}]}}),
        ]
    })
}

pub(super) fn passthrough() -> impl Strategy<Value = (&'static str, Value)> {
    let named = (
        select(&["a.test", "*.a.test", "*", "A.test"][..]),
        select(&["tls", "http", "http2", "grpc"][..]),
        option::of(select(&[80_u32, 443][..])),
    );
    let named = named.prop_map(|(value, protocol, port)| {
        json!({"type": "Domain", "value": value, "protocol": protocol, "port": port})
    });
    let addressed = (
        select(&["10.0.0.1", "fd00::1", "10.1.2.3/8", "0.0.0.0/0", "::/0", "10.0.0.1/32"][..]),
        select(&["tls", "http", "tcp", "mysql", "grpc"][..]),
        option::of(select(&[80_u32, 3306][..])),
    );
    let addressed = addressed.prop_map(|(value, protocol, port)| {
        let kind = if value.contains('/') { "CIDR" } else { "IP" };
        json!({"type": kind, "value": value, "protocol": protocol, "port": port})
    });
    let mode = option::of(select(&["All", "None", "Matched"][..]));
    (mode, vec(prop_oneof![named, addressed], 0..6)).prop_map(|(mode, matches)| {
        ("MeshPassthrough", json!({"default": {"passthroughMode": mode, "appendMatch": matches}}))
    })
}
