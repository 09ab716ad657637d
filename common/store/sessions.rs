//! What the SQL stores share about session documents.

use std::collections::BTreeMap;

use sqlx::{FromRow, Row};

use super::{
    StoreError,
    record::{damaged, session_sum},
};

/// Documents by key prefix.
pub(super) const WITH_PREFIX: &str = "\
    SELECT key, document, checksum FROM sessions \
    WHERE key >= $1 AND substr(key, 1, length($1)) = $1 ORDER BY key";

/// Writes `$2`, with its sum `$3`, under the key `$1` if there is none or it is `$4`. What is there otherwise is written
/// again as it is, so that the statement that looked also answers.
pub(super) const CLAIM: &str = "\
    INSERT INTO sessions AS held (key, document, checksum) VALUES ($1, $2, $3) \
    ON CONFLICT (key) DO UPDATE SET \
        document = CASE WHEN held.document = $4 THEN excluded.document ELSE held.document END, \
        checksum = CASE WHEN held.document = $4 THEN excluded.checksum ELSE held.checksum END \
    RETURNING document";

/// The documents of a query [`WITH_PREFIX`].
///
/// # Errors
/// When one is damaged.
pub(super) fn read<R>(rows: &[R]) -> Result<Vec<(String, String)>, StoreError>
where
    R: Row,
    for<'a> (String, String, Option<i64>): FromRow<'a, R>,
{
    let mut documents = Vec::with_capacity(rows.len());
    for row in rows {
        let decoded = <(String, String, Option<i64>)>::from_row(row);
        let (key, document, sum) =
            decoded.map_err(|error| StoreError::backend("read session documents", error))?;
        if sum.is_some_and(|sum| sum != session_sum(&key, &document)) {
            return Err(damaged(format_args!("the session document {key}")));
        }
        documents.push((key, document));
    }
    Ok(documents)
}

/// What stays, as pairs, and the keys of what goes. The last word on a key counts.
pub(super) fn split(rows: Vec<(String, Option<String>)>) -> (Vec<(String, String)>, Vec<String>) {
    let mut kept = Vec::new();
    let mut removed = Vec::new();
    for (key, document) in rows.into_iter().collect::<BTreeMap<_, _>>() {
        match document {
            Some(document) => kept.push((key, document)),
            None => removed.push(key),
        }
    }
    (kept, removed)
}
