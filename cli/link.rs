//! `straitctl link`: how a zone stands with its global, and an operator's word on what the zone holds back.

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{client::ApiClient, kinds, output, table};

#[derive(Args)]
pub(crate) struct LinkArgs {
    #[command(subcommand)]
    action: Option<LinkAction>,
}

#[derive(Subcommand)]
enum LinkAction {
    /// Lets through what the zone holds back: another store of global, a mass deletion
    Approve,
    /// Offers global again what it refused of this zone: all of it, of one type, or one resource
    OfferAgain(OfferAgain),
}

/// What is to be offered again.
#[derive(Args)]
pub(crate) struct OfferAgain {
    /// Type, as `get` takes it; all types when absent
    kind: Option<String>,
    /// Name where it was applied; all of the type when absent
    name: Option<String>,
    /// Mesh of that
    #[arg(short, long)]
    mesh: Option<String>,
}

impl OfferAgain {
    /// Asks at this path.
    pub(crate) async fn at(&self, client: &ApiClient, path: &str) -> anyhow::Result<()> {
        let said = [("kind", &self.kind), ("name", &self.name), ("mesh", &self.mesh)];
        let said: Vec<_> = said.into_iter().filter_map(|(key, value)| Some((key, value.clone()?))).collect();
        let path = format!("{path}{}", kinds::query(&said));
        let answer = client.send(Method::POST, &path, None).await?.success()?.body;
        let answer: Value = serde_json::from_str(&answer).context("read the answer")?;
        let offered = answer["offered"].as_u64().unwrap_or_default();
        let what = if offered == 1 { "resource is" } else { "resources are" };
        output::line(&format!("{offered} {what} offered again"));
        Ok(())
    }
}

impl LinkArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.action {
            None => show(client).await,
            Some(LinkAction::Approve) => {
                ask(client, Method::POST, "/strait/link/approve").await?;
                output::line("approved; the zone connects again and takes what global shows");
                Ok(())
            }
            Some(LinkAction::OfferAgain(wish)) => wish.at(client, "/strait/link/offer").await,
        }
    }
}

/// The body of the answer; only zones of a global answer here.
async fn ask(client: &ApiClient, method: Method, path: &str) -> anyhow::Result<String> {
    let answer = client.send(method, path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        bail!("this control plane follows no global; ask a zone with --address");
    }
    Ok(answer.success()?.body)
}

async fn show(client: &ApiClient) -> anyhow::Result<()> {
    let link = ask(client, Method::GET, "/strait/link").await?;
    let link: Value = serde_json::from_str(&link).context("read the answer")?;
    let state = match (link["connected"] == true, link["standby"] == true) {
        (true, _) => "connected",
        (false, true) => "standby",
        (false, false) => "away",
    };
    let number = |direction: &str, name: &str| link[direction][name].to_string();
    let row = vec![
        state.to_owned(),
        table::age(&link["since"]),
        number("down", "acked"),
        number("down", "lag"),
        number("up", "acked"),
        number("up", "lag"),
    ];
    table::print(&["GLOBAL", "SINCE", "DOWN REV", "LAG", "UP REV", "LAG"], vec![row]);
    if state == "standby" {
        crate::output::note!(
            "another replica of this zone follows global; this one takes over when that one is gone"
        );
    }
    if let Some(protocol) = link["protocol"].as_str() {
        crate::output::note!("syncs by {protocol}");
    }
    if let Some(keys) = link["signatures"]["trusted"].as_array() {
        let keys: Vec<&str> = keys.iter().filter_map(Value::as_str).collect();
        crate::output::note!("takes only what is signed with {}", keys.join(" or "));
        if let Some(unsigned) = link["signatures"]["unsigned"].as_u64().filter(|unsigned| *unsigned > 0) {
            crate::output::note!("{unsigned} resources it holds are not signed with that");
        }
    }
    for (name, meaning) in [("lastError", "last error"), ("heldBack", "held back")] {
        if let Some(text) = link[name].as_str() {
            crate::output::note!("{meaning}: {text}");
        }
    }
    for warning in link["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        crate::output::note!("warning: {warning}");
    }
    if link["heldBack"].is_string() {
        crate::output::note!(
            "if global is right, let it through with `straitctl link approve`; if it lost what it had or was restored \
             from a backup, `straitctl global recover` there takes it back from the zones"
        );
    }
    if let Some(to) = link["move"]["to"].as_str() {
        let missing = &link["move"]["missing"]["total"];
        match (link["move"]["committed"] == true, link["move"]["complete"] == true) {
            (true, _) => crate::output::note!("moved to {to}"),
            (false, true) => {
                crate::output::note!(
                    "looks at {to}, where nothing is missing: `straitctl zones move` commits"
                )
            }
            (false, false) => crate::output::note!("looks at {to}, where {missing} resources are missing"),
        }
        if let Some(error) = link["move"]["lastError"].as_str() {
            crate::output::note!("{to}: {error}");
        }
    }
    for (kind, reason) in link["refusals"].as_object().into_iter().flatten() {
        crate::output::note!("refused {kind}: {}", reason.as_str().unwrap_or_default());
    }
    for (kind, reason) in link["withheld"].as_object().into_iter().flatten() {
        crate::output::note!("not sent, {kind}: {}", reason.as_str().unwrap_or_default());
    }
    Ok(())
}
