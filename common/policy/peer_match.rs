//! Conditions on the client of an inbound: who it is, and which name it asked for.

use serde::{Deserialize, Serialize};

use crate::model::{FieldPath, Violations, spiffe};

/// How an identity is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SpiffeMatchType {
    /// The whole identity.
    Exact,
    /// Its beginning.
    Prefix,
}

/// A condition on the SPIFFE identity of the client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SpiffeMatch {
    /// How to compare.
    #[serde(rename = "type")]
    pub kind: SpiffeMatchType,
    /// What to compare with.
    pub value: String,
}

/// How a server name is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SniMatchType {
    /// The whole name.
    Exact,
}

/// A condition on the server name the client sent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SniMatch {
    /// How to compare.
    #[serde(rename = "type")]
    pub kind: SniMatchType,
    /// What to compare with.
    pub value: String,
}

/// All set conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeerMatch {
    /// On the identity.
    #[serde(default, rename = "spiffeID", skip_serializing_if = "Option::is_none")]
    pub spiffe_id: Option<SpiffeMatch>,
    /// On the server name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sni: Option<SniMatch>,
}

impl PeerMatch {
    /// Position among matches when the most specific come first: exact identity, identity prefix,
    /// server name, none.
    pub fn precedence(&self) -> (u8, u8) {
        let identity = match self.spiffe_id.as_ref().map(|m| m.kind) {
            Some(SpiffeMatchType::Exact) => 0,
            Some(SpiffeMatchType::Prefix) => 1,
            None => 2,
        };
        (identity, u8::from(self.sni.is_none()))
    }

    /// How much of the identity it looks at: of two prefixes the longer is narrower.
    pub fn length(&self) -> usize {
        self.spiffe_id.as_ref().map_or(0, |id| id.value.len())
    }

    /// What is wrong with it.
    pub fn check(&self, path: &FieldPath) -> Violations {
        let mut violations = Violations::none();
        if let Some(problem) = self.spiffe_id.as_ref().and_then(|m| spiffe::problem(&m.value)) {
            violations.add(path.field("spiffeID"), format!("must be a valid Spiffe ID: {problem}"));
        }
        if let Some(sni) = &self.sni {
            let at = path.field("sni").field("value");
            violations.check(sni.value.is_empty(), at.clone(), "must be set");
            violations.check(!sni.value.is_empty() && !is_subdomain(&sni.value), at, SUBDOMAIN);
        }
        violations
    }
}

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Whether `text` is a lower-case RFC 1123 subdomain.
pub(super) fn is_subdomain(text: &str) -> bool {
    let label = |l: &str| {
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        edge(l.chars().next())
            && edge(l.chars().last())
            && l.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    text.len() <= 253 && text.split('.').all(label)
}
