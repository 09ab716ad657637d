//! What became of each resource, change by change, and who changed it.
//!
//! A change keeps what it replaced. So the resource at any revision is what the next change replaced, or what is
//! stored now, and nothing has to be there from before the history began. Entries are written in the transaction
//! of the change and dropped away from it, of each author the oldest first (module `shares`). So everything after one
//! revision, the floor, is complete; of what is older, some may be there still.

use std::{fmt, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};

use crate::{
    clip::clip,
    model::{Kind, Resource, ResourceKey, Revision},
};

/// Longest name of an author that is kept, in bytes.
const LONGEST_AUTHOR: usize = 256;

/// Before the name of a user.
pub(super) const USER: &str = "user ";
/// Before the name of a zone.
pub(super) const ZONE: &str = "zone ";
/// The control plane itself.
pub(super) const CONTROL_PLANE: &str = "control plane";
/// Global, in a zone.
pub(super) const GLOBAL: &str = "global";

/// Who changed something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Author {
    /// The control plane itself.
    #[default]
    ControlPlane,
    /// Somebody who asked for it over the API.
    User(String),
    /// A zone, which owns what it sent.
    Zone(String),
    /// Global, which a zone follows.
    Global,
    /// A file of the folder of resources.
    File,
    /// As a store knows the author; what another version wrote is kept in its words.
    Recorded(Arc<str>),
}

impl Author {
    /// Whether somebody asked for the change, rather than a control plane or a file, which would do so again.
    pub fn is_operator(&self) -> bool {
        match self {
            Self::User(_) => true,
            Self::Recorded(text) => text.starts_with(USER),
            Self::ControlPlane | Self::Zone(_) | Self::Global | Self::File => false,
        }
    }
}

impl fmt::Display for Author {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ControlPlane => f.write_str(CONTROL_PLANE),
            Self::User(name) => write!(f, "{USER}{}", kept(name)),
            Self::Zone(name) => write!(f, "{ZONE}{}", kept(name)),
            Self::Global => f.write_str(GLOBAL),
            Self::File => f.write_str("file"),
            Self::Recorded(text) => f.write_str(text),
        }
    }
}

/// What is kept of a name. Not every database takes a text with a zero byte.
fn kept(name: &str) -> String {
    clip(name, LONGEST_AUTHOR).replace('\0', "")
}

/// What was done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryOp {
    /// It was not there before.
    Create,
    /// It was another one before.
    Update,
    /// It is gone.
    Delete,
}

impl HistoryOp {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
        }
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        [Self::Create, Self::Update, Self::Delete].into_iter().find(|op| op.as_str() == text)
    }
}

/// One change to one resource.
#[derive(Clone, Debug, PartialEq)]
pub struct PastChange {
    /// Of the batch that made it.
    pub revision: Revision,
    /// To what.
    pub key: ResourceKey,
    /// What was done.
    pub op: HistoryOp,
    /// By whom.
    pub author: Author,
    /// When, by the clock of the store.
    pub at: DateTime<Utc>,
    /// What was there before, without its status. `None` for a create, for kinds whose contents are not kept,
    /// and when contents were not asked for.
    pub before: Option<Arc<Resource>>,
}

impl PastChange {
    /// What a batch did to `key`, if that is kept. Statuses are written by control planes, often, and are no part
    /// of it.
    pub(super) fn of(
        revision: Revision,
        key: &ResourceKey,
        (was, is): (Option<&Arc<Resource>>, Option<&Arc<Resource>>),
        author: &Author,
    ) -> Option<Self> {
        if !keeps_history(key.kind) {
            return None;
        }
        let op = match (was, is) {
            (None, Some(_)) => HistoryOp::Create,
            (Some(was), Some(is)) if !is_same(was, is) => HistoryOp::Update,
            (Some(_), None) => HistoryOp::Delete,
            _ => return None,
        };
        let before = was.filter(|_| keeps_contents(key.kind)).cloned();
        // SQL stores know the time better: all replicas share their clock.
        let at = is.or(was).map_or(DateTime::UNIX_EPOCH, |resource| resource.modified);
        Some(Self { revision, key: key.clone(), op, author: author.clone(), at, before })
    }
}

