//! What a zone has seen of a dataplane's xDS streams and certificates.

use crate::model::Kind;

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("DataplaneInsight", "dataplane-insights", "kuma.mesh.v1alpha1.DataplaneInsight")
        .flow(12)
        .read_only();
