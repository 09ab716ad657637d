//! Listeners of a builtin gateway, and the dataplanes that run it.

use std::collections::{BTreeMap, BTreeSet};

use super::{address::check_port, selectors};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{
        MeshGateway,
        mesh_gateway::{
            Conf, Listener,
            listener::Protocol,
            tls::{self, Mode},
        },
    },
};

/// The descriptor.
pub static KIND: Kind = Kind::proto("MeshGateway", "meshgateways", "kuma.mesh.v1alpha1.MeshGateway")
    .flow(29)
    .named("meshgateway", "mgw")
    .typed::<MeshGateway>();

impl MeshGateway {
    /// Whether dataplanes of other meshes may call it.
    pub fn is_cross_mesh(&self) -> bool {
        self.conf.iter().flat_map(|conf| &conf.listeners).any(|listener| listener.cross_mesh)
    }
}

impl Listener {
    /// For which host names it is; `*` for all.
    pub fn hostname(&self) -> &str {
        if self.hostname.is_empty() { "*" } else { &self.hostname }
    }
}

impl MessageSpec for MeshGateway {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        selectors::check(
            &self.selectors,
            self.is_cross_mesh(),
            &FieldPath::new("selectors"),
            &mut violations,
        );
        check_tags(&self.tags, &FieldPath::new("tags"), &mut violations);
        let path = FieldPath::new("conf");
        match &self.conf {
            None => violations.add(path, "cannot be empty"),
            Some(conf) => check_conf(conf, &path.field("listeners"), &mut violations),
        }
        violations
    }
}

fn check_tags(tags: &BTreeMap<String, String>, path: &FieldPath, violations: &mut Violations) {
    let rules = selectors::TagRequirements { foreign: true, ..selectors::TagRequirements::default() };
    selectors::check_tags(tags, rules, path, violations);
}

fn check_conf(conf: &Conf, path: &FieldPath, violations: &mut Violations) {
    violations.check(conf.listeners.is_empty(), path.clone(), "cannot be empty");
    for (i, listener) in conf.listeners.iter().enumerate() {
        check_listener(listener, &path.index(i), violations);
    }
    check_ports(&conf.listeners, path, violations);
}

fn check_listener(listener: &Listener, path: &FieldPath, violations: &mut Violations) {
    if !listener.hostname.is_empty() {
        selectors::check_hostname(&listener.hostname, &path.field("hostname"), violations);
    }
    check_port(listener.port, path.field("port"), violations);
    let tls = path.field("tls");
    match (listener.protocol(), &listener.tls) {
        (Protocol::None, _) => violations.add(path.field("protocol"), "cannot be empty"),
        (Protocol::Https, _) if listener.cross_mesh => {
            violations.add(path.field("protocol"), "protocol is not supported with crossMesh");
        }
        (Protocol::Https, None) => violations.add(tls.clone(), "cannot be empty"),
        (Protocol::Https, Some(conf)) if conf.mode() == Mode::Passthrough => {
            violations.add(tls.field("mode"), "mode is not supported on HTTPS listeners");
        }
        _ => {}
    }
    match &listener.tls {
        Some(conf) if listener.cross_mesh => {
            let set = conf.mode() != Mode::None || !conf.certificates.is_empty();
            violations.check(set, tls, "must be empty with crossMesh");
        }
        Some(conf) => check_tls(conf, &tls, violations),
        None => {}
    }
    check_tags(&listener.tags, &path.field("tags"), violations);
}

fn check_tls(conf: &tls::Conf, path: &FieldPath, violations: &mut Violations) {
    let certificates = path.field("certificates");
    match (conf.mode(), conf.certificates.len()) {
        (Mode::None, _) => violations.add(path.field("mode"), "cannot be empty"),
        (Mode::Terminate, 0) => violations.add(certificates, "cannot be empty in TLS termination mode"),
        // One of each kind of key.
        (Mode::Terminate, 1..=2) | (Mode::Passthrough, _) => {}
        (Mode::Terminate, _) => violations.add(certificates, "cannot have more than 2 certificates"),
    }
}

/// Listeners that share a port become one in Envoy.
fn check_ports(listeners: &[Listener], path: &FieldPath, violations: &mut Violations) {
    let mut by_port: BTreeMap<u32, Vec<(usize, &Listener)>> = BTreeMap::new();
    for (i, listener) in listeners.iter().enumerate() {
        by_port.entry(listener.port).or_default().push((i, listener));
    }
    for sharing in by_port.values() {
        let protocols: BTreeSet<i32> = sharing.iter().map(|(_, listener)| listener.protocol).collect();
        let limits = sharing.iter().filter_map(|(i, listener)| Some((*i, limit(listener)?)));
        let limits: Vec<(usize, u32)> = limits.collect();
        for (i, listener) in sharing {
            let at = path.index(*i);
            let reason = "protocol conflicts with other listeners on this port";
            violations.check(protocols.len() > 1, at.clone(), reason);
            let alike = sharing.iter().filter(|(_, other)| other.hostname() == listener.hostname()).count();
            violations.check(alike > 1, at, "multiple listeners for hostname on this port");
        }
        let differ = limits.windows(2).any(|two| two[0].1 != two[1].1);
        for (i, _) in limits.iter().filter(|_| differ) {
            let at = path.index(*i).field("resources").field("connectionLimit");
            violations.add(at, "conflicting values for this port");
        }
    }
}

