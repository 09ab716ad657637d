//! What is known about a type of resource, independent of any one resource.

mod build;
mod flow;
mod traits;

pub use flow::Flow;
pub use traits::{
    Column, Format, ItemForm, KubernetesForm, PolicyTraits, PortsIn, Preset, Presets, Referent, Scope,
    SyncStage, TagSets, ZoneField, ZoneFieldForm,
};

use super::{
    FieldPath, Resource, Violations,
    resource::{Spec, SpecError},
    shape::Shape,
};

/// The descriptor of one type of resource. There is one `static` per kind, listed in
/// [`crate::registry`]; kinds are compared by [`Kind::name`].
pub struct Kind {
    /// Type name, as in `type:` and as the bare KDS type URL.
    pub name: &'static str,
    /// Path segment of the REST collection; empty for `Config`, which has none.
    pub path: &'static str,
    /// Second path segment with the same meaning, kept for old clients; empty when there is none.
    pub alias: &'static str,
    /// Name of the command line argument; empty when `get` does not offer the kind.
    pub arg: &'static str,
    /// Short name in a KRI; empty when the kind has no KRI.
    pub short: &'static str,
    /// Global or mesh.
    pub scope: Scope,
    /// Ownership and direction of sync.
    pub flow: Flow,
    /// What a peer says that knows the kind; `None` for those every peer knows.
    pub known_by: Option<&'static str>,
    /// Encoding of the spec.
    pub format: Format,
    /// Never written through REST.
    pub read_only: bool,
    /// Says what the control plane has seen of something else.
    pub is_insight: bool,
    /// Describes a proxy that has an Envoy.
    pub is_proxy: bool,
    /// Only administrators may read or write (secrets).
    pub admin_only: bool,
    /// Keeps its name when it travels down (Mesh, Secret, GlobalSecret, Config).
    pub keeps_name: bool,
    /// Present for policies.
    pub policy: Option<PolicyTraits>,
    /// Where items of a policy keep what is merged.
    pub item_form: ItemForm,
    /// Present for what items of policies may point at.
    pub referent: Option<Referent>,
    /// Present for services: where the spec says their ports.
    pub service: Option<PortsIn>,
    /// When it is asked for in a sync.
    pub sync_stage: SyncStage,
    /// Where the spec names the zone it belongs to. Tags of an outbound or a policy say whom it is about, not
    /// whose it is; specs in JSON name no zone but in their labels.
    pub zone_fields: &'static [ZoneField],
    /// Largest resource that is taken, in bytes of spec, status and labels.
    pub largest: usize,
    /// Stays when its mesh is deleted.
    pub outlives_mesh: bool,
    /// How it would stand in Kubernetes.
    pub kubernetes: KubernetesForm,
    /// Present where lists can be filtered by tags.
    pub tag_sets: Option<TagSets>,
    /// Members of the spec that still work and should not be used any more.
    pub deprecated: &'static [&'static str],
    /// What of a spec is stored and has no effect.
    pub caveat: Caveat,
    /// Columns of its own in tables for people.
    pub columns: &'static [Column],
    /// What is filled in before policies of the kind are merged.
    pub presets: Presets,
    /// What is shown as the status while nobody has written one.
    pub empty_status: &'static str,
    /// Decoded and checked as a type of its own, rather than by its shape alone.
    pub is_typed: bool,
    shape: &'static Shape,
    check: fn(&[u8]) -> Result<Violations, SpecError>,
    normalize: fn(&[u8]) -> Result<Vec<u8>, SpecError>,
    settle: Settle,
    label: fn(&mut Resource),
}

/// What of a spec is stored and has no effect, as an author is told.
pub type Caveat = fn(&[u8]) -> Option<&'static str>;

/// Checks a spec and gives it in its stored form, in one walk.
type Settle = fn(&[u8]) -> Result<(Violations, Vec<u8>), SpecError>;

