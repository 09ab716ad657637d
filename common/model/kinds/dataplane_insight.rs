//! What a zone has seen of a dataplane's xDS streams and certificates.

use crate::{
    model::{Kind, KubernetesForm, MessageSpec},
    proto::kuma::mesh::v1alpha1::DataplaneInsight,
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("DataplaneInsight", "dataplane-insights", "kuma.mesh.v1alpha1.DataplaneInsight")
        .flow(12)
        .insight()
        .kubernetes(KubernetesForm::Namespaced)
        .typed::<DataplaneInsight>();

impl MessageSpec for DataplaneInsight {}
