//! How much of the history each class of authors may take: none pushes another's changes out of it.
//!
//! There are four classes: what people asked for and what files say, what the control plane did by itself, what global sent,
//! and what zones sent. While all of it fits, everybody has what he has. When it does not, those who have most give first, so
//! a class with no more than a quarter loses nothing. Zones do the same among themselves. People do not: an undo has to know
//! everything that users did since a revision, so of that the oldest goes, whoever made it.

use std::collections::BTreeMap;

use super::history::{CONTROL_PLANE, GLOBAL, HistoryLimits, ZONE};

/// Whose changes are counted together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum HistoryShare {
    /// Users and files, and whomever another version names.
    People,
    /// The control plane itself.
    ControlPlane,
    /// Global, in a zone.
    Global,
    /// The zone of this name.
    Zone(String),
}

impl HistoryShare {
    /// That of an author, as it is written.
    pub(super) fn of(author: &str) -> Self {
        match author {
            CONTROL_PLANE => Self::ControlPlane,
            GLOBAL => Self::Global,
            _ => author.strip_prefix(ZONE).map_or(Self::People, |zone| Self::Zone(zone.to_owned())),
        }
    }

    /// Its only author, as it is written; empty for [`HistoryShare::People`].
    pub(super) fn author(&self) -> String {
        match self {
            Self::People => String::new(),
            Self::ControlPlane => CONTROL_PLANE.to_owned(),
            Self::Global => GLOBAL.to_owned(),
            Self::Zone(zone) => format!("{ZONE}{zone}"),
        }
    }

    /// Of the four classes.
    fn class(&self) -> usize {
        match self {
            Self::People => 0,
            Self::ControlPlane => 1,
            Self::Global => 2,
            Self::Zone(_) => ZONES,
        }
    }
}

const ZONES: usize = 3;

/// Changes, and bytes of what they replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) changes: u64,
    pub(super) bytes: u64,
}

impl Amount {
    /// So much more.
    pub(super) fn add(&mut self, changes: u64, bytes: u64) {
        self.changes = self.changes.saturating_add(changes);
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether this is more than may be.
    pub(super) fn exceeds(&self, most: Self) -> bool {
        self.changes > most.changes || self.bytes > most.bytes
    }
}

/// What there is of each share.
#[derive(Debug, Default)]
pub(super) struct HistoryShares {
    held: BTreeMap<HistoryShare, Amount>,
}

impl HistoryShares {
    /// Counts changes of `author`.
    pub(super) fn add(&mut self, author: &str, changes: u64, bytes: u64) {
        self.held.entry(HistoryShare::of(author)).or_default().add(changes, bytes);
    }

    /// The shares of which something has to go, with what may stay of each.
    pub(super) fn excessive(&self, limits: &HistoryLimits) -> Vec<(HistoryShare, Amount)> {
        let changes = self.allowed(limits.changes, |amount| amount.changes);
        let bytes = self.allowed(limits.bytes, |amount| amount.bytes);
        let most = |share: &HistoryShare| Amount { changes: changes(share), bytes: bytes(share) };
        let all = self.held.iter().map(|(share, held)| (share, held, most(share)));
        all.filter(|(_, held, most)| held.exceeds(*most))
            .map(|(share, _, most)| (share.clone(), most))
            .collect()
    }

    /// How much each share may have, of `limit` together.
    fn allowed(&self, limit: u64, of: impl Fn(&Amount) -> u64) -> impl Fn(&HistoryShare) -> u64 {
        let mut classes = [0_u64; 4];
        for (share, held) in &self.held {
            let class = &mut classes[share.class()];
            *class = class.saturating_add(of(held));
        }
        let of_class = level(limit, classes.to_vec());
        let zones = self.held.iter().filter(|(share, _)| share.class() == ZONES);
        let of_zone = level(of_class, zones.map(|(_, held)| of(held)).collect());
        move |share: &HistoryShare| if share.class() == ZONES { of_zone } else { of_class }
    }
}

/// The most that each may have so that all together have no more than `limit`.
fn level(limit: u64, mut held: Vec<u64>) -> u64 {
    held.sort_unstable();
    let (mut left, mut others) = (limit, held.len() as u64);
    for held in held {
        let each = left / others;
        if held > each {
            return each;
        }
        left -= held;
        others -= 1;
    }
    u64::MAX
}

/// Statements about the changes of one share; `$1` is its [`HistoryShare::author`].
pub(super) struct Trimming {
    /// The newest revision that goes, when so many changes (`$2`) of so many bytes (`$3`) may stay.
    pub(super) beyond: &'static str,
    /// How far one step towards revision `$2` goes, so that nobody waits for long.
    pub(super) step: &'static str,
    /// Drops what goes, up to revision `$2`.
    pub(super) delete: &'static str,
}

macro_rules! trimming {
    ($share:literal) => {
        Trimming {
            beyond: concat!(
                "SELECT MAX(revision) FROM (\
                    SELECT revision, COUNT(*) OVER newest AS n, SUM(bytes) OVER newest AS total FROM history \
                    WHERE ",
                $share,
                " WINDOW newest AS (ORDER BY revision DESC)) AS sized \
                WHERE n > CAST($2 AS BIGINT) OR total > CAST($3 AS BIGINT)"
            ),
            step: concat!(
                "SELECT MAX(revision) FROM (\
                    SELECT revision FROM history WHERE ",
                $share,
                " AND revision <= $2 ORDER BY revision LIMIT 1000) AS step"
            ),
            delete: concat!("DELETE FROM history WHERE ", $share, " AND revision <= $2"),
        }
    };
}

/// All shares.
pub(super) const OF_EVERYBODY: Trimming = trimming!("$1 = ''");
/// That of one author.
const OF_AUTHOR: Trimming = trimming!("author = $1");
const OF_PEOPLE: Trimming =
    trimming!("$1 = '' AND author NOT IN ('control plane', 'global') AND substr(author, 1, 5) <> 'zone '");

impl HistoryShare {
    /// What is asked of the database about it.
    pub(super) fn trimming(&self) -> &'static Trimming {
        match self {
            Self::People => &OF_PEOPLE,
            Self::ControlPlane | Self::Global | Self::Zone(_) => &OF_AUTHOR,
        }
    }
}

