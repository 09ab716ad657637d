#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use crate::model::{kinds::dataplane::KIND, transcode};

/// The fields of a document that are wrong.
fn fields(json: &Value) -> Vec<String> {
    let violations = KIND.validate(&transcode::from_json(&KIND, json).unwrap()).unwrap();
    violations.iter().map(|v| v.field.to_string()).collect()
}

/// The fields that are wrong once `members` were put into the networking of a good dataplane, or taken out.
fn wrong(members: &Value) -> Vec<String> {
    let mut json = json!({ "networking": {
        "address": "10.0.0.1",
        "inbound": [{ "port": 80, "servicePort": 8080, "tags": { "kuma.io/service": "web" } }],
        "outbound": [{ "port": 9000, "tags": { "kuma.io/service": "backend" } }],
    } });
    json_patch(&mut json["networking"], members);
    fields(&json)
}

fn json_patch(into: &mut Value, members: &Value) {
    for (name, value) in members.as_object().unwrap() {
        into[name] = value.clone();
    }
}

fn inbound(members: &Value) -> Vec<String> {
    let mut inbound =
        json!({ "port": 80, "servicePort": 8080, "tags": { "kuma.io/service": "web", "version": "1" } });
    json_patch(&mut inbound, members);
    let found = wrong(&json!({ "inbound": [inbound] }));
    found.iter().map(|field| field.replace("networking.inbound[0].", "")).collect()
}

fn outbound(outbound: &Value) -> Vec<String> {
    let found = wrong(&json!({ "outbound": [outbound] }));
    found.iter().map(|field| field.replace("networking.outbound[0].", "")).collect()
}

#[test]
fn addresses_and_inbounds() {
    let none: [&str; 0] = [];
    assert_eq!(fields(&json!({})), ["networking"]);
    assert_eq!(wrong(&json!({})), none);
    assert_eq!(wrong(&json!({ "address": "web.example.com" })), none);
    for bad in ["", "::", "0.0.0.0", "a b"] {
        assert_eq!(wrong(&json!({ "address": bad })), ["networking.address"], "{bad:?}");
    }
    assert_eq!(wrong(&json!({ "advertisedAddress": "a b" })), ["networking.advertisedAddress"]);
    // A client has no inbounds.
    assert_eq!(wrong(&json!({ "inbound": [] })), none);
    assert_eq!(inbound(&json!({ "port": 0 })), ["port"]);
    assert_eq!(inbound(&json!({ "servicePort": 65_536 })), ["servicePort"]);
    assert_eq!(inbound(&json!({ "address": "x" })), ["address"]);
    assert_eq!(inbound(&json!({ "serviceAddress": "x" })), ["serviceAddress"]);
    assert_eq!(inbound(&json!({ "serviceAddress": "10.0.0.1" })), none);
    assert_eq!(inbound(&json!({ "serviceAddress": "10.0.0.1", "servicePort": 80 })), ["serviceAddress"]);
    assert_eq!(inbound(&json!({ "tags": { "a": "b" } })), ["tags[\"kuma.io/service\"]"]);
    assert_eq!(inbound(&json!({ "tags": {} })), none);
    let smtp = json!({ "kuma.io/service": "web", "kuma.io/protocol": "smtp" });
    assert_eq!(inbound(&json!({ "tags": smtp })), ["tags[\"kuma.io/protocol\"]"]);
    assert_eq!(inbound(&json!({ "protocol": "smtp" })), ["protocol"]);
    let two = json!([{ "port": 80 }, { "port": 80 }]);
    assert_eq!(wrong(&json!({ "inbound": two })), ["networking.inbound[1].name"]);
}

#[test]
fn probes_of_services() {
    let probe = |members: Value| inbound(&json!({ "serviceProbe": members }));
    assert_eq!(probe(json!({})), [""; 0]);
    assert_eq!(probe(json!({ "interval": "10s", "healthyThreshold": 1, "tcp": {} })), [""; 0]);
    assert_eq!(
        probe(json!({ "interval": "0s", "timeout": "-1s", "healthyThreshold": 0, "unhealthyThreshold": 0 })),
        ["interval", "timeout", "unhealthyThreshold", "healthyThreshold"]
            .map(|name| format!("serviceProbe.{name}"))
    );
    let of = |probes: Value| fields(&json!({ "probes": probes, "networking": { "address": "10.0.0.1" } }));
    let endpoint = json!({ "inboundPort": 8080, "inboundPath": "/a", "path": "/8080/a" });
    assert_eq!(of(json!({ "port": 9000, "endpoints": [endpoint] })), [""; 0]);
    assert_eq!(
        of(json!({ "endpoints": [{ "inboundPort": 70_000, "inboundPath": "a", "path": "" }] })),
        [
            "probes.port",
            "probes.endpoints[0].inboundPort",
            "probes.endpoints[0].inboundPath",
            "probes.endpoints[0].path",
        ]
    );
}

