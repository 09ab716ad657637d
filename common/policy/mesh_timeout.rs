//! `MeshTimeout`: how long connections, requests and streams may take.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTimeout", "meshtimeouts")
    .flow(61)
    .named("meshtimeout", "mt")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true });
