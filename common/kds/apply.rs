//! Makes a store follow what an upstream owns.
//!
//! [`plan`] decides, without touching anything, what one response means for the resources at hand;
//! [`Applier`] commits that in one transaction. What another origin owns is never touched, equal content
//! writes nothing, and a bad item refuses itself alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use thiserror::Error;

use super::{
    attribution::{self, Foreign, OriginClaim},
    codec::{self, Item},
    fuse::Fuse,
    names::{candidates, delta_name},
    ownership::{self, ZoneNaming},
    quota::{QuotaRoom, ZoneQuota},
    signature::{SignatureRefusal, TrustedFile},
    size,
    verdict::{RefusalCause, Verdict},
};
use crate::{
    clip::clip,
    model::{Kind, Origin, Resource, ResourceKey, kinds, labels},
    proto::google::protobuf::Any,
    runtime::Env,
    store::{
        Batch, Fence, Precondition, Revision, Store, StoreError, Write,
        history::Author,
        index::{Index, IndexReader},
    },
};

/// What is kept of the name of an item in a response, in bytes; a longer one is no name.
const LONGEST_NAME: usize = 1024;
/// Names of others in one response whose owners are looked for: each costs as much as there are zones.
const OWNERS: usize = 3;
/// Attempts to commit a plan while others write the same resources.
const ATTEMPTS: usize = 10;

/// Who follows whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Follower {
    /// A zone follows global.
    Zone,
    /// Global follows this zone.
    Global {
        /// Name from the authenticated session.
        zone: Arc<str>,
        /// What becomes of items that claim another zone.
        foreign: Foreign,
        /// How its names are made.
        naming: ZoneNaming,
        /// How much it may own.
        quota: ZoneQuota,
    },
}

impl Follower {
    /// Whom the rows it writes belong to.
    fn origin(&self) -> Origin {
        match self {
            Self::Zone => Origin::Global,
            Self::Global { zone, .. } => Origin::Zone(Arc::clone(zone)),
        }
    }

    /// What the rows it writes go away with.
    fn owner(&self) -> Option<ResourceKey> {
        match self {
            Self::Zone => None,
            Self::Global { zone, .. } => Some(ResourceKey::global(&kinds::zone::KIND, zone)),
        }
    }

    /// Whom the history names for what is applied.
    fn author(&self) -> Author {
        match self {
            Self::Zone => Author::Global,
            Self::Global { zone, .. } => Author::Zone(zone.to_string()),
        }
    }

    /// Whether the upstream decides about `resource`. On a zone it decides about everything of a kind
    /// that only global may write, whoever wrote it: so a zone that joins a federation is taken over.
    pub fn in_scope(&self, resource: &Resource) -> bool {
        match self {
            Self::Zone => !resource.kind().flow.written_by_zone() || resource.origin == Origin::Global,
            Self::Global { .. } => resource.origin == self.origin(),
        }
    }
}

/// One response, decoded. Items that do not decode are verdicts already.
#[derive(Debug)]
pub struct DecodedResponse {
    /// Type of the response.
    pub kind: &'static Kind,
    /// What it adds or changes; a later item of the same key wins.
    pub items: BTreeMap<ResourceKey, Item>,
    /// Delta names it removes.
    pub removed: Vec<String>,
    /// Whether it is everything there is: what it does not name is gone.
    pub full: bool,
    /// Whether its removals must pass the fuse: those of a full state always do.
    pub guarded: bool,
    /// Items that were refused while decoding.
    pub refused: Vec<Verdict>,
    /// Keys of refused items; what is stored under them stays as it is.
    spared: BTreeSet<ResourceKey>,
    /// The same by delta name, where no key could be read.
    spared_names: BTreeSet<String>,
    /// A refused item may be any of them: it has no name at all.
    spares_all: bool,
    /// Items that claimed another zone, by name.
    pub misattributed: Vec<(String, OriginClaim)>,
}

