//! The federation as this control plane sees it: who there is, how they do, and through which ingress they are reached.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{
    Gui,
    parts::{items, text_of, title_of},
    visit::{Unanswered, Visit},
};
use crate::{
    checks::{CheckLine, meshes, rollouts, zones},
    model::labels,
};

/// Bytes that each of what is seen counts for.
const EACH: usize = 512;

/// One zone.
#[derive(Clone, Debug, Default)]
pub(super) struct SeenZone {
    pub(super) name: String,
    /// `online`, `unknown`, `offline`, `disabled`, or empty where this control plane cannot tell.
    pub(super) state: String,
    /// All that is told about it.
    pub(super) told: Value,
}

/// A way into a zone for the others.
#[derive(Clone, Debug)]
pub(super) struct WayIn {
    pub(super) zone: String,
    pub(super) name: String,
    pub(super) address: String,
    /// Whether its Envoy is connected, where this control plane knows.
    pub(super) is_connected: Option<bool>,
    /// Services it leads to, each once, with their meshes.
    pub(super) services: Vec<String>,
}

/// All of it.
pub(super) struct Federation {
    /// What `GET /` answers.
    pub(super) index: Value,
    /// The zone whose control plane this is.
    pub(super) own: Option<String>,
    pub(super) zones: Vec<SeenZone>,
    pub(super) ways_in: Vec<WayIn>,
    /// How this zone stands with global, where it follows one.
    pub(super) link: Option<Value>,
    /// What is wrong, and what is not.
    pub(super) findings: Vec<CheckLine>,
    /// What the reader may not see of it.
    pub(super) hidden: Vec<Unanswered>,
}

impl Federation {
    /// Looks.
    pub(super) async fn look(gui: &Gui, visit: &Visit) -> Self {
        let index = gui.get(visit, "/").await.unwrap_or_default();
        let own = gui.desk.mode().zone().map(str::to_owned);
        let ways_in = ways_in(gui, visit).await;
        let mut seen = Self {
            index,
            own,
            zones: Vec::new(),
            ways_in,
            link: None,
            findings: Vec::new(),
            hidden: Vec::new(),
        };
        let warnings = items(&seen.index["strait"]["warnings"]).iter().filter_map(Value::as_str);
        seen.findings.extend(warnings.map(|warning| CheckLine::warning("control plane", warning)));
        match seen.own.clone() {
            None => seen.look_at_zones(gui, visit).await,
            Some(own) => seen.look_at_global(gui, visit, own).await,
        }
        let outlines = |meshes: &[Value]| meshes.iter().map(outline).collect::<Vec<_>>();
        let meshes = gui.list(visit, "/meshes", outlines).await;
        let findings = move |insights: &[Value]| meshes::of(&meshes, insights);
        seen.findings.extend(gui.list(visit, "/mesh-insights", findings).await);
        seen
    }

    /// Bytes that it is shown from, about.
    pub(super) fn weight(&self) -> usize {
        let services = self.ways_in.iter().map(|way| way.services.len()).sum::<usize>();
        (self.zones.len() + self.ways_in.len() + self.findings.len() + services).saturating_mul(EACH)
    }

    async fn look_at_zones(&mut self, gui: &Gui, visit: &Visit) {
        let disabled = |stored: &[Value]| {
            let disabled = stored.iter().filter(|zone| zone["enabled"] == false);
            disabled.map(|zone| text_of(&zone["name"]).to_owned()).collect::<BTreeSet<String>>()
        };
        let disabled = gui.list(visit, "/zones", disabled).await;
        let (index, now) = (self.index.clone(), gui.desk.now());
        let look = move |mut overview: Value| {
            let findings = zones::of_global(&overview, &index, now);
            let told = match overview["zones"].take() {
                Value::Array(told) => told,
                _ => Vec::new(),
            };
            let zones = told.into_iter().map(|told| {
                let name = text_of(&told["zone"]).to_owned();
                let is_disabled = disabled.contains(&name);
                let state = if is_disabled { "disabled" } else { text_of(&told["status"]) }.to_owned();
                SeenZone { name, state, told }
            });
            (findings, zones.collect::<Vec<SeenZone>>())
        };
        match gui.part(visit, "/sync", look).await {
            Ok((findings, zones)) => {
                self.findings.extend(findings);
                self.zones = zones;
            }
            Err(hidden) => return self.hidden.push(hidden),
        }
        self.findings.extend(gui.list(visit, "/rollout-insights", rollouts::of).await);
    }

