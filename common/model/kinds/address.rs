//! Checks of addresses and ports that several kinds share.

use std::net::{IpAddr, Ipv4Addr};

use crate::model::{FieldPath, Violations, labels};

/// Adds a violation unless `port` is 1 to 65535.
pub(super) fn check_port(port: u32, path: impl Into<FieldPath>, violations: &mut Violations) {
    if !(1..=65535).contains(&port) {
        violations.add(path.into(), "port must be in the range [1, 65535]");
    }
}

/// Adds a violation unless `address` is an IP address.
pub(super) fn check_ip(address: &str, path: impl Into<FieldPath>, violations: &mut Violations) {
    if address.parse::<IpAddr>().is_err() {
        violations.add(path.into(), "address has to be valid IP address");
    }
}

/// Adds a violation unless `address` is an IP address or host name another machine can use.
pub(super) fn check_host(address: &str, path: FieldPath, violations: &mut Violations) {
    if address.is_empty() {
        return violations.add(path, "address can't be empty");
    }
    match address.parse::<IpAddr>() {
        Ok(ip) if ip.is_unspecified() => violations.add(path, "must not be 0.0.0.0 or ::"),
        Ok(_) => {}
        Err(_) if is_host_name(address) => {}
        Err(_) => violations.add(path, "address has to be valid IP address or domain name"),
    }
}

/// Whether what listens on `address` takes the port of an admin endpoint, which listens on the loopback address.
pub(super) fn is_loopback(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|ip| ip.is_unspecified() || ip == Ipv4Addr::LOCALHOST)
}

/// Whether `address` is an IP address or the name of a host.
pub(super) fn is_host_or_ip(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok() || is_host_name(address)
}

fn is_host_name(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    labels::subdomain_problem(lower.strip_suffix('.').unwrap_or(&lower)).is_none()
}
