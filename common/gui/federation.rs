//! The federation as this control plane sees it: who there is, how they do, and through which ingress they are reached.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Gui,
    parts::{items, text_of, title_of},
    visit::{Unanswered, Visit},
};
use crate::{
    checks::{CheckLine, meshes, rollouts, zones},
    model::labels,
};

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
        let (meshes, insights) = (gui.list(visit, "/meshes").await, gui.list(visit, "/mesh-insights").await);
        seen.findings.extend(meshes::of(&meshes, &insights));
        seen
    }

    async fn look_at_zones(&mut self, gui: &Gui, visit: &Visit) {
        let overview = match gui.get(visit, "/sync").await {
            Ok(overview) => overview,
            Err(hidden) => return self.hidden.push(hidden),
        };
        let stored = gui.list(visit, "/zones").await;
        self.findings.extend(zones::of_global(&overview, &self.index, gui.desk.now()));
        self.findings.extend(rollouts::of(&gui.list(visit, "/rollout-insights").await));
        let disabled = stored.iter().filter(|zone| zone["enabled"] == false);
        let disabled: BTreeSet<&str> = disabled.map(|zone| text_of(&zone["name"])).collect();
        for told in items(&overview["zones"]) {
            let name = text_of(&told["zone"]).to_owned();
            let is_disabled = disabled.contains(name.as_str());
            let state = if is_disabled { "disabled" } else { text_of(&told["status"]) };
            self.zones.push(SeenZone { name, state: state.to_owned(), told: told.clone() });
        }
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
    let own = gui.desk.mode().zone();
    let mut ways = Vec::new();
    for item in gui.list(visit, "/zoneingresses/_overview").await {
        let (ingress, insight) = (&item["zoneIngress"], &item["zoneIngressInsight"]);
        let networking = &ingress["networking"];
        let told =
            [text_of(&ingress["zone"]), text_of(&item["labels"][labels::ZONE]), own.unwrap_or_default()];
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
        ways.push(WayIn {
            name: title_of(&item).to_owned(),
            address: address.unwrap_or_default(),
            is_connected: (is_known && !is_lost).then(|| is_connected(insight)),
            zone,
            services,
        });
    }
    for item in gui.list(visit, "/meshzoneaddresses").await {
        let spec = &item["spec"];
        ways.push(WayIn {
            zone: text_of(&item["labels"][labels::ZONE]).to_owned(),
            name: title_of(&item).to_owned(),
            address: format!("{}:{}", text_of(&spec["address"]), spec["port"]),
            is_connected: None,
            services: vec![format!("all of mesh {}", text_of(&item["mesh"]))],
        });
    }
    ways.retain(|way| !way.zone.is_empty());
    ways
}

/// Whether one of the subscriptions of an insight is open.
pub(super) fn is_connected(insight: &Value) -> bool {
    let is_open = |one: &Value| one["connectTime"].is_string() && !one["disconnectTime"].is_string();
    items(&insight["subscriptions"]).iter().any(is_open)
}
