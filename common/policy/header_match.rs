//! Conditions on an HTTP header.

use serde::{Deserialize, Serialize};

use super::check::{Checks, NOT_DEFINED};
use crate::model::{FieldPath, Violations};

/// How a header is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum HeaderMatchType {
    /// The whole value.
    #[default]
    Exact,
    /// Any value.
    Present,
    /// The value, as a regular expression.
    RegularExpression,
    /// No such header.
    Absent,
    /// The beginning of the value.
    Prefix,
}

/// A condition on one header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderMatch {
    /// How to compare.
    #[serde(default, rename = "type")]
    pub kind: HeaderMatchType,
    /// Header name.
    pub name: String,
    /// What to compare with; unset for `Present` and `Absent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl HeaderMatch {
    /// The value, empty when unset.
    pub fn value(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }

    /// What is wrong with it. Whatever is compared with a value may be compared with an empty one.
    pub fn check(&self, path: &FieldPath) -> Violations {
        let mut violations = Violations::none();
        violations.header_name(path.field("name"), &self.name);
        let valueless = matches!(self.kind, HeaderMatchType::Present | HeaderMatchType::Absent);
        violations.check(valueless && !self.value().is_empty(), path.field("value"), NOT_DEFINED);
        violations
    }
}
