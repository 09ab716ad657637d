//! `ProxyTemplate`: changes of what Envoys get, in Envoy's own terms.

use super::check::{CALLERS, SelectorRequirements, selectors};
use crate::{
    model::{
        FieldPath, Kind, MessageSpec, Violations,
        text::{self, TextLimits},
    },
    policy::mesh_proxy_patch::{
        ClusterMatch, FilterMatch, FilterOperation, ListenerMatch, Modification, Operation,
        ResourceModification, VirtualHostMatch,
        native::{self, Native},
    },
    proto::kuma::mesh::v1alpha1::{
        ProxyTemplate, ProxyTemplateRawResource,
        proxy_template::{
            Conf, Modifications,
            modifications::{self, Type},
        },
    },
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("ProxyTemplate", "proxytemplates", "kuma.mesh.v1alpha1.ProxyTemplate", "proxytemplate")
        .typed::<ProxyTemplate>();

/// What a template starts from.
pub const DEFAULT_PROFILE: &str = "default-proxy";
const PROFILES: [&str; 4] = [DEFAULT_PROFILE, "egress-proxy", "gateway-proxy", "ingress-proxy"];

impl MessageSpec for ProxyTemplate {
    fn violations(&self) -> Violations {
        let asked = SelectorRequirements { some: false, ..CALLERS };
        let mut violations = selectors("selectors", &self.selectors, asked);
        let path = FieldPath::new("conf");
        let conf = self.conf.clone().unwrap_or_default();
        for (i, import) in conf.imports.iter().enumerate() {
            let path = path.field("imports").index(i);
            if import.is_empty() {
                violations.add(path, "cannot be empty");
            } else if !PROFILES.contains(&import.as_str()) {
                let known = PROFILES.join(",");
                violations.add(path, format!("profile not found. Available profiles: {known}"));
            }
        }
        for (i, resource) in conf.resources.iter().enumerate() {
            check_resource(&path.field("resources").index(i), resource, &mut violations);
        }
        for (i, change) in conf.modifications.iter().enumerate() {
            check_modification(&path.field("modifications").index(i), change, &mut violations);
        }
        violations
    }
}

fn check_resource(path: &FieldPath, resource: &ProxyTemplateRawResource, violations: &mut Violations) {
    let texts = [(&resource.name, "name"), (&resource.version, "version"), (&resource.resource, "resource")];
    for (text, name) in texts {
        violations.check(text.is_empty(), path.field(name), "cannot be empty");
    }
    if !resource.resource.is_empty()
        && let Err(error) = raw(&resource.resource)
    {
        violations.add(path.field("resource"), format!("native Envoy resource is not valid: {error}"));
    }
}

/// The message that a raw resource is, packed with its type in the YAML.
///
/// # Errors
/// Why it is none, in words.
pub fn raw(yaml: &str) -> Result<prost_reflect::DynamicMessage, String> {
    let mut json = text::yaml(yaml, TextLimits::INLINE).map_err(|error| error.to_string())?;
    let members = json.as_object_mut().ok_or("it is no object")?;
    let packed = members.remove("@type").ok_or("missing \"@type\" field")?;
    let descriptor = native::packed(packed.as_str().unwrap_or_default()).map_err(|e| e.to_string())?;
    native::of_json(descriptor, &json).map_err(|error| error.to_string())
}

/// What a modification asks for.
struct WrittenModification<'a> {
    path: FieldPath,
    operation: &'a str,
    value: &'a str,
    native: Native,
    /// The name it looks for; `None` without a match.
    name: Option<&'a str>,
}

