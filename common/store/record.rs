//! The column form of a resource and of a change, the same in every SQL store.

mod raw;

use std::{
    collections::{BTreeMap, btree_map::Entry},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use sqlx::{ColumnIndex, Decode, FromRow, Row, Type};

pub(super) use self::raw::RawColumns;
use super::{
    Change, Changes, CommitId, Point, Revision, Snapshot, StoreError, StoreIdentity, checksum::Checksum,
    rows::LogEntry,
};
use crate::{
    model::{Labels, Origin, Resource, ResourceKey},
    registry,
};

/// Bytes of resources after which no further batch begins on a page of the feed. What is rewritten all the time would
/// otherwise be read as often as it was, and what is large all at once.
pub(super) const PAGE_BYTES: i64 = 8 << 20;

/// Every resource.
pub(super) const ALL_RESOURCES: &str = "\
    SELECT kind, mesh, name, origin_zone, display_name, labels, spec, status, \
        owner_kind, owner_mesh, owner_name, created, modified, revision, checksum \
    FROM resources ORDER BY kind, mesh, name";

/// A resource that is not as the change log says: a page may have gone back to what it held before, in which
/// every row fits its checksum.
pub(super) const OUT_OF_STEP: &str = "\
    SELECT l.kind, l.mesh, l.name FROM (\
        SELECT kind, mesh, name, op, revision, \
            ROW_NUMBER() OVER (PARTITION BY kind, mesh, name ORDER BY revision DESC) AS n FROM changes\
    ) l LEFT JOIN resources r ON r.kind = l.kind AND r.mesh = l.mesh AND r.name = l.name \
    WHERE l.n = 1 AND CASE l.op WHEN 'put' THEN r.revision IS NULL OR r.revision <> l.revision \
        ELSE r.revision IS NOT NULL END \
    UNION ALL \
    SELECT r.kind, r.mesh, r.name FROM resources r CROSS JOIN meta m \
    WHERE r.revision > m.oldest AND NOT EXISTS (SELECT 1 FROM changes c WHERE c.revision = r.revision \
        AND c.kind = r.kind AND c.mesh = r.mesh AND c.name = r.name) \
    LIMIT 1";

/// What [`OUT_OF_STEP`] found.
pub(super) fn out_of_step((kind, mesh, name): &(String, String, String)) -> StoreError {
    damaged(format_args!(
        "the row resource/{kind}/{mesh}/{name}, which is not at the revision its changes end at,"
    ))
}

/// The one row of `meta`.
pub(super) const META: &str = "SELECT store_id, epoch, revision AS head, oldest FROM meta";

/// Which commit made the head. No row where nothing tells, and `NULL` where an older version wrote it.
pub(super) const HEAD_COMMIT: &str =
    "SELECT c.commit_id FROM changes c JOIN meta m ON m.revision = c.revision LIMIT 1";

/// A row of `resources`.
#[derive(FromRow)]
pub(super) struct ResourceRecord {
    kind: String,
    mesh: String,
    name: String,
    origin_zone: String,
    display_name: String,
    labels: String,
    spec: Vec<u8>,
    status: Option<Vec<u8>>,
    owner_kind: Option<String>,
    owner_mesh: Option<String>,
    owner_name: Option<String>,
    created: i64,
    modified: i64,
    revision: i64,
    /// `NULL` where a version that knows no checksums wrote the row.
    checksum: Option<i64>,
}

impl ResourceRecord {
    /// The checksum of the row as it is.
    pub(super) fn sum(&self) -> i64 {
        RowColumns {
            kind: &self.kind,
            mesh: &self.mesh,
            name: &self.name,
            origin_zone: &self.origin_zone,
            display_name: &self.display_name,
            labels: &self.labels,
            spec: &self.spec,
            status: self.status.as_deref(),
            owner: [&self.owner_kind, &self.owner_mesh, &self.owner_name].map(Option::as_deref),
            created: self.created,
            modified: self.modified,
            revision: self.revision,
        }
        .sum()
    }

    /// Where it is, for a statement that writes the sum down.
    pub(super) fn place(&self) -> (&str, &str, &str) {
        (&self.kind, &self.mesh, &self.name)
    }

    /// The resource; `None` when it is, or belongs to something, of a kind unknown here.
    ///
    /// # Errors
    /// When the row is damaged: leaving it out would look like a delete.
    pub(super) fn into_resource(self) -> Result<Option<Arc<Resource>>, StoreError> {
        // Before anything is made of it: damage to the kind would hide the row.
        if self.checksum.is_some_and(|sum| sum != self.sum()) {
            return Err(damaged(format_args!("the row resource/{}/{}/{}", self.kind, self.mesh, self.name)));
        }
        let Some(key) = known_key(&self.kind, &self.mesh, &self.name) else { return Ok(None) };
        let owner = match (self.owner_kind, self.owner_mesh, self.owner_name) {
            (Some(kind), Some(mesh), Some(name)) => match known_key(&kind, &mesh, &name) {
                Some(owner) => Some(owner),
                None => return Ok(None),
            },
            _ => None,
        };
        let labels: Labels =
            serde_json::from_str(&self.labels).map_err(|_| damaged(format_args!("the labels of {key}")))?;
        Ok(Some(Arc::new(Resource {
            key,
            labels,
            spec: self.spec.into(),
            status: self.status.map(Into::into),
            origin: Origin::from_column(&self.origin_zone),
            owner,
            created: DateTime::from_timestamp_nanos(self.created),
            modified: DateTime::from_timestamp_nanos(self.modified),
            revision: self.revision.unsigned_abs(),
        })))
    }
}

/// A row is not what was written.
pub(super) fn damaged(what: std::fmt::Arguments<'_>) -> StoreError {
    StoreError::Damaged(format!("{what} is not what was written to the database: {WAY_ON}"))
}

/// What an operator can do.
pub(super) const WAY_ON: &str = "restore it from a backup, or, without one, let `salvage list` of this program \
    show what is damaged and how to go on without it";

/// A row of `meta`.
#[derive(FromRow)]
pub(super) struct MetaRecord {
    store_id: String,
    epoch: i64,
    head: i64,
    oldest: i64,
}

impl MetaRecord {
    pub(super) fn identity(&self) -> Result<StoreIdentity, StoreError> {
        let store_id =
            self.store_id.parse().map_err(|_| damaged(format_args!("the identity of the store")))?;
        Ok(StoreIdentity { store_id, epoch: self.epoch.unsigned_abs() })
    }

    pub(super) fn head(&self) -> Revision {
        self.head.unsigned_abs()
    }

    /// The log has what came after this revision.
    pub(super) fn oldest(&self) -> Revision {
        self.oldest.unsigned_abs()
    }

    /// Refuses to go on when the database is no longer the one that was opened.
    pub(super) fn must_be(&self, opened: StoreIdentity) -> Result<(), StoreError> {
        if self.identity()? == opened {
            return Ok(());
        }
        Err(StoreError::Foreign(
            "the database was replaced or restored under the running process: restart it, so that it \
             takes the new history as a new one"
                .to_owned(),
        ))
    }
}

/// The key, unless a newer version of this program wrote a kind unknown here.
fn known_key(kind: &str, mesh: &str, name: &str) -> Option<ResourceKey> {
    let known = registry::by_name(kind);
    if known.is_none() {
        tracing::warn!(
            kind,
            mesh,
            name,
            "the store holds a kind unknown to this version; it is kept, not served"
        );
    }
    Some(ResourceKey::new(known?, mesh, name))
}

/// Turns the rows of a feed query into the answer. A resource stands in the first row about it.
///
/// # Errors
/// When a row is damaged, or the store is not `opened` any more.
pub(super) fn changes<R>(rows: &[R], opened: StoreIdentity, after: Point) -> Result<Changes, StoreError>
where
    R: Row,
    for<'a> MetaRecord: FromRow<'a, R>,
    for<'a> ResourceRecord: FromRow<'a, R>,
    for<'a> &'a str: ColumnIndex<R>,
    for<'a> i64: Decode<'a, R::Database> + Type<R::Database>,
    for<'a> String: Decode<'a, R::Database> + Type<R::Database>,
{
    let failed = |error| StoreError::backend("decode the change feed", error);
    let Some(first) = rows.first() else {
        return Err(StoreError::Foreign(NO_META.to_owned()));
    };
    let meta = MetaRecord::from_row(first).map_err(failed)?;
    meta.must_be(opened)?;
    if after.revision < meta.oldest.unsigned_abs() {
        return Ok(Changes::Resync);
    }
    let there = first.try_get::<Option<i64>, _>("after_commit").map_err(failed)?.map(CommitId::from_column);
    if after.revision > meta.head() || !after.is_where(there) {
        return Ok(Changes::Parted);
    }
    let (mut changes, mut shown) = (Vec::new(), BTreeMap::new());
    let mut upto = Point { commit: after.commit.or(there), ..after };
    for row in rows {
        let Some(at) = row.try_get::<Option<i64>, _>("at").map_err(failed)? else { break };
        let commit = row.try_get::<Option<i64>, _>("commit_id").map_err(failed)?;
        upto = Point { revision: at.unsigned_abs(), commit: commit.map(CommitId::from_column) };
        let text = |column: &'static str| row.try_get::<String, _>(column).map_err(failed);
        let (kind, mesh, name) = (text("c_kind")?, text("c_mesh")?, text("c_name")?);
        let logged = LoggedColumns { revision: at, kind: &kind, mesh: &mesh, name: &name, op: &text("op")? };
        let sum = row.try_get::<Option<i64>, _>("c_checksum").map_err(failed)?;
        if sum.is_some_and(|sum| sum != logged.sum()) {
            return Err(damaged(format_args!("an entry of the change log at revision {at}")));
        }
        let Some(key) = known_key(&kind, &mesh, &name) else { continue };
        let told = match shown.entry(key) {
            Entry::Occupied(known) => known,
            Entry::Vacant(unknown) => {
                let first = match row.try_get::<Option<i64>, _>("revision").map_err(failed)? {
                    None => StateOnPage::Gone,
                    Some(_) => match ResourceRecord::from_row(row).map_err(failed)?.into_resource()? {
                        None => StateOnPage::Unknown,
                        Some(resource) => StateOnPage::There(resource),
                    },
                };
                unknown.insert_entry(first)
            }
        };
        let resource = match told.get() {
            StateOnPage::Unknown => continue,
            StateOnPage::Gone => None,
            StateOnPage::There(resource) => Some(Arc::clone(resource)),
        };
        changes.push(Change { revision: upto.revision, key: told.key().clone(), resource });
    }
    Ok(Changes::Since { changes, upto, head: meta.head() })
}

/// What became of a resource of which a page tells.
enum StateOnPage {
    There(Arc<Resource>),
    Gone,
    /// Of a kind that is unknown here, or of something that is.
    Unknown,
}

/// Turns the row of [`HEAD_COMMIT`] and those of [`ALL_RESOURCES`] into the answer.
///
/// # Errors
/// When a row is damaged.
pub(super) fn snapshot(
    meta: &MetaRecord,
    commit: Option<i64>,
    rows: Vec<ResourceRecord>,
) -> Result<Snapshot, StoreError> {
    let mut resources = Vec::with_capacity(rows.len());
    for row in rows {
        resources.extend(row.into_resource()?);
    }
    Ok(Snapshot { revision: meta.head(), commit: commit.map(CommitId::from_column), resources })
}

/// Said when the tables are there but the one row of `meta` is not.
pub(super) const NO_META: &str =
    "the database has the tables of a store but no identity: restore it from a backup, or use an empty one";

/// The values of one row of `resources`, ready to bind.
pub(super) struct Columns<'a> {
    pub(super) resource: &'a Resource,
    pub(super) labels: String,
}

