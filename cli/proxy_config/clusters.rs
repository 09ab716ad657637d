//! Clusters, with what their names say.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::Args;
use serde_json::Value;

use super::{ConfigTable, documents, or_dash};
use crate::proxy::{DumpedItem, ProxyDump, text};

/// Characters of what tells subsets of a service apart in the names of their clusters.
const SUBSET: usize = 16;
/// Kinds of services that are resources, as the names of their clusters have them.
const OF_RESOURCES: [&str; 3] = ["msvc", "mzsvc", "extsvc"];
/// Which way something goes.
const DIRECTIONS: [&str; 2] = ["inbound", "outbound"];

/// Which clusters are meant.
#[derive(Args, Debug, Default)]
pub(super) struct ClusterFilter {
    /// Only those of this service
    #[arg(long)]
    fqdn: Option<String>,
    /// Only those of this port
    #[arg(long)]
    port: Option<u32>,
    /// Only those of this subset
    #[arg(long)]
    subset: Option<String>,
    /// Only those by which this goes: inbound or outbound
    #[arg(long)]
    direction: Option<String>,
    /// Only the one of this name
    #[arg(long = "name", value_name = "CLUSTER")]
    cluster: Option<String>,
}

/// What the name of a cluster says.
#[derive(Debug, PartialEq, Eq)]
struct ClusterName<'a> {
    service: &'a str,
    port: &'a str,
    subset: &'a str,
}

impl<'a> ClusterName<'a> {
    fn of(name: &'a str) -> Self {
        // As Pilot calls its own.
        if let [_, port, subset, service] = name.split('|').collect::<Vec<_>>()[..] {
            return Self { service, port, subset };
        }
        let is_subset = |part: &str| part.len() == SUBSET && part.bytes().all(|b| b.is_ascii_hexdigit());
        let (whole, subset) = match name.rsplit_once('-').filter(|(_, subset)| is_subset(subset)) {
            Some((whole, subset)) => (whole, subset),
            None => (name, ""),
        };
        let (service, port) = Self::port_of(whole).unwrap_or((whole, ""));
        Self { service, port, subset }
    }

    fn port_of(name: &str) -> Option<(&str, &str)> {
        let is_port = |port: &str| port.parse::<u16>().is_ok();
        if name.starts_with("kri_") {
            return name.rsplit_once('_');
        }
        if let Some((service, port)) = name.rsplit_once('_')
            && is_port(port)
            && OF_RESOURCES.iter().any(|kind| service.ends_with(&format!("_{kind}")))
        {
            return Some((service, port));
        }
        name.rsplit_once(':').filter(|(_, port)| is_port(port))
    }
}

/// The clusters that are meant.
pub(super) fn shown(dump: &ProxyDump, filter: &ClusterFilter) -> anyhow::Result<ConfigTable> {
    if let Some(wanted) = &filter.direction
        && !DIRECTIONS.contains(&wanted.as_str())
    {
        bail!("--direction {wanted}: it is one of {}", DIRECTIONS.join(", "));
    }
    let directions = directions(dump);
    let direction = |item: &DumpedItem| directions.get(item.name.as_str()).copied().unwrap_or_default();
    let admits = |item: &&DumpedItem| {
        let name = ClusterName::of(&item.name);
        filter.fqdn.as_ref().is_none_or(|wanted| wanted == name.service)
            && filter.port.is_none_or(|wanted| wanted.to_string() == name.port)
            && filter.subset.as_ref().is_none_or(|wanted| wanted == name.subset)
            && filter.direction.as_ref().is_none_or(|wanted| wanted == direction(item))
            && filter.cluster.as_ref().is_none_or(|wanted| *wanted == item.name)
    };
    let mut meant: Vec<&DumpedItem> = dump.clusters.iter().filter(admits).collect();
    meant.sort_by(|a, b| a.name.cmp(&b.name));
    let row = |item: &&DumpedItem| {
        let name = ClusterName::of(&item.name);
        let found = text(&item.value["type"]);
        let found = if found.is_empty() { text(&item.value["clusterType"]["name"]) } else { found };
        vec![
            name.service.to_owned(),
            or_dash(name.port),
            or_dash(name.subset),
            or_dash(direction(item)),
            // What is not said is the first of them.
            format!(
                "{}{}",
                if found.is_empty() { "STATIC" } else { found },
                if item.is_warming { " (warming)" } else { "" }
            ),
            or_dash(""),
        ]
    };
    let rows = meant.iter().map(row).collect();
    let document = documents(meant.iter().map(|item| &item.value));
    let headings = vec!["SERVICE FQDN", "PORT", "SUBSET", "DIRECTION", "TYPE", "DESTINATION RULE"];
    Ok(ConfigTable { headings, rows, document })
}

