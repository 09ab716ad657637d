//! How long a server may say nothing.
//!
//! A machine that hangs and a way that swallows what is sent end no connection, and the limits of a session are kept by the
//! server. So whoever waits here gives up when nothing came for longer than those limits allow. Work that takes long and
//! is answered meanwhile goes on.

use std::{
    future::poll_fn,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use futures::task::AtomicWaker;
use thiserror::Error;
use tokio::time::{Instant, sleep};

use crate::store::StoreError;

/// Longer than any statement may run (`statement_timeout`).
pub(super) const SILENCE: Duration = Duration::from_secs(40);
/// For what a server that is well answers at once, and others wait for: the feed, leases, session documents.
pub(super) const PROMPT: Duration = Duration::from_secs(15);
/// For what has no limit at the server: changing tables, reading a damaged database.
pub(super) const LONG: Duration = Duration::from_secs(30 * 60);

/// Nothing was heard from the server for so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("no answer for {0:?}")]
pub(super) struct SilenceError(Duration);

impl From<SilenceError> for sqlx::Error {
    fn from(silence: SilenceError) -> Self {
        Self::Io(io::Error::new(io::ErrorKind::TimedOut, silence))
    }
}

impl From<SilenceError> for StoreError {
    fn from(silence: SilenceError) -> Self {
        Self::backend("ask the database", silence)
    }
}

/// Goes with the connections that are used under a limit, and tells them when it is over: they then end without a word
/// to the server.
#[derive(Clone, Default)]
pub(super) struct SilenceWatch(Arc<AtomicBool>);

impl SilenceWatch {
    /// Whether the server said nothing for too long.
    pub(super) fn is_over(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Does a part of the work until nothing was heard for `limit`.
    pub(super) async fn hear<T, E: From<SilenceError>>(
        &self,
        limit: Duration,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let heard = Arc::new(ServerNews { any: AtomicBool::new(true), waiting: AtomicWaker::new() });
        let waker = Waker::from(Arc::clone(&heard));
        let mut work = pin!(work);
        let mut over = pin!(sleep(limit));
        poll_fn(|context| {
            heard.waiting.register(context.waker());
            // What else the task waits for is no news of the server.
            if heard.any.swap(false, Ordering::AcqRel) {
                over.as_mut().reset(Instant::now() + limit);
                if let Poll::Ready(done) = work.as_mut().poll(&mut Context::from_waker(&waker)) {
                    return Poll::Ready(done);
                }
            }
            over.as_mut().poll(context).map(|()| {
                self.0.store(true, Ordering::Release);
                Err(SilenceError(limit).into())
            })
        })
        .await
    }
}

/// Does all of the work until nothing was heard for `limit`.
pub(super) async fn unless_silent<T, E, F>(
    limit: Duration,
    work: impl FnOnce(SilenceWatch) -> F,
) -> Result<T, E>
where
    E: From<SilenceError>,
    F: Future<Output = Result<T, E>>,
{
    let watch = SilenceWatch::default();
    watch.hear(limit, work(watch.clone())).await
}

/// Notes that the work was woken, and wakes who waits for it.
struct ServerNews {
    any: AtomicBool,
    waiting: AtomicWaker,
}

impl Wake for ServerNews {
    fn wake(self: Arc<Self>) {
        self.any.store(true, Ordering::Release);
        self.waiting.wake();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::future::pending;

    use tokio::time::interval;

    use super::*;

    const SHORT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn silence_ends_the_wait_whatever_else_the_task_does() {
        let mut told = SilenceWatch::default();
        let began = Instant::now();
        let waiting = unless_silent(SHORT, |watch| {
            told = watch;
            pending::<sqlx::Result<()>>()
        });
        let ticking = async {
            let mut ticks = interval(Duration::from_secs(1));
            loop {
                ticks.tick().await;
            }
        };
        let outcome = tokio::select! { biased; outcome = waiting => outcome, () = ticking => Ok(()) };
        assert_eq!(outcome.unwrap_err().to_string(), "error communicating with database: no answer for 10s");
        assert_eq!(began.elapsed().as_secs(), 10);
        assert!(told.is_over());
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_and_is_answered_goes_on() {
        let done = unless_silent(SHORT, |_| async {
            for _ in 0..20 {
                sleep(SHORT - Duration::from_secs(1)).await;
            }
            Ok::<_, sqlx::Error>("done")
        });
        assert_eq!(done.await.unwrap(), "done");
    }
}
