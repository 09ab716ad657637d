//! Decides what a recovery writes, what it leaves, and how the history goes on. Pure.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    ca,
    kds::{
        features::Features,
        filter::{self, Receiver},
        headers::Upstream,
        mapper::{self, DownForm},
    },
    model::{Kind, Labels, Origin, Resource, ResourceKey, kinds},
    proto::{google::protobuf::BoolValue, kuma::system::v1alpha1::Zone},
    store::{Precondition, StoreIdentity, Write, index::Index},
    token,
};
use prost::Message;

use super::{
    evidence::{Evidence, HeldVersion, is_further},
    report::{AbsentResource, ConflictSide, RecoveryReport, RestoredResource, Winner},
};
use crate::kds::ZoneHoldings;

/// What an operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryOptions {
    /// What only global has, and zones that were further do not, goes.
    pub remove_absent: bool,
    /// One zone is believed against several.
    pub believe_one: bool,
}

/// Where global stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct GlobalStanding<'a> {
    /// What it holds.
    pub(super) index: &'a Index,
    /// The history it shows.
    pub(super) shown: StoreIdentity,
    /// The form in which zones are sent what it holds.
    pub(super) form: &'a DownForm,
    /// The time.
    pub(super) now: DateTime<Utc>,
}

/// What a recovery does.
#[derive(Debug)]
pub(super) struct RecoveryPlan {
    /// To be committed together.
    pub(super) writes: Vec<Write>,
    /// The history to go on in; `None` when there is nothing to recover.
    pub(super) next: Option<StoreIdentity>,
    /// What an operator is told.
    pub(super) report: RecoveryReport,
}

/// Decides what `zones` have to say about what global lost.
pub(super) fn plan(at: GlobalStanding<'_>, zones: &[ZoneHoldings], options: RecoveryOptions) -> RecoveryPlan {
    let evidence = Evidence::of(zones, at.index);
    let history = history(at.shown, zones);
    let mut draft = RecoveryDraft {
        at,
        zones,
        evidence: &evidence,
        history,
        writes: Vec::new(),
        report: RecoveryReport::default(),
    };
    for (key, versions) in &evidence.versions {
        draft.settle(key, versions);
    }
    draft.keep_tokens_good();
    draft.absent(options.remove_absent);
    draft.lost();
    let RecoveryDraft { writes, mut report, .. } = draft;
    let waits = zones
        .iter()
        .any(|zone| zone.held_back.is_some() && zone.taken.is_some_and(|t| t.store_id == history));
    let next = (waits || !writes.is_empty())
        .then(|| StoreIdentity { store_id: history, epoch: next_epoch(at.shown, history, zones) });
    report.note_zones(zones, &evidence.refused, history);
    RecoveryPlan { writes: in_order(writes, at), next, report }
}

/// The history most zones followed; that of global itself where none is more common.
fn history(shown: StoreIdentity, zones: &[ZoneHoldings]) -> uuid::Uuid {
    let mut followers: BTreeMap<uuid::Uuid, usize> = BTreeMap::new();
    for taken in zones.iter().filter_map(|zone| zone.taken) {
        *followers.entry(taken.store_id).or_default() += 1;
    }
    let own = followers.get(&shown.store_id).copied().unwrap_or(0);
    let most = followers.into_iter().max_by_key(|(_, count)| *count);
    most.filter(|(_, count)| *count > own).map_or(shown.store_id, |(store, _)| store)
}

/// Epochs that zones may be ahead. One that says more would leave no epoch to go on in.
const EPOCHS_AHEAD: u64 = 1_000;

fn next_epoch(shown: StoreIdentity, history: uuid::Uuid, zones: &[ZoneHoldings]) -> u64 {
    let followed = zones.iter().filter_map(|zone| zone.taken).filter(|taken| taken.store_id == history);
    let own = if shown.store_id == history { shown.epoch } else { 0 };
    epoch_after(own, followed)
}

/// The epoch after `own` and those that zones followed, as far as they can be believed.
pub(super) fn epoch_after(own: u64, followed: impl Iterator<Item = Upstream>) -> u64 {
    let most = own.saturating_add(EPOCHS_AHEAD);
    let believed = followed.map(|taken| taken.epoch).filter(|epoch| *epoch <= most);
    believed.fold(own, u64::max).saturating_add(1)
}