/// Which way what goes to a cluster goes: that of the listeners that name it, or whose routes do.
fn directions(dump: &ProxyDump) -> BTreeMap<String, &'static str> {
    let mut directions = BTreeMap::new();
    for listener in &dump.listeners {
        let said = text(&listener.value["trafficDirection"]).to_ascii_lowercase();
        let by_name = listener.name.split(':').next().unwrap_or_default();
        let known = |word: &str| DIRECTIONS.into_iter().find(|direction| *direction == word);
        let Some(direction) = known(&said).or_else(|| known(by_name)) else { continue };
        let (mut clusters, mut routes) = (Vec::new(), Vec::new());
        named(&listener.value, &mut clusters, &mut routes);
        for item in dump.routes.iter().filter(|item| routes.contains(&item.name)) {
            named(&item.value, &mut clusters, &mut Vec::new());
        }
        directions.extend(clusters.into_iter().map(|cluster| (cluster, direction)));
    }
    directions
}

/// The clusters that are named below a value, and the routes that are looked up.
fn named(value: &Value, clusters: &mut Vec<String>, routes: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    ("cluster", Value::String(cluster)) => clusters.push(cluster.clone()),
                    ("routeConfigName", Value::String(route)) => routes.push(route.clone()),
                    ("weightedClusters", member) => {
                        let all = member["clusters"].as_array().into_iter().flatten();
                        clusters.extend(all.map(|one| text(&one["name"]).to_owned()));
                    }
                    (_, member) => named(member, clusters, routes),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| named(item, clusters, routes)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn names_say_service_port_and_subset() {
        for (name, service, port, subset) in [
            ("web", "web", "", ""),
            ("web-3e607e0fbdf6b9a2", "web", "", "3e607e0fbdf6b9a2"),
            ("web-canary", "web-canary", "", ""),
            ("localhost:8080", "localhost", "8080", ""),
            ("demo_backend__east_msvc_80", "demo_backend__east_msvc", "80", ""),
            (
                "demo_backend__east_msvc_80-3e607e0fbdf6b9a2",
                "demo_backend__east_msvc",
                "80",
                "3e607e0fbdf6b9a2",
            ),
            ("kri_msvc_demo_east__backend_http", "kri_msvc_demo_east__backend", "http", ""),
            ("outbound|80|v1|web.demo", "web.demo", "80", "v1"),
            ("kuma:envoy:admin", "kuma:envoy:admin", "", ""),
        ] {
            assert_eq!(ClusterName::of(name), ClusterName { service, port, subset }, "{name}");
        }
    }

    #[test]
    fn clusters_go_the_way_of_the_listeners_that_name_them() {
        let cluster = |name: &str| json!({ "cluster": { "name": name, "type": "EDS" } });
        let listener =
            |name: &str, of: Value| json!({ "activeState": { "listener": { "name": name, "x": of } } });
        let weighted = json!({ "weightedClusters": { "clusters": [{ "name": "b" }] } });
        let route = json!({ "name": "r", "virtualHosts": [{ "routes": [{ "route": weighted }] }] });
        let dump = json!({ "configs": [
            { "@type": "x/envoy.admin.v3.ClustersConfigDump", "dynamicActiveClusters": [
                cluster("localhost:80"), cluster("a"), cluster("b"), cluster("c") ] },
            { "@type": "x/envoy.admin.v3.RoutesConfigDump", "dynamicRouteConfigs": [{ "routeConfig": route }] },
            { "@type": "x/envoy.admin.v3.ListenersConfigDump", "dynamicListeners": [
                listener("inbound:10.0.0.1:80", json!({ "cluster": "localhost:80" })),
                listener("outbound:10.0.0.1:81", json!({ "cluster": "a", "rds": { "routeConfigName": "r" } })) ] },
        ] });
        let dump = ProxyDump::of_envoy(&dump).unwrap();
        let all = shown(&dump, &ClusterFilter::default()).unwrap();
        let directions: Vec<(&str, &str)> = all.rows.iter().map(|row| (&*row[0], &*row[3])).collect();
        let expected = [("a", "outbound"), ("b", "outbound"), ("c", "-"), ("localhost", "inbound")];
        assert_eq!(directions, expected);
        let inbound = ClusterFilter { direction: Some("inbound".to_owned()), ..Default::default() };
        assert_eq!(shown(&dump, &inbound).unwrap().rows.len(), 1);
        let wrong = ClusterFilter { direction: Some("up".to_owned()), ..Default::default() };
        assert!(shown(&dump, &wrong).err().unwrap().to_string().contains("inbound, outbound"));
    }
}
