//! One resource: identity, meta, encoded spec.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use thiserror::Error;

use super::{Kind, Labels, ResourceKey, Violations, labels, transcode};

/// A typed spec. Implemented by the type each typed kind names in its descriptor.
pub trait Spec: Sized + Send + Sync + 'static {
    /// Decodes the stored form (protobuf bytes or JSON text).
    ///
    /// # Errors
    /// [`SpecError`] when the bytes are not of this type.
    fn decode(spec: &[u8]) -> Result<Self, SpecError>;
    /// Encodes into the stored form.
    fn encode(&self) -> Vec<u8>;
    /// Everything that is wrong with the content, with a path for each.
    fn validate(&self) -> Violations;
    /// Fills in what its author left to the control plane.
    fn fill(&mut self) {}
}

/// A spec that is one of the protobuf messages.
pub trait MessageSpec: prost::Message + Default + 'static {
    /// The name of the message, when objects of any shape stand in it. Their members are held in no order, and
    /// stored in that of their names.
    fn open(&self) -> Option<&'static str> {
        None
    }

    /// Everything that is wrong with the content.
    fn violations(&self) -> Violations {
        Violations::none()
    }

    /// Fills in what its author left to the control plane.
    fn fill(&mut self) {}
}

impl<M: MessageSpec> Spec for M {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        Ok(<M as prost::Message>::decode(spec)?)
    }

    fn encode(&self) -> Vec<u8> {
        let spec = self.encode_to_vec();
        let ordered = self.open().and_then(|name| transcode::reflect(name, &spec).ok());
        ordered.map_or(spec, |message| transcode::stable(&message))
    }

    fn validate(&self) -> Violations {
        self.violations()
    }

    fn fill(&mut self) {
        MessageSpec::fill(self);
    }
}

/// Why a spec does not decode.
#[derive(Debug, Error)]
pub enum SpecError {
    /// The protobuf bytes are broken.
    #[error("decode protobuf spec: {0}")]
    Proto(#[from] prost::DecodeError),
    /// The JSON does not fit the type; `path` names the member, `reason` what was expected there.
    #[error("spec field {path}: {reason}")]
    Json {
        /// Dotted path of the member, starting with `spec` for JSON kinds.
        path: String,
        /// What is wrong.
        reason: String,
    },
    /// The JSON does not fit the type, in all of these places.
    #[error("spec field {0}")]
    Shape(Violations),
    /// It speaks to proxies of other zones, of what is not its own.
    #[error(
        "it came from zone {zone:?}, which may tell clients elsewhere, all alike, how services of its own are called, and nothing else"
    )]
    Overreach {
        /// The zone it came from.
        zone: String,
    },
}

/// Who owns a resource. Taken from the authenticated session or from the process itself, never from
/// label text of a peer.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Written through the API of global (on a zone: received from global).
    Global,
    /// Owned by the zone of this name.
    Zone(Arc<str>),
}

impl Origin {
    /// The column form: empty for global, else the zone name.
    pub fn as_column(&self) -> &str {
        match self {
            Self::Global => "",
            Self::Zone(zone) => zone,
        }
    }

    /// Back from [`Origin::as_column`].
    pub fn from_column(column: &str) -> Self {
        if column.is_empty() { Self::Global } else { Self::Zone(column.into()) }
    }
}

/// Position in the history of one store; 0 is the empty store. Each committed batch that changed
/// something takes the next number.
pub type Revision = u64;

/// One resource at one revision. Immutable once stored; share it as `Arc<Resource>`.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Identity.
    pub key: ResourceKey,
    /// All labels, computed and user-given.
    pub labels: Labels,
    /// Encoded spec in the format of the kind. Never empty for JSON kinds (at least `{}`).
    pub spec: Bytes,
    /// JSON status, for kinds that have one and once someone wrote it.
    pub status: Option<Bytes>,
    /// Who owns it.
    pub origin: Origin,
    /// The resource this one belongs to: when the owner goes, so does this.
    pub owner: Option<ResourceKey>,
    /// When it was first stored here.
    pub created: DateTime<Utc>,
    /// When spec, labels or status last changed here.
    pub modified: DateTime<Utc>,
    /// Store revision of the last change; 0 before it is stored.
    pub revision: Revision,
}

impl Resource {
    /// A new resource, owned by global, with an empty spec and no labels.
    pub fn new(key: ResourceKey, now: DateTime<Utc>) -> Self {
        let spec = if key.kind.is_json() { Bytes::from_static(b"{}") } else { Bytes::new() };
        Self {
            key,
            labels: Labels::new(),
            spec,
            status: None,
            origin: Origin::Global,
            owner: None,
            created: now,
            modified: now,
            revision: 0,
        }
    }

    /// The same with this encoded spec.
    pub fn with_spec(mut self, spec: impl Into<Bytes>) -> Self {
        self.spec = spec.into();
        self
    }

    /// The same with one more label.
    pub fn with_label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key, value);
        self
    }

    /// Its kind.
    pub fn kind(&self) -> &'static Kind {
        self.key.kind
    }

    /// Core name.
    pub fn name(&self) -> &str {
        &self.key.name
    }

    /// Mesh, empty for global-scoped kinds.
    pub fn mesh(&self) -> &str {
        &self.key.mesh
    }

    /// One label, `None` when it is absent or empty.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).filter(|v| !v.is_empty())
    }

    /// The name its author gave it: the display-name label, else the core name.
    pub fn display_name(&self) -> &str {
        self.label(labels::DISPLAY_NAME).unwrap_or(&self.key.name)
    }

    /// Decodes the spec as `S`.
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as `S`.
    pub fn spec<S: Spec>(&self) -> Result<S, SpecError> {
        S::decode(&self.spec)
    }

    /// Whether spec, status, labels, origin and owner are the same, that is, whether storing `other`
    /// over `self` would change nothing a reader can see.
    pub fn same_content(&self, other: &Self) -> bool {
        self.spec == other.spec
            && self.status == other.status
            && self.labels == other.labels
            && self.origin == other.origin
            && self.owner == other.owner
    }
}
