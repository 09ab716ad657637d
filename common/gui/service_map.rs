//! Who calls whom in a mesh, drawn from what its dataplanes say they call.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, html};
use serde_json::Value;

use super::{
    Gui,
    parts::{items, text_of},
    rows::count,
    tables::{condition, services_of},
    visit::{Visit, address, encode},
};
use crate::model::labels;

/// More are no picture any more.
const MOST: usize = 80;
const WIDTH: usize = 170;
const HEIGHT: usize = 40;
const ACROSS: usize = 80;
const DOWN: usize = 16;

/// Services, and which calls which.
#[derive(Debug, Default, PartialEq)]
struct ServiceMap {
    /// Each with how many of its proxies are online, and of how many.
    services: BTreeMap<String, (usize, usize)>,
    calls: BTreeSet<(String, String)>,
    /// Proxies that say nothing of whom they call: they may call everybody.
    open: usize,
}

/// The topology of `mesh` as who looks may see it, drawn.
pub(super) async fn look(gui: &Gui, visit: &Visit, mesh: &str) -> Markup {
    let path = format!("/meshes/{}/dataplanes/_overview", encode(mesh));
    let drawn = |list: Value| {
        let (shown, total) = (items(&list["items"]), count(&list["total"]));
        html! {
            (draw(&ServiceMap::of(shown)))
            @if shown.len() < total { p.quiet { "Drawn from the first " (shown.len()) " of " (total) " dataplanes." } }
        }
    };
    // Where nobody may see them there are none to draw.
    let drawn = gui.part(visit, &address(&path, &[("size", "1000")]), drawn).await;
    drawn.unwrap_or_else(|_| draw(&ServiceMap::default()))
}

impl ServiceMap {
    fn of(dataplanes: &[Value]) -> Self {
        let mut map = Self::default();
        for overview in dataplanes {
            let dataplane = &overview["dataplane"];
            let networking = &dataplane["networking"];
            let online = usize::from(matches!(condition(overview), "online" | "partially degraded"));
            let own = services_of(dataplane);
            for service in &own {
                let counts = map.services.entry(service.clone()).or_default();
                *counts = (counts.0 + online, counts.1 + 1);
            }
            let outbounds = items(&networking["outbound"]).iter().map(called);
            let reachable =
                items(&networking["transparentProxying"]["reachableServices"]).iter().map(text_of);
            let called: BTreeSet<&str> = outbounds.chain(reachable).filter(|name| !name.is_empty()).collect();
            if called.is_empty() && networking["transparentProxying"].is_object() {
                map.open += 1;
            }
            for called in called.iter().filter(|_| !own.is_empty()) {
                map.services.entry((*called).to_owned()).or_default();
            }
            // Of what is no picture any more, nobody asks who calls whom; and each may call each.
            if map.services.len() > MOST {
                map.calls.clear();
                continue;
            }
            for (service, called) in
                own.iter().flat_map(|own| called.iter().map(move |called| (own, *called)))
            {
                map.calls.insert((service.clone(), called.to_owned()));
            }
        }
        map
    }

    /// In which column each service stands: right of all that call it, as far as no circle forbids it.
    fn columns(&self) -> BTreeMap<&str, usize> {
        let mut columns: BTreeMap<&str, usize> =
            self.services.keys().map(|name| (name.as_str(), 0)).collect();
        // A circle would go on for ever; no path without one is longer than this.
        for _ in 0..self.services.len().min(8) {
            let mut moved = false;
            for (from, to) in self.calls.iter().filter(|(from, to)| from != to) {
                let is_circle = self.calls.contains(&(to.clone(), from.clone()));
                let right = columns[from.as_str()] + 1;
                if !is_circle && columns[to.as_str()] < right {
                    columns.insert(to, right);
                    moved = true;
                }
            }
            if !moved {
                break;
            }
        }
        columns
    }
}

/// What an outbound calls.
fn called(outbound: &Value) -> &str {
    match outbound["tags"][labels::TAG_SERVICE].as_str() {
        Some(service) => service,
        None => text_of(&outbound["backendRef"]["name"]),
    }
}

