//! How much of global one zone may fill: its items are refused one by one beyond that, and what it has can still be
//! changed and taken away.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Kind, Resource, ResourceKey},
    store::index::{Index, Owned},
};

/// What a zone may own on global. Zero is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneQuota {
    /// Resources of all kinds together.
    pub total: usize,
    /// Resources of one kind.
    pub per_kind: usize,
    /// Bytes of all that they say, names and labels included, and of what each takes besides.
    pub bytes: usize,
}

impl Default for ZoneQuota {
    fn default() -> Self {
        Self { total: 300_000, per_kind: 100_000, bytes: 1024 * 1024 * 1024 }
    }
}

/// What is left of it while a response is looked through.
#[derive(Debug)]
pub(super) struct QuotaRoom<'a> {
    zone: &'a Arc<str>,
    quota: ZoneQuota,
    kind: &'static Kind,
    of_kind: Owned,
    all: Owned,
}

impl<'a> QuotaRoom<'a> {
    /// For more of `kind` from `zone`, when these are `gone`.
    pub(super) fn new(
        quota: ZoneQuota,
        zone: &'a Arc<str>,
        kind: &'static Kind,
        index: &Index,
        gone: &BTreeMap<&ResourceKey, &Arc<Resource>>,
    ) -> Self {
        let gone = gone.values().fold(Owned::default(), |all, resource| all.and(Owned::one(resource)));
        let (of_kind, all) = (index.owned_of(zone, kind).without(gone), index.owned(zone).without(gone));
        Self { zone, quota, kind, of_kind, all }
    }

    /// Whether `resource` may stand where the zone had `before`.
    ///
    /// # Errors
    /// What there is too much of, for who looks after the zone.
    pub(super) fn admit(&mut self, before: Option<&Resource>, resource: &Resource) -> Result<(), String> {
        let (had, has) = (before.map(Owned::one).unwrap_or_default(), Owned::one(resource));
        let (of_kind, all) = (self.of_kind.without(had).and(has), self.all.without(had).and(has));
        let exceeds = |count: usize, most: usize| most != 0 && count > most;
        let (zone, kind) = (self.zone, self.kind.name);
        let is_new = before.is_none();
        if is_new && exceeds(of_kind.items, self.quota.per_kind) {
            let most = self.quota.per_kind;
            return Err(format!(
                "zone {zone:?} has as many resources of type {kind} as it may, {most} \
                 (multizone.global.kds.zoneQuota.perKind of global): take others away first"
            ));
        }
        if is_new && exceeds(all.items, self.quota.total) {
            let most = self.quota.total;
            return Err(format!(
                "zone {zone:?} has as many resources as it may, {most} \
                 (multizone.global.kds.zoneQuota.total of global): take others away first"
            ));
        }
        if has.bytes > had.bytes && exceeds(all.bytes, self.quota.bytes) {
            let most = self.quota.bytes;
            return Err(format!(
                "what zone {zone:?} owns is as long as it may be, {most} bytes \
                 (multizone.global.kds.zoneQuota.bytes of global): take others away first"
            ));
        }
        (self.of_kind, self.all) = (of_kind, all);
        Ok(())
    }
}
