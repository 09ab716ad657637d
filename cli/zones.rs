//! `straitctl zones`: a zone moves to another global, gets another name, or is offered again what it refused.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{client::ApiClient, duration, kinds, link::OfferAgain, output};

/// How often it is looked how far something is.
const LOOK: Duration = Duration::from_millis(500);

#[derive(Args)]
pub(crate) struct ZonesArgs {
    #[command(subcommand)]
    action: ZonesAction,
}

#[derive(Subcommand)]
enum ZonesAction {
    /// Lets a zone follow another global, once that has everything the zone holds
    Move(Move),
    /// Gives a zone another name: a token for it first, and the old name goes when the new one is there
    Rename(Rename),
    /// Offers a zone again what it refused of global: all of it, of one type, or one resource
    OfferAgain(ZoneOffer),
}

/// Asked of global.
#[derive(Args)]
struct ZoneOffer {
    /// The zone
    zone: String,
    #[command(flatten)]
    wish: OfferAgain,
}

impl ZonesArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.action {
            ZonesAction::Move(moving) => moving.run(client).await,
            ZonesAction::Rename(renaming) => renaming.run(client).await,
            ZonesAction::OfferAgain(ZoneOffer { zone, wish }) => {
                wish.at(client, &format!("/strait/zones/{}/offer", kinds::segment(&zone))).await
            }
        }
    }
}

/// Asked of the zone itself (--address). With --to the zone takes what the other global would send into a place of its
/// own, beside what it follows, and this command waits and says what would differ. --commit lets it follow the other
/// global; until then --back gives the move up.
#[derive(Args)]
struct Move {
    /// The zone, as a check that the right one is asked
    zone: String,
    /// Address of the other global: grpcs://host:port
    #[arg(long, value_name = "URL", required_unless_present_any = ["commit", "back"], conflicts_with_all = ["commit", "back"])]
    to: Option<String>,
    /// File with the zone token of the other global
    #[arg(long, value_name = "FILE", requires = "to")]
    token_file: Option<PathBuf>,
    /// Authority of the certificate of the other global, as PEM; the roots of the zone's machine when absent
    #[arg(long, value_name = "FILE", requires = "to")]
    to_ca_cert_file: Option<PathBuf>,
    /// Lets the zone trust any certificate of the other global
    #[arg(long, requires = "to")]
    to_skip_verify: bool,
    /// Follows the other global from now on
    #[arg(long, conflicts_with = "back")]
    commit: bool,
    /// With --commit: what the other global does not have goes
    #[arg(long, requires = "commit")]
    accept_losses: bool,
    /// Gives the move up
    #[arg(long)]
    back: bool,
    /// How long to wait until the other global has shown everything
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

impl Move {
    async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let index: Value = client.get("/").await?;
        let asked = index["strait"]["zone"].as_str().unwrap_or_default();
        if asked != self.zone {
            bail!("this is {}, not zone {}; name that with --address", who(asked), self.zone);
        }
        match &self.to {
            Some(to) => self.begin(client, to).await,
            None if self.back => {
                send(client, Method::DELETE, "/strait/link/move", None).await?;
                output::line("the zone stays with the global it follows");
                Ok(())
            }
            None => self.commit(client).await,
        }
    }

