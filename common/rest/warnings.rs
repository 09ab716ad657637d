//! What is accepted but better changed; shown to the author of a put.

use serde_json::Value;

use crate::model::{Kind, Resource, document, labels, sni};

/// The warnings about a resource that is stored.
pub(super) fn of(resource: &Resource) -> Vec<String> {
    let kind = resource.kind().name;
    let mut warnings = Vec::new();
    if matches!(kind, "Mesh" | "MeshService" | "MeshExternalService" | "MeshMultiZoneService") {
        warnings.extend(labels::dns_1035_problem(resource.name()).map(|problem| {
            format!(
                "Invalid {kind} resource name: '{}'. It does not conform to the DNS format (RFC 1035). This is \
                 deprecated. Errors: {problem}",
                resource.name()
            )
        }));
    }
    if resource.display_name().contains('.') {
        for name in sni::of(resource) {
            warnings.push(format!(
                "Invalid {kind} SNI (port \"{}\"): name {:?} does not conform to RFC 1123: must not contain \
                 dots. This is deprecated.",
                name.port,
                resource.display_name()
            ));
        }
    }
    if kind == "MeshTrust" && has_member(resource, "origin") {
        warnings.push("setting spec.origin field is deprecated".to_owned());
    }
    warnings
}

/// The warnings about members that are ignored. Kuma's clients expect none for JSON specs; ours look
/// themselves.
pub(super) fn of_unknown(kind: &Kind, document: &Value) -> Vec<String> {
    if kind.is_json() {
        return Vec::new();
    }
    let unknown = document::unknown_members(kind, document);
    unknown.iter().map(|path| format!("ignored {path}: there is no such field")).collect()
}

fn has_member(resource: &Resource, name: &str) -> bool {
    let spec = serde_json::from_slice::<Value>(&resource.spec);
    spec.is_ok_and(|spec| spec.get(name).is_some_and(|member| !member.is_null()))
}