    async fn look_at_global(&mut self, gui: &Gui, visit: &Visit, own: String) {
        if gui.desk.mode().is_federated_zone() {
            match gui.get(visit, "/strait/link").await {
                Ok(link) => self.link = Some(link),
                Err(hidden) => self.hidden.push(hidden),
            }
        }
        if self.hidden.is_empty() {
            self.findings.extend(zones::of_zone(self.link.as_ref(), gui.desk.now()));
        }
        self.zones.push(SeenZone { name: own.clone(), state: "online".to_owned(), told: Value::Null });
        let mut others: Vec<&String> =
            self.ways_in.iter().map(|way| &way.zone).filter(|zone| **zone != own).collect();
        others.sort();
        others.dedup();
        let others = others.into_iter().map(|name| SeenZone { name: name.clone(), ..SeenZone::default() });
        self.zones.extend(others);
    }

    /// The ways into `zone`.
    pub(super) fn ways_into<'a>(&'a self, zone: &'a str) -> impl Iterator<Item = &'a WayIn> + 'a {
        self.ways_in.iter().filter(move |way| way.zone == zone)
    }
}

async fn ways_in(gui: &Gui, visit: &Visit) -> Vec<WayIn> {
    let own = gui.desk.mode().zone().map(str::to_owned);
    let ingresses = move |items: &[Value]| items.iter().map(|item| ingress(item, own.as_deref())).collect();
    let mut ways: Vec<WayIn> = gui.list(visit, "/zoneingresses/_overview", ingresses).await;
    let addresses = |items: &[Value]| items.iter().map(zone_address).collect::<Vec<_>>();
    ways.extend(gui.list(visit, "/meshzoneaddresses", addresses).await);
    ways.retain(|way| !way.zone.is_empty());
    ways
}

/// The way that the overview of an ingress tells of, to a control plane of the zone `own` or to global.
fn ingress(item: &Value, own: Option<&str>) -> WayIn {
    let (ingress, insight) = (&item["zoneIngress"], &item["zoneIngressInsight"]);
    let networking = &ingress["networking"];
    let told = [text_of(&ingress["zone"]), text_of(&item["labels"][labels::ZONE]), own.unwrap_or_default()];
    let zone = told.into_iter().find(|zone| !zone.is_empty()).unwrap_or_default().to_owned();
    let advertised = [("advertisedAddress", "advertisedPort"), ("address", "port")];
    let at = advertised.iter().find(|(host, _)| networking[*host].is_string());
    let address = at.map(|(host, port)| format!("{}:{}", text_of(&networking[*host]), networking[*port]));
    let mut services: Vec<String> = items(&ingress["availableServices"])
        .iter()
        .map(|one| format!("{} ({})", text_of(&one["tags"][labels::TAG_SERVICE]), text_of(&one["mesh"])))
        .collect();
    services.sort();
    services.dedup();
    // Zones are not told how the proxies of others do.
    let is_known = own.is_none_or(|own| own == zone);
    let is_lost = item["strait"]["status"] == "unknown";
    WayIn {
        name: title_of(item).to_owned(),
        address: address.unwrap_or_default(),
        is_connected: (is_known && !is_lost).then(|| is_connected(insight)),
        zone,
        services,
    }
}

/// The way that a MeshZoneAddress tells of.
fn zone_address(item: &Value) -> WayIn {
    let spec = &item["spec"];
    WayIn {
        zone: text_of(&item["labels"][labels::ZONE]).to_owned(),
        name: title_of(item).to_owned(),
        address: format!("{}:{}", text_of(&spec["address"]), spec["port"]),
        is_connected: None,
        services: vec![format!("all of mesh {}", text_of(&item["mesh"]))],
    }
}

/// What is needed to say what is wrong with a mesh.
pub(super) fn outline(mesh: &Value) -> Value {
    json!({ "name": mesh["name"], "mtls": { "enabledBackend": mesh["mtls"]["enabledBackend"] } })
}

/// Whether one of the subscriptions of an insight is open.
pub(super) fn is_connected(insight: &Value) -> bool {
    let is_open = |one: &Value| one["connectTime"].is_string() && !one["disconnectTime"].is_string();
    items(&insight["subscriptions"]).iter().any(is_open)
}
