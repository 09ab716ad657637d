//! A whole store as text, and a store filled from it: the same for every implementation, so that what was on SQLite
//! can go on on Postgres.
//!
//! One JSON document a line: what this is, then the resources at one revision, then the session documents, and last
//! how many lines there were with the sum over them, so that a part is not taken for the whole. The history and
//! the leases are not in it.

mod lines;

use std::io::{self, BufRead};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use self::lines::{BackupLine, CountedLines};
pub use self::lines::{BackupLines, resource_from_json, resource_to_json};
use super::{Batch, Precondition, Revision, Snapshot, Store, StoreError, StoreIdentity, Write};
use crate::model::Resource;

/// The form of the text.
const FORM: u32 = 1;
/// Longest line: the largest resource, in base64, with room for its labels.
const LONGEST: u64 = 64 << 20;

/// A store at one revision.
pub struct Backup {
    /// What this is.
    pub header: BackupHeader,
    /// All resources.
    pub resources: Vec<Resource>,
    /// All session documents.
    pub sessions: Vec<(String, String)>,
}

/// Which store it was, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackupHeader {
    /// The form of what follows.
    pub form: u32,
    /// Of the store.
    pub store_id: Uuid,
    /// Of the store.
    pub epoch: u64,
    /// Of everything in it.
    pub revision: Revision,
    /// When it was made.
    pub at: DateTime<Utc>,
}

/// Why a store was not filled.
#[derive(Debug, Error)]
pub enum BackupError {
    /// The text cannot be read.
    #[error("read the backup: {0}")]
    Unread(#[from] io::Error),
    /// The text is not what was written.
    #[error("line {line} of the backup: {reason}")]
    Line {
        /// Which line, from 1.
        line: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// There is something in the store.
    #[error("the store holds {0} resources: name an empty one, or let them be replaced (--replace)")]
    Occupied(usize),
    /// The store.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl BackupHeader {
    fn of(identity: StoreIdentity, revision: Revision, at: DateTime<Utc>) -> Self {
        Self { form: FORM, store_id: identity.store_id, epoch: identity.epoch, revision, at }
    }
}

/// The lines of a backup of `store`, at one revision; writers are not held up.
///
/// # Errors
/// [`StoreError`] when it cannot be read.
pub async fn take(store: &dyn Store, now: DateTime<Utc>) -> Result<BackupLines, StoreError> {
    // The documents first: of two replicas one may take the store over between the two, never back.
    let sessions = store.sessions("").await?;
    let Snapshot { revision, resources, .. } = store.snapshot().await?;
    Ok(BackupLines::new(BackupHeader::of(store.identity(), revision, now), resources, sessions))
}

impl Backup {
    /// Reads all of it, and believes nothing that is not whole.
    ///
    /// # Errors
    /// [`BackupError::Line`] and [`BackupError::Unread`].
    pub fn read(text: impl BufRead) -> Result<Self, BackupError> {
        let mut lines = CountedLines::new(text, LONGEST);
        let Some(BackupLine::Backup(header)) = lines.next()? else {
            return Err(lines.wrong("this is no backup of a control plane"));
        };
        if header.form != FORM {
            return Err(lines.wrong(&format!("its form is {}, and {FORM} is known here", header.form)));
        }
        let mut backup = Self { header, resources: Vec::new(), sessions: Vec::new() };
        loop {
            match lines.next()? {
                Some(BackupLine::Resource(resource)) => {
                    let resource = resource.into_resource().map_err(|reason| lines.wrong(&reason))?;
                    backup.resources.push(resource);
                }
                Some(BackupLine::Session { key, document }) => backup.sessions.push((key, document)),
                Some(BackupLine::End(_)) => return Ok(backup),
                Some(BackupLine::Backup(_)) => return Err(lines.wrong("a second backup begins here")),
                None => return Err(lines.wrong("it ends too early: a part is missing")),
            }
        }
    }

    /// Puts it in place of everything in `store`, which nobody else may use meanwhile, and returns the history it
    /// goes on in: that of the backup in a later epoch, so that who follows it knows that it went back on purpose.
    /// When that fails half way, it can be done again.
    ///
    /// # Errors
    /// [`BackupError::Occupied`] unless what is there may be replaced; [`BackupError::Store`].
    pub async fn restore(
        self,
        store: &dyn Store,
        known: Option<StoreIdentity>,
        replace: bool,
    ) -> Result<StoreIdentity, BackupError> {
        let there = store.snapshot().await?;
        if !there.resources.is_empty() && !replace {
            return Err(BackupError::Occupied(there.resources.len()));
        }
        let deletes = there
            .resources
            .iter()
            .map(|resource| Write::delete_when(resource.key.clone(), Precondition::None));
        let puts = self.resources.into_iter().map(Write::put);
        store.transact(Batch::of(deletes.chain(puts))).await?;
        let gone = store.sessions("").await?.into_iter().map(|(key, _)| (key, None));
        let documents = self.sessions.into_iter().map(|(key, document)| (key, Some(document)));
        store.put_sessions(gone.chain(documents).collect()).await?;
        // The epoch an operator raised without the store knowing counts as well.
        let own = StoreIdentity { store_id: self.header.store_id, epoch: self.header.epoch };
        let followed = known.unwrap_or(own);
        let present = store.identity();
        let same = [own, present].into_iter().filter(|other| other.store_id == followed.store_id);
        let epoch = same.map(|other| other.epoch).fold(followed.epoch, u64::max).saturating_add(1);
        let next = StoreIdentity { store_id: followed.store_id, epoch };
        store.go_on_as(next, self.header.revision).await?;
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
