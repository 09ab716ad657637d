//! `MeshCircuitBreaker`: how much load and how many errors an upstream may see.

use crate::model::{Kind, PolicyTraits};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshCircuitBreaker", "meshcircuitbreakers")
    .flow(61)
    .named("meshcircuitbreaker", "mcb")
    .policy(PolicyTraits { target_ref: true, to: true, from: true, rules: true, from_as_rules: true });
