//! A data plane proxy next to a workload.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("Dataplane", "dataplanes", "kuma.mesh.v1alpha1.Dataplane").flow(12).named("dataplane", "dp");
