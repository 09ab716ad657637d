//! A sync stream in server role: global towards a zone, and a zone towards global.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{Stream, StreamExt};
use prost::Message;
use thiserror::Error;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::{
    features::RESUME,
    insight::Outcome,
    metadata::Peer,
    meter,
    needless::{NeedlessWords, TooTalkative},
    outbox::{Outbox, OutboxError},
    outgoing::ChangedNames,
    size::largest_sent,
    watch::{Position, Watch},
};
use crate::{
    clip::clip,
    model::ResourceKey,
    offers::OfferWishes,
    redact,
    store::{
        StoreIdentity,
        index::{Index, IndexReader},
    },
    xds::{
        Delta, Dialect, Input, Malformed, Refusals, Retry, Source, SourceEvent, SourceSettings, TypeProgress,
        Want,
    },
};

/// Bytes of one response to a peer that takes a state in parts.
const CHUNK: usize = 512 * 1024;
/// What of the words of a peer is logged, in bytes; the status of the zone shows the rest.
const LONGEST_LOGGED: usize = 1024;
/// And what of them is kept.
const LONGEST_WORDS: usize = 4096;
/// How long a peer of another make may owe an answer. It stores one type after the other, and rolls back
/// what it has not finished when its stream ends: cut short, a large first state would start over for ever.
const FOREIGN_PATIENCE: Duration = Duration::from_secs(300);

/// What one receiver should hold, following the index.
pub trait View: Want + Send {
    /// Moves on to `index` and names what may have changed for the receiver, by type.
    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames;

    /// What the receiver should have and cannot get, in words, by type.
    fn withheld(&self) -> BTreeMap<&'static str, String>;

    /// Where that is stored here which the receiver knows by this name.
    fn key_of(&self, type_name: &str, name: &str) -> Option<ResourceKey>;
}

