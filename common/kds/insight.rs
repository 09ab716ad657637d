//! One entry of a `ZoneInsight`: what a control plane has seen of one sync stream.
//!
//! Global keeps one for each zone, and a zone keeps the mirrored one for itself.

use chrono::{DateTime, Utc};
use prost::Message;

use super::metadata::Peer;
use crate::events::StreamKind;
use crate::proto::{
    google::protobuf::Timestamp,
    kuma::system::v1alpha1::{
        EnvoyAdminStreams, HealthCheck, KdsServiceStats, KdsStream, KdsStreams, KdsSubscription,
        KdsSubscriptionStatus, Version, ZoneInsight,
    },
};

/// Subscriptions kept per zone.
pub const KEPT: usize = 10;

/// The release of Kuma whose dialect this is.
const KUMA: &str = "2.14.0";

/// What happened to one response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It left.
    Sent,
    /// The peer took it.
    Acknowledged,
    /// The peer refused it, or a part of it.
    Rejected,
}

/// The subscription of a stream that is open, and whether it was written since it changed.
#[derive(Clone, Debug)]
pub struct SubscriptionRecord {
    entry: KdsSubscription,
    dirty: bool,
}

impl SubscriptionRecord {
    /// Of a stream that `instance` opened at `now`.
    pub fn open(id: String, instance: &str, token_provided: bool, now: DateTime<Utc>) -> Self {
        let entry = KdsSubscription {
            id,
            global_instance_id: instance.to_owned(),
            connect_time: Some(timestamp(now)),
            status: Some(KdsSubscriptionStatus {
                last_update_time: None,
                total: Some(KdsServiceStats::default()),
                ..KdsSubscriptionStatus::default()
            }),
            auth_token_provided: token_provided,
            ..KdsSubscription::default()
        };
        Self { entry, dirty: true }
    }

    /// Takes over what the peer says about itself. It is compatible with releases close to `ours`, and
    /// with those of Kuma that speak this dialect.
    pub fn introduce(&mut self, peer: &Peer, ours: &str) {
        let mut version = peer.version.clone();
        version.kuma_cp_global_compatible =
            [ours, KUMA].iter().any(|release| is_compatible(&version.version, release));
        self.entry.version = Some(Version { kuma_cp: Some(version) });
        self.entry.config.clone_from(&peer.config);
        self.entry.zone_instance_id = peer.instance.clone();
        self.dirty = true;
    }

    /// Counts one response of a type.
    pub fn count(&mut self, type_name: &str, outcome: Outcome, now: DateTime<Utc>) {
        let status = self.entry.status.get_or_insert_default();
        let of_type = status.stat.entry(type_name.to_owned()).or_default();
        for stats in [of_type, status.total.get_or_insert_default()] {
            match outcome {
                Outcome::Sent => stats.responses_sent += 1,
                Outcome::Acknowledged => stats.responses_acknowledged += 1,
                Outcome::Rejected => stats.responses_rejected += 1,
            }
        }
        if outcome != Outcome::Sent {
            status.last_update_time = Some(timestamp(now));
        }
        self.dirty = true;
    }

    /// The stream ended.
    pub fn close(&mut self, now: DateTime<Utc>) {
        self.entry.disconnect_time = Some(timestamp(now));
        self.dirty = true;
    }

    /// A copy to write, if it changed since the last one was taken.
    pub fn take_unwritten(&mut self) -> Option<Self> {
        if !std::mem::take(&mut self.dirty) {
            return None;
        }
        // Kuma counts here how often it has written it.
        self.entry.generation = self.entry.generation.wrapping_add(1);
        Some(self.clone())
    }

    /// It could not be written after all.
    pub fn rewrite(&mut self) {
        self.dirty = true;
    }

    /// Version of the peer's program.
    pub fn peer_version(&self) -> &str {
        let version = self.entry.version.as_ref().and_then(|v| v.kuma_cp.as_ref());
        version.map_or("", |v| v.version.as_str())
    }

    /// The insight `stored` with this subscription in it. One that is new ends all older ones: a zone has
    /// one session.
    pub fn put_into(&self, stored: &[u8]) -> ZoneInsight {
        // An insight nobody can read is replaced; it only describes the past.
        let mut insight = ZoneInsight::decode(stored).unwrap_or_default();
        let now = self.entry.disconnect_time.or(self.entry.connect_time);
        match insight.subscriptions.iter_mut().find(|s| s.id == self.entry.id) {
            Some(existing) => *existing = self.entry.clone(),
            None => {
                close_all(&mut insight, now);
                insight.subscriptions.push(self.entry.clone());
            }
        }
        if !self.entry.config.is_empty() {
            // It is the longest by far, and of use while it holds.
            let others = insight.subscriptions.iter_mut().filter(|s| s.id != self.entry.id);
            others.for_each(|subscription| subscription.config.clear());
        }
        let surplus = insight.subscriptions.len().saturating_sub(KEPT);
        insight.subscriptions.drain(..surplus);
        insight
    }
}

/// Leaves the oldest subscriptions out until what is kept of a zone has no more than `most` bytes.
pub fn fit(insight: &mut ZoneInsight, most: usize) {
    while insight.encoded_len() > most && !insight.subscriptions.is_empty() {
        insight.subscriptions.remove(0);
    }
}

/// Ends every open subscription of an insight at `now`; false when there was none.
pub fn close_open(insight: &mut ZoneInsight, now: DateTime<Utc>) -> bool {
    close_all(insight, Some(timestamp(now)))
}

fn close_all(insight: &mut ZoneInsight, at: Option<Timestamp>) -> bool {
    let open = insight.subscriptions.iter_mut().filter(|s| s.disconnect_time.is_none());
    open.map(|subscription| subscription.disconnect_time = at).count() > 0
}

