//! What zones that are away have missed: resources meant for them that changed since they last answered, as far as they
//! are still there. What was deleted leaves nothing to find.
//!
//! Resources are looked up by the revision they were written with, so that it costs what the zone has missed and not
//! what there is; and it is counted once per index, however often somebody asks.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use common::{
    kds::{
        features::Features,
        filter::{Audience, Receiver},
        order,
    },
    model::{Resource, ResourceKey},
    rollouts::Holds,
    store::{
        Revision, StoreIdentity,
        index::Index,
        written::{ByRevision, LastWritten},
    },
};

use super::status::is_zone_enabled;

/// What is known of it.
#[derive(Default)]
pub(crate) struct MissedByZones {
    written: LastWritten,
    counts: Mutex<Option<CountedMissed>>,
}

/// Counts at one index.
struct CountedMissed {
    at: (StoreIdentity, Revision),
    /// By zone, with how far it was.
    zones: BTreeMap<String, (Revision, u64)>,
}

impl MissedByZones {
    /// How much `zone` has missed since it answered for revision `acked`.
    pub(super) fn count(&self, zone: &str, acked: Revision, holds: &Holds, index: &Index) -> u64 {
        let at = (index.store, index.revision);
        if let Some(counted) = self.counted(at, |zones| zones.get(zone).copied())
            && counted.0 == acked
        {
            return counted.1;
        }
        let missed = ZoneMissed::of(self.written.at(index), zone, holds, index);
        let count = missed.between(acked, Revision::MAX).count() as u64;
        self.counted(at, |zones| zones.insert(zone.to_owned(), (acked, count)));
        count
    }

    /// Whether it has missed anything that was written after the first and not after the second of these revisions.
    pub(super) fn any(
        &self,
        zone: &str,
        (acked, revision): (Revision, Revision),
        holds: &Holds,
        index: &Index,
    ) -> bool {
        let missed = ZoneMissed::of(self.written.at(index), zone, holds, index);
        missed.between(acked, revision).next().is_some()
    }

    /// Whether anything is as it was written with `revision`.
    pub(super) fn shows(&self, revision: Revision, index: &Index) -> bool {
        self.written.at(index).between(revision.saturating_sub(1), revision).next().is_some()
    }

    /// What `look` says of the counts at an index, which replace those at another.
    fn counted<T>(
        &self,
        at: (StoreIdentity, Revision),
        look: impl FnOnce(&mut BTreeMap<String, (Revision, u64)>) -> T,
    ) -> T {
        let mut place = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = place.take().filter(|counts| counts.at == at);
        let counts = place.insert(kept.unwrap_or(CountedMissed { at, zones: BTreeMap::new() }));
        look(&mut counts.zones)
    }
}

/// Where what one zone has missed is looked for.
struct ZoneMissed<'a> {
    zone: &'a str,
    index: &'a Index,
    written: ByRevision,
    kinds: BTreeSet<&'static str>,
    features: Features,
    /// What rollouts keep back is nothing that it has missed: what it has of that instead, and what of.
    kept: Option<(Index, BTreeSet<ResourceKey>)>,
}

impl<'a> ZoneMissed<'a> {
    fn of(written: ByRevision, zone: &'a str, holds: &Holds, index: &'a Index) -> Self {
        let names = holds.on(zone);
        let kept = (!names.is_empty()).then(|| {
            let shown = holds.without(index, &names);
            let differs = shown.changed_since(index).into_iter().collect();
            (shown, differs)
        });
        let kinds = order::requested_by_zone().into_iter().map(|kind| kind.name).collect();
        Self { zone, index, written, kinds, features: Features::ours(), kept }
    }

    fn between(&self, after: Revision, until: Revision) -> impl Iterator<Item = &Resource> {
        let is_kept =
            |key: &ResourceKey| self.kept.as_ref().is_some_and(|(_, differs)| differs.contains(key));
        let all = self.written.between(after, until).filter(move |resource| !is_kept(&resource.key));
        let instead =
            self.kept.iter().flat_map(|(shown, differs)| differs.iter().filter_map(|key| shown.get(key)));
        let instead = instead.filter(move |one| one.revision > after && one.revision <= until);
        all.chain(instead).map(|resource| &**resource).filter(|resource| self.is_meant(resource))
    }

    fn is_meant(&self, resource: &Resource) -> bool {
        let receiver = Receiver { zone: self.zone, features: &self.features, issues: true };
        let shown = self.kept.as_ref().map_or(self.index, |(shown, _)| shown);
        let is_enabled = |owner: &str| is_zone_enabled(owner, shown);
        self.kinds.contains(resource.kind().name)
            && Audience::of(resource).into_iter().any(|audience| audience.includes(receiver, is_enabled))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use common::{
        model::{Kind, Origin, kinds},
        policy::mesh_timeout,
        store::Change,
    };
    use uuid::Uuid;

    use super::*;

    fn put(index: &mut Index, kind: &'static Kind, mesh: &str, name: &str, origin: &str) -> Revision {
        let (revision, key) = (index.revision + 1, ResourceKey::new(kind, mesh, name));
        let resource = Resource {
            origin: Origin::from_column(origin),
            revision,
            ..Resource::new(key.clone(), DateTime::UNIX_EPOCH)
        };
        index.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
        revision
    }

    #[test]
    fn what_is_meant_for_a_zone_counts_from_where_it_is() {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let (missed, holds) = (MissedByZones::default(), Holds::default());
        let first = put(&mut index, &kinds::mesh::KIND, "", "default", "");
        let own = put(&mut index, &kinds::zone_ingress::KIND, "", "in", "zone-1");
        let policy = put(&mut index, &mesh_timeout::KIND, "default", "t", "");
        let insight = put(&mut index, &kinds::zone_insight::KIND, "", "zone-1", "");
        let count = |zone: &str, acked, index: &Index| missed.count(zone, acked, &holds, index);
        assert_eq!((count("zone-1", 0, &index), count("zone-1", first, &index)), (2, 1));
        assert_eq!(count("zone-2", first, &index), 2, "the ingress of another zone is for it as well");
        assert_eq!(count("zone-2", policy, &index), 0);
        let any = |acked, revision| missed.any("zone-1", (acked, revision), &holds, &index);
        assert!(any(own, policy) && !any(first, own) && !any(policy, insight));
        assert!(missed.shows(insight, &index) && !missed.shows(insight + 1, &index));
        // Written again, it is at its new revision only.
        let again = put(&mut index, &mesh_timeout::KIND, "default", "t", "");
        assert_eq!(count("zone-1", policy, &index), 1);
        assert!(missed.shows(again, &index) && !missed.shows(policy, &index));
    }

    #[test]
    fn it_is_counted_once_at_an_index() {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        put(&mut index, &kinds::mesh::KIND, "", "default", "");
        let (missed, holds) = (MissedByZones::default(), Holds::default());
        assert_eq!(missed.count("zone-1", 0, &holds, &index), 1);
        let at = (index.store, index.revision);
        assert_eq!(missed.counted(at, |zones| zones.insert("zone-1".to_owned(), (0, 7))), Some((0, 1)));
        assert_eq!(missed.count("zone-1", 0, &holds, &index), 7, "as it was counted");
        put(&mut index, &kinds::mesh::KIND, "", "other", "");
        assert_eq!(missed.count("zone-1", 0, &holds, &index), 2);
    }
}
