//! Messages on their way out of a task that must not stop reading.
//!
//! When both peers of a stream block in a send, neither reads and both wait forever. So nobody here sends
//! and waits: what does not fit into the queue of the wire waits in this box while its owner goes on
//! reading.

use std::collections::VecDeque;

use futures::{StreamExt, stream::Map};
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

/// Why a message will not reach the peer.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum OutboxError {
    /// The stream is gone.
    #[error("the stream is closed")]
    Closed,
    /// The peer takes nothing any more but keeps asking.
    #[error("the peer does not read what it asks for")]
    Full,
}

/// A queue to the peer with room for so many messages, and what comes out of it. There is memory for dozens of them from its
/// beginning, so what goes through it is a pointer: as messages, two queues of a zone that is at rest took 50 KiB.
pub fn wire<T>(room: usize) -> (mpsc::Sender<Box<T>>, WireQueue<T>) {
    let (wire, queue) = mpsc::channel(room);
    (wire, ReceiverStream::new(queue).map(|message| *message))
}

/// What comes out of a queue to the peer.
pub type WireQueue<T> = Map<ReceiverStream<Box<T>>, fn(Box<T>) -> T>;

/// The box. One response or acknowledgement per type is on its way at most, so it stays small.
#[derive(Debug)]
pub struct Outbox<T> {
    waiting: VecDeque<Box<T>>,
    wire: mpsc::Sender<Box<T>>,
    limit: usize,
}

impl<T> Outbox<T> {
    /// A box before `wire` that holds at most `limit` messages.
    pub fn new(wire: mpsc::Sender<Box<T>>, limit: usize) -> Self {
        Self { waiting: VecDeque::new(), wire, limit }
    }

    /// Puts a message in; it leaves at once when the wire has room.
    ///
    /// # Errors
    /// [`OutboxError`] when it can never leave.
    pub fn push(&mut self, message: T) -> Result<(), OutboxError> {
        let message = match self.waiting.is_empty() {
            true => match self.wire.try_send(Box::new(message)) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Closed(_)) => return Err(OutboxError::Closed),
                Err(mpsc::error::TrySendError::Full(message)) => message,
            },
            false => Box::new(message),
        };
        if self.waiting.len() >= self.limit {
            return Err(OutboxError::Full);
        }
        self.waiting.push_back(message);
        Ok(())
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Hands one waiting message to the wire once it has room. Loses nothing when dropped before.
    ///
    /// # Errors
    /// [`OutboxError::Closed`].
    pub async fn drain_one(&mut self) -> Result<(), OutboxError> {
        let permit = self.wire.reserve().await.map_err(|_| OutboxError::Closed)?;
        if let Some(message) = self.waiting.pop_front() {
            permit.send(message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn messages_keep_their_order_and_a_stuck_peer_is_noticed() {
        let (wire, mut peer) = wire(1);
        let mut outbox = Outbox::new(wire, 2);
        for message in 1..=3 {
            outbox.push(message).unwrap();
        }
        assert_eq!(outbox.push(4), Err(OutboxError::Full));
        assert_eq!(peer.next().await, Some(1));
        outbox.drain_one().await.unwrap();
        assert_eq!(peer.next().await, Some(2));
        outbox.drain_one().await.unwrap();
        assert_eq!(peer.next().await, Some(3));
        assert!(outbox.is_empty());
        drop(peer);
        assert_eq!(outbox.push(5), Err(OutboxError::Closed));
    }
}
