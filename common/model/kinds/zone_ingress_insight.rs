//! What a zone has seen of a zone ingress' xDS streams.

use crate::{
    model::{Kind, KubernetesForm, MessageSpec},
    proto::kuma::mesh::v1alpha1::ZoneIngressInsight,
};

/// Said by global when it has the insights of the ingresses of other zones for who asks for them, and by a zone that knows what
/// they are.
pub const KNOWN_BY: &str = "strait-ingress-insights";

/// The descriptor.
pub static KIND: Kind =
    Kind::proto("ZoneIngressInsight", "zone-ingress-insights", "kuma.mesh.v1alpha1.ZoneIngressInsight")
        .global()
        .flow(12)
        .across_our_zones()
        .known_by(KNOWN_BY)
        .insight()
        .kubernetes(KubernetesForm::Namespaced)
        .typed::<ZoneIngressInsight>();

impl MessageSpec for ZoneIngressInsight {}
