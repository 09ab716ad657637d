//! `MeshRetry`: what is tried again, how often and how fast.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshRetry", "meshretries")
    .flow(61)
    .named("meshretry", "mr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false });
