//! Changes that go out in waves: all rollouts, one of them as it goes on, and what is done to it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    layout::PageFrame,
    parts::{chip, items, resource_address, since, table, text_of},
    rows::Row,
    visit::{Unanswered, Visit, encode},
};
use crate::registry;

const LIST: PageFrame<'static> =
    PageFrame { title: "Rollouts", section: "Rollouts", trail: &[], watches: "Rollout RolloutInsight" };
const TRAIL: &[(&str, &str)] = &[("/gui/rollouts", "Rollouts")];
const WATCHES: &str = "zones RolloutInsight Zone";

/// `GET /gui/rollouts`.
pub(super) async fn list(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let now = gui.desk.now();
    let rollouts = gui.names(&visit, "/rollouts").await;
    let cells = move |runs: &[Value]| {
        runs.iter().map(|run| (text_of(&run["name"]).to_owned(), run_cells(&run["spec"], now))).collect()
    };
    let mut runs: BTreeMap<String, Row> = gui.list(&visit, "/rollout-insights", cells).await;
    let rows = rollouts.iter().map(|name| {
        let run = runs.remove(name).unwrap_or_else(|| run_cells(&Value::Null, now));
        std::iter::once(html! { a href=(address(name)) { (name) } }).chain(run).collect()
    });
    let rows: Vec<_> = rows.collect();
    let none = "No rollout is there yet: `type: Rollout` says which zones get changes first.";
    let content = html! {
        section.panel { h2 { "Changes in waves" } div #rollouts data-live {
            (table(&["Rollout", "State", "Wave", "Begun by", "Since"], &rows, none))
        } }
    };
    LIST.respond(&gui, &visit, &content)
}

/// How the run of a rollout is.
fn run_cells(run: &Value, now: DateTime<Utc>) -> Row {
    let wave = run["wave"].as_u64().map(|wave| wave + 1);
    vec![
        html! { @match run["state"].as_str() { Some(state) => (chip(state)), None => "never begun" } },
        html! { @if let Some(wave) = wave { (wave) " of " (items(&run["waves"]).len()) } },
        html! { (text_of(&run["by"])) },
        since(&run["begun"], now),
    ]
}

fn address(rollout: &str) -> String {
    format!("/gui/rollouts/{}", encode(rollout))
}

/// `GET /gui/rollouts/{name}`.
pub(super) async fn show(State(gui): State<Arc<Gui>>, Path(name): Path<String>, visit: Visit) -> Response {
    let frame = PageFrame { title: &name, section: "Rollouts", trail: TRAIL, watches: WATCHES };
    let (now, is_stranger, of) = (gui.desk.now(), visit.asker.user.is_anonymous(), name.clone());
    let content = move |run: Value| content(&of, &run, is_stranger, now);
    match gui.part(&visit, &format!("/rollouts/{}/status", encode(&name)), content).await {
        Ok(content) => frame.respond(&gui, &visit, &content),
        Err(why) if why.status == StatusCode::NOT_FOUND => {
            let content = html! { p.note { (why.reason) } };
            frame.respond(&gui, &visit, &content)
        }
        Err(why) => frame.fail(&gui, &visit, &why),
    }
}

fn content(name: &str, run: &Value, is_stranger: bool, now: DateTime<Utc>) -> Markup {
    html! {
        section.panel { h2 { "State" } div #state data-live {
            p { (chip(text_of(&run["state"]))) " begun by " (text_of(&run["by"])) " " (since(&run["begun"], now)) " ago, with revision " (run["changeRevision"]) }
            @for reason in items(&run["reasons"]) { p.note.bad { "✗ " (text_of(&reason["text"])) } }
            (buttons(name, run, is_stranger))
        } }
        section.panel { h2 { "Waves" } div #waves data-live { (waves(run)) } }
        div.grid.two {
            section.panel { h2 { "What it changes" } ul { @for change in items(&run["changes"]) {
                @let path = registry::by_name(text_of(&change["type"])).map(|kind| kind.path).unwrap_or_default();
                li {
                    (text_of(&change["op"])) " " (text_of(&change["type"])) " "
                    a href=(resource_address(path, text_of(&change["mesh"]), text_of(&change["name"]))) { (text_of(&change["name"])) }
                }
            } } }
            section.panel { h2 { "What happened" } div #log data-live { ul { @for step in items(&run["log"]).iter().rev() {
                li {
                    (since(&step["at"], now)) " ago: " (text_of(&step["text"]))
                    @if !text_of(&step["by"]).is_empty() { ", by " (text_of(&step["by"])) }
                }
            } } } }
        }
    }
}

fn waves(run: &Value) -> Markup {
    let newest = run["wave"].as_u64().unwrap_or_default();
    let is_over = matches!(text_of(&run["state"]), "finished" | "aborted");
    let rows = (0_u64..).zip(items(&run["waves"])).map(|(n, wave)| {
        let zones = items(&run["zones"]).iter().filter(|zone| zone["wave"] == n + 1);
        let state = match wave["converged"].is_string() {
            true => "has the change",
            false if n <= newest => "gets the change",
            false if is_over => "",
            false => "waits",
        };
        vec![
            html! { (n + 1) @if wave["everybody"] == true { " (everybody else)" } },
            html! { (state) },
            html! { (text_of(&wave["pause"])) },
            html! { @for zone in zones { div {
                a href={ "/gui/zones/" (encode(text_of(&zone["zone"]))) } { (text_of(&zone["zone"])) } " " (chip(text_of(&zone["state"])))
                @if zone["relay"].is_string() { " below relay " (text_of(&zone["relay"])) }
            } } },
        ]
    });
    table(&["#Wave", "State", "Pause", "Zones"], &rows.collect::<Vec<_>>(), "There is no wave.")
}

fn buttons(name: &str, run: &Value, is_stranger: bool) -> Markup {
    let state = text_of(&run["state"]);
    if matches!(state, "finished" | "aborted") {
        return html! {};
    }
    if is_stranger {
        return html! { p.quiet { "Sign in to halt it, to let it go on, or to take it back." } };
    }
    let button = |what: &str, class: &str, label: &str, ask: &str| {
        html! { form method="post" action={ (address(name)) "/" (what) } data-ask=[(!ask.is_empty()).then_some(ask)] {
            button class=(class) { (label) }
        } }
    };
    html! { div.actions {
        @if state == "halted" { (button("resume", "primary", "Go on", "Go on though it is as it is?")) }
        @else { (button("halt", "", "Halt", "")) }
        @if state == "paused" { (button("advance", "primary", "End the pause", "")) }
        (button("abort", "danger", "Take it back", "Bring everybody back to what was before?"))
    } }
}

/// `POST /gui/rollouts/{name}/{action}`.
pub(super) async fn steer(
    State(gui): State<Arc<Gui>>,
    Path((name, action)): Path<(String, String)>,
    visit: Visit,
) -> Response {
    let frame = PageFrame { title: &name, section: "Rollouts", trail: TRAIL, watches: "" };
    if !["halt", "resume", "advance", "abort"].contains(&action.as_str()) {
        let reason = format!("nothing is called {action:?} that could be done to a rollout");
        return frame.fail(&gui, &visit, &Unanswered { status: StatusCode::NOT_FOUND, reason });
    }
    let answer = gui.send(&visit, Method::POST, &format!("/rollouts/{}/{action}", encode(&name)), None).await;
    if answer.status.is_success() {
        return Redirect::to(&address(&name)).into_response();
    }
    frame.fail(&gui, &visit, &Unanswered::from(&answer))
}
