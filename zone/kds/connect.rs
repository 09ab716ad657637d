//! The connection to global and its life: connect, sync, break, wait, again.

use std::{convert::Infallible, sync::Arc, time::Duration};

use common::{
    envoy_admin::EnvoyAdmin,
    kds::{
        apply::{Applier, Follower},
        dial::{self, Dial, DialError},
        features::{ATTRIBUTION, DIGESTS, HASH_SUFFIX, RESUME, ZONE_PING_HEALTH},
        follow::Following,
        fuse::Fuse,
        headers::{KdsCaller, Upstream},
        insight::SubscriptionRecord,
        multiplex,
        outbox::{self, Outbox},
        recorder::Recorder,
        serve::Ended,
        signature::ResourceKeyError,
    },
    mode::Mode,
    model::Origin,
    proto::kuma::mesh::v1alpha1::kds_sync_service_client::KdsSyncServiceClient,
    redact,
    rest::ProxyProgressSource,
    runtime::Env,
    store::{Fence, Store, StoreError, index::IndexReader},
    xds::{Backoff, Delta},
};
use thiserror::Error;
use tokio::time::{Instant, interval, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::{Status, codec::CompressionEncoding, transport::Channel};
use uuid::Uuid;

use super::{
    call::{opened, with_headers},
    credentials::{self, ShownCredential},
    expiry,
    gate::{Decision, decide, newest},
    holdings::{HoldingsDesk, TAKEN, UPSTREAM, read_taken},
    link::{Link, REPORT},
    moving::{Dials, Moves, TrustedDials},
    ping::{Pings, ProxyReports, unanswered, unheard},
    reverse::ReverseCalls,
    settings::{TokenFileError, TokenSource, ZoneKdsSettings},
    trial::Trial,
};
use crate::{
    leader::{Candidate, Work},
    traces::ZoneTraces,
};

/// Messages between a stream's task and the connection. One per type is on its way at most.
pub(super) const QUEUE: usize = 64;
/// Messages that may wait before that queue.
const OUTBOX: usize = 128;
/// Bytes of the reason a connection ended for; global may have said it.
const LONGEST_REASON: usize = 4096;

/// Keeps a zone in sync with its global.
pub struct Connector {
    pub(super) settings: ZoneKdsSettings,
    store: Arc<dyn Store>,
    pub(super) index: IndexReader,
    pub(super) env: Env,
    dial: Arc<dyn Dial>,
    envoys: Arc<dyn EnvoyAdmin>,
    proxies: Option<Arc<dyn ProxyProgressSource>>,
    pub(super) traces: Option<ZoneTraces>,
    pub(super) link: Link,
    moves: Moves,
}

/// How to reach a global, and what to show it.
struct GlobalWay {
    dial: Arc<dyn Dial>,
    token: TokenSource,
    /// It may ask for secrets.
    gives_secrets: bool,
    /// The store an operator accepted in place of the one followed before.
    accepted: Option<Uuid>,
}

/// Why a connection ended.
#[derive(Debug, Error)]
enum Broken {
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Token(#[from] TokenFileError),
    #[error(transparent)]
    Keys(#[from] ResourceKeyError),
    #[error("{}", unanswered(.0))]
    Ping(Status),
    #[error("{}", unheard(.0))]
    Unheard(Status),
    #[error("{0}")]
    HeldBack(String),
    #[error("{stream}: {ended}")]
    Stream { stream: &'static str, ended: Ended },
    #[error("remember global's history: {0}")]
    Store(#[from] StoreError),
    #[error("an operator approved what was held back")]
    Approved,
    #[error("an operator moved this zone to another global")]
    Moved,
}

impl Connector {
    /// A zone that follows the global `dial` leads to, and lets it ask `envoys`.
    pub fn new(
        settings: ZoneKdsSettings,
        store: Arc<dyn Store>,
        index: IndexReader,
        env: Env,
        dial: Arc<dyn Dial>,
        envoys: Arc<dyn EnvoyAdmin>,
    ) -> Self {
        let link = Link::new(env.clone());
        let moves = Moves::new(Arc::clone(&store), settings.address.clone(), Arc::new(TrustedDials));
        Self { settings, store, index, env, dial, envoys, proxies: None, traces: None, link, moves }
    }

    /// The same, telling global how far the proxies here are.
    pub fn with_proxies(self, proxies: Arc<dyn ProxyProgressSource>) -> Self {
        Self { proxies: Some(proxies), ..self }
    }

    /// The same, telling what it takes.
    pub fn tracing(self, traces: ZoneTraces) -> Self {
        Self { traces: Some(traces), ..self }
    }

    /// The same where other globals are reached by `dials`.
    pub fn with_dials(mut self, dials: Arc<dyn Dials>) -> Self {
        self.moves = Moves::new(Arc::clone(&self.store), self.settings.address.clone(), dials);
        self
    }

    /// The way to another global, to begin and to commit it.
    pub fn moves(&self) -> Moves {
        self.moves.clone()
    }

    /// The link, to watch it and to approve what it holds back.
    pub fn link(&self) -> Link {
        self.link.clone()
    }

    /// Runs until `shutdown`. A global that is away, refuses or breaks is tried again for ever. What is
    /// taken from global is written under `fence`, if there is one.
    pub async fn run(&self, fence: Option<Fence>, shutdown: CancellationToken) {
        tokio::select! {
            () = self.moves.load() => {}
            () = shutdown.cancelled() => return,
        }
        let trial = Trial {
            settings: &self.settings,
            index: &self.index,
            env: &self.env,
            ours: self.peer(),
            moves: &self.moves,
        };
        tokio::select! {
            () = self.follow(fence, shutdown) => {}
            never = trial.run() => match never {},
        }
    }

    /// Follows global whenever this replica leads its zone, until `shutdown`.
    pub async fn run_as_replica(self, shutdown: CancellationToken) {
        let mode = Mode::federated_zone(&self.settings.zone);
        let candidate = Candidate::new(Arc::clone(&self.store), mode, &self.env, false);
        if let Err(error) = candidate.run(self, shutdown).await {
            tracing::error!(%error, "this replica leads no more");
        }
    }

    async fn follow(&self, fence: Option<Fence>, shutdown: CancellationToken) {
        let (min, max) = self.settings.backoff;
        let mut backoff = Backoff::new(min, max, self.settings.healthy_after);
        while !shutdown.is_cancelled() {
            let started = Instant::now();
            let broken = tokio::select! {
                broken = self.session(fence.as_ref(), &shutdown) => broken,
                () = self.link.approval() => Err(Broken::Approved),
                () = self.moves.switch() => Err(Broken::Moved),
            };
            let reason = broken.err().map(|broken| redact::words(&broken.to_string(), LONGEST_REASON));
            if let Some(reason) = &reason {
                tracing::warn!(reason, "the connection to global ended, this zone goes on with what it has");
            }
            self.link.disconnected(reason);
            backoff.ended(started.elapsed());
            let pause = self.env.entropy.with(|rng| backoff.next(rng));
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.link.approval() => {}
                () = self.moves.switch() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// One connection: the streams and the pings. `Ok` only at shutdown.
    async fn session(&self, fence: Option<&Fence>, shutdown: &CancellationToken) -> Result<(), Broken> {
        let trusted = self.settings.trusted()?;
        self.link.trusts(trusted.clone());
        let way = self.way()?;
        let caller = self.introduce(&way)?;
        let look = || self.shown(&caller);
        // Also when global does not let this zone in any more.
        expiry::note(&self.link, look());
        let endpoint = dial::endpoint(self.settings.connect_timeout, &self.settings.agent());
        let channel = match timeout(self.settings.connect_timeout, way.dial.dial(endpoint)).await {
            Ok(channel) => channel?,
            Err(_) => return Err(Broken::Ping(Status::deadline_exceeded("no connection in time"))),
        };
        let known = self.known().await?;
        let pings = Pings {
            settings: &self.settings,
            link: &self.link,
            channel: channel.clone(),
            caller: caller.clone(),
            index: &self.index,
            proxies: self.proxies.clone().map(ProxyReports::new),
            followed: known,
        };
        let (period, shown) = pings.ping().await.map_err(Broken::Unheard)?;
        let approved = self.link.take_approval();
        let decision = match self.decide(known, shown, approved, way.accepted).await {
            Err(Broken::HeldBack(reason)) => {
                let holdings = self.holdings(&way);
                tokio::select! {
                    () = self.linger(&holdings, (&channel, &caller), &pings, (period, shown), &reason) => {}
                    () = shutdown.cancelled() => {}
                }
                return Err(Broken::HeldBack(reason));
            }
            decided => decided?,
        };
        self.link.connected(shown, decision == Decision::Resume || approved);
        self.link.speaks(self.settings.v1.then_some(multiplex::PROTOCOL));
        tracing::info!(?decision, "connected to global");
        let stop = CancellationToken::new();
        let _streams_end_with_the_session = stop.clone().drop_guard();
        let resume = shown.is_some();
        let fuse = if approved || decision == Decision::Resume { Fuse::OPEN } else { self.settings.fuse };
        let recorder = self.recorder();
        self.open_subscription(&caller);
        self.record(&recorder).await;
        let holdings = self.holdings(&way);
        let applier = Applier { trusted, ..self.applier(fence, fuse) };
        let desk = ReverseCalls { settings: &self.settings, env: &self.env, envoys: &self.envoys };
        let ended = tokio::select! {
            ended = self.multiplexed(&channel, &caller, resume, applier.clone(), &stop),
                if self.settings.v1 =>
            {
                Err(Broken::Stream { stream: multiplex::PROTOCOL, ended })
            }
            ended = self.down(&channel, &caller, resume, applier.clone(), &stop), if !self.settings.v1 => {
                Err(Broken::Stream { stream: "global to zone", ended })
            }
            ended = self.up(&channel, &caller, resume, &stop), if !self.settings.v1 => {
                Err(Broken::Stream { stream: "zone to global", ended })
            }
            status = pings.keep(period) => Err(Broken::Ping(status)),
            never = self.remember() => match never {},
            never = expiry::watch(&self.link, look) => match never {},
            // What becomes of these is not what becomes of the session.
            never = async { desk.attend(&channel, &caller).await; std::future::pending().await } => never,
            never = hand_out(&holdings, &channel, &caller) => match never {},
            () = async {
                shutdown.cancelled().await;
                if self.settings.shares_store {
                    pings.hand_over().await;
                }
            } => Ok(()),
        };
        self.close_subscription();
        self.record(&recorder).await;
        ended
    }

    /// Stays with a global that is not followed, so that it can ask for what this zone holds: until it shows another
    /// history, or does not know how to ask.
    async fn linger(
        &self,
        holdings: &HoldingsDesk<'_>,
        (channel, caller): (&Channel, &KdsCaller),
        pings: &Pings<'_>,
        (period, shown): (Option<Duration>, Option<Upstream>),
        reason: &str,
    ) {
        let text = redact::words(reason, LONGEST_REASON);
        tracing::warn!(reason = text, "this zone does not follow global and goes on with what it has");
        self.link.disconnected(Some(text));
        tokio::select! {
            () = holdings.attend(channel, caller, Some(reason)) => {}
            () = pings.until_another(period, shown) => {}
        }
    }

    fn holdings(&self, way: &GlobalWay) -> HoldingsDesk<'_> {
        let (settings, store, index) = (&self.settings, &self.store, &self.index);
        HoldingsDesk { settings, store, index, seen: self.link.followed(), gives_secrets: way.gives_secrets }
    }

    /// The way to the global this zone follows: as the settings say, or where it moved.
    fn way(&self) -> Result<GlobalWay, Broken> {
        let Some((target, store)) = self.moves.followed() else {
            return Ok(GlobalWay {
                dial: Arc::clone(&self.dial),
                token: self.settings.token.clone(),
                gives_secrets: self.settings.gives_secrets,
                accepted: self.settings.accept_store,
            });
        };
        Ok(GlobalWay {
            dial: self.moves.dial(&target)?,
            token: target.token(),
            gives_secrets: target.is_vouched_for(),
            accepted: Some(store),
        })
    }

    fn introduce(&self, way: &GlobalWay) -> Result<KdsCaller, Broken> {
        let resuming: &[&str] = if self.settings.v1 { &[] } else { &[RESUME, DIGESTS] };
        let features = [ZONE_PING_HEALTH, HASH_SUFFIX, ATTRIBUTION].iter().chain(resuming).copied();
        Ok(KdsCaller {
            zone: self.settings.zone.to_string(),
            features: features.collect(),
            session: Some(self.env.entropy.uuid().to_string()),
            token: way.token.read()?,
            version: self.settings.version.clone(),
            issuing_request: self.settings.issuing_request.clone(),
        })
    }

    /// What global and workloads are shown.
    fn shown(&self, caller: &KdsCaller) -> Vec<ShownCredential> {
        let mut shown = credentials::to_global(caller.token.as_deref(), self.settings.certificate.as_ref());
        shown.extend(credentials::to_workloads(&self.index.current(), &self.settings.zone));
        shown
    }

    /// How far global was followed so far.
    async fn known(&self) -> Result<Option<Upstream>, StoreError> {
        let known = self.store.sessions(UPSTREAM).await?;
        let known = known.iter().find(|(key, _)| key == UPSTREAM).and_then(|(_, text)| Upstream::parse(text));
        // What was seen since that was written counts as well: of two relays one may be behind the other.
        Ok(newest(known, self.link.followed()))
    }

    /// Whether to obey this upstream.
    async fn decide(
        &self,
        known: Option<Upstream>,
        shown: Option<Upstream>,
        approved: bool,
        accepted: Option<Uuid>,
    ) -> Result<Decision, Broken> {
        let decision = match decide(known, shown, accepted) {
            Decision::Refuse(_) if approved => Decision::Guarded,
            Decision::Refuse(reason) => {
                self.link.held_back(reason.clone());
                return Err(Broken::HeldBack(reason));
            }
            decision => decision,
        };
        if approved && let Some(shown) = shown {
            // An operator's word outlives the connection it was given for.
            self.store.put_sessions(vec![(UPSTREAM.to_owned(), Some(shown.to_text()))]).await?;
        }
        Ok(decision)
    }

    /// Keeps in mind how far global's history was followed. One that is new here counts only once all of
    /// it was taken: until then every connection is guarded as the first. A store that takes no writes is no
    /// reason to leave global: who connects again is guarded, which is what should be then.
    async fn remember(&self) -> Infallible {
        let mut tick = interval(REPORT);
        let (mut remembered, mut fails) = (None, false);
        let mut taken = read_taken(&self.store).await.ok().flatten();
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                // At once: a global that is lost in its first second must be known when it comes back.
                () = self.link.settlement() => {}
            }
            let followed = self.link.followed();
            if let Some(upstream) = followed.filter(|_| followed != remembered) {
                let newest = self.link.taken_after(taken);
                let rows = [(UPSTREAM, Some(upstream)), (TAKEN, newest)]
                    .map(|(key, at)| (key.to_owned(), at.map(Upstream::to_text)));
                match self.store.put_sessions(rows.to_vec()).await {
                    Ok(()) => (remembered, taken, fails) = (followed, newest, false),
                    Err(error) if !std::mem::replace(&mut fails, true) => {
                        tracing::warn!(%error, "cannot remember how far global's history was followed");
                    }
                    Err(_) => {}
                }
            }
        }
    }

    async fn down(
        &self,
        channel: &Channel,
        caller: &KdsCaller,
        resume: bool,
        applier: Applier,
        stop: &CancellationToken,
    ) -> Ended {
        let (wire, queue) = outbox::wire(QUEUE);
        let mut client = self.sync_client(channel);
        let request = with_headers(queue, caller);
        let inbound = opened(async move { client.global_to_zone_sync(request).await });
        let following = Following {
            resume,
            sums_up: self.link.takes_digests(),
            besides: self.link.asks_besides(),
            ..self.following(resume, applier, Outbox::new(wire, OUTBOX), stop)
        };
        following.run(std::pin::pin!(inbound)).await
    }

    fn applier(&self, fence: Option<&Fence>, fuse: Fuse) -> Applier {
        Applier {
            store: Arc::clone(&self.store),
            index: self.index.clone(),
            env: self.env.clone(),
            follower: Follower::Zone,
            fence: fence.cloned(),
            fuse,
            trusted: None,
        }
    }

    async fn up(
        &self,
        channel: &Channel,
        caller: &KdsCaller,
        stamped: bool,
        stop: &CancellationToken,
    ) -> Ended {
        let (wire, queue) = outbox::wire(QUEUE);
        let mut client = self.sync_client(channel);
        let request = with_headers(queue, caller);
        let inbound = opened(async move { client.zone_to_global_sync(request).await });
        let serving = self.serving::<Delta>(Outbox::new(wire, OUTBOX), stop);
        serving.run(std::pin::pin!(inbound), self.own_view(stamped)).await
    }

    fn sync_client(&self, channel: &Channel) -> KdsSyncServiceClient<Channel> {
        let client = KdsSyncServiceClient::new(channel.clone())
            .max_decoding_message_size(self.settings.max_message)
            .max_encoding_message_size(self.settings.max_message);
        if !self.settings.gzip {
            return client;
        }
        client.send_compressed(CompressionEncoding::Gzip).accept_compressed(CompressionEncoding::Gzip)
    }

    fn recorder(&self) -> Recorder {
        Recorder {
            store: Arc::clone(&self.store),
            index: self.index.clone(),
            env: self.env.clone(),
            origin: Origin::Zone(Arc::clone(&self.settings.zone)),
        }
    }

    fn open_subscription(&self, caller: &KdsCaller) {
        let id = self.env.entropy.uuid().to_string();
        let instance = &self.env.instance_id;
        self.link.subscribe(SubscriptionRecord::open(id, instance, caller.token.is_some(), self.env.now()));
    }

    fn close_subscription(&self) {
        if let Some(mut subscription) = self.link.subscription() {
            subscription.close(self.env.now());
            self.link.subscribe(subscription);
        }
    }

    async fn record(&self, recorder: &Recorder) {
        let Some(subscription) = self.link.subscription() else { return };
        if let Err(error) = recorder.record(&self.settings.zone, &subscription, None, None).await {
            tracing::warn!(%error, "cannot write this zone's own insight");
        }
    }
}

/// Lets global ask for what this zone holds, for as long as the connection lives.
async fn hand_out(holdings: &HoldingsDesk<'_>, channel: &Channel, caller: &KdsCaller) -> Infallible {
    holdings.attend(channel, caller, None).await;
    std::future::pending().await
}

impl Work for Connector {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        self.run(Some(fence), stop).await;
    }

    fn stand_by(&self) {
        self.link.stands_by();
    }
}
