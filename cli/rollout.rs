//! `straitctl rollout`, and what `apply` and `delete` do with `--rollout`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    client::ApiClient,
    duration, kinds,
    output::{self, Output},
    sync::WaitFor,
    table,
};

/// Longest time one question waits.
const QUESTION: Duration = Duration::from_secs(10);

#[derive(Args)]
pub(crate) struct RolloutArgs {
    #[command(subcommand)]
    what: RolloutCommand,
}

#[derive(Subcommand)]
enum RolloutCommand {
    /// Shows how far it is, wave by wave and zone by zone
    Status(Status),
    /// Stops it where it is: nobody else gets the change until it is resumed
    Halt(Halt),
    /// Lets a halted one go on, though what halted it is as it was
    Resume(Steer),
    /// Ends the pause of its wave now
    Advance(Steer),
    /// Brings everybody back to what was before
    Abort(Steer),
}

#[derive(Args)]
struct Status {
    /// Name of the rollout
    name: String,
    /// Follow it until it is over, halted, or waits for somebody
    #[arg(long)]
    follow: bool,
    /// How long to follow it
    #[arg(long, default_value = "24h", value_name = "DURATION", value_parser = duration, requires = "follow")]
    timeout: Duration,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

#[derive(Args)]
struct Halt {
    /// Name of the rollout
    name: String,
    /// Why, for those who look at it
    #[arg(long, default_value = "", hide_default_value = true, value_name = "TEXT")]
    reason: String,
}

#[derive(Args)]
struct Steer {
    /// Name of the rollout
    name: String,
}

impl RolloutArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.what {
            RolloutCommand::Status(status) if status.follow => {
                follow(client, &status.name, status.timeout).await
            }
            RolloutCommand::Status(status) => {
                let shown = ask(client, &status.name, "").await?;
                status.output.print(&shown, || show(&shown))
            }
            RolloutCommand::Halt(halt) => {
                steer(client, &halt.name, "halt", &json!({ "reason": halt.reason })).await
            }
            RolloutCommand::Resume(it) => steer(client, &it.name, "resume", &json!({})).await,
            RolloutCommand::Advance(it) => steer(client, &it.name, "advance", &json!({})).await,
            RolloutCommand::Abort(it) => steer(client, &it.name, "abort", &json!({})).await,
        }
    }
}

fn path(rollout: &str, what: &str) -> String {
    format!("/rollouts/{}/{what}", kinds::segment(rollout))
}

async fn ask(client: &ApiClient, rollout: &str, query: &str) -> anyhow::Result<Value> {
    let answer = client.send(Method::GET, &format!("{}{query}", path(rollout, "status")), None).await?;
    answer.success()?.json()
}

async fn steer(client: &ApiClient, rollout: &str, what: &str, body: &Value) -> anyhow::Result<()> {
    let answer = client.send(Method::POST, &path(rollout, what), Some(body)).await?;
    let answer: Value = answer.success()?.json()?;
    for warning in answer["warnings"].as_array().into_iter().flatten() {
        crate::output::note!("warning: {}", table::text(warning));
    }
    output::line(&format!("rollout {rollout} is {}", table::text(&answer["state"])));
    Ok(())
}

/// A change that goes out in waves.
pub(crate) struct Begin<'a> {
    pub(crate) rollout: &'a str,
    pub(crate) resources: Vec<Value>,
    pub(crate) deletes: Vec<Value>,
    pub(crate) dry_run: bool,
}

impl Begin<'_> {
    /// Begins, and waits for the end if somebody asked for that.
    pub(crate) async fn run(self, client: &ApiClient, wait: &WaitFor) -> anyhow::Result<()> {
        let Self { rollout, resources, deletes, dry_run } = self;
        let body = json!({ "resources": resources, "deletes": deletes, "dryRun": dry_run });
        let answer = client.send(Method::POST, &path(rollout, "begin"), Some(&body)).await?;
        let begun: Value = answer.success().with_context(|| format!("rollout {rollout}"))?.json()?;
        for warning in begun["warnings"].as_array().into_iter().flatten() {
            crate::output::note!("warning: {}", table::text(warning));
        }
        for change in begun["changes"].as_array().into_iter().flatten() {
            output::line(&format!("{} {}", table::text(&change["op"]), title(change)));
        }
        if dry_run {
            waves(&begun);
            crate::output::note!("nothing was changed: this is what would go out");
            return Ok(());
        }
        output::line(&format!("rollout {rollout} has begun"));
        match wait.patience() {
            Some(patience) => follow(client, rollout, patience).await,
            None => {
                crate::output::note!("`straitctl rollout status {rollout} --follow` shows how it goes on");
                Ok(())
            }
        }
    }
}

