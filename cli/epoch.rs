//! `straitctl epoch`: which history zones are shown, and how it goes on after a restore.

use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::Value;

use crate::{
    client::ApiClient,
    output::{self, Output},
    recover,
};

#[derive(Args)]
pub(crate) struct EpochArgs {
    #[command(subcommand)]
    action: Option<EpochAction>,
    /// Form of the answer
    #[arg(short, long, default_value = "table", global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum EpochAction {
    /// Says that global was restored on purpose: zones follow it again, and take what it has
    ///
    /// After a restore by other tools (a copied database file, pg_restore) zones hold back, because global went back in
    /// time. With the next epoch they follow again; what was written after the backup is given up, but for what
    /// `straitctl global recover` takes back from zones, which raises the epoch by itself.
    Raise,
}

impl EpochArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.action {
            None => self.show(client).await,
            Some(EpochAction::Raise) => {
                let raised: Value = recover::ask(client, Method::POST, "/strait/epoch").await?;
                self.output.print(&raised, || {
                    output::line(&format!(
                        "zones are shown epoch {} of store {}",
                        raised["epoch"],
                        text(&raised["storeId"])
                    ));
                })
            }
        }
    }

    async fn show(&self, client: &ApiClient) -> anyhow::Result<()> {
        let shown: Value = recover::ask(client, Method::GET, "/strait/epoch").await?;
        self.output.print(&shown, || {
            let (store, epoch, revision) = (text(&shown["storeId"]), &shown["epoch"], &shown["revision"]);
            output::line(&format!("store {store}, epoch {epoch}, revision {revision}"));
            for (zone, reason) in shown["heldBack"].as_object().into_iter().flatten() {
                crate::output::note!("{zone} does not follow: {}", text(reason));
            }
        })
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
