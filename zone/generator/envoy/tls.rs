//! Mesh TLS: contexts and secrets.

use common::model::{
    kinds::mesh_external_service::NameMatch,
    spiffe,
    tls_version::{TlsVersion, TlsVersionRange},
};
use common::proto::envoy::{
    config::core::v3::{
        DataSource, TransportSocket, TypedExtensionConfig, data_source::Specifier,
        transport_socket::ConfigType,
    },
    extensions::transport_sockets::tls::v3::{
        CertificateValidationContext, CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, Secret,
        SpiffeCertValidatorConfig, SubjectAltNameMatcher, TlsCertificate, TlsParameters, UpstreamTlsContext,
        common_tls_context::{CombinedCertificateValidationContext, ValidationContextType},
        secret,
        spiffe_cert_validator_config::TrustDomain,
        subject_alt_name_matcher::SanType,
        tls_parameters::TlsProtocol,
    },
    r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern},
};
use prost::{Message, Name};

use super::{cluster, flag};
use crate::{
    generator::{AdminIdentity, Giver, names},
    mesh::{Origination, UpstreamTrust},
};

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

fn secret_config(secret: SecretName) -> SdsSecretConfig {
    let (name, source) = match secret {
        SecretName::OfZone(name) => (name, cluster::ads()),
        SecretName::OfAgent(name) => (name, cluster::grpc(names::AGENT)),
    };
    SdsSecretConfig { name, sds_config: Some(source) }
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

/// A secret, by whoever has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretName {
    /// The zone.
    OfZone(String),
    /// The agent beside the proxy.
    OfAgent(String),
}

/// The secrets that one side of mesh TLS uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretNames {
    /// What it shows.
    pub identity: SecretName,
    /// Whom it believes.
    pub trust: SecretName,
}

impl SecretNames {
    /// Those of a member of `mesh` that believes the authority of that.
    pub fn of_mesh(mesh: &str) -> Self {
        Self {
            identity: SecretName::OfZone(names::identity_secret(mesh)),
            trust: SecretName::OfZone(names::ca_secret(mesh)),
        }
    }

    /// Those of a proxy of `mesh` that was given its identity by `given`, if anybody gave it one. It meets members of
    /// several trust domains where it is to believe all of them. An agent says itself whom to believe.
    pub fn of(mesh: &str, given: Option<&Giver>, several: bool) -> Self {
        let own = Self::of_mesh(mesh);
        let trust =
            if several { SecretName::OfZone(names::TRUST_BUNDLE.to_owned()) } else { own.trust.clone() };
        match given {
            None => Self { trust, ..own },
            Some(Giver::Zone(by)) => Self { identity: SecretName::OfZone(by.to_string()), trust },
            Some(Giver::Agent(id)) => Self {
                identity: SecretName::OfAgent(id.to_string()),
                trust: SecretName::OfAgent(names::AGENT_BUNDLES.to_owned()),
            },
        }
    }

    /// The same, believing whom this secret of the zone says.
    #[must_use]
    pub fn believing(self, trust: String) -> Self {
        Self { trust: SecretName::OfZone(trust), ..self }
    }
}

/// Uses these secrets and accepts any of these names.
fn common(secrets: SecretNames, names: Vec<SubjectAltNameMatcher>) -> CommonTlsContext {
    let validation = CombinedCertificateValidationContext {
        default_validation_context: Some(CertificateValidationContext {
            match_typed_subject_alt_names: names,
            ..CertificateValidationContext::default()
        }),
        validation_context_sds_secret_config: Some(secret_config(secrets.trust)),
        ..CombinedCertificateValidationContext::default()
    };
    CommonTlsContext {
        tls_certificate_sds_secret_configs: vec![secret_config(secrets.identity)],
        validation_context_type: Some(ValidationContextType::CombinedValidationContext(validation)),
        ..CommonTlsContext::default()
    }
}

/// Accepts any member of any mesh, showing what was `given` to the proxy of `mesh`, if anybody gave it something.
pub fn downstream_of_all(mesh: &str, given: Option<&Giver>, alpn: &[&str]) -> DownstreamTlsContext {
    let secrets = SecretNames::of(mesh, given, false).believing(names::ALL_CAS.to_owned());
    let mut context = common(secrets, Vec::new());
    context.alpn_protocols = alpn.iter().map(|&protocol| protocol.to_owned()).collect();
    DownstreamTlsContext {
        common_tls_context: Some(context),
        require_client_certificate: flag(true),
        ..DownstreamTlsContext::default()
    }
}

/// Accepts any member of these trust domains.
pub fn downstream<'a>(
    secrets: SecretNames,
    domains: impl IntoIterator<Item = &'a str>,
) -> DownstreamTlsContext {
    DownstreamTlsContext {
        common_tls_context: Some(common(secrets, members(domains))),
        require_client_certificate: flag(true),
        ..DownstreamTlsContext::default()
    }
}

/// The members of these trust domains.
pub fn members<'a>(domains: impl IntoIterator<Item = &'a str>) -> Vec<SubjectAltNameMatcher> {
    domains.into_iter().map(|domain| uri(prefix(spiffe::prefix(domain)))).collect()
}

/// Shows the certificates of these names to anybody.
pub fn serving(certificates: impl IntoIterator<Item = String>, alpn: &[&str]) -> DownstreamTlsContext {
    let common = CommonTlsContext {
        tls_certificate_sds_secret_configs: certificates
            .into_iter()
            .map(|name| secret_config(SecretName::OfZone(name)))
            .collect(),
        alpn_protocols: alpn.iter().map(|&protocol| protocol.to_owned()).collect(),
        tls_params: Some(TlsParameters {
            tls_minimum_protocol_version: TlsProtocol::TlSv12.into(),
            ..TlsParameters::default()
        }),
        ..CommonTlsContext::default()
    };
    DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: flag(false),
        ..DownstreamTlsContext::default()
    }
}

