//! The proxy through which a zone reaches what lies outside.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneEgress", "zoneegresses", "kuma.mesh.v1alpha1.ZoneEgress")
    .global()
    .flow(12)
    .named("zoneegress", "ze");
