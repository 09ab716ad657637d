//! Meshes, and one of them with a map of its services.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    extract::{Path, State},
    response::Response,
};
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    federation::outline,
    layout::PageFrame,
    parts::{
        ROWS, figures, findings, items, page_of, pages, resource_address, search, since, table, text_of,
    },
    rows::{PageRows, Row},
    service_map,
    visit::{Visit, address, encode},
};
use crate::{ages, checks::meshes};

const WATCHES: &str = "zones Mesh Dataplane DataplaneInsight MeshTrafficPermission TrafficPermission";

fn online(counts: &Value) -> String {
    format!(
        "{} / {}",
        counts["online"].as_u64().unwrap_or_default(),
        counts["total"].as_u64().unwrap_or_default()
    )
}

/// The backend that signs identities.
fn security(mesh: &Value) -> String {
    let enabled = text_of(&mesh["mtls"]["enabledBackend"]);
    let backend = items(&mesh["mtls"]["backends"]).iter().find(|backend| backend["name"] == enabled);
    match backend {
        _ if enabled.is_empty() => "off".to_owned(),
        Some(backend) => format!(
            "{enabled} ({}, {})",
            text_of(&backend["type"]),
            backend["mode"].as_str().unwrap_or("STRICT")
        ),
        None => enabled.to_owned(),
    }
}

/// What is counted of a mesh.
#[derive(Clone, Default)]
struct MeshCounts {
    online: String,
    services: String,
    policies: u64,
}

impl MeshCounts {
    /// With the name of the mesh.
    fn of(insight: &Value) -> (String, Self) {
        let policies = insight["policies"].as_object().into_iter().flatten();
        let counts = Self {
            online: online(&insight["dataplanes"]),
            services: ages::text(&insight["services"]["total"]),
            policies: policies.filter_map(|(_, count)| count["total"].as_u64()).sum(),
        };
        (text_of(&insight["name"]).to_owned(), counts)
    }
}

fn mesh_row(mesh: &Value, counts: MeshCounts, now: DateTime<Utc>) -> Row {
    let name = text_of(&mesh["name"]);
    vec![
        html! { a href={ "/gui/meshes/" (encode(name)) } { (name) } },
        html! { (counts.online) },
        html! { (counts.services.replace('-', "0")) },
        html! { (counts.policies) },
        html! { (security(mesh)) },
        html! { (services_mode(mesh)) },
        since(&mesh["modificationTime"], now),
    ]
}

fn services_mode(mesh: &Value) -> String {
    mesh["meshServices"]["mode"].as_str().unwrap_or("Disabled").to_owned()
}

pub(super) async fn list(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let frame = PageFrame { title: "Meshes", section: "Meshes", trail: &[], watches: WATCHES };
    let (page, now) = (page_of(&visit), gui.desk.now());
    let (size, offset) = (ROWS.to_string(), (page * ROWS).to_string());
    let name = ("name", visit.parameter("search"));
    // Both lists are of the same meshes in the same order.
    let insights = address("/mesh-insights", &[name, ("size", &size), ("offset", &offset)]);
    let counts = move |list: Value| items(&list["items"]).iter().map(MeshCounts::of).collect();
    let counts: BTreeMap<String, MeshCounts> = gui.part(&visit, &insights, counts).await.unwrap_or_default();
    let mut found = PageRows::of(page);
    let row = move |mesh: &Value| {
        let counts = counts.get(text_of(&mesh["name"])).cloned().unwrap_or_default();
        mesh_row(mesh, counts, now)
    };
    if let Err(why) = found.add(&gui, &visit, &address("/meshes", &[name]), row).await {
        return frame.fail(&gui, &visit, &why);
    }
    let headings =
        ["Mesh", "#Dataplanes online", "#Services", "#Policies", "mTLS", "Services as resources", "Changed"];
    let content = html! {
        form.filters method="get" action="/gui/meshes" role="search" { (search(&visit)) button { "Filter" } }
        section.panel { div #meshes data-live {
            (table(&headings, &found.rows, "There is no mesh."))
            (pages(&visit, page, found.total))
        } }
    };
    frame.respond(&gui, &visit, &content)
}

pub(super) async fn show(State(gui): State<Arc<Gui>>, Path(name): Path<String>, visit: Visit) -> Response {
    let frame =
        PageFrame { title: &name, section: "Meshes", trail: &[("/gui/meshes", "Meshes")], watches: WATCHES };
    let seen = |mesh: Value| (outline(&mesh), security(&mesh), services_mode(&mesh));
    let (mesh, security, mode) = match gui.part(&visit, &format!("/meshes/{}", encode(&name)), seen).await {
        Ok(seen) => seen,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let insight = gui.get(&visit, &format!("/mesh-insights/{}", encode(&name))).await.unwrap_or_default();
    let wrong = meshes::of(std::slice::from_ref(&mesh), std::slice::from_ref(&insight));
    let topology = service_map::look(&gui, &visit, &name).await;
    let content = html! {
        div #figures data-live { (figures(&[
            ("dataplanes online", online(&insight["dataplanes"])),
            ("services", ages::text(&insight["services"]["total"])),
            ("mTLS", security),
            ("services as resources", mode),
        ])) }
        div.grid.wide {
            section.panel { h2 { "Who calls whom" } div #map data-live { (topology) } }
            div {
                section.panel { h2 { "What is wrong now" } div #wrong data-live { (findings(&wrong)) } }
                section.panel { h2 { "Policies" } div #policies data-live { (policies(&name, &insight)) } }
            }
        }
        p.quiet {
            a href=(address("/gui/dataplanes", &[("mesh", &name)])) { "Dataplanes" } " · "
            a href=(address("/gui/services", &[("mesh", &name)])) { "Services" } " · "
            a href=(address("/gui/policies", &[("mesh", &name)])) { "Policies" } " · "
            a href=(resource_address("meshes", "", &name)) { "The resource, its history, who has it" }
        }
    };
    frame.respond(&gui, &visit, &content)
}

fn policies(mesh: &str, insight: &Value) -> Markup {
    let counts = insight["policies"].as_object().into_iter().flatten();
    let rows = counts.filter(|(_, count)| count["total"].as_u64().is_some_and(|total| total > 0)).map(
        |(kind, count)| {
            let address = address("/gui/policies", &[("mesh", mesh), ("type", kind)]);
            vec![html! { a href=(address) { (kind) } }, html! { (ages::text(&count["total"])) }]
        },
    );
    table(&["Type", "#Number"], &rows.collect::<Vec<_>>(), "There are none.")
}
