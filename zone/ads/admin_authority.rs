//! Who may ask Envoys on other machines: the authority of this zone for their admin endpoints.
//!
//! Its key never leaves the zone. It signs what an Envoy shows, and what this control plane shows to
//! Envoys.

use std::{net::IpAddr, sync::Arc};

use chrono::{DateTime, Utc};
use common::{
    ca::{self, CaError},
    model::{ResourceKey, kinds::secret},
    store::index::Index,
    tls::{KeyPairPem, TlsError, x509_time},
    token,
};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use rustls::ClientConfig;
use thiserror::Error;

use crate::generator::{AdminIdentity, CONTROL_PLANE_NAME};

/// The authority. Cheap to clone.
#[derive(Clone)]
pub struct AdminAuthority(Arc<AdminAuthorityInner>);

struct AdminAuthorityInner {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
    client: Arc<ClientConfig>,
}

/// Why there is none.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// It is not stored.
    #[error("GlobalSecret {name} does not exist; it is made at the next start", name = ca::ADMIN_SECRET)]
    Missing,
    /// What is stored is not one.
    #[error("GlobalSecret {name} is not an authority, delete it and start again: {0}", name = ca::ADMIN_SECRET)]
    Broken(#[from] CaError),
    /// It cannot be used for TLS.
    #[error("use GlobalSecret {name} for TLS, delete it and start again: {0}", name = ca::ADMIN_SECRET)]
    Tls(#[from] TlsError),
}

impl AdminAuthority {
    /// The one stored in this zone.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn stored(index: &Index, now: DateTime<Utc>) -> Result<Self, AuthorityError> {
        let place = ResourceKey::global(&secret::GLOBAL_SECRET, ca::ADMIN_SECRET);
        let data = index.get(&place).and_then(|secret| token::data_of(secret));
        let pem = data.and_then(|data| String::from_utf8(data).ok()).ok_or(AuthorityError::Missing)?;
        Self::of(&pem, now)
    }

    /// From the PEM texts of its certificate and key, one after the other.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn of(pem: &str, now: DateTime<Utc>) -> Result<Self, AuthorityError> {
        // The key stays here: what Envoys get of this text is the certificate.
        let certificate = certificate_of(pem).unwrap_or_default().to_owned();
        let key = pem.replacen(&certificate, "", 1);
        let issuer = Issuer::from_ca_cert_pem(&certificate, ca::signing_key(&key)?).map_err(CaError::from)?;
        let name = CONTROL_PLANE_NAME.try_into().map_err(CaError::from)?;
        let shown = sign(&issuer, SanType::DnsName(name), ExtendedKeyUsagePurpose::ClientAuth, now)?;
        let client = shown.client_config(&certificate)?;
        Ok(Self(Arc::new(AdminAuthorityInner { certificate, issuer, client: Arc::new(client) })))
    }

    /// What the Envoy at `address` shows.
    ///
    /// # Errors
    /// [`CaError`] when it cannot be signed.
    pub fn identity(&self, address: IpAddr, now: DateTime<Utc>) -> Result<AdminIdentity, CaError> {
        let usage = ExtendedKeyUsagePurpose::ServerAuth;
        let KeyPairPem { certificate, key } = sign(&self.0.issuer, SanType::IpAddress(address), usage, now)?;
        Ok(AdminIdentity { address, certificate, key, authority: self.0.certificate.clone() })
    }

    /// How this control plane connects to the admin endpoint of an Envoy.
    pub fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.0.client)
    }
}

impl std::fmt::Debug for AdminAuthority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AdminAuthority")
    }
}

/// A certificate for one name, and its key.
fn sign(
    issuer: &Issuer<'static, KeyPair>,
    name: SanType,
    usage: ExtendedKeyUsagePurpose,
    now: DateTime<Utc>,
) -> Result<KeyPairPem, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "envoy admin");
    params.subject_alt_names = vec![name];
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.not_before = x509_time(now - ca::CLOCK_SKEW);
    // What it signs lives in memory and is made anew at every start.
    params.not_after = x509_time(now + ca::ADMIN_LIFETIME);
    let key = KeyPair::generate()?;
    Ok(KeyPairPem { certificate: params.signed_by(&key, issuer)?.pem(), key: key.serialize_pem() })
}

/// The certificate in a PEM text that holds a key, too.
fn certificate_of(pem: &str) -> Option<&str> {
    const END: &str = "-----END CERTIFICATE-----\n";
    let from = pem.find("-----BEGIN CERTIFICATE-----")?;
    let length = pem[from..].find(END)? + END.len();
    Some(&pem[from..from + length])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::net::Ipv4Addr;

    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::*;

    #[tokio::test]
    async fn an_envoy_and_its_control_plane_believe_each_other_and_nobody_else() {
        let now = common::runtime::Env::system("test").now();
        let [ours, other] =
            [(); 2].map(|()| AdminAuthority::of(&ca::create_admin_root(now).unwrap(), now).unwrap());
        let address = IpAddr::from(Ipv4Addr::new(10, 0, 0, 1));
        let identity = ours.identity(address, now).unwrap();
        assert!(!identity.authority.contains("PRIVATE KEY"));
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(identity.authority.as_bytes()).unwrap()).unwrap();
        let clients = rustls::server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            common::tls::provider(),
        );
        let server = rustls::ServerConfig::builder_with_provider(common::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(identity.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap(),
            );
        let server = TlsAcceptor::from(Arc::new(server.unwrap()));
        let shakes = async |authority: &AdminAuthority, address: [u8; 4]| {
            let (near, far) = tokio::io::duplex(1 << 16);
            let name = ServerName::from(IpAddr::from(address));
            let connect = TlsConnector::from(authority.client()).connect(name, near);
            let (accepted, connected) = tokio::join!(server.accept(far), connect);
            accepted.is_ok() && connected.is_ok()
        };
        assert!(shakes(&ours, [10, 0, 0, 1]).await);
        assert!(!shakes(&ours, [10, 0, 0, 2]).await, "the certificate is for another address");
        assert!(!shakes(&other, [10, 0, 0, 1]).await, "somebody else's authority");
    }

    #[test]
    fn what_is_not_an_authority_is_refused_with_what_to_do() {
        for pem in ["", "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"] {
            let error = AdminAuthority::of(pem, DateTime::UNIX_EPOCH).unwrap_err().to_string();
            assert!(error.contains("GlobalSecret envoy-admin-ca") && error.contains("delete it"), "{error}");
        }
    }
}
