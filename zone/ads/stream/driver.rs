//! One stream of one proxy: the engine, fed by what the proxy says and by what it should have.
//!
//! Reading never waits for writing: a response is made when the connection has room for it, and what changes
//! meanwhile merges inside the engine.

use std::{borrow::Cow, sync::Arc, time::Duration};

use common::{
    clip::clip,
    frames::Frames,
    redact,
    xds::{Collection, Input, Name, Refusals, Retry, Source, SourceEvent, Version, Want, Wanted},
};
use tokio::time::Instant;
use tonic::Status;

use super::{
    EnvoyPeer, Responses, Streams, Wire,
    alarm::Alarm,
    dismissed,
    turn::{FEW, Turn, TurnShare},
    wire::{ReadRequest, malformed, read},
};
use crate::{
    ads::{
        config::ProxyConfig,
        grant::{Grant, Lookout},
        insight::{Delivery, ProxyInsights},
        metrics,
        node::Proxy,
        proxies::{ProxySession, StreamId, TypeView},
        signals::{Raised, Signal},
    },
    generator::{FewChanges, OfType},
};

mod report;

/// Bytes of a reason in the log.
const REASON: usize = 1024;
/// Bytes kept of what a proxy says about a response it refuses, which has a line for each resource.
const KEPT: usize = 8 << 10;
/// Names of refused resources in the log.
const SHOWN: usize = 10;

/// What a proxy should have; nothing is known before the first configuration was made.
struct Served(Option<Arc<ProxyConfig>>);

impl Want for Served {
    fn revision(&self) -> u64 {
        self.0.as_ref().map_or(0, |s| s.revision())
    }

    fn ready(&self, type_url: &str) -> bool {
        self.0.as_ref().is_some_and(|s| s.ready(type_url))
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        if let Some(config) = &self.0 {
            config.each(type_url, visit);
        }
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.0.as_ref()?.get(type_url, name)
    }

    fn collection(&self, type_url: &str) -> Option<Arc<dyn Collection>> {
        self.0.as_ref()?.collection(type_url)
    }
}

/// A stream in the insight of its proxy; however it ends, that is noted.
struct InsightGuard<'a>(&'a ProxyInsights, StreamId);

impl<'a> InsightGuard<'a> {
    fn open(insights: &'a ProxyInsights, stream: StreamId, proxy: &Arc<Proxy>) -> Self {
        insights.open(stream, proxy);
        Self(insights, stream)
    }
}

impl Drop for InsightGuard<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

