//! What makes a `MeshPassthrough` valid.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use super::{DestinationProtocol, DestinationType, MeshPassthrough, PassthroughDestination};
use crate::{
    model::{FieldPath, Violations},
    policy::{Allowed, TargetKind, TargetKind::*},
};

const TOP: &[TargetKind] = &[Mesh, MeshSubset, Dataplane];

pub(super) fn check(spec: &MeshPassthrough) -> Violations {
    let path = FieldPath::new("spec");
    let mut violations = Violations::none();
    if let Some(target) = &spec.target_ref {
        violations.extend(Allowed::kinds(TOP).check(&path.field("targetRef"), target));
    }
    let destinations = spec.default.iter().flat_map(|conf| conf.append_match.iter().flatten());
    let path = path.field("default").field("appendMatch");
    let mut by_port: BTreeMap<u32, DestinationProtocol> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for (i, destination) in destinations.enumerate() {
        let at = path.index(i);
        violations.extend(check_port(&at.field("port"), destination, &mut by_port));
        if let Some(port) = destination.port {
            let new = seen.insert((port, destination.protocol, &destination.value));
            // The word is misspelled where clients of the API know it from.
            let reason = format!("value {} is already defiend for this port and protocol", destination.value);
            violations.check(!new, at.field("value"), reason);
        }
        violations.extend(check_value(&at, destination));
    }
    violations
}

fn check_port(
    path: &FieldPath,
    destination: &PassthroughDestination,
    by_port: &mut BTreeMap<u32, DestinationProtocol>,
) -> Violations {
    let mut violations = Violations::none();
    let protocol = destination.protocol;
    let Some(port) = destination.port else {
        let mysql = protocol == DestinationProtocol::Mysql;
        violations.check(mysql, path.clone(), "port must be defined for Mysql protocol");
        return violations;
    };
    violations.check(!(1..=65535).contains(&port), path.clone(), "port must be a valid (1-65535)");
    match by_port.get(&port) {
        Some(other) if *other != protocol && protocol.has_requests() => violations.add(
            path.clone(),
            "using the same port in multiple matches requires the same protocol for the following protocols: [grpc http http2]",
        ),
        _ => drop(by_port.insert(port, protocol)),
    }
    violations
}

fn check_value(path: &FieldPath, destination: &PassthroughDestination) -> Violations {
    let mut violations = Violations::none();
    let (at, value) = (path.field("value"), destination.value.as_str());
    match destination.kind {
        DestinationType::Cidr => {
            violations.check(!is_cidr(value), at, "provided CIDR has incorrect value");
        }
        DestinationType::Ip => {
            violations.check(value.parse::<IpAddr>().is_err(), at, "provided IP has incorrect value");
        }
        DestinationType::Domain => {
            let protocol = match destination.protocol {
                DestinationProtocol::Tcp => Some("tcp"),
                DestinationProtocol::Mysql => Some("mysql"),
                _ => None,
            };
            if let Some(protocol) = protocol {
                let reason = format!("protocol {protocol} is not supported for a domain");
                violations.add(path.field("protocol"), reason);
            }
            let rest = value.strip_prefix('*');
            violations.check(
                rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('.')),
                at.clone(),
                "provided DNS has incorrect value, partial wildcard is currently not supported",
            );
            violations.check(
                rest.is_some() && destination.port.is_none() && destination.protocol.has_requests(),
                path.field("port"),
                "wildcard domains doesn't work for all ports and layer 7 protocol",
            );
            let name = value.strip_prefix("*.").unwrap_or(value);
            let broken = !name.starts_with('*') && !is_dns_name(name);
            violations.check(broken, at, "provided DNS has incorrect value");
        }
    }
    violations
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let most = match address.parse() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.starts_with('+') && bits.parse::<u8>().is_ok_and(|bits| bits <= most)
}

/// A name that is no address.
fn is_dns_name(text: &str) -> bool {
    let label = |label: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        label.len() <= 63
            && edge(label.chars().next())
            && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
    };
    let name = text.strip_suffix('.').unwrap_or(text);
    !name.is_empty() && text.len() <= 255 && name.parse::<IpAddr>().is_err() && name.split('.').all(label)
}
