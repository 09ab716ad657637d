//! Settings about what is known of proxies, and when they are forgotten.

use common::config::{ConfigError, Interval};
use serde::{Deserialize, Serialize};

use crate::{
    ads::{absence::AbsenceTimeouts, bootstrap::GATEWAY_CONNECTIONS},
    mesh::AgentSocket,
};

/// `runtime`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Runtime {
    /// Outside Kubernetes, where this process is.
    pub universal: Universal,
}

/// `runtime.universal`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Universal {
    /// How long a dataplane may be offline before it is deleted.
    pub dataplane_cleanup_age: Interval,
    /// How long a zone ingress or a zone egress may be.
    pub zone_resource_cleanup_age: Interval,
    /// Agents of SPIRE beside proxies.
    pub spire: Spire,
}

impl Default for Universal {
    fn default() -> Self {
        let AbsenceTimeouts { dataplane, zone_proxy, .. } = AbsenceTimeouts::default();
        Self {
            dataplane_cleanup_age: Interval(dataplane),
            zone_resource_cleanup_age: Interval(zone_proxy),
            spire: Spire::default(),
        }
    }
}

/// `runtime.universal.spire`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Spire {
    /// The socket of the agent on the machine of a proxy that does not name one itself.
    pub socket_path: String,
}

impl Default for Spire {
    fn default() -> Self {
        Self { socket_path: AgentSocket::default().path().to_owned() }
    }
}

impl Spire {
    /// The same, as those use it who take identities from there.
    ///
    /// # Errors
    /// [`ConfigError`] for what cannot be the path of a socket.
    pub(crate) fn socket(&self) -> Result<AgentSocket, ConfigError> {
        AgentSocket::at(&self.socket_path).ok_or_else(|| {
            let reason = "must be the absolute path of a Unix socket, of at most 107 bytes";
            ConfigError::rule("runtime.universal.spire.socketPath", reason)
        })
    }
}

/// `metrics`, which in Kuma is about what is written of proxies.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsSection {
    /// Of the proxies of this zone.
    pub dataplane: DataplaneMetrics,
}

/// `metrics.dataplane`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DataplaneMetrics {
    /// How many of the last connections of a proxy are remembered.
    pub subscription_limit: u16,
    /// After how long without a word of the replica that has it a proxy is offline.
    pub idle_timeout: Interval,
}

impl Default for DataplaneMetrics {
    fn default() -> Self {
        Self { subscription_limit: 2, idle_timeout: Interval(AbsenceTimeouts::default().idle) }
    }
}

/// `proxy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ProxySection {
    /// Of those that run a builtin gateway.
    pub gateway: GatewayProxy,
}

/// `proxy.gateway`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GatewayProxy {
    /// Connections it takes from clients at the same time; 0 for as many as are usual.
    pub global_downstream_max_connections: u32,
}

impl GatewayProxy {
    /// How many connections those are.
    pub(crate) fn connections(&self) -> u32 {
        match self.global_downstream_max_connections {
            0 => GATEWAY_CONNECTIONS,
            chosen => chosen,
        }
    }
}
