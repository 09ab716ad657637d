//! `straitctl explain`: where what a proxy has comes from.
//!
//! The control plane says which policies made a rule, and what came of them. What each of them said by itself is read
//! from the policy, so that for every field there is one that won and those that lost.

use std::collections::BTreeMap;

use anyhow::bail;
use clap::{Args, Subcommand};
use common::explain::{
    ExplainedProxy, PolicyDocuments, envoy_resources, is_builtin_gateway, named_policies, policy_fields,
    warnings,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    client::ApiClient,
    inspect::problems,
    kinds::{self, segment},
    output::{self, Output},
    table,
};

#[derive(Args)]
pub(crate) struct Explain {
    #[command(subcommand)]
    what: ExplainCommand,
    /// Form of the answer
    #[arg(short, long, global = true, default_value = "table")]
    output: Output,
}

#[derive(Subcommand)]
enum ExplainCommand {
    /// A proxy: its listeners, routes, clusters and secrets, and what policies say about them
    Dataplane {
        /// Which one
        name: String,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
    /// A builtin gateway: who runs it, and what policies say about it
    #[command(name = "meshgateway", alias = "gateway")]
    MeshGateway {
        /// Which one
        name: String,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
    /// A proxy through which other zones enter: what its listeners and clusters are there for
    #[command(name = "zoneingress")]
    ZoneIngress {
        /// Which one
        name: String,
    },
    /// Why a zone has, lacks or refuses a resource of global
    #[command(after_help = kinds::help())]
    Zone {
        /// Which zone
        zone: String,
        /// Type of the resource
        #[arg(value_name = "TYPE")]
        kind: String,
        /// Name of the resource
        name: String,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
    /// A proxy through which traffic leaves the zone: what its listeners and clusters are there for
    #[command(name = "zoneegress")]
    ZoneEgress {
        /// Which one
        name: String,
    },
}

impl Explain {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let document = match &self.what {
            ExplainCommand::Zone { zone, kind, name, mesh } => {
                let document = zone_item(client, zone, kind, name, mesh).await?;
                return self.output.print(&document, || print_zone_item(&document));
            }
            ExplainCommand::Dataplane { name, mesh } => dataplane(client, mesh, name).await?,
            ExplainCommand::MeshGateway { name, mesh } => gateway(client, mesh, name).await?,
            ExplainCommand::ZoneIngress { name } => {
                zone_proxy(client, "zoneingresses", "zoneIngress", name).await?
            }
            ExplainCommand::ZoneEgress { name } => {
                zone_proxy(client, "zoneegresses", "zoneEgress", name).await?
            }
        };
        self.output.print(&document, || print(&document))
    }
}

async fn dataplane(client: &ApiClient, mesh: &str, name: &str) -> anyhow::Result<Value> {
    let item = format!("/meshes/{}/dataplanes/{}", segment(mesh), segment(name));
    let Some(rules) = found(client, &format!("{item}/_rules")).await? else {
        bail!("there is no dataplane {name} in mesh {mesh}");
    };
    let dataplane = client.send(Method::GET, &item, None).await?.success()?.json()?;
    // A control plane of another make does not tell what older policies come to.
    let older = found(client, &format!("{item}/_older")).await?.unwrap_or_default();
    let gateways = match is_builtin_gateway(&dataplane) {
        true => client.list(&format!("/meshes/{}/meshgateways", segment(mesh))).await?,
        false => Vec::new(),
    };
    let policies = policies(client, mesh, &rules).await?;
    let overview = found(client, &format!("{item}/_overview")).await?.unwrap_or_default();
    let insight = &overview["dataplaneInsight"];
    let (config, hidden) = config(client, &item).await?;
    let subject = ExplainedProxy::of(&dataplane)
        .with_gateways(&gateways)
        .with_policies(&rules, &older)
        .issued_by(insight["mTLS"]["issuedBackend"].as_str().unwrap_or_default());
    Ok(json!({
        "envoy": envoy_resources(&subject, &config, &rules, &policies),
        "fields": policy_fields(&rules, &older, &policies),
        "problems": problems(insight).collect::<Vec<_>>(),
        "warnings": warnings(&rules, hidden),
    }))
}

async fn gateway(client: &ApiClient, mesh: &str, name: &str) -> anyhow::Result<Value> {
    let item = format!("/meshes/{}/meshgateways/{}", segment(mesh), segment(name));
    let Some(rules) = found(client, &format!("{item}/_rules")).await? else {
        bail!("there is no meshgateway {name} in mesh {mesh}");
    };
    let policies = policies(client, mesh, &rules).await?;
    let runs = found(client, &format!("{item}/dataplanes")).await?.unwrap_or_default();
    let runs = runs["items"].as_array().into_iter().flatten();
    let by = runs.map(|one| json!({"type": "proxy", "name": one["dataplane"]["name"], "from": format!("MeshGateway/{name} selectors")}));
    Ok(json!({
        "envoy": by.collect::<Vec<_>>(),
        "fields": policy_fields(&rules, &Value::Null, &policies),
        "problems": [],
        "warnings": warnings(&rules, None),
    }))
}

/// How a zone stands with a resource of global.
async fn zone_item(
    client: &ApiClient,
    zone: &str,
    kind: &str,
    name: &str,
    mesh: &str,
) -> anyhow::Result<Value> {
    let kind = kinds::find(kind)?;
    let item = format!("/sync/zones/{}/{}/{}", segment(zone), kind.path, segment(name));
    let path = if kind.is_mesh_scoped() { format!("{item}?mesh={}", segment(mesh)) } else { item };
    client.send(Method::GET, &path, None).await?.success()?.json()
}

fn print_zone_item(item: &Value) {
    let text = |member: &str| table::text(&item[member]);
    let mesh = item["mesh"].as_str().map(|mesh| format!(" of mesh {mesh}")).unwrap_or_default();
    output::line(&format!(
        "{} {}{mesh} in zone {}: {}",
        text("type"),
        text("name"),
        text("zone"),
        text("state")
    ));
    output::line(&format!("  {}", text("reason")));
    output::line(&format!(
        "  written at revision {}, the zone is {} and at revision {}",
        text("revision"),
        text("status"),
        text("acked")
    ));
}

async fn zone_proxy(client: &ApiClient, list: &str, member: &str, name: &str) -> anyhow::Result<Value> {
    let item = format!("/{list}/{}", segment(name));
    let Some(overview) = found(client, &format!("{item}/_overview")).await? else {
        bail!("there is no {name} in {list}");
    };
    let proxy: Value = client.send(Method::GET, &item, None).await?.success()?.json()?;
    let (config, hidden) = config(client, &item).await?;
    Ok(json!({
        "envoy": envoy_resources(&ExplainedProxy::of(&proxy), &config, &Value::Null, &BTreeMap::new()),
        "fields": [],
        "problems": problems(&overview[format!("{member}Insight")]).collect::<Vec<_>>(),
        "warnings": warnings(&Value::Null, hidden),
    }))
}

/// The document at `path`, where there is one.
async fn found(client: &ApiClient, path: &str) -> anyhow::Result<Option<Value>> {
    let answer = client.send(Method::GET, path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        return Ok(None);
    }
    Ok(Some(answer.success()?.json()?))
}

/// What the proxy is to run with, or why that is not shown: not everybody may see it.
async fn config(client: &ApiClient, item: &str) -> anyhow::Result<(Value, Option<String>)> {
    let config = client.send(Method::GET, &format!("{item}/_config"), None).await?;
    Ok(match config.success() {
        Ok(answer) => (answer.json()?, None),
        Err(error) => (Value::Null, Some(format!("the configuration of its Envoy is not shown: {error:#}"))),
    })
}

/// The policies that `rules` name, by type and name.
async fn policies(client: &ApiClient, mesh: &str, rules: &Value) -> anyhow::Result<PolicyDocuments> {
    let mut found = BTreeMap::new();
    for (kind, name) in named_policies(rules) {
        let Some(kind) = common::registry::by_name(&kind) else { continue };
        let path = format!("/meshes/{}/{}/{}", segment(mesh), kind.path, segment(&name));
        let answer = client.send(Method::GET, &path, None).await?;
        // One that went meanwhile explains nothing any more.
        if answer.status != StatusCode::NOT_FOUND {
            found.insert((kind.name.to_owned(), name), answer.success()?.json()?);
        }
    }
    Ok(found)
}

fn print(document: &Value) {
    let rows = |member: &str, row: fn(&Value) -> Vec<String>| -> Vec<Vec<String>> {
        document[member].as_array().into_iter().flatten().map(row).collect()
    };
    let resources =
        rows("envoy", |r| vec![table::text(&r["type"]), table::text(&r["name"]), table::text(&r["from"])]);
    if !resources.is_empty() {
        table::print(&["ENVOY", "NAME", "FROM"], resources);
        output::line("");
    }
    let fields = rows("fields", |field| {
        let lost = field["lost"].as_array().into_iter().flatten();
        let lost: Vec<String> =
            lost.map(|one| format!("{} ({})", table::text(&one["from"]), shown(&one["value"]))).collect();
        vec![
            table::text(&field["part"]),
            table::text(&field["policy"]),
            table::text(&field["field"]),
            shown(&field["value"]),
            table::text(&field["from"]),
            if lost.is_empty() { "-".to_owned() } else { lost.join(", ") },
        ]
    });
    match fields.is_empty() {
        true => crate::output::note!("no policy is for this proxy"),
        false => table::print(&["PART", "POLICY", "FIELD", "VALUE", "FROM", "LOST"], fields),
    }
    for problem in document["problems"].as_array().into_iter().flatten() {
        crate::output::note!("left out of its configuration: {}", table::text(problem));
    }
    for warning in document["warnings"].as_array().into_iter().flatten() {
        crate::output::note!("{}", table::text(warning));
    }
}

/// A value short enough for a table; `-o yaml` has it whole.
fn shown(value: &Value) -> String {
    const LONGEST: usize = 60;
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
