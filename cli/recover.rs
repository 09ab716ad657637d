//! `straitctl global recover`: rebuilds global from what its zones hold.

use anyhow::bail;
use clap::{Args, Subcommand};
use common::model::text::to_yaml;
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{
    client::ApiClient,
    output::{self, Output},
};

#[derive(Args)]
pub(crate) struct GlobalArgs {
    #[command(subcommand)]
    action: GlobalAction,
}

#[derive(Subcommand)]
enum GlobalAction {
    /// Rebuilds what global owns from what its zones hold, after it lost that or was restored from an old backup
    Recover(Recover),
    /// Writes the public half of the key that signs what zones are sent, as multizone.zone.kds.trustedKeysFile wants it
    SigningKey,
}

impl GlobalArgs {
    pub(crate) async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        match self.action {
            GlobalAction::Recover(recover) => recover.run(client).await,
            GlobalAction::SigningKey => signing_key(client).await,
        }
    }
}

async fn signing_key(client: &ApiClient) -> anyhow::Result<()> {
    let key: Value = client.get("/strait/signing-key").await?;
    output::line(key["publicKey"].as_str().unwrap_or_default().trim_end());
    crate::output::note!("key {}", key["id"].as_str().unwrap_or_default());
    Ok(())
}

/// Asks every connected zone, shows what would be restored, and with --yes does it: in one transaction, in the next epoch
/// of the history zones followed, so that they go on where they were.
#[derive(Args)]
pub(crate) struct Recover {
    /// Shows what would be done, and does nothing; so does leaving out --yes
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
    /// Does it
    #[arg(long)]
    yes: bool,
    /// Deletes what only global has, and zones that had come further do not have
    #[arg(long)]
    remove_absent: bool,
    /// Goes on without zones that are online and cannot be asked
    #[arg(long)]
    partial: bool,
    /// Believes one zone against several, where what is marked as alone is right
    #[arg(long)]
    believe_one: bool,
    /// Form of the answer
    #[arg(short, long, default_value = "table")]
    output: Output,
}

impl Recover {
    async fn run(self, client: &ApiClient) -> anyhow::Result<()> {
        let path = format!(
            "/strait/recovery?removeAbsent={}&partial={}&believeOne={}",
            self.remove_absent, self.partial, self.believe_one
        );
        let method = if self.yes { Method::POST } else { Method::GET };
        let report: Value = ask(client, method, &path).await?;
        self.output.print(&report, || print(&report))?;
        if self.yes || self.dry_run || self.output != Output::Table {
            return Ok(());
        }
        crate::output::note!("nothing was changed; --yes does it");
        Ok(())
    }
}

/// An answer of global, and of nobody else.
pub(crate) async fn ask(client: &ApiClient, method: Method, path: &str) -> anyhow::Result<Value> {
    let answer = client.send(method, path, None).await?;
    if answer.status == StatusCode::NOT_FOUND {
        bail!("this control plane is no global of ours; name global with --address");
    }
    answer.success()?.json()
}

fn print(report: &Value) {
    let done = report["done"] == true;
    zones(report);
    let restored = if done { "restored" } else { "would be restored" };
    for item in items(report, "restored") {
        let owner = item["owner"].as_str().map(|zone| format!(", of zone {zone}")).unwrap_or_default();
        let (title, change, zones) = (title(item), text(&item["change"]), names(&item["zones"]));
        let alone = alone(item, &item["missing"]);
        output::line(&format!("{title} {change} as {zones} hold it{owner}{alone}"));
    }
    output::line(&format!("{} resources {restored}", report["restored"]["total"]));
    items(report, "conflicts").for_each(conflict);
    if report["conflicts"]["total"] != 0 {
        output::line(&format!("{} conflicts", report["conflicts"]["total"]));
    }
    for item in items(report, "absent") {
        let what = match (item["removed"] == true, done) {
            (true, true) => "deleted",
            (true, false) => "would be deleted",
            (false, _) => "stays, --remove-absent deletes it",
        };
        output::line(&format!(
            "{} is on global only, {} have it no more: {what}",
            title(item),
            names(&item["zones"])
        ));
    }
    if report["alone"].as_u64().is_some_and(|alone| alone > 0) && !done {
        crate::output::note!(
            "warning: of {} resources one zone says something else than several others: look at them, and if it is right, \
             add --believe-one",
            report["alone"]
        );
    }
    for key in report["lost"].as_array().into_iter().flatten() {
        crate::output::note!(
            "warning: {} was on global only, and no zone can give it back: import it, or make a new one",
            text(key)
        );
    }
    let (shown, next) = (&report["shown"], &report["next"]);
    match (next.is_null(), done) {
        (true, _) => output::line("there is nothing to recover"),
        (false, true) => output::line(&format!("zones are shown {} and follow again", history(next))),
        (false, false) => {
            output::line(&format!("zones would be shown {} instead of {}", history(next), history(shown)))
        }
    }
}

