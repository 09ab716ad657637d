//! What an operator is told about a recovery, before and after it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    document,
    model::{Origin, Resource, ResourceKey},
    redact,
    store::StoreIdentity,
};
use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use super::evidence::{HeldVersion, REASONS};
use crate::kds::ZoneHoldings;

/// Items of one list that are shown; all are counted.
const SHOWN: usize = 1000;

/// Everything about one recovery.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RecoveryReport {
    /// Whether it was done, or would be.
    pub done: bool,
    /// The history zones are shown.
    pub shown: ShownHistory,
    /// The history that goes on; absent when there is nothing to recover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<ShownHistory>,
    /// The store whose history goes on.
    #[serde(skip)]
    pub(super) history: Uuid,
    /// Revision of the transaction, once done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Every zone, and what is known of it.
    pub zones: Vec<AskedZone>,
    /// What is written, how often.
    pub restored: CountedItems<RestoredResource>,
    /// What two sides have in different contents.
    pub conflicts: CountedItems<Conflict>,
    /// What only global has.
    pub absent: CountedItems<AbsentResource>,
    /// Keys that only global had and no zone can give back.
    pub lost: Vec<String>,
    /// How much of all this one zone says against several.
    pub alone: usize,
    /// The zones that say so.
    #[serde(skip)]
    pub(super) loners: BTreeSet<Arc<str>>,
}

/// How many zones have to say something else for one to be alone.
const SEVERAL: usize = 2;

/// A history, as it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ShownHistory {
    /// Of which store.
    pub store_id: Uuid,
    /// Which epoch of it.
    pub epoch: u64,
}

/// Where global stands, and who does not follow.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryStanding {
    /// The history shown.
    #[serde(flatten)]
    pub shown: ShownHistory,
    /// Revision of the store.
    pub revision: u64,
    /// Zones that do not follow, and why.
    pub held_back: BTreeMap<String, String>,
}

impl From<StoreIdentity> for ShownHistory {
    fn from(StoreIdentity { store_id, epoch }: StoreIdentity) -> Self {
        Self { store_id, epoch }
    }
}

/// How many there are, and the first of them.
#[derive(Debug, Serialize)]
pub struct CountedItems<T> {
    /// All.
    pub total: usize,
    /// The first.
    pub items: Vec<T>,
}

impl<T> Default for CountedItems<T> {
    fn default() -> Self {
        Self { total: 0, items: Vec::new() }
    }
}

impl<T> CountedItems<T> {
    fn push(&mut self, item: T) {
        self.total += 1;
        if self.items.len() < SHOWN {
            self.items.push(item);
        }
    }
}

/// One zone.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AskedZone {
    /// Its name.
    pub zone: String,
    /// Whether it said what it holds.
    pub asked: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unasked: Option<String>,
    /// Why it does not follow this global.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// Which history it followed and how far, as store/epoch/revision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taken: Option<String>,
    /// It goes on holding back: it followed another history.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stays_held_back: bool,
    /// How many resources it told.
    pub resources: usize,
    /// Secrets it did not tell.
    pub secrets_kept: u64,
    /// What of it could not be read or believed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

/// A resource by its name on global.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NamedResource {
    /// Its type.
    pub r#type: &'static str,
    /// Its mesh; empty outside of meshes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mesh: String,
    /// Its name on global.
    pub name: String,
}

impl NamedResource {
    fn of(key: &ResourceKey) -> Self {
        Self { r#type: key.kind.name, mesh: key.mesh.to_string(), name: key.name.to_string() }
    }
}

/// A resource that is written.
#[derive(Debug, Serialize)]
pub struct RestoredResource {
    /// Which one.
    #[serde(flatten)]
    pub resource: NamedResource,
    /// `created` or `replaced`.
    pub change: &'static str,
    /// The zone that owns it; absent for what global owns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Who holds it so.
    pub zones: Vec<Arc<str>>,
    /// Zones that should have it, were asked, and do not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<Arc<str>>,
    /// One zone alone holds it, and several do not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

impl RestoredResource {
    pub(super) fn new(version: &HeldVersion) -> Self {
        let owner = match &version.resource.origin {
            Origin::Global => None,
            Origin::Zone(zone) => Some(zone.to_string()),
        };
        let resource = NamedResource::of(&version.resource.key);
        let zones = version.zones.iter().cloned().collect();
        Self { resource, change: "created", owner, zones, missing: Vec::new(), alone: false }
    }

    pub(super) fn missing_in(version: &HeldVersion, missing: Vec<Arc<str>>) -> Self {
        let alone = version.zones.len() == 1 && missing.len() >= SEVERAL;
        Self { missing, alone, ..Self::new(version) }
    }