impl<'a> Columns<'a> {
    pub(super) fn of(resource: &'a Resource) -> Self {
        // A map of strings always has a JSON form.
        Self { resource, labels: serde_json::to_string(&resource.labels).unwrap_or_else(|_| "{}".to_owned()) }
    }

    pub(super) fn owner(&self) -> (Option<&'a str>, Option<&'a str>, Option<&'a str>) {
        let owner = self.resource.owner.as_ref();
        (owner.map(|o| o.kind.name), owner.map(|o| &*o.mesh), owner.map(|o| &*o.name))
    }

    pub(super) fn sum(&self) -> i64 {
        let resource = self.resource;
        let (owner_kind, owner_mesh, owner_name) = self.owner();
        RowColumns {
            kind: resource.kind().name,
            mesh: resource.mesh(),
            name: resource.name(),
            origin_zone: resource.origin.as_column(),
            display_name: resource.display_name(),
            labels: &self.labels,
            spec: &resource.spec,
            status: resource.status.as_deref(),
            owner: [owner_kind, owner_mesh, owner_name],
            created: nanos(resource.created),
            modified: nanos(resource.modified),
            revision: number(resource.revision),
        }
        .sum()
    }
}

/// The values of one row of `resources`.
struct RowColumns<'a> {
    kind: &'a str,
    mesh: &'a str,
    name: &'a str,
    origin_zone: &'a str,
    display_name: &'a str,
    labels: &'a str,
    spec: &'a [u8],
    status: Option<&'a [u8]>,
    owner: [Option<&'a str>; 3],
    created: i64,
    modified: i64,
    revision: i64,
}

