//! `CircuitBreaker`: limits of a cluster, and which hosts are left out. A newer policy wins in what it speaks of.

use common::{
    policy::mesh_circuit_breaker as newer,
    proto::{
        envoy::config::cluster::v3::{
            CircuitBreakers, OutlierDetection, circuit_breakers::Thresholds as EnvoyThresholds,
        },
        google::protobuf::{Duration, UInt32Value},
        kuma::mesh::v1alpha1::circuit_breaker::{
            Conf,
            conf::{Detectors, Thresholds},
        },
    },
};

use super::span;
use crate::{
    generator::{
        ClusterDraft,
        envoy::{duration, number},
    },
    policy::mesh_circuit_breaker::thousandths,
};

pub(super) fn set(cluster: &mut ClusterDraft, conf: &Conf, newer: &newer::CircuitBreakerConf) {
    let limits = conf.thresholds.as_ref().filter(|limits| **limits != Thresholds::default());
    if let Some(limits) = limits.filter(|_| newer.connection_limits.is_none()) {
        cluster.message.circuit_breakers =
            Some(CircuitBreakers { thresholds: vec![thresholds(limits)], ..CircuitBreakers::default() });
    }
    if newer.outlier_detection.is_none() {
        cluster.message.outlier_detection = Some(outlier_detection(conf));
    }
}

fn thresholds(limits: &Thresholds) -> EnvoyThresholds {
    EnvoyThresholds {
        max_connections: limits.max_connections,
        max_pending_requests: limits.max_pending_requests,
        max_requests: limits.max_requests,
        max_retries: limits.max_retries,
        track_remaining: true,
        ..EnvoyThresholds::default()
    }
}

/// Every detector is switched on or off in so many words: several are on in Envoy unless told otherwise.
fn outlier_detection(conf: &Conf) -> OutlierDetection {
    let detectors: Detectors = conf.detectors.unwrap_or_default();
    let enforced = |on: bool| -> Option<UInt32Value> { number(if on { 100 } else { 0 }) };
    let share = |share: Option<UInt32Value>| share.and_then(|share| number(share.value.min(100)));
    let time =
        |given: &Option<Duration>| given.as_ref().map(span).filter(|span| !span.is_zero()).map(duration);
    let Detectors { total_errors, gateway_errors, local_errors, standard_deviation, failure } = &detectors;
    let split = conf.split_external_and_local_errors;
    OutlierDetection {
        interval: time(&conf.interval),
        base_ejection_time: time(&conf.base_ejection_time),
        max_ejection_percent: share(conf.max_ejection_percent),
        split_external_local_origin_errors: split,
        enforcing_consecutive_5xx: enforced(total_errors.is_some()),
        consecutive_5xx: total_errors.as_ref().and_then(|errors| errors.consecutive),
        enforcing_consecutive_gateway_failure: enforced(gateway_errors.is_some()),
        consecutive_gateway_failure: gateway_errors.as_ref().and_then(|errors| errors.consecutive),
        enforcing_consecutive_local_origin_failure: enforced(local_errors.is_some()),
        consecutive_local_origin_failure: local_errors.as_ref().and_then(|errors| errors.consecutive),
        enforcing_success_rate: enforced(standard_deviation.is_some()),
        enforcing_local_origin_success_rate: enforced(standard_deviation.is_some() && split),
        success_rate_minimum_hosts: standard_deviation.as_ref().and_then(|rate| rate.minimum_hosts),
        success_rate_request_volume: standard_deviation.as_ref().and_then(|rate| rate.request_volume),
        success_rate_stdev_factor: standard_deviation
            .as_ref()
            .and_then(|rate| rate.factor)
            .and_then(|factor| number(thousandths(factor.value))),
        enforcing_failure_percentage: enforced(failure.is_some()),
        enforcing_failure_percentage_local_origin: enforced(failure.is_some() && split),
        failure_percentage_minimum_hosts: failure.as_ref().and_then(|failure| failure.minimum_hosts),
        failure_percentage_request_volume: failure.as_ref().and_then(|failure| failure.request_volume),
        failure_percentage_threshold: failure.as_ref().and_then(|failure| share(failure.threshold)),
        ..OutlierDetection::default()
    }
}
