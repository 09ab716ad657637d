//! Policies whose specs are kept byte for byte and checked for shape only.

mod shapes;

use serde_json::{Map, Value};

use super::Duration;
use crate::model::{Kind, PolicyTraits};

/// The descriptor of `MeshAccessLog`.
pub static MESH_ACCESS_LOG: Kind = Kind::json("MeshAccessLog", "meshaccesslogs")
    .flow(61)
    .named("meshaccesslog", "mal")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .shaped(&shapes::MESH_ACCESS_LOG);

/// The descriptor of `MeshFaultInjection`.
pub static MESH_FAULT_INJECTION: Kind = Kind::json("MeshFaultInjection", "meshfaultinjections")
    .flow(61)
    .named("meshfaultinjection", "mfi")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: false })
    .shaped(&shapes::MESH_FAULT_INJECTION);

/// The descriptor of `MeshHealthCheck`.
pub static MESH_HEALTH_CHECK: Kind = Kind::json("MeshHealthCheck", "meshhealthchecks")
    .flow(61)
    .named("meshhealthcheck", "mhc")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
    .shaped(&shapes::MESH_HEALTH_CHECK);

/// The descriptor of `MeshLoadBalancingStrategy`.
pub static MESH_LOAD_BALANCING_STRATEGY: Kind =
    Kind::json("MeshLoadBalancingStrategy", "meshloadbalancingstrategies")
        .flow(61)
        .named("meshloadbalancingstrategy", "mlbs")
        .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false })
        .shaped(&shapes::MESH_LOAD_BALANCING_STRATEGY);

/// The descriptor of `MeshMetric`.
pub static MESH_METRIC: Kind = Kind::json("MeshMetric", "meshmetrics")
    .flow(61)
    .named("meshmetric", "mm")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .shaped(&shapes::MESH_METRIC);

/// The descriptor of `MeshPassthrough`.
pub static MESH_PASSTHROUGH: Kind = Kind::json("MeshPassthrough", "meshpassthroughs")
    .flow(61)
    .named("meshpassthrough", "mp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .shaped(&shapes::MESH_PASSTHROUGH);

/// The descriptor of `MeshProxyPatch`.
pub static MESH_PROXY_PATCH: Kind = Kind::json("MeshProxyPatch", "meshproxypatches")
    .flow(61)
    .named("meshproxypatch", "mpp")
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .shaped(&shapes::MESH_PROXY_PATCH);

/// The descriptor of `MeshRateLimit`.
pub static MESH_RATE_LIMIT: Kind = Kind::json("MeshRateLimit", "meshratelimits")
    .flow(61)
    .named("meshratelimit", "mrl")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true })
    .shaped(&shapes::MESH_RATE_LIMIT);

/// The descriptor of `MeshTLS`.
pub static MESH_TLS: Kind = Kind::json("MeshTLS", "meshtlses")
    .flow(61)
    .named("meshtls", "mtls")
    .policy(PolicyTraits { target_ref: true, to: false, from: true, rules: true, from_as_rules: true })
    .shaped(&shapes::MESH_TLS);

/// The descriptor of `MeshTrace`.
pub static MESH_TRACE: Kind = Kind::json("MeshTrace", "meshtraces")
    .flow(61)
    .named("meshtrace", "mtr")
    .with_status()
    .policy(PolicyTraits { target_ref: true, to: false, from: false, rules: false, from_as_rules: false })
    .shaped(&shapes::MESH_TRACE);

/// Members of these kinds that hold durations, wherever they stand.
const DURATIONS: &[(&str, &[&str])] = &[
    ("MeshFaultInjection", &["value"]),
    ("MeshHealthCheck", &["interval", "timeout", "initialJitter", "intervalJitter", "noTrafficInterval"]),
    ("MeshLoadBalancingStrategy", &["ttl"]),
    ("MeshMetric", &["refreshInterval"]),
    ("MeshRateLimit", &["interval"]),
];

/// The kind, the name of the member that holds an object or a list of them, and the defaults of each.
type ObjectDefaults = (&'static str, &'static str, &'static [(&'static str, Default)]);