fn check_modification(path: &FieldPath, change: &Modifications, violations: &mut Violations) {
    let Some(change) = &change.r#type else { return };
    let asked = |name: &str, operation, value, native, of| WrittenModification {
        path: path.field(name),
        operation,
        value,
        native,
        name: of,
    };
    match change {
        Type::Cluster(modifications::Cluster { r#match, operation, value }) => {
            let name = r#match.as_ref().map(|m| m.name.as_str());
            check_whole(&asked("cluster", operation, value, Native::Cluster, name), "match", violations);
        }
        Type::Listener(modifications::Listener { r#match, operation, value }) => {
            let name = r#match.as_ref().map(|m| m.name.as_str());
            check_whole(&asked("listener", operation, value, Native::Listener, name), "match", violations);
        }
        Type::VirtualHost(modifications::VirtualHost { r#match, operation, value }) => {
            // One that is added may say in which configuration.
            let name = r#match.as_ref().map(|m| m.name.as_str()).filter(|name| !name.is_empty());
            let asked = asked("virtualHost", operation, value, Native::VirtualHost, name);
            check_whole(&asked, "match.name", violations);
        }
        Type::NetworkFilter(modifications::NetworkFilter { r#match, operation, value }) => {
            let name = r#match.as_ref().map(|m| m.name.as_str());
            check_filter(&asked("networkFilter", operation, value, Native::NetworkFilter, name), violations);
        }
        Type::HttpFilter(modifications::HttpFilter { r#match, operation, value }) => {
            let name = r#match.as_ref().map(|m| m.name.as_str());
            check_filter(&asked("httpFilter", operation, value, Native::HttpFilter, name), violations);
        }
    }
}

fn check_whole(asked: &WrittenModification<'_>, condition: &str, violations: &mut Violations) {
    match asked.operation {
        "add" => {
            violations.check(asked.name.is_some(), asked.path.field(condition), "cannot be defined");
            check_value(asked, violations);
        }
        "patch" => check_value(asked, violations),
        "remove" => {}
        _ => {
            let reason = "invalid operation. Available operations: \"add\", \"patch\", \"remove\"";
            violations.add(asked.path.field("operation"), reason);
        }
    }
}

fn check_filter(asked: &WrittenModification<'_>, violations: &mut Violations) {
    let unnamed = asked.name.unwrap_or_default().is_empty();
    let mut named = |reason: &str| violations.check(unnamed, asked.path.field("match.name"), reason);
    match asked.operation {
        "addFirst" | "addLast" => check_value(asked, violations),
        "addBefore" => {
            named("cannot be empty. You need to pick a filter before which this one will be added");
            check_value(asked, violations);
        }
        "addAfter" => {
            named("cannot be empty. You need to pick a filter after which this one will be added");
            check_value(asked, violations);
        }
        "patch" => {
            named("cannot be empty");
            check_value(asked, violations);
        }
        "remove" => {}
        _ => {
            let reason = "invalid operation. Available operations: \"addFirst\", \"addLast\", \"addBefore\", \
                          \"addAfter\", \"patch\", \"remove\"";
            violations.add(asked.path.field("operation"), reason);
        }
    }
}

fn check_value(asked: &WrittenModification<'_>, violations: &mut Violations) {
    if let Err(error) = asked.native.parse(asked.value) {
        let reason = format!("native Envoy resource is not valid: {error}");
        violations.add(asked.path.field("value"), reason);
    }
}

/// What its modifications are in the terms of the newer policy. One whose operation nobody knows is left out.
pub fn modifications(conf: &Conf) -> Vec<Modification> {
    conf.modifications.iter().filter_map(|change| modification(change.r#type.as_ref()?)).collect()
}

fn modification(change: &Type) -> Option<Modification> {
    let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let tags = |tags: &super::Tags| Some(tags.clone()).filter(|tags| !tags.is_empty());
    let mut modification = Modification::default();
    match change {
        Type::Cluster(of) => {
            let found =
                of.r#match.as_ref().map(|m| ClusterMatch { origin: text(&m.origin), name: text(&m.name) });
            modification.cluster = Some(whole(&of.operation, &of.value, found)?);
        }
        Type::Listener(of) => {
            let found = of.r#match.as_ref().map(|m| ListenerMatch {
                origin: text(&m.origin),
                name: text(&m.name),
                tags: tags(&m.tags),
            });
            modification.listener = Some(whole(&of.operation, &of.value, found)?);
        }
        Type::VirtualHost(of) => {
            let found = of.r#match.as_ref().map(|m| VirtualHostMatch {
                origin: text(&m.origin),
                name: text(&m.name),
                route_configuration_name: text(&m.route_configuration_name),
            });
            modification.virtual_host = Some(whole(&of.operation, &of.value, found)?);
        }
        Type::NetworkFilter(of) => {
            let found = of.r#match.as_ref().map(|m| FilterMatch {
                origin: text(&m.origin),
                name: text(&m.name),
                listener_name: text(&m.listener_name),
                listener_tags: tags(&m.listener_tags),
            });
            modification.network_filter = Some(of_filter(&of.operation, &of.value, found)?);
        }
        Type::HttpFilter(of) => {
            let found = of.r#match.as_ref().map(|m| FilterMatch {
                origin: text(&m.origin),
                name: text(&m.name),
                listener_name: text(&m.listener_name),
                listener_tags: tags(&m.listener_tags),
            });
            modification.http_filter = Some(of_filter(&of.operation, &of.value, found)?);
        }
    }
    Some(modification)
}

fn whole<M>(operation: &str, value: &str, found: Option<M>) -> Option<ResourceModification<M, Operation>> {
    let operation = match operation {
        "add" => Operation::Add,
        "patch" => Operation::Patch,
        "remove" => Operation::Remove,
        _ => return None,
    };
    let value = Some(value.to_owned()).filter(|value| !value.is_empty());
    Some(ResourceModification { r#match: found, operation, value, json_patches: Vec::new() })
}

fn of_filter(
    operation: &str,
    value: &str,
    found: Option<FilterMatch>,
) -> Option<ResourceModification<FilterMatch, FilterOperation>> {
    let operation = match operation {
        "addFirst" => FilterOperation::AddFirst,
        "addLast" => FilterOperation::AddLast,
        "addBefore" => FilterOperation::AddBefore,
        "addAfter" => FilterOperation::AddAfter,
        "patch" => FilterOperation::Patch,
        "remove" => FilterOperation::Remove,
        _ => return None,
    };
    let value = Some(value.to_owned()).filter(|value| !value.is_empty());
    Some(ResourceModification { r#match: found, operation, value, json_patches: Vec::new() })
}
