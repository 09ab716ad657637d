//! Who changed what.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::html;

use super::{
    Gui,
    layout::PageFrame,
    parts::{gaps, items, resource_address, since, table, text_of},
    visit::{Visit, address},
};
use crate::registry;

pub(super) async fn show(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let frame = PageFrame { title: "History", section: "History", trail: &[], watches: "*" };
    let parameter = |name| visit.parameter(name);
    let path = address(
        "/history",
        &[
            ("kind", parameter("kind")),
            ("mesh", parameter("mesh")),
            ("author", parameter("author")),
            ("before", parameter("before")),
            ("size", "50"),
        ],
    );
    let found = match gui.get(&visit, &path).await {
        Ok(found) => found,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let rows = items(&found["items"]).iter().map(|change| {
        let (mesh, name) = (text_of(&change["mesh"]), text_of(&change["name"]));
        let kind = text_of(&change["type"]);
        let path = registry::by_name(kind).map(|kind| kind.path).unwrap_or_default();
        vec![
            html! { a href={ "/gui/changes/" (change["revision"]) } { (change["revision"]) } },
            since(&change["at"], gui.desk.now()),
            html! { (text_of(&change["author"])) },
            html! { (text_of(&change["op"])) },
            html! { (kind) },
            html! { (mesh) },
            html! { a href=(resource_address(path, mesh, name)) { (name) } },
        ]
    });
    let rows: Vec<_> = rows.collect();
    let content = html! {
        form.filters method="get" action="/gui/history" role="search" {
            label { "Type" input type="search" name="kind" value=(parameter("kind")) autocomplete="off"; }
            label { "Mesh" input type="search" name="mesh" value=(parameter("mesh")) autocomplete="off"; }
            label { "Author" input type="search" name="author" value=(parameter("author")) autocomplete="off"; }
            button { "Filter" }
        }
        section.panel { div #changes data-live {
            (table(&["Revision", "Ago", "By", "What", "Type", "Mesh", "Name"], &rows, "Nothing changed."))
            (gaps(&found))
            @if let Some(next) = found["next"].as_u64() { p.pages { a rel="next" href=(visit.with("before", &next.to_string())) { "older →" } } }
        } }
    };
    frame.respond(&gui, &visit, &content)
}
