//! What wakes a stream besides its proxy.
//!
//! A stream is told of several things, most of them rarely, and it listens in one place: listening to each in its own
//! costs a registration and a lock for each of them, whenever the stream has done anything at all.

use std::{
    sync::atomic::{AtomicU8, Ordering},
    task::{Context, Poll},
};

use futures::task::AtomicWaker;

/// What a stream is woken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Signal {
    /// Its proxy should have something else than before.
    Configured = 1,
    /// The connection has room again, or is gone.
    Room = 1 << 1,
    /// Something changed on which its being let in rests.
    Grant = 1 << 2,
    /// Somebody asks what it told its proxy.
    Asked = 1 << 3,
    /// It is to end.
    Dismissed = 1 << 4,
}

/// Signals for one stream. Those that are raised again before it took them are one.
#[derive(Debug, Default)]
pub struct StreamSignals {
    raised: AtomicU8,
    listener: AtomicWaker,
}

/// Signals that a stream took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raised(u8);

impl Raised {
    /// Whether this one is among them.
    pub fn has(self, signal: Signal) -> bool {
        self.0 & signal as u8 != 0
    }
}

impl StreamSignals {
    /// Wakes the stream for this.
    pub fn raise(&self, signal: Signal) {
        let bit = signal as u8;
        // Whoever raised it first wakes the stream.
        if self.raised.fetch_or(bit, Ordering::AcqRel) & bit == 0 {
            self.listener.wake();
        }
    }

    /// Waits until there are some, and takes them. Only one may wait at a time.
    pub async fn raised(&self) -> Raised {
        std::future::poll_fn(|context| self.poll(context)).await
    }

    fn poll(&self, context: &Context<'_>) -> Poll<Raised> {
        if let Some(raised) = self.take() {
            return Poll::Ready(raised);
        }
        self.listener.register(context.waker());
        // One may have been raised before there was anybody to wake.
        self.take().map_or(Poll::Pending, Poll::Ready)
    }

    fn take(&self) -> Option<Raised> {
        let raised = self.raised.swap(0, Ordering::AcqRel);
        (raised != 0).then_some(Raised(raised))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn what_is_raised_before_or_while_somebody_waits_is_taken_once() {
        let signals = Arc::new(StreamSignals::default());
        signals.raise(Signal::Room);
        signals.raise(Signal::Asked);
        signals.raise(Signal::Room);
        let raised = signals.raised().await;
        assert!(raised.has(Signal::Room) && raised.has(Signal::Asked) && !raised.has(Signal::Dismissed));
        let listener = tokio::spawn({
            let signals = Arc::clone(&signals);
            async move { signals.raised().await }
        });
        tokio::task::yield_now().await;
        assert!(!listener.is_finished(), "they were taken");
        signals.raise(Signal::Dismissed);
        assert_eq!(listener.await.ok(), Some(Raised(Signal::Dismissed as u8)));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn none_is_lost_between_threads() {
        let signals = Arc::new(StreamSignals::default());
        let other = Arc::new(StreamSignals::default());
        let echo = tokio::spawn({
            let (signals, other) = (Arc::clone(&signals), Arc::clone(&other));
            async move {
                for _ in 0..20_000 {
                    signals.raised().await;
                    other.raise(Signal::Room);
                }
            }
        });
        for _ in 0..20_000 {
            signals.raise(Signal::Configured);
            other.raised().await;
        }
        assert!(echo.await.is_ok());
    }
}