#[test]
fn the_admin_endpoint_listens_on_this_machine() {
    let admin =
        |port: u32, inbound: Value| wrong(&json!({ "admin": { "port": port }, "inbound": [inbound] }));
    let port = ["networking.admin.port"];
    assert_eq!(admin(80, json!({ "port": 80 })), [""; 0]);
    assert_eq!(admin(80, json!({ "port": 80, "address": "127.0.0.1" })), port);
    assert_eq!(admin(80, json!({ "port": 80, "address": "0.0.0.0" })), port);
    let served = json!({ "port": 80, "servicePort": 8080, "serviceAddress": "127.0.0.1" });
    assert_eq!(admin(8080, served), port);
    // That is where the outbound of a good dataplane listens.
    assert_eq!(admin(9000, json!({ "port": 80 })), port);
    assert_eq!(admin(9001, json!({ "port": 80 })), [""; 0]);
}

#[test]
fn outbounds_name_a_service_or_a_resource() {
    let none: [&str; 0] = [];
    assert_eq!(outbound(&json!({ "port": 1, "tags": {} })), ["tags"]);
    assert_eq!(outbound(&json!({ "port": 0, "tags": { "kuma.io/service": "a" } })), ["port"]);
    assert_eq!(
        outbound(&json!({ "port": 1, "address": "x", "tags": { "kuma.io/service": "a" } })),
        ["address"]
    );
    let of = |backend: Value| outbound(&json!({ "port": 1, "backendRef": backend }));
    assert_eq!(of(json!({ "kind": "MeshService", "name": "a", "port": 80 })), none);
    assert_eq!(of(json!({ "kind": "MeshExternalService", "name": "a" })), none);
    assert_eq!(of(json!({ "kind": "Nobody", "name": "a" })), ["backendRef.kind", "backendRef.port"]);
    assert_eq!(of(json!({ "kind": "MeshService", "port": 80 })), ["backendRef"]);
    let both = json!({ "port": 1, "tags": { "kuma.io/service": "a" },
        "backendRef": { "kind": "MeshMultiZoneService", "labels": { "a": "b" }, "port": 80 } });
    assert_eq!(outbound(&both), ["backendRef"]);
    let reachable = |backend: Value| {
        let found = wrong(&json!({ "transparentProxying": { "reachableBackends": { "refs": [backend] } } }));
        let path = "networking.transparentProxing.reachableBackends.refs[0].";
        found.iter().map(|field| field.replace(path, "")).collect::<Vec<_>>()
    };
    assert_eq!(reachable(json!({ "kind": "MeshService", "labels": { "a": "b" } })), none);
    assert_eq!(reachable(json!({ "kind": "Mesh", "name": "a" })), ["kind"]);
    assert_eq!(reachable(json!({ "kind": "MeshService" })), ["name"]);
    assert_eq!(reachable(json!({ "kind": "MeshService", "namespace": "n" })), ["name"]);
    assert_eq!(reachable(json!({ "kind": "MeshService", "name": "A" })), ["name"]);
    assert_eq!(reachable(json!({ "kind": "MeshService", "name": "a", "labels": { "a": "b" } })), ["labels"]);
}

#[test]
fn gateways_have_no_inbounds() {
    let none: [&str; 0] = [];
    let of = |gateway: Value, inbound: Value| {
        wrong(&json!({ "gateway": gateway, "inbound": inbound, "outbound": [] }))
    };
    let named = json!({ "kuma.io/service": "gw" });
    assert_eq!(of(json!({ "tags": named }), json!([])), none);
    assert_eq!(of(json!({}), json!([])), none);
    assert_eq!(of(json!({ "tags": named }), json!([{ "port": 80 }])), ["networking.inbound"]);
    let http = json!({ "kuma.io/service": "gw", "kuma.io/protocol": "http" });
    assert_eq!(of(json!({ "tags": http }), json!([])), ["networking.gateway.tags[\"kuma.io/protocol\"]"]);
    let builtin = json!({ "type": "BUILTIN" });
    assert_eq!(of(builtin.clone(), json!([])), ["networking.gateway.tags"]);
    let all = json!({ "probes": { "port": 9000 }, "networking": { "address": "10.0.0.1",
        "gateway": { "type": "BUILTIN", "tags": named }, "inbound": [{ "port": 80 }],
        "outbound": [{ "port": 1, "tags": named }] } });
    assert_eq!(fields(&all), ["networking.inbound", "networking.outbound", "networking.probes"]);
    assert_eq!(wrong(&json!({ "listeners": [{ "port": 10_001 }] })), ["networking.listeners[0].type"]);
}

#[test]
fn metrics_of_one_proxy() {
    let of = |metrics: Value| fields(&json!({ "metrics": metrics, "networking": { "address": "10.0.0.1" } }));
    assert_eq!(of(json!({ "type": "prometheus", "conf": { "port": 1234 } })), [""; 0]);
    assert_eq!(of(json!({ "type": "statsd" })), ["metrics.type"]);
}
