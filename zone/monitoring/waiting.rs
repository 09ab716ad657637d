//! Who waits for a change. Anybody may, so there are places for some, and nobody is sent away for want of one: whoever has
//! most of them has his oldest answered as if its time were over.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio_util::sync::CancellationToken;

/// Clients that wait at the same time.
pub(super) const WAITING: usize = 256;

/// Where a client is; those that no server counts are together.
type WaitingAt = Option<IpAddr>;

/// Those who wait.
#[derive(Debug, Default)]
pub(super) struct AssignmentWaits(Mutex<WaitTable>);

#[derive(Debug, Default)]
struct WaitTable {
    next: u64,
    waiting: usize,
    /// In the order in which they came, by where they are; never empty.
    at: BTreeMap<WaitingAt, BTreeMap<u64, CancellationToken>>,
}

/// One who waits, until it is dropped.
pub(super) struct AssignmentWait {
    waits: Arc<AssignmentWaits>,
    at: WaitingAt,
    number: u64,
    over: CancellationToken,
}

impl AssignmentWaits {
    /// A place for somebody at `at`.
    pub(super) fn begin(self: &Arc<Self>, at: WaitingAt) -> AssignmentWait {
        let over = CancellationToken::new();
        let mut table = self.lock();
        if table.waiting >= WAITING {
            table.make_room();
        }
        let number = table.next;
        table.next += 1;
        table.waiting += 1;
        table.at.entry(at).or_default().insert(number, over.clone());
        AssignmentWait { waits: Arc::clone(self), at, number, over }
    }

    fn lock(&self) -> MutexGuard<'_, WaitTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WaitTable {
    fn make_room(&mut self) {
        let most = self.at.iter().max_by_key(|(_, here)| here.len());
        let oldest = most.and_then(|(at, here)| Some((*at, *here.keys().next()?)));
        if let Some((at, number)) = oldest
            && let Some(over) = self.leave(at, number)
        {
            over.cancel();
        }
    }

    fn leave(&mut self, at: WaitingAt, number: u64) -> Option<CancellationToken> {
        let here = self.at.get_mut(&at)?;
        let left = here.remove(&number)?;
        if here.is_empty() {
            self.at.remove(&at);
        }
        self.waiting -= 1;
        Some(left)
    }
}

impl AssignmentWait {
    /// Resolves when somebody else has the place.
    pub(super) async fn makes_way(&self) {
        self.over.cancelled().await;
    }
}

impl Drop for AssignmentWait {
    fn drop(&mut self) {
        // One that made way is not there any more.
        let _made_way = self.waits.lock().leave(self.at, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(last: u8) -> WaitingAt {
        Some([10, 0, 0, last].into())
    }

    #[test]
    fn whoever_has_most_places_makes_way_with_the_oldest() {
        let waits = Arc::new(AssignmentWaits::default());
        let alone = waits.begin(at(1));
        let few: Vec<AssignmentWait> = (0..10).map(|_| waits.begin(at(2))).collect();
        let many: Vec<AssignmentWait> = (11..WAITING).map(|_| waits.begin(at(3))).collect();
        let more: Vec<AssignmentWait> = (0..5).map(|_| waits.begin(at(3))).collect();
        let newcomer = waits.begin(at(4));
        let left = |of: &[AssignmentWait]| of.iter().take_while(|one| one.over.is_cancelled()).count();
        assert_eq!((left(&many), left(&more), left(&few)), (6, 0, 0));
        assert!(!alone.over.is_cancelled() && !newcomer.over.is_cancelled());
        assert_eq!(waits.lock().waiting, WAITING);
        drop((alone, few, many, more, newcomer));
        let table = waits.lock();
        assert_eq!((table.waiting, table.at.len()), (0, 0));
    }
}
