//! `MeshHealthCheck`: the hosts of a cluster are asked whether they are well.

mod checker;

use common::{
    model::{Duration, Kind},
    policy::{
        IntOrString,
        mesh_health_check::{self, HealthCheckConf},
    },
    proto::{
        envoy::{
            config::{
                cluster::v3::cluster::{
                    CommonLbConfig,
                    common_lb_config::{LocalityConfigSpecifier, ZoneAwareLbConfig},
                },
                core::v3::{HealthCheck, TypedExtensionConfig, health_check::HealthChecker},
            },
            extensions::health_check::event_sinks::file::v3::HealthCheckEventFileSink,
            r#type::v3::Percent,
        },
        google::protobuf,
    },
};

use super::{OutboundConfs, PolicyEffect, Reporter};
use crate::{
    generator::{
        Backend, ClusterDraft,
        envoy::{cluster::pack, duration, flag, number},
    },
    mesh::Destination,
};

/// See the module.
pub(super) struct MeshHealthCheckEffect;

impl PolicyEffect for MeshHealthCheckEffect {
    const KIND: &'static Kind = &mesh_health_check::KIND;
    type Conf = HealthCheckConf;

    fn cluster(
        &self,
        confs: &OutboundConfs<'_, HealthCheckConf>,
        backend: &Backend,
        cluster: &mut ClusterDraft,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(conf) = confs.of(backend, reporter) else { return };
        if let Some(share) = conf.healthy_panic_threshold.as_ref().and_then(IntOrString::value) {
            let panic = Some(Percent { value: share.clamp(0.0, 100.0) });
            common(cluster).healthy_panic_threshold = panic;
        }
        if let Some(fail) = conf.fail_traffic_on_panic {
            fail_traffic_on_panic(common(cluster), fail, reporter);
        }
        // An ingress passes on TLS that is not its own: nobody behind it would answer what it asks in plaintext.
        if matches!(backend.destination, Destination::Here(_)) {
            return;
        }
        if let Some(checker) = checker::of(backend.protocol, &conf, reporter) {
            cluster.message.health_checks.push(health_check(&conf, checker));
        }
    }
}

pub(super) fn common(cluster: &mut ClusterDraft) -> &mut CommonLbConfig {
    cluster.message.common_lb_config.get_or_insert_with(CommonLbConfig::default)
}

/// A cluster that weighs localities has no place for it.
pub(super) fn fail_traffic_on_panic(common: &mut CommonLbConfig, fail: bool, reporter: &mut Reporter<'_>) {
    let specifier = common
        .locality_config_specifier
        .get_or_insert_with(|| LocalityConfigSpecifier::ZoneAwareLbConfig(ZoneAwareLbConfig::default()));
    match specifier {
        LocalityConfigSpecifier::ZoneAwareLbConfig(zones) => zones.fail_traffic_on_panic = fail,
        LocalityConfigSpecifier::LocalityWeightedLbConfig(_) => {
            reporter.report("failTrafficOnPanic is left out, because localities have weights");
        }
    }
}

fn health_check(conf: &HealthCheckConf, checker: HealthChecker) -> HealthCheck {
    let span = |given: Option<Duration>| given.filter(|span| !span.is_zero()).map(proto);
    let count = |given: Option<i32>, otherwise| {
        number(given.and_then(|count| u32::try_from(count).ok()).unwrap_or(otherwise))
    };
    let logger = conf.event_log_path.as_deref().and_then(event_logger);
    HealthCheck {
        interval: Some(proto(conf.interval.unwrap_or(Duration::from_secs(60)))),
        timeout: Some(proto(conf.timeout.unwrap_or(Duration::from_secs(15)))),
        unhealthy_threshold: count(conf.unhealthy_threshold, 5),
        healthy_threshold: count(conf.healthy_threshold, 1),
        initial_jitter: span(conf.initial_jitter),
        interval_jitter: span(conf.interval_jitter),
        interval_jitter_percent: conf
            .interval_jitter_percent
            .and_then(|share| u32::try_from(share).ok())
            .unwrap_or_default(),
        no_traffic_interval: span(conf.no_traffic_interval),
        event_logger: logger.into_iter().collect(),
        always_log_health_check_failures: conf.always_log_health_check_failures == Some(true),
        reuse_connection: conf.reuse_connection.and_then(flag),
        health_checker: Some(checker),
        ..HealthCheck::default()
    }
}

/// Who notes what becomes of hosts, in a file.
pub(super) fn event_logger(path: &str) -> Option<TypedExtensionConfig> {
    (!path.is_empty()).then(|| TypedExtensionConfig {
        name: "envoy.health_check.event_sinks.file".to_owned(),
        typed_config: Some(pack(&HealthCheckEventFileSink { event_log_path: path.to_owned() })),
    })
}

fn proto(span: Duration) -> protobuf::Duration {
    duration(span.to_std())
}
