//! Certificates and TLS settings of the listeners and connectors of a control plane.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{
    CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, KeyPair, KeyUsagePurpose, SanType,
};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
};
use thiserror::Error;

use crate::runtime::warn_if_open;

mod known;

use known::KnownOrSigned;

/// Why TLS could not be set up.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file cannot be read or written.
    #[error("{doing} {path}: {source}")]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path} holds no usable {what}: {reason}")]
    Content {
        /// Which file, or `inline` text.
        path: String,
        /// What was looked for.
        what: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The certificate could not be made.
    #[error("generate a self-signed certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// Certificate and key do not fit, or the versions exclude each other.
    #[error("set up TLS: {0}")]
    Setup(#[from] rustls::Error),
}

/// A certificate chain and its key, as PEM text.
#[derive(Clone)]
pub struct KeyPairPem {
    /// Certificate chain, leaf first.
    pub certificate: String,
    /// Private key.
    pub key: String,
}

impl KeyPairPem {
    /// Reads both files.
    ///
    /// # Errors
    /// [`TlsError::File`] naming the file.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, TlsError> {
        let pair = Self { certificate: read(certificate)?, key: read(key)? };
        warn_if_open(key, "the private key in it");
        Ok(pair)
    }

    /// Makes a server certificate for these host names and addresses, valid ten years, and an authority
    /// just for it, which is the second certificate of the chain. Some clients refuse an authority as a
    /// server and others refuse to trust anything but an authority; the pair suits both. The key of the
    /// authority is thrown away.
    ///
    /// # Errors
    /// [`TlsError::Generate`] when a name is not a host name.
    #[allow(clippy::disallowed_methods, reason = "the certificate must be valid by the real clock")]
    pub fn self_signed(hosts: &[String]) -> Result<Self, TlsError> {
        let now = chrono::Utc::now();
        let named = |name: &str| {
            let mut params = CertificateParams::default();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = x509_time(now - chrono::Duration::minutes(5));
            params.not_after = x509_time(now + chrono::Duration::days(3650));
            params
        };
        let mut authority = named("strait control plane authority");
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Constrained(0));
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut params = named("strait control plane");
        for host in hosts {
            params.subject_alt_names.push(match host.parse::<IpAddr>() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) => SanType::DnsName(host.as_str().try_into()?),
            });
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &authority)?;
        let chain = format!("{}{}", certificate.pem(), authority.pem());
        Ok(Self { certificate: chain, key: key.serialize_pem() })
    }

    /// The pair kept in `folder` as `<name>.crt` and `<name>.key`, made when it is not there yet.
    ///
    /// # Errors
    /// Any [`TlsError`].
    pub fn kept_in(folder: &Path, name: &str, hosts: &[String]) -> Result<Self, TlsError> {
        let certificate = folder.join(format!("{name}.crt"));
        let key = folder.join(format!("{name}.key"));
        if certificate.exists() && key.exists() {
            return Self::read(&certificate, &key);
        }
        let pair = Self::self_signed(hosts)?;
        fs::create_dir_all(folder).map_err(|source| file("create", folder, source))?;
        write(&key, &pair.key, 0o600)?;
        write(&certificate, &pair.certificate, 0o644)?;
        Ok(pair)
    }

    /// The certificates, leaf first.
    ///
    /// # Errors
    /// [`TlsError::Content`] when the text is not PEM or holds none.
    pub fn chain(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        certificates(&self.certificate, "inline")
    }

    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(|e| content("inline", "private key", &e))
    }

    /// Settings of a server that shows this certificate, for TLS 1.2 and 1.3 with these ALPN protocols.
    ///
    /// # Errors
    /// [`TlsError`] when the PEM is broken or key and certificate do not fit.
    pub fn server_config(&self, alpn: &[&str]) -> Result<ServerConfig, TlsError> {
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(self.chain()?, self.private_key()?)?;
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }

    /// The same for a server that asks for certificates of clients and takes those that one of these PEM authorities
    /// has signed. Who shows none is let in all the same: who it is may be proven by other means.
    ///
    /// # Errors
    /// [`TlsError`] when a PEM is broken or key and certificate do not fit.
    pub fn server_config_asking(&self, alpn: &[&str], authorities: &str) -> Result<ServerConfig, TlsError> {
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(authorities)?), provider())
            .allow_unauthenticated()
            .build()
            .map_err(|e| content("CA file", "authority of clients", &e))?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain()?, self.private_key()?)?;
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }

    /// Settings of a client that shows this certificate and believes these PEM certificates only.
    ///
    /// # Errors
    /// [`TlsError`] when the PEM is broken or key and certificate do not fit.
    pub fn client_config(&self, authority: &str) -> Result<ClientConfig, TlsError> {
        Ok(ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots(authority)?)
            .with_client_auth_cert(self.chain()?, self.private_key()?)?)
    }
}

impl std::fmt::Debug for KeyPairPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyPairPem")
    }
}

