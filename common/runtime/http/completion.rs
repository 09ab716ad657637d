//! Work that is done to its end though its client hangs up: a write, and whatever tells of it.
//!
//! What waits for its answer is bounded by the connections of its client. What goes on without him is not, so it is
//! counted until it is done: while there is much of it at an address, what else comes from there waits, as long as
//! its client does. So nobody has more done by hanging up.

use std::{
    collections::HashMap,
    net::IpAddr,
    panic::resume_unwind,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use thiserror::Error;
use tokio::{sync::Notify, task::JoinError, time::timeout};
use tokio_util::task::TaskTracker;

use super::turns::network;

/// What may go on for one address without its clients before the next has to wait.
const LEFT_PER_ADDRESS: usize = 32;
/// And for all.
const LEFT: usize = 256;
/// Longest time something waits for that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Too much goes on that nobody waits for any more.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "too much that was asked for from this address goes on though whoever asked has hung up; try again in a few seconds"
)]
pub struct Unattended;

/// What goes on at one listener whether its clients are there or not.
#[derive(Debug, Default)]
pub(super) struct WorkInProgress {
    /// Those of the listener, which waits for them before it ends.
    tasks: TaskTracker,
    left: Mutex<LeftWork>,
    ended: Notify,
}

/// How much goes on without a client.
#[derive(Debug, Default)]
struct LeftWork {
    all: usize,
    /// By address; never zero.
    at: HashMap<IpAddr, usize>,
}

/// Leave to do something to its end.
#[derive(Debug, Default)]
pub struct Completion(Option<(Arc<WorkInProgress>, IpAddr)>);

impl WorkInProgress {
    /// Of a listener with these tasks.
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self { tasks, ..Self::default() }
    }

    /// Waits until not too much goes on without its client, for this address and for all.
    pub(super) async fn admit(self: &Arc<Self>, at: IpAddr) -> Result<Completion, Unattended> {
        let at = network(at);
        let room = async {
            loop {
                let mut ended = pin!(self.ended.notified());
                ended.as_mut().enable();
                if self.lock().has_room(at) {
                    return;
                }
                ended.await;
            }
        };
        timeout(PATIENCE, room).await.map_err(|_| Unattended)?;
        Ok(Completion(Some((Arc::clone(self), at))))
    }

    fn lock(&self) -> MutexGuard<'_, LeftWork> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeftWork {
    fn has_room(&self, at: IpAddr) -> bool {
        self.all < LEFT && self.at.get(&at).is_none_or(|left| *left < LEFT_PER_ADDRESS)
    }

    fn add(&mut self, at: IpAddr) {
        self.all += 1;
        *self.at.entry(at).or_default() += 1;
    }

    fn remove(&mut self, at: IpAddr) {
        self.all -= 1;
        if let Some(left) = self.at.get_mut(&at) {
            *left -= 1;
            if *left == 0 {
                self.at.remove(&at);
            }
        }
    }
}

