//! Builds the global process from its settings.

use std::{path::Path, sync::Arc};

use anyhow::Context;
use common::{
    audit::AuditLog,
    config::{self, StoreType},
    control_plane::{self, ControlPlane, host_name, role},
    defaults::{MeshDefaults, ensure_defaults},
    gui::{self, PageParts, ZonesSeen},
    kds::signature::KeyOfResources,
    mode::Mode,
    oidc::OpenIdProvider,
    rest::{Api, ApiConfig, ZoneStatusSource, standard_admissions},
    runtime::{Env, stop_signal},
    traces::Traces,
};
use tokio_rustls::TlsAcceptor;

use crate::{
    api,
    config::{GlobalConfig, ZoneAuth},
    issuing,
    kds::{AnyZone, CertificateOfZone, EitherOfZone, GlobalKdsSettings, Kds, TokenOfZone, ZoneAuthenticator},
    recovery::Recovery,
    rollouts::{PromClient, RolloutDriver},
};

/// One line for `--help`.
pub const ABOUT: &str = "The global control plane: holds the policies and keeps every zone in sync";

/// Runs the process until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub async fn run(settings: GlobalConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let env = Env::system(&host_name());
    control_plane::run(build(settings, env), stop).await
}

/// Builds everything and binds every port; nothing else opens sockets.
///
/// # Errors
/// When the store is not usable, a port is taken or a certificate is broken.
pub async fn build(settings: GlobalConfig, env: Env) -> anyhow::Result<ControlPlane> {
    let mut cp =
        ControlPlane::start(env, "Global", &settings.general, &settings.store, &settings.diagnostics).await?;
    cp.reached_at(settings.multizone.global.kds.interface);
    role::take(&cp.store, &Mode::Global).await?;
    ensure_defaults(
        &cp.store,
        &cp.index,
        &cp.env,
        &Mode::Global,
        &settings.defaults.with_api(&settings.api_server),
    )
    .await?;
    let (store, shutdown) = (Arc::clone(&cp.store), cp.supervisor.shutdown());
    cp.supervisor.spawn("issuing", issuing::run(store, cp.index.clone(), cp.env.clone(), shutdown));
    let kds = serve_zones(&mut cp, &settings)?;
    let audit = cp.audit(&settings.api_server)?;
    let kds = Arc::new(kds);
    roll_out(&mut cp, &settings, &kds)?;
    let recovery = Recovery::new(
        Arc::clone(&kds),
        Arc::clone(&cp.store),
        cp.index.clone(),
        cp.env.clone(),
        settings.multizone.global.kds.labels.skip_prefixes.clone(),
    );
    let traces = cp.traces(&settings.tracing, "strait-global", None)?;
    let open_id = cp.open_id(&settings.api_server)?;
    let resources = resources(&cp, &settings, &kds, (audit, traces), open_id);
    let source = Arc::new(ZonesSeen(Arc::clone(&kds) as Arc<dyn ZoneStatusSource>));
    let parts = PageParts { bus: cp.bus.clone(), source, shutdown: cp.supervisor.shutdown() };
    let own = api::recovery(recovery).merge(api::zones(&kds));
    let (router, recording) = gui::router(&resources, own, parts);
    cp.supervisor.spawn("page", recording);
    cp.serve_api(&settings.api_server, router)?;
    Ok(cp)
}

fn roll_out(cp: &mut ControlPlane, settings: &GlobalConfig, kds: &Arc<Kds>) -> anyhow::Result<()> {
    let prometheus = match settings.rollouts.prometheus.address.as_str() {
        "" => None,
        address => Some(PromClient::at(address).context("use rollouts.prometheus.address")?),
    };
    let driver = RolloutDriver {
        zones: Arc::clone(kds) as _,
        store: Arc::clone(&cp.store),
        index: cp.index.clone(),
        env: cp.env.clone(),
        prometheus,
        alone: settings.store.kind != StoreType::Postgres,
    };
    let shutdown = cp.supervisor.shutdown();
    cp.supervisor.spawn("rollouts", driver.run(shutdown));
    Ok(())
}

fn serve_zones(cp: &mut ControlPlane, settings: &GlobalConfig) -> anyhow::Result<Kds> {
    let section = &settings.multizone.global.kds;
    let token = TokenOfZone { index: cp.index.clone(), env: cp.env.clone() };
    let certificate = CertificateOfZone { index: cp.index.clone(), env: cp.env.clone() };
    let authenticator: Arc<dyn ZoneAuthenticator> = match section.auth {
        ZoneAuth::Token => Arc::new(token),
        ZoneAuth::Certificate => Arc::new(certificate),
        ZoneAuth::Either => Arc::new(EitherOfZone { token, certificate }),
        ZoneAuth::None => {
            tracing::warn!("zones are not asked who they are (multizone.global.kds.auth is none)");
            Arc::new(AnyZone)
        }
    };
    let signing_key = match section.signing_key_file.as_str() {
        "" => None,
        file => {
            let key = KeyOfResources::read(Path::new(file), "multizone.global.kds.signingKeyFile")?;
            tracing::info!(key = key.id(), "what zones are sent is signed");
            Some(Arc::new(key))
        }
    };
    let kds = Kds::new(
        GlobalKdsSettings { signing_key, ..GlobalKdsSettings::from(section) },
        Arc::clone(&cp.store),
        cp.index.clone(),
        cp.bus.clone(),
        cp.env.clone(),
        authenticator,
    );
    let setting = "multizone.global.kds.grpcPort";
    let listener = cp.bind("kds", setting, section.interface, section.grpc_port)?;
    let tls = if section.tls_enabled {
        let pair = cp.certificate(&section.tls_cert_file, &section.tls_key_file)?;
        let config = match section.client_ca_file.as_str() {
            "" => pair.server_config(&["h2"])?,
            file => {
                let setting = "multizone.global.kds.clientCaFile";
                let authorities = std::fs::read_to_string(file);
                let authorities = authorities.with_context(|| format!("read {setting} {file}"))?;
                pair.server_config_asking(&["h2"], &authorities)
                    .with_context(|| format!("use {setting} {file}"))?
            }
        };
        Some(TlsAcceptor::from(Arc::new(config)))
    } else {
        tracing::warn!("zones connect in plain text (multizone.global.kds.tlsEnabled is false)");
        None
    };
    let sampled = kds.clone();
    cp.sampled.add(move |samples| sampled.sample(samples));
    let serving = kds.clone().serve(listener, tls, cp.main_limits(), cp.supervisor.shutdown());
    cp.supervisor.spawn("zones", serving);
    Ok(kds)
}

fn resources(
    cp: &ControlPlane,
    settings: &GlobalConfig,
    kds: &Arc<Kds>,
    (audit, traces): (Arc<AuditLog>, Traces),
    open_id: Option<Arc<OpenIdProvider>>,
) -> Arc<Api> {
    let zones: Arc<dyn ZoneStatusSource> = Arc::clone(kds) as _;
    let mut admissions = standard_admissions(settings.store.unsafe_delete, Some(Arc::clone(&zones)));
    admissions.push(Arc::new(MeshDefaults));
    let config = ApiConfig {
        shown_config: config::masked(settings),
        hostname: host_name(),
        admissions,
        zone_status: Some(zones),
        envoys: Some(Arc::clone(kds) as _),
        audit,
        traces,
        open_id,
        ..ApiConfig::from_settings(Mode::Global, &settings.api_server, &settings.access)
    };
    Api::new(Arc::clone(&cp.store), cp.index.clone(), cp.env.clone(), config)
}
