//! Where in a history somebody is.
//!
//! A revision alone does not say it. A database that lost its end, by a failover to a standby that was behind or by going
//! back to an earlier time, counts on from where it is and comes to the same revisions with other commits.

use crate::model::Revision;

/// Which commit made a revision: a number that no other commit has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CommitId(i64);

impl CommitId {
    /// That of a commit to a database.
    pub(super) fn by_chance() -> Self {
        Self(rand::random())
    }

    pub(super) fn column(self) -> i64 {
        self.0
    }

    pub(super) const fn from_column(column: i64) -> Self {
        Self(column)
    }
}

/// A revision and, where that is known, the commit that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Point {
    /// The revision.
    pub revision: Revision,
    /// The commit; `None` before the first one, for what an older version wrote, and for who did not hear of it.
    pub commit: Option<CommitId>,
}

impl Point {
    /// Whether it lies in the history of a store where `stored` made this revision. What either does not know speaks
    /// against nothing.
    pub(super) fn is_where(self, stored: Option<CommitId>) -> bool {
        self.commit.zip(stored).is_none_or(|(known, stored)| known == stored)
    }
}

impl From<Revision> for Point {
    fn from(revision: Revision) -> Self {
        Self { revision, commit: None }
    }
}
