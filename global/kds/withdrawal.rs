//! Takes out of cross-zone traffic what zones export that are lost for long, where an operator asked for it.
//!
//! A zone that global does not hear may serve on all the same, so nobody is left without: what a zone exports stays
//! while it is the last to export one of its services. That a zone is out stands as a label on its resource, so every
//! replica of global sends the same, and goes when the zone is back.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use common::{
    events::{Event, Subscriber},
    kds::outgoing::is_enabled,
    model::{Kind, Origin, Resource, kinds, labels},
    proto::kuma::mesh::v1alpha1::ZoneIngress,
    rest::{ZoneHealth, ZoneStatusSource},
    store::{Batch, Precondition, StoreError, Write, index::Index},
};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Kds;

/// How long it may take to see what no event told: another replica has the session.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long a look rests before the next. Ingresses change with what runs behind them, and each look counts what all
/// export.
const REST: Duration = Duration::from_secs(1);

/// A service of a mesh, as its callers name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ExportedService {
    /// By its tag.
    Tag { mesh: String, name: String },
    /// By its resource.
    Resource { mesh: String, name: String },
}

impl fmt::Display for ExportedService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Tag { mesh, name } | Self::Resource { mesh, name }) = self;
        write!(f, "{name} of mesh {mesh}")
    }
}

/// Zones that are lost and stay in, each with a service that nobody else exports.
pub(crate) type KeptExports = Mutex<BTreeMap<Arc<str>, String>>;

type Exports = BTreeMap<ExportedService, BTreeSet<Arc<str>>>;

/// The watch over what lost zones export.
pub(super) struct Withdrawal {
    pub(super) kds: Kds,
    /// How long a zone is offline before; `None` when nothing is withdrawn.
    pub(super) after: Option<Duration>,
}

impl Withdrawal {
    /// Works until `shutdown`.
    pub(super) async fn run(self, mut events: Subscriber, shutdown: CancellationToken) {
        let Some(after) = self.after else {
            // It may have been otherwise before this process was started.
            return self.restore(&self.kds.inner.index.current()).await;
        };
        let mut offline: BTreeMap<Arc<str>, Instant> = BTreeMap::new();
        loop {
            let index = self.kds.inner.index.current();
            let now = Instant::now();
            self.note_offline(&index, &mut offline, now);
            let long = offline.iter().filter(|(_, since)| now - **since >= after);
            let long: BTreeSet<Arc<str>> = long.map(|(zone, _)| Arc::clone(zone)).collect();
            let is_online = |zone: &str| self.kds.zone_progress(zone).status == ZoneHealth::Online;
            self.settle(&index, &lost(&index, &long, is_online)).await;
            let next = offline.values().map(|since| *since + after).filter(|at| *at > now).min();
            let next = next.unwrap_or(now + LOOK_AGAIN).min(now + LOOK_AGAIN);
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = sleep_until(next) => {}
                () = concerned(&mut events) => {
                    tokio::select! {
                        () = shutdown.cancelled() => return,
                        () = sleep_until(now + REST) => {}
                    }
                }
            }
        }
    }

    /// Gives back what every zone exports.
    async fn restore(&self, index: &Index) {
        for zone in index.list(&kinds::zone::KIND).filter(|zone| is_out(zone)) {
            self.write(zone, false).await;
        }
    }

    /// Since when each zone has been offline, as far as this process has seen: nobody compares clocks.
    fn note_offline(&self, index: &Index, offline: &mut BTreeMap<Arc<str>, Instant>, now: Instant) {
        let zones = index.list(&kinds::zone::KIND).map(|zone| &zone.key.name);
        let health = |zone: &Arc<str>| self.kds.zone_progress(zone).status;
        let is_offline: BTreeSet<_> =
            zones.filter(|zone| health(zone) == ZoneHealth::Offline).cloned().collect();
        offline.retain(|zone, _| is_offline.contains(zone));
        for zone in is_offline {
            offline.entry(zone).or_insert(now);
        }
    }

    /// Writes which zones are out.
    async fn settle(&self, index: &Index, lost: &BTreeSet<Arc<str>>) {
        // While nobody is lost nothing is counted.
        let (out, kept) = match lost.is_empty() {
            true => Default::default(),
            false => withdrawn(&exports(index), lost, &unavailable(index)),
        };
        *self.kds.inner.kept_exports.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        for zone in index.list(&kinds::zone::KIND) {
            let name = &zone.key.name;
            let is_out = is_out(zone);
            if is_out != out.contains(name) {
                self.write(zone, !is_out).await;
            }
        }
    }

    async fn write(&self, zone: &Resource, withdraw: bool) {
        let mut changed = zone.clone();
        match withdraw {
            true => drop(changed.labels.insert(labels::EXPORTS, labels::EXPORTS_WITHDRAWN)),
            false => drop(changed.labels.remove(labels::EXPORTS)),
        }
        let (name, when) = (zone.name(), Precondition::At(zone.revision));
        match self.kds.inner.store.transact(Batch::of([Write::put_when(changed, when)])).await {
            Ok(commit) => {
                match withdraw {
                    true => tracing::warn!(
                        zone = name,
                        "the zone is lost: what it exports is withdrawn from the others"
                    ),
                    false => tracing::info!(zone = name, "the others get again what the zone exports"),
                }
                self.kds.inner.index.wait_long_for(commit.revision).await;
            }
            // Somebody else wrote it at this moment; it is looked at again.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. }) => {}
            Err(error) => {
                tracing::warn!(zone = name, %error, "cannot write whether the exports of a zone are withdrawn")
            }
        }
    }
}

