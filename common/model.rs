//! What a resource is: its kind, its identity, its meta and its encoded spec.
//!
//! Everything else in the workspace works on [`Resource`] and [`Kind`]; typed code asks
//! [`Resource::spec`] for the type it knows. Specs stay encoded as they came (protobuf or JSON), so
//! that fields of a newer peer survive a pass through this process.

pub mod document;
mod key;
mod kind;
pub mod kinds;
pub mod kri;
pub mod labels;
pub mod names;
pub mod registry;
mod resource;
pub mod shape;
pub mod sni;
pub mod text;
pub mod transcode;
mod violations;

pub use key::ResourceKey;
pub use kind::{Flow, Format, Kind, PolicyTraits, Scope};
pub use resource::{MessageSpec, Origin, Resource, Spec, SpecError};
pub use violations::{FieldPath, Violation, Violations};
