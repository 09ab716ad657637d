//! A data plane proxy next to a workload.

use std::collections::BTreeSet;

use super::{
    address::{check_host, check_ip, check_port},
    tags,
};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{
            Networking, Probes,
            networking::{Gateway, Inbound, Listener, Outbound, TransparentProxying, listener},
        },
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("Dataplane", "dataplanes", "kuma.mesh.v1alpha1.Dataplane")
    .flow(12)
    .named("dataplane", "dp")
    .typed::<Dataplane>();

/// Kinds an outbound may point at.
const BACKENDS: [&str; 3] = ["MeshService", MESH_EXTERNAL_SERVICE, "MeshMultiZoneService"];
const MESH_EXTERNAL_SERVICE: &str = "MeshExternalService";

impl MessageSpec for Dataplane {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        match &self.networking {
            None => violations.add(path, "must be set"),
            Some(networking) => check_networking(networking, &path, &mut violations),
        }
        if let Some(probes) = &self.probes {
            check_probes(probes, self.networking.as_ref(), &mut violations);
        }
        violations
    }
}

fn check_networking(networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    check_host(&networking.address, path.field("address"), violations);
    if !networking.advertised_address.is_empty() {
        check_host(&networking.advertised_address, path.field("advertisedAddress"), violations);
    }
    if let Some(admin) = networking.admin.as_ref().filter(|admin| admin.port != 0) {
        check_port(admin.port, path.field("admin").field("port"), violations);
        let taken = networking.inbound.iter().any(|i| i.port == admin.port);
        violations.check(taken, path.field("admin").field("port"), "must differ from the inbound ports");
    }
    let has_listener = !networking.listeners.is_empty();
    match &networking.gateway {
        Some(gateway) => check_gateway(gateway, networking, path, violations),
        None => violations.check(
            networking.inbound.is_empty() && !has_listener,
            path.clone(),
            "has to contain at least one inbound interface or gateway",
        ),
    }
    let mut sections = BTreeSet::new();
    for (i, inbound) in networking.inbound.iter().enumerate() {
        let inbounds = path.field("inbound");
        check_inbound(inbound, networking, &inbounds.index(i), violations);
        let is_new = sections.insert(section(&inbound.name, inbound.port));
        violations.check(!is_new, inbounds.index(i).field("name"), "must be unique among the inbounds");
    }
    for (i, outbound) in networking.outbound.iter().enumerate() {
        check_outbound(outbound, &path.field("outbound").index(i), violations);
    }
    for (i, listener) in networking.listeners.iter().enumerate() {
        check_listener(listener, &path.field("listeners").index(i), violations);
    }
    if let Some(proxying) = &networking.transparent_proxying {
        check_redirection(proxying, &path.field("transparentProxying"), violations);
    }
}

fn check_redirection(proxying: &TransparentProxying, path: &FieldPath, violations: &mut Violations) {
    // With 0 traffic is not redirected.
    for (port, name) in [
        (proxying.redirect_port_inbound, "redirectPortInbound"),
        (proxying.redirect_port_outbound, "redirectPortOutbound"),
    ] {
        violations.check(port > 65535, path.field(name), "port must be in the range [0, 65535]");
    }
    let refs = proxying.reachable_backends.iter().flat_map(|backends| &backends.refs);
    for (i, backend) in refs.enumerate() {
        let path = path.field("reachableBackends").field("refs").index(i);
        check_backend(&backend.kind, &backend.name, !backend.labels.is_empty(), &path, violations);
        if let Some(port) = &backend.port {
            check_port(port.value, path.field("port"), violations);
        }
    }
}

/// What an inbound is called in identifiers: its name, else its port.
fn section(name: &str, port: u32) -> String {
    if name.is_empty() { port.to_string() } else { name.to_owned() }
}

fn check_gateway(gateway: &Gateway, networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    let reason = "inbound cannot be defined for a gateway";
    violations.check(!networking.inbound.is_empty(), path.field("inbound"), reason);
    let tags_path = path.field("gateway").field("tags");
    tags::check_service(&gateway.tags, &tags_path, violations);
    tags::check(&gateway.tags, &tags_path, violations);
}

