//! `FaultInjection`: requests to an inbound that fail, wait or trickle on purpose.

use super::check::{ANYBODY, SHARE, SelectorRequirements, selectors, share};
use crate::{
    model::{FieldPath, Kind, MessageSpec, Violations},
    policy::mesh_fault_injection::Bandwidth,
    proto::{
        google::protobuf::DoubleValue,
        kuma::mesh::v1alpha1::{
            FaultInjection,
            fault_injection::{
                Conf,
                conf::{Abort, Delay, ResponseBandwidth},
            },
        },
    },
};

/// The descriptor.
pub static KIND: Kind =
    super::kind("FaultInjection", "fault-injections", "kuma.mesh.v1alpha1.FaultInjection", "fault-injection")
        .typed::<FaultInjection>();

const EMPTY: &str = "cannot be empty";

impl MessageSpec for FaultInjection {
    fn violations(&self) -> Violations {
        let mut violations = selectors("sources", &self.sources, ANYBODY);
        violations.extend(selectors(
            "destinations",
            &self.destinations,
            SelectorRequirements { http: true, ..ANYBODY },
        ));
        violations.extend(check(&FieldPath::new("conf"), &self.conf.clone().unwrap_or_default()));
        violations
    }
}

fn check(path: &FieldPath, conf: &Conf) -> Violations {
    let mut violations = Violations::none();
    let delay = conf.delay.as_ref().filter(|delay| **delay != Delay::default());
    let abort = conf.abort.as_ref().filter(|abort| **abort != Abort::default());
    let bandwidth = conf.response_bandwidth.as_ref().filter(|limit| **limit != ResponseBandwidth::default());
    let nothing = delay.is_none() && abort.is_none() && bandwidth.is_none();
    violations.check(nothing, path.clone(), "must have at least one of the faults configured");
    if let Some(delay) = delay {
        let path = path.field("delay");
        check_share(&path, delay.percentage.as_ref(), &mut violations);
        violations.check(delay.value.is_none(), path.field("value"), EMPTY);
    }
    if let Some(abort) = abort {
        let path = path.field("abort");
        check_share(&path, abort.percentage.as_ref(), &mut violations);
        let at = path.field("httpStatus");
        match &abort.http_status {
            None => violations.add(at, EMPTY),
            Some(status) => violations.check(!is_status(status.value), at, "http status code is incorrect"),
        }
    }
    if let Some(bandwidth) = bandwidth {
        let path = path.field("responseBandwidth");
        check_share(&path, bandwidth.percentage.as_ref(), &mut violations);
        let at = path.field("limit");
        match &bandwidth.limit {
            None => violations.add(at, EMPTY),
            Some(limit) => {
                let unit = ["kbps", "mbps", "gbps"].iter().any(|unit| limit.value.contains(unit));
                violations.check(!unit, at, "has to be in kbps/mbps/gbps units");
            }
        }
    }
    violations
}

/// Whether there are answers with this status.
fn is_status(status: u32) -> bool {
    let status = u16::try_from(status).ok().and_then(|status| http::StatusCode::from_u16(status).ok());
    status.is_some_and(|status| status.canonical_reason().is_some())
}

fn check_share(path: &FieldPath, percentage: Option<&DoubleValue>, violations: &mut Violations) {
    let path = path.field("percentage");
    match percentage {
        None => violations.add(path, EMPTY),
        Some(percentage) => share(percentage.value, path, SHARE, violations),
    }
}

/// The speed that `limit` means; `None` when it is none. The units are written in small letters.
pub fn bandwidth(limit: &str) -> Option<Bandwidth> {
    limit.trim().replace("mbps", "Mbps").replace("gbps", "Gbps").parse().ok()
}
