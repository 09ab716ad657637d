//! What a zone has seen of a zone egress' xDS streams.

use crate::{
    model::{Kind, KubernetesForm, MessageSpec},
    proto::kuma::mesh::v1alpha1::ZoneEgressInsight,
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("ZoneEgressInsight", "zoneegressinsights", "kuma.mesh.v1alpha1.ZoneEgressInsight")
        .global()
        .flow(12)
        .insight()
        .kubernetes(KubernetesForm::Namespaced)
        .typed::<ZoneEgressInsight>();

impl MessageSpec for ZoneEgressInsight {}
