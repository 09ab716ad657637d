//! What makes an `EnvoyConfig` valid.

use std::collections::BTreeSet;

use prost::Message;
use serde_json::Value;

use super::{EnvoyConfig, NodeSelector, RawResources};
use crate::{
    envoy_rules::{self, BrokenRule, ListenAddress},
    model::{FieldPath, Violations},
    xds::{canonical, envoy},
};

/// The member that may say of which type a resource is.
pub(super) const TYPE: &str = "@type";
/// Longest name of a resource in bytes: clients may ask for no longer one.
const LONGEST_NAME: usize = 1024;
/// Longest version in bytes.
const LONGEST_VERSION: usize = 128;
/// Parameters of one resource, and bytes of each.
const PARAMETERS: usize = 16;
const LONGEST_PARAMETER: usize = 256;
/// Selectors of one resource, each of which is tried on every node.
const SELECTORS: usize = 100;

pub(super) fn check(spec: &EnvoyConfig) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    let at = path.field("nodes");
    violations.check(
        spec.nodes.is_empty(),
        at.clone(),
        "must select something; {id: \"*\"} selects every node",
    );
    violations.check(spec.nodes.len() > SELECTORS, at.clone(), format!("must not be more than {SELECTORS}"));
    for (i, selector) in spec.nodes.iter().enumerate() {
        check_selector(at.index(i), selector, &mut violations);
    }
    if let Some(version) = &spec.version {
        let at = path.field("version");
        violations.check(version.is_empty(), at.clone(), "must not be empty; left out, there is a digest");
        let long = version.len() > LONGEST_VERSION;
        violations.check(long, at.clone(), format!("must not be longer than {LONGEST_VERSION} bytes"));
        violations.check(version.contains(char::is_control), at, "must be one line of text");
    }
    check_parameters(spec, &path, &mut violations);
    violations.check(
        spec.on_demand && spec.virtual_hosts.is_empty(),
        path.field("onDemand"),
        "is about virtualHosts, of which there are none",
    );
    for resources in spec.by_type() {
        check_resources(&path.field(resources.member), &resources, &mut violations);
    }
    violations
}

fn check_parameters(spec: &EnvoyConfig, path: &FieldPath, violations: &mut Violations) {
    let at = path.field("parameters");
    let many = spec.parameters.len() > PARAMETERS;
    violations.check(many, at.clone(), format!("must not be more than {PARAMETERS}"));
    for (key, value) in &spec.parameters {
        let at = at.field(key);
        violations.check(key.is_empty(), at.clone(), "must have a name");
        let long = key.len() + value.len() > LONGEST_PARAMETER;
        violations.check(long, at.clone(), format!("must not be longer than {LONGEST_PARAMETER} bytes"));
        violations.check(
            [key, value].iter().any(|text| text.contains(char::is_control)),
            at,
            "must be one line of text",
        );
    }
    violations.check(
        !spec.parameters.is_empty() && !spec.virtual_hosts.is_empty(),
        path.field("virtualHosts"),
        "must have an EnvoyConfig without parameters: clients ask for them by host",
    );
}

fn check_selector(path: FieldPath, selector: &NodeSelector, violations: &mut Violations) {
    let NodeSelector { id, cluster, metadata } = selector;
    let says_nothing = id.is_none() && cluster.is_none() && metadata.as_ref().is_none_or(|m| m.is_empty());
    violations.check(says_nothing, path, "must name id, cluster or metadata; id: \"*\" selects every node");
}

