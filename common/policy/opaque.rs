//! Policies whose specs are kept byte for byte and checked for shape only.

use crate::model::{Kind, PolicyTraits};

/// The descriptor of `MeshAccessLog`.
pub static MESH_ACCESS_LOG: Kind = Kind::json("MeshAccessLog", "meshaccesslogs")
    .flow(61)
    .named("meshaccesslog", "mal")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true });

/// The descriptor of `MeshFaultInjection`.
pub static MESH_FAULT_INJECTION: Kind = Kind::json("MeshFaultInjection", "meshfaultinjections")
    .flow(61)
    .named("meshfaultinjection", "mfi")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: false });

/// The descriptor of `MeshHealthCheck`.
pub static MESH_HEALTH_CHECK: Kind = Kind::json("MeshHealthCheck", "meshhealthchecks")
    .flow(61)
    .named("meshhealthcheck", "mhc")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false });

/// The descriptor of `MeshLoadBalancingStrategy`.
pub static MESH_LOAD_BALANCING_STRATEGY: Kind =
    Kind::json("MeshLoadBalancingStrategy", "meshloadbalancingstrategies")
        .flow(61)
        .named("meshloadbalancingstrategy", "mlbs")
        .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false });

/// The descriptor of `MeshMetric`.
pub static MESH_METRIC: Kind =
    Kind::json("MeshMetric", "meshmetrics").flow(61).named("meshmetric", "mm").with_status().policy(
        PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false },
    );

/// The descriptor of `MeshPassthrough`.
pub static MESH_PASSTHROUGH: Kind = Kind::json("MeshPassthrough", "meshpassthroughs")
    .flow(61)
    .named("meshpassthrough", "mp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false });

/// The descriptor of `MeshProxyPatch`.
pub static MESH_PROXY_PATCH: Kind = Kind::json("MeshProxyPatch", "meshproxypatches")
    .flow(61)
    .named("meshproxypatch", "mpp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false });

/// The descriptor of `MeshRateLimit`.
pub static MESH_RATE_LIMIT: Kind = Kind::json("MeshRateLimit", "meshratelimits")
    .flow(61)
    .named("meshratelimit", "mrl")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true });

/// The descriptor of `MeshTLS`.
pub static MESH_TLS: Kind = Kind::json("MeshTLS", "meshtlses")
    .flow(61)
    .named("meshtls", "mtls")
    .policy(PolicyTraits { target_ref: true, to: false, from: true, rules: true, from_as_rules: true });

/// The descriptor of `MeshTrace`.
pub static MESH_TRACE: Kind =
    Kind::json("MeshTrace", "meshtraces").flow(61).named("meshtrace", "mtr").with_status().policy(
        PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false },
    );
