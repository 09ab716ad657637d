//! Changing something: YAML, what it would do and whom it reaches, then how far it has come.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    form::FormFields,
    layout::PageFrame,
    parts::{chip, diff, items, since, table, text_of, yaml},
    resource::{kind_of, named, of_proxies},
    tables::list_path,
    visit::{Unanswered, Visit, encode},
};
use crate::{
    ages,
    model::text::{TextLimits, yaml_documents},
    registry,
};

/// Documents in one change.
const MOST: usize = 200;
const FORM: PageFrame<'static> = PageFrame { title: "Change", section: "Change", trail: &[], watches: "" };

/// One document of a change.
struct ChangeDocument {
    title: String,
    path: String,
    /// Its text as JSON: many of them are held until the last one is sent.
    body: String,
}

/// The form, with a resource in it when one is named.
pub(super) async fn form(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let (kind, name) = (kind_of(visit.parameter("kind")), visit.parameter("name"));
    let text = match kind {
        Some(kind) if !name.is_empty() => {
            let path = list_path(kind, visit.parameter("mesh"), &format!("/{}", encode(name)));
            match gui.part(&visit, &path, |document| yaml(&authored(document))).await {
                Ok(text) => text,
                Err(why) => return FORM.fail(&gui, &visit, &why),
            }
        }
        _ => String::new(),
    };
    let written = WrittenChange::new(&gui, &visit, text, String::new()).await;
    FORM.respond(&gui, &visit, &fields(&visit, &written, false))
}

/// What somebody has written so far.
struct WrittenChange {
    text: String,
    /// The rollout it is to go out by; empty for none.
    rollout: String,
    /// Those there are.
    rollouts: Vec<String>,
}

impl WrittenChange {
    async fn new(gui: &Gui, visit: &Visit, text: String, rollout: String) -> Self {
        let rollouts = match gui.desk.mode().zone() {
            Some(_) => Vec::new(),
            None => gui.names(visit, "/rollouts").await,
        };
        Self { text, rollout, rollouts }
    }
}

/// A document without what its author does not write.
fn authored(mut document: Value) -> Value {
    if let Some(members) = document.as_object_mut() {
        for member in ["creationTime", "modificationTime", "status", "kri"] {
            members.remove(member);
        }
    }
    document
}

fn fields(visit: &Visit, written: &WrittenChange, is_previewed: bool) -> Markup {
    let text = &written.text;
    let is_stranger = visit.asker.user.is_anonymous();
    html! {
        @if is_stranger { p.note { "You have not signed in, so this control plane may refuse what you send. " a href="/gui/session" { "Sign in" } } }
        form #change-form .stacked.wide method="post" action="/gui/change" {
            label for="documents" { "Resources in YAML, one or several between lines of ---" }
            textarea #documents name="documents" spellcheck="false" required autofocus[text.is_empty()]
                placeholder="type: MeshTimeout\nmesh: default\nname: quick\nspec: …" { (text) }
            @if !written.rollouts.is_empty() {
                label for="rollout" { "To whom first" }
                select #rollout name="rollout" {
                    option value="" selected[written.rollout.is_empty()] { "everybody at once" }
                    @for rollout in &written.rollouts {
                        option value=(rollout) selected[*rollout == written.rollout] { "in the waves of " (rollout) }
                    }
                }
            }
            div {
                button class=[(!is_previewed).then_some("primary")] name="do" value="preview" { "Show what it would do" }
            }
        }
    }
}

/// Shows what a change would do, or makes it.
pub(super) async fn send(State(gui): State<Arc<Gui>>, visit: Visit, request: Request) -> Response {
    // As long as documents may be: who may write nothing was sent away before.
    let sent = match FormFields::read(&gui, request, usize::MAX, &["documents", "rollout", "do"]).await {
        Ok(sent) => sent,
        Err(error) => {
            let why = Unanswered { status: error.status(), reason: error.to_string() };
            return FORM.fail(&gui, &visit, &why);
        }
    };
    let text = sent.get("documents").replace("\r\n", "\n");
    let written = WrittenChange::new(&gui, &visit, text, sent.get("rollout").to_owned()).await;
    let text = written.text.clone();
    let documents = match gui.desk.work(text.len(), move || read(&text)).await {
        Ok(documents) => documents,
        Err(problem) => {
            let content = html! { p.note.bad role="alert" { (problem) } (fields(&visit, &written, false)) };
            return FORM.respond_with(StatusCode::BAD_REQUEST, &gui, &visit, &content);
        }
    };
    let is_meant = sent.get("do") == "apply";
    if !written.rollout.is_empty() {
        roll_out(&gui, &visit, &written, &documents, is_meant).await
    } else if is_meant {
        apply(&gui, &visit, &written, &documents).await
    } else {
        preview(&gui, &visit, &written, &documents).await
    }
}

