//! A zone by its own control plane: how it stands with global, and letting through what is held back.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::{
    Gui,
    layout::PageFrame,
    parts::{chip, findings, items, since, table, text_of, until, yaml},
    refused::{self, RefusedRow},
    sessions::{connections, counts, timeline},
    visit::{Unanswered, Visit, encode},
};
use crate::{ages, checks::zones};

/// What the link says behind a type that global refused.
const AT_GLOBAL: &str = " at global";

/// What stands on the page of the zone.
pub(super) async fn show(gui: &Gui, visit: &Visit) -> Markup {
    if !gui.desk.mode().is_federated_zone() {
        return html! { p { "This zone stands alone and follows no global." } (settings(gui, visit).await) };
    }
    let link = match gui.get(visit, "/strait/link").await {
        Ok(link) => link,
        Err(why) => return html! { p.note.bad { (why) } },
    };
    let now = gui.desk.now();
    let wrong = zones::of_zone(Some(&link), now);
    let own = format!("/zones/{}/_overview", encode(gui.desk.mode().zone().unwrap_or_default()));
    let overview = gui.get(visit, &own).await.unwrap_or_default();
    let subscriptions = items(&overview["zoneInsight"]["subscriptions"]);
    html! {
        div.grid.two {
            section.panel { h2 { "Its link to global" } div #state data-live { (state(gui, &link)) } }
            section.panel { h2 { "What is wrong now" } div #wrong data-live {
                (findings(&wrong))
                @if let Some(reason) = link["heldBack"].as_str() {
                    p { "Held back: " (reason) }
                    (approval(gui, visit))
                }
            } }
        }
        div.grid.two {
            section.panel { h2 { "Refused" } div #refused data-live {
                (refusals(gui, visit, &link["refusals"]))
                p.quiet { "What was refused is offered again when it changes, and by itself after a pause." }
            } }
            section.panel { h2 { "Withheld from global" } div #withheld data-live { (reasons(&link["withheld"], "Nothing is withheld.")) } }
        }
        section.panel { h2 { "Connects and losses" } div #timeline data-live {
            (timeline(subscriptions, now))
            (connections(subscriptions, now))
        } }
        div.grid.two {
            @for (heading, direction) in
                [("Counts by type, from global", "received"), ("Counts by type, to global", "sent")]
            {
                section.panel { h2 { (heading) } div id=(direction) data-live {
                    (counts(&json!({ "status": { "stat": link[direction] } })))
                    p.quiet { "Since the connection was made." }
                } }
            }
        }
        (settings(gui, visit).await)
    }
}

fn state(gui: &Gui, link: &Value) -> Markup {
    let now = gui.desk.now();
    let word = match link {
        link if link["standby"] == true => "standby",
        link if link["connected"] == true => "connected",
        _ => "offline",
    };
    let upstream = &link["upstream"];
    html! {
        dl.facts {
            dt { "Connection" } dd { (chip(word)) " for " (since(&link["since"], now)) }
            @if let Some(error) = link["lastError"].as_str() { dt { "Why it ended" } dd { (error) } }
            @if let Some(protocol) = link["protocol"].as_str() { dt { "Protocol" } dd { (protocol) } }
            @if upstream.is_object() {
                dt { "Global" } dd { "revision " (ages::text(&upstream["revision"])) ", epoch " (ages::text(&upstream["epoch"])) ", store " code { (text_of(&upstream["store_id"])) } }
            }
            @for (name, direction) in [("From global", "down"), ("To global", "up")] {
                @let progress = &link[direction];
                dt { (name) } dd { "revision " (ages::text(&progress["acked"])) " of " (ages::text(&progress["head"])) ", " (ages::text(&progress["lag"])) " behind" }
            }
            @if link["clock"].is_object() { dt { "Clock" } dd { (link["clock"]["aheadMs"]) " ms ahead, ±" (link["clock"]["errorMs"]) " ms" } }
            @for one in items(&link["shown"]) {
                dt { "Shows " (text_of(&one["to"])) } dd { "a " (text_of(&one["kind"])) " that is good for " (until(&one["until"], now)) }
            }
        }
    }
}

fn reasons(by_type: &Value, nothing: &str) -> Markup {
    let rows = by_type.as_object().into_iter().flatten();
    let rows: Vec<_> =
        rows.map(|(kind, reason)| vec![html! { (kind) }, html! { (text_of(reason)) }]).collect();
    table(&["Type", "Why"], &rows, nothing)
}

/// What was refused, by type; what global refused is told with that behind the type.
fn refusals(gui: &Gui, visit: &Visit, by_type: &Value) -> Markup {
    let rows = by_type.as_object().into_iter().flatten().map(|(key, reason)| {
        let at_global = key.strip_suffix(AT_GLOBAL);
        RefusedRow {
            by: if at_global.is_some() { "global" } else { "this zone" },
            kind: at_global.unwrap_or(key),
            reason: text_of(reason),
            is_ours: at_global.is_some(),
        }
    });
    let zone = gui.desk.mode().zone().unwrap_or_default();
    refused::list(visit, zone, &rows.collect::<Vec<_>>(), "Nothing is refused, here or at global.")
}

fn approval(gui: &Gui, visit: &Visit) -> Markup {
    let zone = gui.desk.mode().zone().unwrap_or_default();
    html! {
        @if visit.asker.user.is_anonymous() {
            p.quiet { "Sign in as an administrator to let it through." }
        } @else {
            form method="post" action={ "/gui/zones/" (encode(zone)) "/approve" }
                data-ask="Take what global shows, whatever its history and however much it removes?" {
                button.danger { "Let it through" }
            }
        }
    }
}

async fn settings(gui: &Gui, visit: &Visit) -> Markup {
    html! {
        section.panel {
            h2 { "Configuration" }
            @if visit.parameter("show") == "config" {
                @match gui.get(visit, "/config").await {
                    Ok(config) => pre { (yaml(&config)) },
                    Err(why) => p.note { (why) },
                }
            } @else {
                p { a href=(visit.with("show", "config")) { "Show the settings of this control plane" } }
            }
        }
    }
}

/// An operator's word.
pub(super) async fn approve(State(gui): State<Arc<Gui>>, Path(zone): Path<String>, visit: Visit) -> Response {
    let frame = PageFrame { title: &zone, section: "Zones", trail: &[("/gui/zones", "Zones")], watches: "" };
    if gui.desk.mode().zone() != Some(&*zone) {
        let reason = "what is held back is let through on the page of the zone itself".to_owned();
        return frame.fail(&gui, &visit, &Unanswered { status: StatusCode::NOT_FOUND, reason });
    }
    let answer = gui.send(&visit, Method::POST, "/strait/link/approve", None).await;
    if answer.status.is_success() {
        return Redirect::to(&format!("/gui/zones/{}", encode(&zone))).into_response();
    }
    frame.fail(&gui, &visit, &Unanswered::from(&answer))
}
