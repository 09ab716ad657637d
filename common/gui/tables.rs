//! Tables of what there is, with filters that stand in the address, so that a view can be kept and sent.

use std::sync::Arc;

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    federation::is_connected,
    layout::PageFrame,
    parts::{
        ROWS, chip, choice, dataplane_address, items, page_of, pages, resource_address, search, since, table,
        text_of, title_of,
    },
    visit::{Visit, address, encode},
};
use crate::{
    ages,
    model::{Kind, labels},
    registry,
};

/// Pages of the API that are gone through for a filter it does not have.
const MOST_PAGES: usize = 20;
/// Items on one of them.
const SIZE: usize = 1000;

impl Gui {
    /// The meshes that who looks may see.
    async fn mesh_names(&self, visit: &Visit) -> Vec<String> {
        self.list(visit, "/meshes").await.iter().map(|mesh| text_of(&mesh["name"]).to_owned()).collect()
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
    let page = page_of(&visit);
    let asked = |size: usize, offset: usize| {
        let (size, offset) = (size.to_string(), offset.to_string());
        let label = format!("filter[labels.{}]", labels::ZONE);
        let zone =
            if zone.is_empty() { String::new() } else { format!("&{}={}", encode(&label), encode(zone)) };
        address(&path, &[("name", visit.parameter("search")), ("size", &size), ("offset", &offset)]) + &zone
    };
    let (shown, total) = if status.is_empty() {
        match gui.get(&visit, &asked(ROWS, page * ROWS)).await {
            Ok(list) => (items(&list["items"]).to_vec(), count(&list["total"])),
            Err(why) => return frame.fail(&gui, &visit, &why),
        }
    } else {
        let mut all = Vec::new();
        for n in 0..MOST_PAGES {
            let list = match gui.get(&visit, &asked(SIZE, n * SIZE)).await {
                Ok(list) => list,
                Err(why) => return frame.fail(&gui, &visit, &why),
            };
            all.extend(items(&list["items"]).iter().filter(|one| condition(one) == status).cloned());
            if !list["next"].is_string() {
                break;
            }
        }
        let total = all.len();
        (all.into_iter().skip(page * ROWS).take(ROWS).collect(), total)
    };
    let states = ["online", "partially degraded", "offline", "unknown"].map(str::to_owned);
    let content = html! {
        form.filters method="get" action="/gui/dataplanes" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.mesh_names(&visit).await))
            (choice(&visit, "Status", "status", &states))
            label { "Zone" input type="search" name="zone" value=(zone) autocomplete="off"; }
            button { "Filter" }
        }
        section.panel { div #dataplanes data-live {
            (dataplane_rows(&gui, &shown))
            (pages(&visit, page, total))
        } }
    };
    frame.respond(&gui, &visit, &content)
}

fn count(total: &Value) -> usize {
    total.as_u64().and_then(|total| usize::try_from(total).ok()).unwrap_or_default()
}

fn dataplane_rows(gui: &Gui, shown: &[Value]) -> Markup {
    let now = gui.desk.now();
    let rows = shown.iter().map(|item| {
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
    });
    let headings =
        ["Name", "Mesh", "Status", "Services", "Zone", "Connected", "Envoy", "#Refused", "Certificate"];
    table(&headings, &rows.collect::<Vec<_>>(), "No dataplane fits.")
}

/// Resources of several kinds that fit the filters, with their kinds.
async fn of_kinds(gui: &Gui, visit: &Visit, kinds: Vec<&'static Kind>) -> Vec<(&'static Kind, Value)> {
    let index = gui.desk.index();
    let mesh = visit.parameter("mesh");
    let mut found = Vec::new();
    for kind in kinds.into_iter().filter(|kind| index.count(kind) > 0) {
        let path = address(&list_path(kind, mesh, ""), &[("name", visit.parameter("search"))]);
        let path =
            if path.contains('?') { format!("{path}&size={SIZE}") } else { format!("{path}?size={SIZE}") };
        let list = gui.get(visit, &path).await.unwrap_or_default();
        found.extend(items(&list["items"]).iter().map(|item| (kind, item.clone())));
    }
    found
}

