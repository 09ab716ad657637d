//! The older generation of policies and the builtin gateway: stored, served and synced; their specs
//! are checked for shape only.

use crate::{
    model::{Kind, MessageSpec, PolicyTraits},
    proto::kuma::mesh::v1alpha1::ExternalService,
};

impl MessageSpec for ExternalService {}

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
