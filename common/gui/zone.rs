//! One zone as global sees it. A zone shows itself by its [`link`].

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    federation::Federation,
    layout::PageFrame,
    link,
    parts::{chip, findings, items, since, table, text_of, until, yaml},
    refused::{self, RefusedRow},
    sessions::{connections, counts, timeline},
    visit::{Visit, address, encode},
};
use crate::{
    ages,
    checks::{CheckLine, zones},
    model::text::{self, TextLimits},
};

const TRAIL: &[(&str, &str)] = &[("/gui/zones", "Zones")];
const WATCHES: &str = "zones Zone ZoneInsight ZoneIngress ZoneIngressInsight Dataplane";

pub(super) async fn show(State(gui): State<Arc<Gui>>, Path(zone): Path<String>, visit: Visit) -> Response {
    let frame = PageFrame { title: &zone, section: "Zones", trail: TRAIL, watches: WATCHES };
    if gui.desk.mode().zone() == Some(&*zone) {
        let content = link::show(&gui, &visit).await;
        return frame.respond(&gui, &visit, &content);
    }
    let content = match gui.desk.mode().zone() {
        // Of another zone a zone knows what is needed to reach it.
        Some(_) => of_neighbour(&gui, &visit, &zone).await,
        None => match gui.get(&visit, &format!("/zones/{}/_overview", encode(&zone))).await {
            Ok(overview) => of_zone(&gui, &visit, &zone, &overview).await,
            Err(why) => return frame.fail(&gui, &visit, &why),
        },
    };
    frame.respond(&gui, &visit, &content)
}

