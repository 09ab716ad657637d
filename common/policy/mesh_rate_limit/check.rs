//! What makes a `MeshRateLimit` valid.

use super::{LocalHttp, LocalTcp, MeshRateLimit, Rate, RateLimitConf};
use crate::{
    model::{Duration, FieldPath, Violations},
    policy::{
        Allowed, InboundItem, PeerItem, TargetKind,
        TargetKind::*,
        TargetRef,
        check::{Checks, DEFINED, NOT_DEFINED, OF_CLIENT},
    },
};

const TOP: &[TargetKind] =
    &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, MeshHttpRoute, Dataplane];

/// The time a limit is for is longer than this: Envoy refills its buckets no more often.
const SHORTEST: Duration = Duration::from_millis(50);

pub(super) fn check(spec: &MeshRateLimit) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if !spec.rules.is_empty() && (!spec.to.is_empty() || !spec.from.is_empty()) {
        violations.add(path.clone(), "fields 'to' and 'from' must be empty when 'rules' is defined");
    }
    if let Some(target) = &spec.target_ref {
        let inbound = !spec.from.is_empty() || !spec.rules.is_empty();
        violations.extend(Allowed::top(TOP, inbound).check(&path.field("targetRef"), target));
    }
    let top = spec.target_ref.clone().unwrap_or_else(TargetRef::mesh);
    violations.extend(check_rules(&path.field("rules"), &top, &spec.rules));
    violations.extend(check_from(&path.field("from"), &top, &spec.from));
    let to = path.field("to");
    if !spec.to.is_empty() && !top.includes_gateways() {
        violations.add(to, NOT_DEFINED);
    } else {
        violations.extend(check_items(&to, &spec.to));
    }
    violations
}

fn check_rules(path: &FieldPath, top: &TargetRef, rules: &[InboundItem<RateLimitConf>]) -> Violations {
    if !rules.is_empty() && top.includes_gateways() {
        return Violations::one(path.clone(), NOT_DEFINED);
    }
    let mut violations = Violations::none();
    for (i, rule) in rules.iter().enumerate() {
        let at = path.index(i);
        violations.extend(rule.check_matches(&at));
        if rule.matches.iter().any(|peer| peer.spiffe_id.is_some()) {
            let local = rule.default.local.as_ref().and_then(|local| local.tcp.as_ref());
            violations.absent(at.field("default").field("local").field("tcp"), local, OF_CLIENT);
        }
        violations.extend(check_conf(&at.field("default"), &rule.default));
    }
    violations
}

fn check_from(path: &FieldPath, top: &TargetRef, from: &[PeerItem<RateLimitConf>]) -> Violations {
    if !from.is_empty() && top.includes_gateways() {
        let reason = format!(
            "{NOT_DEFINED} when the scope includes a Gateway, select only proxyType Sidecar or select only gateways and use spec.to"
        );
        return Violations::one(path.clone(), reason);
    }
    check_items(path, from)
}

fn check_items(path: &FieldPath, items: &[PeerItem<RateLimitConf>]) -> Violations {
    let mut violations = Violations::none();
    for (i, item) in items.iter().enumerate() {
        let at = path.index(i);
        violations.extend(Allowed::kinds(&[Mesh]).check(&at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(&at.field("default"), &item.default));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &RateLimitConf) -> Violations {
    let path = path.field("local");
    let Some(local) = &conf.local else { return Violations::one(path, DEFINED) };
    let mut violations = Violations::none();
    if local.tcp.is_none() && local.http.is_none() {
        violations.add(path.clone(), "must have at least one defined: tcp, http");
    }
    if let Some(http) = &local.http {
        violations.extend(check_http(&path.field("http"), http));
    }
    if let Some(tcp) = &local.tcp {
        violations.extend(check_tcp(&path.field("tcp"), tcp));
    }
    violations
}

fn check_http(path: &FieldPath, http: &LocalHttp) -> Violations {
    if *http == LocalHttp::default() {
        let reason = "must have at least one defined: disabled, requestRate, onRateLimit";
        return Violations::one(path.clone(), reason);
    }
    let mut violations = Violations::none();
    violations.extend(check_rate(&path.field("requestRate"), http.request_rate));
    if let Some(answer) = &http.on_rate_limit {
        let at = path.field("onRateLimit");
        violations.above_zero(at.field("status"), answer.status);
        if let Some(headers) = &answer.headers {
            violations.extend(headers.check(&at.field("headers")));
        }
    }
    violations
}

fn check_tcp(path: &FieldPath, tcp: &LocalTcp) -> Violations {
    if *tcp == LocalTcp::default() {
        return Violations::one(path.clone(), "must have at least one defined: disabled, connectionRate");
    }
    check_rate(&path.field("connectionRate"), tcp.connection_rate)
}

fn check_rate(path: &FieldPath, rate: Option<Rate>) -> Violations {
    let mut violations = Violations::none();
    if let Some(rate) = rate {
        violations.check(rate.num == 0, path.field("num"), "must be greater than 0");
        let short = rate.interval.nanos() <= SHORTEST.nanos();
        violations.check(short, path.field("interval"), format!("must be greater than: {SHORTEST}"));
    }
    violations
}