impl DecodedResponse {
    /// Decodes a response of `kind` as seen by `follower`.
    pub fn decode<'a>(
        kind: &'static Kind,
        resources: impl IntoIterator<Item = (&'a str, Option<&'a Any>)>,
        removed: Vec<String>,
        full: bool,
        follower: &Follower,
    ) -> Self {
        let mut received = Self {
            kind,
            items: BTreeMap::new(),
            removed,
            full,
            guarded: full,
            refused: Vec::new(),
            spared: BTreeSet::new(),
            spared_names: BTreeSet::new(),
            spares_all: false,
            misattributed: Vec::new(),
        };
        let nothing = Any::default();
        for (name, any) in resources {
            let (name, any) = (clip(name, LONGEST_NAME), any.unwrap_or(&nothing));
            if let Err(reason) = received.take(name, any, follower) {
                received.refuse(name, any, reason);
            }
        }
        match follower {
            Follower::Global { zone, naming: ZoneNaming::Below, .. } => received.below(zone),
            _ => received,
        }
    }

    /// Refuses every item that bears no signature of a key in `trusted`; what is stored under its name stays as it is.
    /// The file is read again when a key is not known: it may have been added.
    pub(super) fn demand_signatures(&mut self, trusted: &TrustedFile) {
        let mut keys = trusted.current();
        let is_news = |item: &Item| matches!(keys.verify(item), Err(SignatureRefusal::UnknownKey(_)));
        if self.items.values().any(is_news) {
            keys = trusted.read_again();
        }
        for (key, item) in std::mem::take(&mut self.items) {
            match keys.verify(&item) {
                Ok(()) => drop(self.items.insert(key, item)),
                Err(refusal) => {
                    let (name, reason) = (delta_name(&key.name, &key.mesh), refusal.to_string());
                    self.spared.insert(key);
                    self.refused.push(Verdict { name, cause: RefusalCause::Invalid, reason });
                }
            }
        }
    }

    /// Puts every name below `zone`. Zones that do not hash names send them as they are at home, and two
    /// zones may send the same.
    fn below(mut self, zone: &str) -> Self {
        let rename =
            |key: ResourceKey| ResourceKey::new(key.kind, &key.mesh, &format!("{zone}.{}", key.name));
        let renamed = |item: Item| Item { key: rename(item.key), ..item };
        let items = self.items.into_values().map(renamed);
        self.items = items.map(|item| (item.key.clone(), item)).collect();
        self.spared = self.spared.into_iter().map(rename).collect();
        self.spared_names = self.spared_names.into_iter().map(|name| format!("{zone}.{name}")).collect();
        self.removed.iter_mut().for_each(|name| name.insert_str(0, &format!("{zone}.")));
        self
    }

    fn take(&mut self, name: &str, any: &Any, follower: &Follower) -> Result<(), String> {
        if matches!(follower, Follower::Global { .. }) {
            size::admits(self.kind, any.value.len())?;
        }
        let mut item = codec::decode(self.kind, any).map_err(|e| e.to_string())?;
        if matches!(follower, Follower::Global { .. }) && name != delta_name(&item.key.name, &item.key.mesh) {
            // What is remembered of the stream goes by this name, and must not outgrow what is stored.
            return Err(format!("it is called {} inside: a name has one form", item.key));
        }
        if let Follower::Global { zone, foreign, .. } = follower {
            // Only global signs.
            item.labels.remove(labels::SIGNATURE);
            // It is part of names, and any name can be made with what is no namespace.
            let namespace = item.labels.get(labels::NAMESPACE).filter(|name| !name.is_empty());
            if let Some(problem) = namespace.and_then(labels::dns_1123_problem) {
                return Err(format!("its label {}: {problem}", labels::NAMESPACE));
            }
            let claim = attribution::pin(self.kind, &mut item.labels, &mut item.spec, zone);
            if let Some(claim) = claim.map_err(|e| e.to_string())? {
                let reason = format!(
                    "{claim}, but zone {zone:?} sends it: apply it on the zone it names, or name {zone:?} there"
                );
                self.misattributed.push((name.to_owned(), claim));
                if *foreign == Foreign::Refuse {
                    return Err(reason);
                }
            }
            // Judged in the form it is kept in: naming the zone can make it larger.
            if let Some(excess) = size::excess(self.kind, &item.labels, &item.spec, item.status.as_deref()) {
                return Err(excess);
            }
        }
        self.items.insert(item.key.clone(), item);
        Ok(())
    }

    fn refuse(&mut self, name: &str, any: &Any, reason: String) {
        match codec::named(self.kind, any) {
            Some(key) => drop(self.spared.insert(key)),
            None if name.is_empty() => self.spares_all = true,
            // Without a mesh, the dot at the end may be missing.
            None if !self.kind.is_mesh_scoped() && !name.ends_with('.') => {
                self.spared_names.insert(format!("{name}."));
            }
            None => drop(self.spared_names.insert(name.to_owned())),
        }
        self.refused.push(Verdict { name: name.to_owned(), cause: RefusalCause::Invalid, reason });
    }

    /// Whether what is stored under `key` stays as it is, because an item that may be it was refused.
    fn spares(&self, key: &ResourceKey) -> bool {
        self.spares_all
            || self.spared.contains(key)
            || (!self.spared_names.is_empty()
                && self.spared_names.contains(&delta_name(&key.name, &key.mesh)))
    }
}

