//! `TrafficPermission`: who may call an inbound.

use super::check::{ANYBODY, selectors};
use crate::{
    model::{Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::TrafficPermission,
};

/// The descriptor.
pub static KIND: Kind = super::kind(
    "TrafficPermission",
    "traffic-permissions",
    "kuma.mesh.v1alpha1.TrafficPermission",
    "traffic-permission",
)
.typed::<TrafficPermission>();

impl MessageSpec for TrafficPermission {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, ANYBODY);
        violations.extend(selectors("destinations", &self.destinations, ANYBODY));
        violations
    }
}
