//! Mesh TLS: contexts and secrets.

use common::proto::envoy::{
    config::core::v3::{DataSource, TransportSocket, data_source::Specifier, transport_socket::ConfigType},
    extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
        SubjectAltNameMatcher, TlsCertificate, UpstreamTlsContext,
        common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
        secret,
        subject_alt_name_matcher::SanType,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use prost::{Message, Name};

use super::{cluster, flag};
use crate::generator::{AdminIdentity, names};

/// The ALPN protocol by which a permissive proxy tells mesh TLS from the workload's own.
pub const ALPN: &str = "kuma";

/// A transport socket with this context.
pub fn socket<M: Message + Name>(context: &M) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(cluster::pack(context))),
    }
}

/// Accepts any text that is this.
pub fn exact(text: String) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Exact(text)), ..StringMatcher::default() }
}

/// Accepts any text that starts with this.
pub fn prefix(text: String) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Prefix(text)), ..StringMatcher::default() }
}

fn secret_config(name: String) -> SdsSecretConfig {
    SdsSecretConfig { name, sds_config: Some(cluster::ads()) }
}

/// A URI name of a certificate.
pub fn uri(matcher: StringMatcher) -> SubjectAltNameMatcher {
    name(SanType::Uri, matcher)
}

/// A DNS name of a certificate.
pub fn dns(matcher: StringMatcher) -> SubjectAltNameMatcher {
    name(SanType::Dns, matcher)
}

fn name(of: SanType, matcher: StringMatcher) -> SubjectAltNameMatcher {
    SubjectAltNameMatcher { san_type: of.into(), matcher: Some(matcher), ..SubjectAltNameMatcher::default() }
}

/// Accepts any text that ends with this.
pub fn suffix(text: String) -> StringMatcher {
    StringMatcher { match_pattern: Some(MatchPattern::Suffix(text)), ..StringMatcher::default() }
}

/// Presents the identity of the proxy and believes the CA of `mesh` about any of these names.
fn common(mesh: &str, names: Vec<SubjectAltNameMatcher>) -> CommonTlsContext {
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            match_typed_subject_alt_names: names,
            ..CertificateValidationContext::default()
        }),
        validation_context_sds_secret_config: Some(secret_config(names::ca_secret(mesh))),
        ..CombinedCertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![secret_config(names::identity_secret(mesh))],
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}

/// Accepts any member of the mesh.
pub fn downstream(mesh: &str) -> DownstreamTlsContext {
    DownstreamTlsContext {
        common_tls_context: Some(common(mesh, vec![uri(prefix(format!("spiffe://{mesh}/")))])),
        require_client_certificate: flag(true),
        ..DownstreamTlsContext::default()
    }
}

/// Connects to whoever proves to be one of `identities`, asking for `sni`.
pub fn upstream(mesh: &str, identities: Vec<SubjectAltNameMatcher>, sni: String) -> UpstreamTlsContext {
    let mut context = common(mesh, identities);
    context.alpn_protocols = vec![ALPN.to_owned()];
    UpstreamTlsContext { common_tls_context: Some(context), sni, ..UpstreamTlsContext::default() }
}

/// Shows an identity for the admin endpoint, and accepts the control plane under this name.
pub fn admin(identity: &AdminIdentity, control_plane: &str) -> DownstreamTlsContext {
    let certificate = TlsCertificate {
        certificate_chain: inline(&identity.certificate),
        private_key: inline(&identity.key),
        ..TlsCertificate::default()
    };
    let name = dns(exact(control_plane.to_owned()));
    let validation = CertificateValidationContext {
        trusted_ca: inline(&identity.authority),
        match_typed_subject_alt_names: vec![name],
        ..CertificateValidationContext::default()
    };
    let common = CommonTlsContext {
        tls_certificates: vec![certificate],
        validation_context_type: Some(ValidationContextType::ValidationContext(validation)),
        ..CommonTlsContext::default()
    };
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: flag(true),
        ..DownstreamTlsContext::default()
    }
}

fn inline(text: &str) -> Option<DataSource> {
    let specifier = Some(Specifier::InlineBytes(text.as_bytes().to_vec()));
    Some(DataSource { specifier, ..DataSource::default() })
}

/// A certificate with its key.
pub fn certificate_secret(name: &str, chain: &str, key: &str) -> Secret {
    let certificate = TlsCertificate {
        certificate_chain: inline(chain),
        private_key: inline(key),
        ..TlsCertificate::default()
    };
    Secret { name: name.to_owned(), r#type: Some(secret::Type::TlsCertificate(certificate)) }
}

/// Certificates to believe.
pub fn ca_secret(name: &str, certificates: &str) -> Secret {
    let context = CertificateValidationContext {
        trusted_ca: inline(certificates),
        ..CertificateValidationContext::default()
    };
    Secret { name: name.to_owned(), r#type: Some(secret::Type::ValidationContext(context)) }
}