/// What a response means for the resources at hand.
#[derive(Debug, Default)]
pub struct Plan {
    /// To be committed together.
    pub writes: Vec<Write>,
    /// Items that are not taken.
    pub verdicts: Vec<Verdict>,
    /// How many resources go.
    pub removed: usize,
    /// How many resources of the kind the upstream decides about. Counted for the fuse only.
    pub held: usize,
}

/// Decides what `received` means for the resources of `index`.
pub fn plan(index: &Index, received: &DecodedResponse, follower: &Follower, now: DateTime<Utc>) -> Plan {
    let mut plan = Plan { verdicts: received.refused.clone(), ..Plan::default() };
    let in_scope = || index.list(received.kind).filter(|resource| follower.in_scope(resource));
    if received.guarded {
        plan.held = in_scope().count();
    }
    // Each once: a name may be said often, and means the same in several forms.
    let gone: BTreeMap<&ResourceKey, &Arc<Resource>> = if received.full {
        let stays = |key| received.items.contains_key(key) || received.spares(key);
        in_scope().filter(|resource| !stays(&resource.key)).map(|gone| (&gone.key, gone)).collect()
    } else {
        // One name can be parted in many ways, and few of them name a mesh in which anything is.
        let meshes = index.meshes_of(received.kind);
        let gone = |name: &String| removed(index, &meshes, received, follower, name);
        received.removed.iter().filter_map(gone).map(|gone| (&gone.key, gone)).collect()
    };
    plan.removed = gone.len();
    let mut room = match follower {
        Follower::Global { zone, quota, .. } => {
            Some(QuotaRoom::new(*quota, zone, received.kind, index, &gone))
        }
        Follower::Zone => None,
    };
    let mut owners = OWNERS;
    for item in received.items.values() {
        let written = may_be_called_so(index, item, follower, &mut owners)
            .and_then(|()| put(index, item, follower, now));
        let admitted = written.and_then(|write| {
            let Some(Write::Put { resource, .. }) = &write else { return Ok(write) };
            let before = index.get(&item.key).filter(|resource| follower.in_scope(resource));
            match room.as_mut().map_or(Ok(()), |room| room.admit(before.map(|b| &**b), resource)) {
                Ok(()) => Ok(write),
                Err(reason) => Err(Verdict {
                    name: delta_name(&item.key.name, &item.key.mesh),
                    cause: RefusalCause::Invalid,
                    reason,
                }),
            }
        });
        match admitted {
            Ok(write) => plan.writes.extend(write),
            Err(verdict) => plan.verdicts.push(verdict),
        }
    }
    plan.writes.extend(
        gone.into_values()
            .map(|gone| Write::delete_when(gone.key.clone(), Precondition::OwnedBy(gone.origin.clone()))),
    );
    plan
}

/// The resource a removed name means. A name that is added as well counts as added.
fn removed<'a>(
    index: &'a Index,
    meshes: &BTreeSet<&str>,
    received: &DecodedResponse,
    follower: &Follower,
    name: &str,
) -> Option<&'a Arc<Resource>> {
    candidates(received.kind, name)
        .filter(|(mesh, _)| meshes.contains(mesh))
        .filter_map(|(mesh, name)| index.find(received.kind, mesh, name))
        .find(|resource| follower.in_scope(resource))
        .filter(|resource| !received.items.contains_key(&resource.key))
}