async fn of_neighbour(gui: &Gui, visit: &Visit, zone: &str) -> Markup {
    let seen = Federation::look(gui, visit).await;
    html! {
        p { "This is the control plane of another zone: global tells how " (zone) " does." }
        section.panel { h2 { "Ways in" } div #ways data-live { (ways(&seen, zone)) } }
    }
}

async fn of_zone(gui: &Gui, visit: &Visit, zone: &str, overview: &Value) -> Markup {
    let now = gui.desk.now();
    let seen = Federation::look(gui, visit).await;
    let status = &overview["strait"];
    let subscriptions = items(&overview["zoneInsight"]["subscriptions"]);
    let last = subscriptions.last().unwrap_or(&Value::Null);
    let wrong: Vec<CheckLine> = {
        let mut told = status.clone();
        told["zone"] = zone.into();
        if status.is_object() { zones::of_one(&told, &seen.index, now) } else { Vec::new() }
    };
    let held_back = status["heldBack"].as_str();
    html! {
        div.grid.two {
            section.panel { h2 { "State" } div #state data-live { (state(overview, last, now)) } }
            section.panel { h2 { "What is wrong now" } div #wrong data-live {
                (findings(&wrong))
                @if let Some(reason) = held_back {
                    p { "Held back: " (reason) }
                    p.quiet { "Who operates the zone lets it through on the page of the zone, or with " code { "straitctl link approve" } " there." }
                }
            } }
        }
        section.panel { h2 { "Refused" } div #refused data-live { (refusals(visit, zone, status)) } }
        section.panel { h2 { "Connects and losses" } div #timeline data-live {
            (timeline(subscriptions, now))
            (connections(subscriptions, now))
        } }
        div.grid.two {
            section.panel { h2 { "Counts by type, from global" } div #counts data-live {
                (counts(last))
                p.quiet { "What the zone sends is counted on its own page." }
            } }
            div {
                section.panel { h2 { "Streams" } div #streams data-live { (streams(&overview["zoneInsight"], now)) } }
                section.panel { h2 { "Ways in" } div #ways data-live { (ways(&seen, zone)) } }
                section.panel { h2 { "Configuration" } (config(gui, visit, last).await) }
            }
        }
        p.quiet {
            a href=(address("/gui/dataplanes", &[("zone", zone)])) { "Dataplanes of this zone" } " · "
            a href=(super::parts::resource_address("zones", "", zone)) { "The resource" }
        }
    }
}

fn state(overview: &Value, last: &Value, now: DateTime<Utc>) -> Markup {
    let status = &overview["strait"];
    let is_disabled = overview["zone"]["enabled"] == false;
    let word = if is_disabled { "disabled" } else { text_of(&status["status"]) };
    let credential = &status["credential"];
    let clock = &status["clock"];
    html! {
        dl.facts {
            dt { "Status" } dd { (chip(if word.is_empty() { "never connected" } else { word })) " for " (since(&status["since"], now)) }
            dt { "Version" } dd { (ages::text(&status["version"])) @if let Some(protocol) = status["protocol"].as_str() { ", by " (protocol) } }
            dt { "Instance" } dd { (ages::text(&last["zoneInstanceId"])) " at " (ages::text(&last["globalInstanceId"])) " of global" }
            @for (name, direction) in [("From global", "down"), ("To global", "up")] {
                @let progress = &status[direction];
                dt { (name) } dd {
                    "revision " (ages::text(&progress["acked"])) " of " (ages::text(&progress["head"]))
                    @if progress["lag"].as_u64().is_some_and(|lag| lag > 0) {
                        ", " span { (progress["lag"]) " behind since " (since(&progress["behindSince"], now)) }
                    }
                }
            }
            @if status["proxies"].is_object() {
                dt { "Proxies" } dd {
                    (ages::text(&status["proxies"]["connected"])) " connected, " (ages::text(&status["proxies"]["behind"])) " behind, "
                    (ages::text(&status["proxies"]["refusing"])) " without something they refused"
                }
            }
            dt { "Dataplanes" } dd { (ages::text(&status["dataplanes"])) }
            @if credential.is_object() {
                dt { "Shows" } dd { "a " (text_of(&credential["kind"])) " that is good for " (until(&credential["until"], now)) }
            }
            @if clock.is_object() { dt { "Clock" } dd { (clock["aheadMs"]) " ms ahead, ±" (clock["errorMs"]) " ms" } }
            @if let Some(relay) = status["relay"].as_str() { dt { "Below relay" } dd { (relay) } }
        }
        @if !items(&status["proxies"]["refusals"]).is_empty() {
            h3 { "Refused by proxies" }
            ul { @for one in items(&status["proxies"]["refusals"]) { li { (text_of(&one["proxy"])) ": " (text_of(&one["reason"])) } } }
        }
    }
}

fn refusals(visit: &Visit, zone: &str, status: &Value) -> Markup {
    let rows = items(&status["refused"]).iter().map(|one| RefusedRow {
        by: if one["by"] == "zone" { "the zone" } else { "global" },
        kind: text_of(&one["type"]),
        reason: text_of(&one["reason"]),
        is_ours: one["by"] == "zone",
    });
    let rows: Vec<_> = rows.collect();
    html! {
        (refused::list(visit, zone, &rows, "Nothing is refused, here or in the zone."))
        p.quiet { "What was refused is offered again when it changes, and by itself after a pause. What global refused is offered by the zone, on its own page." }
    }
}

fn streams(insight: &Value, now: DateTime<Utc>) -> Markup {
    let rows = insight["kdsStreams"].as_object().into_iter().flatten().map(|(name, stream)| {
        vec![
            html! { (words(name)) },
            html! { (ages::text(&stream["globalInstanceId"])) },
            since(&stream["connectTime"], now),
        ]
    });
    table(&["Stream", "Instance of global", "Since"], &rows.collect::<Vec<_>>(), "No stream is open.")
}

/// A name of a member as words.
fn words(name: &str) -> String {
    name.chars().fold(String::new(), |mut words, c| {
        if c.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
        words
    })
}

fn ways(seen: &Federation, zone: &str) -> Markup {
    let rows = seen.ways_into(zone).map(|way| {
        let state = way.is_connected.map_or("not told", |is| if is { "online" } else { "offline" });
        vec![
            html! { (way.name) },
            html! { code { (way.address) } },
            chip(state),
            html! { (way.services.join(", ")) },
        ]
    });
    table(
        &["Ingress", "Address", "Envoy", "Services"],
        &rows.collect::<Vec<_>>(),
        "It has no ingress: nobody calls it from other zones.",
    )
}

async fn config(gui: &Gui, visit: &Visit, last: &Value) -> Markup {
    let told = text_of(&last["config"]).to_owned();
    let is_shown = visit.parameter("show") == "config";
    // It is as long as the zone made it.
    let read = move || {
        let config = text::json(told.as_bytes(), TextLimits::BODY).ok()?;
        Some(if is_shown { yaml(&config) } else { String::new() })
    };
    let config = gui.desk.work(text_of(&last["config"]).len(), read).await;
    html! {
        @match config {
            Some(config) if is_shown => pre { (config) },
            Some(_) => p { a href=(visit.with("show", "config")) { "Show what it told of its settings" } },
            None => p.quiet { "It has not told its settings." },
        }
    }
}
