//! The live state of a zone, which no stored field can tell.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::{
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
    /// From global to the zone.
    pub down: SyncProgress,
    /// From the zone to global.
    pub up: SyncProgress,
    /// Dataplanes it sent.
    pub dataplanes: u64,
    /// Why it does not follow this global and goes on with what it has: global lost its store, or went back in time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<String>,
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

    /// What becomes of `resource` on its way to `zone`.
    fn sending(&self, zone: &str, resource: &Resource, index: &Index) -> Sending;

    /// Changes whenever a zone comes further, comes or goes.
    fn progressed(&self) -> watch::Receiver<()>;
}
