//! The store: where an acknowledged write lives, and the order in which writes happened.
//!
//! A [`Batch`] commits whole or not at all and gets one [`Revision`], dense and in commit order. The
//! change feed ([`Store::changes_since`]) says what happened after a revision; [`Store::watch_head`] only
//! wakes its reader. Everyone else reads the [`index`], which [`feed`] keeps equal to the store.
//!
//! One contract suite runs against every implementation.

pub mod backup;
#[doc(hidden)]
pub mod contract;
pub mod feed;
pub mod history;
pub mod index;
pub mod memory;
pub mod postgres;
pub mod salvage;
pub mod sqlite;
pub mod written;

mod checksum;
mod epoch;
mod finding;
mod health;
mod meter;
mod nudge;
mod open;
mod past;
mod point;
mod recent;
mod record;
mod rows;
mod sessions;
mod shares;
mod wanted;
mod writer;

pub use self::{
    health::StoreHealth,
    meter::StoreConnections,
    nudge::{Nudge, Nudges},
    open::{masked, open},
    point::{CommitId, Point},
};

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use thiserror::Error;
use tokio::sync::watch;
use uuid::Uuid;

use self::history::{Author, HistoryLimits, HistoryQuery, PastChanges};
pub use crate::model::Revision;
use crate::{
    events::ResourceChange,
    model::{Origin, Resource, ResourceKey},
};

/// Entries of the change log kept by default.
const RETAINED: usize = 100_000;

/// Which history a revision belongs to. A peer that shows another one must not be obeyed blindly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StoreIdentity {
    /// Made once, when the store is created.
    pub store_id: Uuid,
    /// Raised when an operator restores the store from a backup.
    pub epoch: u64,
}

/// What must hold for a write to go through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing.
    None,
    /// The resource does not exist yet.
    Absent,
    /// The resource exists, at whatever revision.
    Exists,
    /// The resource exists at exactly this revision.
    At(Revision),
    /// The resource, when it exists, is owned by this origin.
    OwnedBy(Origin),
}

/// One change to one resource.
#[derive(Clone, Debug)]
pub enum Write {
    /// Creates or replaces. `created` of an existing resource is kept; equal content
    /// ([`Resource::same_content`]) writes nothing and takes no revision.
    Put {
        /// The resource; its `revision` is ignored.
        resource: Box<Resource>,
        /// What must hold.
        when: Precondition,
    },
    /// Replaces only the status, whose owner is the control plane and not the author. Writes nothing
    /// when the resource does not exist.
    PutStatus {
        /// Which resource.
        key: ResourceKey,
        /// The JSON status, `None` to clear it.
        status: Option<bytes::Bytes>,
        /// Becomes `modified`.
        now: DateTime<Utc>,
    },
    /// Deletes, with everything it owns. Deleting what does not exist writes nothing, unless the
    /// precondition wants it to exist.
    Delete {
        /// Which resource.
        key: ResourceKey,
        /// What must hold.
        when: Precondition,
    },
}

impl Write {
    /// An unconditional put.
    pub fn put(resource: Resource) -> Self {
        Self::put_when(resource, Precondition::None)
    }

    /// A put under a precondition.
    pub fn put_when(resource: Resource, when: Precondition) -> Self {
        Self::Put { resource: Box::new(resource), when }
    }

    /// Changes nothing, and refuses the batch when `resource` is no longer what it was: what is written
    /// below it must not outlive it.
    pub fn as_it_is(resource: &Resource) -> Self {
        Self::put_when(resource.clone(), Precondition::At(resource.revision))
    }

    /// A delete under a precondition.
    pub fn delete_when(key: ResourceKey, when: Precondition) -> Self {
        Self::Delete { key, when }
    }

    /// The resource it is about.
    pub fn key(&self) -> &ResourceKey {
        match self {
            Self::Put { resource, .. } => &resource.key,
            Self::PutStatus { key, .. } | Self::Delete { key, .. } => key,
        }
    }
}

/// Holds for a batch only while the lease `name` is at `epoch`: the fence of a zone session or leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// Name of the lease.
    pub name: String,
    /// Epoch its holder got from [`Store::acquire`].
    pub epoch: u64,
}

