//! The group-commit writer of a SQL store: batches that wait together commit together.
//!
//! There is no timer. While one group is being made durable the next one gathers, so a lone write never
//! waits and a crowd shares one flush.

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Batch, Commit, StoreError};

/// Writes (not batches) that may share one commit.
const GROUP: usize = 500;
/// Batches that may wait; who comes later waits for a place.
const QUEUE: usize = 1_024;

/// Commits groups of batches to one database.
#[async_trait]
pub(super) trait Ledger: Send + 'static {
    /// Commits the group in one transaction and answers each batch, refused or not. On `Err` nothing of
    /// the group is committed, as far as that could be learnt.
    async fn commit(&mut self, group: &[Batch]) -> Result<Vec<Result<Commit, StoreError>>, StoreError>;

    /// Called between groups: the place for upkeep of the change log.
    async fn tidy(&mut self);
}

struct Pending {
    batch: Batch,
    reply: oneshot::Sender<Result<Commit, StoreError>>,
}

/// The way to the one task that writes. The task ends with the store it belongs to.
pub(super) struct Writer {
    queue: mpsc::Sender<Pending>,
    closing: CancellationToken,
    task: TaskTracker,
}

impl Writer {
    /// Starts the task.
    pub(super) fn start(ledger: impl Ledger) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let closing = CancellationToken::new();
        let task = TaskTracker::new();
        task.spawn(run(ledger, waiting, closing.clone()));
        task.close();
        Self { queue, closing, task }
    }

    /// Queues a batch and waits until it is durable or refused. Once queued it is decided, also when
    /// the caller goes away.
    pub(super) async fn submit(&self, batch: Batch) -> Result<Commit, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.queue.send(Pending { batch, reply }).await.map_err(|_| closed())?;
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

async fn run(mut ledger: impl Ledger, mut waiting: mpsc::Receiver<Pending>, closing: CancellationToken) {
    loop {
        let first = tokio::select! {
            biased;
            first = waiting.recv() => first,
            () = closing.cancelled(), if !waiting.is_closed() => {
                waiting.close();
                continue;
            }
        };
        let Some(first) = first else { return };
        let (batches, replies) = gather(first, &mut waiting);
        let answers = commit(&mut ledger, &batches).await;
        for (reply, answer) in replies.into_iter().zip(answers) {
            // The caller may be gone; its batch is committed all the same.
            let _ = reply.send(answer);
        }
        ledger.tidy().await;
    }
}

type Replies = Vec<oneshot::Sender<Result<Commit, StoreError>>>;

fn gather(first: Pending, waiting: &mut mpsc::Receiver<Pending>) -> (Vec<Batch>, Replies) {
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
async fn commit(ledger: &mut impl Ledger, group: &[Batch]) -> Vec<Result<Commit, StoreError>> {
    match ledger.commit(group).await {
        Ok(answers) => answers,
        Err(error) if group.len() > 1 && refuses_a_value(&error) => {
            let mut answers = Vec::with_capacity(group.len());
            for batch in group {
                answers.push(match ledger.commit(std::slice::from_ref(batch)).await {
                    Ok(mut one) => one.pop().unwrap_or_else(|| Err(closed())),
                    Err(error) => Err(error),
                });
            }
            answers
        }
        Err(error) => {
            let error = Shared::of(error);
            group.iter().map(|_| Err(error.again())).collect()
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

/// One failure, told to everyone it concerns.
enum Shared {
    Foreign(String),
    Backend(String, Arc<dyn Error + Send + Sync>),
}

impl Shared {
    fn of(error: StoreError) -> Self {
        match error {
            StoreError::Foreign(text) => Self::Foreign(text),
            StoreError::Backend { doing, source } => Self::Backend(doing, source.into()),
            other => Self::Backend("commit".to_owned(), Arc::new(other)),
        }
    }

    fn again(&self) -> StoreError {
        match self {
            Self::Foreign(text) => StoreError::Foreign(text.clone()),
            Self::Backend(doing, source) => StoreError::backend(doing.clone(), Told(Arc::clone(source))),
        }
    }
}

/// A cause that several errors share.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Told(Arc<dyn Error + Send + Sync>);
