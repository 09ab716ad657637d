//! Zones as global sees them, and global as a zone sees it.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::{CheckLine, SOON};
use crate::ages;

const ABOUT: &str = "zones";
const GLOBAL: &str = "global";
/// From when on one that is behind is worth a word.
const LATE: TimeDelta = TimeDelta::seconds(30);
/// From when on it counts as stuck.
const STUCK: TimeDelta = TimeDelta::minutes(5);
/// A skew at which tokens and certificates that were just made are refused.
const SKEW: i64 = 5_000;

/// On global: each zone. `overview` is what `GET /sync` answers, `index` what `GET /` does.
pub fn of_global(overview: &Value, index: &Value, now: DateTime<Utc>) -> Vec<CheckLine> {
    let zones = overview["zones"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut findings: Vec<CheckLine> = zones.iter().flat_map(|zone| of_one(zone, index, now)).collect();
    if zones.is_empty() {
        findings.push(
            CheckLine::warning(ABOUT, "no zone has connected yet")
                .but("`straitctl generate zone-token --zone NAME --scope cp` makes the token a zone shows"),
        );
    }
    findings
}

/// One zone, as it stands in the answer to `GET /sync`.
pub fn of_one(zone: &Value, index: &Value, now: DateTime<Utc>) -> Vec<CheckLine> {
    let name = ages::text(&zone["zone"]);
    let mut findings = Vec::new();
    let status = ages::text(&zone["status"]);
    if status != "online" {
        let since = ages::age(&zone["since"], now);
        findings.push(
            CheckLine::failure(ABOUT, format!("{name} is {status} since {since}"))
                .but("see whether it runs and reaches global; its log says why a connection ended"),
        );
    }
    let (here, there) = (ages::text(&index["strait"]["version"]), ages::text(&zone["version"]));
    if here != there {
        findings.push(CheckLine::warning(ABOUT, format!("{name} runs {there}, global {here}")));
    }
    if let Some(reason) = zone["heldBack"].as_str() {
        findings.push(
            CheckLine::failure(ABOUT, format!("{name} does not follow this global: {reason}"))
                .but("`straitctl global recover` or `straitctl epoch raise`"),
        );
    }
    for (direction, word) in [("down", "has not acknowledged"), ("up", "has told what global has not taken:")]
    {
        findings.extend(lag(&name, &zone[direction], word, now));
    }
    findings.extend(clock(&name, &zone["clock"]));
    findings.extend(credential(ABOUT, &format!("{name} shows"), &zone["credential"], now));
    for note in zone["notes"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        findings.push(
            CheckLine::warning(ABOUT, format!("{name}: {note}"))
                .but(format!("`straitctl explain zone {name} KIND NAME` tells more of one resource")),
        );
    }
    let refused = zone["refused"].as_array().into_iter().flatten();
    if refused.clone().any(|one| one["by"] == "zone") {
        findings.push(
            CheckLine::warning(ABOUT, format!("{name} keeps what it had of what it refused"))
                .but(format!("if the reason is mended, `straitctl zones offer-again {name}` tries at once")),
        );
    }
    let refusing = zone["proxies"]["refusing"].as_u64().unwrap_or_default();
    if refusing > 0 {
        findings.push(
            CheckLine::warning(
                ABOUT,
                format!("{name}: {refusing} proxies do without something they refused"),
            )
            .but("`straitctl proxy-status` on the zone names them"),
        );
    }
    if findings.is_empty() {
        let dataplanes = &zone["dataplanes"];
        findings.push(CheckLine::ok(
            ABOUT,
            format!("{name} is online and in sync, with {dataplanes} dataplanes"),
        ));
    }
    findings
}

fn lag(zone: &str, progress: &Value, word: &str, now: DateTime<Utc>) -> Option<CheckLine> {
    let lag = progress["lag"].as_u64().filter(|lag| *lag > 0)?;
    let since = now - ages::time(&progress["behindSince"])?;
    let found = format!("{zone} {word} {lag} revisions since {}", ages::age(&progress["behindSince"], now));
    match since {
        _ if since >= STUCK => {
            Some(CheckLine::failure(ABOUT, found).but(format!(
                "`straitctl inspect sync`, and the log of {zone}: something does not get through"
            )))
        }
        _ if since >= LATE => Some(CheckLine::warning(ABOUT, found)),
        _ => None,
    }
}

fn clock(zone: &str, clock: &Value) -> Option<CheckLine> {
    let (ahead, error) = (clock["aheadMs"].as_i64()?, clock["errorMs"].as_i64().unwrap_or_default());
    if ahead.abs() - error <= SKEW {
        return None;
    }
    Some(
        CheckLine::warning(ABOUT, format!("the clock of {zone} is {ahead} ms ahead of that of global")).but(
            "let both follow the same time servers: tokens and certificates are refused when clocks differ",
        ),
    )
}

/// What is said of something that proves who one is, and of its end.
fn credential(about: &'static str, who: &str, credential: &Value, now: DateTime<Utc>) -> Option<CheckLine> {
    let until = ages::time(&credential["until"])?;
    let kind = ages::text(&credential["kind"]);
    let left = until - now;
    let remedy = "put a new one in its place before it runs out: it is read at every connect";
    if left <= TimeDelta::zero() {
        Some(CheckLine::failure(about, format!("{who} a {kind} that ran out at {until}")).but(remedy))
    } else if left < SOON {
        Some(CheckLine::warning(about, format!("{who} a {kind} that runs out at {until}")).but(remedy))
    } else {
        None
    }
}

/// On a zone: how it stands with global, which is what `GET /strait/link` answers, and nothing where the zone follows none.
pub fn of_zone(link: Option<&Value>, now: DateTime<Utc>) -> Vec<CheckLine> {
    match link {
        Some(link) => of_link(link, now),
        None => vec![CheckLine::ok(GLOBAL, "this zone stands alone and follows no global")],
    }
}

fn of_link(link: &Value, now: DateTime<Utc>) -> Vec<CheckLine> {
    let mut findings = Vec::new();
    if link["standby"] == true {
        return vec![CheckLine::ok(
            GLOBAL,
            "another instance of this zone follows global; this one stands by",
        )];
    }
    if link["connected"] != true {
        let why = link["lastError"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        findings.push(
            CheckLine::failure(
                GLOBAL,
                format!("not connected since {}{why}", ages::age(&link["since"], now)),
            )
            .but("the zone goes on with what it has; nothing new comes in until it is connected"),
        );
    }
    if let Some(reason) = link["heldBack"].as_str() {
        findings.push(CheckLine::failure(GLOBAL, format!("what global shows is held back: {reason}")).but(
            "`straitctl link` tells more; `straitctl link approve` lets it through, if global is right",
        ));
    }
    for (kind, names) in link["refusals"].as_object().into_iter().flatten() {
        let names = ages::text(names);
        findings.push(match kind.strip_suffix(" at global") {
            Some(kind) => CheckLine::warning(
                GLOBAL,
                format!("global refused some {kind} of this zone: {names}"),
            )
            .but("correct it here; if only its reason is mended, `straitctl link offer-again` tries at once"),
            None => CheckLine::warning(GLOBAL, format!("this zone refused some {kind}: {names}")),
        });
    }
    for (kind, names) in link["withheld"].as_object().into_iter().flatten() {
        findings.push(CheckLine::warning(GLOBAL, format!("some {kind} cannot be sent to global: {names}")));
    }
    for warning in link["warnings"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        findings.push(CheckLine::warning(GLOBAL, warning));
    }
    findings.extend(clock("this zone", &link["clock"]));
    if findings.is_empty() {
        findings.push(CheckLine::ok(
            GLOBAL,
            format!("connected since {} and in sync", ages::age(&link["since"], now)),
        ));
    }
    findings
}
