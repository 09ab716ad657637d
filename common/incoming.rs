//! What is on its way in and not whole yet: the memory it may hold together, and how long it may take.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// How often what is still coming must have made progress.
pub const STEP: Duration = Duration::from_secs(5);
/// And how much, in bytes: a modem is faster.
pub const PROGRESS: usize = 5 * 1024;

/// Memory for what is coming at one listener. When there is none left, what has been coming for the longest time gives way:
/// who sends half of something and waits cannot keep others out.
#[derive(Clone, Debug)]
pub struct IncomingRoom(Arc<Mutex<IncomingMemory>>);

/// Others take up all the room.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("others take up all the room")]
pub struct NoRoom;

/// How much of a room somebody may take up with all that comes of him, and all that is here and stays.
#[derive(Debug, PartialEq, Eq)]
pub struct RoomShare {
    /// Who.
    pub owner: String,
    /// So many bytes.
    pub bytes: usize,
}

/// What is left of the memory, and what is still coming and holds the rest. How many things come is up to strangers, so
/// nothing here is looked for among all of them.
#[derive(Debug)]
struct IncomingMemory {
    free: usize,
    next: u64,
    /// By age, the oldest first.
    coming: BTreeMap<u64, Coming>,
    /// Those of them that hold anything.
    holding: BTreeSet<u64>,
    /// Of those who have a share and hold anything.
    owners: BTreeMap<String, OwnedRoom>,
}

/// What one of them has of the room.
#[derive(Debug)]
struct OwnedRoom {
    held: usize,
    /// What of it is still coming.
    holding: BTreeSet<u64>,
}

#[derive(Debug)]
struct Coming {
    held: usize,
    share: Option<Arc<RoomShare>>,
    gives_way: CancellationToken,
}

impl IncomingRoom {
    /// Room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        let (coming, holding, owners) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Self(Arc::new(Mutex::new(IncomingMemory { free: bytes, next: 0, coming, holding, owners })))
    }

    /// Something begins to come, of somebody who has a share, or of whom nobody knows.
    pub fn begin_in(&self, share: Option<Arc<RoomShare>>) -> MemoryReservation {
        let gives_way = CancellationToken::new();
        let mut memory = self.lock();
        let id = memory.next;
        memory.next += 1;
        memory.coming.insert(id, Coming { held: 0, share, gives_way: gives_way.clone() });
        drop(memory);
        MemoryReservation { room: self.clone(), id, gives_way, arrived: None }
    }

    /// Bytes that nothing holds.
    pub fn free(&self) -> usize {
        self.lock().free
    }

    fn lock(&self) -> MutexGuard<'_, IncomingMemory> {
        // Nothing below panics between two related changes.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IncomingMemory {
    /// Makes room for `bytes` of `id`: the oldest of those that are still coming go, and before them those of its own
    /// owner where he would have more than his share.
    fn make(&mut self, id: u64, bytes: usize) -> Result<(), NoRoom> {
        if let Some(share) = self.coming.get(&id).and_then(|coming| coming.share.clone()) {
            loop {
                let owned = self.owners.get(&share.owner);
                if owned.map_or(0, |owned| owned.held) + bytes <= share.bytes {
                    break;
                }
                let own = owned.and_then(|owned| oldest(&owned.holding, id));
                self.end(own)?;
            }
        }
        while self.free < bytes {
            self.end(oldest(&self.holding, id))?;
        }
        self.free -= bytes;
        Ok(())
    }

    /// Ends what is `oldest`, if anything is.
    fn end(&mut self, oldest: Option<u64>) -> Result<(), NoRoom> {
        let (id, gone) = oldest.and_then(|id| self.coming.remove_entry(&id)).ok_or(NoRoom)?;
        gone.gives_way.cancel();
        self.settle(id, gone.share.as_deref());
        self.release(gone.share.as_deref(), gone.held);
        Ok(())
    }

    /// `id` holds so much more, which it has been made room for.
    fn hold(&mut self, id: u64, bytes: usize) -> Result<(), NoRoom> {
        let Some(coming) = self.coming.get_mut(&id) else { return Err(NoRoom) };
        coming.held += bytes;
        let share = coming.share.clone();
        if bytes == 0 {
            return Ok(());
        }
        self.holding.insert(id);
        if let Some(RoomShare { owner, .. }) = share.as_deref() {
            if let Some(owned) = self.owners.get_mut(owner) {
                owned.held += bytes;
                owned.holding.insert(id);
            } else {
                let owned = OwnedRoom { held: bytes, holding: BTreeSet::from([id]) };
                self.owners.insert(owner.clone(), owned);
            }
        }
        Ok(())
    }

    /// `id` is not one of those any more that may have to give way.
    fn settle(&mut self, id: u64, share: Option<&RoomShare>) {
        self.holding.remove(&id);
        if let Some(owned) = share.and_then(|share| self.owners.get_mut(&share.owner)) {
            owned.holding.remove(&id);
        }
    }

    /// So much that was held is free again.
    fn release(&mut self, share: Option<&RoomShare>, bytes: usize) {
        self.free += bytes;
        let Some(share) = share else { return };
        if let Some(owned) = self.owners.get_mut(&share.owner) {
            owned.held -= bytes;
            if owned.held == 0 {
                self.owners.remove(&share.owner);
            }
        }
    }
}

