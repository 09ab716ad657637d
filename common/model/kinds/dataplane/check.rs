//! What makes a `Dataplane` valid.

use std::{collections::BTreeSet, net::IpAddr};

use crate::{
    model::{
        FieldPath, FieldStep, Kind, Violations,
        kinds::{
            address::{check_host, check_ip, check_port},
            destinations::{MESH_EXTERNAL_SERVICE, MESH_MULTI_ZONE_SERVICE},
            mesh, mesh_service, tags,
        },
        labels,
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{
            Networking, Probes,
            networking::{
                Gateway, Inbound, Listener, Outbound, TransparentProxying, gateway::GatewayType,
                inbound::ServiceProbe, listener, outbound::BackendRef,
                transparent_proxying::ReachableBackendRef,
            },
        },
    },
};

/// Kinds an outbound may point at.
static BACKENDS: [&Kind; 3] = [&MESH_EXTERNAL_SERVICE, &MESH_MULTI_ZONE_SERVICE, &mesh_service::KIND];
/// Where an Envoy offers its admin endpoint.
const LOOPBACK: &str = "127.0.0.1";

pub(super) fn check(dataplane: &Dataplane) -> Violations {
    let mut violations = Violations::none();
    let path = FieldPath::new("networking");
    let Some(networking) = &dataplane.networking else {
        violations.add(path, "must be defined");
        return violations;
    };
    check_admin(networking, &path, &mut violations);
    if let Some(gateway) = &networking.gateway {
        check_gateway(gateway, dataplane, &path, &mut violations);
    }
    check_networking(networking, &path, &mut violations);
    let builtin = networking.gateway.as_ref().is_some_and(|gateway| gateway.r#type() == GatewayType::Builtin);
    if let Some(probes) = dataplane.probes.as_ref().filter(|_| !builtin) {
        check_probes(probes, &mut violations);
    }
    if let Some(metrics) = dataplane.metrics.as_ref().filter(|_| networking.gateway.is_none()) {
        mesh::check_metrics_backend(metrics, &FieldPath::new("metrics"), &mut violations);
    }
    violations
}

/// The admin endpoint listens on this machine only, so it clashes with what listens there, or everywhere.
fn check_admin(networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    let Some(admin) = networking.admin.as_ref().filter(|admin| admin.port != 0) else { return };
    let path = path.field("admin").field("port");
    check_port(admin.port, path.clone(), violations);
    let or = |address: &'_ str, otherwise: &'_ str| {
        clash(if address.is_empty() { otherwise } else { address }, LOOPBACK)
    };
    let inbound = networking.inbound.iter().any(|inbound| {
        let listens = if inbound.address.is_empty() { &networking.address } else { &inbound.address };
        let served = if inbound.service_port == 0 { inbound.port } else { inbound.service_port };
        (inbound.port == admin.port && clash(listens, LOOPBACK))
            || (served == admin.port && or(&inbound.service_address, listens))
    });
    violations.check(inbound, path.clone(), "must differ from inbound");
    let outbound = networking.outbound.iter().any(|it| it.port == admin.port && or(&it.address, LOOPBACK));
    violations.check(outbound, path, "must differ from outbound");
}

/// Whether nobody can listen on the same port of both addresses.
fn clash(a: &str, b: &str) -> bool {
    let (Ok(a), Ok(b)) = (a.parse::<IpAddr>(), b.parse::<IpAddr>()) else { return false };
    a == b || a.is_unspecified() || b.is_unspecified()
}

fn check_networking(networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    check_host(&networking.address, path.field("address"), violations);
    if !networking.advertised_address.is_empty() {
        check_host(&networking.advertised_address, path.field("advertisedAddress"), violations);
    }
    let mut sections = BTreeSet::new();
    for (i, inbound) in networking.inbound.iter().enumerate() {
        let inbounds = path.field("inbound");
        check_inbound(inbound, networking, &inbounds.index(i), violations);
        let is_new = sections.insert(section(&inbound.name, inbound.port));
        violations.check(!is_new, inbounds.index(i).field("name"), "must be unique among the inbounds");
    }
    let place = FieldStep::At(path);
    let outbounds = place.field("outbound");
    for (i, outbound) in networking.outbound.iter().enumerate() {
        check_outbound(outbound, &outbounds.index(i), violations);
    }
    for (i, listener) in networking.listeners.iter().enumerate() {
        check_listener(listener, &path.field("listeners").index(i), violations);
    }
    if let Some(proxying) = &networking.transparent_proxying {
        check_redirection(proxying, path, violations);
    }
}

fn check_redirection(proxying: &TransparentProxying, path: &FieldPath, violations: &mut Violations) {
    // With 0 traffic is not redirected.
    for (port, name) in [
        (proxying.redirect_port_inbound, "redirectPortInbound"),
        (proxying.redirect_port_outbound, "redirectPortOutbound"),
    ] {
        let path = path.field("transparentProxying").field(name);
        violations.check(port > 65535, path, "port must be in the range [0, 65535]");
    }
    // Clients of the API know these errors by a name of the field that lacks a letter.
    let path = path.field("transparentProxing").field("reachableBackends").field("refs");
    let refs = proxying.reachable_backends.iter().flat_map(|backends| &backends.refs);
    for (i, backend) in refs.enumerate() {
        check_reachable(backend, &path.index(i), violations);
    }
}

fn check_reachable(backend: &ReachableBackendRef, path: &FieldPath, violations: &mut Violations) {
    check_kind(&backend.kind, path, violations);
    let (named, spaced) = (!backend.name.is_empty(), !backend.namespace.is_empty());
    let labelled = !backend.labels.is_empty();
    let name = path.field("name");
    violations.check(named && !is_identifier(&backend.name), name.clone(), BAD_NAME);
    violations.check(!named && !spaced && !labelled, name.clone(), "name or labels are required");
    violations.check(!named && spaced, name, "name is required, when namespace is defined");
    let both = (named || spaced) && labelled;
    violations.check(both, path.field("labels"), "labels cannot be defined when name is specified");
}

const BAD_NAME: &str =
    "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'.";

fn is_identifier(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-._".contains(c))
}

fn check_kind(kind: &str, path: &FieldPath, violations: &mut Violations) {
    let unknown = !BACKENDS.iter().any(|backend| backend.name == kind);
    let reason =
        || format!("invalid value. Available values are: {}", BACKENDS.map(|kind| kind.name).join(","));
    violations.check(unknown, path.field("kind"), reason());
}

/// What an inbound is called in identifiers: its name, else its port.
fn section(name: &str, port: u32) -> String {
    if name.is_empty() { port.to_string() } else { name.to_owned() }
}

fn check_gateway(gateway: &Gateway, dataplane: &Dataplane, path: &FieldPath, violations: &mut Violations) {
    let networking = dataplane.networking.as_ref();
    let has_inbounds = networking.is_some_and(|it| !it.inbound.is_empty());
    let tags_path = path.field("gateway").field("tags");
    let place = FieldStep::At(&tags_path);
    if gateway.r#type() == GatewayType::Builtin {
        let has_outbounds = networking.is_some_and(|it| !it.outbound.is_empty());
        for (found, member) in
            [(has_inbounds, "inbound"), (has_outbounds, "outbound"), (dataplane.probes.is_some(), "probes")]
        {
            let reason = || format!("{member} cannot be defined for builtin gateways");
            violations.check(found, path.field(member), reason());
        }
        tags::check_service(&gateway.tags, &place, violations);
    } else {
        let reason = "inbound cannot be defined for delegated gateways";
        violations.check(has_inbounds, path.field("inbound"), reason);
    }
    if let Some(protocol) = gateway.tags.get(labels::TAG_PROTOCOL).filter(|protocol| *protocol != "tcp") {
        let reason = format!("other values than tcp are not allowed, provided value {protocol:?}");
        violations.add(tags_path.key(labels::TAG_PROTOCOL), reason);
    }
    tags::check_values(&gateway.tags, &place, violations);
}