/// Zones that nobody can count on: those that have been offline for `long`, and those that are out and not back. A process
/// that has just begun has seen nobody be offline for long, and what is out is no export that others could fall back on.
fn lost(index: &Index, long: &BTreeSet<Arc<str>>, is_online: impl Fn(&str) -> bool) -> BTreeSet<Arc<str>> {
    let out = index.list(&kinds::zone::KIND).filter(|zone| is_out(zone) && !is_online(zone.name()));
    out.map(|zone| Arc::clone(&zone.key.name)).chain(long.iter().cloned()).collect()
}

fn is_out(zone: &Resource) -> bool {
    zone.label(labels::EXPORTS) == Some(labels::EXPORTS_WITHDRAWN)
}

/// Waits until something happened that may say something else about who is out.
async fn concerned(events: &mut Subscriber) {
    let kinds: [&Kind; 3] = [&kinds::zone::KIND, &kinds::zone_ingress::KIND, &kinds::mesh_service::KIND];
    loop {
        match events.next().await {
            Ok(Event::ResourcesChanged(changes)) => {
                if changes.iter().any(|change| kinds.contains(&change.key.kind)) {
                    return;
                }
            }
            Ok(
                Event::ZoneOpenedStream { .. } | Event::ZoneWentOffline { .. } | Event::IndexReplaced { .. },
            ) => {
                return;
            }
            Ok(Event::SessionEnded { .. } | Event::ZoneIntroduced { .. } | Event::StreamCancelled { .. }) => {
            }
            Err(_lost) => return,
        }
    }
}

/// Zones that export nothing anyway.
fn unavailable(index: &Index) -> BTreeSet<Arc<str>> {
    let zones = index.list(&kinds::zone::KIND);
    zones.filter(|zone| !is_enabled(zone)).map(|zone| Arc::clone(&zone.key.name)).collect()
}

/// Which zones export which services.
fn exports(index: &Index) -> Exports {
    let mut exports = Exports::new();
    let mut add = |service: ExportedService, origin: &Origin| {
        if let Origin::Zone(zone) = origin {
            exports.entry(service).or_default().insert(Arc::clone(zone));
        }
    };
    for ingress in index.list(&kinds::zone_ingress::KIND) {
        for offered in ingress.spec::<ZoneIngress>().unwrap_or_default().available_services {
            if let Some(name) = offered.tags.get(labels::TAG_SERVICE) {
                add(ExportedService::Tag { mesh: offered.mesh, name: name.clone() }, &ingress.origin);
            }
        }
    }
    for service in index.list(&kinds::mesh_service::KIND) {
        let (mesh, name) = (service.mesh().to_owned(), service.display_name().to_owned());
        add(ExportedService::Resource { mesh, name }, &service.origin);
    }
    exports
}

