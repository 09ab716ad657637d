//! Meshes, and one of them with a map of its services.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::Response,
};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    layout::PageFrame,
    parts::{
        ROWS, figures, findings, items, page_of, pages, resource_address, search, since, table, text_of,
    },
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

pub(super) async fn list(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let frame = PageFrame { title: "Meshes", section: "Meshes", trail: &[], watches: WATCHES };
    let page = page_of(&visit);
    let (size, offset) = (ROWS.to_string(), (page * ROWS).to_string());
    let asked = [("name", visit.parameter("search")), ("size", &size), ("offset", &offset)];
    let meshes = match gui.get(&visit, &address("/meshes", &asked)).await {
        Ok(meshes) => meshes,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let insights = gui.list(&visit, "/mesh-insights").await;
    let total = usize::try_from(meshes["total"].as_u64().unwrap_or_default()).unwrap_or_default();
    let rows = items(&meshes["items"]).iter().map(|mesh| {
        let name = text_of(&mesh["name"]);
        let insight = insights.iter().find(|insight| insight["name"] == name).unwrap_or(&Value::Null);
        let policies = insight["policies"].as_object().into_iter().flatten();
        let policies: u64 = policies.filter_map(|(_, count)| count["total"].as_u64()).sum();
        vec![
            html! { a href={ "/gui/meshes/" (encode(name)) } { (name) } },
            html! { (online(&insight["dataplanes"])) },
            html! { (ages::text(&insight["services"]["total"]).replace('-', "0")) },
            html! { (policies) },
            html! { (security(mesh)) },
            html! { (mesh["meshServices"]["mode"].as_str().unwrap_or("Disabled")) },
            since(&mesh["modificationTime"], gui.desk.now()),
        ]
    });
    let headings =
        ["Mesh", "#Dataplanes online", "#Services", "#Policies", "mTLS", "Services as resources", "Changed"];
    let rows: Vec<_> = rows.collect();
    let content = html! {
        form.filters method="get" action="/gui/meshes" role="search" { (search(&visit)) button { "Filter" } }
        section.panel { div #meshes data-live {
            (table(&headings, &rows, "There is no mesh."))
            (pages(&visit, page, total))
        } }
    };
    frame.respond(&gui, &visit, &content)
}

pub(super) async fn show(State(gui): State<Arc<Gui>>, Path(name): Path<String>, visit: Visit) -> Response {
    let frame =
        PageFrame { title: &name, section: "Meshes", trail: &[("/gui/meshes", "Meshes")], watches: WATCHES };
    let mesh = match gui.get(&visit, &format!("/meshes/{}", encode(&name))).await {
        Ok(mesh) => mesh,
        Err(why) => return frame.fail(&gui, &visit, &why),
    };
    let insight = gui.get(&visit, &format!("/mesh-insights/{}", encode(&name))).await.unwrap_or_default();
    let wrong = meshes::of(std::slice::from_ref(&mesh), std::slice::from_ref(&insight));
    let topology = service_map::look(&gui, &visit, &name).await;
    let content = html! {
        div #figures data-live { (figures(&[
            ("dataplanes online", online(&insight["dataplanes"])),
            ("services", ages::text(&insight["services"]["total"])),
            ("mTLS", security(&mesh)),
            ("services as resources", mesh["meshServices"]["mode"].as_str().unwrap_or("Disabled").to_owned()),
        ])) }
        div.grid.wide {
            section.panel { h2 { "Who calls whom" } div #map data-live { (service_map::draw(&topology)) } }
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
