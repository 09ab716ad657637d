//! One resource: what it says, whom it reaches, who has it, and how it was.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    layout::PageFrame,
    parts::{chip, dataplane_address, diff, gaps, items, since, table, text_of, title_of, yaml},
    tables::list_path,
    visit::{Unanswered, Visit, address, encode},
};
use crate::{
    ages,
    model::{Kind, ResourceKey},
    registry,
};

/// Zones that are asked about one resource.
const MOST_ZONES: usize = 100;
/// Proxies that are named.
const MOST_PROXIES: usize = 100;
/// Changes that are listed.
const MOST_CHANGES: usize = 30;

/// The resource a page is about.
struct ShownResource<'a> {
    kind: &'static Kind,
    mesh: &'a str,
    name: &'a str,
    /// Where the API has it.
    path: String,
}

/// The kind with this path.
pub(super) fn kind_of(path: &str) -> Option<&'static Kind> {
    registry::ALL.iter().copied().find(|kind| !kind.path.is_empty() && kind.path == path)
}

pub(super) async fn show(
    State(gui): State<Arc<Gui>>,
    Path((kind, name)): Path<(String, String)>,
    visit: Visit,
) -> Response {
    let mesh = visit.parameter("mesh");
    let missing = PageFrame { title: &name, section: "", trail: &[], watches: "" };
    let Some(kind) = kind_of(&kind) else {
        let reason = format!("there is no type with the path {kind:?}");
        return missing.fail(&gui, &visit, &Unanswered { status: StatusCode::NOT_FOUND, reason });
    };
    let subject = ShownResource {
        kind,
        mesh,
        name: &name,
        path: list_path(kind, mesh, &format!("/{}", encode(&name))),
    };
    let (section, back) = match kind {
        kind if kind.policy.is_some() => {
            ("Policies", address("/gui/policies", &[("type", kind.name), ("mesh", mesh)]))
        }
        kind if kind.service.is_some() => ("Services", "/gui/services".to_owned()),
        kind if kind.name == "Mesh" => ("Meshes", format!("/gui/meshes/{}", encode(&name))),
        kind if kind.name == "Zone" => ("Zones", format!("/gui/zones/{}", encode(&name))),
        _ => ("", "/gui".to_owned()),
    };
    let watches = format!("zones {} Dataplane Zone", kind.name);
    let trail = [(back.as_str(), kind.name)];
    let frame = PageFrame { title: &name, section, trail: &trail, watches: &watches };
    let shown = |document: Value| (title_of(&document).to_owned(), yaml(&document));
    // The store is asked before anything is made: nobody waits for it in the turn in which a page is made.
    let (differences, history) =
        (differences(&gui, &visit, &subject).await, history(&gui, &visit, &subject).await);
    let (title, document) = match gui.part(&visit, &subject.path, shown).await {
        Ok(shown) => shown,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let frame = PageFrame { title: &title, ..frame };
    let content = html! {
        (differences)
        div.grid.two {
            section.panel {
                h2 { (kind.name) @if !mesh.is_empty() { span.soft { "in mesh " (mesh) } } }
                div #document data-live { pre.whole { (document) } }
                p { a.button href=(address("/gui/change", &[("kind", kind.path), ("mesh", mesh), ("name", &name)])) { "Change it" } }
            }
            div {
                @if kind.policy.is_some() || kind.name == "MeshService" {
                    section.panel { h2 { "Proxies it is for" } div #proxies data-live { (proxies(&gui, &visit, &subject).await) } }
                }
                section.panel { h2 { "Who has it" } div #acknowledged data-live { (acknowledged(&gui, &visit, &subject).await) } }
                section.panel { h2 { "History" } div #history data-live { (history) } }
            }
        }
    };
    frame.respond(&gui, &visit, &content)
}

async fn proxies(gui: &Gui, visit: &Visit, subject: &ShownResource<'_>) -> Markup {
    let size = MOST_PROXIES.to_string();
    let path = address(&format!("{}/_resources/dataplanes", subject.path), &[("size", &size)]);
    let found = gui.part(visit, &path, |found| named(&found)).await;
    found.unwrap_or_else(|why| html! { p.note { (why) } })
}

/// Dataplanes with their number.
pub(super) fn named(found: &Value) -> Markup {
    let (shown, total) = (items(&found["items"]), found["total"].as_u64().unwrap_or_default());
    html! {
        p { strong { (total) } @if total == 1 { " dataplane" } @else { " dataplanes" } @if shown.len() as u64 != total { ", of which the first are" } }
        ul { @for one in shown {
            @let (mesh, name) = (text_of(&one["mesh"]), text_of(&one["name"]));
            li { a href=(dataplane_address(mesh, name)) title=(name) { (title_of(one)) } }
        } }
    }
}

async fn acknowledged(gui: &Gui, visit: &Visit, subject: &ShownResource<'_>) -> Markup {
    let ShownResource { kind, mesh, name, .. } = subject;
    let key = ResourceKey::new(kind, mesh, name);
    let revision = gui.desk.index().get(&key).map(|resource| resource.revision).unwrap_or_default();
    let first = |reached: Value| items(&reached["zones"]).iter().take(MOST_ZONES).cloned().collect();
    let zones: Vec<Value> =
        match gui.part(visit, &format!("/sync/revisions/{revision}?of=proxies"), first).await {
            Ok(zones) => zones,
            Err(why) => return html! { p.note { (why) } },
        };
    let mut rows = Vec::new();
    for zone in &zones {
        let zone_name = text_of(&zone["zone"]);
        let (state, why) = match gui.desk.mode().zone() {
            None => {
                let path = format!("/sync/zones/{}/{}/{}", encode(zone_name), kind.path, encode(name));
                let item = gui.get(visit, &address(&path, &[("mesh", mesh)])).await.unwrap_or_default();
                (text_of(&item["state"]).to_owned(), text_of(&item["reason"]).to_owned())
            }
            Some(_) => (text_of(&zone["state"]).to_owned(), String::new()),
        };
        rows.push(vec![
            html! { a href={ "/gui/zones/" (encode(zone_name)) } { (zone_name) } },
            chip(&state),
            html! { (why) },
            of_proxies(&zone["proxies"], revision),
        ]);
    }
    html! {
        p.quiet { "It was written with revision " a href={ "/gui/changes/" (revision) } { (revision) } "." }
        (table(&["Zone", "State", "Why", "Its proxies"], &rows, "There is no zone."))
    }
}

/// How far the proxies of a zone are with a revision.
pub(super) fn of_proxies(told: &Value, revision: u64) -> Markup {
    let Some(acked) = told["acked"].as_u64() else { return html! { span.soft { "not told" } } };
    let waiting = items(&told["waiting"]);
    html! {
        @if acked >= revision { span.chip.good { "✓ all " (ages::text(&told["connected"])) } }
        @else { span.chip.warn { "◌ " (ages::text(&told["behind"])) " of " (ages::text(&told["connected"])) " behind" } }
        @if acked < revision && !waiting.is_empty() { " " span.soft { (waiting.iter().map(text_of).collect::<Vec<_>>().join(", ")) } }
        @for one in items(&told["refusals"]) { div { span.chip.bad { "✗ refused" } " " (text_of(&one["proxy"])) ": " (text_of(&one["reason"])) } }
    }
}

async fn history(gui: &Gui, visit: &Visit, subject: &ShownResource<'_>) -> Markup {
    let path = format!("{}/_history?size={MOST_CHANGES}", subject.path);
    let found = match gui.get(visit, &path).await {
        Ok(found) => found,
        Err(why) if why.status == StatusCode::NOT_FOUND => {
            return html! { p.quiet { "Of this type no history is kept." } };
        }
        Err(_) => return html! { p.quiet { "The history is for those who sign in." } },
    };
    let changes = items(&found["items"]);
    let rows = changes.iter().enumerate().map(|(n, change)| {
        let revision = change["revision"].to_string();
        let before = changes.get(n + 1).map(|before| before["revision"].to_string());
        vec![
            html! { a href={ "/gui/changes/" (revision) } { (revision) } },
            since(&change["at"], gui.desk.now()),
            html! { (text_of(&change["author"])) },
            html! { (text_of(&change["op"])) },
            html! { @if let Some(before) = before {
                a href=(address(&visit.path, &[("mesh", subject.mesh), ("from", &before), ("to", &revision)])) { "what differs" }
            } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    html! {
        (table(&["Revision", "Ago", "By", "What", ""], &rows, "Nothing is known of its past."))
        (gaps(&found))
    }
}

/// How it was at one revision and at another, when that is asked for.
async fn differences(gui: &Gui, visit: &Visit, subject: &ShownResource<'_>) -> Markup {
    let (from, to) = (visit.parameter("from"), visit.parameter("to"));
    if from.is_empty() || to.is_empty() {
        return html! {};
    }
    let at = async |revision: &str| {
        let path = format!("{}/_history/{}", subject.path, encode(revision));
        gui.part(visit, &path, |document| yaml(&document)).await
    };
    let shown = match (at(from).await, at(to).await) {
        (Ok(old), Ok(new)) => gui.desk.work(old.len() + new.len(), move || diff(&old, &new)).await,
        (Err(why), _) | (_, Err(why)) => html! { p.note { (why) } },
    };
    html! {
        section.panel {
            h2 { "From revision " (from) " to " (to) }
            (shown)
        }
    }
}
