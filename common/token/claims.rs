//! What a token says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use uuid::Uuid;

use crate::proto::kuma::mesh::v1alpha1::dataplane::networking::listener;

/// What one sort of token says beyond id and times.
pub trait Claims: Serialize + DeserializeOwned + Clone {}

/// The bearer is one of these dataplanes. An empty field says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct DataplaneClaims {
    /// Name of the dataplane.
    pub name: String,
    /// Its mesh.
    pub mesh: String,
    /// Tags it must have, with the values it may have.
    #[serde(deserialize_with = "null_as_default")]
    pub tags: BTreeMap<String, BTreeSet<String>>,
    /// `dataplane`; or `ingress` or `egress` for one that listens as such an edge of its mesh.
    pub r#type: String,
    /// Its `kuma.io/workload`.
    pub workload: String,
}

impl DataplaneClaims {
    /// As which edge of its mesh a dataplane listens that a token of this type is for; `None` where it is no edge.
    pub fn edge(r#type: &str) -> Option<listener::Type> {
        match r#type {
            scope::INGRESS => Some(listener::Type::ZoneIngress),
            scope::EGRESS => Some(listener::Type::ZoneEgress),
            _ => None,
        }
    }
}

/// The bearer is a proxy or control plane of this zone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ZoneClaims {
    /// Name of the zone; empty for any.
    pub zone: String,
    /// What the bearer may be; see [`scope`].
    #[serde(deserialize_with = "null_as_default")]
    pub scope: Vec<String>,
    /// Zones a relay may carry: names, or beginnings of names with a `*` behind; empty for any.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub carries: Vec<String>,
}

impl ZoneClaims {
    /// Whether the bearer, a relay, may carry `zone`.
    pub fn may_carry(&self, zone: &str) -> bool {
        let includes = |named: &String| match named.strip_suffix('*') {
            Some(beginning) => zone.starts_with(beginning),
            None => zone == named,
        };
        self.carries.is_empty() || self.carries.iter().any(includes)
    }
}

/// Scopes of a zone token.
pub mod scope {
    /// A zone ingress proxy.
    pub const INGRESS: &str = "ingress";
    /// A zone egress proxy.
    pub const EGRESS: &str = "egress";
    /// The zone control plane itself; not known to Kuma.
    pub const CP: &str = "cp";
    /// A relay of this name, which carries zones; not known to Kuma.
    pub const RELAY: &str = "relay";
    /// All of them.
    pub const ALL: [&str; 4] = [INGRESS, EGRESS, CP, RELAY];
}

/// The group of user tokens that say: the bearer is the node of this name, which belongs to no mesh.
pub const NODE_GROUP: &str = "mesh-system:node";

/// The bearer is this user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct UserClaims {
    /// Name.
    pub name: String,
    /// Groups.
    #[serde(deserialize_with = "null_as_default")]
    pub groups: Vec<String>,
}

impl Claims for DataplaneClaims {}
impl Claims for ZoneClaims {}
impl Claims for UserClaims {}

/// Other issuers write an absent list or map as `null`.
fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Id and times of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Registered {
    #[serde(default)]
    pub(super) jti: String,
    #[serde(default)]
    pub(super) iat: i64,
    #[serde(default)]
    pub(super) nbf: i64,
    #[serde(default)]
    pub(super) exp: Option<i64>,
}

impl Registered {
    pub(super) fn new(id: Uuid, now: DateTime<Utc>, skew: Duration, valid_for: Duration) -> Self {
        let shift = |base: DateTime<Utc>, by: Duration, back: bool| {
            let by = TimeDelta::from_std(by).unwrap_or(TimeDelta::MAX);
            let moved = if back { base.checked_sub_signed(by) } else { base.checked_add_signed(by) };
            moved.unwrap_or(DateTime::<Utc>::MAX_UTC).timestamp()
        };
        let start = shift(now, skew, true);
        Self { jti: id.to_string(), iat: start, nbf: start, exp: Some(shift(now, valid_for, false)) }
    }
}

/// The payload of a token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct TokenPayload<C> {
    #[serde(flatten)]
    pub(super) claims: C,
    #[serde(flatten)]
    pub(super) registered: Registered,
}
