//! The first page: the federation as a map, and what is wrong.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    federation::{Federation, WayIn},
    layout::PageFrame,
    map,
    parts::{chip, figures, findings, table},
    visit::{Visit, encode},
};

/// Zones that are named for each way into another.
const MOST_CALLERS: usize = 20;

pub(super) async fn show(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let seen = Federation::look(&gui, &visit).await;
    let counted = gui.get(&visit, "/global-insight").await.unwrap_or_default();
    let (drawing, bytes) = (Arc::clone(&gui), seen.weight());
    let content = gui.desk.work(bytes, move || content(&drawing, &seen, &counted)).await;
    let watches = "zones Zone ZoneInsight ZoneIngress ZoneIngressInsight MeshZoneAddress Mesh Dataplane DataplaneInsight \
                   MeshTrafficPermission TrafficPermission";
    PageFrame { title: "Overview", section: "Overview", trail: &[], watches }.respond(&gui, &visit, &content)
}

fn content(gui: &Gui, seen: &Federation, counted: &Value) -> Markup {
    html! {
        div #figures data-live { (counts(counted, seen.own.is_none())) }
        @for hidden in &seen.hidden { p.note { (hidden) } }
        div.grid.wide {
            section.panel aria-labelledby="h-map" {
                h2 #h-map { "The federation" }
                div #map data-live { (map::draw(seen, &gui.lags, gui.desk.now())) }
            }
            section.panel aria-labelledby="h-wrong" {
                h2 #h-wrong { "What is wrong now" }
                div #wrong data-live { (findings(&seen.findings)) }
            }
        }
        section.panel aria-labelledby="h-reach" {
            h2 #h-reach { "Who reaches whom" }
            div #reach data-live { (reach(seen)) }
        }
    }
}

fn counts(counted: &Value, is_global: bool) -> Markup {
    if !counted.is_object() {
        return html! {};
    }
    let of = |what: &Value| {
        let (online, total) = (what["online"].as_u64(), what["total"].as_u64().unwrap_or_default());
        online.map_or_else(|| total.to_string(), |online| format!("{online} / {total}"))
    };
    let mut shown = Vec::new();
    if is_global {
        shown.push(("zones online", of(&counted["zones"]["controlPlanes"])));
    }
    shown.extend([
        ("dataplanes online", of(&counted["dataplanes"]["standard"])),
        ("services online", of(&counted["services"]["internal"])),
        ("ingresses online", of(&counted["zones"]["zoneIngresses"])),
        ("egresses online", of(&counted["zones"]["zoneEgresses"])),
        ("meshes", of(&counted["meshes"])),
        ("policies", of(&counted["policies"])),
    ]);
    figures(&shown)
}

fn reach(seen: &Federation) -> Markup {
    let callers = |way: &WayIn| {
        let others = || seen.zones.iter().map(|zone| zone.name.as_str()).filter(|zone| *zone != way.zone);
        let named = others().take(MOST_CALLERS).collect::<Vec<_>>().join(", ");
        match seen.zones.len().saturating_sub(MOST_CALLERS + 1) {
            0 => named,
            more => format!("{named} and {more} more"),
        }
    };
    let rows = seen.ways_in.iter().map(|way| {
        vec![
            html! { a href={ "/gui/zones/" (encode(&way.zone)) } { (way.zone) } },
            html! { (way.name) },
            html! { code { (way.address) } },
            match way.is_connected {
                Some(true) => chip("online"),
                Some(false) => chip("offline"),
                None => chip("not told"),
            },
            html! { (callers(way)) },
            html! { (way.services.join(", ")) },
        ]
    });
    let headings = ["Into zone", "Ingress", "Address", "Envoy", "From", "To services"];
    table(
        &headings,
        &rows.collect::<Vec<_>>(),
        "No zone has an ingress, so services are called in their own zone only.",
    )
}
