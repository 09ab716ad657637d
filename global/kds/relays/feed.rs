//! One relay follows: everything it lacks at once, then what changes, one state under way at a time.

use std::{sync::Arc, time::Duration};

use common::{
    kds::{
        headers::Upstream,
        outgoing::{ChangedNames, OutgoingResources, SharedOutgoing},
        serve::Ended,
    },
    proto::strait::relay::v1alpha1::{RelayFollowRequest, RelayFollowResponse},
    store::{StoreIdentity, index::IndexReader},
};
use futures::{Stream, StreamExt};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    form::ForRelays,
    parts::{HeldByRelay, LargestSent, StateParts},
};
use crate::kds::history::ZoneHistory;

/// How long nothing but a new revision may wait for company.
const PACE: Duration = Duration::from_millis(200);
/// How long a relay may take to say what it holds, to take a message, and to store a state.
const PATIENCE: Duration = Duration::from_secs(120);

/// The stream on which one relay follows.
pub(super) struct RelayFeed {
    pub(super) outgoing: Arc<SharedOutgoing<ForRelays>>,
    pub(super) index: IndexReader,
    /// In which what is sent has its position.
    pub(super) history: ZoneHistory,
    pub(super) wire: mpsc::Sender<RelayFollowResponse>,
    /// Largest message on this side, in bytes.
    pub(super) max_message: usize,
    pub(super) stop: CancellationToken,
}

impl RelayFeed {
    /// Feeds until the stream ends.
    pub(super) async fn run(
        mut self,
        mut inbound: impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin,
    ) -> Ended {
        let stop = self.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Ended::Stopped,
            ended = self.feed(&mut inbound) => ended.err().unwrap_or(Ended::Stopped),
        }
    }

    async fn feed(
        &mut self,
        inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    ) -> Result<(), Ended> {
        let (held, largest) = within(PATIENCE, read_held(inbound)).await??;
        let largest = LargestSent::of(self.max_message, largest);
        let mut sent = self.outgoing.for_last(&self.index.latest());
        let mut changed = held.lacks(&sent);
        drop(held);
        let mut shown = self.history.watch();
        loop {
            let history = *shown.borrow_and_update();
            let position = Upstream::new(history, sent.index.revision).to_text();
            // Each is made when there is room for it: a relay that takes nothing costs what waits in the queue.
            let mut parts = StateParts::new(Arc::clone(&sent), changed, position.clone(), largest);
            while !parts.is_over() {
                let room = within(PATIENCE, self.wire.reserve()).await?.map_err(|_| Ended::ByPeer)?;
                if let Some(message) = parts.next() {
                    room.send(message);
                }
            }
            drop(parts);
            let answered = Instant::now();
            within(PATIENCE, answer(inbound, &position)).await??;
            (sent, changed) = self.next(&sent, answered, &mut shown, inbound).await?;
        }
    }

    /// The next state that is worth a message: at once when it holds something new.
    async fn next(
        &mut self,
        sent: &Arc<OutgoingResources>,
        since: Instant,
        shown: &mut watch::Receiver<StoreIdentity>,
        inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    ) -> Result<(Arc<OutgoingResources>, ChangedNames), Ended> {
        let mut due = None;
        loop {
            let is_due = tokio::select! {
                shown = self.index.changed() => match shown {
                    true => false,
                    false => return Err(Ended::Stopped),
                },
                // From now on it has another position, also when nothing else is new.
                Ok(()) = shown.changed() => true,
                () = sleep_until(due.unwrap_or(since)), if due.is_some() => true,
                said = inbound.next() => return Err(unexpected(said)),
            };
            let next = self.outgoing.for_last(&self.index.latest());
            let changed = next.changed_since(sent);
            if is_due || !changed.is_empty() {
                return Ok((next, changed));
            }
            due = Some(since + PACE);
        }
    }
}

fn unexpected(said: Option<Result<RelayFollowRequest, Status>>) -> Ended {
    match said {
        None => Ended::ByPeer,
        Some(Err(status)) => Ended::Broken(status),
        Some(Ok(_)) => Ended::Protocol("the relay answers what it was not sent".to_owned()),
    }
}

/// What comes of `step`, unless the relay takes longer than `patience` over it.
async fn within<T>(patience: Duration, step: impl Future<Output = T>) -> Result<T, Ended> {
    timeout(patience, step).await.map_err(|_| Ended::Stalled(patience))
}

/// What the relay holds, and the largest message it takes, where it says so.
async fn read_held(
    inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
) -> Result<(HeldByRelay, Option<u64>), Ended> {
    let (mut held, mut largest) = (HeldByRelay::default(), None);
    loop {
        let said = match inbound.next().await {
            Some(Ok(said)) => said,
            other => return Err(unexpected(other)),
        };
        held.take(said.held).map_err(|error| Ended::Protocol(error.to_string()))?;
        largest = largest.or((said.max_message > 0).then_some(said.max_message));
        if said.held_complete {
            return Ok((held, largest));
        }
    }
}

async fn answer(
    inbound: &mut (impl Stream<Item = Result<RelayFollowRequest, Status>> + Unpin),
    position: &str,
) -> Result<(), Ended> {
    match inbound.next().await {
        Some(Ok(said)) if said.reached == position => Ok(()),
        other => Err(unexpected(other)),
    }
}

#[cfg(test)]
mod tests;
