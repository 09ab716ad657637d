//! How global treats zones.

use std::{sync::Arc, time::Duration};

use common::kds::{MAX_MESSAGE, quota::ZoneQuota, signature::KeyOfResources};

use crate::config;

/// How often zones are asked to ping at most. None of ours does more often; one of Kuma does whatever it is asked, until its
/// calls are too many.
const MOST_OFTEN: Duration = Duration::from_millis(100);

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
        let asked = health.poll_interval.0;
        // None at all leaves it to the zones, and nobody knows then how long two pings take.
        let poll_interval = if asked.is_zero() { asked } else { asked.max(MOST_OFTEN) };
        let timeout = health.timeout.0.max(poll_interval);
        let two_pings = if asked.is_zero() { timeout } else { poll_interval.saturating_mul(2) };
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
            poll_interval,
            // Two pings may get lost before anyone worries.
            unknown_after: two_pings.min(timeout),
            offline_after: timeout,
            withdraw_after: Some(health.withdraw_after.0).filter(|after| !after.is_zero()),
            flush_interval: config.zone_insight_flush_interval.0,
            skip_label_prefixes: config.labels.skip_prefixes.clone(),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use common::config::Interval;

    use super::*;

    #[test]
    fn no_zone_is_asked_to_ping_more_often_than_it_may() {
        let of = |poll_interval: u64, timeout: u64| {
            let (poll_interval, timeout) = (Interval::millis(poll_interval), Interval::millis(timeout));
            let zone_health_check =
                config::ZoneHealthCheck { poll_interval, timeout, ..config::ZoneHealthCheck::default() };
            let section =
                config::GlobalKdsSection { zone_health_check, ..config::GlobalKdsSection::default() };
            let settings = GlobalKdsSettings::from(&section);
            [settings.poll_interval, settings.unknown_after, settings.offline_after].map(|d| d.as_millis())
        };
        assert_eq!(of(5_000, 20_000), [5_000, 10_000, 20_000]);
        assert_eq!(of(10, 20_000), [100, 200, 20_000]);
        assert_eq!(of(10, 50), [100, 100, 100]);
        assert_eq!(of(0, 20_000), [0, 20_000, 20_000], "that leaves it to the zones");
    }
}