/// The oldest that holds anything, but not `id` itself.
fn oldest(holding: &BTreeSet<u64>, id: u64) -> Option<u64> {
    holding.iter().copied().find(|other| *other != id)
}

/// The memory of one thing that comes; free again when dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    room: IncomingRoom,
    id: u64,
    gives_way: CancellationToken,
    /// What it is once it has arrived; until then the room knows.
    arrived: Option<Coming>,
}

impl MemoryReservation {
    /// Cancelled when what it is for has to give way.
    pub fn gives_way(&self) -> &CancellationToken {
        &self.gives_way
    }

    /// Takes so much more.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn grow(&self, bytes: usize) -> Result<(), NoRoom> {
        let mut memory = self.room.lock();
        memory.make(self.id, bytes)?;
        // Something else took its place meanwhile.
        memory.hold(self.id, bytes).inspect_err(|NoRoom| memory.free += bytes)
    }

    /// Nothing of it is kept any more.
    pub fn give_back(&self) {
        let mut memory = self.room.lock();
        if let Some(coming) = memory.coming.get_mut(&self.id) {
            let (held, share) = (std::mem::take(&mut coming.held), coming.share.clone());
            memory.settle(self.id, share.as_deref());
            memory.release(share.as_deref(), held);
        }
    }

    /// It is complete, and from now on it stays, as a part of the share of its owner.
    ///
    /// # Errors
    /// [`NoRoom`] when something else took its place.
    pub fn arrived(&mut self) -> Result<(), NoRoom> {
        let mut memory = self.room.lock();
        let coming = memory.coming.remove(&self.id).ok_or(NoRoom)?;
        memory.settle(self.id, coming.share.as_deref());
        drop(memory);
        self.arrived = Some(coming);
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut memory = self.room.lock();
        if let Some(held) = memory.coming.remove(&self.id).or_else(|| self.arrived.take()) {
            memory.settle(self.id, held.share.as_deref());
            memory.release(held.share.as_deref(), held.held);
        }
    }
}

/// It comes too slowly, or not at all.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("it comes too slowly, or not at all")]
pub struct TooSlow;

/// Whether something keeps coming.
#[derive(Debug)]
pub struct Arrival {
    end: Option<Instant>,
    step: Duration,
    due: Instant,
    /// How much had come at the last look.
    before: usize,
}

impl Arrival {
    /// Something that begins to come, and may take so long altogether if there is a bound.
    pub fn begin(now: Instant, within: Option<Duration>) -> Self {
        Self::begin_in_steps(now, within, STEP)
    }

