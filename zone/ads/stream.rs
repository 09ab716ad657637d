//! One stream of one proxy: the engine, fed by what the proxy says and by what it should have.
//!
//! Reading never waits for writing: responses go into a bounded queue only while it has room, and what
//! changes meanwhile merges inside the engine.

mod wire;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    clip::clip,
    redact,
    runtime::{Offload, http::Client},
    store::index::{Index, IndexReader},
    xds::{Event, Input, Malformed, Name, Refusals, Retry, Settings, Source, Version, Want, Wanted},
};
use futures::{Stream, StreamExt};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{Instant, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

pub(super) use self::wire::Wire;
use super::{
    auth::{AuthError, Authenticator},
    config::Config,
    insight::{Delivery, Insights},
    metrics,
    node::{Proxy, ProxyId},
    proxies::{Proxies, Session, StreamId, StreamView, TypeView},
    registration::{RegisterError, Registrar},
    resource,
};

/// Responses that may wait for the connection.
pub(super) const QUEUE: usize = 16;
/// Bytes of the reason a stream ends with.
const REASON: usize = 1024;
/// Bytes kept of what a proxy says about a response it refuses, which has a line for each resource.
const KEPT: usize = 8 << 10;
/// Names of refused resources in the log.
const SHOWN: usize = 10;
/// How long a new stream may stay silent.
const FIRST_REQUEST: Duration = Duration::from_secs(15);
/// How long a token may wait for somebody who checks it.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// How long the status at the end may wait for the responses before it.
const GOODBYE: Duration = Duration::from_secs(5);

/// What all streams share.
pub(super) struct Streams {
    pub(super) proxies: Arc<Proxies>,
    pub(super) insights: Arc<Insights>,
    pub(super) registrar: Registrar,
    pub(super) authenticator: Authenticator,
    pub(super) index: IndexReader,
    /// One permit for each stream whose token was found good.
    pub(super) slots: Semaphore,
    /// Threads that look at the tokens of whoever comes.
    pub(super) screeners: Offload,
    /// Threads that judge what a good token is good for; others, so that strangers hold up nobody.
    pub(super) judges: Offload,
    /// Threads that read long resources; others than those, so that they hold up nobody who is let in.
    pub(super) readers: Offload,
    /// What every response carries as the name of this control plane.
    pub(super) identifier: String,
    /// How long a proxy may leave a response unanswered.
    pub(super) patience: Duration,
    /// How long a proxy keeps what it had before it is offered again what it refused.
    pub(super) reconsider_after: Duration,
    /// How long a proxy that registered itself may be away.
    pub(super) deregister_after: Duration,
    pub(super) shutdown: CancellationToken,
}

/// Who is at the other end.
pub(super) struct Peer {
    pub(super) address: String,
    pub(super) token: Option<String>,
    /// Its connection, which may live for long once we know who it is.
    pub(super) client: Client,
}

/// What a proxy should have; nothing is known before the first configuration was made.
struct Served(Option<Arc<Config>>);

impl Want for Served {
    fn revision(&self) -> u64 {
        self.0.as_ref().map_or(0, |s| s.revision())
    }

    fn ready(&self, type_url: &str) -> bool {
        self.0.as_ref().is_some_and(|s| s.ready(type_url))
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        if let Some(snapshot) = &self.0 {
            snapshot.each(type_url, visit);
        }
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.0.as_ref()?.get(type_url, name)
    }
}

impl Streams {
    /// Serves one stream to its end. The status at the end reaches the proxy through `responses`.
    pub(super) async fn serve<D: Wire>(
        &self,
        peer: Peer,
        requests: impl Stream<Item = Result<D::Request, Status>> + Send,
        responses: mpsc::Sender<Result<D::Response, Status>>,
    ) {
        let mut requests = std::pin::pin!(requests);
        let ended = tokio::select! {
            () = self.shutdown.cancelled() => Err(stopping()),
            ended = self.admit_and_drive::<D>(&peer, requests.as_mut(), &responses) => ended,
        };
        if let Err(status) = ended {
            // It may repeat what the proxy said.
            let status = Status::new(status.code(), clip(status.message(), REASON));
            tracing::info!(peer = %peer.address, code = ?status.code(), reason = status.message(), "ended an xDS stream");
            // A proxy that talks faster than it reads is owed the reason too, but not waited for for ever.
            let _unheard = timeout(GOODBYE, responses.send(Err(status))).await;
        }
    }

    async fn admit_and_drive<D: Wire>(
        &self,
        peer: &Peer,
        mut requests: impl Stream<Item = Result<D::Request, Status>> + Unpin + Send,
        responses: &mpsc::Sender<Result<D::Response, Status>>,
    ) -> Result<(), Status> {
        // Who shows nothing is not listened to: a request takes memory before it is known who sent it.
        let screen = |authenticator: &Authenticator, token: Option<&str>, index: &Index| {
            authenticator.screen(token, index)
        };
        self.judge_on(&self.screeners, peer, screen).await?;
        let full = |_| Status::resource_exhausted("too many streams on this control plane");
        let _slot = self.slots.try_acquire().map_err(full)?;
        let first = timeout(FIRST_REQUEST, requests.next()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no request came"))?;
        let Some(first) = first.transpose()? else { return Ok(()) };
        let (proxy, resource) =
            Proxy::of(D::node(&first).cloned()).map_err(|e| Status::invalid_argument(e.to_string()))?;
        let proxy = Arc::new(proxy);
        let registered = self.admit(&proxy.id, resource, peer).await?;

        let view = StreamView { peer: peer.address.clone(), protocol: D::PROTOCOL, ..StreamView::default() };
        let deregister_after = registered.then_some(self.deregister_after);
        let session = self.proxies.join(Arc::clone(&proxy), deregister_after, view);
        let _seen = Seen::open(&self.insights, session.stream, &proxy);
        let _active = metrics::StreamActive::new();
        tracing::info!(proxy = %proxy.id, peer = %peer.address, protocol = D::PROTOCOL, "a proxy connected");

        let source = Source::<D>::new(Settings::ads(self.identifier.clone()));
        let driver = Driver {
            streams: self,
            peer,
            proxy,
            session,
            source,
            served: Served(None),
            sent: BTreeMap::new(),
            refusals: Refusals::default(),
            retry: Retry::new(self.reconsider_after),
        };
        driver.run(first, &mut requests, responses).await
    }

    /// Lets the proxy in, and stores the resource it brings, when it does; says whether that goes with it.
    async fn admit(&self, proxy: &ProxyId, resource: Option<String>, peer: &Peer) -> Result<bool, Status> {
        // Before anything the proxy brings is read. Whoever may not be the proxy that is stored may not
        // replace it either.
        let id = proxy.clone();
        self.judge(peer, move |authenticator, token, index| authenticator.check(&id, token, index)).await?;
        let Some(text) = resource else { return Ok(false) };
        let id = proxy.clone();
        let document = self.readers.run(text.len(), move || resource::inline(&text, &id)).await;
        let document = document.map_err(|e| Status::invalid_argument(e.to_string()))?;
        let (id, described) = (proxy.clone(), document.clone());
        self.judge(peer, move |authenticator, token, index| {
            authenticator.check_inline(&id, &described, token, index)
        })
        .await?;
        self.registrar.register(proxy, document).await.map_err(|error| match error {
            RegisterError::NoMesh(_) | RegisterError::Applied(_) => {
                Status::failed_precondition(error.to_string())
            }
            RegisterError::Spec(_) | RegisterError::Refused(_) => Status::invalid_argument(error.to_string()),
            RegisterError::Foreign(_) => Status::permission_denied(error.to_string()),
            RegisterError::Store(error) => {
                tracing::warn!(%proxy, %error, "cannot store the resource of a proxy");
                Status::unavailable("the store does not answer")
            }
            RegisterError::Stopping => stopping(),
        })
    }

    /// Judges the token of `peer`: checking signatures for everybody who comes at once takes long.
    async fn judge(
        &self,
        peer: &Peer,
        judge: impl FnOnce(&Authenticator, Option<&str>, &Index) -> Result<(), AuthError> + Send + 'static,
    ) -> Result<(), Status> {
        self.judge_on(&self.judges, peer, judge).await
    }

    async fn judge_on(
        &self,
        judges: &Offload,
        peer: &Peer,
        judge: impl FnOnce(&Authenticator, Option<&str>, &Index) -> Result<(), AuthError> + Send + 'static,
    ) -> Result<(), Status> {
        let (authenticator, index) = (self.authenticator.clone(), self.index.current());
        let token = peer.token.clone();
        let judged =
            judges.soon(JUDGED_WITHIN, move || judge(&authenticator, token.as_deref(), &index)).await;
        let busy = || Status::unavailable("too many tokens are being checked at the moment; try again");
        Ok(judged.ok_or_else(busy)??)
    }
}

/// A stream in the insight of its proxy; however it ends, that is noted.
struct Seen<'a>(&'a Insights, StreamId);

impl<'a> Seen<'a> {
    fn open(insights: &'a Insights, stream: StreamId, proxy: &Arc<Proxy>) -> Self {
        insights.open(stream, proxy);
        Self(insights, stream)
    }
}

impl Drop for Seen<'_> {
    fn drop(&mut self) {
        self.0.close(self.1);
    }
}

