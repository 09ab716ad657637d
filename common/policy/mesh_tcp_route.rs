//! `MeshTCPRoute`: where TCP connections go.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTCPRoute", "meshtcproutes")
    .flow(61)
    .named("meshtcproute", "mtcpr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false });