/// Notes when the zone was last heard.
pub fn set_health(insight: &mut ZoneInsight, heard: DateTime<Utc>) {
    insight.health_check = Some(HealthCheck { time: Some(timestamp(heard)) });
}

/// Notes which instance serves the streams that are open, since when. Both sync streams are, whichever came first.
pub fn set_streams(insight: &mut ZoneInsight, instance: &str, since: DateTime<Utc>, open: &[StreamKind]) {
    let stream =
        || Some(KdsStream { global_instance_id: instance.to_owned(), connect_time: Some(timestamp(since)) });
    let asks = |kind: StreamKind| open.contains(&kind).then(stream).flatten();
    let streams = KdsStreams {
        global_to_zone: stream(),
        zone_to_global: stream(),
        config_dump: asks(StreamKind::ConfigDump),
        stats: asks(StreamKind::Stats),
        clusters: asks(StreamKind::Clusters),
    };
    // The form that older readers know.
    let named = |stream: &Option<KdsStream>| {
        stream.as_ref().map(|stream| stream.global_instance_id.clone()).unwrap_or_default()
    };
    let admin = EnvoyAdminStreams {
        config_dump_global_instance_id: named(&streams.config_dump),
        stats_global_instance_id: named(&streams.stats),
        clusters_global_instance_id: named(&streams.clusters),
    };
    insight.envoy_admin_streams = Some(admin).filter(|admin| *admin != EnvoyAdminStreams::default());
    insight.kds_streams = Some(streams);
}

/// A wall-clock time in protobuf's form.
pub fn timestamp(time: DateTime<Utc>) -> Timestamp {
    // Sub-second nanos never exceed i32 (chrono writes leap seconds as up to 1,999,999,999).
    Timestamp { seconds: time.timestamp(), nanos: time.timestamp_subsec_nanos().min(999_999_999) as i32 }
}

/// Same major version and minor versions at most two apart; what is not a release is given the benefit.
fn is_compatible(theirs: &str, ours: &str) -> bool {
    let parse = |version: &str| -> Option<(u32, u32)> {
        let mut parts = version.trim_start_matches('v').split('.');
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    };
    match (parse(theirs), parse(ours)) {
        (Some(theirs), Some(ours)) => theirs.0 == ours.0 && theirs.1.abs_diff(ours.1) <= 2,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn open(id: &str) -> SubscriptionRecord {
        SubscriptionRecord::open(id.to_owned(), "global-1", false, DateTime::UNIX_EPOCH)
    }

    #[test]
    fn a_new_subscription_ends_the_older_ones_and_ten_are_kept() {
        let mut stored = Vec::new();
        for id in 0..12 {
            stored = open(&id.to_string()).put_into(&stored).encode_to_vec();
        }
        let insight = ZoneInsight::decode(stored.as_slice()).unwrap();
        assert_eq!(insight.subscriptions.len(), KEPT);
        let online: Vec<&str> = insight
            .subscriptions
            .iter()
            .filter(|s| s.disconnect_time.is_none())
            .map(|s| s.id.as_str())
            .collect();
        assert_eq!(online, ["11"]);
    }

    #[test]
    fn what_a_zone_says_of_itself_is_kept_once() {
        let introduced = |id: &str| {
            let mut subscription = open(id);
            let peer = Peer { config: format!(r#"{{"a":"{}"}}"#, "x".repeat(60_000)), ..Peer::default() };
            subscription.introduce(&peer, "2.14.0");
            subscription
        };
        let mut stored = Vec::new();
        for id in 0..10 {
            let id = id.to_string();
            // It is known before it says anything.
            stored = open(&id).put_into(&stored).encode_to_vec();
            stored = introduced(&id).put_into(&stored).encode_to_vec();
        }
        let insight = ZoneInsight::decode(stored.as_slice()).unwrap();
        let configs: Vec<usize> = insight.subscriptions.iter().map(|s| s.config.len()).collect();
        assert_eq!(configs[..9], [0; 9]);
        assert!(configs[9] > 60_000 && stored.len() < 64 * 1024, "{}", stored.len());
        let mut cut = insight.clone();
        fit(&mut cut, stored.len() - 1);
        assert_eq!(cut.subscriptions, insight.subscriptions[1..]);
        fit(&mut cut, 10);
        assert_eq!(cut.subscriptions, []);
    }

    #[test]
    fn counters_are_kept_per_type_and_in_total() {
        let mut subscription = open("a");
        assert!(subscription.take_unwritten().is_some() && subscription.take_unwritten().is_none());
        subscription.count("Mesh", Outcome::Sent, DateTime::UNIX_EPOCH);
        subscription.count("Mesh", Outcome::Acknowledged, DateTime::UNIX_EPOCH);
        subscription.count("Secret", Outcome::Rejected, DateTime::UNIX_EPOCH);
        assert!(subscription.take_unwritten().is_some());
        subscription.rewrite();
        assert!(subscription.take_unwritten().is_some());
        let status = subscription.put_into(&[]).subscriptions[0].status.clone().unwrap();
        let total = status.total.unwrap();
        assert_eq!((total.responses_sent, total.responses_acknowledged, total.responses_rejected), (1, 1, 1));
        assert_eq!(status.stat["Mesh"].responses_acknowledged, 1);
    }

    #[test]
    fn compatibility_is_two_minors_apart() {
        for (theirs, expected) in
            [("2.14.3", true), ("2.12.0", true), ("2.9.0", false), ("3.0.0", false), ("preview", true)]
        {
            assert_eq!(is_compatible(theirs, "2.14.0"), expected, "{theirs}");
        }
    }
}
