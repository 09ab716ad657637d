//! `MeshCircuitBreaker`: limits of every cluster, and which hosts are left out.

use common::{
    model::{Duration, Kind},
    policy::{
        IntOrString,
        mesh_circuit_breaker::{self, CircuitBreakerConf, ConnectionLimits, Detectors, OutlierDetection},
    },
    proto::{
        envoy::{
            config::cluster::v3::{
                self as envoy, CircuitBreakers, circuit_breakers::Thresholds, cluster::CommonLbConfig,
            },
            r#type::v3::Percent,
        },
        google::protobuf::UInt32Value,
    },
};

use super::{InboundConfs, OutboundConfs, PolicyEffect, Reporter, inbound_of};
use crate::{
    generator::{
        Backend, ClusterDraft, Draft, Role,
        envoy::{duration, number},
    },
    mesh::MeshContext,
};

/// See the module.
pub(super) struct MeshCircuitBreakerEffect;

impl PolicyEffect for MeshCircuitBreakerEffect {
    const KIND: &'static Kind = &mesh_circuit_breaker::KIND;
    type Conf = CircuitBreakerConf;

    fn inbounds(
        &self,
        _mesh: &MeshContext,
        confs: &InboundConfs<'_, CircuitBreakerConf>,
        draft: &mut Draft,
        reporter: &mut Reporter<'_>,
    ) {
        for cluster in draft.clusters.values_mut() {
            if let Some(inbound) = inbound_of(&cluster.role) {
                let conf = confs.of(inbound, reporter);
                set(cluster, &conf.unwrap_or_default());
            } else if matches!(cluster.role, Role::Telemetry(_) | Role::Machine(_)) {
                set(cluster, &CircuitBreakerConf::default());
            }
        }
    }

    fn cluster(
        &self,
        confs: &OutboundConfs<'_, CircuitBreakerConf>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        set(cluster, &confs.of(backend, reporter).unwrap_or_default());
    }
}

pub(super) fn set(cluster: &mut ClusterDraft, conf: &CircuitBreakerConf) {
    let limits = conf.connection_limits.clone().unwrap_or_default();
    cluster.message.circuit_breakers =
        Some(CircuitBreakers { thresholds: vec![thresholds(&limits)], ..CircuitBreakers::default() });
    let enabled = conf.outlier_detection.as_ref().filter(|o| o.disabled != Some(true));
    let Some(detection) = enabled else { return };
    cluster.message.outlier_detection = Some(outlier_detection(detection));
    if let Some(share) = detection.healthy_panic_threshold.as_ref().and_then(IntOrString::value) {
        let panic = Some(Percent { value: share.clamp(0.0, 100.0) });
        let common = cluster.message.common_lb_config.get_or_insert_with(CommonLbConfig::default);
        common.healthy_panic_threshold = panic;
    }
}

/// Remaining capacity is always tracked, so that it shows in metrics before anything trips.
fn thresholds(limits: &ConnectionLimits) -> Thresholds {
    let limit = |value: Option<u32>| value.and_then(number);
    Thresholds {
        max_connections: limit(limits.max_connections),
        max_connection_pools: limit(limits.max_connection_pools),
        max_pending_requests: limit(limits.max_pending_requests),
        max_retries: limit(limits.max_retries),
        max_requests: limit(limits.max_requests),
        track_remaining: true,
        ..Thresholds::default()
    }
}

/// Every detector is switched on or off in so many words: several are on in Envoy unless told otherwise.
fn outlier_detection(conf: &OutlierDetection) -> envoy::OutlierDetection {
    let none = Detectors::default();
    let detectors = conf.detectors.as_ref().unwrap_or(&none);
    let given = |value: Option<u32>| value.and_then(number);
    let share = |value: Option<u32>| given(value.map(|percent| percent.min(100)));
    let span =
        |value: Option<Duration>| value.map(Duration::to_std).filter(|span| !span.is_zero()).map(duration);
    let enforced = |on: bool| -> Option<UInt32Value> { number(if on { 100 } else { 0 }) };

    let (total, gateway, local) =
        (&detectors.total_failures, &detectors.gateway_failures, &detectors.local_origin_failures);
    let (rate, percentage) = (&detectors.success_rate, &detectors.failure_percentage);
    let split = conf.split_external_and_local_errors == Some(true);
    envoy::OutlierDetection {
        interval: span(conf.interval),
        base_ejection_time: span(conf.base_ejection_time),
        max_ejection_percent: share(conf.max_ejection_percent),
        split_external_local_origin_errors: split,
        enforcing_consecutive_5xx: enforced(total.is_some()),
        consecutive_5xx: total.as_ref().and_then(|t| given(t.consecutive)),
        enforcing_consecutive_gateway_failure: enforced(gateway.is_some()),
        consecutive_gateway_failure: gateway.as_ref().and_then(|g| given(g.consecutive)),
        enforcing_consecutive_local_origin_failure: enforced(local.is_some()),
        consecutive_local_origin_failure: local.as_ref().and_then(|l| given(l.consecutive)),
        enforcing_success_rate: enforced(rate.is_some()),
        enforcing_local_origin_success_rate: enforced(rate.is_some() && split),
        success_rate_minimum_hosts: rate.as_ref().and_then(|r| given(r.minimum_hosts)),
        success_rate_request_volume: rate.as_ref().and_then(|r| given(r.request_volume)),
        success_rate_stdev_factor: rate
            .as_ref()
            .and_then(|r| r.standard_deviation_factor.as_ref())
            .and_then(IntOrString::value)
            .and_then(|factor| number(thousandths(factor))),
        enforcing_failure_percentage: enforced(percentage.is_some()),
        enforcing_failure_percentage_local_origin: enforced(percentage.is_some() && split),
        failure_percentage_minimum_hosts: percentage.as_ref().and_then(|p| given(p.minimum_hosts)),
        failure_percentage_request_volume: percentage.as_ref().and_then(|p| given(p.request_volume)),
        failure_percentage_threshold: percentage.as_ref().and_then(|p| share(p.threshold)),
        ..envoy::OutlierDetection::default()
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the range of u32")]
pub(super) fn thousandths(factor: f64) -> u32 {
    (factor * 1000.0).round().clamp(0.0, f64::from(u32::MAX)) as u32
}
