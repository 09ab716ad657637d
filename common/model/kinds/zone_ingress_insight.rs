//! What a zone has seen of a zone ingress' xDS streams.

use crate::{
    model::{Kind, KubernetesForm, MessageSpec},
    proto::kuma::mesh::v1alpha1::ZoneIngressInsight,
};

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("ZoneIngressInsight", "zone-ingress-insights", "kuma.mesh.v1alpha1.ZoneIngressInsight")
        .global()
        .flow(12)
        .across_our_zones()
        .insight()
        .kubernetes(KubernetesForm::Namespaced)
        .typed::<ZoneIngressInsight>();

impl MessageSpec for ZoneIngressInsight {}
