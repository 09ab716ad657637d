//! The group-commit writer of a SQL store: batches that wait together commit together.
//!
//! There is no timer. While one group is being made durable the next one gathers, so a lone write never
//! waits and a crowd shares one flush.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Batch, Commit, StoreError, health::Vitals};

/// Writes (not batches) that may share one commit.
const GROUP: usize = 500;
/// Batches that may wait; who comes later waits for a place.
const QUEUE: usize = 1_024;

/// How often the ledger is looked after when nobody writes.
const LOOK: Duration = Duration::from_secs(2);
/// A commit that takes longer is not given up, but said to fail.
const SLOW: Duration = Duration::from_secs(5);

/// Commits groups of batches to one database.
#[async_trait]
pub(super) trait Ledger: Send + 'static {
    /// Commits the group in one transaction and answers each batch, refused or not. On `Err` nothing of
    /// the group is committed, as far as that could be learnt.
    async fn commit(&mut self, group: &[Batch]) -> Result<Vec<Result<Commit, StoreError>>, StoreError>;

    /// Called between groups: the place for upkeep of the change log.
    async fn tidy(&mut self);

    /// Whether a write would have something to go to. Called now and then while writing works, so that
    /// it is known without anybody writing; mends what it can.
    async fn look(&mut self) -> Result<(), StoreError>;

    /// Why the next write may not find room, if that can be seen. Called whenever it was looked whether a write
    /// works.
    async fn shortage(&mut self) -> Option<Arc<str>> {
        None
    }

    /// Writes something durably that changes nothing. Called with growing pauses while writing fails, so
    /// that it is known without anybody writing when it works again.
    async fn probe(&mut self) -> Result<(), StoreError>;

    /// Whether what was found damaged is sound now: somebody may have taken it out of a database that others
    /// reach as well. Called now and then while there is damage.
    async fn heal(&mut self) -> Result<(), StoreError> {
        Err(StoreError::Damaged("only a start looks at all of the file".to_owned()))
    }

    /// Lets go of what it holds. Nothing else is called afterwards.
    async fn close(&mut self) {}
}

struct PendingBatch {
    batch: Batch,
    reply: oneshot::Sender<Result<Commit, StoreError>>,
}

/// The way to the one task that writes. The task ends with the store it belongs to.
pub(super) struct Writer {
    queue: mpsc::Sender<PendingBatch>,
    closing: CancellationToken,
    task: TaskTracker,
}

impl Writer {
    /// Starts the task, which keeps `vitals`.
    pub(super) fn start(ledger: impl Ledger, vitals: Arc<Vitals>) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let task = TaskTracker::new();
        task.spawn(run(ledger, waiting, closing.clone(), vitals));
        task.close();
        Self { queue, closing, task }
    }

    /// Queues a batch and waits until it is durable or refused. Once queued it is decided, also when
    /// the caller goes away.
    pub(super) async fn submit(&self, batch: Batch) -> Result<Commit, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(PendingBatch { batch, reply }).await.map_err(|_| closed())?;
        answer.await.map_err(|_| closed())?
    }

    /// Commits what is queued and ends the task.
    pub(super) async fn close(&self) {
        self.closing.cancel();
        self.task.wait().await;
    }
}

fn closed() -> StoreError {
    StoreError::backend("write to the store", "the store is closed")
}

async fn run(
    mut ledger: impl Ledger,
    mut waiting: mpsc::Receiver<PendingBatch>,
    closing: CancellationToken,
    vitals: Arc<Vitals>,
) {
    loop {
        let pause = vitals.pause().unwrap_or(LOOK);
        let first = tokio::select! {
            biased;
            first = waiting.recv() => first,
            () = closing.cancelled(), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
            () = tokio::time::sleep(pause) => {
                look(&mut ledger, &vitals).await;
                continue;
            }
        };
        let Some(first) = first else { break };
        let (batches, replies) = gather(first, &mut waiting);
        let answers = slow(commit(&mut ledger, &batches, &vitals), &vitals).await;
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The caller may be gone; its batch is committed all the same.
            let _ = reply.send(answer);
        }
        ledger.tidy().await;
        if vitals.watch().borrow().room.is_some() {
            vitals.has_room(ledger.shortage().await);
        }
        // Also when those who are refused leave no time to look.
        heal(&mut ledger, &vitals).await;
    }
    ledger.close().await;
}

