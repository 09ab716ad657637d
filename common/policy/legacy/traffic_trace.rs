//! `TrafficTrace`: spans of requests, to a backend of the mesh.

use super::check::{ANYBODY, selectors};
use crate::{
    model::{Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::TrafficTrace,
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("TrafficTrace", "traffic-traces", "kuma.mesh.v1alpha1.TrafficTrace", "traffic-trace")
        .typed::<TrafficTrace>();

// Without a backend it means the default one of the mesh.
impl MessageSpec for TrafficTrace {
    fn violations(&self) -> Violations {
        selectors("selectors", &self.selectors, ANYBODY)
    }
}