fn check_inbound(inbound: &Inbound, networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    check_port(inbound.port, path.field("port"), violations);
    if inbound.service_port != 0 {
        check_port(inbound.service_port, path.field("servicePort"), violations);
    }
    if !inbound.service_address.is_empty() {
        let path = path.field("serviceAddress");
        let bad = inbound.service_address.parse::<IpAddr>().is_err();
        violations.check(bad, path.clone(), "serviceAddress has to be valid IP address");
        let listens = [&networking.address, &inbound.address].contains(&&inbound.service_address);
        let same_port = inbound.service_port == 0 || inbound.service_port == inbound.port;
        let reason = "serviceAddress and servicePort has to differ from address and port";
        violations.check(listens && same_port, path, reason);
    }
    if !inbound.address.is_empty() {
        check_ip(&inbound.address, path.field("address"), violations);
    }
    if !inbound.tags.is_empty() {
        let place = FieldStep::At(path);
        tags::check(&inbound.tags, &place.field("tags"), violations);
        let unnamed = !inbound.tags.contains_key(labels::TAG_SERVICE);
        violations.check(unnamed, path.field("tags").key(labels::TAG_SERVICE), "tag has to exist");
    }
    let protocol = Some(inbound.protocol.as_str()).filter(|protocol| !protocol.is_empty());
    tags::check_protocol(protocol, "unknown protocol", path.field("protocol"), violations);
    if let Some(probe) = &inbound.service_probe {
        check_service_probe(probe, &path.field("serviceProbe"), violations);
    }
}