async fn look(ledger: &mut impl Ledger, vitals: &Vitals) {
    let failing = vitals.pause().is_some();
    let outcome =
        slow(async { if failing { ledger.probe().await } else { ledger.look().await } }, vitals).await;
    match outcome {
        Ok(()) => vitals.works(),
        Err(error) => vitals.note(&error),
    }
    vitals.has_room(ledger.shortage().await);
    heal(ledger, vitals).await;
}

async fn heal(ledger: &mut impl Ledger, vitals: &Vitals) {
    if vitals.may_be_sound()
        && let Ok(()) = ledger.heal().await
    {
        vitals.healed();
    }
}

/// Waits for `work`, also when it takes long, but then says so meanwhile: a database that does not answer
/// keeps nobody from seeing that.
async fn slow<T>(work: impl Future<Output = T>, vitals: &Vitals) -> T {
    let mut work = std::pin::pin!(work);
    if let Ok(done) = timeout(SLOW, &mut work).await {
        return done;
    }
    vitals.failed(&StoreError::backend("commit to the database", format!("no answer for {SLOW:?}")));
    work.await
}

type Replies = Vec<oneshot::Sender<Result<Commit, StoreError>>>;

fn gather(first: PendingBatch, waiting: &mut mpsc::Receiver<PendingBatch>) -> (Vec<Batch>, Replies) {
    let mut writes = first.batch.writes.len();
    let mut batches = vec![first.batch];
    let mut replies = vec![first.reply];
    while writes < GROUP
        && let Ok(next) = waiting.try_recv()
    {
        writes += next.batch.writes.len();
        batches.push(next.batch);
        replies.push(next.reply);
    }
    (batches, replies)
}

/// Commits the group; when the database refuses a statement of it, each batch alone, so that one with
/// a value the database cannot hold does not take the others with it.
async fn commit(
    ledger: &mut impl Ledger,
    group: &[Batch],
    vitals: &Vitals,
) -> Vec<Result<Commit, StoreError>> {
    if let Some(damage) = vitals.damage() {
        return group.iter().map(|_| Err(StoreError::Unwritable(Arc::clone(&damage)))).collect();
    }
    match ledger.commit(group).await {
        Ok(answers) => {
            // What changes nothing needs no disk, and says nothing about it.
            if answers.iter().flatten().any(|commit| !commit.changed.is_empty()) {
                vitals.works();
            }
            answers
        }
        Err(error) if refuses_a_value(&error) && group.len() == 1 => vec![Err(error)],
        Err(error) if refuses_a_value(&error) => {
            let mut answers = Vec::with_capacity(group.len());
            for batch in group {
                let alone = Box::pin(commit(ledger, std::slice::from_ref(batch), vitals)).await;
                answers.extend(alone);
            }
            answers
        }
        Err(error) => {
            vitals.note(&error);
            let reason: Arc<str> = error.to_string().into();
            group.iter().map(|_| Err(StoreError::Unwritable(Arc::clone(&reason)))).collect()
        }
    }
}

/// Whether the statement failed for what it carried: a data exception or a broken constraint, of
/// Postgres (class 22, 23, 54) or SQLite (too big, constraint, mismatch).
fn refuses_a_value(error: &StoreError) -> bool {
    let StoreError::Backend { source, .. } = error else { return false };
    match source.downcast_ref::<sqlx::Error>() {
        Some(sqlx::Error::Encode(_)) => true,
        Some(sqlx::Error::Database(refusal)) => refusal.code().is_some_and(|code| {
            let sqlite = code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 18..=20));
            let postgres = code.len() == 5 && ["22", "23", "54"].iter().any(|class| code.starts_with(class));
            if code.len() == 5 { postgres } else { sqlite }
        }),
        _ => false,
    }
}
