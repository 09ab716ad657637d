//! Destinations outside the mesh by the filter chain they need, the more particular ones first.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use common::policy::mesh_passthrough::{DestinationProtocol, DestinationType, PassthroughDestination};

/// Connections for which there is one chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) protocol: DestinationProtocol,
    /// `None` for any.
    pub(super) port: Option<u32>,
    pub(super) to: PassthroughTarget,
}

/// What they are made to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PassthroughTarget {
    /// Hosts whose names the requests have, in order.
    Hosts(Vec<String>),
    /// A host whose name the client says when it begins TLS.
    Host(String),
    /// An address or a network.
    Network { written: String, address: IpAddr, bits: u8 },
}

impl PassthroughTarget {
    /// Whether connections to one are connections to the other.
    fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (
                Self::Network { address, bits, .. },
                Self::Network { address: other_address, bits: other_bits, .. },
            ) => (address, bits) == (other_address, other_bits),
            _ => self == other,
        }
    }
}

impl Group {
    /// Whether it can be about connections of this family of addresses.
    pub(super) fn is_of_family(&self, ipv6: bool) -> bool {
        match &self.to {
            PassthroughTarget::Hosts(_) | PassthroughTarget::Host(_) => true,
            PassthroughTarget::Network { address, .. } => address.is_ipv6() == ipv6,
        }
    }

    /// What comes first, which matters to readers only: Envoy looks for the most particular one.
    fn rank(&self) -> impl Ord + use<> {
        let protocol = match self.protocol {
            DestinationProtocol::Mysql => 0,
            DestinationProtocol::Tls => 1,
            DestinationProtocol::Tcp => 2,
            DestinationProtocol::Http => 3,
            DestinationProtocol::Http2 => 4,
            DestinationProtocol::Grpc => 5,
        };
        let (kind, name, bits) = match &self.to {
            PassthroughTarget::Network { address, bits, written } => {
                let most = if address.is_ipv6() { 128 } else { 32 };
                let single = *bits == most && !written.contains('/');
                (3 + 2 * u8::from(single) + u8::from(address.is_ipv6()), written.clone(), *bits)
            }
            PassthroughTarget::Host(name) if name.starts_with('*') => (1, name.clone(), 0),
            PassthroughTarget::Host(name) => (2, name.clone(), 0),
            PassthroughTarget::Hosts(_) => (0, String::new(), 0),
        };
        let labels = name.split('.').count();
        (protocol, Reverse(self.port.unwrap_or(0)), Reverse(kind), Reverse(bits), Reverse(labels), name)
    }
}

/// The groups these destinations make. Where Envoy knows a port it looks no further, so what is for every port is also
/// for each one that is listed.
pub(super) fn groups(destinations: &[PassthroughDestination]) -> Vec<Group> {
    let mut groups = Vec::new();
    let mut hosts: BTreeMap<(DestinationProtocol, Option<u32>), BTreeSet<&str>> = BTreeMap::new();
    for destination in destinations {
        let PassthroughDestination { kind, value, port, protocol } = destination;
        let to = match kind {
            DestinationType::Domain if protocol.has_requests() => {
                hosts.entry((*protocol, *port)).or_default().insert(value);
                continue;
            }
            DestinationType::Domain => PassthroughTarget::Host(value.clone()),
            DestinationType::Ip | DestinationType::Cidr => match network(value) {
                Some((address, bits)) => PassthroughTarget::Network { written: value.clone(), address, bits },
                None => continue,
            },
        };
        groups.push(Group { protocol: *protocol, port: *port, to });
    }
    let ports: BTreeSet<u32> = destinations.iter().filter_map(|destination| destination.port).collect();
    for port in &ports {
        spread(&mut groups, *port);
        spread_hosts(&mut hosts, *port);
    }
    groups.extend(hosts.into_iter().map(|((protocol, port), hosts)| {
        let mut hosts: Vec<String> = hosts.into_iter().map(str::to_owned).collect();
        hosts.sort_by_key(|host| (host.starts_with('*'), Reverse(host.split('.').count()), host.clone()));
        Group { protocol, port, to: PassthroughTarget::Hosts(hosts) }
    }));
    groups.sort_by_key(Group::rank);
    groups.dedup();
    groups
}