const DEFAULTS: &[ObjectDefaults] = &[
    (
        "MeshTrace",
        "zipkin",
        &[
            ("apiVersion", Default::Text("httpJson")),
            ("sharedSpanContext", Default::Flag(true)),
            ("traceId128bit", Default::Flag(false)),
        ],
    ),
    ("MeshTrace", "datadog", &[("splitService", Default::Flag(false))]),
    ("MeshMetric", "prometheus", &[("path", Default::Text("/metrics")), ("port", Default::Number(5670))]),
    ("MeshMetric", "tls", &[("mode", Default::Text("Disabled"))]),
    ("MeshMetric", "sidecar", &[("includeUnused", Default::Flag(false))]),
    ("MeshMetric", "applications", &[("path", Default::Text("/metrics"))]),
    ("MeshAccessLog", "format", &[("omitEmptyValues", Default::Flag(false))]),
    ("MeshTLS", "tlsVersion", &[("min", Default::Text("TLSAuto")), ("max", Default::Text("TLSAuto"))]),
];

#[derive(Clone, Copy)]
enum Default {
    Flag(bool),
    Number(u32),
    Text(&'static str),
}

impl From<Default> for Value {
    fn from(default: Default) -> Self {
        match default {
            Default::Flag(value) => value.into(),
            Default::Number(value) => value.into(),
            Default::Text(value) => value.into(),
        }
    }
}

/// Brings a spec into the form in which it is merged: defaults filled in, durations canonical, no nulls.
/// Specs of other kinds are left alone.
pub(super) fn fill(kind: &Kind, spec: &mut Value) {
    let durations = DURATIONS.iter().find(|(name, _)| *name == kind.name).map_or(&[][..], |(_, m)| m);
    match spec {
        Value::Object(object) => fill_object(kind, durations, object),
        Value::Array(items) => items.iter_mut().for_each(|item| fill(kind, item)),
        _ => {}
    }
}

fn fill_object(kind: &Kind, durations: &[&str], object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for (name, value) in object.iter_mut() {
        let text = value.as_str().filter(|_| durations.contains(&name.as_str()));
        if let Some(duration) = text.and_then(|t| t.parse::<Duration>().ok()) {
            *value = duration.to_string().into();
        }
        let defaults = DEFAULTS.iter().filter(|(k, n, _)| *k == kind.name && n == name);
        let defaults: Vec<_> = defaults.flat_map(|(_, _, members)| *members).collect();
        for inner in objects(value) {
            for (member, default) in &defaults {
                inner.entry(*member).or_insert_with(|| (*default).into());
            }
        }
        fill(kind, value);
    }
}

/// The object a member holds, or those in its list.
fn objects(value: &mut Value) -> Vec<&mut Map<String, Value>> {
    match value {
        Value::Object(object) => vec![object],
        Value::Array(items) => items.iter_mut().filter_map(Value::as_object_mut).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_merged_has_defaults_and_durations_in_one_form() {
        let check = |kind, mut spec: Value, expected: Value| {
            fill(kind, &mut spec);
            assert_eq!(spec, expected, "{}", kind.name);
        };
        check(
            &MESH_ACCESS_LOG,
            json!({"backends": [{"type": "File", "file": {"path": "/a", "format": {"type": "Plain"}}}, {"file": {"path": "/b"}}]}),
            json!({"backends": [
                {"type": "File", "file": {"path": "/a", "format": {"type": "Plain", "omitEmptyValues": false}}},
                {"file": {"path": "/b"}},
            ]}),
        );
        check(
            &MESH_METRIC,
            json!({"applications": [{"port": 1}, {"path": "/x"}], "sidecar": {"profiles": null}, "backends": [{"prometheus": {"tls": {}}}]}),
            json!({
                "applications": [{"port": 1, "path": "/metrics"}, {"path": "/x"}],
                "sidecar": {"includeUnused": false},
                "backends": [{"prometheus": {"path": "/metrics", "port": 5670, "tls": {"mode": "Disabled"}}}],
            }),
        );
        check(
            &MESH_TLS,
            json!({"tlsVersion": {"min": "TLS12"}}),
            json!({"tlsVersion": {"min": "TLS12", "max": "TLSAuto"}}),
        );
        check(
            &MESH_HEALTH_CHECK,
            json!({"interval": "60s", "timeout": "1500ms", "tcp": {"send": "60s"}}),
            json!({"interval": "1m0s", "timeout": "1.5s", "tcp": {"send": "60s"}}),
        );
        check(&MESH_RATE_LIMIT, json!({"interval": "soon"}), json!({"interval": "soon"}));
    }
}
