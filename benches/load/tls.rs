//! Whom the proxies trust.

use std::{io, path::Path, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use thiserror::Error as ThisError;

/// Whom the proxies trust to be the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trusting<'a> {
    /// Who is certified by an authority in this file.
    File(&'a Path),
    /// Anybody.
    Anybody,
}

/// Why a file with authorities cannot be used.
#[derive(Debug, ThisError)]
pub enum TrustError {
    /// It cannot be read.
    #[error("read the certificates in {0}: {1}")]
    Read(String, #[source] io::Error),
    /// It holds none that can be used.
    #[error("{0} holds no usable certificate")]
    Unusable(String),
}

/// TLS of a client that speaks HTTP/2 and resumes nothing: each Envoy is a process of its own.
pub(crate) fn client(trusting: &Trusting<'_>) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .expect("the provider knows the default versions");
    let mut config = match trusting {
        Trusting::File(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
        Trusting::Anybody => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anybody(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn roots(path: &Path) -> Result<RootCertStore, TrustError> {
    let shown = path.display().to_string();
    let pem = std::fs::read(path).map_err(|error| TrustError::Read(shown.clone(), error))?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_slice_iter(&pem).map_while(Result::ok);
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 { Err(TrustError::Unusable(shown)) } else { Ok(roots) }
}

#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