/// Writes that commit together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// In this order; a later write sees the earlier ones.
    pub writes: Vec<Write>,
    /// Refuse the batch when the fence has moved on.
    pub fence: Option<Fence>,
    /// Whom the history names.
    pub author: Author,
}

impl Batch {
    /// A batch of these writes without a fence.
    pub fn of(writes: impl IntoIterator<Item = Write>) -> Self {
        Self { writes: writes.into_iter().collect(), ..Self::default() }
    }

    /// The same under a fence.
    pub fn fenced(mut self, fence: Fence) -> Self {
        self.fence = Some(fence);
        self
    }

    /// The same, made by `author`.
    pub fn by(mut self, author: Author) -> Self {
        self.author = author;
        self
    }
}

/// The outcome of a batch that went through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Revision of the store after it: its own when it changed something, else the head.
    pub revision: Revision,
    /// Every key that really changed, cascaded deletes included.
    pub changed: Vec<ResourceKey>,
}

/// One entry of the change feed.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Revision of the batch.
    pub revision: Revision,
    /// Which resource.
    pub key: ResourceKey,
    /// The resource as the batch left it, `None` when it was deleted.
    pub resource: Option<Arc<Resource>>,
}

impl From<&Change> for ResourceChange {
    fn from(change: &Change) -> Self {
        Self { revision: change.revision, key: change.key.clone(), deleted: change.resource.is_none() }
    }
}

/// The answer of the feed.
#[derive(Clone, Debug, PartialEq)]
pub enum Changes {
    /// What happened after the asked revision.
    Since {
        /// Oldest first, whole batches only. A resource that changed again later may be shown at its
        /// later content; replaying to the end gives the state at the end. What a newer version wrote
        /// of kinds unknown here is left out.
        changes: Vec<Change>,
        /// Go on from here; the asked revision when nothing happened since.
        upto: Point,
        /// Where the store was when it was read: a page may be short and not the last.
        head: Revision,
    },
    /// The asked revision lies before the retained window: take a snapshot.
    Resync,
    /// The asked point lies after the head, or another commit is there now: the store lost its end, and may have gone on
    /// without it. Take a snapshot; what was known of what is lost holds no more.
    Parted,
}

/// All resources at one revision.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// At this revision.
    pub revision: Revision,
    /// Which commit made it, where that is known.
    pub commit: Option<CommitId>,
    /// In key order.
    pub resources: Vec<Arc<Resource>>,
}

/// A lease someone holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// What it is for.
    pub name: String,
    /// Who holds it.
    pub holder: String,
    /// Raised by each new holder; carried as a [`Fence`].
    pub epoch: u64,
}

/// Why a store refused or failed.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Create of something that exists.
    #[error("{key} already exists")]
    AlreadyExists {
        /// What exists.
        key: ResourceKey,
    },
    /// Update or delete of something that does not exist.
    #[error("{key} does not exist")]
    NotFound {
        /// What is missing.
        key: ResourceKey,
    },
    /// The resource moved on since the caller read it.
    #[error("{key} is at revision {actual}, not at {expected}")]
    Conflict {
        /// Which resource.
        key: ResourceKey,
        /// What the caller believed.
        expected: Revision,
        /// What is stored.
        actual: Revision,
    },
    /// Two origins want one name.
    #[error("{key} belongs to {}, {} may not write it", origin_text(owner), origin_text(writer))]
    ForeignOrigin {
        /// Which resource.
        key: ResourceKey,
        /// Who owns it.
        owner: Origin,
        /// Who tried.
        writer: Origin,
    },
    /// A newer session or leader took over.
    #[error("lease {name} moved on to epoch {actual}, this writer holds {held}")]
    Fenced {
        /// Name of the lease.
        name: String,
        /// Epoch of the refused writer.
        held: u64,
        /// Epoch in force.
        actual: u64,
    },
    /// The file or database belongs to something else, or to a newer version.
    #[error("{0}")]
    Foreign(String),
    /// Something that is stored is not what was written. Says where and what to do.
    #[error("{0}")]
    Damaged(String),
    /// The database does not take writes now, for this reason; [`Store::health`] tells when it does again.
    /// Whether the batch is committed is as the reason says, which says nothing when it is not.
    #[error("the store cannot be written: {0}")]
    Unwritable(Arc<str>),
    /// The database failed. A batch is then not committed, unless the connection broke while the
    /// commit was under way and its fate could not be learnt, which `doing` says.
    #[error("{doing}: {source}")]
    Backend {
        /// What was being done.
        doing: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Global => "global".to_owned(),
        Origin::Zone(zone) => format!("zone {zone}"),
    }
}