/// Connects to whoever proves to be one of `identities`, asking for `sni`.
pub fn upstream(
    secrets: SecretNames,
    identities: Vec<SubjectAltNameMatcher>,
    sni: String,
) -> UpstreamTlsContext {
    let mut context = common(secrets, identities);
    context.alpn_protocols = vec![ALPN.to_owned()];
    UpstreamTlsContext { common_tls_context: Some(context), sni, ..UpstreamTlsContext::default() }
}

/// Connects to something outside the mesh; `None` when it is to be believed as the machine believes, and that is not
/// known.
pub fn outward(origination: &Origination, system_ca: Option<&str>) -> Option<UpstreamTlsContext> {
    let authority = match &origination.trust {
        UpstreamTrust::Anybody => None,
        UpstreamTrust::These(certificates) => inline(certificates),
        UpstreamTrust::Machine => Some(file(system_ca?)),
    };
    let names = origination.names.iter().flat_map(|wanted| {
        [SanType::Dns, SanType::IpAddress].map(|of| {
            let text = wanted.value.clone();
            name(of, if wanted.r#type == NameMatch::Prefix { prefix(text) } else { exact(text) })
        })
    });
    // Names are worth nothing when anybody may have signed them.
    let validation = authority.map(|authority| {
        ValidationContextType::ValidationContext(CertificateValidationContext {
            trusted_ca: Some(authority),
            match_typed_subject_alt_names: names.collect(),
            ..CertificateValidationContext::default()
        })
    });
    let certificate = origination.client.as_ref().map(|(certificate, key)| TlsCertificate {
        certificate_chain: inline(certificate),
        private_key: inline(key),
        ..TlsCertificate::default()
    });
    let common = CommonTlsContext {
        tls_params: origination.versions.map(|versions| parameters(versions, &[])),
        tls_certificates: certificate.into_iter().collect(),
        validation_context_type: validation,
        ..CommonTlsContext::default()
    };
    Some(UpstreamTlsContext {
        common_tls_context: Some(common),
        sni: origination.server_name.clone().unwrap_or_default(),
        allow_renegotiation: origination.renegotiates,
        ..UpstreamTlsContext::default()
    })
}

/// Fills in the file with the certificates that the machine of the proxy believes.
pub fn believe_machine(context: &mut Option<UpstreamTlsContext>, path: &str) {
    let common = context.as_mut().and_then(|context| context.common_tls_context.as_mut());
    let validation = common.and_then(|common| common.validation_context_type.as_mut());
    if let Some(ValidationContextType::ValidationContext(validation)) = validation {
        validation.trusted_ca = Some(file(path));
    }
}

/// Versions and ciphers; those of Envoy where nothing is said.
pub fn parameters(versions: TlsVersionRange, ciphers: &[&str]) -> TlsParameters {
    TlsParameters {
        tls_minimum_protocol_version: protocol(versions.min).into(),
        tls_maximum_protocol_version: protocol(versions.max).into(),
        cipher_suites: ciphers.iter().map(|&cipher| cipher.to_owned()).collect(),
        ..TlsParameters::default()
    }
}

fn protocol(version: TlsVersion) -> TlsProtocol {
    match version {
        TlsVersion::Auto => TlsProtocol::TlsAuto,
        TlsVersion::Tls10 => TlsProtocol::TlSv10,
        TlsVersion::Tls11 => TlsProtocol::TlSv11,
        TlsVersion::Tls12 => TlsProtocol::TlSv12,
        TlsVersion::Tls13 => TlsProtocol::TlSv13,
    }
}

fn file(path: &str) -> DataSource {
    let specifier = Some(Specifier::Filename(path.to_owned()));
    DataSource { specifier, ..DataSource::default() }
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

/// Shows what is in these files of the machine of the proxy.
pub fn of_files(certificate: &str, key: &str) -> DownstreamTlsContext {
    let certificate = TlsCertificate {
        certificate_chain: Some(file(certificate)),
        private_key: Some(file(key)),
        ..TlsCertificate::default()
    };
    let common = CommonTlsContext { tls_certificates: vec![certificate], ..CommonTlsContext::default() };
    DownstreamTlsContext { common_tls_context: Some(common), ..DownstreamTlsContext::default() }
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

/// Trust domains, each with the certificates to believe about its members. The first SPIFFE identity in a certificate
/// tells which.
pub fn trust_secret<'a>(name: &str, domains: impl IntoIterator<Item = (&'a str, &'a str)>) -> Secret {
    let domain = |(name, certificates): (&str, &str)| TrustDomain {
        name: name.to_owned(),
        trust_bundle: inline(certificates),
        ..TrustDomain::default()
    };
    let validator = SpiffeCertValidatorConfig {
        trust_domains: domains.into_iter().map(domain).collect(),
        ..SpiffeCertValidatorConfig::default()
    };
    let context = CertificateValidationContext {
        custom_validator_config: Some(TypedExtensionConfig {
            name: "envoy.tls.cert_validator.spiffe".to_owned(),
            typed_config: Some(cluster::pack(&validator)),
        }),
        ..CertificateValidationContext::default()
    };
    Secret { name: name.to_owned(), r#type: Some(secret::Type::ValidationContext(context)) }
}

/// Certificates to believe.
pub fn ca_secret(name: &str, certificates: &str) -> Secret {
    let context = CertificateValidationContext {
        trusted_ca: inline(certificates),
        ..CertificateValidationContext::default()
    };
    Secret { name: name.to_owned(), r#type: Some(secret::Type::ValidationContext(context)) }
}