/// Adds to `groups` those for every port as such for `port`, but what is listed for it already.
fn spread(groups: &mut Vec<Group>, port: u32) {
    let words =
        |protocol: DestinationProtocol| (protocol == DestinationProtocol::Tls, protocol.has_requests());
    let for_port: Vec<Group> = groups
        .iter()
        .filter(|group| group.port.is_none())
        .map(|group| Group { port: Some(port), ..group.clone() })
        .filter(|new| {
            let same = |old: &Group| {
                old.port == new.port && old.to.is_like(&new.to) && words(old.protocol) == words(new.protocol)
            };
            !groups.iter().any(same)
        })
        .collect();
    groups.extend(for_port);
}

/// The same for hosts. A port at which another protocol is spoken stays what it is.
fn spread_hosts(hosts: &mut BTreeMap<(DestinationProtocol, Option<u32>), BTreeSet<&str>>, port: u32) {
    let mut at_port = hosts.keys().filter(|(_, at)| *at == Some(port)).map(|(protocol, _)| *protocol);
    let spoken = at_port.next();
    let everywhere: Vec<_> = hosts
        .iter()
        .filter(|((protocol, at), _)| at.is_none() && spoken.is_none_or(|spoken| spoken == *protocol))
        .map(|((protocol, _), names)| (*protocol, names.clone()))
        .collect();
    // Requests of two protocols for every port cannot be told apart either.
    if let Some((protocol, names)) = everywhere.into_iter().next() {
        hosts.entry((protocol, Some(port))).or_default().extend(names);
    }
}

/// The address of a network without what is not of the network, and how many bits are.
fn network(value: &str) -> Option<(IpAddr, u8)> {
    let (address, bits) = value.split_once('/').map_or((value, None), |(a, bits)| (a, Some(bits)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv6() { 128 } else { 32 };
    let bits: u8 = bits.map_or(Ok(most), str::parse).ok()?;
    let address = match address {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    };
    (bits <= most).then_some((address, bits))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn what_is_more_particular_comes_first() {
        let destinations: Vec<PassthroughDestination> = from_value(json!([
            {"type": "Domain", "value": "*.example.com", "port": 443, "protocol": "tls"},
            {"type": "CIDR", "value": "10.1.2.3/8", "port": 443},
            {"type": "Domain", "value": "web.example.com", "port": 80, "protocol": "http"},
            {"type": "Domain", "value": "*.svc.local", "port": 80, "protocol": "http"},
            {"type": "Domain", "value": "api.example.com", "port": 443, "protocol": "tls"},
            {"type": "IP", "value": "fd00::1", "port": 443, "protocol": "tcp"},
            {"type": "IP", "value": "10.0.0.2", "port": 3306, "protocol": "mysql"},
            {"type": "CIDR", "value": "0.0.0.0/0"},
        ]))
        .unwrap();
        let mut all = groups(&destinations);
        let spread: Vec<(u32, String)> = all
            .iter()
            .filter_map(|group| match &group.to {
                PassthroughTarget::Network { written, .. } if written == "0.0.0.0/0" => {
                    Some((group.port?, written.clone()))
                }
                _ => None,
            })
            .collect();
        assert_eq!(spread.iter().map(|(port, _)| *port).collect::<Vec<_>>(), [3306, 443, 80]);
        all.retain(|group| {
            !spread.iter().any(|(port, written)| {
                group.port == Some(*port)
                    && matches!(&group.to, PassthroughTarget::Network { written: own, .. } if own == written)
            })
        });
        let shown: Vec<String> = all
            .into_iter()
            .map(|group| match group.to {
                PassthroughTarget::Hosts(hosts) => hosts.join(" "),
                PassthroughTarget::Host(host) => host,
                PassthroughTarget::Network { address, bits, .. } => format!("{address}/{bits}"),
            })
            .collect();
        assert_eq!(
            shown,
            [
                "10.0.0.2/32",
                "api.example.com",
                "*.example.com",
                "fd00::1/128",
                "10.0.0.0/8",
                "0.0.0.0/0",
                "web.example.com *.svc.local",
            ]
        );
    }
}
