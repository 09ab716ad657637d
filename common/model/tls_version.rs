//! Versions of TLS, as users name them.

use serde::{Deserialize, Serialize};

use super::decode;

/// The oldest and the newest version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsVersionRange {
    /// The oldest.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub min: TlsVersion,
    /// The newest.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub max: TlsVersion,
}

/// A version of TLS.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are called what they are")]
pub enum TlsVersion {
    #[default]
    #[serde(rename = "TLSAuto")]
    Auto,
    #[serde(rename = "TLS10")]
    Tls10,
    #[serde(rename = "TLS11")]
    Tls11,
    #[serde(rename = "TLS12")]
    Tls12,
    #[serde(rename = "TLS13")]
    Tls13,
}

impl TlsVersionRange {
    /// Whether both are named and the oldest is newer than the newest.
    pub fn are_turned(self) -> bool {
        let named = |version| Some(version).filter(|version| *version != TlsVersion::Auto);
        named(self.min).zip(named(self.max)).is_some_and(|(min, max)| min > max)
    }
}
