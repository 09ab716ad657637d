//! A mesh: the unit of identity, trust and policy.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind = Kind::proto("Mesh", "meshes", "kuma.mesh.v1alpha1.Mesh")
    .global()
    .flow(17)
    .named("mesh", "m")
    .keeps_name();