fn check_inbound(inbound: &Inbound, networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    check_port(inbound.port, path.field("port"), violations);
    if inbound.service_port != 0 {
        check_port(inbound.service_port, path.field("servicePort"), violations);
    }
    if !inbound.address.is_empty() {
        check_ip(&inbound.address, path.field("address"), violations);
    }
    let listens_on = if inbound.address.is_empty() { &networking.address } else { &inbound.address };
    if !inbound.service_address.is_empty() {
        check_ip(&inbound.service_address, path.field("serviceAddress"), violations);
        let same_port = inbound.service_port == 0 || inbound.service_port == inbound.port;
        violations.check(
            inbound.service_address == *listens_on && same_port,
            path.field("servicePort"),
            "servicePort has to differ from port when the service has the address the proxy listens on",
        );
    }
    if !inbound.tags.is_empty() {
        tags::check_service(&inbound.tags, &path.field("tags"), violations);
        tags::check(&inbound.tags, &path.field("tags"), violations);
    }
    let protocol = Some(inbound.protocol.as_str()).filter(|protocol| !protocol.is_empty());
    tags::check_protocol(protocol, "unknown protocol", path.field("protocol"), violations);
    if let Some(probe) = &inbound.service_probe {
        let probe_path = path.field("serviceProbe");
        violations.check(probe.tcp.is_none(), probe_path.field("tcp"), "must be set");
        for (duration, name) in [(&probe.interval, "interval"), (&probe.timeout, "timeout")] {
            let bad = duration.as_ref().is_some_and(|d| d.seconds < 0 || (d.seconds == 0 && d.nanos <= 0));
            violations.check(bad, probe_path.field(name), "must be greater than 0");
        }
    }
}

fn check_outbound(outbound: &Outbound, path: &FieldPath, violations: &mut Violations) {
    check_port(outbound.port, path.field("port"), violations);
    if !outbound.address.is_empty() {
        check_ip(&outbound.address, path.field("address"), violations);
    }
    let Some(backend) = &outbound.backend_ref else {
        tags::check_service(&outbound.tags, &path.field("tags"), violations);
        return tags::check(&outbound.tags, &path.field("tags"), violations);
    };
    violations.check(!outbound.tags.is_empty(), path.clone(), "both backendRef and tags cannot be defined");
    let path = path.field("backendRef");
    check_backend(&backend.kind, &backend.name, !backend.labels.is_empty(), &path, violations);
    if backend.kind != MESH_EXTERNAL_SERVICE {
        check_port(backend.port, path.field("port"), violations);
    }
}

/// A reference to a service, by name or by labels.
fn check_backend(kind: &str, name: &str, labels: bool, path: &FieldPath, violations: &mut Violations) {
    let reason = format!("invalid value. Available values are: {}", BACKENDS.join(", "));
    violations.check(!BACKENDS.contains(&kind), path.field("kind"), reason);
    let neither = name.is_empty() && !labels;
    violations.check(neither, path.field("name"), "either name or labels must be set");
    let both = !name.is_empty() && labels;
    violations.check(both, path.field("labels"), "either name or labels can be set");
}

fn check_listener(listener: &Listener, path: &FieldPath, violations: &mut Violations) {
    violations.check(
        listener.r#type() == listener::Type::Unspecified,
        path.field("type"),
        "must be ZoneIngress or ZoneEgress",
    );
    check_port(listener.port, path.field("port"), violations);
    if !listener.address.is_empty() {
        check_ip(&listener.address, path.field("address"), violations);
    }
}