    /// The same with another time between looks at its progress.
    pub fn begin_in_steps(now: Instant, within: Option<Duration>, step: Duration) -> Self {
        Self { end: within.map(|within| now + within), step, due: now + step, before: 0 }
    }

    /// When it is to be looked at again.
    pub fn due(&self) -> Instant {
        self.end.map_or(self.due, |end| end.min(self.due))
    }

    /// Looks at it when that is due: so much has come by now.
    ///
    /// # Errors
    /// [`TooSlow`] when nobody waits for it any longer.
    pub fn look(&mut self, length: usize) -> Result<(), TooSlow> {
        let is_over = self.end.is_some_and(|end| self.due >= end);
        if is_over || length < self.before + PROGRESS {
            return Err(TooSlow);
        }
        // Whoever looks late gives it as long as anybody else: it may have been this process that stood still.
        (self.due, self.before) = (self.due.max(Instant::now()) + self.step, length);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::time::advance;

    use super::*;

    fn share(owner: &str, bytes: usize) -> Option<Arc<RoomShare>> {
        Some(Arc::new(RoomShare { owner: owner.to_owned(), bytes }))
    }

    #[test]
    fn what_has_arrived_is_a_part_of_the_share_until_it_is_gone() {
        let room = IncomingRoom::new(100);
        let begin = || room.begin_in(share("greedy", 20));
        let mut here = [begin(), begin()];
        for arrived in &mut here {
            arrived.grow(10).unwrap();
            arrived.arrived().unwrap();
            assert!(!arrived.gives_way().is_cancelled());
        }
        let more = begin();
        assert_eq!(more.grow(1), Err(NoRoom), "nothing of it can give way any more");
        let other = room.begin_in(share("honest", 20));
        other.grow(20).unwrap();
        assert_eq!(room.free(), 60);
        let [first, second] = here;
        drop(first);
        more.grow(10).unwrap();
        drop((second, more, other));
        assert_eq!(room.free(), 100);
        let memory = room.lock();
        assert!(memory.coming.is_empty() && memory.holding.is_empty() && memory.owners.is_empty());
    }

    #[test]
    fn what_was_given_back_or_ended_is_counted_for_nobody() {
        let room = IncomingRoom::new(100);
        let [first, second, third] = [(); 3].map(|()| room.begin_in(share("a", 30)));
        first.grow(20).unwrap();
        first.give_back();
        second.grow(20).unwrap();
        assert!(!first.gives_way().is_cancelled(), "it holds nothing");
        third.grow(20).unwrap();
        assert!(second.gives_way().is_cancelled() && second.grow(1) == Err(NoRoom));
        assert_eq!(room.free(), 80);
        drop((first, second, third));
        assert_eq!((room.free(), room.lock().owners.len()), (100, 0));
    }

    /// Of so many that a search among all of them with each byte would take many minutes; the time is bounded by the patience of
    /// whoever runs the tests, not asserted.
    #[test]
    fn many_that_have_begun_make_none_of_them_slow() {
        const MANY: usize = 200_000;
        let room = IncomingRoom::new(MANY);
        let all: Vec<_> = (0..MANY).map(|_| room.begin_in(share("stolen", MANY / 2))).collect();
        for one in &all {
            one.grow(1).unwrap();
        }
        assert_eq!(room.free(), MANY / 2);
        let ended = all.iter().filter(|one| one.gives_way().is_cancelled()).count();
        assert_eq!(ended, MANY / 2, "the oldest of them");
        drop(all);
        assert_eq!(room.free(), MANY);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_looked_at_late_is_not_looked_at_twice_at_once() {
        let mut arrival = Arrival::begin(Instant::now(), None);
        advance(STEP * 10).await;
        assert_eq!(arrival.look(PROGRESS), Ok(()));
        assert_eq!(arrival.due(), Instant::now() + STEP);
        advance(STEP).await;
        assert_eq!(arrival.look(PROGRESS), Err(TooSlow));
    }
}
