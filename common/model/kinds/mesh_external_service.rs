//! A service outside the mesh, which proxies reach through an egress.

mod check;
mod source;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::source::TlsDataSource;
pub use super::destinations::MESH_EXTERNAL_SERVICE as KIND;
use crate::model::{Spec, SpecError, Violations, decode, tls_version::TlsVersionRange};

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeshExternalService {
    /// How it is called inside the mesh.
    pub r#match: ExternalMatch,
    /// Says where it is in place of `endpoints` and `tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension: Option<Extension>,
    /// Where it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<ExternalEndpoint>>,
    /// How it is spoken to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<ExternalTls>,
}

/// How it is called inside the mesh.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalMatch {
    /// By what proxies know that a call is for it.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub r#type: MatchType,
    /// On which port.
    pub port: u32,
    /// What is spoken.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub protocol: ExternalProtocol,
}

/// By what proxies know that a call is for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MatchType {
    /// By a host name that was made for it.
    #[default]
    HostnameGenerator,
}

/// What is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "they are called what they are")]
pub enum ExternalProtocol {
    #[default]
    Tcp,
    Grpc,
    Http,
    Http2,
}

impl ExternalProtocol {
    /// Its name in specs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Grpc => "grpc",
            Self::Http => "http",
            Self::Http2 => "http2",
        }
    }
}

/// Something that says where the service is and how it is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Extension {
    /// Which one.
    pub r#type: String,
    /// What it is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config: Option<Value>,
}

/// One place where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalEndpoint {
    /// IP address, host name, or `unix://` and the path of a socket.
    pub address: String,
    /// Port; sockets have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// 0 is tried first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
}

/// How TLS is spoken to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalTls {
    /// Whether at all.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub enabled: bool,
    /// Between these versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<TlsVersionRange>,
    /// Whether the service may ask to negotiate again.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub allow_renegotiation: bool,
    /// What is asked of its certificate, and what is shown to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
}

/// What is asked of the certificate of the service, and what is shown to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// What is looked at.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub mode: VerificationMode,
    /// The name the service is asked for; its address when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Names of which the certificate must have one; that of the server when there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject_alt_names: Option<Vec<SubjectName>>,
    /// Who may have signed it; those the machine of the egress believes when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_cert: Option<TlsDataSource>,
    /// The certificate shown to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<TlsDataSource>,
    /// Its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_key: Option<TlsDataSource>,
}

/// What is looked at in a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum VerificationMode {
    /// Who signed it.
    #[serde(rename = "SkipSAN")]
    SkipSan,
    /// Nothing: names are worth nothing when anybody may have signed them.
    #[serde(rename = "SkipCA")]
    SkipCa,
    /// Nothing.
    SkipAll,
    /// Who signed it, and its names.
    #[default]
    Secured,
}

/// A name in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubjectName {
    /// How it is compared.
    #[serde(default, deserialize_with = "decode::value_or_default")]
    pub r#type: NameMatch,
    /// With what.
    pub value: String,
}

/// How a name is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NameMatch {
    /// It is this.
    #[default]
    Exact,
    /// It begins like this.
    Prefix,
}

impl MeshExternalService {
    /// What of it has no effect.
    pub fn caveat(&self) -> Option<&'static str> {
        if self.extension.is_some() {
            return Some("spec.extension has no effect: nothing here knows extensions");
        }
        let verification = self.tls.as_ref()?.verification.as_ref()?;
        let sources = [&verification.ca_cert, &verification.client_cert, &verification.client_key];
        sources.into_iter().flatten().any(TlsDataSource::is_empty).then_some(
            "a certificate or key of spec.tls.verification is empty, so nobody can call this service",
        )
    }
}

impl Spec for MeshExternalService {
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

#[cfg(test)]
mod tests;