fn zones(report: &Value) {
    for zone in report["zones"].as_array().into_iter().flatten() {
        let name = text(&zone["zone"]);
        match zone["unasked"].as_str() {
            Some(reason) => crate::output::note!("warning: zone {name} was not asked: {reason}"),
            None => output::line(&format!("zone {name} holds {} resources", zone["resources"])),
        }
        if let Some(reason) = zone["heldBack"].as_str() {
            output::line(&format!("  it does not follow: {reason}"));
        }
        if zone["staysHeldBack"] == true {
            crate::output::note!(
                "warning: zone {name} followed another history: `straitctl link approve` there lets it follow"
            );
        }
        if zone["secretsKept"].as_u64().is_some_and(|kept| kept > 0) {
            crate::output::note!(
                "warning: zone {name} keeps {} secrets to itself, because it does not check the certificate of global",
                zone["secretsKept"]
            );
        }
        for reason in zone["refused"].as_array().into_iter().flatten() {
            crate::output::note!("warning: zone {name}: {}", text(reason));
        }
    }
}

fn conflict(conflict: &Value) {
    let outcome = match text(&conflict["winner"]) {
        "global" => "stays as it is on global",
        "zones" => "becomes what zones hold",
        _ => "was deleted and stays so",
    };
    let alone = if conflict["alone"] == true { ", as one zone alone says" } else { "" };
    output::line(&format!("conflict: {} {outcome}{alone}", title(conflict)));
    side("taken", &conflict["taken"]);
    conflict["left"].as_array().into_iter().flatten().for_each(|left| side("left", left));
}

/// That one zone alone says so, and who does not.
fn alone(item: &Value, missing: &Value) -> String {
    if item["alone"] == true { format!(", alone: {} lack it", names(missing)) } else { String::new() }
}

fn side(role: &str, side: &Value) {
    let holder = side["on"].as_str().map_or_else(|| names(&side["zones"]), str::to_owned);
    let at = side["at"].as_str().map(|at| format!(" at {at}")).unwrap_or_default();
    let since = side["modified"].as_str().map(|time| format!(", changed {time}")).unwrap_or_default();
    output::line(&format!("  {role}: {holder}{at}{since}"));
    if !side["content"].is_null()
        && let Ok(yaml) = to_yaml(&side["content"])
    {
        yaml.lines().for_each(|line| output::line(&format!("    {line}")));
    }
}

fn items<'a>(report: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    report[list]["items"].as_array().into_iter().flatten()
}

fn title(item: &Value) -> String {
    let (kind, name) = (text(&item["type"]), text(&item["name"]));
    match item["mesh"].as_str() {
        Some(mesh) => format!("{kind} {mesh}/{name}"),
        None => format!("{kind} {name}"),
    }
}

fn names(zones: &Value) -> String {
    let names: Vec<&str> = zones.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    match names.as_slice() {
        [one] => format!("zone {one}"),
        several => format!("zones {}", several.join(", ")),
    }
}

fn history(history: &Value) -> String {
    format!("epoch {} of store {}", history["epoch"], text(&history["storeId"]))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
