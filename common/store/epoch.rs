//! A store that goes on in another history: it was filled from a backup.

use super::{
    Revision, StoreIdentity,
    record::{identity_sum, number},
};

/// Identity, head and log of a store that goes on; its sum is last. Everybody who follows it takes all of it anew.
pub(super) const GO_ON: &str = "\
    UPDATE meta SET store_id = $1, epoch = $2, \
        revision = CASE WHEN revision < $3 THEN $3 ELSE revision END + 1, \
        oldest = CASE WHEN revision < $3 THEN $3 ELSE revision END + 1";
/// Nothing is known of what was before.
pub(super) const FORGET: [&str; 3] = [
    "DELETE FROM changes",
    "DELETE FROM history",
    "UPDATE history_floor SET revision = (SELECT MAX(revision) FROM meta)",
];

/// The values of the first statement, and the sum.
pub(super) fn columns(identity: StoreIdentity, at_least: Revision) -> (String, i64, i64, i64) {
    let (store_id, epoch) = (identity.store_id.to_string(), number(identity.epoch));
    let sum = identity_sum(&store_id, epoch);
    (store_id, epoch, number(at_least), sum)
}
