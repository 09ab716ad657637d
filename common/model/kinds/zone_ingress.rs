//! The proxy through which other zones reach the services of a zone.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind = Kind::proto("ZoneIngress", "zoneingresses", "kuma.mesh.v1alpha1.ZoneIngress")
    .global()
    .flow(44)
    .named("zoneingress", "zi")
    .alias("zone-ingresses");
