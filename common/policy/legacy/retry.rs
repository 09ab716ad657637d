//! `Retry`: what is tried again.

use std::collections::BTreeMap;

use super::check::{CALLERS, SERVICES, is_nothing, selectors, span_if_set};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    proto::{
        google::protobuf::UInt32Value,
        kuma::mesh::v1alpha1::{
            HttpMethod, HttpRetryOn, Retry,
            retry::{
                Conf,
                conf::{BackOff, Grpc, Http, grpc::RetryOn},
            },
        },
    },
};

/// The descriptor.
pub static KIND: Kind = super::kind("Retry", "retries", "kuma.mesh.v1alpha1.Retry", "retry").typed::<Retry>();

const EMPTY: &str = "field cannot be empty";
const GREATER: &str = "has to be greater than 0";

impl MessageSpec for Retry {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, CALLERS);
        violations.extend(selectors("destinations", &self.destinations, SERVICES));
        let path = FieldPath::new("conf");
        match &self.conf {
            None => violations.add(path, "has to be defined"),
            Some(Conf { http: None, tcp: None, grpc: None }) => {
                violations.add(path, "missing protocol [grpc|http|tcp] configuration");
            }
            Some(Conf { http, tcp, grpc }) => {
                violations
                    .extend(http.as_ref().map(|c| check_http(&path.field("http"), c)).unwrap_or_default());
                violations
                    .extend(grpc.as_ref().map(|c| check_grpc(&path.field("grpc"), c)).unwrap_or_default());
                let none = tcp.as_ref().is_some_and(|tcp| tcp.max_connect_attempts == 0);
                violations.check(none, path.field("tcp").field("maxConnectAttempts"), GREATER);
            }
        }
        violations
    }
}

fn check_http(path: &FieldPath, conf: &Http) -> Violations {
    let mut violations = Violations::none();
    violations.check(*conf == Http::default(), path.clone(), EMPTY);
    count_if_set(conf.num_retries.as_ref(), path.field("numRetries"), &mut violations);
    span_if_set(conf.per_try_timeout.as_ref(), path.field("perTryTimeout"), &mut violations);
    check_back_off(&path.field("backOff"), conf.back_off.as_ref(), &mut violations);
    for (i, method) in conf.retriable_methods().enumerate() {
        violations.check(method == HttpMethod::None, path.field("retriableMethods").index(i), EMPTY);
    }
    for (i, condition) in conf.retry_on().enumerate() {
        let lacks_codes =
            condition == HttpRetryOn::RetriableStatusCodes && conf.retriable_status_codes.is_empty();
        let reason = "retriableStatusCodes cannot be empty when this option is specified";
        violations.check(lacks_codes, path.field("retryOn").index(i), reason);
    }
    violations
}

fn check_grpc(path: &FieldPath, conf: &Grpc) -> Violations {
    let mut violations = Violations::none();
    violations.check(*conf == Grpc::default(), path.clone(), EMPTY);
    let mut places: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for (i, status) in conf.retry_on().enumerate() {
        places.entry(RetryOn::as_str_name(&status)).or_default().push(i.to_string());
    }
    for (status, places) in places.into_iter().filter(|(_, places)| places.len() > 1) {
        let reason = format!("repeated value {status:?} at indexes [{}]", places.join(", "));
        violations.add(path.field("retryOn"), reason);
    }
    count_if_set(conf.num_retries.as_ref(), path.field("numRetries"), &mut violations);
    span_if_set(conf.per_try_timeout.as_ref(), path.field("perTryTimeout"), &mut violations);
    check_back_off(&path.field("backOff"), conf.back_off.as_ref(), &mut violations);
    violations
}

fn count_if_set(count: Option<&UInt32Value>, path: FieldPath, violations: &mut Violations) {
    violations.check(count.is_some_and(|count| count.value == 0), path, format!("{GREATER} when defined"));
}

fn check_back_off(path: &FieldPath, conf: Option<&BackOff>, violations: &mut Violations) {
    let Some(conf) = conf else { return };
    match &conf.base_interval {
        None => violations.add(path.field("baseInterval"), "has to be defined"),
        Some(base) if is_nothing(base) => violations.add(path.field("baseInterval"), GREATER),
        Some(_) => span_if_set(conf.max_interval.as_ref(), path.field("maxInterval"), violations),
    }
}
