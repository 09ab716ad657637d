//! What of a request is hashed.

use serde::{Deserialize, Serialize};

use crate::policy::Duration;

/// One thing that is hashed. `type` says which member is set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HashPolicy {
    /// Which.
    #[serde(rename = "type")]
    pub kind: HashPolicyType,
    /// Nothing behind this counts once there is a hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<bool>,
    /// A header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<HashedName>,
    /// A cookie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cookie: Option<Cookie>,
    /// The connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<HashedConnection>,
    /// A query parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_parameter: Option<HashedName>,
    /// An object some filter left behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter_state: Option<FilterState>,
}

/// Kinds of [`HashPolicy`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "described at the members of HashPolicy")]
pub enum HashPolicyType {
    Header,
    Cookie,
    Connection,
    SourceIP,
    QueryParameter,
    FilterState,
}

/// Something by its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedName {
    /// The name.
    pub name: String,
}

/// A cookie.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cookie {
    /// Its name.
    pub name: String,
    /// Who has none is given one for so long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl: Option<Duration>,
    /// For this path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

/// What of the connection is hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedConnection {
    /// The address it comes from.
    #[serde(default, rename = "sourceIP", skip_serializing_if = "Option::is_none")]
    pub source_ip: Option<bool>,
}

/// An object some filter left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilterState {
    /// Its key.
    pub key: String,
}
