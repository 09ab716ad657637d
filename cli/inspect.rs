//! `straitctl inspect`: how things are doing.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::{client::Client, get, table};

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Zones: whether they are online, since when, and how far behind
    Zones,
    /// Dataplanes of a mesh
    Dataplanes {
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
    /// Meshes with their dataplanes
    Meshes,
}

impl Inspect {
    pub(crate) async fn run(self, client: &Client) -> anyhow::Result<()> {
        match self.what {
            What::Zones => zones(client).await,
            What::Dataplanes { mesh } => dataplanes(client, &mesh).await,
            What::Meshes => meshes(client).await,
        }
    }
}

async fn zones(client: &Client) -> anyhow::Result<()> {
    let zones: Vec<Zone> = client.list("/zones/_overview").await?.iter().map(Zone::of).collect();
    if zones.is_empty() {
        eprintln!("no zone has connected yet");
        return Ok(());
    }
    let headings = ["NAME", "STATUS", "SINCE", "VERSION", "DOWN REV", "LAG", "UP REV", "LAG", "DATAPLANES"];
    let notes: Vec<String> = zones.iter().flat_map(Zone::notes).collect();
    table::print(&headings, zones.into_iter().map(Zone::row).collect());
    for note in notes {
        eprintln!("{note}");
    }
    Ok(())
}

/// One zone of an overview list.
pub(crate) struct Zone {
    item: Value,
}

impl Zone {
    pub(crate) fn of(item: &Value) -> Self {
        Self { item: item.clone() }
    }

    pub(crate) fn name(&self) -> &str {
        self.item["name"].as_str().unwrap_or_default()
    }

    fn subscriptions(&self) -> &[Value] {
        self.item["zoneInsight"]["subscriptions"].as_array().map_or(&[], Vec::as_slice)
    }

    /// The subscription that is open.
    fn open(&self) -> Option<&Value> {
        self.subscriptions().iter().find(|s| s["connectTime"].is_string() && !s["disconnectTime"].is_string())
    }

    /// Its status as the server says it; a server that says none shows it by its subscriptions.
    pub(crate) fn status(&self) -> &str {
        if self.item["zone"]["enabled"] == Value::Bool(false) {
            return "disabled";
        }
        match self.item["strait"]["status"].as_str() {
            Some(status) => status,
            None if self.open().is_some() => "online",
            None => "offline",
        }
    }

    fn since(&self) -> String {
        let strait = &self.item["strait"]["since"];
        if strait.is_string() {
            return table::age(strait);
        }
        match (self.open(), self.subscriptions().last()) {
            (Some(open), _) => table::age(&open["connectTime"]),
            (None, Some(last)) => table::age(&last["disconnectTime"]),
            (None, None) => "-".to_owned(),
        }
    }

    fn version(&self) -> String {
        let strait = table::text(&self.item["strait"]["version"]);
        if strait != "-" {
            return strait;
        }
        let last = self.open().or_else(|| self.subscriptions().last());
        last.map_or_else(|| "-".to_owned(), |s| table::text(&s["version"]["kumaCp"]["version"]))
    }

    fn notes(&self) -> Vec<String> {
        let notes = self.item["strait"]["notes"].as_array().into_iter().flatten();
        notes.filter_map(|note| Some(format!("{}: {}", self.name(), note.as_str()?))).collect()
    }

    fn row(self) -> Vec<String> {
        let strait = &self.item["strait"];
        let mut row = vec![self.name().to_owned(), self.status().to_owned(), self.since(), self.version()];
        for direction in ["down", "up"] {
            row.extend([table::text(&strait[direction]["acked"]), table::text(&strait[direction]["lag"])]);
        }
        row.push(table::text(&strait["dataplanes"]));
        row
    }
}

async fn dataplanes(client: &Client, mesh: &str) -> anyhow::Result<()> {
    let items = client.list(&format!("/meshes/{mesh}/dataplanes/_overview")).await?;
    if items.is_empty() {
        eprintln!("there is no dataplane in mesh {mesh}");
        return Ok(());
    }
    let row = |item: &Value| {
        let last = item["dataplaneInsight"]["subscriptions"].as_array().and_then(|s| s.last());
        let last = last.unwrap_or(&Value::Null);
        vec![
            table::text(&item["name"]),
            proxy_status(item).to_owned(),
            get::services(&item["dataplane"]),
            table::text(&item["labels"]["kuma.io/zone"]),
            table::age(&last["connectTime"]),
            table::text(&last["version"]["envoy"]["version"]),
            table::text(&last["status"]["total"]["responsesRejected"]),
            table::age(&item["dataplaneInsight"]["mTLS"]["lastCertificateRegeneration"]),
        ]
    };
    let headings = ["NAME", "STATUS", "SERVICES", "ZONE", "CONNECTED", "ENVOY", "REJECTED", "CERT AGE"];
    table::print(&headings, items.iter().map(row).collect());
    Ok(())
}

/// Whether a proxy is connected and its inbounds are ready.
fn proxy_status(item: &Value) -> &'static str {
    let subscriptions = item["dataplaneInsight"]["subscriptions"].as_array().into_iter().flatten();
    let mut open = subscriptions.filter(|s| s["connectTime"].is_string() && !s["disconnectTime"].is_string());
    if open.next().is_none() {
        return "offline";
    }
    let inbounds: Vec<&Value> =
        item["dataplane"]["networking"]["inbound"].as_array().into_iter().flatten().collect();
    // An absent state is the default one, ready.
    let ready = inbounds.iter().filter(|i| matches!(i["state"].as_str(), None | Some("Ready"))).count();
    match (ready, inbounds.len()) {
        (ready, all) if ready == all => "online",
        (0, _) => "offline",
        _ => "degraded",
    }
}

async fn meshes(client: &Client) -> anyhow::Result<()> {
    let meshes = client.list("/meshes").await?;
    let mut counts: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for dataplane in client.list("/dataplanes/_overview").await? {
        let count = counts.entry(table::text(&dataplane["mesh"])).or_default();
        count[0] += u64::from(proxy_status(&dataplane) == "online");
        count[1] += 1;
    }
    let row = |mesh: &Value| {
        let name = table::text(&mesh["name"]);
        let [online, total] = counts.get(&name).copied().unwrap_or_default();
        vec![name, table::text(&mesh["mtls"]["enabledBackend"]), format!("{online}/{total}")]
    };
    table::print(&["NAME", "MTLS", "DATAPLANES ONLINE"], meshes.iter().map(row).collect());
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_status_of_a_zone_comes_from_strait_or_from_subscriptions() {
        let check = |item: Value, status: &str| assert_eq!(Zone::of(&item).status(), status, "{item}");
        check(json!({ "strait": { "status": "unknown" } }), "unknown");
        check(json!({ "zone": { "enabled": false }, "strait": { "status": "online" } }), "disabled");
        let connected = json!([{ "connectTime": "2026-01-01T00:00:00Z" }]);
        check(json!({ "zoneInsight": { "subscriptions": connected } }), "online");
        check(json!({}), "offline");
    }
}
