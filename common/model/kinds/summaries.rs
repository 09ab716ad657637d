//! Summaries the control plane computes over many resources.

use crate::{
    model::{Kind, MessageSpec},
    proto::kuma::mesh::v1alpha1::{MeshInsight, ServiceInsight},
};

/// Counts over one mesh.
pub static MESH_INSIGHT: Kind = Kind::proto("MeshInsight", "mesh-insights", "kuma.mesh.v1alpha1.MeshInsight")
    .global()
    .flow(16)
    .insight()
    .typed::<MeshInsight>();

/// Health of every service of one mesh.
pub static SERVICE_INSIGHT: Kind =
    Kind::proto("ServiceInsight", "service-insights", "kuma.mesh.v1alpha1.ServiceInsight")
        .flow(17)
        .insight()
        .typed::<ServiceInsight>();

impl MessageSpec for MeshInsight {}
impl MessageSpec for ServiceInsight {}
