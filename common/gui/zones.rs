//! All zones in a table.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use maud::{Markup, html};

use super::{
    Gui,
    federation::Federation,
    layout::PageFrame,
    parts::{chip, items, since, table, text_of},
    visit::{Visit, encode},
};
use crate::ages;

pub(super) async fn show(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let seen = Federation::look(&gui, &visit).await;
    let (now, bytes) = (gui.desk.now(), seen.weight());
    let content = gui.desk.work(bytes, move || content(&seen, now)).await;
    let watches = "zones Zone ZoneInsight ZoneIngress Dataplane";
    PageFrame { title: "Zones", section: "Zones", trail: &[], watches }.respond(&gui, &visit, &content)
}

fn content(seen: &Federation, now: DateTime<Utc>) -> Markup {
    let rows = seen.zones.iter().map(|zone| {
        let is_own = seen.own.as_deref() == Some(zone.name.as_str());
        let told = if is_own { seen.link.as_ref().unwrap_or(&zone.told) } else { &zone.told };
        let lag = |direction: &str| {
            told[direction]["lag"].as_u64().map_or_else(|| "-".to_owned(), |lag| lag.to_string())
        };
        let ways = seen.ways_into(&zone.name).count();
        vec![
            html! { a href={ "/gui/zones/" (encode(&zone.name)) } { (zone.name) } },
            if is_own {
                chip("this zone")
            } else if zone.state.is_empty() {
                chip("not told")
            } else {
                chip(&zone.state)
            },
            since(&told["since"], now),
            html! { (ages::text(&told["version"])) },
            html! { (ages::text(&told["down"]["acked"])) },
            html! { (lag("down")) },
            html! { (lag("up")) },
            html! { (ages::text(&told["dataplanes"])) },
            html! { (ways) },
            html! { @for note in items(&told["notes"]) { div { (text_of(note)) } } },
        ]
    });
    let headings = [
        "Zone",
        "Status",
        "Since",
        "Version",
        "#Revision",
        "#Behind ↓",
        "#Behind ↑",
        "#Dataplanes",
        "#Ingresses",
        "Notes",
    ];
    let rows: Vec<_> = rows.collect();
    html! {
        @for hidden in &seen.hidden { p.note { (hidden) } }
        section.panel { div #zones data-live { (table(&headings, &rows, "No zone has connected yet.")) } }
    }
}