    pub(super) fn replacing(version: &HeldVersion) -> Self {
        Self { change: "replaced", ..Self::new(version) }
    }
}

/// Who is right about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Winner {
    /// It stays as it is on global.
    Global,
    /// It becomes what zones hold.
    Zones,
    /// It was deleted and stays so.
    Gone,
}

/// A resource that not all sides have in the same content.
#[derive(Debug, Serialize)]
pub struct Conflict {
    /// Which one.
    #[serde(flatten)]
    pub resource: NamedResource,
    /// Who is right.
    pub winner: Winner,
    /// What is taken.
    pub taken: ConflictSide,
    /// What is not.
    pub left: Vec<ConflictSide>,
    /// One zone says so against several.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
}

/// One side of a conflict.
#[derive(Debug, Serialize)]
pub struct ConflictSide {
    /// `global`, or nothing for zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<&'static str>,
    /// Zones that have it so, or have it no more.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<Arc<str>>,
    /// How far the furthest of them took which history.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// When it last changed there, by the clock there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modified: Option<DateTime<Utc>>,
    /// What it is; absent for secrets, and for what is gone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}

impl ConflictSide {
    pub(super) fn of_zones(version: &HeldVersion) -> Self {
        Self {
            on: None,
            zones: version.zones.iter().cloned().collect(),
            at: version.taken.map(common::kds::headers::Upstream::to_text),
            modified: Some(version.resource.modified),
            content: content(&version.resource),
        }
    }

    pub(super) fn of_global(resource: &Resource) -> Self {
        Self {
            on: Some("global"),
            zones: Vec::new(),
            at: None,
            modified: Some(resource.modified),
            content: content(resource),
        }
    }

    pub(super) fn gone(zones: &[Arc<str>]) -> Self {
        Self { on: None, zones: zones.to_vec(), at: None, modified: None, content: None }
    }
}

fn content(resource: &Resource) -> Option<Value> {
    if resource.kind().admin_only {
        return None;
    }
    let mut shown = document::render(resource).ok()?;
    redact::json(&mut shown);
    Some(shown)
}

/// What global has and zones that were further do not.
#[derive(Debug, Serialize)]
pub struct AbsentResource {
    /// Which one.
    #[serde(flatten)]
    pub resource: NamedResource,
    /// Who does not have it.
    pub zones: Vec<Arc<str>>,
    /// When it last changed on global.
    pub modified: DateTime<Utc>,
    /// Whether it goes.
    pub removed: bool,
}

impl AbsentResource {
    pub(super) fn new(resource: &Resource, zones: &[Arc<str>], removed: bool) -> Self {
        let named = NamedResource::of(&resource.key);
        Self { resource: named, zones: zones.to_vec(), modified: resource.modified, removed }
    }
}

impl RecoveryReport {
    pub(super) fn restored(&mut self, item: RestoredResource) {
        if item.alone {
            self.note_alone(&item.zones);
        }
        self.restored.push(item);
    }

    pub(super) fn conflict(
        &mut self,
        key: &ResourceKey,
        winner: Winner,
        taken: ConflictSide,
        left: Vec<ConflictSide>,
    ) {
        let against: usize = left.iter().map(|side| side.zones.len()).sum();
        let alone = winner != Winner::Global && taken.zones.len() == 1 && against >= SEVERAL;
        if alone {
            self.note_alone(&taken.zones);
        }
        self.conflicts.push(Conflict { resource: NamedResource::of(key), winner, taken, left, alone });
    }

    fn note_alone(&mut self, zones: &[Arc<str>]) {
        self.alone += 1;
        self.loners.extend(zones.iter().cloned());
    }

    pub(super) fn absent(&mut self, item: AbsentResource) {
        self.absent.push(item);
    }

    /// Notes what each of the asked zones said.
    pub(super) fn note_zones(
        &mut self,
        zones: &[ZoneHoldings],
        refused: &BTreeMap<Arc<str>, Vec<String>>,
        history: Uuid,
    ) {
        for zone in zones {
            let unreadable = zone.unreadable.1.iter();
            let unbelieved = refused.get(&zone.zone).into_iter().flatten();
            let reasons = unreadable.chain(unbelieved).take(REASONS).cloned();
            self.zones.push(AskedZone {
                zone: zone.zone.to_string(),
                asked: true,
                unasked: None,
                stays_held_back: zone.held_back.is_some()
                    && zone.taken.is_some_and(|taken| taken.store_id != history),
                held_back: zone.held_back.clone(),
                taken: zone.taken.map(common::kds::headers::Upstream::to_text),
                resources: zone.held.len(),
                secrets_kept: zone.secrets_kept,
                refused: reasons.collect(),
            });
        }
    }
}
