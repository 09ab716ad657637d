//! Listeners, with a row for each of their filter chains.

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::{ConfigTable, address, documents, or_dash};
use crate::proxy::{DumpedItem, ProxyDump, text};

const HTTP: &str = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager";
const TCP: &str = "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy";
/// What a listener can be.
const TYPES: [&str; 4] = ["HTTP", "TCP", "HTTP+TCP", "UNKNOWN"];

/// Which listeners are meant.
#[derive(Args, Debug, Default)]
pub(super) struct ListenerFilter {
    /// Only those at this address
    #[arg(long = "ip", value_name = "ADDRESS")]
    ip: Option<String>,
    /// Only those on this port
    #[arg(long)]
    port: Option<u32>,
    /// Only those of this type: HTTP, TCP, HTTP+TCP or UNKNOWN
    #[arg(long = "type", value_name = "TYPE")]
    kind: Option<String>,
    /// Only the one of this name
    #[arg(long = "name", value_name = "LISTENER")]
    listener: Option<String>,
}

impl ListenerFilter {
    fn admits(&self, item: &DumpedItem) -> bool {
        let (address, port) = address(&item.value["address"]);
        let port: u32 = port.parse().unwrap_or_default();
        self.ip.as_ref().is_none_or(|wanted| *wanted == address)
            && self.port.is_none_or(|wanted| wanted == port)
            && self.kind.as_ref().is_none_or(|wanted| wanted.eq_ignore_ascii_case(kind(&item.value)))
            && self.listener.as_ref().is_none_or(|wanted| *wanted == item.name)
    }
}

/// The listeners that are meant.
pub(super) fn shown(dump: &ProxyDump, filter: &ListenerFilter) -> anyhow::Result<ConfigTable> {
    if let Some(wanted) = &filter.kind
        && !TYPES.iter().any(|known| known.eq_ignore_ascii_case(wanted))
    {
        bail!("--type {wanted}: a listener is one of {}", TYPES.join(", "));
    }
    let mut meant: Vec<&DumpedItem> = dump.listeners.iter().filter(|item| filter.admits(item)).collect();
    meant.sort_by_key(|item| {
        let (address, port) = address(&item.value["address"]);
        (port.parse::<u32>().unwrap_or_default(), address)
    });
    let rows = meant.iter().flat_map(|item| rows(item)).collect();
    let document = documents(meant.iter().map(|item| &item.value));
    Ok(ConfigTable { headings: vec!["NAME", "ADDRESSES", "PORT", "MATCH", "DESTINATION"], rows, document })
}

fn rows(item: &DumpedItem) -> Vec<Vec<String>> {
    let (own, port) = address(&item.value["address"]);
    let more = item.value["additionalAddresses"].as_array().into_iter().flatten();
    let more = more.map(|one| address(&one["address"]).0);
    let addresses: Vec<String> = std::iter::once(own).chain(more).filter(|one| !one.is_empty()).collect();
    let row = |matched: String, destination: String| {
        vec![item.name.clone(), or_dash(&addresses.join(",")), port.clone(), matched, destination]
    };
    let mut rows: Vec<Vec<String>> = chains(&item.value)
        .map(|chain| row(matched(&chain["filterChainMatch"]), destination(chain)))
        .collect();
    if rows.is_empty() {
        rows.push(row("ALL".to_owned(), or_dash("")));
    }
    rows
}

fn chains(listener: &Value) -> impl Iterator<Item = &Value> {
    let last = std::iter::once(&listener["defaultFilterChain"]).filter(|chain| chain.is_object());
    listener["filterChains"].as_array().into_iter().flatten().chain(last)
}

/// The configurations of the filters of a chain, each with its type.
fn filters(chain: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = chain["filters"].as_array().into_iter().flatten().map(|filter| &filter["typedConfig"]);
    all.map(|config| (text(&config["@type"]).rsplit('/').next().unwrap_or_default(), config))
}

/// What a listener speaks.
pub(super) fn kind(listener: &Value) -> &'static str {
    let all: Vec<&str> = chains(listener).flat_map(filters).map(|(kind, _)| kind).collect();
    match (all.contains(&HTTP), all.contains(&TCP)) {
        (true, true) => "HTTP+TCP",
        (true, false) => "HTTP",
        (false, true) => "TCP",
        (false, false) => "UNKNOWN",
    }
}

