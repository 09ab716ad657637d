//! What makes a `MeshCircuitBreaker` valid.

use super::{CircuitBreakerConf, ConnectionLimits, Detectors, MeshCircuitBreaker, OutlierDetection};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, TargetKind,
        TargetKind::*,
        check::{Checks, DEFINED, POSITIVE},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshService, MeshGateway, MeshServiceSubset, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshExternalService, MeshMultiZoneService];

pub(super) fn check(spec: &MeshCircuitBreaker) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        let inbound = !spec.from.is_empty() || !spec.rules.is_empty();
        violations.extend(Allowed::top(TOP, inbound).check(&path.field("targetRef"), target));
    }
    let peers = !spec.to.is_empty() || !spec.from.is_empty();
    if !spec.rules.is_empty() && peers {
        violations.add(path.clone(), "fields 'to' and 'from' must be empty when 'rules' is defined");
    }
    if spec.rules.is_empty() && !peers {
        violations.add(path.clone(), "at least one of 'from', 'to' or 'rules' has to be defined");
    }
    for (list, items, kinds) in [("from", &spec.from, &[Mesh][..]), ("to", &spec.to, TO)] {
        for (i, item) in items.iter().enumerate() {
            let at = path.field(list).index(i);
            violations.extend(Allowed::kinds(kinds).check(&at.field("targetRef"), &item.target_ref));
            violations.extend(check_conf(&at.field("default"), &item.default));
        }
    }
    for (i, item) in spec.rules.iter().enumerate() {
        violations.extend(check_conf(&path.field("rules").index(i).field("default"), &item.default));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &CircuitBreakerConf) -> Violations {
    if *conf == CircuitBreakerConf::default() {
        let reason = "at least one of: 'connectionLimits' or 'outlierDetection' should be configured";
        return Violations::one(path.clone(), reason);
    }
    let mut violations = Violations::none();
    if let Some(limits) = &conf.connection_limits {
        violations.extend(check_limits(&path.field("connectionLimits"), limits));
    }
    if let Some(detection) = &conf.outlier_detection {
        violations.extend(check_detection(&path.field("outlierDetection"), detection));
    }
    violations
}

fn check_limits(path: &FieldPath, limits: &ConnectionLimits) -> Violations {
    let mut violations = Violations::none();
    violations.above_zero(path.field("maxConnections"), limits.max_connections);
    violations.above_zero(path.field("maxConnectionPools"), limits.max_connection_pools);
    violations.above_zero(path.field("maxPendingRequests"), limits.max_pending_requests);
    violations.above_zero(path.field("maxRetries"), limits.max_retries);
    violations.above_zero(path.field("maxRequests"), limits.max_requests);
    violations
}

fn check_detection(path: &FieldPath, detection: &OutlierDetection) -> Violations {
    let mut violations = Violations::none();
    violations.positive(path.field("interval"), detection.interval);
    violations.positive(path.field("baseEjectionTime"), detection.base_ejection_time);
    violations.percent(path.field("maxEjectionPercent"), detection.max_ejection_percent);
    let threshold = detection.healthy_panic_threshold.as_ref();
    violations.decimal_percent(path.field("healthyPanicThreshold"), threshold);
    match &detection.detectors {
        Some(detectors) => violations.extend(check_detectors(&path.field("detectors"), detectors)),
        None if detection.disabled == Some(true) => {}
        None => violations.add(path.field("detectors"), DEFINED),
    }
    violations
}

fn check_detectors(path: &FieldPath, detectors: &Detectors) -> Violations {
    if *detectors == Detectors::default() {
        let reason = "must have at least one defined: totalFailures, gatewayFailures, localOriginFailures, successRate, failurePercentage";
        return Violations::one(path.clone(), reason);
    }
    let mut violations = Violations::none();
    let in_a_row = [
        ("totalFailures", &detectors.total_failures),
        ("gatewayFailures", &detectors.gateway_failures),
        ("localOriginFailures", &detectors.local_origin_failures),
    ];
    for (name, detector) in in_a_row {
        let count = detector.as_ref().and_then(|d| d.consecutive);
        violations.above_zero(path.field(name).field("consecutive"), count);
    }
    if let Some(rate) = &detectors.success_rate {
        let at = path.field("successRate");
        violations.above_zero(at.field("minimumHosts"), rate.minimum_hosts);
        violations.above_zero(at.field("requestVolume"), rate.request_volume);
        let factor = at.field("standardDeviationFactor");
        match rate.standard_deviation_factor.as_ref().map(|f| f.value()) {
            None => {}
            Some(None) => violations.add(factor, "invalid number"),
            Some(Some(value)) => violations.check(value <= 0.0, factor, POSITIVE),
        }
    }
    if let Some(failures) = &detectors.failure_percentage {
        let at = path.field("failurePercentage");
        violations.above_zero(at.field("minimumHosts"), failures.minimum_hosts);
        violations.above_zero(at.field("requestVolume"), failures.request_volume);
        violations.percent(at.field("threshold"), failures.threshold);
    }
    violations
}
