//! `straitctl wait`.

use std::time::Duration;

use anyhow::bail;
use clap::{Args, Subcommand};
use reqwest::Method;
use tokio::time::{Instant, sleep};

use crate::{
    client::ApiClient,
    duration,
    inspect::ZoneOverview,
    kinds, output,
    sync::{self, Whom},
};

const POLL: Duration = Duration::from_millis(300);

#[derive(Args)]
pub(crate) struct Wait {
    #[command(subcommand)]
    what: WaitSubject,
    /// How long to wait
    #[arg(long, global = true, default_value = "60s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

#[derive(Subcommand)]
enum WaitSubject {
    /// Until every zone concerned has acknowledged a revision, as the answer to a write names it
    Revision {
        /// Number of the revision
        revision: u64,
        /// And every Envoy that is connected there
        #[arg(long)]
        proxies: bool,
    },
    #[command(flatten)]
    Condition(WaitCondition),
}

/// What is asked for again and again.
#[derive(Subcommand)]
enum WaitCondition {
    /// Until so many zones are online
    Zones {
        /// How many
        #[arg(long, default_value_t = 1)]
        online: usize,
    },
    /// Until a resource exists
    Resource {
        /// Type
        r#type: String,
        /// Name
        name: String,
        /// Mesh
        #[arg(short, long, default_value = "default")]
        mesh: String,
    },
}

impl Wait {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let condition = match self.what {
            WaitSubject::Revision { revision, proxies } => {
                let whom = if proxies { Whom::Proxies } else { Whom::Zones };
                return sync::follow(client, revision, whom, self.timeout).await;
            }
            WaitSubject::Condition(condition) => condition,
        };
        let deadline = Instant::now() + self.timeout;
        loop {
            let missing = match condition.check(client).await {
                Ok(Ok(message)) => {
                    output::line(&message);
                    return Ok(());
                }
                Ok(Err(missing)) => missing,
                // A control plane that is still starting is worth waiting for.
                Err(error) => format!("{error:#}"),
            };
            if Instant::now() + POLL > deadline {
                bail!("not within {}s: {missing}", self.timeout.as_secs());
            }
            sleep(POLL).await;
        }
    }
}

impl WaitCondition {
    /// What is there, or what is still missing.
    async fn check(&self, client: &ApiClient) -> anyhow::Result<Result<String, String>> {
        match self {
            Self::Zones { online } => {
                let zones: Vec<ZoneOverview> =
                    client.list("/zones/_overview").await?.iter().map(ZoneOverview::of).collect();
                let is_online: Vec<&str> =
                    zones.iter().filter(|z| z.status() == "online").map(ZoneOverview::name).collect();
                if is_online.len() >= *online {
                    return Ok(Ok(format!("online: {}", is_online.join(", "))));
                }
                let states: Vec<String> =
                    zones.iter().map(|z| format!("{} is {}", z.name(), z.status())).collect();
                let states =
                    if states.is_empty() { "no zone is known".to_owned() } else { states.join(", ") };
                Ok(Err(format!("{} of {online} zones online; {states}", is_online.len())))
            }
            Self::Resource { r#type, name, mesh } => {
                let kind = kinds::find(r#type)?;
                let answer = client.send(Method::GET, &kinds::item(kind, mesh, name), None).await?;
                let title = kinds::title(kind, mesh, name);
                if answer.status == reqwest::StatusCode::NOT_FOUND {
                    return Ok(Err(format!("{title} does not exist")));
                }
                answer.success()?;
                Ok(Ok(format!("{title} exists")))
            }
        }
    }
}
