//! A `Workload` for every program that proxies of the zone say they stand beside, with how many of them there are.

use chrono::{DateTime, Duration, SecondsFormat, Utc};
use common::{
    model::{
        Origin, Resource, ResourceKey, Spec,
        kinds::{
            mesh,
            service_status::DataplaneProxies,
            workload::{self, Workload},
        },
        labels,
    },
    store::{Precondition, Write, index::Index},
};
use serde_json::{Value, json};

use super::population::{ProxyStatus, ServingProxy};

/// One program, and what is known of it.
pub(super) struct Program<'a> {
    pub(super) zone: &'a str,
    pub(super) mesh: &'a str,
    pub(super) name: &'a str,
    /// The proxies beside it.
    pub(super) proxies: &'a [(&'a ServingProxy, ProxyStatus)],
}

/// When a workload goes whose last proxy has gone.
pub(super) fn goes_at(stored: &Resource, grace: Duration) -> Option<DateTime<Utc>> {
    let since = stored.label(labels::DELETION_GRACE_PERIOD_STARTED_AT)?;
    let since = DateTime::parse_from_rfc3339(since).ok()?.with_timezone(&Utc);
    since.checked_add_signed(grace).filter(|_| is_generated(stored))
}

/// Whether nobody wrote it but this.
pub(super) fn is_generated(stored: &Resource) -> bool {
    stored.label(labels::MANAGED_BY) == Some(labels::MANAGED_BY_WORKLOAD_GENERATOR)
}

impl Program<'_> {
    /// What has to be written so that its `Workload` is as it should be.
    pub(super) fn settle(&self, index: &Index, grace: Duration, now: DateTime<Utc>) -> Option<Write> {
        let key = ResourceKey::new(&workload::KIND, self.mesh, self.name);
        let stored = index.get(&key);
        let known = || index.find(&mesh::KIND, "", self.mesh).is_some();
        let mut wanted = match stored {
            None if self.proxies.is_empty() || !known() => return None,
            None if labels::dns_1035_problem(self.name).is_some() => return None,
            None => self.fresh(key.clone(), now),
            Some(stored) => Resource::clone(stored),
        };
        if stored.is_none_or(|stored| is_generated(stored)) {
            if !self.proxies.is_empty() {
                wanted.labels.remove(labels::DELETION_GRACE_PERIOD_STARTED_AT);
            } else if stored.and_then(|stored| goes_at(stored, grace)).is_some_and(|at| at <= now) {
                return stored.map(|stored| Write::delete_when(key, Precondition::At(stored.revision)));
            } else if wanted.label(labels::DELETION_GRACE_PERIOD_STARTED_AT).is_none() {
                let since = now.to_rfc3339_opts(SecondsFormat::AutoSi, true);
                wanted = wanted.with_label(labels::DELETION_GRACE_PERIOD_STARTED_AT, &since);
            }
        }
        self.count(&mut wanted);
        let when = match stored {
            Some(stored) if stored.same_content(&wanted) => return None,
            Some(stored) => Precondition::At(stored.revision),
            None => Precondition::Absent,
        };
        wanted.modified = now;
        Some(Write::put_when(wanted, when))
    }

    fn count(&self, wanted: &mut Resource) {
        let is_healthy = |proxy: &ServingProxy| proxy.inbounds.iter().all(|inbound| inbound.ready);
        let counted = DataplaneProxies {
            connected: self.proxies.iter().filter(|(_, seen)| seen.connected).count(),
            healthy: self.proxies.iter().filter(|(proxy, _)| is_healthy(proxy)).count(),
            total: self.proxies.len(),
        };
        let status = json!({ "dataplaneProxies": {
            "connected": counted.connected, "healthy": counted.healthy, "total": counted.total } });
        let known: Option<Value> =
            wanted.status.as_ref().and_then(|stored| serde_json::from_slice(stored).ok());
        if known.as_ref() != Some(&status) {
            wanted.status = Some(status.to_string().into_bytes().into());
        }
    }

    fn fresh(&self, key: ResourceKey, now: DateTime<Utc>) -> Resource {
        let mut fresh = Resource::new(key, now).with_spec(Workload {}.encode());
        fresh.origin = Origin::Zone(self.zone.into());
        fresh.owner = Some(ResourceKey::global(&mesh::KIND, self.mesh));
        for (key, value) in [
            (labels::MESH, self.mesh),
            (labels::DISPLAY_NAME, self.name),
            (labels::MANAGED_BY, labels::MANAGED_BY_WORKLOAD_GENERATOR),
            (labels::ENV, labels::ENV_UNIVERSAL),
            (labels::ZONE, self.zone),
            (labels::ORIGIN, labels::ORIGIN_ZONE),
        ] {
            fresh.labels.insert(key, value);
        }
        fresh
    }
}