impl RowColumns<'_> {
    fn sum(&self) -> i64 {
        let texts = [self.kind, self.mesh, self.name, self.origin_zone, self.display_name, self.labels];
        let sum = texts.into_iter().fold(Checksum::default(), Checksum::text);
        let sum = sum.bytes(self.spec).optional(self.status);
        let sum = self.owner.iter().fold(sum, |sum, part| sum.optional(part.map(str::as_bytes)));
        [self.created, self.modified, self.revision].into_iter().fold(sum, Checksum::number).finish()
    }
}

/// The values of one row of `changes` that mean something to a reader.
pub(super) struct LoggedColumns<'a> {
    pub(super) revision: i64,
    pub(super) kind: &'a str,
    pub(super) mesh: &'a str,
    pub(super) name: &'a str,
    pub(super) op: &'a str,
}

impl LoggedColumns<'_> {
    pub(super) fn sum(&self) -> i64 {
        let place = Checksum::default().number(self.revision).text(self.kind).text(self.mesh).text(self.name);
        place.text(self.op).finish()
    }
}

impl<'a> From<&'a LogEntry> for LoggedColumns<'a> {
    fn from(entry: &'a LogEntry) -> Self {
        let ResourceKey { kind, mesh, name } = &entry.key;
        Self { revision: number(entry.revision), kind: kind.name, mesh, name, op: entry.op() }
    }
}

/// The sum of one row of `sessions`.
pub(super) fn session_sum(key: &str, document: &str) -> i64 {
    Checksum::default().text(key).text(document).finish()
}

/// The sum of the identity in `meta`.
pub(super) fn identity_sum(store_id: &str, epoch: i64) -> i64 {
    Checksum::default().text(store_id).number(epoch).finish()
}

/// Nanoseconds since 1970; what lies outside of 1677 to 2262 is moved to the nearest end.
pub(super) fn nanos(time: DateTime<Utc>) -> i64 {
    let end = if time.timestamp() < 0 { i64::MIN } else { i64::MAX };
    time.timestamp_nanos_opt().unwrap_or(end)
}

/// A revision, epoch or ordinal as a column; those never get near the end of `i64`.
pub(super) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl StoreError {
    /// The database failed while `doing`.
    pub(super) fn backend(
        doing: impl Into<String>,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Backend { doing: doing.into(), source: source.into() }
    }
}