/// What there is, by author.
pub(super) const HELD: &str =
    "SELECT author, COUNT(*), CAST(SUM(bytes) AS BIGINT) FROM history GROUP BY author";

/// The shares that such rows are.
pub(super) fn held(rows: Vec<(String, i64, i64)>) -> HistoryShares {
    let mut shares = HistoryShares::default();
    for (author, changes, bytes) in rows {
        shares.add(&author, changes.unsigned_abs(), bytes.unsigned_abs());
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::history::Author;

    /// What may stay of those that have so many changes.
    fn stays(limit: u64, held: &[(&str, u64)]) -> Vec<(String, u64)> {
        let mut shares = HistoryShares::default();
        held.iter().for_each(|(author, changes)| shares.add(author, *changes, 0));
        let limits = HistoryLimits { age: Duration::MAX, changes: limit, bytes: u64::MAX };
        let excessive = shares.excessive(&limits).into_iter();
        excessive.map(|(share, most)| (share.author(), most.changes)).collect()
    }

    #[test]
    fn who_has_most_gives_first() {
        let check = |limit, held: &[(&str, u64)], expected: &[(&str, u64)]| {
            let expected: Vec<_> = expected.iter().map(|(who, most)| ((*who).to_owned(), *most)).collect();
            assert_eq!(stays(limit, held), expected, "{limit} of {held:?}");
        };
        check(100, &[("user ann", 50), ("zone a", 50)], &[]);
        check(100, &[("user ann", 3), ("zone a", 500)], &[("zone a", 97)]);
        check(100, &[("user ann", 500), ("zone a", 500)], &[("", 50), ("zone a", 50)]);
        check(100, &[("user ann", 20), ("user bob", 20), ("file", 20), ("zone a", 40)], &[]);
        check(100, &[("user ann", 30), ("user bob", 31), ("zone a", 40)], &[("", 60)]);
        let all = [("user ann", 25), ("control plane", 26), ("global", 25), ("zone a", 99)];
        check(100, &all, &[("control plane", 25), ("zone a", 25)]);
        // Zones share what is left for them.
        check(
            100,
            &[("user ann", 40), ("zone a", 5), ("zone b", 500), ("zone c", 300)],
            &[("zone b", 27), ("zone c", 27)],
        );
        check(0, &[("user ann", 1)], &[("", 0)]);
    }

    #[test]
    fn bytes_are_shared_out_by_themselves() {
        let mut shares = HistoryShares::default();
        shares.add("user ann", 90, 10);
        shares.add("zone a", 10, 200);
        let limits = HistoryLimits { age: Duration::MAX, changes: 100, bytes: 100 };
        let most = Amount { changes: u64::MAX, bytes: 90 };
        assert_eq!(shares.excessive(&limits), [(HistoryShare::Zone("a".to_owned()), most)]);
    }

    #[test]
    fn every_author_has_a_share() {
        let name = || "a".to_owned();
        for (author, share) in [
            (Author::ControlPlane, HistoryShare::ControlPlane),
            (Author::Global, HistoryShare::Global),
            (Author::File, HistoryShare::People),
            (Author::User("zone a".to_owned()), HistoryShare::People),
            (Author::Zone(name()), HistoryShare::Zone(name())),
        ] {
            assert_eq!(HistoryShare::of(&author.to_string()), share);
            assert!(share == HistoryShare::People || share.author() == author.to_string());
        }
        // The statements name them too.
        for author in [CONTROL_PLANE, GLOBAL] {
            assert!(OF_PEOPLE.delete.contains(&format!("'{author}'")));
        }
        assert!(OF_PEOPLE.delete.contains(&format!("substr(author, 1, {}) <> '{ZONE}'", ZONE.len())));
    }
}
