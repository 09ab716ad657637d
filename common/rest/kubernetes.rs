//! The form in which a resource would be written on Kubernetes. Nothing here runs there; the form is what
//! somebody needs who moves a mesh to it (`kumactl export --format kubernetes`).

use chrono::SecondsFormat;
use serde_json::{Map, Value, json};

use crate::{
    document,
    model::{KubernetesForm, Resource, SpecError, labels, transcode},
};

/// The object of `resource`, in `namespace` when its kind has one.
///
/// # Errors
/// [`SpecError`] when the stored bytes do not decode.
pub fn render(resource: &Resource, namespace: Option<&str>) -> Result<Value, SpecError> {
    let kind = resource.kind();
    let spec = transcode::to_json(kind, &resource.spec)?;
    let metadata = metadata(resource, namespace);
    if let KubernetesForm::Secret(r#type) = kind.kubernetes {
        let data = json!({ "value": spec["data"] });
        return Ok(json!({
            "kind": "Secret", "apiVersion": "v1", "metadata": metadata, "data": data, "type": r#type,
        }));
    }
    let mut object = Map::new();
    object.insert("kind".into(), kind.name.into());
    object.insert("apiVersion".into(), "kuma.io/v1alpha1".into());
    // The newer generation says its mesh in a label.
    if kind.is_mesh_scoped() && !kind.is_json() {
        object.insert("mesh".into(), resource.mesh().into());
    }
    object.insert("metadata".into(), metadata);
    object.insert("spec".into(), spec);
    if let Some(status) = document::status(resource)? {
        object.insert("status".into(), status);
    }
    Ok(Value::Object(object))
}

/// The same of what is counted when somebody asks for it, and stored by nobody: `members` is what it says.
pub(super) fn counted(resource: &Resource, members: Value) -> Value {
    json!({
        "kind": resource.kind().name,
        "apiVersion": "kuma.io/v1alpha1",
        "metadata": metadata(resource, None),
        "spec": members,
    })
}

fn metadata(resource: &Resource, namespace: Option<&str>) -> Value {
    let kind = resource.kind();
    let mut metadata = Map::new();
    metadata.insert("name".into(), resource.name().into());
    if kind.kubernetes != KubernetesForm::Cluster {
        let own = resource.label(labels::NAMESPACE);
        metadata.insert("namespace".into(), namespace.or(own).unwrap_or(labels::SYSTEM_NAMESPACE).into());
    }
    let created = resource.created.to_rfc3339_opts(SecondsFormat::Secs, true);
    metadata.insert("creationTimestamp".into(), created.into());
    let mut shown = resource.labels.clone();
    if kind.is_mesh_scoped() && (kind.is_json() || matches!(kind.kubernetes, KubernetesForm::Secret(_))) {
        shown.or_insert(labels::MESH, resource.mesh());
    }
    if !shown.is_empty() {
        metadata.insert("labels".into(), json!(shown));
    }
    Value::Object(metadata)
}