/// Where resources live. Implementations: [`memory`], SQLite, Postgres.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Which history this is.
    fn identity(&self) -> StoreIdentity;

    /// Commits a batch. When this returns `Ok`, the batch survives a crash (memory excepted).
    ///
    /// # Errors
    /// Any [`StoreError`]; nothing of the batch is visible then.
    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError>;

    /// What happened after a point, at most about `limit` entries, whole batches. A store that reads from elsewhere ends
    /// a page after some megabytes of resources as well, and reads each of them once for a page.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError>;

    /// Everything, at one revision.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn snapshot(&self) -> Result<Snapshot, StoreError>;

    /// What became of resources. A store that keeps no history has none.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn history(&self, query: &HistoryQuery) -> Result<PastChanges, StoreError> {
        let _ = query;
        Ok(PastChanges::default())
    }

    /// Drops what of the history is beyond the limits, away from writers, and says how many changes that were.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn compact_history(&self, limits: &HistoryLimits) -> Result<u64, StoreError> {
        let _ = limits;
        Ok(0)
    }

    /// Makes the store one of another history, from a revision after `at_least` on, for whoever opens it next: this
    /// one is good for nothing but to be closed. Called when it was filled from a backup.
    ///
    /// # Errors
    /// [`StoreError::Backend`]; [`StoreError::Foreign`] for a store that keeps nothing.
    async fn go_on_as(&self, identity: StoreIdentity, at_least: Revision) -> Result<(), StoreError> {
        let _ = (identity, at_least);
        Err(StoreError::Foreign("this store keeps nothing, so nothing can be restored to it".to_owned()))
    }

    /// Wakes when the head may have moved. A hint: correctness comes from reading the feed.
    fn watch_head(&self) -> watch::Receiver<Revision>;

    /// Whether writes go through, and whether what is stored is sound. A store that cannot fail needs none.
    fn health(&self) -> watch::Receiver<StoreHealth> {
        watch::channel(StoreHealth::default()).1
    }

    /// Compares what is stored with what was written, away from writers and readers. What it finds shows
    /// in [`Store::health`].
    ///
    /// # Errors
    /// [`StoreError::Damaged`]; [`StoreError::Backend`] when it could not be read.
    async fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Takes the lease `name` for `holder` until `now + ttl`, by the clock of the store where it has
    /// one. Renews when `holder` has it (same epoch); takes over, with the next epoch, when it is free,
    /// expired or `steal` is set; `None` when someone else holds it.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        steal: bool,
    ) -> Result<Option<Lease>, StoreError>;

    /// Gives the lease back, if it is still at this epoch.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn release(&self, lease: &Lease) -> Result<(), StoreError>;

    /// Writes small documents that change often and never enter the feed (heartbeats, counters), in
    /// one statement; `None` removes one.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError>;

    /// Writes the document `document` under `key` if there is none or it is `instead_of`, and says which one is there
    /// then. Of several that do this at once one is first, and all are told so.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError>;

    /// All documents of [`Store::put_sessions`] whose key starts with `prefix`, in key order.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError>;

    /// The connections it has to a database, by what they are for. A store without connections has none.
    fn connections(&self) -> Vec<StoreConnections> {
        Vec::new()
    }

    /// Tells every process on this store, this one included, that there is something to look at. A hint: whoever
    /// waits for it also looks now and then. Nobody hears of it where no other process can be.
    ///
    /// # Errors
    /// [`StoreError::Backend`].
    async fn nudge(&self, nudge: Nudge) -> Result<(), StoreError> {
        let _ = nudge;
        Ok(())
    }

    /// What was told by [`Store::nudge`]. Closed where no other process can be.
    fn nudged(&self) -> watch::Receiver<Nudges> {
        watch::Sender::default().subscribe()
    }

    /// Commits what is queued, then lets go of files and connections. Later calls fail. A store that
    /// is dropped instead loses nothing that was acknowledged.
    async fn close(&self) {}
}
