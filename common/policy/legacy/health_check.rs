//! `HealthCheck`: the hosts of a service are asked whether they are well.

use super::check::{CALLERS, SERVICES, positive_span, selectors, share};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{
        HealthCheck,
        health_check::{Conf, conf::Http},
    },
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("HealthCheck", "health-checks", "kuma.mesh.v1alpha1.HealthCheck", "healthcheck")
        .typed::<HealthCheck>();

impl MessageSpec for HealthCheck {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, CALLERS);
        violations.extend(selectors("destinations", &self.destinations, SERVICES));
        let path = FieldPath::new("conf");
        match &self.conf {
            None => violations.add(path, "has to be defined"),
            Some(conf) => violations.extend(check(&path, conf)),
        }
        violations
    }
}

fn check(path: &FieldPath, conf: &Conf) -> Violations {
    let mut violations = Violations::none();
    positive_span(conf.interval.as_ref(), path.field("interval"), &mut violations);
    positive_span(conf.timeout.as_ref(), path.field("timeout"), &mut violations);
    for (count, name) in
        [(conf.unhealthy_threshold, "unhealthyThreshold"), (conf.healthy_threshold, "healthyThreshold")]
    {
        violations.check(count == 0, path.field(name), "must have a positive value");
    }
    let spans = [
        (&conf.initial_jitter, "initialJitter"),
        (&conf.interval_jitter, "intervalJitter"),
        (&conf.no_traffic_interval, "noTrafficInterval"),
    ];
    for (span, name) in spans.into_iter().filter(|(span, _)| span.is_some()) {
        positive_span(span.as_ref(), path.field(name), &mut violations);
    }
    let panic = conf.healthy_panic_threshold.map_or(0.0, |threshold| f64::from(threshold.value));
    let at = path.field("healthyPanicThreshold");
    share(panic, at, "must be in range [0.0 - 100.0]", &mut violations);
    if let Some(http) = &conf.http {
        violations.extend(check_http(&path.field("http"), http));
    }
    let both = conf.tcp.is_some() && conf.http.is_some();
    violations.check(both, path.clone(), "http and tcp cannot be defined at the same time");
    violations
}

fn check_http(path: &FieldPath, http: &Http) -> Violations {
    let mut violations = Violations::none();
    violations.check(http.path.is_empty(), path.field("path"), "has to be defined and cannot be empty");
    for (i, status) in http.expected_statuses.iter().enumerate() {
        let known = (100..600).contains(&status.value);
        violations.check(!known, path.field("expectedStatuses").index(i), "must be in range [100, 600)");
    }
    for (i, added) in http.request_headers_to_add.iter().enumerate() {
        let path = path.field("requestHeadersToAdd").index(i).field("header");
        match &added.header {
            None => violations.add(path, "has to be defined"),
            Some(header) => violations.check(header.key.is_empty(), path.field("key"), "cannot be empty"),
        }
    }
    violations
}
