//! Meshes, those who are in them, and what is outside.

use std::collections::BTreeSet;

use proptest::{collection::vec, option, prelude::*, sample::select};
use serde_json::{Value, json};

use super::{PROTOCOLS, SERVICES, WEIGHTS, redirected};
use crate::compile::tests::fixture::{self, ZONE};

pub(super) fn tags() -> impl Strategy<Value = Value> {
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

pub(super) fn mesh() -> impl Strategy<Value = Value> {
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

pub(super) fn dataplane(index: usize) -> impl Strategy<Value = Value> {
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

pub(super) fn ingress(index: usize) -> impl Strategy<Value = Value> {
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
pub(super) fn services(index: usize) -> impl Strategy<Value = Vec<Value>> {
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

/// Services outside the mesh, of either kind, and an egress.
pub(super) fn outside() -> impl Strategy<Value = Vec<Value>> {
    let hosts = select(&["10.9.0.1", "a.example", "::1"][..]);
    let tls = || {
        (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(enabled, ca, skip)| {
            (enabled, ca.then(|| json!({ "inlineString": fixture::authority() })), skip)
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