fn check_probes(probes: &Probes, networking: Option<&Networking>, violations: &mut Violations) {
    let path = FieldPath::new("probes");
    check_port(probes.port, path.field("port"), violations);
    for (i, endpoint) in probes.endpoints.iter().enumerate() {
        let path = path.field("endpoints").index(i);
        let known =
            networking.is_some_and(|n| n.inbound.iter().any(|inbound| inbound.port == endpoint.inbound_port));
        violations.check(!known, path.field("inboundPort"), "must be the port of an inbound");
        for (value, name) in [(&endpoint.inbound_path, "inboundPath"), (&endpoint.path, "path")] {
            violations.check(!value.starts_with('/'), path.field(name), "should be a valid URL path");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::model::transcode;

    /// The fields that are wrong once `change` was made to a good dataplane.
    fn wrong(change: impl FnOnce(&mut Value)) -> Vec<String> {
        let mut json = json!({ "networking": {
            "address": "10.0.0.1",
            "inbound": [{ "port": 80, "servicePort": 8080, "tags": { "kuma.io/service": "web" } }],
            "outbound": [{ "port": 9000, "tags": { "kuma.io/service": "backend" } }],
        } });
        change(&mut json["networking"]);
        let violations = KIND.validate(&transcode::from_json(&KIND, &json).unwrap()).unwrap();
        violations.iter().map(|v| v.field.to_string()).collect()
    }

    #[test]
    fn violations_name_their_field() {
        assert_eq!(wrong(|_| ()), Vec::<String>::new());
        assert_eq!(wrong(|n| n["address"] = json!("")), ["networking.address"]);
        assert_eq!(wrong(|n| n["address"] = json!("::")), ["networking.address"]);
        assert_eq!(wrong(|n| n["address"] = json!("web.example.com")), Vec::<String>::new());
        assert_eq!(wrong(|n| n["advertisedAddress"] = json!("a b")), ["networking.advertisedAddress"]);
        assert_eq!(wrong(|n| n["inbound"] = json!([])), ["networking"]);
        assert_eq!(wrong(|n| n["inbound"][0]["port"] = json!(0)), ["networking.inbound[0].port"]);
        assert_eq!(wrong(|n| n["inbound"][0]["address"] = json!("x")), ["networking.inbound[0].address"]);
        assert_eq!(wrong(|n| n["inbound"][0]["tags"] = json!({ "a": "b" })), ["networking.inbound[0].tags"]);
        assert_eq!(wrong(|n| n["inbound"][0]["tags"] = json!({})), Vec::<String>::new());
        assert_eq!(
            wrong(|n| n["inbound"][0]["tags"]["kuma.io/protocol"] = json!("smtp")),
            ["networking.inbound[0].tags[\"kuma.io/protocol\"]"]
        );
        assert_eq!(
            wrong(|n| n["inbound"][0]["protocol"] = json!("smtp")),
            ["networking.inbound[0].protocol"]
        );
        assert_eq!(
            wrong(|n| n["inbound"][0] = json!({ "port": 80, "serviceAddress": "10.0.0.1" })),
            ["networking.inbound[0].servicePort"]
        );
        assert_eq!(
            wrong(|n| n["inbound"].as_array_mut().unwrap().push(json!({ "port": 80 }))),
            ["networking.inbound[1].name"]
        );
        assert_eq!(wrong(|n| n["outbound"][0]["tags"] = json!({})), ["networking.outbound[0].tags"]);
        assert_eq!(wrong(|n| n["outbound"][0]["address"] = json!("x")), ["networking.outbound[0].address"]);
        assert_eq!(
            wrong(
                |n| n["outbound"][0] = json!({ "port": 1, "backendRef": { "kind": "Nothing", "name": "a" } })
            ),
            ["networking.outbound[0].backendRef.kind", "networking.outbound[0].backendRef.port"]
        );
        let reachable = |refs: Value| {
            wrong(|n| n["transparentProxying"] = json!({ "reachableBackends": { "refs": [refs] } }))
        };
        assert_eq!(reachable(json!({ "kind": "MeshService", "labels": { "a": "b" } })), Vec::<String>::new());
        let path = "networking.transparentProxying.reachableBackends.refs[0]";
        assert_eq!(reachable(json!({ "kind": "Mesh", "name": "a" })), [format!("{path}.kind")]);
        assert_eq!(reachable(json!({ "kind": "MeshService" })), [format!("{path}.name")]);
        assert_eq!(
            reachable(json!({ "kind": "MeshService", "name": "a", "labels": { "a": "b" }, "port": 0 })),
            [format!("{path}.labels"), format!("{path}.port")]
        );
        assert_eq!(
            wrong(|n| n["gateway"] = json!({ "tags": { "kuma.io/service": "gw" } })),
            ["networking.inbound"]
        );
        assert_eq!(wrong(|n| n["listeners"] = json!([{ "port": 10_001 }])), ["networking.listeners[0].type"]);
        assert_eq!(wrong(|n| n["admin"] = json!({ "port": 80 })), ["networking.admin.port"]);
    }
}
