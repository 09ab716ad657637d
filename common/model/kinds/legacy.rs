//! Older kinds beside the [older policies](crate::policy::legacy): stored, served and synced; where nothing else is
//! said, their specs are checked for shape only.

use super::{
    address::{check_port, is_host_or_ip},
    tags,
};
use crate::{
    model::{FieldPath, FieldStep, Kind, MessageSpec, PolicyTraits, Spec, Violations},
    proto::kuma::{
        mesh::v1alpha1::{ExternalService, VirtualOutbound, external_service::Networking},
        system::v1alpha1::{DataSource, data_source},
    },
};

impl MessageSpec for ExternalService {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let path = FieldPath::new("networking");
        match &self.networking {
            None => violations.add(path, "should have networking"),
            Some(networking) => check_networking(networking, &path, &mut violations),
        }
        let path = FieldPath::new("tags");
        tags::check_service(&self.tags, &FieldStep::At(&path), &mut violations);
        tags::check(&self.tags, &FieldStep::At(&path), &mut violations);
        violations
    }
}

fn check_networking(networking: &Networking, path: &FieldPath, violations: &mut Violations) {
    check_address(&networking.address, path.field("address"), violations);
    let Some(tls) = &networking.tls else { return };
    let path = path.field("tls");
    let unnamed = tls.server_name.as_ref().is_some_and(|name| name.value.is_empty());
    violations.check(unnamed, path.field("serverName"), "cannot be empty");
    let sources =
        [("caCert", &tls.ca_cert), ("clientCert", &tls.client_cert), ("clientKey", &tls.client_key)];
    for (name, source) in sources {
        let empty = source.as_ref().is_some_and(is_empty);
        violations.check(empty, path.field(name), "data source cannot be empty");
    }
    // Envoy needs both or none.
    match (&tls.client_cert, &tls.client_key) {
        (Some(_), None) => {
            violations.add(path.field("clientKey"), "must be defined when clientCert is defined");
        }
        (None, Some(_)) => {
            violations.add(path.field("clientCert"), "must be defined when clientKey is defined");
        }
        _ => {}
    }
}

/// One that cannot be taken apart has nothing right about it, and is told so member by member.
fn is_empty(source: &DataSource) -> bool {
    match &source.r#type {
        None => true,
        Some(data_source::Type::Inline(bytes)) => bytes.value.is_empty(),
        Some(
            data_source::Type::Secret(text)
            | data_source::Type::File(text)
            | data_source::Type::InlineString(text),
        ) => text.is_empty(),
    }
}

fn check_address(address: &str, path: FieldPath, violations: &mut Violations) {
    if address.is_empty() {
        return violations.add(path, "address can't be empty");
    }
    let parts = host_and_port(address);
    violations.check(parts.is_none(), path.clone(), "unable to parse address");
    let (host, port) = parts.unwrap_or_default();
    violations.check(
        !is_host_or_ip(host),
        path.clone(),
        "address has to be a valid IP address or a domain name",
    );
    let number = port.parse::<u32>();
    violations.check(number.is_err(), path.clone(), "unable to parse port in address");
    check_port(number.unwrap_or_default(), path, violations);
}

/// Host and port of an address in which a host with colons stands in brackets: of `fd00::1:80` nobody knows where the
/// port begins.
fn host_and_port(address: &str) -> Option<(&str, &str)> {
    let (host, port) = address.rsplit_once(':')?;
    let (bare, odd): (_, &[char]) = match host.strip_prefix('[') {
        Some(rest) => (rest.strip_suffix(']')?, &['[', ']']),
        None => (host, &[':', '[', ']']),
    };
    (!bare.contains(odd) && !port.contains(['[', ']'])).then_some((bare, port))
}

/// Kuma's users know that such a certificate is not looked at, and may not know it of theirs.
fn unverified(spec: &[u8]) -> Option<&'static str> {
    let tls = <ExternalService as Spec>::decode(spec).ok()?.networking?.tls?;
    (tls.enabled && tls.ca_cert.is_none())
        .then_some("networking.tls has no caCert, so anybody may answer in the place of this service")
}

const fn policy(name: &'static str, path: &'static str, message: &'static str, arg: &'static str) -> Kind {
    let traits =
        PolicyTraits { target_ref: false, to: false, from: false, rules: false, from_as_rules: false };
    Kind::proto(name, path, message).flow(17).named(arg, "").policy(traits)
}

/// A service outside the mesh.
pub static EXTERNAL_SERVICE: Kind =
    Kind::proto("ExternalService", "external-services", "kuma.mesh.v1alpha1.ExternalService")
        .flow(17)
        .named("external-service", "")
        .tagged(|spec| Ok(vec![ExternalService::decode(spec)?.tags]))
        .caveat(unverified)
        .typed::<ExternalService>();

/// Older policies that are no policies of proxies.
pub static POLICIES: [Kind; 1] = [policy(
    "VirtualOutbound",
    "virtual-outbounds",
    "kuma.mesh.v1alpha1.VirtualOutbound",
    "virtual-outbound",
)
.typed::<VirtualOutbound>()];

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::{Value, json};

    use super::*;
    use crate::model::transcode;

    #[test]
    fn an_external_service_has_an_address_and_a_name() {
        let wrong = |json: &Value| -> Vec<String> {
            let violations =
                EXTERNAL_SERVICE.validate(&transcode::from_json(&EXTERNAL_SERVICE, json).unwrap());
            violations.unwrap().iter().map(|v| v.field.to_string()).collect()
        };
        let of = |address: &str, tags: Value| json!({ "networking": { "address": address }, "tags": tags });
        let named = json!({ "kuma.io/service": "a", "kuma.io/protocol": "http" });
        for good in ["example.com:443", "10.0.0.1:80", "[::1]:80", "[fd00:1234::1]:8080"] {
            assert_eq!(wrong(&of(good, named.clone())), [""; 0], "{good}");
        }
        let colons = ["fd00:1234::1:8080", "[::1:80", "::1]:80", "[[::1]]:80", "[::1]"];
        for bad in ["", "example.com", "example.com:0", ":80", "a b:80"].into_iter().chain(colons) {
            let wrong = wrong(&of(bad, named.clone()));
            assert!(
                !wrong.is_empty() && wrong.iter().all(|field| field == "networking.address"),
                "{bad}: {wrong:?}"
            );
        }
        let tls = |tls: Value| json!({ "networking": { "address": "a:1", "tls": tls }, "tags": named });
        let half = json!({ "serverName": "", "clientCert": { "secret": "c" } });
        assert_eq!(wrong(&tls(half)), ["networking.tls.serverName", "networking.tls.clientKey"]);
        let empty = json!({ "caCert": { "inline": "" }, "clientCert": {}, "clientKey": { "secret": "" } });
        let fields = ["networking.tls.caCert", "networking.tls.clientCert", "networking.tls.clientKey"];
        assert_eq!(wrong(&tls(empty)), fields);
        let told =
            |spec: &Value| (EXTERNAL_SERVICE.caveat)(&transcode::from_json(&EXTERNAL_SERVICE, spec).unwrap());
        assert!(told(&tls(json!({ "enabled": true }))).is_some());
        assert_eq!(told(&tls(json!({ "enabled": true, "caCert": { "secret": "c" } }))), None);
        assert_eq!(wrong(&of("a:1", json!({}))), ["tags"]);
        assert_eq!(wrong(&of("a:1", json!({ "kuma.io/service": "a", "x": "" }))), ["tags[\"x\"]"]);
    }
}
