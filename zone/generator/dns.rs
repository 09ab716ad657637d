//! Answers to questions for names of services, on a machine whose questions are redirected: a listener, or a
//! list for whoever runs the Envoy and answers in its place.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

use common::proto::envoy::{
    config::{
        core::v3::{Address, SocketAddress, TrafficDirection, address, socket_address},
        listener::v3::Listener,
    },
    data::dns::v3::{
        DnsTable,
        dns_table::{AddressList, DnsEndpoint, DnsVirtualDomain, dns_endpoint::EndpointConfig},
    },
    extensions::filters::udp::dns_filter::v3::{
        DnsFilterConfig,
        dns_filter_config::{ServerContextConfig, server_context_config::ConfigSource},
    },
};
use serde_json::json;

use super::{
    Draft, ListenerDraft, Role, Sidecar, dynamic_config,
    envoy::{filter, flag, seconds},
    names,
};
use crate::mesh::{MeshContext, address_book::is_host, redirection::Family};

const ORIGIN: &str = "dns";
/// Announced where whoever runs the Envoy answers.
const FEATURE_EMBEDDED: &str = "feature-embedded-dns";
/// For how many seconds an answer holds.
const TTL: i64 = 30;
/// Where the list is asked for.
const PATH: &str = "/dns";

/// Adds what answers questions for names of what the workload may call.
pub(crate) fn generate(proxy: &Sidecar, mesh: &MeshContext, draft: &mut Draft) {
    let metadata = &proxy.metadata;
    let Some(port) = metadata.dns_port.filter(|_| metadata.recognises_calls(&proxy.dataplane)) else {
        return;
    };
    let dual = metadata.redirection(&proxy.dataplane).family == Family::Dual;
    let answers = answers(proxy, mesh, dual);
    if metadata.has(FEATURE_EMBEDDED) {
        if !metadata.work_dir.is_empty() {
            let records: Vec<_> =
                answers.iter().map(|(name, ips)| json!({"name": name, "ips": ips})).collect();
            let body = json!({"records": records, "ttl": TTL}).to_string();
            let socket = metadata.socket(dynamic_config::SOCKET);
            dynamic_config::answer(&socket, PATH, body, metadata.ipv6, draft);
        }
        return;
    }
    let message = Listener {
        name: names::DNS.to_owned(),
        address: Some(datagrams(Ipv4Addr::LOCALHOST.into(), port)),
        traffic_direction: TrafficDirection::Inbound.into(),
        // Questions are spread over all threads of the Envoy.
        enable_reuse_port: flag(true),
        listener_filters: vec![filter::dns(&table(answers))],
        ..Listener::default()
    };
    let listener =
        ListenerDraft { role: Role::Machine(ORIGIN), message, inspects_tls: false, chains: Vec::new() };
    draft.listeners.insert(names::DNS.to_owned(), listener);
}

fn answers<'a>(proxy: &Sidecar, mesh: &'a MeshContext, dual: bool) -> BTreeMap<&'a str, Vec<String>> {
    let reached = mesh.reached_by(&proxy.dataplane);
    let addresses: BTreeSet<IpAddr> = reached.into_keys().map(|(address, _)| address).collect();
    let names = mesh.virtual_outbounds.names().filter(|(name, _)| is_host(name));
    let known = names.filter(|(_, address)| addresses.contains(address));
    let answer = |address: IpAddr| {
        let mapped = match address {
            IpAddr::V4(v4) if dual => Some(mapped(v4)),
            _ => None,
        };
        [address.to_string()].into_iter().chain(mapped).collect()
    };
    known.map(|(name, address)| (&**name, answer(address))).collect()
}

/// The same address for those who ask for one of the newer family, in the form Kuma's proxies get it.
fn mapped(address: Ipv4Addr) -> String {
    let [a, b, c, d] = address.octets();
    format!("::ffff:{:x}:{:x}", u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

fn table(answers: BTreeMap<&str, Vec<String>>) -> DnsFilterConfig {
    let domain = |(name, address): (&str, Vec<String>)| DnsVirtualDomain {
        name: name.to_owned(),
        endpoint: Some(DnsEndpoint {
            endpoint_config: Some(EndpointConfig::AddressList(AddressList { address })),
        }),
        answer_ttl: Some(seconds(TTL)),
    };
    let table =
        DnsTable { virtual_domains: answers.into_iter().map(domain).collect(), ..DnsTable::default() };
    DnsFilterConfig {
        stat_prefix: "kuma_dns".to_owned(),
        server_config: Some(ServerContextConfig { config_source: Some(ConfigSource::InlineDnsTable(table)) }),
        ..DnsFilterConfig::default()
    }
}

fn datagrams(ip: IpAddr, port: u32) -> Address {
    let socket = SocketAddress {
        protocol: socket_address::Protocol::Udp.into(),
        address: ip.to_string(),
        port_specifier: Some(socket_address::PortSpecifier::PortValue(port)),
        ..SocketAddress::default()
    };
    Address { address: Some(address::Address::SocketAddress(socket)) }
}
