//! The column form of a past change, and what is asked of its table, the same in every SQL store.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use chrono::DateTime;
use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::{
    StoreError,
    checksum::Checksum,
    history::{Author, HistoryOp, HistoryQuery, PastChange, PastChanges},
    record::{nanos, number},
};
use crate::{
    model::{Labels, Origin, Resource, ResourceKey, Revision},
    registry,
};

macro_rules! select {
    ($condition:literal, $order:literal) => {
        concat!(
            "SELECT revision, kind, mesh, name, op, author, at, \
            CASE WHEN $9 THEN before ELSE NULL END AS before, checksum FROM history WHERE ",
            $condition,
            " AND revision > $4 AND revision <= $5 AND at >= $6 AND ($7 = '' OR author = $7) ORDER BY ",
            $order,
            " LIMIT $8"
        )
    };
}

/// Of one resource, the newest first.
pub(super) const OF_ONE: &str =
    select!("kind = $1 AND mesh = $2 AND name = $3", "revision DESC, kind, mesh, name");
/// Of one resource, the oldest first.
pub(super) const OF_ONE_OLDEST: &str =
    select!("kind = $1 AND mesh = $2 AND name = $3", "revision, kind, mesh, name");
/// Of all, or those of a kind or mesh, the newest first.
pub(super) const OF_ALL: &str = select!(
    "($1 = '' OR kind = $1) AND ($2 = '' OR mesh = $2) AND ($3 = '' OR name = $3)",
    "revision DESC, kind, mesh, name"
);
/// The same, the oldest first.
pub(super) const OF_ALL_OLDEST: &str = select!(
    "($1 = '' OR kind = $1) AND ($2 = '' OR mesh = $2) AND ($3 = '' OR name = $3)",
    "revision, kind, mesh, name"
);
/// The floor, and the oldest of what users did where something is gone. Read after the changes: both only rise, so what lies
/// above them was there.
pub(super) const FLOOR: &str = "\
    SELECT revision, CASE WHEN revision > 0 \
        THEN (SELECT MIN(revision) FROM history WHERE author >= 'user ' AND author < 'user!') END FROM history_floor";

/// The newest revision that goes when nothing may be older than `$1`, in milliseconds since 1970. What is old goes only when
/// everything before it is old as well: a clock may have been wrong for a while.
pub(super) const AGED: &str = "\
    SELECT COALESCE((SELECT MIN(revision) - 1 FROM history WHERE at >= CAST($1 AS BIGINT)), \
        (SELECT MAX(revision) FROM history))";
/// Says that something went: from here on nothing is missing.
pub(super) const RAISE_FLOOR: &str = "UPDATE history_floor SET revision = $1 WHERE revision < $1";

/// What was replaced, as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredBefore {
    labels: Labels,
    /// In base64.
    spec: String,
    origin: String,
    owner: Option<[String; 3]>,
    created: i64,
    modified: i64,
    revision: Revision,
}

impl StoredBefore {
    fn of(resource: &Resource) -> Self {
        let owner = resource.owner.as_ref();
        Self {
            labels: resource.labels.clone(),
            spec: BASE64_STANDARD.encode(&resource.spec),
            origin: resource.origin.as_column().to_owned(),
            owner: owner.map(|o| [o.kind.name.to_owned(), o.mesh.to_string(), o.name.to_string()]),
            created: nanos(resource.created),
            modified: nanos(resource.modified),
            revision: resource.revision,
        }
    }

    /// `None` when it belongs to something of a kind unknown here, or is not what was written.
    fn into_resource(self, key: ResourceKey) -> Option<Resource> {
        let owner = match self.owner {
            None => None,
            Some([kind, mesh, name]) => Some(ResourceKey::new(registry::by_name(&kind)?, &mesh, &name)),
        };
        Some(Resource {
            key,
            labels: self.labels,
            spec: Bytes::from(BASE64_STANDARD.decode(self.spec).ok()?),
            status: None,
            origin: Origin::from_column(&self.origin),
            owner,
            created: DateTime::from_timestamp_nanos(self.created),
            modified: DateTime::from_timestamp_nanos(self.modified),
            revision: self.revision,
        })
    }
}