/// The lost zones whose every service is exported by a zone that is neither lost nor `unavailable`, and those that
/// stay, each with a service for which it does.
fn withdrawn(
    exports: &Exports,
    lost: &BTreeSet<Arc<str>>,
    unavailable: &BTreeSet<Arc<str>>,
) -> (BTreeSet<Arc<str>>, BTreeMap<Arc<str>, String>) {
    let (mut out, mut kept) = (lost.clone(), BTreeMap::new());
    for (service, zones) in exports {
        let is_safe = zones.iter().any(|zone| !lost.contains(zone) && !unavailable.contains(zone));
        if !is_safe {
            for zone in zones.iter().filter_map(|zone| out.take(zone)) {
                kept.insert(zone, service.to_string());
            }
        }
    }
    (out, kept)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::{
        model::ResourceKey,
        store::{Snapshot, StoreIdentity},
    };
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;

    /// Zone 0 is out since before a restart; zone 1, the other that exports the service, has been lost since.
    #[test]
    fn what_is_out_since_before_a_restart_is_nothing_to_fall_back_on() {
        let zone = |n: u8| {
            let key = ResourceKey::global(&kinds::zone::KIND, &format!("zone-{n}"));
            Resource::new(key, DateTime::UNIX_EPOCH)
        };
        let out = zone(0).with_label(labels::EXPORTS, labels::EXPORTS_WITHDRAWN);
        let resources = [out, zone(1)].map(Arc::new).to_vec();
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let index = Index::of(store, Snapshot { revision: 1, commit: None, resources });
        let service = ExportedService::Tag { mesh: "default".to_owned(), name: "web".to_owned() };
        let exports = Exports::from([(service, zones(0b11))]);
        let out_of = |long: u8, online: u8| {
            let (long, online) = (zones(long), zones(online));
            let lost = lost(&index, &long, |zone| online.contains(zone));
            withdrawn(&exports, &lost, &BTreeSet::new()).0
        };
        assert_eq!(out_of(0, 0), zones(0b01), "just begun: it stays out, whoever else is not heard yet");
        assert_eq!(out_of(0b10, 0), zones(0), "the last two stay in, the one that was out comes back");
        assert_eq!(out_of(0, 0b01), zones(0), "who is back is in");
        assert_eq!(out_of(0, 0b10), zones(0b01));
    }

    fn zones(bits: u8) -> BTreeSet<Arc<str>> {
        (0..5).filter(|n| bits & (1 << n) != 0).map(|n| format!("zone-{n}").into()).collect()
    }

    proptest! {
        /// No service loses the last who exports it, and only lost zones are out.
        #[test]
        fn nobody_is_left_without(
            exporters in proptest::collection::vec(0..32u8, 0..8), lost in 0..32u8, disabled in 0..32u8,
        ) {
            let (lost, disabled) = (zones(lost), zones(disabled));
            let named = |n| ExportedService::Tag { mesh: "default".to_owned(), name: format!("s{n}") };
            let exports: Exports =
                exporters.iter().enumerate().map(|(n, zones_of)| (named(n), zones(*zones_of))).collect();
            let (out, kept) = withdrawn(&exports, &lost, &disabled);
            prop_assert!(out.is_subset(&lost));
            prop_assert_eq!(kept.into_keys().collect::<BTreeSet<_>>(), lost.difference(&out).cloned().collect());
            for exporters in exports.values() {
                let before = exporters.iter().any(|zone| !disabled.contains(zone));
                let after = exporters.iter().any(|zone| !disabled.contains(zone) && !out.contains(zone));
                prop_assert_eq!(before, after);
            }
            // Who is lost and exports nothing that another one lacks is out.
            for zone in lost.difference(&out) {
                let mut own = exports.values().filter(|exporters| exporters.contains(zone));
                prop_assert!(own.any(|e| e.iter().all(|z| lost.contains(z) || disabled.contains(z))));
            }
        }
    }
}
