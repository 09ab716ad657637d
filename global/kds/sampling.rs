//! How the zones are, for whoever asks for the metrics.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use common::{
    metering::{self, samples::Samples},
    model::kinds,
    rest::{ZoneHealth, ZoneStatusSource},
};

use super::{Kds, session::Session};

impl Kds {
    /// Takes down how far the zones are that are connected here, and on global how each one is.
    pub fn sample(&self, samples: &mut Samples) {
        let now = self.inner.env.now();
        for session in self.inner.sessions.all() {
            of_session(&session, now, samples);
        }
        // A relay knows of no zones but those below it.
        if self.inner.onward.is_none() {
            self.sample_health(samples);
        }
    }

    fn sample_health(&self, samples: &mut Samples) {
        for status in ["offline", "online", "unknown"] {
            samples.add("kds_zones", &[("status", status)], 0.0);
        }
        for zone in self.inner.index.current().list(&kinds::zone::KIND) {
            let (status, online) = match self.zone_progress(zone.name()).status {
                ZoneHealth::Online => ("online", Some(1.0)),
                ZoneHealth::Unknown => ("unknown", None),
                ZoneHealth::Offline => ("offline", Some(0.0)),
            };
            samples.add("kds_zones", &[("status", status)], 1.0);
            if let Some(online) = online {
                samples.add("kds_zone_online", &[("zone_name", &metering::zone(zone.name()))], online);
            }
        }
    }
}

/// Of a zone whose last session was here.
fn of_session(session: &Arc<Session>, now: DateTime<Utc>, samples: &mut Samples) {
    let name = metering::zone(&session.zone);
    let is_running = session.cause().is_none();
    let streams = if is_running { session.streams().len() } else { 0 };
    let streams = u32::try_from(streams).unwrap_or(u32::MAX);
    samples.add("kds_zone_active_connections", &[("zone_name", &name)], streams.into());
    // Also of one that is not let in any more: that is why.
    let until = session.credential().and_then(|credential| credential.until);
    // Seconds of a century fit into a float.
    #[expect(clippy::cast_precision_loss)]
    let until = until.map_or(f64::INFINITY, |until| until.timestamp() as f64);
    samples.add("kds_zone_credential_expires_seconds", &[("zone_name", &name)], until);
    if !is_running {
        return;
    }
    let facts = session.facts();
    if let Some(clock) = facts.clock {
        samples.add("kds_zone_clock_skew_seconds", &[("zone_name", &name)], clock.seconds());
    }
    for (direction, position, since) in
        [("down", facts.down, facts.down_since), ("up", facts.up, facts.up_since)]
    {
        let lag = u32::try_from(position.lag).unwrap_or(u32::MAX);
        samples.add("kds_zone_lag", &[("zone_name", &name), ("direction", direction)], lag.into());
        let behind = since.map_or(0.0, |since| (now - since).to_std().unwrap_or_default().as_secs_f64());
        samples.add("kds_zone_behind_seconds", &[("zone_name", &name), ("direction", direction)], behind);
    }
}