/// Whom a client believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The roots of the machine.
    System,
    /// These PEM certificates.
    Roots(String),
    /// Anyone: only as an explicit setting.
    Anyone,
}

impl Trust {
    /// From the usual pair of settings: skip verification, or a CA file, or the roots of the machine.
    ///
    /// # Errors
    /// [`TlsError::File`] naming the CA file.
    pub fn from_settings(ca_file: Option<&Path>, skip_verify: bool) -> Result<Self, TlsError> {
        match ca_file {
            _ if skip_verify => Ok(Self::Anyone),
            Some(path) => Ok(Self::Roots(read(path)?)),
            None => Ok(Self::System),
        }
    }

    /// Settings of a client with this trust and these ALPN protocols.
    ///
    /// # Errors
    /// [`TlsError::Content`] when a root is broken.
    pub fn client_config(&self, alpn: &[&str]) -> Result<ClientConfig, TlsError> {
        self.client_config_showing(alpn, None)
    }

    /// The same for a client that shows a certificate, where there is one.
    ///
    /// # Errors
    /// [`TlsError`] when a PEM is broken or key and certificate do not fit.
    pub fn client_config_showing(
        &self,
        alpn: &[&str],
        shown: Option<&KeyPairPem>,
    ) -> Result<ClientConfig, TlsError> {
        let builder =
            ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions()?;
        let builder = match self {
            Self::Anyone => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyone(provider())))
            }
            Self::Roots(pem) => {
                builder.dangerous().with_custom_certificate_verifier(Arc::new(KnownOrSigned::new(pem)?))
            }
            Self::System => {
                let mut roots = RootCertStore::empty();
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                builder.with_root_certificates(roots)
            }
        };
        let mut config = match shown {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_auth_cert(pair.chain()?, pair.private_key()?)?,
        };
        config.alpn_protocols = alpn.iter().map(|p| p.as_bytes().to_vec()).collect();
        Ok(config)
    }
}

/// The one provider of cryptography in this workspace.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// A wall-clock time in the form certificates want. Their calendar has the years 0 to 9999, and ends there.
pub fn x509_time(time: chrono::DateTime<chrono::Utc>) -> time::OffsetDateTime {
    const BEGINS: i64 = -62_167_219_200;
    const ENDS: i64 = 253_402_300_799;
    time::OffsetDateTime::from_unix_timestamp(time.timestamp().clamp(BEGINS, ENDS))
        .expect("the time crate knows the years of this calendar")
}

fn roots(pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(pem, "CA file")? {
        roots.add(certificate)?;
    }
    Ok(roots)
}

fn certificates(pem: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let found = found.map_err(|e| content(path, "certificate", &e))?;
    if found.is_empty() {
        return Err(content(path, "certificate", &"there is no CERTIFICATE block"));
    }
    Ok(found)
}

fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| file("read", path, source))
}

/// All of it or nothing: half a key, left by a full disk, would stop every start after it.
fn write(path: &Path, text: &str, mode: u32) -> Result<(), TlsError> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let mut options = fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(mode).open(&beside);
    let written = opened.and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()));
    let named = written.and_then(|()| fs::rename(&beside, path));
    named.map_err(|source| {
        // What is left of it is written over by the next try, if it cannot be removed.
        let _ = fs::remove_file(&beside);
        file("write", path, source)
    })
}

fn file(doing: &'static str, path: &Path, source: std::io::Error) -> TlsError {
    TlsError::File { doing, path: path.to_owned(), source }
}

fn content(path: &str, what: &'static str, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::Content { path: path.to_owned(), what, reason: reason.to_string() }
}

/// Verifies signatures but not who made them.
#[derive(Debug)]
struct AcceptAnyone(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_generated_pair_is_kept_and_reused() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let first = KeyPairPem::kept_in(folder.path(), "cp", &hosts).unwrap();
        let second = KeyPairPem::kept_in(folder.path(), "cp", &hosts).unwrap();
        assert_eq!(first.certificate, second.certificate);
        first.server_config(&["h2"]).unwrap();
        Trust::Roots(first.certificate).client_config(&["h2"]).unwrap();
    }

    #[tokio::test]
    async fn a_client_that_trusts_a_generated_pair_gets_through() {
        let pair = KeyPairPem::self_signed(&["localhost".to_owned()]).unwrap();
        let server = tokio_rustls::TlsAcceptor::from(Arc::new(pair.server_config(&["h2"]).unwrap()));
        let trust = Trust::Roots(pair.certificate).client_config(&["h2"]).unwrap();
        let client = tokio_rustls::TlsConnector::from(Arc::new(trust));
        let (near, far) = tokio::io::duplex(1 << 16);
        let name = ServerName::try_from("localhost").unwrap();
        let (accepted, connected) = tokio::join!(server.accept(far), client.connect(name, near));
        accepted.unwrap();
        connected.unwrap();
    }

    #[test]
    fn a_file_without_a_certificate_is_named() {
        let error = Trust::Roots("nothing".into()).client_config(&[]).unwrap_err();
        assert!(error.to_string().contains("CA file"), "{error}");
    }
}
