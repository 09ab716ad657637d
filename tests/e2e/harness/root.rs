//! An authority of a test's own, which no control plane has.

use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    runtime::{Clock, SystemClock},
};
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
};

/// Its certificate and key, as PEM.
#[derive(Clone)]
pub struct Root {
    certificate: String,
    key: String,
}

impl Root {
    /// A fresh one for a trust domain.
    pub fn of(domain: &str) -> Self {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root(domain, &key, chrono::Duration::days(1), SystemClock.now()).unwrap();
        Self { certificate: root.certificate, key: root.key }
    }

    /// Its certificate, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// A new certificate that bears this SPIFFE identity, and its key, as PEM.
    pub fn sign(&self, id: &str) -> (String, String) {
        let issuer = KeyPair::from_pem(&self.key).unwrap();
        let issuer = Issuer::from_ca_cert_pem(&self.certificate, issuer).unwrap();
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.subject_alt_names = vec![SanType::URI(id.try_into().unwrap())];
        // Without these nobody believes that it signs no others.
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
        params.use_authority_key_identifier_extension = true;
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem())
    }
}
