//! The document form of a resource: what REST serves and what files hold.
//!
//! Protobuf kinds show their spec inline beside the meta; JSON kinds show it below `spec`, with `status`
//! where the kind has one.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{Kind, Resource, ResourceKey, SpecError, kri::Kri, registry, sni, transcode};

/// A document split into its parts; nothing is validated beyond the shape.
#[derive(Clone, Debug)]
pub struct Document {
    /// From `type`.
    pub kind: &'static Kind,
    /// From `mesh`; `None` when absent.
    pub mesh: Option<String>,
    /// From `name`.
    pub name: String,
    /// From `labels`.
    pub labels: BTreeMap<String, String>,
    /// The encoded spec, not normalised.
    pub spec: Vec<u8>,
    /// From `status`, for kinds that have one.
    pub status: Option<Value>,
    /// Says which inline spec member is no field and ignored.
    pub unknown: Option<String>,
}

/// Why something is not a document.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// A meta member is missing or of the wrong JSON type.
    #[error("{field}: {reason}")]
    Meta {
        /// Which member.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// `type` names no kind.
    #[error("unknown resource type {0:?}; `get --help` lists the types")]
    UnknownType(String),
    /// The spec does not fit the kind.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

/// Members of a document that are not part of an inline spec.
const META: [&str; 8] =
    ["type", "mesh", "name", "creationTime", "modificationTime", "labels", "kri", "status"];

impl Document {
    /// Splits a document by its own `type`.
    ///
    /// # Errors
    /// [`DocumentError`] naming the member that is wrong.
    pub fn parse(json: &Value) -> Result<Self, DocumentError> {
        let name = text(json, "type")?
            .ok_or_else(|| DocumentError::Meta { field: "type", reason: "must be set".to_owned() })?;
        let kind = registry::by_name(name).ok_or_else(|| DocumentError::UnknownType(name.to_owned()))?;
        Self::parse_as(kind, json)
    }

    /// Splits a document known to be of `kind`.
    ///
    /// # Errors
    /// [`DocumentError`] naming the member that is wrong.
    pub fn parse_as(kind: &'static Kind, json: &Value) -> Result<Self, DocumentError> {
        let Some(object) = json.as_object() else {
            return Err(DocumentError::Meta {
                field: "type",
                reason: "the document is not an object".to_owned(),
            });
        };
        let labels = match object.get("labels") {
            None | Some(Value::Null) => BTreeMap::new(),
            Some(labels) => serde_json::from_value(labels.clone())
                .map_err(|e| DocumentError::Meta { field: "labels", reason: e.to_string() })?,
        };
        let mut unknown = None;
        let spec = if kind.is_json() {
            transcode::from_json(kind, object.get("spec").unwrap_or(&transcode::empty_object()))?
        } else {
            let inline = object.iter().filter(|(k, _)| !META.contains(&k.as_str()));
            let inline: Map<String, Value> = inline.map(|(k, v)| (k.clone(), v.clone())).collect();
            let inline = Value::Object(inline);
            unknown = transcode::unknown_member(kind, &inline);
            transcode::from_json(kind, &inline)?
        };
        Ok(Self {
            kind,
            mesh: text(json, "mesh")?.map(str::to_owned),
            name: text(json, "name")?.unwrap_or_default().to_owned(),
            labels,
            spec,
            status: object.get("status").filter(|s| kind.has_status() && !s.is_null()).cloned(),
            unknown,
        })
    }

    /// The resource this document describes, with its status, as of `now`. A missing mesh is `default`.
    pub fn into_resource(self, now: DateTime<Utc>) -> Resource {
        let mesh = self.mesh.as_deref().filter(|m| !m.is_empty()).unwrap_or("default");
        let mut resource = Resource::new(ResourceKey::new(self.kind, mesh, &self.name), now);
        resource.labels = self.labels;
        resource.spec = self.spec.into();
        resource.status = self.status.map(|s| s.to_string().into_bytes().into());
        resource
    }
}

fn text<'a>(json: &'a Value, field: &'static str) -> Result<Option<&'a str>, DocumentError> {
    match json.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(DocumentError::Meta { field, reason: "must be a string".to_owned() }),
    }
}

/// The meta members of a resource, in the order they are shown.
pub fn meta(resource: &Resource) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("type".into(), resource.kind().name.into());
    if resource.kind().is_mesh_scoped() {
        object.insert("mesh".into(), resource.mesh().into());
    }
    object.insert("name".into(), resource.name().into());
    object.insert("creationTime".into(), time(resource.created).into());
    object.insert("modificationTime".into(), time(resource.modified).into());
    if !resource.labels.is_empty() {
        let labels = resource.labels.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str())));
        object.insert("labels".into(), Value::Object(labels.collect()));
    }
    if let Some(kri) = Kri::of(resource) {
        object.insert("kri".into(), kri.to_string().into());
    }
    object
}

/// The whole document of a resource.
///
/// # Errors
/// [`SpecError`] when the stored bytes do not decode.
pub fn render(resource: &Resource) -> Result<Value, SpecError> {
    let mut object = meta(resource);
    let names = sni::of(resource);
    if !names.is_empty() {
        let names = names.into_iter().map(|name| json!({ "port": name.port, "sni": name.sni }));
        object.insert("snis".into(), names.collect());
    }
    let spec = transcode::to_json(resource.kind(), &resource.spec)?;
    match spec {
        Value::Object(inline) if !resource.kind().is_json() => object.extend(inline),
        spec => {
            object.insert("spec".into(), spec);
        }
    }
    if resource.kind().has_status() {
        let status = resource.status.as_deref().unwrap_or(resource.kind().empty_status.as_bytes());
        let status = serde_json::from_slice(status)
            .map_err(|e| SpecError::Json { path: "status".to_owned(), reason: e.to_string() })?;
        object.insert("status".into(), status);
    }
    Ok(Value::Object(object))
}

/// RFC 3339 in UTC, with as many digits as needed.
pub fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