fn is_same(was: &Resource, is: &Resource) -> bool {
    was.spec == is.spec && was.labels == is.labels && was.owner == is.owner && was.origin == is.origin
}

/// Whether changes to resources of `kind` are kept. Not what control planes see and what proxies say about
/// themselves: it changes all the time, and nobody takes it back.
pub fn keeps_history(kind: &Kind) -> bool {
    !kind.is_insight && !kind.is_proxy && !kind.path.is_empty()
}

/// Whether it is kept what resources of `kind` held. Secrets are not: who deletes one wants it gone.
pub fn keeps_contents(kind: &Kind) -> bool {
    keeps_history(kind) && !kind.admin_only
}

/// Which changes are asked for.
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    /// Of this resource.
    pub key: Option<ResourceKey>,
    /// Of this kind.
    pub kind: Option<&'static Kind>,
    /// Of this mesh.
    pub mesh: Option<String>,
    /// By this author, as [`Author`] is written.
    pub author: Option<String>,
    /// After this revision.
    pub after: Revision,
    /// Up to and with this revision.
    pub until: Revision,
    /// Not before this time.
    pub since: Option<DateTime<Utc>>,
    /// The oldest ones first, rather than the newest.
    pub oldest_first: bool,
    /// At most so many.
    pub limit: usize,
    /// With what they replaced.
    pub contents: bool,
}

impl Default for HistoryQuery {
    fn default() -> Self {
        Self {
            key: None,
            kind: None,
            mesh: None,
            author: None,
            after: 0,
            until: Revision::MAX,
            since: None,
            oldest_first: false,
            limit: 100,
            contents: false,
        }
    }
}

impl HistoryQuery {
    pub(super) fn asks_for(&self, change: &PastChange) -> bool {
        self.key.as_ref().is_none_or(|key| *key == change.key)
            && self.kind.is_none_or(|kind| kind == change.key.kind)
            && self.mesh.as_ref().is_none_or(|mesh| **mesh == *change.key.mesh)
            && self.author.as_ref().is_none_or(|author| *author == change.author.to_string())
            && (self.after.saturating_add(1)..=self.until).contains(&change.revision)
            && self.since.is_none_or(|since| change.at >= since)
    }
}

/// An answer of the history.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastChanges {
    /// All that happened after this revision is known. What is older may lack something.
    pub floor: Revision,
    /// The same for what users did; no later than `floor`.
    pub users_floor: Revision,
    /// In the order that was asked for; within a revision by kind, mesh and name.
    pub changes: Vec<PastChange>,
}

impl PastChanges {
    /// The floor for what users did, when the oldest of that which is there is of this revision.
    pub(super) fn users_floor(floor: Revision, oldest: Option<Revision>) -> Revision {
        oldest.map_or(floor, |oldest| floor.min(oldest.saturating_sub(1)))
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistoryLimits {
    /// No longer than this.
    pub age: Duration,
    /// So many changes, shared out between their authors.
    pub changes: u64,
    /// What they replaced, in bytes, shared out likewise.
    pub bytes: u64,
}

impl HistoryLimits {
    /// The time in milliseconds since 1970 before which everything goes, when it is `now`.
    pub(super) fn oldest(&self, now: i64) -> i64 {
        now.saturating_sub(i64::try_from(self.age.as_millis()).unwrap_or(i64::MAX))
    }
}

impl HistoryQuery {
    /// Kind, mesh and name, each empty where it does not matter.
    pub(super) fn place(&self) -> [&str; 3] {
        match &self.key {
            Some(key) => [key.kind.name, &key.mesh, &key.name],
            None => [
                self.kind.map(|kind| kind.name).unwrap_or_default(),
                self.mesh.as_deref().unwrap_or_default(),
                "",
            ],
        }
    }

    pub(super) fn since_millis(&self) -> i64 {
        self.since.map_or(i64::MIN, |since| since.timestamp_millis())
    }
}
