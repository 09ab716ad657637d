//! Who asked for what, and what came of it: every write, and every look at what only some may see.
//!
//! The newest entries are kept to be searched; all of them go to a file, or to standard output, as JSON, one a line.
//! An entry says a path and never a body or a query, so there is no secret in it. Callers nobody vouches for have
//! room of their own: they cannot crowd out the others, in memory or in the file.

mod file;
mod strangers;

use std::{
    cmp::Reverse,
    collections::VecDeque,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use self::file::{AuditFile, AuditFileError};
use self::strangers::StrangersShare;

/// Entries about callers who are known that can be searched.
const KEPT: usize = 10_000;
/// The same about others.
const KEPT_OF_STRANGERS: usize = 1_000;
/// Lines that may wait to be written.
const QUEUE: usize = 1_024;

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
    /// Entries about callers nobody vouches for that were not written before this one: too many at once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
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
#[derive(Default)]
pub struct AuditLog {
    kept: Mutex<KeptEntries>,
    lines: Option<mpsc::Sender<String>>,
}

#[derive(Default)]
struct KeptEntries {
    known: VecDeque<AuditEntry>,
    strangers: VecDeque<AuditEntry>,
    share: StrangersShare,
}

impl KeptEntries {
    fn push(&mut self, entry: AuditEntry, is_known: bool) {
        let (entries, most) = match is_known {
            true => (&mut self.known, KEPT),
            false => (&mut self.strangers, KEPT_OF_STRANGERS),
        };
        if entries.len() >= most {
            entries.pop_front();
        }
        entries.push_back(entry);
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
        let mut kept = KeptEntries::default();
        if target != file::STDOUT {
            for entry in file::entries(Path::new(target)) {
                let is_known = entry.groups.iter().any(|group| group == crate::access::AUTHENTICATED);
                kept.push(entry, is_known);
            }
        }
        Ok((Self { kept: Mutex::new(kept), lines: Some(lines) }, file))
    }

    /// Takes down one request of somebody who is known, or not.
    pub fn record(&self, mut entry: AuditEntry, is_known: bool) {
        if let Some(lines) = &self.lines
            && (is_known || self.has_room(&mut entry))
        {
            // Texts and numbers always have a JSON form.
            let line = serde_json::to_string(&entry).unwrap_or_default();
            if lines.try_send(line).is_err() {
                metrics::counter!("audit_lines_lost_total").increment(1);
                tracing::warn!("an entry of the audit log was not written: its file does not keep up");
            }
        }
        self.lock().push(entry, is_known);
    }

    /// Whether an entry about a stranger is written, which says then what was not.
    fn has_room(&self, entry: &mut AuditEntry) -> bool {
        let room = self.lock().share.allow(entry.at);
        entry.left_out = room.unwrap_or(0);
        room.is_some()
    }

    /// The newest entries first, at most `limit`.
    pub fn search(&self, query: &AuditQuery, limit: usize) -> Vec<AuditEntry> {
        let kept = self.lock();
        let of = |entries: &VecDeque<AuditEntry>| -> Vec<AuditEntry> {
            entries.iter().rev().filter(|entry| query.asks_for(entry)).take(limit).cloned().collect()
        };
        let mut found = of(&kept.known);
        found.extend(of(&kept.strangers));
        drop(kept);
        found.sort_by_key(|entry| Reverse(entry.at));
        found.truncate(limit);
        found
    }

    fn lock(&self) -> MutexGuard<'_, KeptEntries> {
        // Nothing in between can panic.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
