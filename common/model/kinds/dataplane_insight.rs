//! What a zone has seen of a dataplane's xDS streams and certificates.

use crate::{
    model::{Kind, MessageSpec},
    proto::kuma::mesh::v1alpha1::DataplaneInsight,
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("DataplaneInsight", "dataplane-insights", "kuma.mesh.v1alpha1.DataplaneInsight")
        .flow(12)
        .read_only()
        .typed::<DataplaneInsight>();

impl MessageSpec for DataplaneInsight {}
