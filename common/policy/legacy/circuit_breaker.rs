//! `CircuitBreaker`: limits of a cluster, and which hosts are left out.

use super::check::{CALLERS, SERVICES, SHARE, selectors, share};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{
        CircuitBreaker,
        circuit_breaker::conf::{Detectors, Thresholds},
    },
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("CircuitBreaker", "circuit-breakers", "kuma.mesh.v1alpha1.CircuitBreaker", "circuit-breaker")
        .typed::<CircuitBreaker>();

impl MessageSpec for CircuitBreaker {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, CALLERS);
        violations.extend(selectors("destinations", &self.destinations, SERVICES));
        let path = FieldPath::new("conf");
        let conf = self.conf.unwrap_or_default();
        let no_detectors = conf.detectors.as_ref().is_none_or(|d| *d == Detectors::default());
        let no_thresholds = conf.thresholds.as_ref().is_none_or(|t| *t == Thresholds::default());
        if no_detectors && no_thresholds {
            violations.add(path, "must have at least one of the detector or threshold configured");
            return violations;
        }
        let detectors = path.field("detectors");
        violations.check(conf.detectors.is_some() && no_detectors, detectors.clone(), "can't be empty");
        let ejected = conf.max_ejection_percent.map_or(0, |percent| percent.value);
        share(f64::from(ejected), path.field("maxEjectionPercent"), SHARE, &mut violations);
        let failure = conf.detectors.and_then(|detectors| detectors.failure);
        let threshold = failure.and_then(|failure| failure.threshold).map_or(0, |percent| percent.value);
        let at = detectors.field("failure").field("threshold");
        share(f64::from(threshold), at, SHARE, &mut violations);
        violations.check(
            conf.thresholds.is_some() && no_thresholds,
            path.field("thresholds"),
            "can't be empty",
        );
        violations
    }
}