impl Completion {
    /// Does `work` to its end, also when what is returned is dropped before; where no server counts, only as long as
    /// it is not.
    pub async fn run<T: Send + 'static>(self, work: impl Future<Output = T> + Send + 'static) -> T {
        let Some((all, at)) = self.0 else { return work.await };
        let known = Arc::new(WorkState { all: Arc::clone(&all), at, phase: Mutex::new(WorkPhase::Attended) });
        let (doing, attending) = (Doing(Arc::clone(&known)), Attending(known));
        let working = all.tasks.spawn(async move {
            let _doing = doing;
            work.await
        });
        let done = working.await;
        drop(attending);
        match done.map_err(JoinError::try_into_panic) {
            Ok(done) => done,
            Err(Ok(panic)) => resume_unwind(panic),
            // The process ends, and whoever waits ends with it.
            Err(Err(_cancelled)) => std::future::pending().await,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WorkPhase {
    /// Its client waits for it.
    Attended,
    /// Its client has hung up.
    Left,
    Done,
}

/// One piece of work, as those know it who do it and who wait for it.
#[derive(Debug)]
struct WorkState {
    all: Arc<WorkInProgress>,
    at: IpAddr,
    phase: Mutex<WorkPhase>,
}

impl WorkState {
    fn phase(&self) -> MutexGuard<'_, WorkPhase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Dropped when nobody waits any more.
struct Attending(Arc<WorkState>);

impl Drop for Attending {
    fn drop(&mut self) {
        let mut phase = self.0.phase();
        if *phase == WorkPhase::Attended {
            *phase = WorkPhase::Left;
            self.0.all.lock().add(self.0.at);
        }
    }
}

/// Dropped when it is done, or has panicked.
struct Doing(Arc<WorkState>);

impl Drop for Doing {
    fn drop(&mut self) {
        let before = std::mem::replace(&mut *self.0.phase(), WorkPhase::Done);
        if before == WorkPhase::Left {
            self.0.all.lock().remove(self.0.at);
            self.0.all.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::future::pending;

    use futures::poll;
    use tokio::sync::{oneshot, watch};

    use super::*;

    fn at(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    /// Work that is begun and left; it goes on until the sender says so.
    async fn leave(all: &Arc<WorkInProgress>, last: u8, until: &watch::Receiver<bool>) {
        let mut until = until.clone();
        let work = async move { until.wait_for(|is| *is).await.map(|_| ()) };
        let mut asked = Box::pin(all.admit(at(last)).await.unwrap().run(work));
        assert!(poll!(&mut asked).is_pending());
    }

    #[tokio::test]
    async fn what_was_begun_is_done_though_nobody_waits_for_it() {
        let all = Arc::new(WorkInProgress::default());
        let (go, until) = oneshot::channel::<()>();
        let (done, is_done) = oneshot::channel();
        let work = async move {
            until.await.unwrap();
            done.send("done").unwrap();
        };
        let mut asked = Box::pin(all.admit(at(1)).await.unwrap().run(work));
        assert!(poll!(&mut asked).is_pending());
        drop(asked);
        assert_eq!(all.lock().all, 1);
        all.tasks.close();
        let mut joined = pin!(all.tasks.wait());
        assert!(poll!(joined.as_mut()).is_pending(), "who stops waits for it");
        go.send(()).unwrap();
        assert_eq!(is_done.await.unwrap(), "done");
        joined.await;
        let left = all.lock();
        assert_eq!((left.all, left.at.len()), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn who_hangs_up_has_no_more_done_than_who_stays() {
        let all = Arc::new(WorkInProgress::default());
        let (done, until) = watch::channel(false);
        for _ in 0..LEFT_PER_ADDRESS {
            leave(&all, 1, &until).await;
        }
        assert_eq!(all.admit(at(1)).await.unwrap_err(), Unattended);
        assert_eq!(all.admit(at(2)).await.unwrap().run(async { 7 }).await, 7, "others go on");
        let mut waiting = Box::pin(all.admit(at(1)));
        assert!(poll!(&mut waiting).is_pending());
        done.send(true).unwrap();
        assert_eq!(waiting.await.unwrap().run(async { 8 }).await, 8);
        assert_eq!(all.lock().all, 0);

        done.send(false).unwrap();
        for last in 0..=u8::MAX {
            leave(&all, last, &until).await;
        }
        assert_eq!(all.admit([10, 0, 1, 1].into()).await.unwrap_err(), Unattended);
    }

    #[tokio::test]
    async fn what_its_client_waits_for_does_not_count() {
        let all = Arc::new(WorkInProgress::default());
        for _ in 0..2 * LEFT_PER_ADDRESS {
            assert_eq!(all.admit(at(1)).await.unwrap().run(async { 1 }).await, 1);
        }
        let waiting: Vec<_> = (0..2 * LEFT_PER_ADDRESS)
            .map(|_| {
                let all = Arc::clone(&all);
                tokio::spawn(async move { all.admit(at(1)).await.unwrap().run(pending::<()>()).await })
            })
            .collect();
        while all.tasks.len() < waiting.len() {
            tokio::task::yield_now().await;
        }
        assert!(all.admit(at(1)).await.is_ok());
        let panics = all.admit(at(1)).await.unwrap().run(async { panic!("on purpose") });
        let panics: Result<(), JoinError> = tokio::spawn(panics).await;
        assert!(panics.unwrap_err().is_panic(), "it is that of who waits");
        assert_eq!(all.lock().all, 0);
    }
}