fn check_resources(path: &FieldPath, of_type: &RawResources<'_>, violations: &mut Violations) {
    let (mut names, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for (i, resource) in of_type.resources.iter().enumerate() {
        let at = path.index(i);
        if let Some(given) = resource.get(TYPE).filter(|given| *given != of_type.type_url) {
            let given = given.as_str().map_or_else(|| given.to_string(), str::to_owned);
            violations
                .add(at.field(TYPE), format!("must be {:?} here, or left out: {given:?}", of_type.type_url));
            continue;
        }
        let (name, message) = match of_type.message(resource) {
            Ok(read) => read,
            Err(error) => {
                violations.add(at, format!("native Envoy resource is not valid: {error}"));
                continue;
            }
        };
        // What is wrong with a name is told below.
        let named = FieldPath::new(of_type.named_by);
        let encoded = message.encode_to_vec();
        if of_type.type_url == envoy::LISTENER {
            for ListenAddress { datagrams, ip, port } in envoy_rules::listens_at(&encoded) {
                let again = !taken.insert((datagrams, ip, port));
                violations.check(
                    again,
                    at.field("address"),
                    format!("must be unique in listeners: {ip} {port}"),
                );
            }
        }
        let broken = envoy_rules::broken(of_type.type_url, &encoded);
        for BrokenRule { field, reason } in broken.into_iter().filter(|broken| broken.field != named) {
            let at = if field.as_str().is_empty() { at.clone() } else { at.field(field.as_str()) };
            violations.add(at, format!("Envoy would refuse it: {reason}"));
        }
        let field = at.field(member_as_written(of_type.named_by, resource));
        violations.check(name.is_empty(), field.clone(), "must not be empty");
        let long = name.len() > LONGEST_NAME;
        violations.check(long, field.clone(), format!("must not be longer than {LONGEST_NAME} bytes"));
        violations.check(name.contains(char::is_control), field.clone(), "must be one line of text");
        if of_type.type_url == envoy::VIRTUAL_HOST {
            let route = name.rsplit_once('/').map_or("", |(route, _)| route);
            let at = field.clone();
            violations.check(route.is_empty(), at, "must be <name of the route configuration>/<name>");
        }
        let one = canonical(&name).into_owned();
        let again = !name.is_empty() && names.contains(&one);
        violations.check(
            again,
            field,
            format!("must be unique in {}: {name:?} is there twice", of_type.member),
        );
        names.insert(one);
    }
}

/// Both forms of a name are read; errors name the one that was written.
fn member_as_written(name: &'static str, resource: &Value) -> &'static str {
    if name == "cluster_name" && resource.get("clusterName").is_some() { "clusterName" } else { name }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::envoy_config::KIND;

    fn told(spec: &Value) -> Vec<String> {
        match KIND.settle_authored(spec.to_string().as_bytes()) {
            Ok((violations, _)) => violations.iter().map(|v| format!("{}: {}", v.field, v.reason)).collect(),
            Err(error) => vec![error.to_string()],
        }
    }

    fn check(spec: Value, expected: &[&str]) {
        let told = told(&spec);
        assert_eq!(told.len(), expected.len(), "{told:?}");
        for (told, expected) in told.iter().zip(expected) {
            assert!(told.contains(expected), "{told}\nlacks\n{expected}");
        }
    }

    fn having(member: &str, resources: Value) -> Value {
        json!({"nodes": [{"id": "*"}], member: resources})
    }

    #[test]
    fn resources_are_envoys_in_their_json_form() {
        let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
        check(
            having(
                "clusters",
                json!([{"name": "a", "connect_timeout": "1s"}, {"@type": cluster, "name": "b"}]),
            ),
            &[],
        );
        check(having("endpoints", json!([{"clusterName": "xdstp://x/y?a=b"}, {"cluster_name": "b"}])), &[]);
        check(having("runtimes", json!([{"name": "r", "layer": {"health_check.min_interval": 5}}])), &[]);
        check(
            having("clusters", json!([{"name": "a", "color": "red"}])),
            &["spec.clusters[0]: native Envoy resource is not valid: unrecognized field name 'color'"],
        );
        check(
            having("clusters", json!([{"name": "a"}, 7])),
            &["spec.clusters[1]: native Envoy resource is not valid"],
        );
        check(
            having("listeners", json!([{"@type": cluster, "name": "a"}])),
            &[
                "spec.listeners[0].@type: must be \"type.googleapis.com/envoy.config.listener.v3.Listener\" here",
            ],
        );
        let filter = json!({"name": "f", "typed_config": {"@type": "type.googleapis.com/no.such.Message"}});
        check(
            having("listeners", json!([{"name": "a", "filter_chains": [{"filters": [filter]}]}])),
            &["spec.listeners[0]: native Envoy resource is not valid"],
        );
    }

    #[test]
    fn names_are_there_once_and_not_too_long() {
        check(
            having("clusters", json!([{"name": "a"}, {}, {"name": "a"}])),
            &[
                "spec.clusters[1].name: must not be empty",
                "spec.clusters[2].name: must be unique in clusters: \"a\"",
            ],
        );
        check(
            having("endpoints", json!([{"clusterName": "x".repeat(1025)}])),
            &["spec.endpoints[0].clusterName: must not be longer than 1024 bytes"],
        );
        let equal = json!([{"name": "xdstp://x/T/a?k=1&l=2"}, {"name": "xdstp://x/T/a?l=2&k=1"}]);
        check(having("clusters", equal), &["spec.clusters[1].name: must be unique in clusters"]);
        // Of another type it is another name.
        check(json!({"nodes": [{"id": "*"}], "clusters": [{"name": "a"}], "routes": [{"name": "a"}]}), &[]);
    }

    #[test]
    fn a_version_is_a_line_of_text() {
        let version = |version: &str| json!({"nodes": [{"id": "*"}], "version": version});
        check(version("2"), &[]);
        check(version(""), &["spec.version: must not be empty"]);
        check(version(&"é".repeat(65)), &["spec.version: must not be longer than 128 bytes"]);
        check(version("a\nb"), &["spec.version: must be one line of text"]);
    }

    #[test]
    fn parameters_are_few_lines_of_text() {
        let of = |parameters: Value| json!({"nodes": [{"id": "*"}], "parameters": parameters, "clusters": [{"name": "a"}]});
        check(of(json!({"env": "prod", "ring": ""})), &[]);
        check(of(json!({"": "x"})), &["must have a name"]);
        check(of(json!({"env": "a\nb"})), &["spec.parameters.env: must be one line of text"]);
        check(
            of(json!({"env": "x".repeat(300)})),
            &["spec.parameters.env: must not be longer than 256 bytes"],
        );
        let many: serde_json::Map<String, Value> = (0..17).map(|n| (format!("p{n}"), json!("v"))).collect();
        check(of(Value::Object(many)), &["spec.parameters: must not be more than 16"]);
        let host = json!([{"name": "r/a", "domains": ["*"]}]);
        check(
            json!({"nodes": [{"id": "*"}], "parameters": {"env": "prod"}, "virtualHosts": host}),
            &["spec.virtualHosts: must have an EnvoyConfig without parameters"],
        );
        check(having("clusters", json!([{"name": "a\u{1}b"}])), &["spec.clusters[0].name: must be one line"]);
    }

    #[test]
    fn virtual_hosts_say_where_they_belong() {
        let host = |name: &&str| json!({"name": name, "domains": ["*"]});
        let hosts = |names: &[&str]| -> Value { names.iter().map(host).collect() };
        check(having("virtualHosts", hosts(&["r/a", "x/y/b"])), &[]);
        check(
            having("virtualHosts", hosts(&["a", "/b"])),
            &["spec.virtualHosts[0].name: must be <name of", "spec.virtualHosts[1].name: must be <name of"],
        );
        check(json!({"nodes": [{"id": "*"}], "onDemand": true, "virtualHosts": hosts(&["r/a"])}), &[]);
        check(
            having("virtualHosts", json!([{"name": "r/a"}])),
            &["spec.virtualHosts[0].domains: Envoy would refuse it: must have at least 1 of them"],
        );
        check(
            json!({"nodes": [{"id": "*"}], "onDemand": true, "clusters": [{"name": "a"}]}),
            &["spec.onDemand: is about virtualHosts"],
        );
    }

    #[test]
    fn who_is_selected_is_said() {
        check(json!({}), &["spec.nodes: in body is required"]);
        check(json!({"nodes": []}), &["spec.nodes: must select something"]);
        check(
            json!({"nodes": [{"cluster": "edge"}, {}, {"metadata": {}}]}),
            &["spec.nodes[1]: must name id", "spec.nodes[2]: must name id"],
        );
        check(json!({"nodes": vec![json!({"id": "a"}); 101]}), &["spec.nodes: must not be more than 100"]);
        check(
            json!({"nodes": [{"name": "a"}]}),
            &["spec.nodes[0].name: unknown field `name`, expected one of `id`, `cluster`, `metadata`"],
        );
        check(having("clutsers", json!([])), &["spec.clutsers: unknown field `clutsers`"]);
    }
}