/// The values of one row, ready to bind; the database adds the time.
pub(super) struct HistoryColumns<'a> {
    pub(super) change: &'a PastChange,
    pub(super) author: String,
    pub(super) before: Option<Vec<u8>>,
}

impl<'a> HistoryColumns<'a> {
    pub(super) fn of(change: &'a PastChange) -> Self {
        // Texts and numbers always have a JSON form.
        let json = |before: &Arc<Resource>| serde_json::to_vec(&StoredBefore::of(before)).unwrap_or_default();
        Self { change, author: change.author.to_string(), before: change.before.as_ref().map(json) }
    }

    pub(super) fn bytes(&self) -> i64 {
        number(self.before.as_ref().map_or(0, Vec::len) as u64)
    }

    pub(super) fn sum(&self) -> i64 {
        let key = &self.change.key;
        let texts = [key.kind.name, &key.mesh, &key.name, self.change.op.as_str(), &self.author];
        sum(number(self.change.revision), texts, self.before.as_deref())
    }
}

/// Without the time, which only the database knows.
fn sum(revision: i64, texts: [&str; 5], before: Option<&[u8]>) -> i64 {
    let sum = texts.into_iter().fold(Checksum::default().number(revision), Checksum::text);
    sum.optional(before).finish()
}

/// A row as it is read.
#[derive(FromRow)]
pub(super) struct HistoryRecord {
    revision: i64,
    kind: String,
    mesh: String,
    name: String,
    op: String,
    author: String,
    at: i64,
    before: Option<Vec<u8>>,
    checksum: i64,
}

impl HistoryRecord {
    /// The change; `None` when it is about a kind unknown here.
    ///
    /// # Errors
    /// When the row is damaged, which stops nothing but this: nobody but who asks depends on it.
    pub(super) fn into_change(self, contents: bool) -> Result<Option<PastChange>, StoreError> {
        let place = format!("{}/{}/{} at revision {}", self.kind, self.mesh, self.name, self.revision);
        let damaged = || {
            let what = format!("the entry {place} is not what was written");
            StoreError::backend("read the history", what)
        };
        let texts = [&*self.kind, &self.mesh, &self.name, &self.op, &self.author];
        // The sum is over all of the row, so it can be looked at only where all of it was read.
        if contents && self.checksum != sum(self.revision, texts, self.before.as_deref()) {
            return Err(damaged());
        }
        let Some(kind) = registry::by_name(&self.kind) else { return Ok(None) };
        let key = ResourceKey::new(kind, &self.mesh, &self.name);
        let before = match self.before.filter(|_| contents) {
            None => None,
            Some(json) => {
                let stored: StoredBefore = serde_json::from_slice(&json).map_err(|_| damaged())?;
                Some(Arc::new(stored.into_resource(key.clone()).ok_or_else(damaged)?))
            }
        };
        Ok(Some(PastChange {
            revision: self.revision.unsigned_abs(),
            key,
            op: HistoryOp::parse(&self.op).ok_or_else(damaged)?,
            author: Author::Recorded(self.author.into()),
            at: DateTime::from_timestamp_millis(self.at).unwrap_or_default(),
            before,
        }))
    }
}

/// The answer to `query` that these rows are.
///
/// # Errors
/// When one is damaged.
pub(super) fn changes(
    (floor, oldest): (i64, Option<i64>),
    rows: Vec<HistoryRecord>,
    query: &HistoryQuery,
) -> Result<PastChanges, StoreError> {
    let mut changes = Vec::with_capacity(rows.len());
    for row in rows {
        changes.extend(row.into_change(query.contents)?);
    }
    let floor = floor.unsigned_abs();
    let users_floor = PastChanges::users_floor(floor, oldest.map(i64::unsigned_abs));
    Ok(PastChanges { floor, users_floor, changes })
}