/// Whether a zone sends an item under a name that is its own: another one's must be there for its owner, who is looked for
/// `owners` times.
fn may_be_called_so(
    index: &Index,
    item: &Item,
    follower: &Follower,
    owners: &mut usize,
) -> Result<(), Verdict> {
    let Follower::Global { zone, naming, .. } = follower else { return Ok(()) };
    if ownership::is_own(&item.key, &item.labels, zone, *naming) {
        return Ok(());
    }
    let searched = (*owners > 0).then_some(index);
    *owners = owners.saturating_sub(1);
    Err(Verdict {
        name: delta_name(&item.key.name, &item.key.mesh),
        cause: RefusalCause::Conflict,
        reason: ownership::refusal(&item.key, &item.labels, zone, *naming, searched),
    })
}

/// The write that makes what is stored equal `item`; none when it is equal already.
fn put(
    index: &Index,
    item: &Item,
    follower: &Follower,
    now: DateTime<Utc>,
) -> Result<Option<Write>, Verdict> {
    let mut resource = Resource::new(item.key.clone(), now).with_spec(item.spec.clone());
    resource.labels = item.labels.clone();
    resource.status = item.status.clone();
    resource.origin = follower.origin();
    resource.owner = follower.owner();
    let Some(existing) = index.get(&item.key) else {
        return Ok(Some(Write::put_when(resource, Precondition::Absent)));
    };
    if !follower.in_scope(existing) {
        if !outranks(follower, item, existing) {
            return Err(conflict(existing, follower));
        }
        tracing::warn!(
            resource = %existing.key, holder = existing.origin.as_column(), owner = resource.origin.as_column(),
            "a name went over to the zone it belongs to"
        );
    }
    if *follower == Follower::Zone {
        // A zone reports the status of its own copy; what global says about it is another story.
        resource.status = existing.status.clone();
    }
    resource.created = existing.created;
    let unchanged = existing.same_content(&resource);
    Ok((!unchanged).then(|| Write::put_when(resource, Precondition::At(existing.revision))))
}

/// Whether the name an item wants belongs to its sender rather than to the zone that has it.
fn outranks(follower: &Follower, item: &Item, existing: &Resource) -> bool {
    match (follower, &existing.origin) {
        (Follower::Global { zone, .. }, Origin::Zone(holder)) => {
            ownership::outranks(existing, holder, &item.labels, zone)
        }
        _ => false,
    }
}

fn conflict(existing: &Resource, follower: &Follower) -> Verdict {
    let name_of = |origin: &Origin| match origin {
        Origin::Global => "global".to_owned(),
        Origin::Zone(zone) => format!("zone {zone}"),
    };
    let (owner, writer) = (name_of(&existing.origin), name_of(&follower.origin()));
    Verdict {
        name: delta_name(existing.name(), existing.mesh()),
        cause: RefusalCause::Conflict,
        reason: format!(
            "{} of this name belongs to {owner}; the one of {writer} was not taken: rename or delete one of the two",
            existing.kind().name
        ),
    }
}

/// Why a response was not applied.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The fuse of mass deletion blew; nothing was changed.
    #[error(
        "the first state of {kind} would remove {removed} of {held} resources; kept them all until an operator approves"
    )]
    Blown {
        /// Type of the response.
        kind: &'static str,
        /// How many would go.
        removed: usize,
        /// How many there are.
        held: usize,
    },
    /// The zone that owns the resources was deleted.
    #[error("zone {0} no longer exists")]
    ZoneGone(Arc<str>),
    /// The store refused or failed.
    #[error("store what the peer sent: {0}")]
    Store(#[from] StoreError),
    /// What was committed does not come to the index: the store may have lost it again.
    #[error("the index does not show revision {0}, which was committed")]
    Unseen(Revision),
    /// The store lost its end, and what the peer sent may have gone with it: it has to be asked what this side lacks.
    #[error("the store lost the end of what was stored")]
    LostEnd,
    /// The process stops.
    #[error("the process is stopping")]
    Stopping,
}

