//! The live state of a zone, which no stored field can tell.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::store::{Revision, index::Index};

/// Whether a zone can be reached; computed from its session, never from what a dead side should have
/// written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
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
pub struct Progress {
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
    pub status: Health,
    /// Since when it has been so.
    pub since: Option<DateTime<Utc>>,
    /// Version of the zone control plane.
    pub version: String,
    /// From global to the zone.
    pub down: Progress,
    /// From the zone to global.
    pub up: Progress,
    /// Dataplanes it sent.
    pub dataplanes: u64,
    /// What else to know: missing authentication, held-back deletes, rejected resources.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Who knows the live state of zones.
pub trait ZoneStatusSource: Send + Sync {
    /// The state of `zone`, `None` when it never connected to this process's group.
    fn zone_status(&self, zone: &str, index: &Index) -> Option<ZoneStatus>;
}
