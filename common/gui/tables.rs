//! Tables of what there is, with filters that stand in the address, so that a view can be kept and sent.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use maud::html;
use serde_json::Value;

use super::{
    Gui,
    federation::is_connected,
    layout::PageFrame,
    parts::{
        chip, choice, dataplane_address, items, page_of, pages, resource_address, search, since, table,
        text_of, title_of,
    },
    rows::{PageRows, Row, count},
    visit::{Visit, address, encode},
};
use crate::{
    ages,
    model::{Kind, labels},
    registry,
};

impl Gui {
    /// The names in a list, as far as who looks may see them.
    pub(super) async fn names(&self, visit: &Visit, path: &str) -> Vec<String> {
        let name = |item: &Value| text_of(&item["name"]).to_owned();
        self.list(visit, path, move |items| items.iter().map(name).collect()).await
    }
}

/// Where resources of a kind are listed, of one mesh or of all.
pub(super) fn list_path(kind: &Kind, mesh: &str, rest: &str) -> String {
    match kind.is_mesh_scoped() && !mesh.is_empty() {
        true => format!("/meshes/{}/{}{rest}", encode(mesh), kind.path),
        false => format!("/{}{rest}", kind.path),
    }
}

/// How a dataplane does, by its overview.
pub(super) fn condition(overview: &Value) -> &'static str {
    if overview["strait"]["status"] == "unknown" {
        return "unknown";
    }
    let inbounds = items(&overview["dataplane"]["networking"]["inbound"]);
    let ready =
        inbounds.iter().filter(|one| one["state"].as_str().is_none_or(|state| state == "Ready")).count();
    match (is_connected(&overview["dataplaneInsight"]), ready) {
        (false, _) => "offline",
        (true, ready) if ready == inbounds.len() => "online",
        (true, 0) => "offline",
        (true, _) => "partially degraded",
    }
}

/// The services of a dataplane.
pub(super) fn services_of(dataplane: &Value) -> Vec<String> {
    let networking = &dataplane["networking"];
    let inbounds = items(&networking["inbound"]).iter().map(|inbound| &inbound["tags"]);
    let tags = inbounds.chain([&networking["gateway"]["tags"]]);
    let mut services: Vec<String> =
        tags.filter_map(|tags| tags[labels::TAG_SERVICE].as_str().map(str::to_owned)).collect();
    services.sort();
    services.dedup();
    services
}

pub(super) async fn dataplanes(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let frame = PageFrame {
        title: "Dataplanes",
        section: "Dataplanes",
        trail: &[],
        watches: "zones Dataplane DataplaneInsight",
    };
    let (mesh, zone, status) = (visit.parameter("mesh"), visit.parameter("zone"), visit.parameter("status"));
    let path = match mesh {
        "" => "/dataplanes/_overview".to_owned(),
        mesh => format!("/meshes/{}/dataplanes/_overview", encode(mesh)),
    };
    let (page, now) = (page_of(&visit), gui.desk.now());
    let label = format!("filter[labels.{}]", labels::ZONE);
    let asked: [(&str, &str); 3] =
        [("name", visit.parameter("search")), ("status", &status.replace(' ', "_")), (&encode(&label), zone)];
    let mut found = PageRows::of(page);
    let row = move |overview: &Value| dataplane_row(overview, now);
    if let Err(why) = found.add(&gui, &visit, &address(&path, &asked), row).await {
        return frame.fail(&gui, &visit, &why);
    }
    let states = ["online", "partially degraded", "offline", "unknown"].map(str::to_owned);
    let content = html! {
        form.filters method="get" action="/gui/dataplanes" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.names(&visit, "/meshes").await))
            (choice(&visit, "Status", "status", &states))
            label { "Zone" input type="search" name="zone" value=(zone) autocomplete="off"; }
            button { "Filter" }
        }
        section.panel { div #dataplanes data-live {
            (table(&DATAPLANES, &found.rows, "No dataplane fits."))
            (pages(&visit, page, found.total))
        } }
    };
    frame.respond(&gui, &visit, &content)
}

