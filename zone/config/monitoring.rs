//! Settings about the port where a Prometheus learns whose metrics to collect.

use std::net::{IpAddr, Ipv4Addr};

use common::config::Interval;
use serde::{Deserialize, Serialize};

/// `monitoringAssignmentServer`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MonitoringAssignmentServer {
    /// Whether there is one.
    pub enabled: bool,
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub port: u16,
    /// How long an answer waits for a change, where its client does not say it.
    pub default_fetch_timeout: Interval,
    /// Whether there is TLS.
    pub tls_enabled: bool,
    /// Certificate; empty means the one of `general`.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_key_file: String,
}

impl Default for MonitoringAssignmentServer {
    fn default() -> Self {
        Self {
            enabled: true,
            interface: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            port: 5676,
            default_fetch_timeout: Interval::seconds(30),
            tls_enabled: false,
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
        }
    }
}
