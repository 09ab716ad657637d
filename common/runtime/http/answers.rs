//! Answers that lie ready for clients nobody knows, and what they hold of the memory together. A piece counts
//! until the connection has passed on its last byte, wherever it waits until then.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use tokio::{sync::Notify, time::Instant};

/// More bytes than this in one write are an answer that somebody takes.
const TAKEN: usize = 1024;

/// Bytes that lie ready at one listener.
#[derive(Clone, Debug)]
pub(super) struct Ready(Arc<Sums>);

#[derive(Debug)]
struct Sums {
    listener: &'static str,
    /// For clients that may take them.
    staying: AtomicUsize,
    /// For clients that made way, until their connections have let go of them.
    leaving: AtomicUsize,
    freed: Notify,
}

impl Ready {
    pub(super) fn new(listener: &'static str) -> Self {
        metrics::gauge!("answers_lying_bytes", "listener" => listener).set(0.0);
        let (staying, leaving) = Default::default();
        Self(Arc::new(Sums { listener, staying, leaving, freed: Notify::new() }))
    }

    /// What lies ready for clients that may take it.
    pub(super) fn bytes(&self) -> usize {
        self.0.staying.load(Ordering::Relaxed)
    }

    /// Waits until what lies ready fits `most` together with what displaced connections still hold.
    pub(super) async fn settled(&self, most: usize) {
        loop {
            let freed = self.0.freed.notified();
            let leaving = self.0.leaving.load(Ordering::Relaxed);
            // One that is longer than everything may lie there alone.
            if leaving == 0 || self.bytes() + leaving <= most {
                return;
            }
            freed.await;
        }
    }

    fn sum(&self, counts: Counts) -> Option<&AtomicUsize> {
        match counts {
            Counts::Staying => Some(&self.0.staying),
            Counts::Leaving => Some(&self.0.leaving),
            Counts::Nowhere => None,
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 bytes of memory")]
    fn add(&self, counts: Counts, bytes: usize) {
        if let Some(sum) = self.sum(counts) {
            sum.fetch_add(bytes, Ordering::Relaxed);
            metrics::gauge!("answers_lying_bytes", "listener" => self.0.listener).increment(bytes as f64);
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "nobody has 2^52 bytes of memory")]
    fn subtract(&self, counts: Counts, bytes: usize) {
        if let Some(sum) = self.sum(counts) {
            sum.fetch_sub(bytes, Ordering::Relaxed);
            metrics::gauge!("answers_lying_bytes", "listener" => self.0.listener).decrement(bytes as f64);
        }
        if matches!(counts, Counts::Leaving) {
            self.0.freed.notify_waiters();
        }
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
    counts: Counts,
    /// Since when the client takes nothing.
    since: Instant,
}

/// Where the bytes of one client count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    /// It is unknown.
    Staying,
    /// It made way.
    Leaving,
    /// It is known.
    Nowhere,
}

impl Lying {
    pub(super) fn new(all: Ready, now: Instant) -> Self {
        Self { all, own: Mutex::new(Own { bytes: 0, counts: Counts::Staying, since: now }) }
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts so many bytes until what is returned is dropped; `None` for none, and for those of a client that
    /// is known.
    pub(super) fn hold(self: &Arc<Self>, bytes: usize, now: Instant) -> Option<Held> {
        let mut own = self.own();
        if own.counts == Counts::Nowhere || bytes == 0 {
            return None;
        }
        if own.bytes == 0 {
            own.since = now;
        }
        own.bytes += bytes;
        self.all.add(own.counts, bytes);
        Some(Held { of: Arc::clone(self), bytes })
    }

    /// The client took so much in one write.
    pub(super) fn taken(&self, bytes: usize, now: Instant) {
        if bytes > TAKEN {
            self.own().since = now;
        }
    }

    /// The client is known: nothing of it counts any more.
    pub(super) fn forget(&self) {
        self.count(Counts::Nowhere);
    }

    /// The client makes way: its bytes count as memory until they are dropped, and for nobody's share.
    pub(super) fn leave(&self) {
        self.count(Counts::Leaving);
    }

    fn count(&self, counts: Counts) {
        let mut own = self.own();
        let before = std::mem::replace(&mut own.counts, counts);
        if before != counts {
            self.all.add(counts, own.bytes);
            self.all.subtract(before, own.bytes);
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
        Bytes::from_owner(CountedBytes { data, _held: self })
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut own = self.of.own();
        own.bytes -= self.bytes;
        self.of.all.subtract(own.counts, self.bytes);
    }
}

struct CountedBytes {
    data: Bytes,
    _held: Held,
}

impl AsRef<[u8]> for CountedBytes {
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
        let (all, now) = (Ready::new("test"), Instant::now());
        let lying = Arc::new(Lying::new(all.clone(), now));
        let mut data = lying.hold(100, now).unwrap().with(Bytes::from(vec![b'x'; 100]));
        let last = data.split_off(99);
        drop(data);
        assert_eq!((all.bytes(), lying.now().0, &*last), (100, 100, &b"x"[..]));
        drop(last);
        assert_eq!((all.bytes(), lying.now().0), (0, 0));
    }

    #[test]
    fn what_a_known_client_has_does_not_count() {
        let (all, now) = (Ready::new("test"), Instant::now());
        let lying = Arc::new(Lying::new(all.clone(), now));
        let held = lying.hold(100, now).unwrap();
        lying.forget();
        lying.forget();
        assert_eq!(all.bytes(), 0);
        drop(held);
        assert_eq!(all.bytes(), 0);
        assert!(lying.hold(100, now).is_none());
    }

    #[tokio::test]
    async fn what_a_displaced_client_has_counts_until_it_is_dropped() {
        let (all, now) = (Ready::new("test"), Instant::now());
        let [leaving, other] = [(); 2].map(|()| Arc::new(Lying::new(all.clone(), now)));
        let (held, _others) = (leaving.hold(100, now), other.hold(50, now));
        leaving.leave();
        assert_eq!(all.bytes(), 50);
        let more = leaving.hold(10, now);
        let mut settled = std::pin::pin!(all.settled(70));
        assert!(futures::poll!(settled.as_mut()).is_pending());
        drop(held);
        assert!(futures::poll!(settled.as_mut()).is_ready(), "50 that stay and 10 that go");
        drop(more);
        assert_eq!(all.bytes(), 50);
        all.settled(10).await;
    }
}
