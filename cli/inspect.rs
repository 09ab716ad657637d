//! `straitctl inspect`: how things are doing.

mod meshes;
mod proxies;
mod zones;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use reqwest::{Method, StatusCode};
use serde_json::Value;

pub(crate) use proxies::{PROXY_HEADINGS, problems, proxy_row, trouble};
pub(crate) use zones::{ZONE_HEADINGS, ZoneOverview};

use crate::{
    client::ApiClient,
    kinds::{query, segment},
    output::{self, Output},
    sync,
};

/// How bad it is with a zone or a proxy, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowTrouble {
    /// All is well.
    None,
    /// There is something to know.
    Noted,
    /// It is not there, or serves nobody.
    Away,
}

#[derive(Args)]
pub(crate) struct Inspect {
    #[command(subcommand)]
    what: InspectCommand,
    /// Form of the answer
    #[arg(short, long, global = true, default_value = "table")]
    output: Output,
}

#[derive(Subcommand)]
enum InspectCommand {
    /// Zones: whether they are online, since when, and how far behind
    #[command(alias = "zone")]
    Zones {
        /// Only this one
        name: Option<String>,
    },
    /// Dataplanes of a mesh: whether they are online, and what they last took from the control plane
    #[command(alias = "dataplane")]
    Dataplanes {
        /// Only this one
        name: Option<String>,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
        /// All meshes
        #[arg(short = 'A', long, conflicts_with = "name")]
        all_meshes: bool,
        /// Only those with this tag; may be repeated
        #[arg(long, value_name = "KEY=VALUE", value_delimiter = ',', value_parser = tag, conflicts_with = "name")]
        tag: Vec<(String, String)>,
        /// Only gateways
        #[arg(long, conflicts_with = "name")]
        gateway: bool,
        #[command(flatten)]
        envoy: OfEnvoy,
    },
    /// Proxies through which other zones enter
    #[command(name = "zoneingresses", alias = "zoneingress")]
    ZoneIngresses {
        /// Only this one
        name: Option<String>,
        #[command(flatten)]
        envoy: OfEnvoy,
    },
    /// Proxies through which traffic leaves the zone
    #[command(name = "zoneegresses", alias = "zoneegress")]
    ZoneEgresses {
        /// Only this one
        name: Option<String>,
        #[command(flatten)]
        envoy: OfEnvoy,
    },
    /// Meshes with their dataplanes and services
    #[command(alias = "mesh")]
    Meshes,
    /// Services of a mesh with the dataplanes behind them
    #[command(alias = "service")]
    Services {
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
    /// Sync: how far each zone is in each direction, and what was refused
    Sync,
}

/// What the Envoy itself says, instead of what is known about it.
#[derive(Args)]
struct OfEnvoy {
    /// Ask its Envoy, through the control plane
    #[arg(long = "type", value_name = "WHAT", requires = "name")]
    what: Option<EnvoyQuestion>,
}

#[derive(Clone, Copy, ValueEnum)]
enum EnvoyQuestion {
    /// The configuration it runs with
    ConfigDump,
    /// Its counters
    Stats,
    /// Its clusters with their endpoints
    Clusters,
}

impl OfEnvoy {
    /// Prints the answer, when one is asked for.
    async fn print(&self, client: &ApiClient, list: &str, name: Option<&str>) -> anyhow::Result<bool> {
        let (Some(what), Some(name)) = (self.what, name) else { return Ok(false) };
        let what = match what {
            EnvoyQuestion::ConfigDump => "xds",
            EnvoyQuestion::Stats => "stats",
            EnvoyQuestion::Clusters => "clusters",
        };
        let answer = client.send(Method::GET, &format!("{list}/{}/{what}", segment(name)), None).await?;
        output::text(&answer.success()?.body);
        Ok(true)
    }
}

fn tag(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

impl Inspect {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let output = self.output;
        match self.what {
            InspectCommand::Zones { name } => {
                let found = Inspection::overviews(client, "/zones", name, &[]).await?;
                found.print(output, "no zone has connected yet", zones::print)?;
                // Those who watch the zones look here; whether they are told is no reason to fail.
                for warning in client.warnings().await {
                    crate::output::note!("control plane: {warning}");
                }
                Ok(())
            }
            InspectCommand::Dataplanes { name, mesh, all_meshes, tag, gateway, envoy } => {
                let filters = tag.iter().map(|(key, value)| ("tag", format!("{key}:{value}")));
                let filters: Vec<_> =
                    filters.chain(gateway.then(|| ("gateway", "true".to_owned()))).collect();
                let list = match all_meshes {
                    true => "/dataplanes".to_owned(),
                    false => format!("/meshes/{}/dataplanes", segment(&mesh)),
                };
                if envoy.print(client, &list, name.as_deref()).await? {
                    return Ok(());
                }
                let found = Inspection::overviews(client, &list, name, &filters).await?;
                let none =
                    format!("there is no such dataplane in {}", if all_meshes { "any mesh" } else { &mesh });
                found.print(output, &none, |items| proxies::print(items, all_meshes))
            }
            InspectCommand::ZoneIngresses { name, envoy } => {
                if envoy.print(client, "/zoneingresses", name.as_deref()).await? {
                    return Ok(());
                }
                let found = Inspection::overviews(client, "/zoneingresses", name, &[]).await?;
                found.print(output, "there is no zone ingress", proxies::print_of_zones)
            }
            InspectCommand::ZoneEgresses { name, envoy } => {
                if envoy.print(client, "/zoneegresses", name.as_deref()).await? {
                    return Ok(());
                }
                let found = Inspection::overviews(client, "/zoneegresses", name, &[]).await?;
                found.print(output, "there is no zone egress", proxies::print_of_zones)
            }
            InspectCommand::Meshes => {
                let found = Inspection::list(client.list("/mesh-insights").await?);
                let meshes = client.list("/meshes").await?;
                found.print(output, "there is no mesh", |insights| meshes::print(&meshes, insights))
            }
            InspectCommand::Services { mesh } => {
                let path = format!("/meshes/{}/service-insights", segment(&mesh));
                let found = Inspection::list(client.list(&path).await?);
                found.print(output, &format!("no service in mesh {mesh}"), meshes::print_services)
            }
            InspectCommand::Sync => {
                let overview: Value = client.get("/sync").await?;
                output.print(&overview, || sync::print(&overview))
            }
        }
    }
}

/// What is to be shown, and as which document.
struct Inspection {
    items: Vec<Value>,
    document: Value,
}

impl Inspection {
    fn list(items: Vec<Value>) -> Self {
        Self { document: output::list(&items), items }
    }

    /// The overviews below `list`, or the one called `name`.
    async fn overviews(
        client: &ApiClient,
        list: &str,
        name: Option<String>,
        filters: &[(&str, String)],
    ) -> anyhow::Result<Self> {
        let Some(name) = name else {
            return Ok(Self::list(client.list(&format!("{list}/_overview{}", query(filters))).await?));
        };
        let answer = client.send(Method::GET, &format!("{list}/{}/_overview", segment(&name)), None).await?;
        if answer.status == StatusCode::NOT_FOUND {
            bail!("there is no {name} in {list}; leave the name out to see what there is");
        }
        let document: Value = answer.success()?.json()?;
        Ok(Self { items: vec![document.clone()], document })
    }

    fn print(self, output: Output, none: &str, table: impl FnOnce(&[Value])) -> anyhow::Result<()> {
        output.print(&self.document, || match self.items.is_empty() {
            true => crate::output::note!("{none}"),
            false => table(&self.items),
        })
    }
}