fn check_service_probe(probe: &ServiceProbe, path: &FieldPath, violations: &mut Violations) {
    const POSITIVE: &str = "must have a positive value";
    for (duration, name) in [(&probe.interval, "interval"), (&probe.timeout, "timeout")] {
        let bad = duration.as_ref().is_some_and(|d| d.seconds < 0 || (d.seconds == 0 && d.nanos <= 0));
        violations.check(bad, path.field(name), POSITIVE);
    }
    for (threshold, name) in
        [(&probe.unhealthy_threshold, "unhealthyThreshold"), (&probe.healthy_threshold, "healthyThreshold")]
    {
        violations.check(threshold.as_ref().is_some_and(|it| it.value == 0), path.field(name), POSITIVE);
    }
}

fn check_outbound(outbound: &Outbound, path: &FieldStep<'_>, violations: &mut Violations) {
    check_port(outbound.port, path.field("port"), violations);
    if !outbound.address.is_empty() {
        check_ip(&outbound.address, path.field("address"), violations);
    }
    let Some(backend) = &outbound.backend_ref else {
        tags::check_values(&outbound.tags, &path.field("tags"), violations);
        return tags::check_service(&outbound.tags, &path.field("tags"), violations);
    };
    let path = FieldPath::from(path).field("backendRef");
    check_backend(backend, &path, violations);
    let both = "both backendRef and tags/service cannot be defined";
    violations.check(!outbound.tags.is_empty(), path, both);
}

fn check_backend(backend: &BackendRef, path: &FieldPath, violations: &mut Violations) {
    check_kind(&backend.kind, path, violations);
    let neither = backend.name.is_empty() && backend.labels.is_empty();
    violations.check(neither, path.clone(), "either 'name' or 'labels' should be specified");
    // The others say in their spec where they are reached.
    if backend.kind != MESH_EXTERNAL_SERVICE.name {
        check_port(backend.port, path.field("port"), violations);
    }
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

fn check_probes(probes: &Probes, violations: &mut Violations) {
    let path = FieldPath::new("probes");
    check_port(probes.port, path.field("port"), violations);
    for (i, endpoint) in probes.endpoints.iter().enumerate() {
        let path = path.field("endpoints").index(i);
        check_port(endpoint.inbound_port, path.field("inboundPort"), violations);
        for (value, name) in [(&endpoint.inbound_path, "inboundPath"), (&endpoint.path, "path")] {
            violations.check(!value.starts_with('/'), path.field(name), "should be a valid URL Path");
        }
    }
}

#[cfg(test)]
mod tests;