fn read(text: &str) -> Result<Vec<ChangeDocument>, String> {
    let documents =
        yaml_documents(text, TextLimits::BODY).map_err(|error| format!("This is no YAML: {error}"))?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    if documents.is_empty() {
        return Err("There is nothing in it.".to_owned());
    }
    if documents.len() > MOST {
        return Err(format!("At most {MOST} documents are one change; `straitctl apply` takes more."));
    }
    documents.into_iter().enumerate().map(|(n, document)| of_document(n + 1, document)).collect()
}

fn of_document(number: usize, mut body: Value) -> Result<ChangeDocument, String> {
    let kind = registry::by_name(text_of(&body["type"])).filter(|kind| !kind.path.is_empty());
    let kind = kind.ok_or_else(|| {
        format!("Document {number} has no type, or one that does not exist: {:?}", text_of(&body["type"]))
    })?;
    let name = text_of(&body["name"]).to_owned();
    if name.is_empty() {
        return Err(format!("Document {number} has no name."));
    }
    let mesh = match kind.is_mesh_scoped() {
        true => body["mesh"].as_str().unwrap_or("default").to_owned(),
        false => String::new(),
    };
    if kind.is_mesh_scoped() {
        body["mesh"] = mesh.clone().into();
    }
    let path = list_path(kind, &mesh, &format!("/{}", encode(&name)));
    let title = if mesh.is_empty() {
        format!("{} {name}", kind.name)
    } else {
        format!("{} {mesh}/{name}", kind.name)
    };
    Ok(ChangeDocument { title, path, body: body.to_string() })
}

async fn preview(
    gui: &Gui,
    visit: &Visit,
    written: &WrittenChange,
    documents: &[ChangeDocument],
) -> Response {
    let mut shown = Vec::new();
    let mut is_possible = true;
    for document in documents {
        let answer = gui
            .send(visit, Method::PUT, &format!("{}?dryRun=true", document.path), Some(document.body.clone()))
            .await;
        is_possible &= answer.status.is_success();
        shown.push(match answer.status.is_success() {
            true => gui.desk.read(answer, |outcome| what_it_does(&outcome)).await,
            false => html! { p.note.bad role="alert" { "✗ " (answer.reason()) } },
        });
    }
    let status = if is_possible { StatusCode::OK } else { StatusCode::BAD_REQUEST };
    let content = html! {
        @for (document, outcome) in documents.iter().zip(&shown) {
            section.panel {
                h2 { (document.title) }
                (outcome)
            }
        }
        @if is_possible {
            p { button.primary form="change-form" name="do" value="apply" { "Apply it" } }
        }
        (fields(visit, written, is_possible))
    };
    FORM.respond_with(status, gui, visit, &content)
}

fn what_it_does(outcome: &Value) -> Markup {
    let reaches = &outcome["reaches"];
    let before = if outcome["before"].is_object() { yaml(&outcome["before"]) } else { String::new() };
    let zones = items(&reaches["zones"]).iter().map(|zone| {
        vec![
            html! { (text_of(&zone["zone"])) },
            chip(text_of(&zone["status"])),
            html! { @if zone["state"] == "sent" { "gets it" } @else { "does not get it: " (text_of(&zone["reason"])) } },
        ]
    });
    html! {
        p { @if outcome["created"] == true { span.chip { "new" } } @else { span.chip { "changed" } } }
        @for warning in items(&outcome["warnings"]) { p.note.warn { "! " (text_of(warning)) } }
        (diff(&before, &yaml(&outcome["after"])))
        @if !items(&outcome["also"]).is_empty() {
            p { "With it: " (items(&outcome["also"]).iter().map(|one| format!("{} {}", text_of(&one["type"]), text_of(&one["name"]))).collect::<Vec<_>>().join(", ")) }
        }
        div.grid.two {
            @if reaches["dataplanes"].is_object() { div { h3 { "Proxies it is for" } (named(&reaches["dataplanes"])) } }
            @if reaches["zones"].is_array() { div { h3 { "Zones" } (table(&["Zone", "Status", ""], &zones.collect::<Vec<_>>(), "There is no zone.")) } }
        }
    }
}

