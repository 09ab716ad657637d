//! Who asked for what, and what came of it: every write, and every look at what only some may see.
//!
//! The newest entries are kept to be searched; all of them go to a file, or to standard output, as JSON, one a line.
//! An entry says a path and never a body or a query, so there is no secret in it. Callers nobody vouches for have
//! room of their own, and so has each user for what changed nothing: they cannot crowd out the others, in memory or in the
//! file.

mod file;
mod kept;
mod share;

use std::{
    cmp::Reverse,
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use self::file::{AuditFile, AuditFileError};
use crate::{access::User, clip::clip};

use self::{
    file::AuditLine,
    kept::KeptEntries,
    share::{LineShare, UserShares},
};

/// Entries about callers who are known that can be searched.
const KEPT: usize = 10_000;
/// Those of one user among them, once there is no room for more.
const KEPT_OF_USER: usize = KEPT / 4;
/// The same about others.
const KEPT_OF_STRANGERS: usize = 1_000;
/// Lines that may wait to be written.
const QUEUE: usize = 4_096;
/// Those of one user, or of all strangers.
const QUEUE_OF_USER: usize = QUEUE / 4;

/// One request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// When it was answered.
    pub at: DateTime<Utc>,
    /// Who asked.
    pub user: String,
    /// As a member of which groups.
    pub groups: Vec<String>,
    /// From which address; none when it did not come over a connection.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub from: String,
    /// The method of HTTP.
    pub method: String,
    /// What was asked for, without the query.
    pub path: String,
    /// The type of resource it was about, if it was about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// The same as a status of HTTP.
    pub status: u16,
    /// The revision of a write.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<u64>,
    /// Entries about this user, or about callers nobody vouches for, that were not written before this one: too many at
    /// once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Whether something is not as it was: this has a line, whatever else was asked. Known while the process runs.
    #[serde(skip)]
    pub changed: bool,
}

/// Longest text of a caller that is kept.
const LONGEST: usize = 512;
/// Groups of a user that are kept.
const GROUPS: usize = 32;

impl AuditEntry {
    /// What `user` asked for from this address, by method and path, and as a status of HTTP what came of it.
    pub fn new(
        at: DateTime<Utc>,
        user: &User,
        from: String,
        (method, path): (&str, &str),
        status: u16,
    ) -> Self {
        Self {
            at,
            user: clip(&user.name, LONGEST).to_owned(),
            groups: user.groups.iter().take(GROUPS).map(|group| clip(group, LONGEST).to_owned()).collect(),
            from,
            method: method.to_owned(),
            path: clip(path, LONGEST).to_owned(),
            kind: None,
            outcome: AuditOutcome::of(status),
            status,
            revision: None,
            left_out: 0,
            changed: false,
        }
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// The caller may not, or did not show who he is.
    Refused,
    /// It could not be done.
    Failed,
}

impl AuditOutcome {
    /// What an HTTP status means.
    pub fn of(status: u16) -> Self {
        match status {
            401 | 403 => Self::Refused,
            ..=399 => Self::Done,
            _ => Self::Failed,
        }
    }
}

/// Which entries are looked for.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    /// By this user.
    pub user: Option<String>,
    /// About this type of resource.
    pub kind: Option<String>,
    /// With this outcome.
    pub outcome: Option<AuditOutcome>,
    /// Not before this time.
    pub since: Option<DateTime<Utc>>,
}

impl AuditQuery {
    fn asks_for(&self, entry: &AuditEntry) -> bool {
        self.user.as_ref().is_none_or(|user| *user == entry.user)
            && self.kind.as_ref().is_none_or(|kind| Some(kind) == entry.kind.as_ref())
            && self.outcome.is_none_or(|outcome| outcome == entry.outcome)
            && self.since.is_none_or(|since| entry.at >= since)
    }
}

/// The entries of one process.
#[derive(Debug, Default)]
pub struct AuditLog {
    inner: Mutex<AuditState>,
    lines: Option<mpsc::Sender<AuditLine>>,
    /// Lines of each user that wait to be written; of nobody's by no name.
    waiting: Arc<WaitingLines>,
}

#[derive(Debug)]
struct AuditState {
    known: KeptEntries,
    strangers: KeptEntries,
    of_users: UserShares,
    of_strangers: LineShare,
}

/// How many lines wait, by whose they are.
type WaitingLines = Mutex<HashMap<String, usize>>;

impl Default for AuditState {
    fn default() -> Self {
        Self {
            known: KeptEntries::new(KEPT, KEPT_OF_USER),
            strangers: KeptEntries::new(KEPT_OF_STRANGERS, KEPT_OF_STRANGERS),
            of_users: UserShares::default(),
            of_strangers: LineShare::default(),
        }
    }
}

impl AuditState {
    fn push(&mut self, entry: AuditEntry, is_known: bool) {
        if is_known { self.known.push(entry) } else { self.strangers.push(entry) }
    }
}

impl AuditLog {
    /// A log that writes to `target` as well, a file or `stdout`; the file is to be run as a task. What the file
    /// holds already can be searched again.
    ///
    /// # Errors
    /// When the file cannot be used.
    pub fn to(target: &str, longest: u64) -> Result<(Self, AuditFile), AuditFileError> {
        let (lines, waiting) = mpsc::channel(QUEUE);
        let file = AuditFile::open(target, longest, waiting)?;
        let mut kept = AuditState::default();
        if target != file::STDOUT {
            for entry in file::entries(Path::new(target)) {
                let is_known = entry.groups.iter().any(|group| group == crate::access::AUTHENTICATED);
                kept.push(entry, is_known);
            }
        }
        Ok((Self { inner: Mutex::new(kept), lines: Some(lines), waiting: Arc::default() }, file))
    }

    /// Takes down one request of somebody who is known, or not.
    pub fn record(&self, mut entry: AuditEntry, is_known: bool) {
        if let Some(lines) = &self.lines
            && self.has_room(&mut entry, is_known)
        {
            // Texts and numbers always have a JSON form.
            let text = serde_json::to_string(&entry).unwrap_or_default();
            let whose = if is_known { entry.user.as_str() } else { "" };
            let line = AuditLine::new(text, whose, &self.waiting);
            if line.is_none_or(|line| lines.try_send(line).is_err()) {
                metrics::counter!("audit_lines_lost_total").increment(1);
                tracing::warn!("an entry of the audit log was not written: its file does not keep up");
            }
        }
        self.lock().push(entry, is_known);
    }

    /// Whether an entry is written, which says then what was not before it.
    fn has_room(&self, entry: &mut AuditEntry, is_known: bool) -> bool {
        let mut inner = self.lock();
        let room = match is_known {
            true => inner.of_users.allow(&entry.user, entry.at, entry.changed),
            false => inner.of_strangers.allow(entry.at),
        };
        entry.left_out = room.unwrap_or(0);
        room.is_some()
    }

    /// The newest entries first, at most `limit`.
    pub fn search(&self, query: &AuditQuery, limit: usize) -> Vec<AuditEntry> {
        let kept = self.lock();
        let of = |entries: &KeptEntries| -> Vec<AuditEntry> {
            entries.newest().filter(|entry| query.asks_for(entry)).take(limit).cloned().collect()
        };
        let mut found = of(&kept.known);
        found.extend(of(&kept.strangers));
        drop(kept);
        found.sort_by_key(|entry| Reverse(entry.at));
        found.truncate(limit);
        found
    }

    fn lock(&self) -> MutexGuard<'_, AuditState> {
        // Nothing in between can panic.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