/// As a picture.
fn draw(map: &ServiceMap) -> Markup {
    if map.services.is_empty() {
        return html! { p.quiet { "No dataplane serves anything yet." } };
    }
    if map.services.len() > MOST {
        return html! { p.quiet { (map.services.len()) " services, which is too many for a picture." } };
    }
    let columns = map.columns();
    let mut filled: BTreeMap<usize, usize> = BTreeMap::new();
    let mut places: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (name, column) in &columns {
        let row = filled.entry(*column).or_default();
        places.insert(name, (8 + column * (WIDTH + ACROSS), 8 + *row * (HEIGHT + DOWN)));
        *row += 1;
    }
    let rows = filled.values().max().copied().unwrap_or(1);
    let width = (16 + (filled.len() - 1) * (WIDTH + ACROSS) + WIDTH).max(560);
    let height = rows * (HEIGHT + DOWN) + 8;
    html! {
        div.scroll tabindex="0" role="group" aria-label="Map of services" {
            svg.map viewBox={ "0 0 " (width) " " (height) } role="img" aria-label={ (map.services.len()) " services, " (map.calls.len()) " of which call each other" } {
                @for (from, to) in &map.calls {
                    @let ((x, y), (there_x, there_y)) = (places[from.as_str()], places[to.as_str()]);
                    @let (x, y, there_y) = (x + WIDTH, y + HEIGHT / 2, there_y + HEIGHT / 2);
                    path.reach d={ "M" (x) " " (y) " C" (x + ACROSS / 2) " " (y) " " (there_x.saturating_sub(ACROSS / 2)) " " (there_y) " " (there_x.saturating_sub(6)) " " (there_y) } {
                        title { (from) " calls " (to) }
                    }
                    path.tip d={ "M" (there_x) " " (there_y) " l-8 -4 v8 z" } {}
                }
                @for (name, (online, total)) in &map.services {
                    @let (x, y) = places[name.as_str()];
                    @let tone = if *total == 0 { "" } else if *online == 0 { "bad" } else if online < total { "warn" } else { "good" };
                    rect class={ "box " (tone) } x=(x) y=(y) width=(WIDTH) height=(HEIGHT) rx="5" { title { (name) } }
                    text x=(x + 10) y=(y + 17) { (name.chars().take(22).collect::<String>()) }
                    text class={ "small " (tone) } x=(x + 10) y=(y + 32) {
                        @if *total == 0 { "no proxy here" } @else { (online) " of " (total) " proxies online" }
                    }
                }
            }
        }
        @if map.open > 0 {
            p.quiet { (map.open) " proxies do not say whom they call, so they may call everybody." }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn dataplane(service: &str, calls: &[&str]) -> Value {
        let outbounds: Vec<Value> =
            calls.iter().map(|called| json!({ "port": 1, "tags": { "kuma.io/service": called } })).collect();
        json!({ "dataplane": { "networking": {
            "inbound": [{ "port": 80, "tags": { "kuma.io/service": service } }], "outbound": outbounds } } })
    }

    #[test]
    fn who_is_called_stands_right_of_who_calls_and_circles_end() {
        let map = ServiceMap::of(&[
            dataplane("web", &["api", "outside"]),
            dataplane("api", &["db"]),
            dataplane("db", &["api"]),
        ]);
        assert_eq!(map.services.len(), 4);
        let columns = map.columns();
        assert!(columns["web"] < columns["api"], "{columns:?}");
        assert_eq!(map.services["outside"], (0, 0));
        let drawn = draw(&map).into_string();
        assert!(drawn.contains("<title>web calls api</title>"), "{drawn}");
        assert!(draw(&ServiceMap::of(&[])).into_string().contains("No dataplane"));
    }

    #[test]
    fn what_is_no_picture_holds_no_calls() {
        let names: Vec<String> = (0..500).map(|n| format!("s{n}")).collect();
        let calls: Vec<&str> = names.iter().map(String::as_str).collect();
        let mut all = dataplane("web", &calls);
        let inbounds = names.iter().map(|name| json!({ "port": 80, "tags": { "kuma.io/service": name } }));
        all["dataplane"]["networking"]["inbound"] = inbounds.collect();
        let map = ServiceMap::of(&[dataplane("web", &["api"]), all]);
        assert_eq!((map.services.len(), map.calls.len()), (502, 0));
        assert!(draw(&map).into_string().contains("too many for a picture"));
    }

    #[test]
    fn names_are_escaped() {
        let drawn = draw(&ServiceMap::of(&[dataplane("<script>", &["\"onload"])])).into_string();
        assert!(!drawn.contains("<script>") && drawn.contains("&lt;script&gt;"), "{drawn}");
    }
}
