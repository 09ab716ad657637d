//! The end of the change feed, kept in memory by the process that wrote it: its own index follows without
//! asking the database for what this process has just told it. Whoever is behind what is kept asks the database.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{
    Change, Changes, CommitId, Point,
    index::{AROUND_RESOURCE, Owned},
    rows::{GroupCommit, LogEntry, Rows},
};

/// Changes kept at most.
const CAPACITY: usize = 4_096;
/// And bytes of them. Each keeps its resource as it was then: what is large and rewritten all the time is kept each time.
const BYTES: usize = 32 << 20;

/// The last changes, oldest first, without a gap between their revisions.
pub(super) struct Recent {
    capacity: usize,
    bytes: usize,
    changes: Mutex<RecentChanges>,
}

#[derive(Default)]
struct RecentChanges {
    kept: VecDeque<(CommitId, Change)>,
    /// What all of them take.
    bytes: usize,
}

impl Recent {
    /// Room for the newest part of a feed that reaches back `retained` entries; with 0 every reader asks the
    /// database.
    pub(super) fn new(retained: usize) -> Self {
        Self { capacity: retained.min(CAPACITY), bytes: BYTES, changes: Mutex::default() }
    }

    /// Takes in what was committed; `rows` is what it left. Call it before readers learn of the new head.
    pub(super) fn push(&self, commit: &GroupCommit, rows: &Rows) {
        self.take(commit.commit, &commit.log, rows);
    }

    fn take(&self, commit: CommitId, log: &[LogEntry], rows: &Rows) {
        let mut changes = self.lock();
        let follows = |last: &Change, first: &LogEntry| first.revision == last.revision + 1;
        if let (Some((_, last)), Some(first)) = (changes.kept.back(), log.first())
            && !follows(last, first)
        {
            // The outcome of a commit was not learnt, or somebody else wrote: the database knows, we do not.
            *changes = RecentChanges::default();
        }
        for entry in log {
            let resource = rows.get(&entry.key).cloned();
            let change = Change { revision: entry.revision, key: entry.key.clone(), resource };
            changes.bytes += weight(&change);
            changes.kept.push_back((commit, change));
        }
        while changes.kept.len() > self.capacity || changes.bytes > self.bytes {
            changes.forget_oldest();
        }
    }

    /// The feed after a point, about `limit` entries and whole batches only; `None` when the database has to be asked:
    /// what is kept starts later, there is nothing newer here, or it is not known here which commit is at that point.
    pub(super) fn since(&self, after: Point, limit: usize) -> Option<Changes> {
        let changes = self.lock();
        let changes = &changes.kept;
        let (oldest, newest) = (changes.front()?.1.revision, end(changes.back()?));
        if after.revision + 1 < oldest || after.revision >= newest.revision {
            return None;
        }
        let start = changes.partition_point(|(_, change)| change.revision <= after.revision);
        let there = start.checked_sub(1).map(|last| changes[last].0);
        if after.commit.is_some() && after.commit != there {
            return None;
        }
        let page = changes.range(start..);
        let upto = page.clone().nth(limit.max(1) - 1).map_or(newest, end);
        let page = page.map(|(_, change)| change).take_while(|change| change.revision <= upto.revision);
        Some(Changes::Since { changes: page.cloned().collect(), upto, head: newest.revision })
    }

