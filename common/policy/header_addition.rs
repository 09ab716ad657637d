//! Headers that are added to a message.

use serde::{Deserialize, Serialize};

use super::{check::Checks, decode, mesh_http_route::HeaderValue};
use crate::model::{FieldPath, Violations};

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

impl HeaderAddition {
    /// What is wrong with it.
    pub(super) fn check(&self, path: &FieldPath) -> Violations {
        let mut violations = Violations::none();
        for (list, headers) in [("set", &self.set), ("add", &self.add)] {
            violations.header_names(&path.field(list), headers.iter().map(|header| header.name.as_str()));
        }
        violations
    }
}
