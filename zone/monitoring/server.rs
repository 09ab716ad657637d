//! The port on which Kuma's monitoring assignments are asked for. The API of the zone answers the same.

use std::sync::Arc;

use common::{
    control_plane::ControlPlane,
    rest::{Api, Mounted},
};

use crate::config::MonitoringAssignmentServer;

/// Serves `routes` on a port of their own, if the settings say so, to whom `api` would let ask them.
///
/// # Errors
/// When the port is taken, or the certificate is not usable.
pub(crate) fn serve(
    cp: &mut ControlPlane,
    settings: &MonitoringAssignmentServer,
    api: &Arc<Api>,
    routes: Mounted,
) -> anyhow::Result<()> {
    if !settings.enabled {
        return Ok(());
    }
    let pair = match settings.tls_enabled {
        true => Some(cp.certificate(&settings.tls_cert_file, &settings.tls_key_file)?),
        false => None,
    };
    let at = (settings.interface, settings.port);
    cp.serve_beside("monitoring", "monitoringAssignmentServer.port", at, pair, api.router_of(routes))
}
