//! Waiting until zones have acknowledged what was written, and how far each of them is.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use anyhow::bail;
use clap::{Args, ValueEnum};
use common::kds::proxies::ProxyProgress;
use indicatif::{ProgressBar, ProgressStyle};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::{client::ApiClient, duration, output, table};

/// Longest time one question waits, so that what has come in is shown meanwhile.
const QUESTION: Duration = Duration::from_secs(2);

/// Whom a write waits for.
#[derive(Args)]
pub(crate) struct WaitFor {
    /// Return once everybody concerned has acknowledged, else name who has not and why
    #[arg(long, value_name = "WHOM", num_args = 0..=1, default_missing_value = "zones", require_equals = true)]
    wait: Option<Whom>,
    /// How long to wait
    #[arg(long, default_value = "60s", value_name = "DURATION", value_parser = duration, requires = "wait")]
    timeout: Duration,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum Whom {
    /// Every zone that the change concerns
    Zones,
    /// The same, and every Envoy that is connected there
    Proxies,
}

#[derive(Deserialize)]
struct RevisionProgress {
    acknowledged: bool,
    zones: Vec<ZoneProgress>,
}

#[derive(Deserialize)]
struct ZoneProgress {
    zone: String,
    state: String,
    acked: u64,
    #[serde(default)]
    proxies: Option<ProxyProgress>,
    #[serde(default)]
    since: Value,
    #[serde(default)]
    notes: Vec<String>,
}

impl ZoneProgress {
    fn is_over(&self) -> bool {
        !matches!(&*self.state, "waiting" | "proxies" | "untold" | "unknown" | "offline")
    }

    /// What to show while it is waited for.
    fn interim(&self) -> String {
        match (&*self.state, &self.proxies) {
            ("proxies", Some(proxies)) => {
                let (behind, all) = (proxies.behind, proxies.connected);
                format!("{}: acknowledged, {} of {all} proxies have", self.zone, all.saturating_sub(behind))
            }
            (state, _) => format!("{}: {state}", self.zone),
        }
    }

    /// What was not taken though everybody answered.
    fn exceptions(&self) -> impl Iterator<Item = String> {
        let refusals = self.proxies.iter().flat_map(|proxies| &proxies.refusals);
        let refusals =
            refusals.map(|refusal| format!("{} does without something: {}", refusal.proxy, refusal.reason));
        self.notes.iter().cloned().chain(refusals)
    }

    /// Why it is waited for.
    fn reason(&self) -> String {
        let (zone, acked) = (&self.zone, self.acked);
        let notes: String = self.notes.iter().map(|note| format!("; {note}")).collect();
        match &*self.state {
            "waiting" => format!("{zone} is online and has acknowledged up to revision {acked}{notes}"),
            "untold" => format!("{zone} has acknowledged and does not tell how far its proxies are{notes}"),
            "proxies" => {
                let told = self.proxies.clone().unwrap_or_default();
                let (behind, all, names) = (told.behind, told.connected, told.waiting.join(", "));
                let more = if behind > told.waiting.len() as u64 { " and others" } else { "" };
                match behind {
                    0 => format!("{zone} has acknowledged and is making what its proxies get{notes}"),
                    _ => {
                        format!("{behind} of {all} proxies in {zone} have not answered: {names}{more}{notes}")
                    }
                }
            }
            state if self.since.is_string() => {
                format!("{zone} is {state} since {}, at revision {acked}{notes}", table::age(&self.since))
            }
            state => format!("{zone} is {state}, at revision {acked}{notes}"),
        }
    }
}

impl WaitFor {
    /// How long somebody waits, if anybody does.
    pub(crate) fn patience(&self) -> Option<Duration> {
        self.wait.map(|_| self.timeout)
    }

