//! How global answers on a stream.

use std::pin::Pin;

use common::kds::outbox::{self, Outbox};
use futures::{Stream, StreamExt, stream};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// Messages between a stream's task and its connection. One per type is on its way at most.
const QUEUE: usize = 64;
/// Messages that may wait before that queue.
const OUTBOX: usize = 128;

/// Messages, and the status they end with.
pub(super) type Reply<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// A reply stream: what goes through the outbox, then the status the stream ends with. A stream to a zone
/// never ends with OK, because zones of Kuma take that for the end of all sync.
pub(super) fn reply<T: Send + 'static>() -> (Outbox<T>, Reply<T>, oneshot::Sender<Status>) {
    let (wire, reply, end) = wire();
    (Outbox::new(wire, OUTBOX), reply, end)
}

/// The same without an outbox, for who has others before it.
pub(super) fn wire<T: Send + 'static>() -> (mpsc::Sender<Box<T>>, Reply<T>, oneshot::Sender<Status>) {
    let (wire, queue) = outbox::wire(QUEUE);
    let (end, ended) = oneshot::channel();
    let last = async { Err(ended.await.unwrap_or_else(|_| Status::internal("stream failed"))) };
    let reply = queue.map(Ok).chain(stream::once(last));
    (wire, Box::pin(reply), end)
}
