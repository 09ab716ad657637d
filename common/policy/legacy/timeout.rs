//! `Timeout`: how long connections and requests to a service may take.

use super::check::{CALLERS, SERVICES, is_nothing, selectors, span_if_set};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::kuma::mesh::v1alpha1::{Timeout, timeout::Conf},
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("Timeout", "timeouts", "kuma.mesh.v1alpha1.Timeout", "timeout").typed::<Timeout>();

const NONE_SET: &str = "at least one timeout in section has to be defined";

impl MessageSpec for Timeout {
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
    if let Some(tcp) = &conf.tcp {
        let path = path.field("tcp");
        match &tcp.idle_timeout {
            None => violations.add(path, NONE_SET),
            Some(span) => {
                violations.check(is_nothing(span), path.field("idleTimeout"), "has to be greater than 0");
            }
        }
    }
    if let Some(http) = &conf.http {
        let path = path.field("http");
        if http.request_timeout.is_none() && http.idle_timeout.is_none() {
            violations.add(path, NONE_SET);
        } else {
            span_if_set(http.request_timeout.as_ref(), path.field("requestTimeout"), &mut violations);
            span_if_set(http.idle_timeout.as_ref(), path.field("idleTimeout"), &mut violations);
        }
    }
    if let Some(grpc) = &conf.grpc {
        let path = path.field("grpc");
        if grpc.stream_idle_timeout.is_none() && grpc.max_stream_duration.is_none() {
            violations.add(path, NONE_SET);
        } else {
            span_if_set(grpc.stream_idle_timeout.as_ref(), path.field("streamIdleTimeout"), &mut violations);
            span_if_set(grpc.max_stream_duration.as_ref(), path.field("maxStreamDuration"), &mut violations);
        }
    }
    violations
}