struct RecoveryDraft<'a> {
    at: GlobalStanding<'a>,
    zones: &'a [ZoneHoldings],
    evidence: &'a Evidence,
    /// The history that goes on.
    history: uuid::Uuid,
    writes: Vec<Write>,
    report: RecoveryReport,
}

impl RecoveryDraft<'_> {
    /// Decides about one resource that zones hold.
    fn settle(&mut self, key: &ResourceKey, versions: &[HeldVersion]) {
        let (newest, others) = best(versions);
        match self.at.index.get(key) {
            Some(existing) if existing.origin != newest.resource.origin => {
                let sides = versions.iter().map(ConflictSide::of_zones).collect();
                self.report.conflict(key, Winner::Global, ConflictSide::of_global(existing), sides);
            }
            // What a zone owns it sends again by itself.
            Some(existing) if existing.origin != Origin::Global => {}
            Some(existing) => self.settle_known(existing, newest, others),
            None => self.settle_unknown(newest, others),
        }
    }

    /// Global has it as well.
    fn settle_known(&mut self, existing: &Arc<Resource>, newest: &HeldVersion, others: Vec<&HeldVersion>) {
        if self.is_sent_as(existing, newest) {
            if !others.is_empty() {
                let sides = others.into_iter().map(ConflictSide::of_zones).collect();
                self.report.conflict(&existing.key, Winner::Global, ConflictSide::of_global(existing), sides);
            }
            return;
        }
        // A history that is not global's own is what there was before it was lost; what it made since is a beginning.
        let is_foreign = newest.taken.is_none_or(|taken| taken.store_id != self.at.shown.store_id);
        let sides = |with: ConflictSide| {
            others.iter().copied().map(ConflictSide::of_zones).chain([with]).collect::<Vec<_>>()
        };
        if is_foreign || newest.resource.modified > existing.modified {
            self.report.conflict(
                &existing.key,
                Winner::Zones,
                ConflictSide::of_zones(newest),
                sides(ConflictSide::of_global(existing)),
            );
            self.report.restored(RestoredResource::replacing(newest));
            let mut resource = newest.resource.clone();
            resource.labels.extend(&self.kept_labels(existing));
            resource.status.clone_from(&existing.status);
            resource.owner.clone_from(&existing.owner);
            (resource.created, resource.modified) = (existing.created, self.at.now);
            self.writes.push(Write::put_when(resource, Precondition::At(existing.revision)));
        } else {
            self.report.conflict(
                &existing.key,
                Winner::Global,
                ConflictSide::of_global(existing),
                sides(ConflictSide::of_zones(newest)),
            );
        }
    }

    /// Only zones have it.
    fn settle_unknown(&mut self, newest: &HeldVersion, others: Vec<&HeldVersion>) {
        // Of what it owns a zone that was asked has said what there is.
        let is_own = |owner: &Arc<str>| self.zones.iter().any(|zone| zone.zone == *owner);
        let without: Vec<_> = match &newest.resource.origin {
            Origin::Zone(owner) if is_own(owner) => Vec::new(),
            _ => self.without(&newest.resource).map(|zone| Arc::clone(&zone.zone)).collect(),
        };
        let lacking = match newest.resource.origin {
            Origin::Global => self.lacking(&newest.resource, newest),
            // Of a zone that is not heard, nobody else alone says what it exports: it comes back with it.
            Origin::Zone(_) if newest.zones.len() == 1 => without.clone(),
            Origin::Zone(_) => Vec::new(),
        };
        if !lacking.is_empty() {
            let sides = [newest].into_iter().chain(others).map(ConflictSide::of_zones).collect();
            self.report.conflict(&newest.resource.key, Winner::Gone, ConflictSide::gone(&lacking), sides);
            return;
        }
        if !others.is_empty() {
            let sides = others.into_iter().map(ConflictSide::of_zones).collect();
            self.report.conflict(&newest.resource.key, Winner::Zones, ConflictSide::of_zones(newest), sides);
        }
        self.report.restored(RestoredResource::missing_in(newest, without));
        let at = self.at.now;
        let resource = Resource { created: at, modified: at, ..newest.resource.clone() };
        self.writes.push(Write::put_when(resource, Precondition::Absent));
    }

    /// Labels that zones are not sent.
    fn kept_labels(&self, existing: &Resource) -> Labels {
        let stays =
            |label: &str| self.at.form.skip_prefixes.iter().any(|prefix| label.starts_with(prefix.as_str()));
        existing.labels.iter().filter(|(label, _)| stays(label)).collect()
    }

    /// Whether zones would be sent `existing` as they hold it.
    fn is_sent_as(&self, existing: &Resource, held: &HeldVersion) -> bool {
        mapper::down(existing, self.at.form)
            .is_ok_and(|sent| sent.labels == held.resource.labels && sent.spec == held.resource.spec)
    }

    /// Zones that were further than whoever holds `version`, should have it, and do not: it was deleted meanwhile.
    fn lacking(&self, resource: &Resource, version: &HeldVersion) -> Vec<Arc<str>> {
        let Some(of) = version.taken else { return Vec::new() };
        let further = |zone: &&ZoneHoldings| {
            zone.taken.is_some_and(|taken| {
                taken.store_id == of.store_id && (taken.epoch, taken.revision) > (of.epoch, of.revision)
            })
        };
        self.without(resource).filter(further).map(|zone| Arc::clone(&zone.zone)).collect()
    }

    /// Zones that should have `resource` and do not.
    fn without(&self, resource: &Resource) -> impl Iterator<Item = &ZoneHoldings> {
        let features = Features::ours();
        let is_meant = move |zone: &str, resource: &Resource| {
            let receiver = Receiver { zone, features: &features, issues: true };
            filter::why_not_sent(resource, receiver, |_| true).is_none()
        };
        let lacks = move |zone: &&ZoneHoldings| {
            let tells = !resource.kind().admin_only || zone.secrets_kept == 0;
            tells && !self.evidence.holds(&zone.zone, &resource.key) && is_meant(&zone.zone, resource)
        };
        self.zones.iter().filter(lacks).collect::<Vec<_>>().into_iter()
    }

    /// What global has and zones that wait for it had no more, or never had.
    fn absent(&mut self, removed: bool) {
        let kinds = common::kds::order::requested_by_zone()
            .into_iter()
            .filter(|kind| kind.flow.global_to_zone() && !kind.admin_only);
        let own = kinds.flat_map(|kind| self.at.index.list(kind)).filter(|r| r.origin == Origin::Global);
        let unheld: Vec<_> =
            own.filter(|resource| !self.evidence.versions.contains_key(&resource.key)).collect();
        for resource in unheld {
            let is_past = |taken: Upstream| {
                taken.store_id != self.at.shown.store_id || taken.revision > resource.revision
            };
            let waits = |zone: &&ZoneHoldings| zone.held_back.is_some() && zone.taken.is_some_and(is_past);
            let zones: Vec<_> =
                self.without(resource).filter(waits).map(|zone| Arc::clone(&zone.zone)).collect();
            if zones.is_empty() {
                continue;
            }
            self.report.absent(AbsentResource::new(resource, &zones, removed));
            if removed {
                self.writes
                    .push(Write::delete_when(resource.key.clone(), Precondition::At(resource.revision)));
            }
        }
    }

    /// Of a key that signed tokens zones have the public half: it stays, and with it the tokens. What global made for
    /// itself under the same name meanwhile signs under the next.
    fn keep_tokens_good(&mut self) {
        let mut made = Vec::new();
        for (key, half) in &self.evidence.public_halves {
            let existing = self.at.index.get(key);
            let is_half_of = |key: &Arc<Resource>| {
                token::public_half(key).is_ok_and(|(_, pem)| token::secret_spec(pem) == half.resource.spec)
            };
            if existing.is_some_and(is_half_of) {
                continue;
            }
            // In one history a key is one key: what is said against the one that is here is not believed.
            let here = self.at.shown.store_id;
            if existing.is_some() && half.taken.is_some_and(|taken| taken.store_id == here) {
                continue;
            }
            if self.at.index.get(&half.resource.key).is_none() {
                self.report.restored(RestoredResource::new(half));
                let (created, modified) = (self.at.now, self.at.now);
                let resource = Resource { created, modified, ..half.resource.clone() };
                self.writes.push(Write::put_when(resource, Precondition::Absent));
            }
            let Some(existing) = existing else { continue };
            let next = next_serial(key, self.at.index, self.evidence, &made);
            self.writes.push(Write::delete_when(existing.key.clone(), Precondition::At(existing.revision)));
            let moved = Resource { key: next.clone(), ..existing.as_ref().clone() };
            self.writes.push(Write::put_when(moved, Precondition::Absent));
            made.push(next);
        }
    }

    /// Keys that only global had.
    fn lost(&mut self) {
        let is_there =
            |key: &ResourceKey| self.at.index.get(key).is_some() || self.evidence.versions.contains_key(key);
        let written: BTreeSet<&ResourceKey> = self.writes.iter().map(Write::key).collect();
        let known = |key: &&ResourceKey| !written.contains(*key) && is_there(key);
        let halves: Vec<_> = self.evidence.public_halves.keys().filter(|key| !known(key)).cloned().collect();
        let roots = self.evidence.versions.keys().filter(|key| key.kind == &kinds::secret::SECRET);
        let roots = roots.filter_map(|key| {
            let name = ca::key_of_certificate(&key.mesh, &key.name)?;
            Some(ResourceKey::new(key.kind, &key.mesh, &name))
        });
        let roots = roots.filter(|key| !is_there(key));
        self.report.lost = halves.into_iter().chain(roots).map(|key| key.to_string()).collect();
        self.report.history = self.history;
    }
}