    fn lock(&self) -> MutexGuard<'_, RecentChanges> {
        // A panic half way through a push leaves a gap at the end only, which the next push notices.
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RecentChanges {
    /// Drops the oldest batch: half of one must not be shown.
    fn forget_oldest(&mut self) {
        let Some(oldest) = self.kept.front().map(|(_, change)| change.revision) else {
            self.bytes = 0;
            return;
        };
        while let Some((_, change)) = self.kept.pop_front_if(|(_, change)| change.revision == oldest) {
            self.bytes = self.bytes.saturating_sub(weight(&change));
        }
    }
}

/// Bytes a change takes, its resource included: nobody else may have that any more.
fn weight(change: &Change) -> usize {
    change.resource.as_deref().map_or(AROUND_RESOURCE, |resource| Owned::one(resource).bytes)
}

/// Where a reader is who has read up to this.
fn end((commit, change): &(CommitId, Change)) -> Point {
    Point { revision: change.revision, commit: Some(*commit) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;
    use crate::{
        model::{Resource, ResourceKey, kinds},
        store::Revision,
    };

    const COMMIT: CommitId = CommitId::from_column(1);

    fn key(name: usize) -> ResourceKey {
        ResourceKey::global(&kinds::zone::KIND, &format!("z{name}"))
    }

    /// The log of batches with these numbers of changes, from `revision` on.
    fn log(revision: Revision, batches: &[usize]) -> Vec<LogEntry> {
        let batches = (revision..).zip(batches);
        let entry = |revision, name| LogEntry { revision, key: key(name), deleted: name % 3 == 0 };
        batches.flat_map(|(revision, &size)| (0..size).map(move |name| entry(revision, name))).collect()
    }

    fn rows() -> Rows {
        let mut rows = Rows::default();
        for name in (0..10).filter(|name| name % 3 != 0) {
            rows.insert(Arc::new(Resource::new(key(name), DateTime::UNIX_EPOCH)));
        }
        rows
    }

    fn shown(changes: Option<Changes>) -> Option<(Vec<(Revision, bool)>, Revision)> {
        let Changes::Since { changes, upto, .. } = changes? else { panic!("never asks to start over") };
        Some((changes.iter().map(|c| (c.revision, c.resource.is_some())).collect(), upto.revision))
    }

    proptest! {
        #[test]
        fn shows_what_the_whole_feed_would(
            batches in proptest::collection::vec(1..5usize, 1..12),
            retained in 1..30usize,
            since in 0..14u64,
            limit in 0..8usize,
        ) {
            let recent = Recent::new(retained);
            let whole = log(1, &batches);
            for (n, size) in batches.iter().enumerate() {
                recent.take(COMMIT, &log(n as u64 + 1, &[*size]), &rows());
            }
            let head = batches.len() as u64;
            let newer: Vec<_> = whole.iter().filter(|e| e.revision > since).collect();
            let Some((shown, upto)) = shown(recent.since(since.into(), limit)) else {
                // Only what is older than the room, or not there at all, has to be asked for elsewhere.
                prop_assert!(newer.len() > retained || since >= head);
                return Ok(());
            };
            let last = newer.get(limit.max(1) - 1).map_or(head, |e| e.revision);
            prop_assert_eq!(upto, last);
            let expected: Vec<_> =
                newer.iter().filter(|e| e.revision <= last).map(|e| (e.revision, !e.deleted)).collect();
            prop_assert_eq!(shown, expected);
        }
    }

    /// Room for three versions of something large and not for four, however few changes that are.
    #[test]
    fn what_is_large_and_rewritten_all_the_time_is_not_kept_each_time() {
        const LARGE: usize = 100_000;
        let recent = Recent { bytes: 4 * LARGE, ..Recent::new(1_000) };
        let large = Resource::new(key(1), DateTime::UNIX_EPOCH).with_spec(vec![0; LARGE]);
        let mut rows = rows();
        rows.insert(Arc::new(large));
        let entry = |revision, name| LogEntry { revision, key: key(name), deleted: false };
        for revision in 1..=50 {
            // Two changes of one batch go together.
            recent.take(COMMIT, &[entry(revision, 1), entry(revision, 2)], &rows);
            let kept = recent.lock();
            assert!(
                kept.bytes <= 4 * LARGE
                    && kept.bytes == kept.kept.iter().map(|(_, c)| weight(c)).sum::<usize>()
            );
            assert_eq!(kept.kept.len() as u64, 2 * revision.min(3));
        }
        let commit = |revision| Point { revision, commit: Some(COMMIT) };
        assert_eq!(shown(recent.since(46.into(), 10)), None, "the database is asked");
        assert_eq!(shown(recent.since(commit(47), 10)), None, "who made 47 is not known here");
        let last = vec![(49, true), (49, true), (50, true), (50, true)];
        assert_eq!(shown(recent.since(commit(48), 10)), Some((last, 50)));

        // One batch that is larger than the room is not kept at all, and nothing is told around it.
        let mut huge = Rows::default();
        huge.insert(Arc::new(Resource::new(key(1), DateTime::UNIX_EPOCH).with_spec(vec![0; 5 * LARGE])));
        recent.take(COMMIT, &[entry(51, 1)], &huge);
        assert_eq!(recent.lock().bytes, 0);
        assert_eq!(shown(recent.since(commit(50), 10)), None);
        recent.take(COMMIT, &[entry(52, 2)], &rows);
        assert_eq!(shown(recent.since(commit(50), 10)), None, "51 is not known here");
        assert_eq!(shown(recent.since(51.into(), 10)), Some((vec![(52, true)], 52)));
    }

    #[test]
    fn a_gap_empties_it() {
        let recent = Recent::new(100);
        recent.take(COMMIT, &log(1, &[1, 1]), &rows());
        assert!(recent.since(0.into(), 10).is_some());
        recent.take(COMMIT, &log(5, &[1]), &rows());
        assert_eq!(shown(recent.since(2.into(), 10)), None, "3 and 4 are not known here");
        assert_eq!(shown(recent.since(4.into(), 10)), Some((vec![(5, false)], 5)));
    }
}
