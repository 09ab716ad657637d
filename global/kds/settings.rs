//! How global treats zones.

use std::{sync::Arc, time::Duration};

use common::kds::{MAX_MESSAGE, quota::ZoneQuota, signature::KeyOfResources};

use crate::config;

/// All knobs of [`super::Kds`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalKdsSettings {
    /// A zone that connects for the first time is created.
    pub auto_register: bool,
    /// Zones get secrets of those meshes only that have proxies there.
    pub secrets_where_run: bool,
    /// Zones may sync by KDS v1 as well.
    pub v1: bool,
    /// Largest message, in bytes.
    pub max_message: usize,
    /// How much a zone may own here.
    pub quota: ZoneQuota,
    /// How often zones are asked to ping.
    pub poll_interval: Duration,
    /// Silence after which nobody can say whether a zone is there.
    pub unknown_after: Duration,
    /// Silence after which a zone is offline.
    pub offline_after: Duration,
    /// How long a zone is offline before what it exports is withdrawn; `None` for never.
    pub withdraw_after: Option<Duration>,
    /// How often counters of a zone's subscription are written.
    pub flush_interval: Duration,
    /// How long a zone may owe an answer before its session is replaced.
    pub stall_after: Duration,
    /// Idle time after which a connection is probed, and how long the probe may take.
    pub keepalive: Duration,
    /// Labels with these prefixes are not sent.
    pub skip_label_prefixes: Vec<String>,
    /// What zones are sent is signed with this.
    pub signing_key: Option<Arc<KeyOfResources>>,
    /// Version of this program, as peers compare it.
    pub version: String,
}

impl Default for GlobalKdsSettings {
    fn default() -> Self {
        Self {
            auto_register: true,
            secrets_where_run: false,
            v1: false,
            max_message: MAX_MESSAGE,
            quota: ZoneQuota::default(),
            poll_interval: Duration::from_secs(5),
            unknown_after: Duration::from_secs(10),
            offline_after: Duration::from_secs(20),
            withdraw_after: None,
            flush_interval: Duration::from_secs(10),
            stall_after: Duration::from_secs(20),
            keepalive: Duration::from_secs(10),
            skip_label_prefixes: Vec::new(),
            signing_key: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

impl From<&config::GlobalKdsSection> for GlobalKdsSettings {
    fn from(config: &config::GlobalKdsSection) -> Self {
        let health = &config.zone_health_check;
        Self {
            auto_register: config.auto_register_zones,
            secrets_where_run: config.secrets_to == config::SecretsTo::Running,
            v1: config.v1.enabled,
            max_message: config.max_msg_size,
            quota: ZoneQuota {
                total: config.zone_quota.total,
                per_kind: config.zone_quota.per_kind,
                bytes: config.zone_quota.bytes,
            },
            poll_interval: health.poll_interval.0,
            // Two pings may get lost before anyone worries.
            unknown_after: (health.poll_interval.0 * 2).min(health.timeout.0),
            offline_after: health.timeout.0,
            withdraw_after: Some(health.withdraw_after.0).filter(|after| !after.is_zero()),
            flush_interval: config.zone_insight_flush_interval.0,
            skip_label_prefixes: config.labels.skip_prefixes.clone(),
            ..Self::default()
        }
    }
}
