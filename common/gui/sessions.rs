//! The sessions of a zone: what went over them, and when there was none.

use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{chip, since, table};
use crate::ages;

/// Hours that the line of connects and losses shows.
const HOURS: i64 = 24;

/// What was sent and answered, by type, in the last session.
pub(super) fn counts(subscription: &Value) -> Markup {
    let stat = subscription["status"]["stat"].as_object();
    let number = |value: &Value| ages::text(value).replace('-', "0");
    let row = |name: &str, counts: &Value| {
        let refused = number(&counts["responsesRejected"]);
        vec![
            html! { (name) },
            html! { (number(&counts["responsesSent"])) },
            html! { (number(&counts["responsesAcknowledged"])) },
            if refused == "0" {
                html! { "0" }
            } else {
                html! { span.chip.bad { "✗ " (refused) } }
            },
        ]
    };
    let rows: Vec<_> = stat.into_iter().flatten().map(|(name, counts)| row(name, counts)).collect();
    html! {
        (table(&["Type", "#Sent", "#Acknowledged", "#Refused"], &rows, "Nothing was sent yet."))
    }
}

/// The sessions of the last day as spans on a line.
pub(super) fn timeline(subscriptions: &[Value], now: DateTime<Utc>) -> Markup {
    const WIDTH: i64 = 1440;
    let from = now - chrono::TimeDelta::hours(HOURS);
    let at = |time: DateTime<Utc>| ((time.max(from) - from).num_minutes()).clamp(0, WIDTH);
    let spans = subscriptions.iter().filter_map(|one| {
        let (begin, end) = (ages::time(&one["connectTime"])?, ages::time(&one["disconnectTime"]));
        let stop = end.unwrap_or(now);
        (stop > from).then(|| (at(begin), (at(stop) - at(begin)).max(2), end.is_none()))
    });
    html! {
        svg.timeline viewBox={ "0 0 " (WIDTH) " 40" } preserveAspectRatio="none" role="img" aria-label="Sessions of the last day" {
            rect.track x="0" y="6" width=(WIDTH) height="14" {}
            @for (x, width, is_open) in spans {
                rect class={ "span" (if is_open { " open" } else { "" }) } x=(x) y="6" width=(width) height="14" {}
            }
        }
        p.quiet { "The last " (HOURS) " hours; a gap is a time without a connection." }
    }
}

/// The newest sessions, the newest first.
pub(super) fn connections(subscriptions: &[Value], now: DateTime<Utc>) -> Markup {
    let rows = subscriptions.iter().rev().take(10).map(|one| {
        let is_open = !one["disconnectTime"].is_string();
        vec![
            since(&one["connectTime"], now),
            if is_open {
                chip("connected")
            } else {
                html! { "ended " (since(&one["disconnectTime"], now)) " ago" }
            },
            html! { (ages::text(&one["globalInstanceId"])) },
            html! { (ages::text(&one["zoneInstanceId"])) },
            html! { (ages::text(&one["status"]["total"]["responsesSent"])) },
            html! { (ages::text(&one["status"]["total"]["responsesRejected"])) },
        ]
    });
    let headings = ["Connected", "", "Global", "Zone", "#Sent", "#Refused"];
    table(&headings, &rows.collect::<Vec<_>>(), "It never connected.")
}
