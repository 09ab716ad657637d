//! The document form of a resource: what REST serves and what files hold.
//!
//! Protobuf kinds show their spec inline beside the meta; JSON kinds show it below `spec`, with `status`
//! where the kind has one.

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::{
    model::{FieldPath, Format, Kind, Labels, Resource, ResourceKey, SpecError, kri::Kri, sni, transcode},
    registry,
};

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
    pub labels: Labels,
    /// The encoded spec, not normalised.
    pub spec: Vec<u8>,
    /// From `status`, for kinds that have one.
    pub status: Option<Value>,
    /// Members that no field of a protobuf spec is called, most likely misspelt.
    pub ignored: Vec<FieldPath>,
}

/// Why something is not a document.
#[derive(Debug, Error)]
pub enum DocumentError {
    /// A meta member is missing or of the wrong JSON type.
    #[error("{field}: {reason}")]
    Meta {
        /// Which member.
        field: FieldPath,
        /// What is wrong with it.
        reason: String,
    },
    /// Not even an object.
    #[error("the document is not an object with type and name")]
    Shape,
    /// `type` names no kind.
    #[error("unknown resource type {0:?}; GET /_resources lists the types")]
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
        let name = text(json, "type")?.ok_or_else(|| no_type(json))?;
        let kind = registry::by_name(name).ok_or_else(|| DocumentError::UnknownType(name.to_owned()))?;
        Self::parse_as(kind, json)
    }

    /// Splits a document known to be of `kind`.
    ///
    /// # Errors
    /// [`DocumentError`] naming the member that is wrong.
    pub fn parse_as(kind: &'static Kind, json: &Value) -> Result<Self, DocumentError> {
        let Some(object) = json.as_object() else {
            return Err(DocumentError::Shape);
        };
        let labels = labels(object.get("labels"))?;
        let (spec, ignored) = match kind.format {
            Format::Proto { message } => {
                transcode::members_from_json(message, object, |name| !META.contains(&name))?
            }
            Format::Json { .. } => {
                let empty = transcode::empty_object();
                (transcode::from_json(kind, object.get("spec").unwrap_or(&empty))?, Vec::new())
            }
        };
        Ok(Self {
            kind,
            mesh: text(json, "mesh")?.map(str::to_owned),
            name: text(json, "name")?.unwrap_or_default().to_owned(),
            labels,
            spec,
            status: object.get("status").filter(|s| kind.has_status() && !s.is_null()).cloned(),
            ignored,
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

/// What is wrong with a document that names no kind.
fn no_type(json: &Value) -> DocumentError {
    if !json.is_object() {
        return DocumentError::Shape;
    }
    let is_manifest =
        json.get("kind").is_some() && ["apiVersion", "metadata"].iter().any(|name| json.get(name).is_some());
    let hint = match is_manifest {
        true => ": this is a Kubernetes manifest, write type, name and mesh at the top instead",
        false => "",
    };
    DocumentError::Meta { field: "type".into(), reason: format!("must be set{hint}") }
}

fn labels(json: Option<&Value>) -> Result<Labels, DocumentError> {
    let wrong = |field: FieldPath, reason: &str| DocumentError::Meta { field, reason: reason.to_owned() };
    match json {
        None | Some(Value::Null) => Ok(Labels::new()),
        Some(Value::Object(labels)) => labels
            .iter()
            .map(|(key, value)| match value {
                Value::String(value) => Ok((key.clone(), value.clone())),
                _ => Err(wrong(FieldPath::new("labels").key(key), "must be a string; quote it in YAML")),
            })
            .collect(),
        Some(_) => Err(wrong("labels".into(), "must be a map of strings")),
    }
}

/// The spec in the document of a resource of `kind`, still in its JSON form.
fn spec_of(kind: &Kind, document: &Map<String, Value>) -> Value {
    if kind.is_json() {
        return document.get("spec").cloned().unwrap_or_else(transcode::empty_object);
    }
    let inline = document.iter().filter(|(name, _)| !META.contains(&name.as_str()));
    Value::Object(inline.map(|(name, value)| (name.clone(), value.clone())).collect())
}

/// Members of the spec in a document that no field is called, most likely misspelt; they are ignored.
pub fn unknown_members(kind: &Kind, document: &Value) -> Vec<FieldPath> {
    document.as_object().map(|d| transcode::unknown_members(kind, &spec_of(kind, d))).unwrap_or_default()
}

fn text<'a>(json: &'a Value, field: &'static str) -> Result<Option<&'a str>, DocumentError> {
    match json.get(field) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(DocumentError::Meta {
            field: field.into(),
            reason: "must be a string; quote it in YAML".to_owned(),
        }),
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
        let labels = resource.labels.iter().map(|(k, v)| (k.to_owned(), Value::from(v)));
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
    if let Some(status) = status(resource)? {
        object.insert("status".into(), status);
    }
    Ok(Value::Object(object))
}

/// The status of a resource, of a kind that has one.
///
/// # Errors
/// [`SpecError`] when what is stored of it is no JSON.
pub fn status(resource: &Resource) -> Result<Option<Value>, SpecError> {
    if !resource.kind().has_status() {
        return Ok(None);
    }
    let status = resource.status.as_deref().unwrap_or(resource.kind().empty_status.as_bytes());
    let status = serde_json::from_slice(status);
    status.map(Some).map_err(|e| SpecError::Json { path: "status".to_owned(), reason: e.to_string() })
}

/// RFC 3339 in UTC, with as many digits as needed.
pub fn time(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}
