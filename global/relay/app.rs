//! Builds the relay process from its settings.

use std::{path::Path, sync::Arc};

use common::{
    control_plane::{self, ControlPlane, host_name, role},
    diagnostics::Readiness,
    events::EventBus,
    kds::dial::{Dial, Trusted},
    runtime::{Env, stop_signal},
    store::{Store, StoreError, index::IndexReader},
    tls::Trust,
};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::{
    config::RelayConfig,
    link::RelayLink,
    mirror::Mirror,
    settings::{RelaySettings, RelayToken},
};
use crate::{
    config::ZoneAuth,
    kds::{AnyZone, GlobalKdsSettings, Kds, Onward, TokenOfZone, ZoneAuthenticator},
};

/// One line for `--help`.
pub const ABOUT: &str = "A relay: follows a global and serves many zones in its place";

/// Changes a subscriber of the bus may fall behind.
const EVENTS: usize = 1024;

/// What a relay is made of.
pub struct RelayParts {
    /// How it treats its global.
    pub settings: RelaySettings,
    /// How it treats its zones.
    pub zones: GlobalKdsSettings,
    /// Where it keeps what global says.
    pub store: Arc<dyn Store>,
    /// What is in there.
    pub index: IndexReader,
    /// Clock, randomness, instance id.
    pub env: Env,
    /// The way to global.
    pub dial: Arc<dyn Dial>,
}

/// A relay. Cheap to clone.
#[derive(Clone)]
pub struct RelayControlPlane {
    link: Arc<RelayLink>,
    kds: Kds,
}

impl RelayControlPlane {
    /// A relay that lets in zones as `authenticator` says, which is made with what the relay shows.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn new(
        parts: RelayParts,
        authenticator: impl FnOnce(IndexReader) -> Arc<dyn ZoneAuthenticator>,
    ) -> Result<Self, StoreError> {
        let RelayParts { settings, zones, store, index, env, dial } = parts;
        // What is told here is what is shown, which comes later than what is stored.
        let bus = EventBus::new(EVENTS);
        let mirror = Mirror::open(Arc::clone(&store), index, bus.clone(), env.clone()).await?;
        let shown = mirror.reader();
        let line = watch::Sender::new(None);
        let link = Arc::new(RelayLink { settings, mirror: Arc::new(mirror), env: env.clone(), dial, line });
        let onward = Arc::clone(&link) as Arc<dyn Onward>;
        let authenticator = authenticator(shown.clone());
        let kds = Kds::of_relay(zones, store, shown, bus, env, authenticator, onward);
        Ok(Self { link, kds })
    }

    /// The server for zones.
    pub fn kds(&self) -> Kds {
        self.kds.clone()
    }

    /// What the zones are shown.
    pub fn index(&self) -> IndexReader {
        self.link.mirror.reader()
    }

    /// Follows global until `shutdown`.
    pub async fn follow(&self, shutdown: CancellationToken) {
        self.link.run(self.kds.clone(), shutdown).await;
    }
}

/// Runs the process until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub async fn run(settings: RelayConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let env = Env::system(&host_name());
    control_plane::run(build(settings, env), stop).await
}

/// Builds everything and binds every port; nothing else opens sockets.
///
/// # Errors
/// When the store is not usable, a port is taken or a certificate is broken.
pub async fn build(settings: RelayConfig, env: Env) -> anyhow::Result<ControlPlane> {
    let name = settings.multizone.relay.name.as_str();
    let mut cp =
        ControlPlane::start(env, name, &settings.general, &settings.store, &settings.diagnostics).await?;
    cp.reached_at(settings.multizone.global.kds.interface);
    role::take_relay(&cp.store).await?;
    let relay = relay(&cp, &settings).await?;
    let (link, shutdown) = (relay.clone(), cp.supervisor.shutdown());
    cp.supervisor.spawn("link to global", async move {
        link.follow(shutdown).await;
        Ok(())
    });
    let (readiness, index, shutdown) = (cp.readiness.clone(), relay.index(), cp.supervisor.shutdown());
    cp.supervisor.spawn("first state", first_state(readiness, index, shutdown));
    serve_zones(&mut cp, &settings, relay.kds())?;
    Ok(cp)
}

async fn relay(cp: &ControlPlane, settings: &RelayConfig) -> anyhow::Result<RelayControlPlane> {
    let (section, general) = (&settings.multizone.relay, &settings.general);
    let ca_file = Some(section.kds.root_ca_file.as_str()).filter(|path| !path.is_empty()).map(Path::new);
    let trust = Trust::from_settings(ca_file, section.kds.tls_skip_verify)?;
    let dial = Trusted::new(&section.global_address, &trust)?.of_section("multizone.relay");
    let zones = GlobalKdsSettings::from(&settings.multizone.global.kds);
    let parts = RelayParts {
        settings: RelaySettings {
            token: RelayToken::from_settings(&section.kds.token, &section.kds.token_file),
            max_message: zones.max_message,
            backoff: (general.resilient_component_base_backoff.0, general.resilient_component_max_backoff.0),
            beat: zones.poll_interval,
            ..RelaySettings::new(&section.name)
        },
        zones,
        store: Arc::clone(&cp.store),
        index: cp.index.clone(),
        env: cp.env.clone(),
        dial: Arc::new(dial),
    };
    let (auth, env) = (settings.multizone.global.kds.auth, cp.env.clone());
    let relay = RelayControlPlane::new(parts, |index| match auth {
        // The settings refuse what takes certificates.
        ZoneAuth::Token | ZoneAuth::Certificate | ZoneAuth::Either => Arc::new(TokenOfZone { index, env }),
        ZoneAuth::None => {
            tracing::warn!("zones are not asked who they are (multizone.global.kds.auth is none)");
            Arc::new(AnyZone)
        }
    });
    Ok(relay.await?)
}

fn serve_zones(cp: &mut ControlPlane, settings: &RelayConfig, kds: Kds) -> anyhow::Result<()> {
    let section = &settings.multizone.global.kds;
    let setting = "multizone.global.kds.grpcPort";
    let listener = cp.bind("kds", setting, section.interface, section.grpc_port)?;
    let tls = if section.tls_enabled {
        let pair = cp.certificate(&section.tls_cert_file, &section.tls_key_file)?;
        Some(TlsAcceptor::from(Arc::new(pair.server_config(&["h2"])?)))
    } else {
        tracing::warn!("zones connect in plain text (multizone.global.kds.tlsEnabled is false)");
        None
    };
    let sampled = kds.clone();
    cp.sampled.add(move |samples| sampled.sample(samples));
    let serving = kds.serve(listener, tls, cp.main_limits(), cp.supervisor.shutdown());
    cp.supervisor.spawn("zones", serving);
    Ok(())
}

/// Not ready before there is anything to show; what was followed before a restart will do.
async fn first_state(
    readiness: Readiness,
    index: IndexReader,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let pending = readiness.pending("first state of global");
    tokio::select! {
        shown = index.wait_for(1) => drop(shown),
        () = shutdown.cancelled() => {}
    }
    drop(pending);
    shutdown.cancelled().await;
    Ok(())
}
