//! How well proxies do: connected, and with how many of their inbounds ready.

use std::{collections::BTreeSet, sync::Arc};

use serde::Serialize;

use super::{Api, ZoneHealth};
use crate::{
    model::{
        Origin, Resource,
        kinds::{dataplane, dataplane_insight, zone},
        labels,
    },
    proto::kuma::mesh::v1alpha1::{
        Dataplane, DataplaneInsight, DiscoverySubscription,
        dataplane::networking::{gateway::GatewayType, inbound},
    },
    store::index::Index,
};

/// How well one proxy does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProxyCondition {
    Online,
    Partial,
    Offline,
    /// Its zone is lost, so nobody can tell.
    Unknown,
}

impl ProxyCondition {
    const ALL: [(&str, Self); 4] = [
        ("online", Self::Online),
        ("partially_degraded", Self::Partial),
        ("offline", Self::Offline),
        ("unknown", Self::Unknown),
    ];

    /// The one that is asked for with this word.
    pub(super) fn parse(word: &str) -> Result<Self, String> {
        let known = Self::ALL.iter().find(|(known, _)| *known == word);
        known.map(|(_, condition)| *condition).ok_or_else(|| {
            let words = Self::ALL.map(|(word, _)| word);
            format!("{word:?} is none of {}", words.join(", "))
        })
    }

    /// That of a dataplane.
    pub(super) fn of(index: &Index, dataplane: &Resource, lost: &LostZones) -> Self {
        ReportedDataplane::of(index, dataplane, lost).condition
    }
}

/// Zones that are not online, below which nobody knows how a proxy does: it serves on without its control plane
/// being heard.
#[derive(Debug, Default)]
pub(super) struct LostZones(BTreeSet<Arc<str>>);

impl LostZones {
    /// Those that `api` knows; a zone knows of none.
    pub(super) fn of(api: &Api, index: &Index) -> Self {
        let Some(source) = &api.config.zone_status else { return Self::default() };
        let zones = index.list(&zone::KIND).map(|zone| &zone.key.name);
        let lost = zones.filter(|zone| source.zone_progress(zone).status != ZoneHealth::Online);
        Self(lost.cloned().collect())
    }

    /// Those of them that own one of `resources`, also where nobody knows such a zone any more.
    pub(super) fn owning<'a>(api: &Api, resources: impl Iterator<Item = &'a Arc<Resource>>) -> Self {
        let Some(source) = &api.config.zone_status else { return Self::default() };
        let owners: BTreeSet<&Arc<str>> = resources
            .filter_map(|resource| match &resource.origin {
                Origin::Zone(owner) => Some(owner),
                Origin::Global => None,
            })
            .collect();
        let lost = owners.into_iter().filter(|zone| source.zone_progress(zone).status != ZoneHealth::Online);
        Self(lost.cloned().collect())
    }

    /// Whether what `resource` tells is of one of them.
    pub(super) fn include(&self, resource: &Resource) -> bool {
        match &resource.origin {
            Origin::Zone(owner) => self.0.contains(owner),
            Origin::Global => false,
        }
    }
}

/// How many proxies are in which condition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Count {
    pub(super) online: u64,
    pub(super) offline: u64,
    pub(super) partially_degraded: u64,
    /// Below zones that are lost.
    #[serde(skip_serializing_if = "is_none")]
    pub(super) unknown: u64,
    pub(super) total: u64,
}

/// Who counts proxies of which all is known reads what Kuma's control planes tell.
fn is_none(count: &u64) -> bool {
    *count == 0
}

impl Count {
    pub(super) fn add(&mut self, condition: ProxyCondition) {
        self.total += 1;
        match condition {
            ProxyCondition::Online => self.online += 1,
            ProxyCondition::Partial => self.partially_degraded += 1,
            ProxyCondition::Offline => self.offline += 1,
            ProxyCondition::Unknown => self.unknown += 1,
        }
    }
}

/// A dataplane with what its control plane reported about it.
pub(super) struct ReportedDataplane {
    pub(super) condition: ProxyCondition,
    /// `None` for a sidecar.
    pub(super) gateway: Option<GatewayType>,
    /// Services it serves, each with the condition of that part.
    pub(super) services: Vec<(String, ProxyCondition)>,
    pub(super) zone: String,
    pub(super) insight: DataplaneInsight,
}

impl ReportedDataplane {
    /// All dataplanes of `mesh`, or of all meshes when it is empty, one after the other.
    pub(super) fn all<'a>(
        index: &'a Index,
        mesh: &'a str,
        lost: &'a LostZones,
    ) -> impl Iterator<Item = Self> + 'a {
        let everywhere = mesh.is_empty().then(|| index.list(&dataplane::KIND));
        let in_mesh = (!mesh.is_empty()).then(|| index.list_in_mesh(&dataplane::KIND, mesh));
        let found = everywhere.into_iter().flatten().chain(in_mesh.into_iter().flatten());
        found.map(move |dataplane| Self::of(index, dataplane, lost))
    }

    fn of(index: &Index, dataplane: &Resource, lost: &LostZones) -> Self {
        let is_lost = lost.include(dataplane);
        let networking = dataplane.spec::<Dataplane>().unwrap_or_default().networking.unwrap_or_default();
        let insight = index.find(&dataplane_insight::KIND, dataplane.mesh(), dataplane.name());
        let insight = insight.and_then(|i| i.spec::<DataplaneInsight>().ok()).unwrap_or_default();
        let connected = is_connected(&insight.subscriptions);
        let part = |ready| match (connected, ready) {
            _ if is_lost => ProxyCondition::Unknown,
            (true, true) => ProxyCondition::Online,
            _ => ProxyCondition::Offline,
        };
        let inbounds = networking.inbound.iter().map(|i| (&i.tags, i.state() == inbound::State::Ready));
        let parts = inbounds.chain(networking.gateway.iter().map(|g| (&g.tags, true)));
        let services = parts
            .filter_map(|(tags, ready)| Some((tags.get(labels::TAG_SERVICE)?.clone(), part(ready))))
            .collect();
        let ready = networking.inbound.iter().filter(|i| i.state() == inbound::State::Ready).count();
        let condition = match (connected, ready, networking.inbound.len()) {
            _ if is_lost => ProxyCondition::Unknown,
            (false, ..) => ProxyCondition::Offline,
            (true, ready, all) if ready == all => ProxyCondition::Online,
            (true, 0, _) => ProxyCondition::Offline,
            (true, ..) => ProxyCondition::Partial,
        };
        Self {
            condition,
            gateway: networking.gateway.map(|g| g.r#type()),
            services,
            zone: dataplane.label(labels::ZONE).unwrap_or_default().to_owned(),
            insight,
        }
    }
}

/// Whether any of the subscriptions is open.
pub(super) fn is_connected(subscriptions: &[DiscoverySubscription]) -> bool {
    subscriptions.iter().any(|s| s.connect_time.is_some() && s.disconnect_time.is_none())
}
