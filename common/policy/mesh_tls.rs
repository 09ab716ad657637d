//! `MeshTLS`: how strict mesh TLS is, and which versions and ciphers it uses.

mod check;

use serde::{Deserialize, Serialize};

use super::{PeerItem, TargetRef, decode};
pub use crate::model::tls_version::{TlsVersion, TlsVersionRange};
use crate::model::{Kind, PolicyTraits, Spec, SpecError, Violations};

/// The descriptor.
pub static KIND: Kind = Kind::json("MeshTLS", "meshtlses")
    .flow(61)
    .named("meshtls", "mtls")
    .policy(PolicyTraits { target_ref: true, to: false, from: true, rules: true, from_as_rules: true })
    .typed::<MeshTls>();

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct MeshTls {
    /// For which proxies; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ref: Option<TargetRef>,
    /// For inbound traffic, the older form of `rules`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub from: Vec<PeerItem<TlsConf>>,
    /// For inbound traffic.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<TlsRule>,
}

/// An entry of `rules`. It has no conditions: a client is known only after the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsRule {
    /// The configuration.
    #[serde(default, deserialize_with = "decode::conf")]
    pub default: TlsConf,
}

/// How TLS is spoken.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TlsConf {
    /// Between these versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<TlsVersionRange>,
    /// With these ciphers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_ciphers: Option<Vec<Cipher>>,
    /// Whether clients may do without; what the mesh says if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<MtlsMode>,
}

/// A cipher suite of TLS 1.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(missing_docs, reason = "they are called what they are")]
pub enum Cipher {
    #[serde(rename = "ECDHE-ECDSA-AES128-GCM-SHA256")]
    EcdsaAes128,
    #[serde(rename = "ECDHE-ECDSA-AES256-GCM-SHA384")]
    EcdsaAes256,
    #[serde(rename = "ECDHE-ECDSA-CHACHA20-POLY1305")]
    EcdsaChacha20,
    #[serde(rename = "ECDHE-RSA-AES128-GCM-SHA256")]
    RsaAes128,
    #[serde(rename = "ECDHE-RSA-AES256-GCM-SHA384")]
    RsaAes256,
    #[serde(rename = "ECDHE-RSA-CHACHA20-POLY1305")]
    RsaChacha20,
}

/// Whether clients may do without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MtlsMode {
    /// They may not.
    Strict,
    /// They may.
    Permissive,
}

impl Cipher {
    /// Its name in OpenSSL's notation, which Envoy's is.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdsaAes128 => "ECDHE-ECDSA-AES128-GCM-SHA256",
            Self::EcdsaAes256 => "ECDHE-ECDSA-AES256-GCM-SHA384",
            Self::EcdsaChacha20 => "ECDHE-ECDSA-CHACHA20-POLY1305",
            Self::RsaAes128 => "ECDHE-RSA-AES128-GCM-SHA256",
            Self::RsaAes256 => "ECDHE-RSA-AES256-GCM-SHA384",
            Self::RsaChacha20 => "ECDHE-RSA-CHACHA20-POLY1305",
        }
    }
}

impl Spec for MeshTls {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        check::check(self)
    }
}
