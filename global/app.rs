//! Builds the global process from its settings.

use std::sync::Arc;

use axum::Router;
use common::{
    config,
    control_plane::{ControlPlane, host_name},
    defaults::{MeshDefaults, ensure_defaults},
    mode::Mode,
    rest::{Api, ApiConfig, standard_admissions},
    runtime::{Env, stop_signal},
};

use crate::config::GlobalConfig;

/// One line for `--help`.
pub const ABOUT: &str = "The global control plane: holds the policies and keeps every zone in sync";

/// Runs the process until it is told to stop.
///
/// # Errors
/// When it cannot start, or a part of it ends.
pub async fn run(settings: GlobalConfig) -> anyhow::Result<()> {
    let stop = stop_signal()?;
    let env = Env::system(&host_name());
    build(settings, env).await?.run(stop).await
}

/// Builds everything and binds every port; nothing else opens sockets.
///
/// # Errors
/// When the store is not usable, a port is taken or a certificate is broken.
pub async fn build(settings: GlobalConfig, env: Env) -> anyhow::Result<ControlPlane> {
    let mut cp =
        ControlPlane::start(env, "Global", &settings.general, &settings.store, &settings.diagnostics).await?;
    let mode = Mode::Global;
    ensure_defaults(&cp.store, &cp.index, &cp.env, &mode, &settings.defaults).await?;
    let mut admissions = standard_admissions(settings.store.unsafe_delete, None);
    admissions.push(Arc::new(MeshDefaults));
    let api = Api::new(
        Arc::clone(&cp.store),
        cp.index.clone(),
        cp.env.clone(),
        ApiConfig {
            read_only: settings.api_server.read_only,
            localhost_is_admin: settings.api_server.authn.localhost_is_admin,
            shown_config: config::masked(&settings),
            hostname: host_name(),
            admissions,
            ..ApiConfig::new(mode)
        },
    );
    cp.serve_api(&settings.api_server, api.router(Router::new())).await?;
    Ok(cp)
}
