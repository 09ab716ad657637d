//! What makes a `MeshLoadBalancingStrategy` valid.

use super::{
    CrossZone, Failover, HashPolicy, HashPolicyType, LeastRequest, LoadBalancer, LoadBalancerType,
    LoadBalancingConf, LocalZone, Maglev, MeshLoadBalancingStrategy, RingHash, ToZoneType,
};
use crate::{
    model::{FieldPath, Violations},
    policy::{
        Allowed, IntOrString, TargetKind,
        TargetKind::*,
        TargetRef,
        check::{DEFINED, NOT_EMPTY},
    },
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, MeshGateway, MeshService, MeshServiceSubset, Dataplane];
const TO: &[TargetKind] = &[Mesh, MeshService, MeshMultiZoneService, MeshHttpRoute];
const FROM_GATEWAY: &[TargetKind] = &[Mesh, MeshService, MeshMultiZoneService];

pub(super) fn check(spec: &MeshLoadBalancingStrategy) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::top(TOP, false).check(&path.field("targetRef"), target));
    }
    violations.check(spec.to.is_empty(), path.field("to"), "needs at least one item");
    let gateway = spec.target_ref.as_ref().is_some_and(|target| target.kind == MeshGateway);
    for (i, item) in spec.to.iter().enumerate() {
        let at = path.field("to").index(i);
        let allowed = match gateway {
            false => Allowed::kinds(TO),
            true if item.default.load_balancer.is_some() => Allowed {
                unsupported: Some("value is not supported, only Mesh is allowed if loadBalancer is set"),
                ..Allowed::kinds(&[Mesh])
            },
            true => Allowed::kinds(FROM_GATEWAY),
        };
        violations.extend(allowed.check(&at.field("targetRef"), &item.target_ref));
        violations.extend(check_conf(&at.field("default"), &item.default, &item.target_ref));
    }
    violations
}

fn check_conf(path: &FieldPath, conf: &LoadBalancingConf, to: &TargetRef) -> Violations {
    let hashed = conf.hash_policies.as_deref().unwrap_or_default();
    let mut violations = check_hash_policies(&path.field("hashPolicies"), hashed);
    if to.kind == MeshHttpRoute {
        let reason =
            "field is not allowed when targetRef.kind is MeshHTTPRoute, only hashPolicies is supported";
        violations.check(conf.load_balancer.is_some(), path.field("loadBalancer"), reason);
        violations.check(conf.locality_awareness.is_some(), path.field("localityAwareness"), reason);
        return violations;
    }
    if let Some(balancer) = &conf.load_balancer {
        violations.extend(check_balancer(&path.field("loadBalancer"), balancer));
        let ring = balancer.ring_hash.as_ref().is_some_and(|ring| ring.hash_policies.is_some());
        let maglev = balancer.maglev.as_ref().is_some_and(|maglev| maglev.hash_policies.is_some());
        for (name, twice) in [("ringHash", ring), ("maglev", maglev)] {
            let at = path.field("loadBalancer").field(name).field("hashPolicies");
            let twice = twice && conf.hash_policies.is_some();
            violations.check(twice, at, "hashPolicies already specified in the root level");
        }
    }
    if let Some(locality) = &conf.locality_awareness {
        let at = path.field("localityAwareness");
        if let Some(local) = &locality.local_zone {
            violations.extend(check_local_zone(&at.field("localZone"), local));
        }
        if let Some(cross) = &locality.cross_zone {
            violations.extend(check_cross_zone(&at.field("crossZone"), cross, to));
        }
    }
    violations
}

fn check_balancer(path: &FieldPath, balancer: &LoadBalancer) -> Violations {
    let mut violations = Violations::none();
    if let Some(least) = &balancer.least_request {
        violations.extend(check_least_request(&path.field("leastRequest"), least, balancer.kind));
    }
    if let Some(ring) = &balancer.ring_hash {
        violations.extend(check_ring(&path.field("ringHash"), ring, balancer.kind));
    }
    if let Some(maglev) = &balancer.maglev {
        violations.extend(check_maglev(&path.field("maglev"), maglev, balancer.kind));
    }
    violations
}

fn check_least_request(path: &FieldPath, least: &LeastRequest, kind: LoadBalancerType) -> Violations {
    let mut violations = Violations::none();
    within(&mut violations, path.field("choiceCount"), least.choice_count, 2, u32::MAX);
    let at = path.field("activeRequestBias");
    match least.active_request_bias.as_ref().map(IntOrString::value) {
        Some(None) => violations.add(at, "string must be a valid number"),
        Some(Some(bias)) if kind == LoadBalancerType::LeastRequest => {
            violations.check(bias < 0.0, at, "must be greater or equal then: 0");
        }
        _ => {}
    }
    violations
}

fn check_ring(path: &FieldPath, ring: &RingHash, kind: LoadBalancerType) -> Violations {
    let mut violations = Violations::none();
    within(&mut violations, path.field("minRingSize"), ring.min_ring_size, 1, 8_000_000);
    within(&mut violations, path.field("maxRingSize"), ring.max_ring_size, 1, 8_000_000);
    if kind == LoadBalancerType::RingHash {
        let hashed = ring.hash_policies.as_deref().unwrap_or_default();
        violations.extend(check_hash_policies(&path.field("hashPolicies"), hashed));
    }
    violations
}

