//! What the SQL stores share about session documents.

use std::collections::BTreeMap;

/// Documents by key prefix.
pub(super) const WITH_PREFIX: &str = "\
    SELECT key, document FROM sessions WHERE key >= $1 AND substr(key, 1, length($1)) = $1 ORDER BY key";

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
