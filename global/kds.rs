//! Serves zones: what goes down to them, what comes up from them, and whether they are there.

mod admission;
mod auth;
mod behind;
mod carried;
mod claims;
mod door;
mod ending;
mod federation;
mod halves;
mod health;
mod history;
mod holdings;
mod inbound;
mod insights;
mod instances;
mod missed;
mod multiplexed;
mod offers;
mod onward;
mod pace;
mod questions;
mod registration;
mod relay_auth;
mod relays;
mod replicas;
mod reply;
mod reverse;
mod running;
mod sampling;
mod service;
mod session;
mod sessions;
mod settings;
mod signing;
mod status;
mod withdrawal;
mod zone_view;
mod zone_watch;

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware::from_fn_with_state};
use common::{
    envoy_admin::Mailbox,
    events::EventBus,
    frames::FrameRoom,
    kds::{
        features::Features, mapper::DownForm, outgoing::SharedOutgoing, recorder::Recorder,
        signature::KeyOfResources, size::largest_sent,
    },
    model::Origin,
    offers::OffersAgain,
    rollouts::SharedHolds,
    runtime::{
        Accept, Env,
        http::{Limits, Server},
    },
    store::{Store, index::IndexReader},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use auth::{
    AnyZone, CertificateOfZone, EitherOfZone, ShownCredentials, TokenOfZone, ZoneAuthError, ZoneAuthenticator,
};
pub(crate) use holdings::{UnaskedZone, ZoneHoldings};
pub use relay_auth::{CarriedZones, RelayAuthError};
pub use settings::GlobalKdsSettings;

pub(crate) use carried::SeenSession;
pub(crate) use health::judge;
pub(crate) use inbound::ZoneMessages;
pub(crate) use onward::Onward;
pub(crate) use reverse::put;
pub(crate) use session::Session;

use self::{
    health::Patience,
    history::ZoneHistory,
    insights::ZoneInsights,
    instances::Instances,
    missed::MissedByZones,
    pace::{CALLS, ISSUING_KEYS, ZonePaces},
    relays::Relays,
    replicas::Replicas,
    reverse::AskHere,
    running::RunningMeshes,
    sessions::Sessions,
    signing::Signatures,
    status::DataplaneCounts,
    withdrawal::{KeptExports, Withdrawal},
    zone_view::Downward,
    zone_watch::ZoneWatch,
};

/// What a peer may send before it must wait for this side.
const WINDOW: u32 = 1024 * 1024;
/// Streams at once on a connection: a relay has one for each of its zones.
const STREAMS: u32 = 1000;
/// Bytes of messages that are not whole yet, of all zones together: all there is of a type may come in one of them.
const INCOMING: usize = 1 << 30;
/// How often those must have made progress. All streams of a connection, a relay's of many zones among them, share what it
/// may carry, and one is not read while the store takes what it said before.
const PROGRESS: Duration = Duration::from_secs(30);
/// Time for streams to say why they end.
const DRAIN: Duration = Duration::from_secs(2);

/// The server zones connect to. Cheap to clone.
#[derive(Clone)]
pub struct Kds {
    pub(crate) inner: Arc<KdsInner>,
}

/// What all streams share.
pub(crate) struct KdsInner {
    pub(crate) settings: GlobalKdsSettings,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) index: IndexReader,
    pub(crate) bus: EventBus,
    pub(crate) env: Env,
    pub(crate) authenticator: Arc<dyn ZoneAuthenticator>,
    pub(crate) sessions: Arc<Sessions>,
    /// How often each asked to sign with another key.
    issuing_keys: ZonePaces,
    /// How often each calls.
    calls: ZonePaces,
    /// Changes whenever a zone comes further, comes or goes.
    pub(crate) progress: watch::Sender<()>,
    pub(crate) replicas: Arc<Replicas>,
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) relays: Relays,
    /// On a relay: where it turns for what global decides.
    pub(crate) onward: Option<Arc<dyn Onward>>,
    pub(crate) history: ZoneHistory,
    pub(crate) dataplane_counts: DataplaneCounts,
    pub(crate) holds: SharedHolds,
    pub(crate) outgoing: Arc<SharedOutgoing<Downward>>,
    /// The same for zones that know no hashed names: made when the first of them comes, and shared by all.
    pub(crate) outgoing_unhashed: Arc<SharedOutgoing<Downward>>,
    pub(crate) missed: MissedByZones,
    pub(crate) kept_exports: KeptExports,
    /// Where secrets go only to zones that run their mesh.
    pub(crate) running: Option<Arc<RunningMeshes>>,
    /// Where messages lie until they are whole. A slow zone may take long over one, as long as it keeps coming.
    pub(crate) incoming: FrameRoom,
    pub(crate) streams: TaskTracker,
    pub(crate) shutdown: CancellationToken,
    pub(crate) started: Instant,
}

