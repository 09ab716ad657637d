//! Work that takes long, off the threads that answer everybody.

use std::{sync::Arc, thread::available_parallelism, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, spawn_blocking},
    time::timeout,
};
use tokio_util::task::AbortOnDropHandle;

/// Work on so few bytes is done faster than it is handed over.
const SMALL: usize = 8 << 10;

/// A few threads for work whose length strangers decide: reading what they sent, writing what they ask for.
/// Whoever brings more of it waits in line, while everything else goes on.
#[derive(Clone, Debug)]
pub struct Offload {
    seats: Arc<Semaphore>,
}

impl Default for Offload {
    /// Half the cores of the machine.
    fn default() -> Self {
        let cores = available_parallelism().map_or(1, usize::from);
        Self { seats: Arc::new(Semaphore::new((cores / 2).max(1))) }
    }
}

impl Offload {
    /// Does `work` on `bytes` of input: at once when they are few, else on a thread when one is free. Work
    /// that nobody waits for any more is still finished, and holds its thread until then.
    pub async fn run<T: Send + 'static>(&self, bytes: usize, work: impl FnOnce() -> T + Send + 'static) -> T {
        if Self::is_worth(bytes) { self.long(work).await } else { work() }
    }

    /// Whether work on so many bytes takes longer than handing it over.
    pub fn is_worth(bytes: usize) -> bool {
        bytes > SMALL
    }

    /// Does `work` on a thread when one is free. Whoever waits for that need not be looked after all the time: he is given
    /// his thread nevertheless, and keeps it from nobody.
    pub async fn long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let offload = self.clone();
        let waiting = tokio::spawn(async move { on(offload.seat().await, work).await });
        finished(AbortOnDropHandle::new(waiting).await).await
    }

    /// Does `work` on a thread that is free within `wait`; `None` when none is.
    pub async fn soon<T: Send + 'static>(
        &self,
        wait: Duration,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let seat = timeout(wait, self.seat()).await.ok()?;
        Some(on(seat, work).await)
    }

    async fn seat(&self) -> OwnedSemaphorePermit {
        Arc::clone(&self.seats).acquire_owned().await.expect("the seats are never closed")
    }
}

async fn on<T: Send + 'static>(seat: OwnedSemaphorePermit, work: impl FnOnce() -> T + Send + 'static) -> T {
    let working = spawn_blocking(move || {
        let done = work();
        drop(seat);
        done
    });
    finished(working.await).await
}

async fn finished<T>(work: Result<T, JoinError>) -> T {
    match work.map_err(JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The process ends before the work began, and whoever waits ends with it.
        Err(Err(_cancelled)) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_need_not_wait_for_long_is_told() {
        let offload = Offload { seats: Arc::new(Semaphore::new(1)) };
        let wait = Duration::from_secs(5);
        let taken = offload.seat().await;
        assert_eq!(offload.soon(wait, || 1).await, None);
        drop(taken);
        assert_eq!(offload.soon(wait, || 1).await, Some(1));
    }

    #[tokio::test]
    async fn who_waits_and_is_not_looked_after_keeps_a_thread_from_nobody() {
        let offload = Offload { seats: Arc::new(Semaphore::new(1)) };
        let taken = offload.seat().await;
        let (mut left, mut gone) = (Box::pin(offload.long(|| 1)), Box::pin(offload.long(|| 2)));
        assert!(futures::poll!(&mut left).is_pending() && futures::poll!(&mut gone).is_pending());
        // Both stand in line.
        tokio::task::yield_now().await;
        drop(gone);
        drop(taken);
        assert_eq!(offload.long(|| 3).await, 3);
        assert_eq!(left.await, 1);
    }

    #[tokio::test]
    async fn what_is_long_waits_for_a_thread_and_leaves_this_one_free() {
        let offload = Offload { seats: Arc::new(Semaphore::new(1)) };
        let (release, released) = mpsc::channel::<()>();
        let begin = |offload: Offload, work: Box<dyn FnOnce() -> u32 + Send>| {
            tokio::spawn(async move { offload.run(SMALL + 1, work).await })
        };
        let first = begin(offload.clone(), Box::new(move || released.recv().map_or(0, |()| 1)));
        while offload.seats.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        let second = begin(offload.clone(), Box::new(|| 2));
        // This test runs on one thread, so both hold up nobody.
        assert_eq!(offload.run(SMALL, || 3).await, 3);
        assert!(!second.is_finished());
        release.send(()).unwrap();
        assert_eq!((first.await.unwrap(), second.await.unwrap()), (1, 2));
    }
}