const DATAPLANES: [&str; 9] =
    ["Name", "Mesh", "Status", "Services", "Zone", "Connected", "Envoy", "#Refused", "Certificate"];

fn dataplane_row(item: &Value, now: DateTime<Utc>) -> Row {
    let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
    let insight = &item["dataplaneInsight"];
    let last = items(&insight["subscriptions"]).last().unwrap_or(&Value::Null);
    let refused = &last["status"]["total"]["responsesRejected"];
    vec![
        html! { a href=(dataplane_address(mesh, name)) title=(name) { (title_of(item)) } },
        html! { (mesh) },
        chip(condition(item)),
        html! { (services_of(&item["dataplane"]).join(", ")) },
        html! { (text_of(&item["labels"][labels::ZONE])) },
        since(&last["connectTime"], now),
        html! { (ages::text(&last["version"]["envoy"]["version"])) },
        html! { (ages::text(refused).replace('-', "0")) },
        since(&insight["mTLS"]["lastCertificateRegeneration"], now),
    ]
}

/// One page of the resources of several kinds that fit the filters, kind by kind.
async fn add_kinds(
    found: &mut PageRows,
    gui: &Gui,
    visit: &Visit,
    kinds: impl Iterator<Item = &'static Kind>,
    row: impl Fn(&'static Kind, &Value) -> Row + Copy + Send + 'static,
) {
    let index = gui.desk.index();
    for kind in kinds.filter(|kind| index.count(kind) > 0) {
        let path = list_path(kind, visit.parameter("mesh"), "");
        let path = address(&path, &[("name", visit.parameter("search"))]);
        // What may not be seen is left out.
        let _hidden = found.add(gui, visit, &path, move |item| row(kind, item)).await;
    }
}

pub(super) async fn policies(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let all = || registry::ALL.iter().copied().filter(|kind| kind.policy.is_some());
    let names: Vec<String> = all().map(|kind| kind.name.to_owned()).collect();
    let wanted = visit.parameter("type");
    let watches = format!("Mesh {}", names.join(" "));
    let (page, now) = (page_of(&visit), gui.desk.now());
    let mut found = PageRows::of(page);
    let kinds = all().filter(|kind| wanted.is_empty() || kind.name == wanted);
    add_kinds(&mut found, &gui, &visit, kinds, move |kind, item| policy_row(kind, item, now)).await;
    let headings = ["Name", "Type", "Mesh", "For", "Written on", "Zone", "Changed"];
    let content = html! {
        form.filters method="get" action="/gui/policies" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.names(&visit, "/meshes").await))
            (choice(&visit, "Type", "type", &names))
            button { "Filter" }
            a.button href="/gui/change" { "New" }
        }
        section.panel { div #policies data-live {
            (table(&headings, &found.rows, "No policy fits."))
            (pages(&visit, page, found.total))
        } }
    };
    PageFrame { title: "Policies", section: "Policies", trail: &[], watches: &watches }
        .respond(&gui, &visit, &content)
}

fn policy_row(kind: &Kind, item: &Value, now: DateTime<Utc>) -> Row {
    let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
    let target = &item["spec"]["targetRef"];
    vec![
        html! { a href=(resource_address(kind.path, mesh, name)) title=(name) { (title_of(item)) } },
        html! { (kind.name) },
        html! { (mesh) },
        html! { (target_words(target)) },
        html! { (item["labels"][labels::ORIGIN].as_str().unwrap_or("here")) },
        html! { (text_of(&item["labels"][labels::ZONE])) },
        since(&item["modificationTime"], now),
    ]
}