impl Kds {
    /// A server over `store`, read through `index`, that lets in whom `authenticator` accepts. `bus` is the
    /// one on which the feed of `index` tells what changes.
    pub fn new(
        settings: GlobalKdsSettings,
        store: Arc<dyn Store>,
        index: IndexReader,
        bus: EventBus,
        env: Env,
        authenticator: Arc<dyn ZoneAuthenticator>,
    ) -> Self {
        Self::with(settings, store, index, bus, env, authenticator, None)
    }

    /// The server of a relay, which shows its zones what `index` shows and turns to `onward` for the rest.
    /// Nothing but epochs goes into `store`.
    pub(crate) fn of_relay(
        settings: GlobalKdsSettings,
        store: Arc<dyn Store>,
        index: IndexReader,
        bus: EventBus,
        env: Env,
        authenticator: Arc<dyn ZoneAuthenticator>,
        onward: Arc<dyn Onward>,
    ) -> Self {
        Self::with(settings, store, index, bus, env, authenticator, Some(onward))
    }

    fn with(
        settings: GlobalKdsSettings,
        store: Arc<dyn Store>,
        index: IndexReader,
        bus: EventBus,
        env: Env,
        authenticator: Arc<dyn ZoneAuthenticator>,
        onward: Option<Arc<dyn Onward>>,
    ) -> Self {
        let progress = watch::Sender::new(());
        let sessions = Sessions::new(Arc::clone(&store), env.clone(), bus.clone(), progress.clone());
        let sessions = Arc::new(if onward.is_some() { sessions.relayed() } else { sessions });
        let signing_key = settings.signing_key.clone();
        let largest = largest_sent(settings.max_message);
        let relays = Relays::new(&settings.skip_label_prefixes, largest, signing_key.clone());
        let replicas = Arc::new(Replicas::new(Arc::clone(&env.instance_id), Arc::clone(&store)));
        let mailbox = Arc::new(Mailbox::new(Arc::clone(&store), Arc::clone(&env.instance_id)));
        let form = DownForm::of(&Features::ours(), &settings.skip_label_prefixes);
        let signatures = match (&onward, signing_key) {
            (Some(_), _) => Signatures::PassedOn,
            (None, Some(key)) => Signatures::By(key),
            (None, None) => Signatures::None,
        };
        let unhashed = DownForm { hashes_names: false, ..form.clone() };
        let unhashed = Downward { form: unhashed, signatures: signatures.clone(), largest };
        let downward = Downward { form, signatures, largest };
        let running = settings.secrets_where_run.then(Arc::default);
        let history = ZoneHistory::of(Arc::clone(&store));
        let incoming =
            FrameRoom::new(INCOMING.max(settings.max_message.saturating_mul(16))).in_steps(PROGRESS);
        let inner = KdsInner {
            settings,
            store,
            index,
            bus,
            env,
            authenticator,
            sessions,
            issuing_keys: ZonePaces::new(ISSUING_KEYS),
            calls: ZonePaces::new(CALLS),
            progress,
            replicas,
            mailbox,
            relays,
            onward,
            history,
            dataplane_counts: DataplaneCounts::default(),
            holds: SharedHolds::default(),
            outgoing: Arc::new(SharedOutgoing::new(downward)),
            outgoing_unhashed: Arc::new(SharedOutgoing::new(unhashed)),
            missed: MissedByZones::default(),
            kept_exports: KeptExports::default(),
            running,
            incoming,
            streams: TaskTracker::new(),
            shutdown: CancellationToken::new(),
            started: Instant::now(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Serves the connections of `listener` within `limits` until `shutdown`, then ends every stream and
    /// writes down that the zones are gone.
    ///
    /// # Errors
    /// Never before `shutdown`; the result fits a supervised task.
    pub async fn serve(
        self,
        listener: impl Accept,
        tls: Option<TlsAcceptor>,
        limits: Limits,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let inner = &self.inner;
        if let Err(error) = inner.history.refresh().await {
            tracing::warn!(%error, "cannot read which history zones are shown; they wait until it can be read");
        }
        let drained = CancellationToken::new();
        let ping = Some(inner.settings.keepalive);
        // A peer that keeps its connection open does not keep this process.
        let streams = limits.streams.max(STREAMS);
        let limits = Limits { http1: false, streams, window: WINDOW, ping, drain: DRAIN * 2, ..limits };
        let server =
            Server::new("kds", limits).with_tls(tls).serve(listener, self.router(), shutdown.clone());
        let watched = self.watch_zones(&shutdown, &drained);
        let drain = async {
            shutdown.cancelled().await;
            inner.shutdown.cancel();
            inner.streams.close();
            let _late_streams_are_cut = timeout(DRAIN, inner.streams.wait()).await;
            drained.cancel();
        };
        let (served, (), ()) = tokio::join!(server, watched, drain);
        served
    }

    /// All calls, and before them whoever looks who makes them.
    fn router(&self) -> Router {
        let first = from_fn_with_state(self.clone(), admission::first);
        service::routes(self).into_axum_router().layer(first)
    }

    /// What happens beside the streams, and because of them.
    fn watch_zones(
        &self,
        shutdown: &CancellationToken,
        drained: &CancellationToken,
    ) -> impl Future<Output = ()> + use<> {
        let inner = &self.inner;
        let recorder = Recorder {
            store: Arc::clone(&inner.store),
            index: inner.index.clone(),
            env: inner.env.clone(),
            origin: Origin::Global,
        };
        let watch = ZoneWatch {
            sessions: Arc::clone(&inner.sessions),
            replicas: Arc::clone(&inner.replicas),
            authenticator: Arc::clone(&inner.authenticator),
            index: inner.index.clone(),
            env: inner.env.clone(),
            patience: self.patience(),
        };
        let insights = ZoneInsights {
            sessions: Arc::clone(&inner.sessions),
            recorder: recorder.clone(),
            interval: inner.settings.flush_interval,
        };
        let instances = Instances {
            sessions: Arc::clone(&inner.sessions),
            replicas: Arc::clone(&inner.replicas),
            history: inner.history.clone(),
            recorder,
            patience: self.patience(),
            started: inner.started,
        };
        let watching = watch.run(inner.bus.subscribe("zone watch"), shutdown.clone());
        // What is known of the zones below a relay, global writes down; so it does who is withdrawn.
        let noting = inner.onward.is_none().then(|| {
            let writing = insights.run(inner.bus.subscribe("insights"), drained.clone());
            let exchanging = instances.run(inner.store.nudged(), drained.clone());
            let local = Arc::new(AskHere(self.clone()));
            let offers = Some(Arc::clone(&local) as Arc<dyn OffersAgain>);
            let sorting = Arc::clone(&inner.mailbox).run_offering(local, offers, drained.clone());
            let withdrawal = Withdrawal { kds: self.clone(), after: inner.settings.withdraw_after };
            let withdrawing = withdrawal.run(inner.bus.subscribe("withdrawal"), shutdown.clone());
            async move { tokio::join!(writing, exchanging, sorting, withdrawing) }
        });
        async move {
            let noting = async {
                if let Some(noting) = noting {
                    noting.await;
                }
            };
            tokio::join!(watching, noting);
        }
    }

    /// What signs what zones are sent, if anything does.
    pub(crate) fn signing_key(&self) -> Option<&KeyOfResources> {
        self.inner.settings.signing_key.as_deref()
    }

    pub(crate) fn patience(&self) -> Patience {
        let settings = &self.inner.settings;
        Patience { unknown_after: settings.unknown_after, offline_after: settings.offline_after }
    }
}
