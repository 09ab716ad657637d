//! `TrafficLog`: lines about what is called, to a backend of the mesh.

use super::check::{CALLERS, SERVICES, selectors};
use crate::{
    model::{Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::TrafficLog,
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("TrafficLog", "traffic-logs", "kuma.mesh.v1alpha1.TrafficLog", "traffic-log")
        .typed::<TrafficLog>();

// Without a backend it means the default one of the mesh.
impl MessageSpec for TrafficLog {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, CALLERS);
        violations.extend(selectors("destinations", &self.destinations, SERVICES));
        violations
    }
}
