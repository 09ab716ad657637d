//! What is on its way in and not whole yet: the memory it may hold together, and how long it may take.

use std::{
    collections::BTreeMap,
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

/// How much of a room somebody may take up with all that comes of him.
#[derive(Debug, PartialEq, Eq)]
pub struct RoomShare {
    /// Who.
    pub owner: String,
    /// So many bytes.
    pub bytes: usize,
}

/// What is left of the memory, and what is still coming and holds the rest.
#[derive(Debug)]
struct IncomingMemory {
    free: usize,
    next: u64,
    /// By age, the oldest first.
    coming: BTreeMap<u64, Coming>,
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
        let memory = IncomingMemory { free: bytes, next: 0, coming: BTreeMap::new() };
        Self(Arc::new(Mutex::new(memory)))
    }

    /// Something begins to come.
    pub fn begin(&self) -> MemoryReservation {
        self.begin_in(None)
    }

    /// The same of somebody who has a share.
    pub fn begin_in(&self, share: Option<Arc<RoomShare>>) -> MemoryReservation {
        let gives_way = CancellationToken::new();
        let mut memory = self.lock();
        let id = memory.next;
        memory.next += 1;
        memory.coming.insert(id, Coming { held: 0, share, gives_way: gives_way.clone() });
        drop(memory);
        MemoryReservation { room: self.clone(), id, gives_way, arrived: 0 }
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

impl Coming {
    fn is_of(&self, owner: &str) -> bool {
        self.share.as_ref().is_some_and(|share| share.owner == owner)
    }
}

impl IncomingMemory {
    /// Makes room for `bytes` of `id`: the oldest of those that are still coming go, and before them those of its own
    /// owner where he would have more than his share.
    fn make(&mut self, id: u64, bytes: usize) -> Result<(), NoRoom> {
        if let Some(share) = self.coming.get(&id).and_then(|coming| coming.share.clone()) {
            while self.held_by(&share.owner) + bytes > share.bytes {
                self.end_oldest(id, |coming| coming.is_of(&share.owner))?;
            }
        }
        while self.free < bytes {
            self.end_oldest(id, |_| true)?;
        }
        self.free -= bytes;
        Ok(())
    }

    fn held_by(&self, owner: &str) -> usize {
        self.coming.values().filter(|coming| coming.is_of(owner)).map(|coming| coming.held).sum()
    }

    /// Ends the oldest of `among` that holds anything, but not `id` itself.
    fn end_oldest(&mut self, id: u64, among: impl Fn(&Coming) -> bool) -> Result<(), NoRoom> {
        let mut others = self.coming.iter().filter(|(other, coming)| **other != id && coming.held > 0);
        let oldest = others.find(|(_, coming)| among(coming)).map(|(id, _)| *id).ok_or(NoRoom)?;
        let Some(gone) = self.coming.remove(&oldest) else { return Err(NoRoom) };
        gone.gives_way.cancel();
        self.free += gone.held;
        Ok(())
    }
}

/// The memory of one thing that comes; free again when dropped.
#[derive(Debug)]
pub struct MemoryReservation {
    room: IncomingRoom,
    id: u64,
    gives_way: CancellationToken,
    /// What it holds once it has arrived; until then the room knows.
    arrived: usize,
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
        let Some(coming) = memory.coming.get_mut(&self.id) else {
            memory.free += bytes;
            return Err(NoRoom);
        };
        coming.held += bytes;
        Ok(())
    }

    /// Nothing of it is kept any more.
    pub fn give_back(&self) {
        let mut memory = self.room.lock();
        if let Some(coming) = memory.coming.get_mut(&self.id) {
            let held = std::mem::take(&mut coming.held);
            memory.free += held;
        }
    }

    /// It is complete, and from now on it stays.
    ///
    /// # Errors
    /// [`NoRoom`] when something else took its place.
    pub fn arrived(&mut self) -> Result<(), NoRoom> {
        let coming = self.room.lock().coming.remove(&self.id).ok_or(NoRoom)?;
        self.arrived = coming.held;
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let mut memory = self.room.lock();
        let coming = memory.coming.remove(&self.id).map_or(0, |coming| coming.held);
        memory.free += coming + self.arrived;
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
        (self.due, self.before) = (self.due + self.step, length);
        Ok(())
    }
}
