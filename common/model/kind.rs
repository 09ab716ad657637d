//! What is known about a type of resource, independent of any one resource.

use super::{
    FieldPath, Violations,
    resource::{Spec, SpecError},
    shape::Shape,
};

/// Whether resources of a kind live inside a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One namespace for the whole control plane; the mesh of the key is empty.
    Global,
    /// Names are unique within a mesh.
    Mesh,
}

/// Who owns resources of a kind and which way they travel; the bits of Kuma's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(u8);

impl Flow {
    const CONSUMED_BY_ZONE: u8 = 1;
    const CONSUMED_BY_GLOBAL: u8 = 4;
    const PROVIDED_BY_ZONE: u8 = 8;
    const PROVIDED_BY_GLOBAL: u8 = 16;
    const ACROSS_ZONES: u8 = 32;

    /// From the bit set as Kuma writes it.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    const fn has(self, bits: u8) -> bool {
        self.0 & bits == bits
    }

    /// May be written through the API of global.
    pub const fn written_by_global(self) -> bool {
        self.has(Self::PROVIDED_BY_GLOBAL)
    }

    /// May be written through the API of a federated zone.
    pub const fn written_by_zone(self) -> bool {
        self.has(Self::PROVIDED_BY_ZONE)
    }

    /// Owned by global and sent to zones.
    pub const fn global_to_zone(self) -> bool {
        self.has(Self::PROVIDED_BY_GLOBAL | Self::CONSUMED_BY_ZONE)
    }

    /// Owned by a zone and sent to global.
    pub const fn zone_to_global(self) -> bool {
        self.has(Self::PROVIDED_BY_ZONE | Self::CONSUMED_BY_GLOBAL)
    }

    /// Copies of one zone's resources are forwarded to all other zones.
    pub const fn across_zones(self) -> bool {
        self.has(Self::ACROSS_ZONES)
    }

    /// Requested by a zone on `GlobalToZoneSync`.
    pub const fn requested_by_zone(self) -> bool {
        self.global_to_zone() || self.across_zones()
    }

    /// Requested by global on `ZoneToGlobalSync`.
    pub const fn requested_by_global(self) -> bool {
        self.zone_to_global()
    }
}

/// How the spec of a kind is encoded, in the store and on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Protobuf bytes of this message; REST shows its fields inline beside the meta.
    Proto {
        /// Full message name, without the type URL prefix.
        message: &'static str,
    },
    /// JSON text; REST shows it below `spec`.
    Json {
        /// Whether the kind has a `status` written by the control plane.
        status: bool,
    },
}

/// What REST and the rule engine need to know about a policy kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyTraits {
    /// Selects proxies by `targetRef` (the newer generation) rather than by `sources`/`selectors`.
    pub target_ref: bool,
    /// The spec has a `to` list.
    pub to: bool,
    /// The spec has a `from` list.
    pub from: bool,
    /// The spec has a `rules` list.
    pub rules: bool,
    /// A `from` list is read as inbound `rules`.
    pub from_as_rules: bool,
}

/// The descriptor of one type of resource. There is one `static` per kind, listed in
/// [`super::registry`]; kinds are compared by [`Kind::name`].
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
    /// Encoding of the spec.
    pub format: Format,
    /// Never written through REST (insights).
    pub read_only: bool,
    /// Only administrators may read or write (secrets).
    pub admin_only: bool,
    /// Keeps its name when it travels down (Mesh, Secret, GlobalSecret, Config).
    pub keeps_name: bool,
    /// Present for policies.
    pub policy: Option<PolicyTraits>,
    /// What is shown as the status while nobody has written one.
    pub empty_status: &'static str,
    shape: &'static Shape,
    check: fn(&[u8]) -> Result<Violations, SpecError>,
    normalize: fn(&[u8]) -> Result<Vec<u8>, SpecError>,
}

impl Kind {
    /// A kind whose spec is an unchecked protobuf `message`.
    pub const fn proto(name: &'static str, path: &'static str, message: &'static str) -> Self {
        Self::new(name, path, Format::Proto { message })
    }