/// Whom a target reference means, in a few words.
fn target_words(target: &Value) -> String {
    if !target.is_object() {
        return "all".to_owned();
    }
    let tags = target["tags"].as_object().or_else(|| target["labels"].as_object());
    let tags: Vec<String> =
        tags.into_iter().flatten().map(|(key, value)| format!("{key}={}", text_of(value))).collect();
    let words = [text_of(&target["kind"]), text_of(&target["name"]), &tags.join(",")];
    words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

pub(super) async fn services(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let watches = "zones Dataplane DataplaneInsight MeshService MeshMultiZoneService MeshExternalService ExternalService";
    let frame = PageFrame { title: "Services", section: "Services", trail: &[], watches };
    let mesh = visit.parameter("mesh");
    let counted = match mesh {
        "" => "/service-insights".to_owned(),
        mesh => format!("/meshes/{}/service-insights", encode(mesh)),
    };
    let page = page_of(&visit);
    let mut found = PageRows::of(page);
    let counted = address(&counted, &[("name", visit.parameter("search"))]);
    if let Err(why) = found.add(&gui, &visit, &counted, service_row).await
        && why.status.is_server_error()
    {
        return frame.fail(&gui, &visit, &why);
    }
    let kinds = ["MeshService", "MeshMultiZoneService", "MeshExternalService", "ExternalService"];
    let kinds = kinds.into_iter().filter_map(registry::by_name);
    add_kinds(&mut found, &gui, &visit, kinds, stored_service_row).await;
    let headings = ["Service", "Kind", "Mesh", "Status", "#Proxies", "Reached as", "Zones"];
    let content = html! {
        form.filters method="get" action="/gui/services" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.names(&visit, "/meshes").await))
            button { "Filter" }
        }
        section.panel { div #services data-live {
            (table(&headings, &found.rows, "No service fits."))
            (pages(&visit, page, found.total))
        } }
        p.quiet { "Who calls whom is drawn on the page of each mesh." }
    };
    frame.respond(&gui, &visit, &content)
}

/// A service that proxies name in a tag.
fn service_row(item: &Value) -> Row {
    let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
    let dataplanes = &item["dataplanes"];
    let proxies =
        dataplanes["total"].as_u64().map(|total| format!("{} / {total}", count(&dataplanes["online"])));
    vec![
        html! { a href=(address("/gui/dataplanes", &[("mesh", mesh)])) { (name) } },
        html! { "by tag, " (item["serviceType"].as_str().unwrap_or("internal").replace('_', " ")) },
        html! { (mesh) },
        chip(text_of(&item["status"])),
        html! { (proxies.unwrap_or_else(|| "-".to_owned())) },
        html! { (text_of(&item["addressPort"])) },
        html! { (items(&item["zones"]).iter().map(text_of).collect::<Vec<_>>().join(", ")) },
    ]
}

/// A service that is a resource.
fn stored_service_row(kind: &Kind, item: &Value) -> Row {
    let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
    let proxies = &item["status"]["dataplaneProxies"];
    let state = match (proxies["healthy"].as_u64(), proxies["total"].as_u64()) {
        (Some(0) | None, Some(1..)) => "offline",
        (Some(healthy), Some(total)) if healthy < total => "partially degraded",
        (Some(1..), _) => "online",
        _ => "",
    };
    let hostnames = items(&item["status"]["addresses"]).iter().map(|one| text_of(&one["hostname"]));
    let online = proxies["total"].as_u64().map(|total| format!("{} / {total}", count(&proxies["healthy"])));
    vec![
        html! { a href=(resource_address(kind.path, mesh, name)) title=(name) { (title_of(item)) } },
        html! { (kind.name) },
        html! { (mesh) },
        if state.is_empty() {
            html! { "-" }
        } else {
            chip(state)
        },
        html! { (online.unwrap_or_else(|| "-".to_owned())) },
        html! { (hostnames.collect::<Vec<_>>().join(", ")) },
        html! { (text_of(&item["labels"][labels::ZONE])) },
    ]
}
