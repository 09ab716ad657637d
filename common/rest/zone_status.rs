//! The live state of a zone, which no stored field can tell.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
    kds::{clock::ClockSkew, proxies::ProxyProgress},
    model::Resource,
    store::{Revision, index::Index},
};

/// Whether a zone can be reached; computed from its session, never from what a dead side should have
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneHealth {
    /// Its session is alive.
    Online,
    /// Its session is silent, but not for long enough to call it dead.
    #[default]
    Unknown,
    /// It has no session.
    Offline,
}

/// How far one direction of sync has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncProgress {
    /// Revision of the sender.
    pub head: Revision,
    /// Revision the receiver acknowledged.
    pub acked: Revision,
    /// How many changes the receiver still has to acknowledge.
    pub lag: u64,
    /// Since when there have been some.
    #[serde(default, rename = "behindSince", skip_serializing_if = "Option::is_none")]
    pub behind_since: Option<DateTime<Utc>>,
}

/// How a zone proved who it is. None of it opens anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ZoneCredential {
    /// What it showed.
    pub kind: ZoneProof,
    /// What revokes it: the id of a token, the serial number of a certificate.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub id: String,
    /// From when it is good.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<DateTime<Utc>>,
    /// When it runs out; absent when it never does.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<DateTime<Utc>>,
}

/// What a zone can prove by who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneProof {
    /// A zone token.
    Token,
    /// A certificate in its TLS handshake.
    Certificate,
}

/// Before the end of a credential somebody is warned, so long at most.
const WARNING: TimeDelta = TimeDelta::days(14);

impl ZoneCredential {
    /// From when on somebody should be warned that it runs out: in the last quarter of its life, and two weeks before
    /// its end at the earliest. Who renews in time is never warned.
    pub fn warns_from(&self) -> Option<DateTime<Utc>> {
        let until = self.until?;
        let life = self.since.map_or(WARNING * 4, |since| until - since);
        until.checked_sub_signed((life / 4).min(WARNING))
    }
}

/// Who refused something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RefusingSide {
    /// The zone, of what global sent.
    Zone,
    /// Global, of what the zone sent.
    Global,
}

/// What is refused of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefusedType {
    /// Who refused it.
    pub by: RefusingSide,
    /// The type.
    pub r#type: String,
    /// Which of it and why, as it is shown to a person.
    pub reason: String,
}

/// What an operator needs to know about a zone, shown as `strait` in its overview.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ZoneStatus {
    /// Reachability.
    pub status: ZoneHealth,
    /// Since when it has been so.
    pub since: Option<DateTime<Utc>>,
    /// Version of the zone control plane.
    pub version: String,
    /// The protocol it syncs by, unless it is the usual one (KDS v2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// What it proved by who it is, when it last connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credential: Option<ZoneCredential>,
    /// From global to the zone.
    pub down: SyncProgress,
    /// From the zone to global.
    pub up: SyncProgress,
    /// How far the proxies in the zone are, in revisions of global; a zone of another make does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxies: Option<ProxyProgress>,
    /// Its clock, compared with that of global; a zone of another make does not measure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockSkew>,
    /// Dataplanes it sent.
    pub dataplanes: u64,
    /// The relay it is below, when it is not connected itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relay: Option<String>,
    /// Why it does not follow this global and goes on with what it has: global lost its store, or went back in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
    /// What is refused, on either side.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<RefusedType>,
    /// What it waits for while changes go out in waves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
    /// What else to know: missing authentication, held-back deletes, rejected resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What global does about one resource towards one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sending {
    /// It is meant for the zone, and the zone has not refused it.
    Sent,
    /// It is not meant for the zone, and why.
    NotMeant(String),
    /// It is meant for the zone and cannot be sent, and why.
    Withheld(String),
    /// The zone refused its newest form, and why.
    Refused(String),
    /// A rollout keeps the zone waiting for it, and how that stands.
    Kept(String),
}

/// Who knows the live state of zones.
pub trait ZoneStatusSource: Send + Sync {
    /// The state of `zone`, `None` when it never connected to this process's group.
    fn zone_status(&self, zone: &str, index: &Index) -> Option<ZoneStatus>;

    /// The same without what has to be counted: neither its dataplanes nor what it missed while it was away.
    fn zone_progress(&self, zone: &str) -> ZoneStatus;

    /// Whether anything is meant for `zone` that changed after revision `acked` and not after `revision`, as far as
    /// `index` still shows it; what was deleted leaves nothing to see.
    fn has_missed(&self, zone: &str, acked: Revision, revision: Revision, index: &Index) -> bool;

    /// Whether `index` still shows anything as it was written with `revision`.
    fn shows(&self, revision: Revision, index: &Index) -> bool {
        index.iter().any(|resource| resource.revision == revision)
    }

    /// What becomes of `resource` on its way to `zone`.
    fn sending(&self, zone: &str, resource: &Resource, index: &Index) -> Sending;

    /// Changes whenever a zone comes further, comes or goes.
    fn progressed(&self) -> watch::Receiver<()>;
}

/// Who knows how far the proxies of this zone are.
pub trait ProxyProgressSource: Send + Sync {
    /// How far they are, in revisions of the store here.
    fn proxy_progress(&self) -> ProxyProgress;

    /// Changes whenever they come further.
    fn progressed(&self) -> watch::Receiver<()>;
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_end_of_a_credential_is_told_in_the_last_quarter_of_its_life() {
        let at = |hours: i64| DateTime::UNIX_EPOCH + TimeDelta::hours(hours);
        let lives = |since, until| ZoneCredential { kind: ZoneProof::Token, id: String::new(), since, until };
        assert_eq!(lives(Some(at(0)), Some(at(24))).warns_from(), Some(at(18)));
        assert_eq!(lives(Some(at(0)), Some(at(87_600))).warns_from(), Some(at(87_600 - 14 * 24)));
        assert_eq!(lives(None, Some(at(1000))).warns_from(), Some(at(1000 - 14 * 24)));
        assert_eq!(lives(Some(at(0)), None).warns_from(), None);
    }
}
