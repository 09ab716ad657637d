//! `straitctl proxy-config`: what one proxy has, in tables for people.

mod bootstrap;
mod clusters;
mod endpoints;
mod listeners;
mod routes;
mod secrets;

use anyhow::bail;
use clap::{Args, Subcommand, ValueEnum};
use common::model::text::to_yaml;
use serde_json::{Value, json};

use crate::{
    client::ApiClient,
    output,
    proxy::{ProxyDump, ProxyPlace, read_dump},
    table,
};

#[derive(Args)]
pub(crate) struct ProxyConfigArgs {
    #[command(subcommand)]
    what: ProxyConfigPart,
    /// Form of the answer; a table is what `short` is too
    #[arg(short, long, global = true, default_value = "table")]
    output: ProxyConfigForm,
    /// Mesh of the dataplane
    #[arg(short, long, global = true)]
    mesh: Option<String>,
    /// Read a dump of an Envoy from this file, or from standard input for `-`, and ask nobody
    #[arg(short, long, global = true, value_name = "FILE")]
    file: Option<String>,
    /// What the control plane holds for the proxy, instead of what its Envoy says it has; needed for clients without
    /// an Envoy
    #[arg(long, global = true, conflicts_with = "file")]
    held: bool,
}

#[derive(Subcommand)]
enum ProxyConfigPart {
    /// Listeners: where the proxy listens, and what becomes of what arrives
    #[command(alias = "listeners", alias = "l")]
    Listener {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
        #[command(flatten)]
        filter: listeners::ListenerFilter,
    },
    /// Routes: which requests go where
    #[command(alias = "routes", alias = "r")]
    Route {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
        #[command(flatten)]
        filter: routes::RouteFilter,
    },
    /// Clusters: what is called, and how its endpoints are found
    #[command(alias = "clusters", alias = "c")]
    Cluster {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
        #[command(flatten)]
        filter: clusters::ClusterFilter,
    },
    /// Endpoints: who is called, and whether they are well
    #[command(alias = "endpoints", alias = "ep")]
    Endpoint {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
        #[command(flatten)]
        filter: endpoints::EndpointFilter,
    },
    /// Secrets: which certificates there are, and until when they are good
    #[command(alias = "secrets", alias = "s")]
    Secret {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
    },
    /// Bootstrap: what the proxy was started with
    #[command(alias = "b")]
    Bootstrap {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
    },
    /// All of these
    #[command(alias = "a")]
    All {
        /// Which proxy: NAME, or MESH.NAME as its node is called
        name: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ProxyConfigForm {
    Table,
    Short,
    Yaml,
    Json,
}

/// What is shown of one part.
struct ConfigTable {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// The same in full.
    document: Value,
}

impl ConfigTable {
    fn print(&self, none: &str) {
        match self.rows.is_empty() {
            true => crate::output::note!("{none}"),
            false => table::print(&self.headings, self.rows.clone()),
        }
    }
}

impl ProxyConfigPart {
    fn name(&self) -> Option<&str> {
        match self {
            Self::Listener { name, .. }
            | Self::Route { name, .. }
            | Self::Cluster { name, .. }
            | Self::Endpoint { name, .. }
            | Self::Secret { name }
            | Self::Bootstrap { name }
            | Self::All { name } => name.as_deref(),
        }
    }

    /// What is shown, part by part; each with what to say when there is nothing of it.
    fn shown(&self, dump: &ProxyDump) -> anyhow::Result<Vec<(ConfigTable, &'static str)>> {
        Ok(match self {
            Self::Listener { filter, .. } => {
                vec![(listeners::shown(dump, filter)?, "no listener is like that")]
            }
            Self::Route { filter, .. } => vec![(routes::shown(dump, filter), "no route is like that")],
            Self::Cluster { filter, .. } => vec![(clusters::shown(dump, filter)?, "no cluster is like that")],
            Self::Endpoint { filter, .. } => {
                vec![(endpoints::shown(dump, filter), "no endpoint is like that")]
            }
            Self::Secret { .. } => vec![(secrets::shown(dump), "there is no secret")],
            Self::Bootstrap { .. } => vec![(bootstrap::shown(dump), "the dump has no bootstrap")],
            Self::All { .. } => vec![
                (clusters::shown(dump, &clusters::ClusterFilter::default())?, "there is no cluster"),
                (listeners::shown(dump, &listeners::ListenerFilter::default())?, "there is no listener"),
                (routes::shown(dump, &routes::RouteFilter::default()), "there is no route"),
                (endpoints::shown(dump, &endpoints::EndpointFilter::default()), "there is no endpoint"),
                (secrets::shown(dump), "there is no secret"),
            ],
        })
    }
}

impl ProxyConfigArgs {
    pub(crate) async fn run(self, client: impl FnOnce() -> anyhow::Result<ApiClient>) -> anyhow::Result<()> {
        let dump = self.dump(client).await?;
        let parts = self.what.shown(&dump)?;
        if matches!(self.output, ProxyConfigForm::Table | ProxyConfigForm::Short) {
            self.print(&parts);
        } else {
            let whole = |(shown, _): &(ConfigTable, _)| shown.document.clone();
            let document = match &parts[..] {
                [one] => whole(one),
                all => {
                    let names = ["clusters", "listeners", "routes", "endpoints", "secrets"];
                    let named = names.into_iter().map(str::to_owned).zip(all.iter().map(whole));
                    Value::Object(named.collect())
                }
            };
            match self.output {
                ProxyConfigForm::Yaml => output::text(&to_yaml(&document)?),
                _ => output::line(&serde_json::to_string_pretty(&document)?),
            }
        }
        for (name, details) in &dump.refused {
            crate::output::note!("{name}: Envoy refused what it was last sent of it: {}", details.trim());
        }
        Ok(())
    }

    fn print(&self, parts: &[(ConfigTable, &'static str)]) {
        if matches!(self.what, ProxyConfigPart::Bootstrap { .. }) && self.output == ProxyConfigForm::Table {
            // There is no table of it; whoever wants to know the versions asks for the short form.
            for (shown, none) in parts {
                match shown.rows.is_empty() {
                    true => crate::output::note!("{none}"),
                    false => output::line(&serde_json::to_string_pretty(&shown.document).unwrap_or_default()),
                }
            }
            return;
        }
        for (i, (shown, none)) in parts.iter().enumerate() {
            if i > 0 {
                output::line("");
            }
            shown.print(none);
        }
    }

    async fn dump(&self, client: impl FnOnce() -> anyhow::Result<ApiClient>) -> anyhow::Result<ProxyDump> {
        if let Some(file) = &self.file {
            return read_dump(file);
        }
        let Some(name) = self.what.name() else {
            bail!(
                "name a proxy, or a dump of its Envoy with --file; `straitctl proxy-status` lists the proxies"
            );
        };
        let client = client()?;
        let place = ProxyPlace::find(&client, name, self.mesh.as_deref()).await?;
        if self.held {
            return place.held(&client).await;
        }
        if matches!(self.what, ProxyConfigPart::Endpoint { .. }) {
            return place.endpoints(&client).await;
        }
        place.envoy(&client).await
    }
}

/// The documents of those items that are shown.
fn documents<'a>(items: impl Iterator<Item = &'a Value>) -> Value {
    json!(items.collect::<Vec<_>>())
}

/// Address and port of a socket address, or the path of a socket.
fn address(value: &Value) -> (String, String) {
    let socket = &value["socketAddress"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if socket.is_object() {
        let port = &socket["portValue"];
        let port = port.as_u64().map(|port| port.to_string()).unwrap_or_else(|| text(&socket["namedPort"]));
        return (text(&socket["address"]), if port.is_empty() { "0".to_owned() } else { port });
    }
    match &value["pipe"]["path"] {
        Value::String(path) => (path.clone(), "0".to_owned()),
        _ => (text(&value["envoyInternalAddress"]["serverListenerName"]), "0".to_owned()),
    }
}

/// A text, or a dash where there is none.
fn or_dash(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.to_owned() }
}
