//! Headers that are added to a message.

use serde::{Deserialize, Serialize};

use super::{decode, mesh_http_route::HeaderValue};

/// Headers that are added to a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderAddition {
    /// In place of those that are there.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HeaderValue>,
    /// Beside those that are there.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<HeaderValue>,
}