fn check_maglev(path: &FieldPath, maglev: &Maglev, kind: LoadBalancerType) -> Violations {
    let mut violations = Violations::none();
    within(&mut violations, path.field("tableSize"), maglev.table_size, 1, 5_000_011);
    if kind == LoadBalancerType::Maglev {
        let hashed = maglev.hash_policies.as_deref().unwrap_or_default();
        violations.extend(check_hash_policies(&path.field("hashPolicies"), hashed));
    }
    violations
}

fn within(violations: &mut Violations, path: FieldPath, value: Option<u32>, least: u32, most: u32) {
    match value {
        Some(value) if value < least => {
            violations.add(path, format!("in body should be greater than or equal to {least}"));
        }
        Some(value) if value > most => {
            violations.add(path, format!("in body should be less than or equal to {most}"));
        }
        _ => {}
    }
}

fn check_hash_policies(path: &FieldPath, policies: &[HashPolicy]) -> Violations {
    let mut violations = Violations::none();
    let short = "in body should be at least 1 chars long";
    for (i, policy) in policies.iter().enumerate() {
        let at = path.index(i);
        let (member, there) = match policy.kind {
            HashPolicyType::Header => ("header", policy.header.is_some()),
            HashPolicyType::Cookie => ("cookie", policy.cookie.is_some()),
            HashPolicyType::Connection | HashPolicyType::SourceIP => {
                ("connection", policy.connection.is_some())
            }
            HashPolicyType::QueryParameter => ("queryParameter", policy.query_parameter.is_some()),
            HashPolicyType::FilterState => ("filterState", policy.filter_state.is_some()),
        };
        violations.check(!there, at.field(member), DEFINED);
        for (member, named) in [("header", &policy.header), ("queryParameter", &policy.query_parameter)] {
            let nameless = named.as_ref().is_some_and(|named| named.name.is_empty());
            violations.check(nameless, at.field(member).field("name"), short);
        }
        if let Some(cookie) = &policy.cookie {
            let at = at.field("cookie");
            violations.check(cookie.name.is_empty(), at.field("name"), short);
            let relative = cookie.path.as_ref().is_some_and(|path| !path.starts_with('/'));
            let hashed = policy.kind == HashPolicyType::Cookie;
            violations.check(hashed && relative, at.field("path"), "must be an absolute path");
        }
        let keyless = policy.filter_state.as_ref().is_some_and(|state| state.key.is_empty());
        violations.check(keyless, at.field("filterState").field("key"), short);
    }
    violations
}

fn check_local_zone(path: &FieldPath, local: &LocalZone) -> Violations {
    let mut violations = Violations::none();
    let tags = local.affinity_tags.as_deref().unwrap_or_default();
    let path = path.field("affinityTags");
    for (i, tag) in tags.iter().enumerate() {
        violations.check(tag.key.is_empty(), path.index(i).field("key"), NOT_EMPTY);
        violations.check(tag.weight == Some(0), path.index(i).field("weight"), "must be greater than 0");
    }
    let weighted = tags.iter().filter(|tag| tag.weight.is_some()).count();
    let mixed = weighted > 0 && weighted != tags.len();
    violations.check(mixed, path, "all or none affinity tags should have weight");
    violations
}

fn check_cross_zone(path: &FieldPath, cross: &CrossZone, to: &TargetRef) -> Violations {
    let mut violations = Violations::none();
    let of_one_zone = to.kind == MeshService && (!to.section().is_empty() || to.labels().is_some());
    violations.check(of_one_zone, path.clone(), "must not be set: MeshService traffic is local");
    for (i, failover) in cross.failover.iter().flatten().enumerate() {
        violations.extend(check_failover(&path.field("failover").index(i), failover));
    }
    if let Some(threshold) = &cross.failover_threshold {
        let at = path.field("failoverThreshold").field("percentage");
        match threshold.percentage.value() {
            None => violations.add(at, "string must be a valid number"),
            Some(share) if share <= 0.0 => violations.add(at, "must be greater than 0"),
            Some(share) => violations.check(share > 100.0, at, "must be in inclusive range [0.0, 100.0]"),
        }
    }
    violations
}

fn check_failover(path: &FieldPath, failover: &Failover) -> Violations {
    let mut violations = Violations::none();
    if let Some(from) = &failover.from {
        let at = path.field("from").field("zones");
        violations.check(from.zones.is_empty(), at.clone(), NOT_EMPTY);
        for (i, zone) in from.zones.iter().enumerate() {
            violations.check(zone.is_empty(), at.index(i), NOT_EMPTY);
        }
    }
    let at = path.field("to").field("zones");
    let empty = failover.to.zones.as_ref().is_none_or(Vec::is_empty);
    match failover.to.kind {
        ToZoneType::Any => violations.check(!empty, at, "must be empty when type is Any"),
        ToZoneType::None => violations.check(!empty, at, "must be empty when type is None"),
        ToZoneType::Only => violations.check(empty, at, "must not be empty when type is Only"),
        ToZoneType::AnyExcept => violations.check(empty, at, "must not be empty when type is AnyExcept"),
    }
    violations
}
