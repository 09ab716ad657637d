//! What a resource is: its kind, its identity, its meta and its encoded spec.
//!
//! Everything else in the workspace works on [`Resource`] and [`Kind`]; typed code asks
//! [`Resource::spec`] for the type it knows. Specs stay encoded as they came (protobuf or JSON), so
//! that fields of a newer peer survive a pass through this process.

pub mod decode;
mod duration;
mod field_step;
mod key;
mod kind;
pub mod kinds;
pub mod kri;
pub mod labels;
pub mod names;
mod resource;
pub mod shape;
pub mod sni;
pub mod spiffe;
pub mod template;
pub mod text;
pub mod tls_version;
pub mod transcode;
mod violations;

pub use duration::{Duration, DurationError};
pub use field_step::FieldStep;
pub use key::ResourceKey;
pub use kind::{
    Caveat, Column, Flow, Format, ItemForm, Kind, KubernetesForm, PolicyTraits, PortsIn, Preset, Presets,
    Referent, Scope, SyncStage, TagSets, ZoneField, ZoneFieldForm,
};
pub use labels::Labels;
pub use resource::{MessageSpec, Origin, Resource, Revision, Spec, SpecError};
pub use violations::{FieldPath, Violation, Violations};