/// Shows what would go out in waves, or begins.
async fn roll_out(
    gui: &Gui,
    visit: &Visit,
    written: &WrittenChange,
    documents: &[ChangeDocument],
    is_meant: bool,
) -> Response {
    let resources: Vec<&str> = documents.iter().map(|document| document.body.as_str()).collect();
    let body = format!(r#"{{"resources":[{}],"dryRun":{}}}"#, resources.join(","), !is_meant);
    let rollout = encode(&written.rollout);
    let answer = gui.send(visit, Method::POST, &format!("/rollouts/{rollout}/begin"), Some(body)).await;
    if !answer.status.is_success() {
        let content =
            html! { p.note.bad role="alert" { "✗ " (answer.reason()) } (fields(visit, written, false)) };
        return FORM.respond_with(answer.status, gui, visit, &content);
    }
    if is_meant {
        return Redirect::to(&format!("/gui/rollouts/{rollout}")).into_response();
    }
    let rollout = written.rollout.clone();
    let begun = gui.desk.read(answer, move |begun| what_begins(&rollout, &begun)).await;
    let content = html! {
        (begun)
        p { button.primary form="change-form" name="do" value="apply" { "Begin" } }
        (fields(visit, written, true))
    };
    FORM.respond(gui, visit, &content)
}

fn what_begins(rollout: &str, begun: &Value) -> Markup {
    html! {
        section.panel { h2 { "In the waves of " (rollout) }
            @for warning in items(&begun["warnings"]) { p.note.warn { "! " (text_of(warning)) } }
            ul { @for change in items(&begun["changes"]) {
                li { (text_of(&change["op"])) " " (text_of(&change["type"])) " " (text_of(&change["name"])) }
            } }
            ol { @for wave in items(&begun["waves"]) { li {
                @if wave["everybody"] == true { "everybody else" }
                @else { (items(&wave["zones"]).iter().map(text_of).collect::<Vec<_>>().join(", ")) }
                @if wave["pause"].is_string() { ", then pause " (text_of(&wave["pause"])) }
            } } }
        }
    }
}

async fn apply(gui: &Gui, visit: &Visit, written: &WrittenChange, documents: &[ChangeDocument]) -> Response {
    let mut newest = None;
    for (n, document) in documents.iter().enumerate() {
        let answer = gui.send(visit, Method::PUT, &document.path, Some(document.body.clone())).await;
        if !answer.status.is_success() {
            let content = html! {
                p.note.bad role="alert" { "✗ " (document.title) ": " (answer.reason()) }
                @if n > 0 { p { (n) " of " (documents.len()) " were applied before." } }
                (fields(visit, written, false))
            };
            return FORM.respond_with(answer.status, gui, visit, &content);
        }
        newest = newest.max(answer.revision);
    }
    let to = newest.map_or_else(|| "/gui/history".to_owned(), |revision| format!("/gui/changes/{revision}"));
    Redirect::to(&to).into_response()
}

/// How far a revision has come.
pub(super) async fn progress(
    State(gui): State<Arc<Gui>>,
    Path(revision): Path<String>,
    visit: Visit,
) -> Response {
    let title = format!("Revision {revision}");
    let trail = [("/gui/history", "History")];
    let frame = PageFrame {
        title: &title,
        section: "History",
        trail: &trail,
        watches: "zones ZoneInsight DataplaneInsight",
    };
    let number: u64 = revision.parse().unwrap_or_default();
    let now = gui.desk.now();
    // The store is asked before anything is made: nobody waits for it in the turn in which a page is made.
    let changes = format!("/history/{}", encode(&revision));
    let changes = gui.part(&visit, &changes, move |changes| what_changed(&changes, now)).await;
    let reached = format!("/sync/revisions/{}?of=proxies", encode(&revision));
    let reached = match gui.part(&visit, &reached, move |reached| how_far(&reached, number, now)).await {
        Ok(reached) => reached,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let content = html! {
        section.panel { h2 { "How far it is" } div #progress data-live { (reached) } }
        @if let Ok(changes) = changes { (changes) }
    };
    frame.respond(&gui, &visit, &content)
}

/// Which zones have a revision.
fn how_far(reached: &Value, revision: u64, now: DateTime<Utc>) -> Markup {
    let zones = items(&reached["zones"]);
    let done = zones
        .iter()
        .filter(|zone| {
            matches!(text_of(&zone["state"]), "acknowledged" | "kept" | "unconcerned" | "disabled")
        })
        .count();
    let rows = zones.iter().map(|zone| {
        let name = text_of(&zone["zone"]);
        vec![
            html! { a href={ "/gui/zones/" (encode(name)) } { (name) } },
            chip(text_of(&zone["state"])),
            html! { (ages::text(&zone["acked"])) },
            html! { (ages::text(&zone["lag"])) },
            since(&zone["since"], now),
            of_proxies(&zone["proxies"], revision),
            html! { @for note in items(&zone["notes"]) { div { (text_of(note)) } } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        @if reached["acknowledged"] == true { p.note.good { "✓ Everybody concerned has acknowledged it." } }
        @else { p.note.warn { "◌ " (done) " of " (zones.len()) " zones are done with it." } }
        (table(&["Zone", "State", "#Revision", "#Behind", "Since", "Proxies", "Notes"], &rows, "There is no zone."))
    }
}

/// What changed with a revision.
fn what_changed(changes: &Value, now: DateTime<Utc>) -> Markup {
    html! {
        @if !items(&changes["items"]).is_empty() {
            section.panel { h2 { "What changed with it" } ul { @for change in items(&changes["items"]) {
                @let path = registry::by_name(text_of(&change["type"])).map(|kind| kind.path).unwrap_or_default();
                li {
                    (text_of(&change["op"])) " " (text_of(&change["type"])) " "
                    a href=(super::parts::resource_address(path, text_of(&change["mesh"]), text_of(&change["name"]))) { (text_of(&change["name"])) }
                    " by " (text_of(&change["author"])) ", " (since(&change["at"], now)) " ago"
                }
            } } }
        }
    }
}
