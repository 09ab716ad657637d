//! The older generation of policies and the builtin gateway: stored, served and synced; their specs
//! are checked for shape only.

use super::{
    address::{check_host, check_port},
    tags,
};
use crate::{
    model::{FieldPath, Kind, MessageSpec, PolicyTraits, Violations},
    proto::kuma::mesh::v1alpha1::ExternalService,
};

impl MessageSpec for ExternalService {
    fn violations(&self) -> Violations {
        let mut violations = Violations::none();
        let address = self.networking.as_ref().map(|n| n.address.as_str()).unwrap_or_default();
        let path = FieldPath::new("networking").field("address");
        match address.rsplit_once(':').map(|(host, port)| (host, port.parse::<u32>())) {
            Some((host, Ok(port))) => {
                check_host(host.trim_start_matches('[').trim_end_matches(']'), path.clone(), &mut violations);
                check_port(port, path, &mut violations);
            }
            _ => violations.add(path, "has to be in format of HOST:PORT"),
        }
        let path = FieldPath::new("tags");
        tags::check_service(&self.tags, &path, &mut violations);
        tags::check(&self.tags, &path, &mut violations);
        violations
    }
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
        .typed::<ExternalService>();

/// Listeners of a builtin gateway.
pub static MESH_GATEWAY: Kind = Kind::proto("MeshGateway", "meshgateways", "kuma.mesh.v1alpha1.MeshGateway")
    .flow(29)
    .named("meshgateway", "mgw");

/// Routes of a builtin gateway.
pub static MESH_GATEWAY_ROUTE: Kind = policy(
    "MeshGatewayRoute",
    "meshgatewayroutes",
    "kuma.mesh.v1alpha1.MeshGatewayRoute",
    "meshgatewayroute",
);

/// The older policies.
pub static POLICIES: [Kind; 12] = [
    policy("CircuitBreaker", "circuit-breakers", "kuma.mesh.v1alpha1.CircuitBreaker", "circuit-breaker"),
    policy("FaultInjection", "fault-injections", "kuma.mesh.v1alpha1.FaultInjection", "fault-injection"),
    policy("HealthCheck", "health-checks", "kuma.mesh.v1alpha1.HealthCheck", "healthcheck"),
    policy("ProxyTemplate", "proxytemplates", "kuma.mesh.v1alpha1.ProxyTemplate", "proxytemplate"),
    policy("RateLimit", "rate-limits", "kuma.mesh.v1alpha1.RateLimit", "rate-limit"),
    policy("Retry", "retries", "kuma.mesh.v1alpha1.Retry", "retry"),
    policy("Timeout", "timeouts", "kuma.mesh.v1alpha1.Timeout", "timeout"),
    policy("TrafficLog", "traffic-logs", "kuma.mesh.v1alpha1.TrafficLog", "traffic-log"),
    policy(
        "TrafficPermission",
        "traffic-permissions",
        "kuma.mesh.v1alpha1.TrafficPermission",
        "traffic-permission",
    ),
    policy("TrafficRoute", "traffic-routes", "kuma.mesh.v1alpha1.TrafficRoute", "traffic-route"),
    policy("TrafficTrace", "traffic-traces", "kuma.mesh.v1alpha1.TrafficTrace", "traffic-trace"),
    policy("VirtualOutbound", "virtual-outbounds", "kuma.mesh.v1alpha1.VirtualOutbound", "virtual-outbound"),
];

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
        for good in ["example.com:443", "10.0.0.1:80", "[::1]:80"] {
            assert_eq!(wrong(&of(good, named.clone())), [""; 0], "{good}");
        }
        for bad in ["", "example.com", "example.com:0", ":80", "a b:80"] {
            assert_eq!(wrong(&of(bad, named.clone())), ["networking.address"], "{bad}");
        }
        assert_eq!(wrong(&of("a:1", json!({}))), ["tags"]);
        assert_eq!(wrong(&of("a:1", json!({ "kuma.io/service": "a", "x": "" }))), ["tags[\"x\"]"]);
    }
}