pub(super) async fn policies(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    let all: Vec<&'static Kind> =
        registry::ALL.iter().copied().filter(|kind| kind.policy.is_some()).collect();
    let names: Vec<String> = all.iter().map(|kind| kind.name.to_owned()).collect();
    let wanted = visit.parameter("type");
    let watches = format!("Mesh {}", names.join(" "));
    let found = of_kinds(
        &gui,
        &visit,
        all.into_iter().filter(|kind| wanted.is_empty() || kind.name == wanted).collect(),
    )
    .await;
    let (page, total, now) = (page_of(&visit), found.len(), gui.desk.now());
    let rows = found.into_iter().skip(page * ROWS).take(ROWS).map(|(kind, item)| {
        let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
        let target = &item["spec"]["targetRef"];
        vec![
            html! { a href=(resource_address(kind.path, mesh, name)) title=(name) { (title_of(&item)) } },
            html! { (kind.name) },
            html! { (mesh) },
            html! { (target_words(target)) },
            html! { (item["labels"][labels::ORIGIN].as_str().unwrap_or("here")) },
            html! { (text_of(&item["labels"][labels::ZONE])) },
            since(&item["modificationTime"], now),
        ]
    });
    let headings = ["Name", "Type", "Mesh", "For", "Written on", "Zone", "Changed"];
    let rows: Vec<_> = rows.collect();
    let content = html! {
        form.filters method="get" action="/gui/policies" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.mesh_names(&visit).await))
            (choice(&visit, "Type", "type", &names))
            button { "Filter" }
            a.button href="/gui/change" { "New" }
        }
        section.panel { div #policies data-live {
            (table(&headings, &rows, "No policy fits."))
            (pages(&visit, page, total))
        } }
    };
    PageFrame { title: "Policies", section: "Policies", trail: &[], watches: &watches }
        .respond(&gui, &visit, &content)
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
    let mesh = visit.parameter("mesh");
    let counted = match mesh {
        "" => "/service-insights".to_owned(),
        mesh => format!("/meshes/{}/service-insights", encode(mesh)),
    };
    let counted = address(&counted, &[("name", visit.parameter("search")), ("size", "1000")]);
    let counted = gui.get(&visit, &counted).await.unwrap_or_default();
    let kinds = ["MeshService", "MeshMultiZoneService", "MeshExternalService", "ExternalService"];
    let kinds: Vec<&'static Kind> = kinds.into_iter().filter_map(registry::by_name).collect();
    let stored = of_kinds(&gui, &visit, kinds).await;
    let mut rows: Vec<(String, Vec<Markup>)> = Vec::new();
    for item in items(&counted["items"]) {
        let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
        let dataplanes = &item["dataplanes"];
        let proxies =
            dataplanes["total"].as_u64().map(|total| format!("{} / {total}", count(&dataplanes["online"])));
        rows.push((
            name.to_owned(),
            vec![
                html! { a href=(address("/gui/dataplanes", &[("mesh", mesh)])) { (name) } },
                html! { "by tag, " (item["serviceType"].as_str().unwrap_or("internal").replace('_', " ")) },
                html! { (mesh) },
                chip(text_of(&item["status"])),
                html! { (proxies.unwrap_or_else(|| "-".to_owned())) },
                html! { (text_of(&item["addressPort"])) },
                html! { (items(&item["zones"]).iter().map(text_of).collect::<Vec<_>>().join(", ")) },
            ],
        ));
    }
    for (kind, item) in &stored {
        let (mesh, name) = (text_of(&item["mesh"]), text_of(&item["name"]));
        let proxies = &item["status"]["dataplaneProxies"];
        let state = match (proxies["healthy"].as_u64(), proxies["total"].as_u64()) {
            (Some(0) | None, Some(1..)) => "offline",
            (Some(healthy), Some(total)) if healthy < total => "partially degraded",
            (Some(1..), _) => "online",
            _ => "",
        };
        let hostnames = items(&item["status"]["addresses"]).iter().map(|one| text_of(&one["hostname"]));
        rows.push((name.to_owned(), vec![
            html! { a href=(resource_address(kind.path, mesh, name)) title=(name) { (title_of(item)) } },
            html! { (kind.name) },
            html! { (mesh) },
            if state.is_empty() { html! { "-" } } else { chip(state) },
            html! { (proxies["total"].as_u64().map_or_else(|| "-".to_owned(), |total| format!("{} / {total}", count(&proxies["healthy"])))) },
            html! { (hostnames.collect::<Vec<_>>().join(", ")) },
            html! { (text_of(&item["labels"][labels::ZONE])) },
        ]));
    }
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let (page, total) = (page_of(&visit), rows.len());
    let rows: Vec<Vec<Markup>> = rows.into_iter().skip(page * ROWS).take(ROWS).map(|(_, row)| row).collect();
    let headings = ["Service", "Kind", "Mesh", "Status", "#Proxies", "Reached as", "Zones"];
    let content = html! {
        form.filters method="get" action="/gui/services" role="search" {
            (search(&visit))
            (choice(&visit, "Mesh", "mesh", &gui.mesh_names(&visit).await))
            button { "Filter" }
        }
        section.panel { div #services data-live {
            (table(&headings, &rows, "No service fits."))
            (pages(&visit, page, total))
        } }
        p.quiet { "Who calls whom is drawn on the page of each mesh." }
    };
    let watches = "zones Dataplane DataplaneInsight MeshService MeshMultiZoneService MeshExternalService ExternalService";
    PageFrame { title: "Services", section: "Services", trail: &[], watches }.respond(&gui, &visit, &content)
}