/// One admitted stream.
pub(super) struct Driver<'a, D: Wire> {
    streams: &'a Streams,
    peer: &'a EnvoyPeer,
    proxy: Arc<Proxy>,
    session: ProxySession,
    grant: Grant,
    lookout: Lookout,
    source: Source<D>,
    served: Served,
    /// When the response in flight of each type was sent.
    sent: Vec<(&'static str, Instant)>,
    /// What the proxy refuses.
    refusals: Refusals,
    retry: Retry,
    turn: Turn,
    /// Since when there is a configuration that the proxy has not taken, and whether anything of it was sent.
    behind: Option<(Instant, bool)>,
    /// Number of the configuration it has not answered for.
    owed: Option<u64>,
    /// Types of which much changed that was not looked at yet, with what they were then. That is for its turn.
    unread: Vec<(&'static str, Arc<OfType>)>,
    /// A response was larger than some clients take, which was said.
    is_oversized: bool,
    _seen: InsightGuard<'a>,
    _active: metrics::StreamActive,
}

impl<'a, D: Wire> Driver<'a, D> {
    pub(super) fn new(
        streams: &'a Streams,
        peer: &'a EnvoyPeer,
        proxy: Arc<Proxy>,
        session: ProxySession,
        grant: Grant,
        source: Source<D>,
    ) -> Self {
        session.seat.inquiries.open();
        session.attend();
        let share = TurnShare::of(peer, &proxy.id, &streams.authenticator);
        Self {
            lookout: streams.grants.watch(session.stream, &grant, &session.seat.signals),
            _seen: InsightGuard::open(&streams.insights, session.stream, &proxy),
            _active: metrics::StreamActive::new(),
            streams,
            peer,
            proxy,
            session,
            grant,
            source,
            served: Served(None),
            sent: Vec::new(),
            refusals: Refusals::default(),
            retry: Retry::new(streams.reconsider_after),
            turn: Turn::new(&streams.turns, share),
            behind: None,
            owed: None,
            unread: Vec::new(),
            is_oversized: false,
        }
    }

    /// Takes the first request.
    pub(super) fn begin(&mut self, first: ReadRequest<D::Request>) -> Result<(), Status> {
        // Something may have changed before this stream was told of changes.
        self.uphold()?;
        // The proxy may be known from another stream.
        self.reconfigure()?;
        self.hear(&first)
    }

    /// Serves the stream to its end.
    pub(super) async fn run(mut self, requests: &mut Frames, responses: &Responses) -> Result<(), Status> {
        let mut alarm = Alarm::default();
        loop {
            self.send(responses);
            alarm.set_for(self.due(Instant::now()));
            tokio::select! {
                request = requests.next() => match request {
                    Some(request) => {
                        let said = read(&self.source, &request?)?;
                        self.hear(&said)?;
                    }
                    None => return Ok(()),
                },
                raised = responses.signals().raised() => {
                    if responses.is_closed() {
                        return Ok(());
                    }
                    self.notice(raised)?;
                }
                () = self.turn.come() => {}
                () = alarm.rung() => self.awake(Instant::now())?,
            }
        }
    }

    /// Does what it was woken for.
    fn notice(&mut self, raised: Raised) -> Result<(), Status> {
        if raised.has(Signal::Dismissed) {
            return Err(dismissed());
        }
        if raised.has(Signal::Room) {
            self.turn.moved(Instant::now());
        }
        if raised.has(Signal::Grant) {
            self.uphold()?;
        }
        if raised.has(Signal::Configured) {
            self.reconfigure()?;
        }
        if raised.has(Signal::Asked) {
            self.report();
        }
        Ok(())
    }

    /// When something is due if nothing else happens.
    fn due(&self, now: Instant) -> Option<Instant> {
        let expiry = self.streams.authenticator.good_for(&self.grant);
        let due = [
            self.source.deadline(now),
            self.retry.due(),
            self.stalled_at(),
            self.turn.lapses_at(),
            // A time that the clock cannot name does not come.
            expiry.and_then(|left| now.checked_add(left.max(Duration::from_millis(1)))),
        ];
        due.into_iter().flatten().min()
    }

    /// When a response was left unanswered for too long.
    fn stalled_at(&self) -> Option<Instant> {
        Some(self.source.stalled_since()? + self.streams.patience)
    }

    /// Does what is due.
    fn awake(&mut self, now: Instant) -> Result<(), Status> {
        self.turn.check(now);
        if self.stalled_at().is_some_and(|at| at <= now) {
            return Err(Status::deadline_exceeded("a response was left unanswered for too long"));
        }
        if self.retry.due().is_some_and(|at| at <= now) {
            self.retry.offered();
            self.source.reconsider();
        }
        self.uphold()?;
        self.handle(Input::Wake)
    }

    /// Makes responses while there is room for them. For many names that takes a turn; endpoints that changed
    /// need not wait for it.
    fn send(&mut self, responses: &Responses) {
        while responses.has_room() {
            let now = Instant::now();
            let parts = if !self.has_much() || self.turn.ask(now) {
                self.read_changes();
                self.source.next_parts(now, &self.served)
            } else {
                self.source.next_ahead(now, &self.served, FEW)
            };
            let Some(parts) = parts else { break };
            if parts.is_heartbeat() {
                // It delivers nothing, so it counts as no delivery.
                let (type_url, response) = (parts.type_url.clone(), D::encode(parts));
                metrics::sent(&type_url, response.length());
                responses.put(response);
                continue;
            }
            if let Some((since, was_sent @ false)) = &mut self.behind {
                metrics::waited(since.elapsed());
                *was_sent = true;
            }
            let (type_url, version, nonce) = (parts.type_url.clone(), parts.version.clone(), parts.nonce);
            let response = D::encode(parts);
            metrics::sent(&type_url, response.length());
            self.note_size(&type_url, response.length());
            self.streams.insights.count(self.session.stream, &type_url, Delivery::Sent);
            // A proxy may make up types that nobody serves.
            if let Cow::Borrowed(type_url) = type_url {
                self.note_sent(type_url, (version, nonce), now);
            }
            responses.put(response);
            self.turn.told(Instant::now());
        }
        if self.source.is_settled() && self.unread.is_empty() {
            self.turn.end();
            // Of what concerns it in nothing a proxy hears nothing.
            if let Some((since, true)) = self.behind.take() {
                metrics::converged(since.elapsed());
            }
        }
        if let Some(number) = self.owed
            && self.unread.is_empty()
            && self.source.is_answered()
        {
            self.owed = None;
            self.session.settled(number);
        }
    }

    /// Whether there is something to say about many names, as far as anything can be said.
    fn has_much(&self) -> bool {
        self.served.0.is_some() && (!self.unread.is_empty() || self.source.burden() > FEW)
    }

    /// Looks at what was left for its turn.
    fn read_changes(&mut self) {
        let Some(config) = self.served.0.as_ref().filter(|_| !self.unread.is_empty()) else { return };
        let unread = std::mem::take(&mut self.unread);
        let changed = unread.into_iter().map(|(of, older)| (of, config.changed_since(of, &older))).collect();
        let told = self.source.handle(Input::Changed(&changed), &self.served);
        debug_assert!(matches!(told, Ok(None)), "only what a peer says can be wrong");
    }

    /// A client that does not take as much ends its stream with it, and will when it comes back.
    fn note_size(&mut self, type_url: &str, bytes: usize) {
        if bytes > metrics::TAKEN_BY_ALL && !std::mem::replace(&mut self.is_oversized, true) {
            let (proxy, protocol) = (&self.proxy.id, D::PROTOCOL);
            tracing::warn!(%proxy, protocol, type_url, bytes, "a response is larger than clients of gRPC take by default");
        }
    }

    fn note_sent(&mut self, type_url: &'static str, (version, nonce): (String, u64), now: Instant) {
        let sent_at = Some(self.streams.env.now());
        self.session.update(|view| {
            let seen = view.types.entry(type_url.to_owned()).or_default();
            *seen = TypeView {
                sent: seen.sent + 1,
                version,
                nonce,
                sent_at,
                acknowledged_nonce: seen.acknowledged_nonce,
                acknowledged: false,
                last_rejection: seen.last_rejection.take(),
            };
        });
        self.sent.retain(|(other, _)| *other != type_url);
        self.sent.push((type_url, now));
    }

    fn hear(&mut self, said: &ReadRequest<D::Request>) -> Result<(), Status> {
        self.answer_to(said)?;
        self.session.update(|view| view.heard += 1);
        Ok(())
    }

    fn answer_to(&mut self, said: &ReadRequest<D::Request>) -> Result<(), Status> {
        match said {
            ReadRequest::Request(request) => {
                let type_url = self.source.type_of(D::request_type(request));
                metrics::received(type_url, D::is_answer(request), D::is_refusal(request));
                self.handle(Input::Request(request))
            }
            ReadRequest::Repeat(repeat) => {
                metrics::received(self.source.type_of(&repeat.type_url), true, repeat.error.is_some());
                self.handle(Input::Repeat(repeat))
            }
        }
    }

    fn handle(&mut self, input: Input<'_, D::Request>) -> Result<(), Status> {
        let event = self.source.handle(input, &self.served).map_err(malformed)?;
        match event {
            Some(SourceEvent::Acked { type_url, .. }) => {
                if self.source.is_content() {
                    self.retry.cleared();
                }
                self.settled(type_url, Delivery::Acknowledged, &[], "");
            }
            Some(SourceEvent::Nacked { type_url, message, refused, .. }) => {
                let proxy = &self.proxy.id;
                // An Envoy quotes what it refuses.
                let message = redact::text(&message).into_owned();
                let (named, shown) = (&refused[..refused.len().min(SHOWN)], clip(&message, REASON));
                tracing::warn!(%proxy, type_url, refused = ?named, reason = shown, "the proxy refused a configuration");
                self.retry.refused(Instant::now());
                self.settled(type_url, Delivery::Rejected, &refused, clip(&message, KEPT));
            }
            Some(SourceEvent::Unserved { type_url }) => {
                let type_url = clip(&type_url, REASON);
                tracing::debug!(proxy = %self.proxy.id, type_url, "asked for a type that is not served");
            }
            Some(SourceEvent::Subscribed { .. } | SourceEvent::Stale { .. }) | None => {}
        }
        Ok(())
    }

    /// Notes the answer to a response, and which names of it were refused in which words.
    fn settled(&mut self, type_url: &str, delivery: Delivery, refused: &[Name], words: &str) {
        if let Some(i) = self.sent.iter().position(|(of, _)| *of == type_url) {
            metrics::delivered(self.sent.swap_remove(i).1.elapsed());
            self.turn.moved(Instant::now());
        }
        self.refusals.retain(type_url, |name| self.source.refuses(type_url, name));
        self.refusals.add(type_url, refused, words);
        let rejection = self.refusals.text(type_url);
        self.streams.insights.count(self.session.stream, type_url, delivery);
        self.streams.insights.refuses(self.session.stream, type_url, rejection.as_deref());
        let mut is_new = false;
        self.session.update(|view| {
            let seen = view.types.entry(type_url.to_owned()).or_default();
            is_new = seen.last_rejection != rejection;
            seen.acknowledged = delivery == Delivery::Acknowledged;
            if seen.acknowledged {
                // Nothing is sent before the last one was answered.
                seen.acknowledged_nonce = seen.nonce;
            }
            seen.last_rejection.clone_from(&rejection);
        });
        if is_new {
            self.session.lacks(type_url, rejection.as_deref());
        }
    }

    /// Takes the newest configuration. The resource may have changed with it, so the proxy must still be
    /// allowed to be what it says it is.
    fn reconfigure(&mut self) -> Result<(), Status> {
        self.streams.vouch(&self.proxy, self.peer);
        let Some(newest) = self.session.config.borrow_and_update().clone() else { return Ok(()) };
        self.uphold()?;
        self.behind.get_or_insert_with(|| (Instant::now(), false));
        self.session.owes(newest.number());
        self.owed = Some(newest.number());
        let before = self.served.0.replace(Arc::clone(&newest));
        let Some(before) = before else { return self.handle(Input::Resync) };
        let FewChanges { few, many } = newest.few_changes_since(&before, FEW);
        for (type_url, older) in many {
            if self.unread.iter().all(|(known, _)| *known != type_url) {
                self.unread.push((type_url, older));
            }
        }
        let few = few.0.into_iter().map(|(type_url, names)| (type_url, names.into_iter().collect()));
        self.handle(Input::Changed(&few.collect()))
    }

    /// Judges the token again if something changed on which the last judgement rests.
    fn uphold(&mut self) -> Result<(), Status> {
        let mut index = self.streams.index.current();
        let authenticator = &self.streams.authenticator;
        while !authenticator.upholds(&self.grant, &index) {
            self.grant = authenticator.check(&self.proxy.id, self.peer.token.as_deref(), &index)?;
            self.lookout.follow(&self.grant);
            // It may have changed before it was followed.
            index = self.streams.index.current();
        }
        Ok(())
    }
}
