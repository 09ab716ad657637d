//! What can be said about a kind besides its name.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::model::SpecError;

/// Whether resources of a kind live inside a mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One namespace for the whole control plane; the mesh of the key is empty.
    Global,
    /// Names are unique within a mesh.
    Mesh,
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

/// Where the items of a policy's `to` and `from` lists keep what is merged, and so how it is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ItemForm {
    /// In `default`: a later item patches an earlier one.
    Default,
    /// In `rules`, of which those with equal matches are merged: the first rule wins.
    RulesByMatches,
    /// In the one element of `rules`.
    OneRule,
}

/// What items of policies find when they point at a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Referent {
    /// The resource as a whole.
    Whole,
    /// It and each of the `ports` of its spec.
    Ports,
    /// Requests, told apart by the rules of an HTTP route.
    Requests,
}

/// Where the spec of a service says its ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortsIn {
    /// In the list `ports`.
    Ports,
    /// In `match`, which has one.
    Match,
}

/// When a kind is asked for in a sync: what others refer to comes first, so that a policy does not arrive
/// before its mesh.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncStage {
    /// Meshes, in which the others live.
    Meshes,
    /// Settings and secrets.
    Settings,
    /// Proxies.
    Proxies,
    /// Everything else.
    Rest,
}

/// A place in a spec that names the zone the resource belongs to.
#[derive(Clone, Copy, Debug)]
pub struct ZoneField {
    /// The field, for people.
    pub shown: &'static str,
    /// Names of the fields that lead there, from the outside in.
    pub path: &'static [&'static str],
    /// How it names the zone.
    pub form: ZoneFieldForm,
}

/// How a [`ZoneField`] names a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneFieldForm {
    /// The field is the name, and always set.
    Name,
    /// The field is a map of tags, one of which may be the name. A tag that is absent stays absent.
    Tags,
}

/// How a resource would stand in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesForm {
    /// Outside every namespace.
    Cluster,
    /// In a namespace.
    Namespaced,
    /// As a secret of Kubernetes itself, of this type, in a namespace.
    Secret(&'static str),
}

/// A column of a table for people.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its heading.
    pub heading: &'static str,
    /// What stands in it, from the resource as REST shows it.
    pub value: fn(&Value) -> Value,
}

/// The tags in an encoded spec, a set for each part that has some.
pub type TagSets = fn(&[u8]) -> Result<Vec<BTreeMap<String, String>>, SpecError>;

/// A value for a member that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// A boolean.
    Flag(bool),
    /// A number.
    Number(u32),
    /// A string.
    Text(&'static str),
}

impl From<Preset> for Value {
    fn from(preset: Preset) -> Self {
        match preset {
            Preset::Flag(value) => value.into(),
            Preset::Number(value) => value.into(),
            Preset::Text(value) => value.into(),
        }
    }
}

/// What is filled in, in a JSON spec that nothing decodes, before it is merged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Presets {
    /// Members that hold durations, wherever they stand.
    pub durations: &'static [&'static str],
    /// The name of a member that holds an object or a list of them, and what each of these gets.
    pub objects: &'static [(&'static str, &'static [(&'static str, Preset)])],
}