/// Follows a run until it is over, or goes on no more by itself.
async fn follow(client: &ApiClient, rollout: &str, patience: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + patience;
    let mut query = String::new();
    let (mut told, mut zones, mut run) = (0, BTreeMap::new(), String::new());
    loop {
        let shown = ask(client, rollout, &query).await?;
        if run != shown["id"] {
            (run, told) = (table::text(&shown["id"]), 0);
            waves(&shown);
        }
        let log: Vec<&Value> = shown["log"].as_array().into_iter().flatten().collect();
        for step in log.iter().skip(told) {
            output::line(&line(step));
        }
        told = log.len();
        for zone in shown["zones"].as_array().into_iter().flatten().filter(|zone| zone["state"] != "kept") {
            let (name, state) = (table::text(&zone["zone"]), table::text(&zone["state"]));
            if zones.insert(name.clone(), state.clone()).as_ref() != Some(&state) {
                crate::output::note!("{name}: {state}");
            }
        }
        match shown["state"].as_str().unwrap_or_default() {
            "finished" => return Ok(()),
            "aborted" => bail!("rollout {rollout} was aborted"),
            "halted" => bail!(
                "rollout {rollout} is halted:\n  {}\n`straitctl rollout resume {rollout}` goes on, `straitctl rollout \
                 abort {rollout}` brings everybody back",
                reasons(&shown).join("\n  ")
            ),
            "paused" if waits_for_somebody(&shown) => {
                crate::output::note!("it waits: `straitctl rollout advance {rollout}` goes on");
                return Ok(());
            }
            _ => {}
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            bail!("rollout {rollout} is not over within {}s; it goes on by itself", patience.as_secs());
        }
        let wait = left.min(QUESTION).as_millis();
        query = format!("?timeout={wait}ms&after={}", table::text(&shown["revision"]));
    }
}

fn waits_for_somebody(shown: &Value) -> bool {
    let wave = shown["wave"].as_u64().and_then(|wave| usize::try_from(wave).ok()).unwrap_or_default();
    shown["waves"][wave]["pause"] == "manual"
}

fn reasons(shown: &Value) -> Vec<String> {
    let reasons = shown["reasons"].as_array().into_iter().flatten();
    reasons.map(|reason| table::text(&reason["text"])).collect()
}

fn line(step: &Value) -> String {
    let by =
        step["by"].as_str().filter(|by| !by.is_empty()).map(|by| format!(" by {by}")).unwrap_or_default();
    format!("{}  {}{by}", table::text(&step["at"]), table::text(&step["text"]))
}

fn title(change: &Value) -> String {
    let [kind, name] = ["type", "name"].map(|member| table::text(&change[member]));
    match change["mesh"].as_str() {
        Some(mesh) => format!("{kind} {mesh}/{name}"),
        None => format!("{kind} {name}"),
    }
}

/// Prints who is in which wave.
fn waves(shown: &Value) {
    for (n, wave) in shown["waves"].as_array().into_iter().flatten().enumerate() {
        let zones: BTreeSet<String> =
            wave["zones"].as_array().into_iter().flatten().map(table::text).collect();
        let zones = match wave["everybody"] == true {
            true => "everybody else".to_owned(),
            false => zones.into_iter().collect::<Vec<_>>().join(", "),
        };
        let pause = wave["pause"].as_str().map(|pause| format!(", then pause {pause}")).unwrap_or_default();
        output::line(&format!("wave {}: {zones}{pause}", n + 1));
    }
}

fn show(shown: &Value) {
    let wave = shown["wave"].as_u64().unwrap_or_default() + 1;
    output::line(&format!(
        "rollout {} is {} at wave {wave}, begun by {} with revision {}",
        table::text(&shown["rollout"]),
        table::text(&shown["state"]),
        table::text(&shown["by"]),
        table::text(&shown["changeRevision"]),
    ));
    for reason in reasons(shown) {
        output::line(&format!("halted: {reason}"));
    }
    for change in shown["changes"].as_array().into_iter().flatten() {
        output::line(&format!("{} {}", table::text(&change["op"]), title(change)));
    }
    waves(shown);
    let zones = shown["zones"].as_array().into_iter().flatten();
    let rows = zones.map(|zone| {
        ["zone", "wave", "state", "relay"].iter().map(|member| table::text(&zone[*member])).collect()
    });
    table::print(&["ZONE", "WAVE", "STATE", "RELAY"], rows.collect());
    for step in shown["log"].as_array().into_iter().flatten() {
        output::line(&line(step));
    }
}
