//! Answers that lie ready for clients nobody knows, and what they hold of the memory together. A piece counts
//! until the connection has passed on its last byte, wherever it waits until then.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::time::Instant;

/// More bytes than this in one write are an answer that somebody takes.
const TAKEN: usize = 1024;

/// Bytes that lie ready at one listener.
#[derive(Clone, Debug, Default)]
pub(super) struct Ready(Arc<AtomicUsize>);

impl Ready {
    pub(super) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// What lies ready for one client.
#[derive(Debug)]
pub(super) struct Lying {
    all: Ready,
    own: Mutex<Own>,
}

#[derive(Debug)]
struct Own {
    bytes: usize,
    /// Whether they count at the listener: not once the client is known, or has made way.
    counted: bool,
    /// Since when the client takes nothing.
    since: Instant,
}

impl Lying {
    pub(super) fn new(all: Ready, now: Instant) -> Self {
        Self { all, own: Mutex::new(Own { bytes: 0, counted: true, since: now }) }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts so many bytes until what is returned is dropped; `None` where they do not count.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize, now: Instant) -> Option<Held> {
        let mut own = self.own();
        if !own.counted || bytes == 0 {
            return None;
        }
        if own.bytes == 0 {
            own.since = now;
        }
        own.bytes += bytes;
        self.all.0.fetch_add(bytes, Ordering::Relaxed);
        Some(Held { of: Arc::clone(self), bytes })
    }

    /// The client took so much in one write.
    pub(super) fn taken(&self, bytes: usize, now: Instant) {
        if bytes > TAKEN {
            self.own().since = now;
        }
    }

    /// Nothing of it counts any more.
    pub(super) fn forget(&self) {
        let mut own = self.own();
        if std::mem::replace(&mut own.counted, false) {
            self.all.0.fetch_sub(own.bytes, Ordering::Relaxed);
        }
    }

    /// The bytes, and since when none of them was taken.
    pub(super) fn now(&self) -> (usize, Instant) {
        let own = self.own();
        (own.bytes, own.since)
    }
}

/// Bytes that are counted.
#[derive(Debug)]
pub(super) struct Held {
    of: Arc<Lying>,
    bytes: usize,
}

impl Held {
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// These bytes, counted until the last piece of them is dropped.
    pub(super) fn with(self, data: Bytes) -> Bytes {
        Bytes::from_owner(Counted { data, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut own = self.of.own();
        own.bytes -= self.bytes;
        if own.counted {
            self.of.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

struct Counted {
    data: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.data
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn an_answer_counts_until_its_last_piece_is_gone() {
        let (all, now) = (Ready::default(), Instant::now());
        let lying = Arc::new(Lying::new(all.clone(), now));
        let mut data = lying.hold(100, now).unwrap().with(Bytes::from(vec![b'x'; 100]));
        let last = data.split_off(99);
        drop(data);
        assert_eq!((all.bytes(), lying.now().0, &*last), (100, 100, &b"x"[..]));
        drop(last);
        assert_eq!((all.bytes(), lying.now().0), (0, 0));
    }

    #[test]
    fn who_is_known_or_made_way_does_not_count() {
        let (all, now) = (Ready::default(), Instant::now());
        let lying = Arc::new(Lying::new(all.clone(), now));
        let held = lying.hold(100, now).unwrap();
        lying.forget();
        lying.forget();
        assert_eq!(all.bytes(), 0);
        drop(held);
        assert_eq!(all.bytes(), 0);
        assert!(lying.hold(100, now).is_none());
    }
}