    async fn begin(&self, client: &ApiClient, to: &str) -> anyhow::Result<()> {
        let read = |file: &PathBuf| {
            std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
        };
        let body = json!({
            "to": to,
            "token": self.token_file.as_ref().map(read).transpose()?.map(|token| token.trim().to_owned()),
            "caCert": self.to_ca_cert_file.as_ref().map(read).transpose()?,
            "skipVerify": self.to_skip_verify,
        });
        send(client, Method::POST, "/strait/link/move", Some(&body)).await?;
        let seen = async {
            loop {
                let moving = status(client).await?;
                if moving["offered"].as_u64().is_some_and(|offered| offered > 0) {
                    return anyhow::Ok(moving);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let Ok(moving) = tokio::time::timeout(self.timeout, seen).await else {
            let moving = status(client).await?;
            let reason = moving["lastError"].as_str().unwrap_or("it does not answer");
            bail!(
                "the other global has not shown everything in {:?}: {reason}; the zone goes on trying",
                self.timeout
            );
        };
        show(&moving?, &self.zone);
        Ok(())
    }

    async fn commit(&self, client: &ApiClient) -> anyhow::Result<()> {
        let path = format!("/strait/link/move/commit?acceptLosses={}", self.accept_losses);
        send(client, Method::POST, &path, None).await?;
        let moving = status(client).await?;
        let to = moving["to"].as_str().unwrap_or_default();
        output::line(&format!("zone {} follows {to} from now on", self.zone));
        crate::output::note!(
            "write that address and its token into multizone.zone of the settings of the zone at leisure"
        );
        Ok(())
    }
}

fn who(zone: &str) -> String {
    if zone.is_empty() { "no zone of ours".to_owned() } else { format!("zone {zone}") }
}

async fn send(client: &ApiClient, method: Method, path: &str, body: Option<&Value>) -> anyhow::Result<()> {
    let answer = client.send(method, path, body).await?;
    if answer.status == StatusCode::NOT_FOUND {
        bail!(
            "this zone follows no global; to join a federation, start it with multizone.zone.globalAddress"
        );
    }
    answer.success()?;
    Ok(())
}

async fn status(client: &ApiClient) -> anyhow::Result<Value> {
    let mut link: Value = client.get("/strait/link").await?;
    Ok(link["move"].take())
}

fn show(moving: &Value, zone: &str) {
    for (list, meaning) in [
        ("missing", "is not there and would be gone"),
        ("changed", "is another there"),
        ("added", "would be new"),
    ] {
        for name in moving[list]["names"].as_array().into_iter().flatten() {
            output::line(&format!("{} {meaning}", name.as_str().unwrap_or_default()));
        }
    }
    let total = |list: &str| moving[list]["total"].as_u64().unwrap_or(0);
    let (missing, changed, added) = (total("missing"), total("changed"), total("added"));
    output::line(&format!("{missing} missing, {changed} changed, {added} new of {}", moving["offered"]));
    match missing {
        0 => crate::output::note!(
            "nothing is missing; `straitctl zones move {zone} --commit` lets the zone follow it"
        ),
        _ => crate::output::note!(
            "bring there what is missing; the zone goes on looking, and follows what it followed"
        ),
    }
}

/// Asked of global. First it gives a token for the new name; with that the zone is started under it, on the store it
/// has. With --finish the old name goes, once the new one has sent everything.
#[derive(Args)]
struct Rename {
    /// The name a zone has
    old: String,
    /// The name it gets
    new: String,
    /// Where to write the token for the new name
    #[arg(long, value_name = "FILE", required_unless_present = "finish")]
    token_file: Option<PathBuf>,
    /// Deletes the old name; the zone runs under the new one
    #[arg(long, conflicts_with = "token_file")]
    finish: bool,
    /// How long to wait for that
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration)]
    timeout: Duration,
}

impl Rename {
    async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match &self.token_file {
            Some(file) => self.begin(client, file).await,
            None => self.finish(client).await,
        }
    }

    async fn begin(&self, client: &ApiClient, file: &PathBuf) -> anyhow::Result<()> {
        let (old, new) = (&self.old, &self.new);
        let mut zone: Value = client.get(&item(old)).await.with_context(|| format!("look up zone {old}"))?;
        let taken = client.send(Method::GET, &item(new), None).await?;
        if taken.status != StatusCode::NOT_FOUND {
            taken.success()?;
            bail!("there is a zone {new} already: choose another name, or --finish");
        }
        let asked = json!({ "zone": new, "scope": ["cp"], "validFor": "87600h" });
        let token = client.send(Method::POST, "/tokens/zone", Some(&asked)).await?.success()?.body;
        std::fs::write(file, token.trim()).with_context(|| format!("write {}", file.display()))?;
        // Switched off or on, as it was under its old name.
        zone["name"] = json!(new);
        if let Some(members) = zone.as_object_mut() {
            ["creationTime", "modificationTime", "kri", "labels"]
                .iter()
                .for_each(|made| drop(members.remove(*made)));
        }
        client.send(Method::PUT, &item(new), Some(&zone)).await?.success()?;
        output::line(&format!("zone {new} may connect with the token in {}", file.display()));
        crate::output::note!(
            "stop zone {old}, start it with multizone.zone.name {new} and this token on the store it has, and finish \
             with `straitctl zones rename {old} {new} --finish`"
        );
        Ok(())
    }

    async fn finish(&self, client: &ApiClient) -> anyhow::Result<()> {
        let (old, new) = (&self.old, &self.new);
        let done = async {
            loop {
                let strait = overview(client, new).await?;
                let is_in_sync =
                    ["down", "up"].iter().all(|way| strait[*way]["lag"] == 0 && strait[*way]["acked"] != 0);
                if strait["status"] == "online"
                    && is_in_sync
                    && overview(client, old).await?["status"] == "offline"
                {
                    return anyhow::Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        match tokio::time::timeout(self.timeout, done).await {
            Ok(done) => done?,
            Err(_) => {
                let (old_is, new_is) = (overview(client, old).await?, overview(client, new).await?);
                bail!(
                    "zone {new} is {} and zone {old} {}: the old one has to be offline, and the new one in sync",
                    new_is["status"],
                    old_is["status"]
                );
            }
        }
        client.send(Method::DELETE, &item(old), None).await?.success()?;
        output::line(&format!("zone {old} is {new} now"));
        Ok(())
    }
}

fn item(zone: &str) -> String {
    format!("/zones/{}", kinds::segment(zone))
}

async fn overview(client: &ApiClient, zone: &str) -> anyhow::Result<Value> {
    let mut overview: Value = client.get(&format!("{}/_overview", item(zone))).await?;
    Ok(overview["strait"].take())
}