/// The outcome of a response that was applied.
#[derive(Debug)]
pub struct Applied {
    /// Revision of the store that contains it.
    pub revision: Revision,
    /// How many resources changed.
    pub changed: usize,
    /// Items that were not taken.
    pub verdicts: Vec<Verdict>,
}

/// Commits what an upstream sends.
#[derive(Clone)]
pub struct Applier {
    /// Where it is committed.
    pub store: Arc<dyn Store>,
    /// What is there already.
    pub index: IndexReader,
    /// Clock.
    pub env: Env,
    /// Who follows whom.
    pub follower: Follower,
    /// Refuses writes of a session that was replaced.
    pub fence: Option<Fence>,
    /// Brake on mass deletion.
    pub fuse: Fuse,
    /// Whose signature every item must bear; `None` where none is asked for.
    pub trusted: Option<Arc<TrustedFile>>,
}

impl Applier {
    /// Applies one response. When this returns, the index shows it.
    ///
    /// # Errors
    /// [`ApplyError`]; nothing of the response is applied then.
    pub async fn apply(&self, received: &DecodedResponse) -> Result<Applied, ApplyError> {
        let mut index = self.index.current();
        for attempt in 1.. {
            let zone = self.zone(&index)?;
            let plan = plan(&index, received, &self.follower, self.env.now());
            if received.guarded && !self.fuse.allows(plan.removed, plan.held) {
                let (removed, held) = (plan.removed, plan.held);
                return Err(ApplyError::Blown { kind: received.kind.name, removed, held });
            }
            let verdicts = plan.verdicts;
            if plan.writes.is_empty() {
                return Ok(Applied { revision: index.revision, changed: 0, verdicts });
            }
            let still_there = zone.map(|zone| Write::as_it_is(zone));
            let writes = still_there.into_iter().chain(plan.writes).collect();
            let batch = Batch { writes, fence: self.fence.clone(), author: self.follower.author() };
            match self.store.transact(batch).await {
                Ok(commit) => {
                    self.shown(commit.revision).await?;
                    return Ok(Applied {
                        revision: commit.revision,
                        changed: commit.changed.len(),
                        verdicts,
                    });
                }
                Err(error) if attempt < ATTEMPTS && is_contention(&error) => {
                    index = self.newer_than(&index).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(ApplyError::Stopping)
    }

    /// An index that shows everything committed so far, by whomever: what is resumed from must not be
    /// older than what an earlier session has written.
    ///
    /// # Errors
    /// [`ApplyError`] when the store does not answer, or refuses this session.
    pub async fn newest(&self) -> Result<Arc<Index>, ApplyError> {
        let nothing = Batch { fence: self.fence.clone(), ..Batch::default() };
        let head = self.store.transact(nothing).await?.revision;
        self.shown(head).await
    }

    /// The index that shows what was committed at `revision`.
    async fn shown(&self, revision: Revision) -> Result<Arc<Index>, ApplyError> {
        let index = self.index.wait_long_for(revision).await.ok_or(ApplyError::Stopping)?;
        if index.revision < revision { Err(ApplyError::Unseen(revision)) } else { Ok(index) }
    }

    /// The zone that owns what is written; none on a zone itself.
    fn zone<'a>(&self, index: &'a Index) -> Result<Option<&'a Arc<Resource>>, ApplyError> {
        let Some(owner) = self.follower.owner() else { return Ok(None) };
        let zone = index.get(&owner);
        zone.map(Some).ok_or(ApplyError::ZoneGone(owner.name))
    }

    /// An index at the head the store has now: the plan was made on another one.
    async fn newer_than(&self, index: &Index) -> Result<Arc<Index>, ApplyError> {
        let head = *self.store.watch_head().borrow();
        self.index.wait_for_newer(index, head).await.ok_or(ApplyError::Stopping)
    }
}

/// Whether someone else wrote a resource of the plan since it was made.
fn is_contention(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::AlreadyExists { .. }
            | StoreError::NotFound { .. }
            | StoreError::Conflict { .. }
            | StoreError::ForeignOrigin { .. }
    )
}

#[cfg(test)]
mod tests;
