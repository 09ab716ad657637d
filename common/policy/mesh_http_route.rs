//! `MeshHTTPRoute`: where HTTP requests go, and how they are changed on the way.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshHTTPRoute", "meshhttproutes")
    .flow(61)
    .named("meshhttproute", "mhttpr")
    .policy(PolicyTraits { target_ref: true, to: true, from: false, rules: false, from_as_rules: false });