/// The name behind all keys that are called like `key` but for their number.
fn next_serial(key: &ResourceKey, index: &Index, evidence: &Evidence, made: &[ResourceKey]) -> ResourceKey {
    let serial = |other: &ResourceKey| {
        let (prefix, _) = key.name.rsplit_once('-')?;
        let is_like = other.kind == key.kind && other.mesh == key.mesh;
        let (other, serial) = other.name.rsplit_once('-').filter(|_| is_like)?;
        (other == prefix).then(|| serial.parse::<u32>().ok()).flatten()
    };
    let stored = index.list(key.kind).filter_map(|secret| serial(&secret.key));
    let held = evidence.public_halves.keys().chain(made).filter_map(serial);
    let last = stored.chain(held).max().unwrap_or(0);
    let prefix = key.name.rsplit_once('-').map_or(&*key.name, |(prefix, _)| prefix);
    ResourceKey::new(key.kind, &key.mesh, &format!("{prefix}-{}", last.saturating_add(1)))
}

/// The content that is right, and the others: of what global owned the newest. What a zone owned that is not heard is as
/// most of the others hold it, since any of them could say that it is further than the rest.
fn best(versions: &[HeldVersion]) -> (&HeldVersion, Vec<&HeldVersion>) {
    let at = |version: &HeldVersion| (version.taken, version.resource.modified);
    let is_better = |next: &HeldVersion, best: &HeldVersion| {
        let of_zones = [next, best].iter().all(|version| version.resource.origin != Origin::Global);
        match next.zones.len().cmp(&best.zones.len()) {
            Ordering::Greater if of_zones => true,
            Ordering::Less if of_zones => false,
            _ => is_further(at(next), at(best)),
        }
    };
    let best = versions.iter().reduce(|best, next| if is_better(next, best) { next } else { best });
    let best = best.expect("a resource is known by at least one content");
    (best, versions.iter().filter(|version| !std::ptr::eq(*version, best)).collect())
}

/// Owners before what they own; a zone nobody knows yet is made for what it owns.
fn in_order(mut writes: Vec<Write>, at: GlobalStanding<'_>) -> Vec<Write> {
    let is_put = |write: &&Write| matches!(write, Write::Put { .. });
    let owners = writes.iter().filter(is_put).filter_map(|write| match write {
        Write::Put { resource, .. } => resource.owner.clone(),
        _ => None,
    });
    let is_new_zone = |key: &ResourceKey| key.kind == &kinds::zone::KIND && at.index.get(key).is_none();
    let zones: BTreeSet<ResourceKey> = owners.filter(is_new_zone).collect();
    let spec = Zone { enabled: Some(BoolValue { value: true }) }.encode_to_vec();
    let made = zones.into_iter().map(|key| Resource::new(key, at.now).with_spec(spec.clone()));
    let mut ordered: Vec<Write> = made.map(|zone| Write::put_when(zone, Precondition::Absent)).collect();
    let rank = |kind: &Kind| if kind == &kinds::mesh::KIND { 0 } else { 1 };
    writes.sort_by_key(|write| rank(write.key().kind));
    ordered.append(&mut writes);
    ordered
}
