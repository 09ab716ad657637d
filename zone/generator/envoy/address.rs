//! Socket addresses and networks.

use std::net::IpAddr;

use common::proto::envoy::config::core::v3::{
    Address, CidrRange, Pipe, SocketAddress, address, socket_address::PortSpecifier,
};

use super::number;

/// A TCP socket address.
pub fn socket(ip: IpAddr, port: u32) -> Address {
    named(&ip.to_string(), port)
}

/// The same, of a host that may have a name.
pub fn named(host: &str, port: u32) -> Address {
    let socket = SocketAddress {
        address: host.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(port)),
        ..SocketAddress::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}

/// A Unix socket.
pub fn pipe(path: &str) -> Address {
    let pipe = Pipe { path: path.to_owned(), ..Pipe::default() };
    Address { address: Some(address::Address::Pipe(pipe)) }
}

/// A network.
pub fn network(prefix: &str, length: u32) -> CidrRange {
    CidrRange { address_prefix: prefix.to_owned(), prefix_len: number(length) }
}

/// This machine.
pub fn local_networks(ipv6: bool) -> Vec<CidrRange> {
    let mut networks = vec![network("127.0.0.1", 32)];
    networks.extend(ipv6.then(|| network("::1", 128)));
    networks
}

/// Networks whose requests may carry `x-envoy-*` headers: private ones and this machine.
pub fn internal_networks(ipv6: bool) -> Vec<CidrRange> {
    let v4 = [("10.0.0.0", 8), ("192.168.0.0", 16), ("172.16.0.0", 12)];
    let mut networks: Vec<CidrRange> = v4.iter().map(|(prefix, length)| network(prefix, *length)).collect();
    if ipv6 {
        networks.extend([network("fc00::", 7), network("fd00::", 8)]);
    }
    networks.extend(local_networks(ipv6));
    networks
}
