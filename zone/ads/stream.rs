//! The streams of the proxies: who is let in, and what all of them share.

mod alarm;
mod driver;
mod once;
mod responses;
mod turn;
mod wire;

use std::{net::IpAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use common::{
    clip::clip,
    frames::Frames,
    proto::envoy::config::core::v3::Node,
    runtime::{Env, Offload, http::Client},
    store::index::{Index, IndexReader},
    token,
    xds::{NamePool, Source, SourceSettings},
};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use self::{
    driver::Driver,
    wire::{ReadRequest, read},
};
pub(super) use self::{responses::Responses, turn::Turns, wire::Wire};
use super::{
    auth::{Authenticator, ProxyAuthError},
    grant::{Grant, GrantWatch},
    insight::ProxyInsights,
    node::{Proxy, ProxyId},
    nodes::Nodes,
    places::{StreamPlace, StreamPlaces},
    proxies::{Proxies, ProxySession, StreamView},
    registration::{RegisterError, Registrar},
    resource,
    signals::StreamSignals,
};

/// Bytes of the reason a stream ends with.
const REASON: usize = 1024;
/// What an Envoy calls itself.
const ENVOY: &str = "envoy";
/// How long a new stream may stay silent.
const FIRST_REQUEST: Duration = Duration::from_secs(15);
/// How long a token may wait for somebody who checks it.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);

/// What all streams share.
pub(super) struct Streams {
    pub(super) proxies: Arc<Proxies>,
    pub(super) nodes: Arc<Nodes>,
    pub(super) insights: Arc<ProxyInsights>,
    pub(super) registrar: Registrar,
    pub(super) authenticator: Authenticator,
    /// Who is judged again when something changes.
    pub(super) grants: Arc<GrantWatch>,
    pub(super) index: IndexReader,
    pub(super) env: Env,
    /// One for each stream whose token was found good.
    pub(super) places: Arc<StreamPlaces>,
    /// Threads that look at the tokens of whoever comes.
    pub(super) screeners: Offload,
    /// Threads that judge what a good token is good for; others, so that strangers hold up nobody.
    pub(super) judges: Offload,
    /// Threads that read long resources; others than those, so that they hold up nobody who is let in.
    pub(super) readers: Offload,
    /// How long proxies keep what perishes without a word from here.
    pub(super) resource_ttl: Option<Duration>,
    /// What every response carries as the name of this control plane.
    pub(super) identifier: String,
    /// The names that proxies ask for.
    pub(super) names: Arc<NamePool>,
    /// How long a proxy may leave a response unanswered.
    pub(super) patience: Duration,
    /// How long a proxy keeps what it had before it is offered again what it refused.
    pub(super) reconsider_after: Duration,
    /// How long a proxy that registered itself may be away.
    pub(super) deregister_after: Duration,
    /// Who may be told much at the same time.
    pub(super) turns: Turns,
    pub(super) shutdown: CancellationToken,
}

/// Who is at the other end.
pub(super) struct EnvoyPeer {
    pub(super) address: String,
    /// What counts as its address; `None` of one that came over no connection.
    pub(super) network: Option<IpAddr>,
    pub(super) token: Option<String>,
    /// Its connection, which may live for long once we know who it is.
    pub(super) client: Client,
}

/// A proxy that was let in.
struct Admitted<D: Wire> {
    /// Held for as long as the stream lives.
    _place: StreamPlace,
    proxy: Proxy,
    grant: Grant,
    /// Whether the resource of the proxy goes with it.
    is_registered: bool,
    source: Source<D>,
    first: ReadRequest<D::Request>,
}

impl Streams {
    /// Serves one stream to its end, which the proxy is told; of `only` one type, or of all.
    pub(super) async fn serve<D: Wire>(
        &self,
        only: Option<&'static str>,
        peer: EnvoyPeer,
        mut requests: Frames,
        responses: Responses,
    ) {
        let ended = tokio::select! {
            () = self.shutdown.cancelled() => Err(stopping()),
            ended = self.admit_and_drive::<D>(only, &peer, &mut requests, &responses) => ended,
        };
        end(&peer, ended, responses);
    }

    async fn admit_and_drive<D: Wire>(
        &self,
        only: Option<&'static str>,
        peer: &EnvoyPeer,
        requests: &mut Frames,
        responses: &Responses,
    ) -> Result<(), Status> {
        // What letting somebody in takes is not carried along for the life of the stream.
        let Some(admitted) = Box::pin(self.let_in::<D>(only, peer, requests)).await? else { return Ok(()) };
        let Admitted { _place, proxy, grant, is_registered, source, first } = admitted;
        let proxy = Arc::new(proxy);
        let (address, connected) = (peer.address.clone(), self.env.now());
        let view = StreamView { peer: address, protocol: D::PROTOCOL, connected, ..StreamView::default() };
        let session = self.join(&proxy, is_registered, view, Arc::clone(responses.signals()));
        tracing::info!(proxy = %proxy.id, peer = %peer.address, protocol = D::PROTOCOL, "a proxy connected");
        let mut driver = Driver::new(self, peer, proxy, session, grant, source);
        driver.begin(first)?;
        driver.run(requests, responses).await
    }

    /// Hears who is there and lets it in; `None` when it leaves without a word.
    async fn let_in<D: Wire>(
        &self,
        only: Option<&'static str>,
        peer: &EnvoyPeer,
        requests: &mut Frames,
    ) -> Result<Option<Admitted<D>>, Status> {
        self.screen(peer).await?;
        let mut place = self.place(peer)?;
        let Some(first) = first_request(&mut place, requests).await? else { return Ok(None) };
        let mut source = Source::<D>::new(self.settings(only));
        let first = read(&source, &first)?;
        let node = match &first {
            ReadRequest::Request(request) => D::node(request).cloned(),
            ReadRequest::Repeat(_) => None,
        };
        // It takes responses of any size, and the first of clusters or listeners for all there is at its start.
        if node.as_ref().is_some_and(|node| node.user_agent_name == ENVOY) {
            source.limit_bytes(None);
        }
        let (proxy, resource) = self.recognise(node, peer).await?;
        let (grant, is_registered) = self.admit(&proxy.id, resource, peer, &mut place).await?;
        Ok(Some(Admitted { _place: place, proxy, grant, is_registered, source, first }))
    }

    /// Who begins to speak, and the resource it brings along.
    async fn recognise(
        &self,
        node: Option<Node>,
        peer: &EnvoyPeer,
    ) -> Result<(Proxy, Option<String>), Status> {
        let recognised = self.nodes.recognise(node, peer.token.as_deref(), &self.index.current()).await;
        recognised.map_err(|error| Status::invalid_argument(error.to_string()))
    }

    /// A stream of `proxy` begins, which `signals` wake.
    fn join(
        &self,
        proxy: &Arc<Proxy>,
        is_registered: bool,
        view: StreamView,
        signals: Arc<StreamSignals>,
    ) -> ProxySession {
        let among = if proxy.id.is_of_no_mesh() { self.nodes.connected() } else { &self.proxies };
        among.join(Arc::clone(proxy), is_registered.then_some(self.deregister_after), view, signals)
    }

    /// Says who is at the other end, once that is known.
    fn vouch(&self, proxy: &Proxy, peer: &EnvoyPeer) {
        if peer.client.is_known() {
            return;
        }
        let (id, index) = (&proxy.id, self.index.current());
        let credential = self.authenticator.credential(id, peer.token.as_deref());
        let is_somebody = match id.is_of_no_mesh() {
            true => credential.is_some() || self.nodes.are_for(proxy, &index),
            // Of names that nothing is known by, a token may be good for as many as its bearer makes up.
            false => index.get(&id.key()).is_some(),
        };
        if is_somebody {
            peer.client.vouch(&id.to_string(), credential.as_deref());
        }
    }

    /// How a stream of `only` one type is served, or one of all.
    pub(super) fn settings(&self, only: Option<&'static str>) -> SourceSettings {
        let (identifier, names) = (self.identifier.clone(), Arc::clone(&self.names));
        let settings = match only {
            Some(type_url) => SourceSettings::alone(identifier, type_url),
            None => SourceSettings::ads(identifier),
        };
        SourceSettings { names, ttl: self.resource_ttl, ..settings }
    }

    /// Refuses who shows nothing, to whom nobody listens: a request takes memory before it is known who sent it.
    pub(super) async fn screen(&self, peer: &EnvoyPeer) -> Result<(), Status> {
        let screen = |authenticator: &Authenticator, token: Option<&str>, index: &Index| {
            authenticator.screen(token, index)
        };
        self.judge_on(&self.screeners, peer, screen).await
    }

    /// A place for a stream of `peer`, whose token was found good.
    pub(super) fn place(&self, peer: &EnvoyPeer) -> Result<StreamPlace, Status> {
        let credential = peer.token.as_deref().map(token::fingerprint);
        Ok(self.places.take(peer.network, credential.as_deref())?)
    }

    /// On what the token of `peer` lets it be `proxy`, whose resource is stored.
    pub(super) async fn grant(&self, proxy: &ProxyId, peer: &EnvoyPeer) -> Result<Grant, Status> {
        let id = proxy.clone();
        self.judge(peer, move |authenticator, token, index| authenticator.check(&id, token, index)).await
    }

    /// Lets the proxy in, and stores the resource it brings, when it does; says on what it was let in, and
    /// whether that resource goes with it.
    async fn admit(
        &self,
        proxy: &ProxyId,
        resource: Option<String>,
        peer: &EnvoyPeer,
        place: &mut StreamPlace,
    ) -> Result<(Grant, bool), Status> {
        // Before anything the proxy brings is read. Whoever may not be the proxy that is stored may not
        // replace it either.
        let Some(text) = resource else {
            let grant = self.grant(proxy, peer).await?;
            place.of(proxy)?;
            return Ok((grant, false));
        };
        let id = proxy.clone();
        let successor = move |authenticator: &Authenticator, token: Option<&str>, index: &Index| {
            authenticator.check_successor(&id, token, index)
        };
        let grant = self.judge(peer, successor).await?;
        place.of(proxy)?;
        let id = proxy.clone();
        let document = self.readers.run(text.len(), move || resource::inline(&text, &id)).await;
        let document = document.map_err(|e| Status::invalid_argument(e.to_string()))?;
        let (id, described) = (proxy.clone(), document.clone());
        self.judge(peer, move |authenticator, token, index| {
            authenticator.check_inline(&id, &described, token, index)
        })
        .await?;
        let token = self.authenticator.credential(proxy, peer.token.as_deref());
        let registered = self.registrar.register(proxy, document, token.as_deref()).await;
        let registered = registered.map_err(|error| match error {
            RegisterError::NoMesh(_) | RegisterError::Applied(_) => {
                Status::failed_precondition(error.to_string())
            }
            RegisterError::Spec(_) | RegisterError::Refused(_) => Status::invalid_argument(error.to_string()),
            RegisterError::Foreign(_) => Status::permission_denied(error.to_string()),
            RegisterError::Spent(_) | RegisterError::TooOften(_) => {
                Status::resource_exhausted(error.to_string())
            }
            RegisterError::Store(error) => {
                tracing::warn!(%proxy, %error, "cannot store the resource of a proxy");
                Status::unavailable("the store does not answer")
            }
            RegisterError::Stopping => stopping(),
        })?;
        Ok((grant, registered))
    }

    /// Judges the token of `peer`: checking signatures for everybody who comes at once takes long.
    async fn judge<T: Send + 'static>(
        &self,
        peer: &EnvoyPeer,
        judge: impl FnOnce(&Authenticator, Option<&str>, &Index) -> Result<T, ProxyAuthError> + Send + 'static,
    ) -> Result<T, Status> {
        self.judge_on(&self.judges, peer, judge).await
    }

    async fn judge_on<T: Send + 'static>(
        &self,
        judges: &Offload,
        peer: &EnvoyPeer,
        judge: impl FnOnce(&Authenticator, Option<&str>, &Index) -> Result<T, ProxyAuthError> + Send + 'static,
    ) -> Result<T, Status> {
        let (authenticator, index) = (self.authenticator.clone(), self.index.current());
        let token = peer.token.clone();
        let judged =
            judges.soon(JUDGED_WITHIN, move || judge(&authenticator, token.as_deref(), &index)).await;
        let busy = || Status::unavailable("too many tokens are being checked at the moment; try again");
        Ok(judged.ok_or_else(busy)??)
    }
}

/// The first message of a stream, which makes it one of those that say something; `None` when it leaves without a word.
pub(super) async fn first_request(
    place: &mut StreamPlace,
    requests: &mut Frames,
) -> Result<Option<Bytes>, Status> {
    // Nothing was read so far, so all that comes counts for whoever it is.
    requests.belong_to(place.owner());
    let first = place.hear(timeout(FIRST_REQUEST, requests.next())).await?;
    first.map_err(|_| Status::deadline_exceeded("no request came"))?.transpose()
}

/// Tells `peer` how its stream ends.
fn end(peer: &EnvoyPeer, ended: Result<(), Status>, responses: Responses) {
    let status = ended.err().unwrap_or_else(|| Status::ok(""));
    // It may repeat what the proxy said.
    let status = Status::new(status.code(), clip(status.message(), REASON));
    if status.code() != tonic::Code::Ok {
        tracing::info!(peer = %peer.address, code = ?status.code(), reason = status.message(), "ended an xDS stream");
    }
    responses.end(status);
}

fn dismissed() -> Status {
    Status::unavailable("an operator ended this stream; connect again")
}

pub(super) fn stopping() -> Status {
    Status::unavailable("this control plane is stopping")
}
