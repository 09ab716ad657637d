//! What is accepted but better changed; shown to the author of a put.

use serde_json::Value;

use crate::{
    model::{
        FieldPath, PolicyTraits, Resource,
        kinds::{mesh, zone},
        labels, sni,
    },
    policy::ineffective,
};

/// The warnings about a resource that is stored.
pub(super) fn of(resource: &Resource) -> Vec<String> {
    let kind = resource.kind();
    let mut warnings = Vec::new();
    // Their names become parts of host names.
    if [&mesh::KIND, &zone::KIND].contains(&kind) || kind.service.is_some() {
        let kind = kind.name;
        warnings.extend(labels::dns_1035_problem(resource.name()).map(|problem| {
            format!(
                "Invalid {kind} resource name: '{}'. It does not conform to the DNS format (RFC 1035). This is \
                 deprecated. Errors: {problem}",
                resource.name()
            )
        }));
    }
    if resource.display_name().contains('.') {
        let kind = kind.name;
        for name in sni::of(resource) {
            warnings.push(format!(
                "Invalid {kind} SNI (port \"{}\"): name {:?} does not conform to RFC 1123: must not contain \
                 dots. This is deprecated.",
                name.port,
                resource.display_name()
            ));
        }
    }
    warnings.extend((kind.caveat)(&resource.spec).map(str::to_owned));
    warnings.extend(ineffective::of(resource));
    // Nobody looks into specs of the older form for more than their names.
    if !kind.is_json() {
        return warnings;
    }
    let spec = serde_json::from_slice::<Value>(&resource.spec).unwrap_or_default();
    let deprecated = kind.deprecated.iter().filter(|member| !spec[**member].is_null());
    warnings.extend(deprecated.map(|member| format!("setting spec.{member} field is deprecated")));
    if let Some(traits) = kind.policy {
        of_policy(traits, &spec, &mut warnings);
    }
    warnings
}

/// The warnings about what a policy had better say in another way.
fn of_policy(traits: PolicyTraits, spec: &Value, warnings: &mut Vec<String>) {
    if traits.from && traits.rules && !items(&spec["from"]).is_empty() {
        warnings.push("'from' field is deprecated, use 'rules' instead".to_owned());
    }
    if let Some(kind) = spec["targetRef"]["kind"].as_str().filter(|kind| OLDER_TARGETS.contains(kind)) {
        warnings.push(format!("{kind} value for 'targetRef.kind' is deprecated, use Dataplane instead"));
    }
    let lists = ["to", "from", "rules"].map(|list| items(&spec[list]));
    let confs = lists.iter().flat_map(|list| list.iter()).map(|item| &item["default"]);
    let of_collector =
        |conf: &Value| items(&conf["backends"]).iter().any(|backend| is_bare(&backend["openTelemetry"]));
    if confs.chain([&spec["default"]]).any(of_collector) {
        warnings.push(
            "openTelemetry.endpoint is deprecated, use openTelemetry.backendRef with a MeshOpenTelemetryBackend \
             resource instead"
                .to_owned(),
        );
    }
    for (i, item) in items(&spec["to"]).iter().enumerate() {
        let conf = &item["default"];
        for balancer in ["ringHash", "maglev"] {
            if !items(&conf["loadBalancer"][balancer]["hashPolicies"]).is_empty() {
                let place = format!("spec.to[{i}].default");
                warnings.push(format!(
                    "'{place}.loadBalancer.{balancer}.hashPolicies' is deprecated, use '{place}.hashPolicies' instead"
                ));
            }
        }
        if !conf["healthyPanicThreshold"].is_null() {
            let text =
                "healthyPanicThreshold for 'to[].default' is deprecated, use MeshCircuitBreaker instead";
            warnings.push(text.to_owned());
        }
    }
}

/// Kinds at the top of a policy that go by tags.
const OLDER_TARGETS: [&str; 3] = ["MeshSubset", "MeshService", "MeshServiceSubset"];

/// Whether a collector is named by its address alone.
fn is_bare(collector: &Value) -> bool {
    let endpoint = collector["endpoint"].as_str().unwrap_or_default();
    !endpoint.is_empty() && collector["backendRef"].is_null()
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The warnings about members that are ignored. Kuma's clients expect none for JSON specs; ours look
/// themselves.
pub(super) fn of_ignored(members: &[FieldPath]) -> impl Iterator<Item = String> {
    members.iter().map(|path| format!("ignored {path}: there is no such field"))
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::{Value, json};

    use super::of;
    use crate::{
        model::{Resource, ResourceKey},
        registry,
    };

    fn told(kind: &str, name: &str, spec: &Value) -> Vec<String> {
        let kind = registry::by_name(kind).expect("a kind of ours");
        let resource = Resource::new(ResourceKey::new(kind, "m", name), DateTime::UNIX_EPOCH);
        of(&resource.with_spec(spec.to_string().into_bytes()))
    }

    /// What is told of a policy, each cut to its first words.
    fn policy(kind: &str, spec: &Value) -> Vec<String> {
        let first = |text: &String| text.split(" is deprecated").next().unwrap_or_default().to_owned();
        told(kind, "p", spec).iter().map(first).collect()
    }

    #[test]
    fn older_ways_to_say_it_are_warned_of() {
        let mesh = json!({ "kind": "Mesh" });
        let of = |conf: Value| json!([{ "targetRef": mesh, "default": conf }]);
        let timeout = json!({ "idleTimeout": "1s" });
        assert_eq!(policy("MeshTimeout", &json!({ "rules": [{ "default": timeout }] })), [""; 0]);
        assert_eq!(policy("MeshTimeout", &json!({ "from": of(timeout.clone()) })), ["'from' field"]);
        let subset = json!({ "kind": "MeshSubset", "tags": { "a": "b" } });
        let spec = json!({ "targetRef": subset, "to": of(timeout) });
        assert_eq!(policy("MeshTimeout", &spec), ["MeshSubset value for 'targetRef.kind'"]);
        let collector = json!({ "type": "OpenTelemetry", "openTelemetry": { "endpoint": "c:4317" } });
        let spec = json!({ "default": { "backends": [collector, collector] } });
        assert_eq!(policy("MeshMetric", &spec), ["openTelemetry.endpoint"]);
        let spec = json!({ "to": of(json!({ "backends": [collector] })) });
        assert_eq!(policy("MeshAccessLog", &spec), ["openTelemetry.endpoint"]);
        let hashed = json!({ "loadBalancer": { "type": "Maglev", "maglev": { "hashPolicies": [{ "type": "SourceIP", "connection": {} }] } } });
        let place = "'spec.to[0].default.loadBalancer.maglev.hashPolicies'";
        assert_eq!(policy("MeshLoadBalancingStrategy", &json!({ "to": of(hashed) })), [place]);
        let panic = json!({ "healthyPanicThreshold": 5 });
        assert_eq!(
            policy("MeshHealthCheck", &json!({ "to": of(panic) })),
            ["healthyPanicThreshold for 'to[].default'"]
        );
    }

    #[test]
    fn names_of_zones_become_parts_of_names_of_hosts() {
        let zone = |name: &str| told("Zone", name, &json!({}));
        assert_eq!(zone("east"), [""; 0]);
        assert!(zone("east.1")[0].starts_with("Invalid Zone resource name: 'east.1'"));
    }
}