fn matched(conditions: &Value) -> String {
    let texts = |member: &str| {
        let all = conditions[member].as_array().into_iter().flatten().filter_map(Value::as_str);
        Some(all.collect::<Vec<_>>().join(",")).filter(|all| !all.is_empty())
    };
    let ranges = conditions["prefixRanges"].as_array().into_iter().flatten().map(|range| {
        format!("{}/{}", text(&range["addressPrefix"]), range["prefixLen"].as_u64().unwrap_or_default())
    });
    let ranges: Vec<String> = ranges.collect();
    let port = conditions["destinationPort"].as_u64().map(|port| port.to_string());
    let place = match (ranges.join(","), port) {
        (ranges, Some(port)) => Some(format!("{ranges}:{port}")),
        (ranges, None) => Some(ranges).filter(|ranges| !ranges.is_empty()),
    };
    let transport = Some(text(&conditions["transportProtocol"])).filter(|one| !one.is_empty());
    let parts = [
        texts("serverNames").map(|names| format!("SNI: {names}")),
        transport.map(|transport| format!("Trans: {transport}")),
        texts("applicationProtocols").map(|names| format!("App: {names}")),
        place.map(|place| format!("Addr: {place}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { "ALL".to_owned() } else { parts.join("; ") }
}

fn destination(chain: &Value) -> String {
    for (kind, config) in filters(chain) {
        if kind == HTTP {
            let named = text(&config["rds"]["routeConfigName"]);
            return match named {
                "" => inline(&config["routeConfig"]),
                named => format!("Route: {named}"),
            };
        }
        if kind == TCP {
            let weighted = config["weightedClusters"]["clusters"].as_array().into_iter().flatten();
            let mut names: Vec<&str> = weighted.map(|one| text(&one["name"])).collect();
            names.extend(Some(text(&config["cluster"])).filter(|name| !name.is_empty()));
            return format!("Cluster: {}", names.join(", "));
        }
    }
    "Non-HTTP/Non-TCP".to_owned()
}

/// Routes that stand in their listener.
fn inline(routes: &Value) -> String {
    let hosts = routes["virtualHosts"].as_array().into_iter().flatten();
    let domains = hosts.flat_map(|host| host["domains"].as_array().into_iter().flatten());
    let domains: Vec<&str> = domains.filter_map(Value::as_str).collect();
    match domains.is_empty() {
        true => "Inline Route:".to_owned(),
        false => format!("Inline Route: {}", domains.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn dump() -> ProxyDump {
        let at =
            |address: &str, port: u32| json!({ "socketAddress": { "address": address, "portValue": port } });
        let filter = |kind: &str, mut config: Value| {
            config["@type"] = format!("type.googleapis.com/{kind}").into();
            json!({ "filters": [{ "typedConfig": config }] })
        };
        let routes = json!({ "routeConfig": { "virtualHosts": [{ "domains": ["*"] }] } });
        let mut by_name = filter(TCP, json!({ "cluster": "api" }));
        by_name["filterChainMatch"] = json!({ "serverNames": ["a.test"], "transportProtocol": "tls" });
        let listeners = json!({ "configs": [{
            "@type": "type.googleapis.com/envoy.admin.v3.ListenersConfigDump",
            "dynamicListeners": [
                { "activeState": { "listener": {
                    "name": "outbound:127.0.0.1:9000", "address": at("127.0.0.1", 9000),
                    "filterChains": [by_name, filter(HTTP, json!({ "rds": { "routeConfigName": "web" } }))],
                } } },
                { "activeState": { "listener": {
                    "name": "inbound:10.0.0.1:80", "address": at("10.0.0.1", 80), "filterChains": [filter(HTTP, routes)],
                } } },
            ],
        }] });
        ProxyDump::of_envoy(&listeners).unwrap()
    }

    #[test]
    fn each_chain_has_a_row_in_the_order_of_ports() {
        let shown = shown(&dump(), &ListenerFilter::default()).unwrap();
        let out = "outbound:127.0.0.1:9000";
        assert_eq!(
            shown.rows,
            [
                ["inbound:10.0.0.1:80", "10.0.0.1", "80", "ALL", "Inline Route: *"],
                [out, "127.0.0.1", "9000", "SNI: a.test; Trans: tls", "Cluster: api"],
                [out, "127.0.0.1", "9000", "ALL", "Route: web"],
            ]
        );
        assert_eq!(shown.document.as_array().unwrap().len(), 2);
    }

    #[test]
    fn filters_are_those_people_know() {
        let dump = dump();
        let count =
            |filter: ListenerFilter| shown(&dump, &filter).unwrap().document.as_array().unwrap().len();
        let kind = |kind: &str| ListenerFilter { kind: Some(kind.to_owned()), ..Default::default() };
        assert_eq!(count(ListenerFilter { port: Some(80), ..Default::default() }), 1);
        assert_eq!(count(ListenerFilter { port: Some(81), ..Default::default() }), 0);
        assert_eq!(count(ListenerFilter { ip: Some("127.0.0.1".to_owned()), ..Default::default() }), 1);
        assert_eq!((count(kind("http")), count(kind("HTTP+TCP")), count(kind("tcp"))), (1, 1, 0));
        let error = shown(&dump, &kind("udp")).err().unwrap().to_string();
        assert!(error.contains("HTTP, TCP"), "{error}");
    }
}