    /// Waits for those who were named, if anybody was, to acknowledge `revision`, which `what` names.
    pub(crate) async fn wait(
        &self,
        client: &ApiClient,
        revision: Option<u64>,
        what: &str,
    ) -> anyhow::Result<()> {
        let Some(whom) = self.wait else { return Ok(()) };
        let Some(revision) = revision else {
            bail!(
                "{what}, but the control plane does not say at which revision, so nobody can be waited for"
            );
        };
        follow(client, revision, whom, self.timeout).await
    }
}

/// Waits until everybody concerned has acknowledged `revision`, showing those who have.
pub(crate) async fn follow(
    client: &ApiClient,
    revision: u64,
    whom: Whom,
    timeout: Duration,
) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    let style = ProgressStyle::with_template("revision {msg}: {pos} of {len} zones {bar:30} {elapsed}");
    let bar = ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(revision.to_string());
    let (mut shown, mut interim) = (BTreeSet::new(), BTreeMap::new());
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // The first answer says where everybody stands.
        let wait = if interim.is_empty() && shown.is_empty() { Duration::ZERO } else { left.min(QUESTION) };
        let progress = ask(client, revision, whom, wait).await?;
        let over: Vec<&ZoneProgress> = progress.zones.iter().filter(|zone| zone.is_over()).collect();
        bar.set_length(progress.zones.len() as u64);
        bar.set_position(over.len() as u64);
        for zone in over.into_iter().filter(|zone| shown.insert(zone.zone.clone())) {
            bar.suspend(|| {
                output::line(&format!("{}: {}", zone.zone, zone.state));
                zone.exceptions().for_each(|note| crate::output::note!("{}: {note}", zone.zone));
            });
        }
        for zone in progress.zones.iter().filter(|zone| !zone.is_over()) {
            let now = zone.interim();
            if interim.insert(zone.zone.clone(), now.clone()).as_ref() != Some(&now) {
                bar.suspend(|| crate::output::note!("{now}"));
            }
        }
        if progress.acknowledged {
            bar.finish_and_clear();
            return Ok(());
        }
        if Instant::now() >= deadline {
            bar.finish_and_clear();
            let missing = progress.zones.iter().filter(|zone| !zone.is_over()).map(ZoneProgress::reason);
            let missing: Vec<String> = missing.collect();
            bail!(
                "revision {revision} was stored, but not acknowledged by everybody within {}s:\n  {}",
                timeout.as_secs(),
                missing.join("\n  ")
            );
        }
    }
}

async fn ask(
    client: &ApiClient,
    revision: u64,
    whom: Whom,
    wait: Duration,
) -> anyhow::Result<RevisionProgress> {
    let of = match whom {
        Whom::Zones => "zones",
        Whom::Proxies => "proxies",
    };
    let path = format!("/sync/revisions/{revision}?timeout={}ms&of={of}", wait.as_millis());
    let answer = client.send(Method::GET, &path, None).await?;
    if answer.status == StatusCode::NOT_FOUND && !answer.body.contains("revision") {
        bail!("this control plane has no zones to wait for; ask global");
    }
    answer.success()?.json()
}

/// Headings of `inspect sync`.
const HEADINGS: [&str; 12] = [
    "ZONE",
    "STATUS",
    "SINCE",
    "DOWN HEAD",
    "DOWN ACKED",
    "DOWN LAG",
    "BEHIND",
    "UP HEAD",
    "UP ACKED",
    "UP LAG",
    "BEHIND",
    "PROXIES",
];

/// Prints what `GET /sync` answered, then what was refused or cannot be sent on standard error.
pub(crate) fn print(overview: &Value) {
    let zones = overview["zones"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |zone: &Value| {
        let mut row =
            vec![table::text(&zone["zone"]), table::text(&zone["status"]), table::age(&zone["since"])];
        for direction in ["down", "up"] {
            row.extend(["head", "acked", "lag"].map(|what| table::text(&zone[direction][what])));
            row.push(table::age(&zone[direction]["behindSince"]));
        }
        // Up to which revision all of them have answered.
        row.push(table::text(&zone["proxies"]["acked"]));
        row
    };
    table::print(&HEADINGS, zones.iter().map(row).collect());
    for zone in zones {
        for kept in zone["kept"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            crate::output::note!("{}: {kept}", table::text(&zone["zone"]));
        }
        for note in zone["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            crate::output::note!("{}: {note}", table::text(&zone["zone"]));
        }
    }
}