fn limit(listener: &Listener) -> Option<u32> {
    listener.resources.as_ref().map(|resources| resources.connection_limit).filter(|limit| *limit != 0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::model::transcode;

    fn wrong(gateway: &Value) -> Vec<String> {
        let violations = KIND.validate(&transcode::from_json(&KIND, gateway).unwrap()).unwrap();
        violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect()
    }

    fn of(listeners: &Value) -> Value {
        json!({ "selectors": [{ "match": { "kuma.io/service": "edge" } }], "conf": { "listeners": listeners } })
    }

    #[test]
    fn what_kuma_accepts_is_accepted() {
        let terminate = json!({ "mode": "TERMINATE", "certificates": [{ "secret": "a" }] });
        for good in [
            json!([{ "hostname": "www-1.example.com", "port": 443, "protocol": "HTTP", "tags": { "name": "https" } }]),
            json!([{ "port": 99, "protocol": "HTTP", "crossMesh": true }]),
            json!([{ "port": 443, "protocol": "TLS", "tls": terminate }, { "port": 444, "protocol": "HTTPS", "tls": terminate }]),
            json!([{ "port": 443, "protocol": "TLS", "tls": { "mode": "PASSTHROUGH" } }]),
            json!([{ "hostname": "one.com", "port": 99, "protocol": "TCP", "resources": { "connectionLimit": 2 } },
                { "hostname": "*.two.com", "port": 99, "protocol": "TCP", "resources": { "connectionLimit": 2 } }]),
        ] {
            assert_eq!(wrong(&of(&good)), [""; 0], "{good}");
        }
    }

    #[test]
    fn what_kuma_refuses_is_refused_in_its_words() {
        let at = |rest: &str| format!("conf.listeners[0].{rest}");
        let cases = [
            (json!({ "port": 0, "protocol": "HTTP" }), at("port: port must be in the range [1, 65535]")),
            (json!({ "port": 9 }), at("protocol: cannot be empty")),
            (json!({ "port": 9, "protocol": "HTTPS" }), at("tls: cannot be empty")),
            (
                json!({ "port": 9, "protocol": "HTTPS", "tls": { "options": {} } }),
                at("tls.mode: cannot be empty"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTPS", "tls": { "mode": "TERMINATE" } }),
                at("tls.certificates: cannot be empty in TLS termination mode"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTPS", "tls": { "mode": "PASSTHROUGH" } }),
                at("tls.mode: mode is not supported on HTTPS listeners"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTPS", "crossMesh": true }),
                at("protocol: protocol is not supported with crossMesh"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTP", "hostname": "*.foo.*.example.com" }),
                at("hostname: invalid wildcard domain"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTP", "hostname": "foo.example$.com" }),
                at("hostname: invalid hostname"),
            ),
            (
                json!({ "port": 9, "protocol": "HTTP", "tags": { "kuma.io/service": "a" } }),
                at("tags[\"kuma.io/service\"]: tag name must not be \"kuma.io/service\""),
            ),
        ];
        for (listener, reason) in cases {
            assert_eq!(wrong(&of(&json!([listener]))), [reason], "{listener}");
        }
        assert_eq!(
            wrong(&json!({ "selectors": [], "conf": null })),
            ["selectors: must have at least one element", "conf: cannot be empty"]
        );
    }

    #[test]
    fn listeners_that_share_a_port_fit_together() {
        let (a, b) = ("conf.listeners[0]", "conf.listeners[1]");
        let tcp = |host: &str, limit: u32| json!({ "hostname": host, "port": 9, "protocol": "TCP", "resources": { "connectionLimit": limit } });
        let http = json!({ "hostname": "b.com", "port": 9, "protocol": "HTTP" });
        let both = |reason: &str| [format!("{a}: {reason}"), format!("{b}: {reason}")];
        let conflict = "protocol conflicts with other listeners on this port";
        assert_eq!(wrong(&of(&json!([tcp("a.com", 0), http]))), both(conflict));
        let twice = "multiple listeners for hostname on this port";
        assert_eq!(wrong(&of(&json!([tcp("a.com", 0), tcp("a.com", 0)]))), both(twice));
        let limits = ".resources.connectionLimit: conflicting values for this port";
        assert_eq!(
            wrong(&of(&json!([tcp("a.com", 1), tcp("b.com", 2)]))),
            [format!("{a}{limits}"), format!("{b}{limits}")]
        );
        let mut two = of(&json!([{ "port": 9, "protocol": "HTTP", "crossMesh": true }]));
        two["selectors"] =
            json!([{ "match": { "kuma.io/service": "a" } }, { "match": { "kuma.io/service": "b" } }]);
        assert_eq!(wrong(&two), ["selectors[1]: there can be at most one selector"]);
    }
}