/// Why a stream ended.
#[derive(Debug, Error)]
pub enum Ended {
    /// The peer closed its half in order.
    #[error("the peer closed the stream")]
    ByPeer,
    /// The stream broke.
    #[error("the stream broke: {:?} {}", .0.code(), redact::words(.0.message(), LONGEST_LOGGED))]
    Broken(Status),
    /// This side was told to end it.
    #[error("the stream was ended from this side")]
    Stopped,
    /// The peer does not speak the protocol.
    #[error("{0}")]
    Malformed(#[from] Malformed),
    /// The peer stopped taking messages.
    #[error("{0}")]
    Outbox(#[from] OutboxError),
    /// The peer owes an answer for too long.
    #[error("the peer has not answered for {0:?}")]
    Stalled(Duration),
    /// What the peer sends cannot be stored.
    #[error("{0}")]
    Apply(#[from] super::apply::ApplyError),
    /// The peer does not speak the protocol in client role.
    #[error("{0}")]
    Protocol(String),
    /// The peer says much that nobody needs.
    #[error("{0}")]
    Talkative(#[from] TooTalkative),
}

/// How long a peer keeps what it had before it is first offered again what it refused.
const RECONSIDER_AFTER: Duration = Duration::from_secs(10);

/// A stream in server role, in either dialect.
pub struct Serving<D: Dialect = Delta> {
    /// Who answers, as `control_plane.identifier`.
    pub identifier: String,
    /// Types served.
    pub types: Vec<&'static str>,
    /// What changed here.
    pub index: IndexReader,
    /// Responses on their way.
    pub outbox: Outbox<D::Response>,
    /// Who keeps track.
    pub watch: Arc<dyn Watch>,
    /// Ends the stream.
    pub stop: CancellationToken,
    /// How long the peer may owe an answer and give no other; one of another make gets more time.
    pub stall_after: Duration,
    /// What the peer refuses; empty at first.
    pub refusals: Refusals,
    /// Where operators wish that something refused is offered again.
    pub wishes: OfferWishes,
    /// Largest message, in bytes.
    pub max_message: usize,
}

impl<D: Dialect<Response: Message>> Serving<D> {
    /// Serves until the stream ends. `open` makes the view once the peer has said who it is.
    pub async fn run<V: View>(
        mut self,
        mut inbound: impl Stream<Item = Result<D::Request, Status>> + Unpin,
        open: impl FnOnce(&Peer, &Arc<Index>) -> V,
    ) -> Ended {
        let first = tokio::select! {
            () = self.stop.cancelled() => return Ended::Stopped,
            first = inbound.next() => first,
        };
        let first = match first {
            None => return Ended::ByPeer,
            Some(Err(status)) => return Ended::Broken(status),
            Some(Ok(request)) => request,
        };
        let peer = D::envelope(&first).node.map(Peer::read).unwrap_or_default();
        let types = self.types.iter().copied();
        let mut source = Source::<D>::new(SourceSettings::kds(self.identifier.as_str(), types));
        let fits = largest_sent(self.max_message);
        if peer.features.has(RESUME) {
            source.limit_bytes(Some(CHUNK.min(fits)));
        } else {
            // Such a peer takes the first response for all there is, and gets it whole if a message can hold it.
            source.limit_bytes(Some(fits));
            self.stall_after = self.stall_after.max(FOREIGN_PATIENCE);
        }
        self.watch.introduced(&peer);
        let index = self.index.latest();
        let began = Instant::now();
        let mut view = open(&peer, &index);
        meter::generated("resync", true, began.elapsed());
        let _counted = meter::Active::new();
        match self.serve(&mut source, &mut view, index.store, first, inbound).await {
            Ok(never) => match never {},
            Err(ended) => ended,
        }
    }

    async fn serve(
        &mut self,
        source: &mut Source<D>,
        view: &mut impl View,
        history: StoreIdentity,
        first: D::Request,
        mut inbound: impl Stream<Item = Result<D::Request, Status>> + Unpin,
    ) -> Result<std::convert::Infallible, Ended> {
        let mut retry = Retry::new(RECONSIDER_AFTER);
        let mut withheld = WithheldTypes::default();
        self.tell_withheld(view, &mut withheld);
        let mut needless = NeedlessWords::default();
        let mut answered = self.hear(source, view, &first, &mut retry, &mut needless)?;
        let (mut has_news, mut last_answer) = (true, None);
        loop {
            // Most changes are for others. Each stream hears of each of them, so it looks at what there is to say of
            // all types only when there can be something.
            if has_news {
                self.send(source, view, &mut withheld)?;
            }
            self.tell_reached(source, view, answered);
            has_news = true;
            let patience = source.stalled_since().map(|since| self.patience(since, last_answer));
            tokio::select! {
                () = self.stop.cancelled() => return Err(Ended::Stopped),
                drained = self.outbox.drain_one(), if !self.outbox.is_empty() => {
                    drained?;
                    has_news = false;
                }
                request = inbound.next() => match request {
                    None => return Err(Ended::ByPeer),
                    Some(Err(status)) => return Err(Ended::Broken(status)),
                    Some(Ok(request)) => {
                        if self.hear(source, view, &request, &mut retry, &mut needless)? {
                            (answered, last_answer) = (true, Some(Instant::now()));
                        }
                    }
                },
                changed = self.index.changed() => {
                    if !changed {
                        return Err(Ended::Stopped);
                    }
                    let index = self.index.latest();
                    if index.store != history {
                        // The peer has to judge a new history before it is told what is gone in it.
                        return Err(Ended::Stopped);
                    }
                    let began = Instant::now();
                    let names: BTreeMap<_, _> = view.advance(&index);
                    source.handle(Input::Changed(&names), view)?;
                    has_news = !names.is_empty();
                    meter::generated("event", has_news, began.elapsed());
                    self.tell_withheld(view, &mut withheld);
                },
                Some(wish) = self.wishes.recv() => {
                    let is_meant = |type_name: &str, name: &str| {
                        wish.meant.selects(type_name, view.key_of(type_name, name).as_ref())
                    };
                    let offered = source.reconsider_some(is_meant);
                    tracing::info!(offered, meant = ?wish.meant, "what the peer refused is offered again");
                    wish.done(offered);
                }
                () = until(retry.due()) => {
                    retry.offered();
                    source.reconsider();
                }
                () = until(patience) => return Err(Ended::Stalled(self.stall_after)),
            }
        }
    }

    /// Until when a peer that owes an answer `since` then is waited for. All types share one line, which may be slow: as
    /// long as it answers for others it is there. One that it never answers for does not wait for ever.
    fn patience(&self, since: Instant, last_answer: Option<Instant>) -> Instant {
        let goes_on = last_answer.map_or(since, |answer| answer.max(since)) + self.stall_after;
        goes_on.min(since + self.stall_after.max(FOREIGN_PATIENCE))
    }

    /// Takes a request; whether it was an answer.
    fn hear(
        &mut self,
        source: &mut Source<D>,
        view: &impl View,
        request: &D::Request,
        retry: &mut Retry,
        needless: &mut NeedlessWords,
    ) -> Result<bool, Ended> {
        self.watch.heard();
        let type_url = D::envelope(request).type_url;
        let sent = source.in_flight_since(type_url);
        let event = source.handle(Input::Request(request), view)?;
        // A page of what the peer holds settles what was sent as well, and is no event.
        if sent.is_none() || source.in_flight_since(type_url).is_some() {
            needless.said(Instant::now())?;
        }
        if let (Some(sent), Some(SourceEvent::Acked { .. } | SourceEvent::Nacked { .. })) = (sent, &event) {
            meter::delivered(sent.elapsed());
        }
        match event {
            Some(SourceEvent::Acked { type_url, .. }) => {
                meter::received(type_url, "ACK");
                self.watch.counted(type_url, Outcome::Acknowledged);
                self.refusals.retain(type_url, |name| source.refuses(type_url, name));
                if source.is_content() {
                    retry.cleared();
                } else if source.is_refused() && retry.due().is_none() {
                    // Its turn to be offered again came while it was still searched for.
                    retry.refused(Instant::now());
                }
                self.watch.refused(type_url, &self.refusals);
            }
            Some(SourceEvent::Nacked { type_url, message, refused, passing, .. }) => {
                // Who refuses quotes what he refuses.
                let message = redact::words(&message, LONGEST_WORDS);
                let (items, reason) = (refused.len(), clip(&message, LONGEST_LOGGED));
                tracing::warn!(type_name = type_url, items, reason, "the peer refused resources");
                meter::received(type_url, "NACK");
                self.watch.counted(type_url, Outcome::Rejected);
                self.refusals.retain(type_url, |name| source.refuses(type_url, name));
                self.refusals.add(type_url, &refused, &message);
                if passing {
                    retry.put_off(Instant::now());
                } else {
                    retry.refused(Instant::now());
                }
                self.watch.refused(type_url, &self.refusals);
            }
            Some(
                SourceEvent::Subscribed { .. } | SourceEvent::Stale { .. } | SourceEvent::Unserved { .. },
            )
            | None => return Ok(false),
        }
        Ok(true)
    }

    /// Tells what cannot be sent, when that is not what was told before.
    fn tell_withheld(&self, view: &impl View, withheld: &mut WithheldTypes) {
        let mut now = view.withheld();
        for (type_name, reason) in &withheld.whole {
            now.insert(type_name, reason.clone());
        }
        let told = &withheld.told;
        for over in told.keys().filter(|type_name| !now.contains_key(*type_name)) {
            self.watch.withheld(over, None);
        }
        for (type_name, reason) in
            now.iter().filter(|(type_name, reason)| told.get(*type_name) != Some(reason))
        {
            self.watch.withheld(type_name, Some(reason.clone()));
        }
        withheld.told = now;
    }

    fn send(
        &mut self,
        source: &mut Source<D>,
        view: &impl View,
        withheld: &mut WithheldTypes,
    ) -> Result<(), Ended> {
        while let Some(parts) = source.next_parts(Instant::now(), view) {
            let response = D::message(&parts);
            // What a peer asks for in vain is not counted: it could make up names for ever.
            if let Some(type_name) = self.types.iter().copied().find(|name| *name == parts.type_url) {
                let bytes = response.encoded_len();
                if bytes > self.max_message {
                    // A difference comes in parts; a state cannot.
                    let (items, most) = (parts.updated.len(), self.max_message);
                    tracing::warn!(
                        type_name,
                        items,
                        bytes,
                        most,
                        "all of a type does not fit into a message"
                    );
                    let reason = format!(
                        "all {items} of them have {bytes} bytes, and a message that must hold all no more than {most}"
                    );
                    withheld.whole.insert(type_name, reason);
                    self.tell_withheld(view, withheld);
                    source.unsent(&parts);
                    continue;
                }
                if withheld.whole.remove(type_name).is_some() {
                    self.tell_withheld(view, withheld);
                }
                self.watch.counted(type_name, Outcome::Sent);
                meter::sent(&parts, bytes);
            }
            self.outbox.push(response)?;
        }
        Ok(())
    }

    /// Tells how far the peer is.
    fn tell_reached(&self, source: &Source<D>, view: &impl View, answered: bool) {
        // A type that was not asked for yet has acknowledged nothing; who answers has asked for all it knows.
        if answered || source.progress().count() == self.types.len() {
            self.watch.reached(position(source.progress(), view.revision()));
        }
    }
}

/// What is not sent, by type, and why.
#[derive(Default)]
struct WithheldTypes {
    /// What was told of that.
    told: BTreeMap<&'static str, String>,
    /// Of these types nothing is sent: all of one goes in one message, and does not fit into it.
    whole: BTreeMap<&'static str, String>,
}

/// Where a whole stream is: as far as its slowest type.
fn position(progress: impl Iterator<Item = TypeProgress>, head: u64) -> Position {
    let mut position = Position { head, acked: head, lag: 0 };
    for progress in progress {
        position.acked = position.acked.min(progress.acked);
        position.lag += progress.pending as u64 + u64::from(progress.in_flight_since.is_some());
    }
    position
}

/// Waits for a point in time that may not come.
pub(super) async fn until(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