/// One admitted stream.
struct Driver<'a, D: Wire> {
    streams: &'a Streams,
    peer: &'a Peer,
    proxy: Arc<Proxy>,
    session: Session,
    source: Source<D>,
    served: Served,
    /// When the response in flight of each type was sent.
    sent: BTreeMap<String, Instant>,
    /// What the proxy refuses.
    refusals: Refusals,
    retry: Retry,
}

impl<D: Wire> Driver<'_, D> {
    async fn run(
        mut self,
        first: D::Request,
        requests: &mut (impl Stream<Item = Result<D::Request, Status>> + Unpin + Send),
        responses: &mpsc::Sender<Result<D::Response, Status>>,
    ) -> Result<(), Status> {
        // The proxy may be known from another stream.
        self.reconfigure()?;
        self.hear(&first)?;
        drop(first);
        loop {
            let has_room = self.send(responses);
            let now = Instant::now();
            let forever = now + Duration::from_secs(86_400);
            let wake = self.source.deadline(now).unwrap_or(forever);
            let retry = self.retry.due().unwrap_or(forever);
            let stalled = self.source.stalled_since().map_or(forever, |since| since + self.streams.patience);
            tokio::select! {
                request = requests.next() => match request {
                    Some(request) => self.hear(&request?)?,
                    None => return Ok(()),
                },
                changed = self.session.config.changed() => match changed {
                    Ok(()) => self.reconfigure()?,
                    Err(_) => return Err(stopping()),
                },
                _ = responses.reserve(), if !has_room => {}
                () = responses.closed() => return Ok(()),
                () = sleep_until(wake) => self.handle(Input::Wake)?,
                () = sleep_until(retry) => {
                    self.retry.offered();
                    self.source.reconsider();
                }
                () = sleep_until(stalled) => {
                    return Err(Status::deadline_exceeded("a response was left unanswered for too long"));
                }
            }
        }
    }

    /// Sends what there is to send while there is room, and says whether there was enough.
    fn send(&mut self, responses: &mpsc::Sender<Result<D::Response, Status>>) -> bool {
        loop {
            let Ok(permit) = responses.try_reserve() else { return false };
            let now = Instant::now();
            let Some(response) = self.source.next(now, &self.served) else { return true };
            let (type_url, version) = (D::type_url(&response), D::version(&response));
            metrics::sent(type_url, D::size(&response));
            self.streams.insights.count(self.session.stream, type_url, Delivery::Sent);
            self.session.update(|view| {
                let seen = view.types.entry(type_url.to_owned()).or_default();
                *seen = TypeView {
                    sent: seen.sent + 1,
                    version: version.to_owned(),
                    acknowledged: false,
                    last_rejection: seen.last_rejection.take(),
                };
            });
            self.sent.insert(type_url.to_owned(), now);
            permit.send(Ok(response));
        }
    }

    fn hear(&mut self, request: &D::Request) -> Result<(), Status> {
        metrics::received(D::request_type(request), D::is_answer(request), D::is_refusal(request));
        self.handle(Input::Request(request))
    }

    fn handle(&mut self, input: Input<'_, D::Request>) -> Result<(), Status> {
        let event = self.source.handle(input, &self.served).map_err(malformed)?;
        match event {
            Some(Event::Acked { type_url, .. }) => {
                if self.source.is_content() {
                    self.retry.cleared();
                }
                self.settled(type_url, Delivery::Acknowledged, &[], "");
            }
            Some(Event::Nacked { type_url, message, refused, .. }) => {
                let proxy = &self.proxy.id;
                // An Envoy quotes what it refuses.
                let message = redact::text(&message).into_owned();
                let (named, shown) = (&refused[..refused.len().min(SHOWN)], clip(&message, REASON));
                tracing::warn!(%proxy, type_url, refused = ?named, reason = shown, "the proxy refused a configuration");
                self.retry.refused(Instant::now());
                self.settled(type_url, Delivery::Rejected, &refused, clip(&message, KEPT));
            }
            Some(Event::Unserved { type_url }) => {
                let type_url = clip(&type_url, REASON);
                tracing::debug!(proxy = %self.proxy.id, type_url, "asked for a type that is not served");
            }
            Some(Event::Subscribed { .. } | Event::Stale { .. }) | None => {}
        }
        Ok(())
    }

    /// Notes the answer to a response, and which names of it were refused in which words.
    fn settled(&mut self, type_url: &str, delivery: Delivery, refused: &[Name], words: &str) {
        if let Some(sent) = self.sent.remove(type_url) {
            metrics::delivered(sent.elapsed());
        }
        self.refusals.retain(type_url, |name| self.source.refuses(type_url, name));
        self.refusals.add(type_url, refused, words);
        let rejection = self.refusals.text(type_url);
        self.streams.insights.count(self.session.stream, type_url, delivery);
        self.streams.insights.refuses(self.session.stream, type_url, rejection.as_deref());
        self.session.update(|view| {
            let seen = view.types.entry(type_url.to_owned()).or_default();
            seen.acknowledged = delivery == Delivery::Acknowledged;
            seen.last_rejection = rejection;
        });
    }

    /// Takes the newest configuration. The resource may have changed with it, so the proxy must still be
    /// allowed to be what it says it is.
    fn reconfigure(&mut self) -> Result<(), Status> {
        let index = self.streams.index.current();
        // Of names that nothing is known by, a token may be good for as many as its bearer makes up.
        if index.get(&self.proxy.id.key()).is_some() {
            let token = self.peer.token.as_deref();
            let credential = self.streams.authenticator.credential(self.proxy.id.kind, token);
            self.peer.client.vouch(&self.proxy.id.to_string(), credential.as_deref());
        }
        let Some(newest) = self.session.config.borrow_and_update().clone() else { return Ok(()) };
        self.streams.authenticator.check(&self.proxy.id, self.peer.token.as_deref(), &index)?;
        let before = self.served.0.replace(Arc::clone(&newest));
        match before {
            Some(before) => self.handle(Input::Changed(&newest.changed_since(&before))),
            None => self.handle(Input::Resync),
        }
    }
}

fn stopping() -> Status {
    Status::unavailable("this control plane is stopping")
}

fn malformed(error: Malformed) -> Status {
    let status = if error.is_excess() { Status::resource_exhausted } else { Status::invalid_argument };
    status(error.to_string())
}