impl Kind {
    /// What [`Kind::largest`] is where nothing else is said: as much as Kubernetes stores of one.
    pub const LARGEST: usize = 1536 * 1024;
    /// The same for what describes one proxy. Two bytes can make a part of it that takes hundreds to decode.
    pub const LARGEST_PROXY: usize = 256 * 1024;

    /// Whether the spec is JSON (a "plugin originated" kind in Kuma's words).
    pub const fn is_json(&self) -> bool {
        matches!(self.format, Format::Json { .. })
    }

    /// Whether resources of this kind carry a status.
    pub const fn has_status(&self) -> bool {
        matches!(self.format, Format::Json { status: true })
    }

    /// Whether this is a mesh-scoped kind.
    pub const fn is_mesh_scoped(&self) -> bool {
        matches!(self.scope, Scope::Mesh)
    }

    /// Adds the labels that follow from the spec.
    pub fn label(&self, resource: &mut Resource) {
        (self.label)(resource);
    }

    /// What a JSON spec must look like before it is decoded.
    pub(in crate::model) fn shape(&self) -> &'static Shape {
        self.shape
    }

    /// Validates an encoded spec. Field paths start at the spec (`networking.address`, and for JSON
    /// kinds `spec.to[0].targetRef`).
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn validate(&self, spec: &[u8]) -> Result<Violations, SpecError> {
        (self.check)(spec)
    }

    /// The same for what a user wrote, whose shape is checked first: what has another one is not looked into any
    /// further. A peer may be newer and know more shapes.
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn validate_authored(&self, spec: &[u8]) -> Result<Violations, SpecError> {
        let violations = self.check_shape(spec)?;
        if violations.is_empty() { self.validate(spec) } else { Ok(violations) }
    }

    fn check_shape(&self, spec: &[u8]) -> Result<Violations, SpecError> {
        if matches!(self.shape, Shape::Any) {
            return Ok(Violations::none());
        }
        let json = serde_json::from_slice(spec)
            .map_err(|e| SpecError::Json { path: "spec".to_owned(), reason: e.to_string() })?;
        Ok(self.shape.check(&FieldPath::new("spec"), &json))
    }

    /// What [`Kind::validate_authored`] and [`Kind::normalize`] say, from decoding it once.
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn settle_authored(&self, spec: &[u8]) -> Result<(Violations, Vec<u8>), SpecError> {
        let violations = self.check_shape(spec)?;
        if violations.is_empty() { (self.settle)(spec) } else { Ok((violations, spec.to_vec())) }
    }

    /// The canonical encoding of what a user wrote: defaults filled in, members nobody knows pruned.
    /// Only for input of the API; what a peer synced is kept as it came.
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn normalize(&self, spec: &[u8]) -> Result<Vec<u8>, SpecError> {
        (self.normalize)(spec)
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Kind {}

impl std::fmt::Debug for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

fn no_labels(_: &mut Resource) {}

fn accept(_: &[u8]) -> Result<Violations, SpecError> {
    Ok(Violations::default())
}

fn keep(spec: &[u8]) -> Result<Vec<u8>, SpecError> {
    Ok(spec.to_vec())
}

fn accept_and_keep(spec: &[u8]) -> Result<(Violations, Vec<u8>), SpecError> {
    Ok((Violations::default(), spec.to_vec()))
}

fn nothing(_spec: &[u8]) -> Option<&'static str> {
    None
}

fn check<S: Spec>(spec: &[u8]) -> Result<Violations, SpecError> {
    Ok(S::decode(spec)?.validate())
}

fn normalize<S: Spec>(spec: &[u8]) -> Result<Vec<u8>, SpecError> {
    let mut spec = S::decode(spec)?;
    spec.fill();
    Ok(spec.encode())
}

fn settle<S: Spec>(spec: &[u8]) -> Result<(Violations, Vec<u8>), SpecError> {
    let mut spec = S::decode(spec)?;
    let violations = spec.validate();
    spec.fill();
    Ok((violations, spec.encode()))
}