    /// A kind whose spec is an unchecked JSON object.
    pub const fn json(name: &'static str, path: &'static str) -> Self {
        Self::new(name, path, Format::Json { status: false })
    }

    const fn new(name: &'static str, path: &'static str, format: Format) -> Self {
        Self {
            name,
            path,
            alias: "",
            arg: "",
            short: "",
            scope: Scope::Mesh,
            flow: Flow::from_bits(0),
            format,
            read_only: false,
            admin_only: false,
            keeps_name: false,
            policy: None,
            empty_status: "{}",
            shape: &Shape::Any,
            check: accept,
            normalize: keep,
        }
    }

    /// Decodes, validates and normalises specs of this kind as `S`.
    pub const fn typed<S: Spec>(mut self) -> Self {
        self.check = check::<S>;
        self.normalize = normalize::<S>;
        self
    }

    /// Sets the shape of a JSON spec that stays encoded.
    pub const fn shaped(mut self, shape: &'static Shape) -> Self {
        self.shape = shape;
        self
    }

    /// Sets the scope to [`Scope::Global`].
    pub const fn global(mut self) -> Self {
        self.scope = Scope::Global;
        self
    }

    /// Sets ownership and direction of sync, in Kuma's bits.
    pub const fn flow(mut self, bits: u8) -> Self {
        self.flow = Flow::from_bits(bits);
        self
    }

    /// Sets command line argument and short name.
    pub const fn named(mut self, arg: &'static str, short: &'static str) -> Self {
        self.arg = arg;
        self.short = short;
        self
    }

    /// Sets the second path.
    pub const fn alias(mut self, path: &'static str) -> Self {
        self.alias = path;
        self
    }

    /// Gives a JSON kind a `status`.
    pub const fn with_status(mut self) -> Self {
        self.format = Format::Json { status: true };
        self
    }

    /// Sets what is shown as the status while nobody has written one, as JSON.
    pub const fn empty_status(mut self, json: &'static str) -> Self {
        self.empty_status = json;
        self
    }

    /// Forbids writes through REST.
    pub const fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Restricts access to administrators.
    pub const fn admin_only(mut self) -> Self {
        self.admin_only = true;
        self
    }

    /// Keeps the name unhashed on the way down.
    pub const fn keeps_name(mut self) -> Self {
        self.keeps_name = true;
        self
    }

    /// Marks the kind as a policy.
    pub const fn policy(mut self, traits: PolicyTraits) -> Self {
        self.policy = Some(traits);
        self
    }

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

    /// Validates an encoded spec. Field paths start at the spec (`networking.address`, and for JSON
    /// kinds `spec.to[0].targetRef`).
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn validate(&self, spec: &[u8]) -> Result<Violations, SpecError> {
        (self.check)(spec)
    }

    /// The same for what a user wrote, whose shape is checked where nothing decodes it. A peer may be newer
    /// and know more shapes.
    ///
    /// # Errors
    /// [`SpecError`] when the bytes do not decode as the type of this kind.
    pub fn validate_authored(&self, spec: &[u8]) -> Result<Violations, SpecError> {
        let mut violations = self.validate(spec)?;
        if matches!(self.shape, Shape::Any) {
            return Ok(violations);
        }
        let json = serde_json::from_slice(spec)
            .map_err(|e| SpecError::Json { path: "spec".to_owned(), reason: e.to_string() })?;
        violations.extend(self.shape.check(&FieldPath::new("spec"), &json));
        Ok(violations)
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

fn accept(_: &[u8]) -> Result<Violations, SpecError> {
    Ok(Violations::default())
}

fn keep(spec: &[u8]) -> Result<Vec<u8>, SpecError> {
    Ok(spec.to_vec())
}

fn check<S: Spec>(spec: &[u8]) -> Result<Violations, SpecError> {
    Ok(S::decode(spec)?.validate())
}

fn normalize<S: Spec>(spec: &[u8]) -> Result<Vec<u8>, SpecError> {
    Ok(S::decode(spec)?.encode())
}
