//! The builtin certificate authority of a mesh: its root, and the secrets that hold it.
//!
//! Global makes the root when a mesh asks for one; zones receive it as two secrets and sign with it.

use chrono::{DateTime, Duration, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose, SanType,
};
use thiserror::Error;

use crate::{
    keys::{KeyForm, PrivateKey},
    tls::{KeyPairPem, x509_time},
};

/// Why a certificate authority cannot be made or used.
#[derive(Debug, Error)]
pub enum CaError {
    /// The key is of a form or an algorithm that cannot sign here.
    #[error("read the CA key: {0}")]
    Key(String),
    /// The certificate does not parse, or a certificate could not be signed.
    #[error("build certificate: {0}")]
    Certificate(#[from] rcgen::Error),
}

/// What a builtin backend may set about its root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootOptions {
    /// Its key.
    pub key: KeyForm,
    /// How long the root is valid.
    pub valid_for: Duration,
}

impl Default for RootOptions {
    fn default() -> Self {
        // Whoever reads the secrets of an authority, a Kuma zone too, takes ECDSA, and it costs nothing to make.
        Self { key: KeyForm::P256, valid_for: Duration::days(3650) }
    }
}

/// Certificates start to be valid early, so that a clock behind accepts them. A clock that was set wrong by
/// minutes and back again must not cut off those who got theirs meanwhile.
pub const CLOCK_SKEW: Duration = Duration::minutes(15);

/// Name of the global secret of a zone with its authority for the admin endpoints of Envoys: certificate and
/// key, as PEM one after the other.
pub const ADMIN_SECRET: &str = "envoy-admin-ca";
/// How long that authority is valid.
pub const ADMIN_LIFETIME: Duration = Duration::days(3650);

/// Between mesh and backend, in the names of the secrets of a builtin backend.
const CERTIFICATE_SECRET: &str = ".ca-builtin-cert-";
const KEY_SECRET: &str = ".ca-builtin-key-";

/// Name of the secret with the root certificate of a builtin backend.
pub fn certificate_secret(mesh: &str, backend: &str) -> String {
    format!("{mesh}{CERTIFICATE_SECRET}{backend}")
}

/// Name of the secret with the root key of a builtin backend.
pub fn key_secret(mesh: &str, backend: &str) -> String {
    format!("{mesh}{KEY_SECRET}{backend}")
}

/// Name of the secret with the root key of which the secret `name` holds the certificate; `None` when it holds none.
pub fn key_of_certificate(mesh: &str, name: &str) -> Option<String> {
    Some(key_secret(mesh, name.strip_prefix(mesh)?.strip_prefix(CERTIFICATE_SECRET)?))
}

/// Whether a secret of this name holds the root key of a builtin backend.
pub fn is_key_secret(mesh: &str, name: &str) -> bool {
    name.strip_prefix(mesh).is_some_and(|rest| rest.starts_with(KEY_SECRET))
}

/// Makes the root of a builtin backend: a certificate for `spiffe://<mesh>`, signed by itself with `key`.
///
/// # Errors
/// [`CaError`] when the mesh name is not ASCII.
pub fn create_root(
    mesh: &str,
    key: &PrivateKey,
    valid_for: Duration,
    now: DateTime<Utc>,
) -> Result<KeyPairPem, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Kuma");
    params.distinguished_name.push(DnType::OrganizationalUnitName, "Mesh");
    params.distinguished_name.push(DnType::CommonName, mesh);
    params.subject_alt_names = vec![SanType::URI(format!("spiffe://{mesh}").try_into()?)];
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = x509_time(now - CLOCK_SKEW);
    // The mesh says how long, and no check of what somebody wrote elsewhere stands before this.
    params.not_after = x509_time(now.checked_add_signed(valid_for).unwrap_or(DateTime::<Utc>::MAX_UTC));

    let certificate = params.self_signed(&signing_key(key.pem())?)?;
    Ok(KeyPairPem { certificate: certificate.pem(), key: key.pem().to_owned() })
}

/// Makes the authority of [`ADMIN_SECRET`].
///
/// # Errors
/// [`CaError`] when the machine has no randomness to give.
pub fn create_admin_root(now: DateTime<Utc>) -> Result<String, CaError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, ADMIN_SECRET);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = x509_time(now - CLOCK_SKEW);
    params.not_after = x509_time(now + ADMIN_LIFETIME);
    let key = KeyPair::generate()?;
    Ok(format!("{}{}", params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// The signing key in a PEM text: `RSA PRIVATE KEY` (PKCS#1), `EC PRIVATE KEY` (SEC 1) or `PRIVATE KEY`
/// (PKCS#8; RSA, EC or Ed25519).
///
/// # Errors
/// [`CaError::Key`] when it holds none of them.
pub fn signing_key(pem: &str) -> Result<KeyPair, CaError> {
    KeyPair::from_pem(pem).map_err(|e| {
        CaError::Key(format!(
            "expected a PEM block RSA PRIVATE KEY (PKCS#1), EC PRIVATE KEY (SEC 1) or PRIVATE KEY (PKCS#8): {e}"
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_root_is_an_authority_for_its_mesh() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        for (form, block) in [(KeyForm::P256, "PRIVATE KEY"), (KeyForm::Rsa2048, "RSA PRIVATE KEY")] {
            let key = PrivateKey::generate(form).unwrap();
            let root = create_root("demo", &key, Duration::days(1), now).unwrap();
            assert!(root.key.starts_with(&format!("-----BEGIN {block}-----")), "{form:?}");
            signing_key(&root.key).unwrap();

            let (_, pem) = x509_parser::pem::parse_x509_pem(root.certificate.as_bytes()).unwrap();
            let certificate = pem.parse_x509().unwrap();
            assert!(certificate.is_ca());
            assert_eq!(certificate.subject().to_string(), "O=Kuma, OU=Mesh, CN=demo");
            assert_eq!(
                certificate.validity().not_before.timestamp(),
                now.timestamp() - CLOCK_SKEW.num_seconds()
            );
            let names = certificate.subject_alternative_name().unwrap().unwrap();
            assert_eq!(format!("{:?}", names.value.general_names), "[URI(\"spiffe://demo\")]");
        }
    }

    #[test]
    fn a_root_that_outlives_the_calendar_ends_with_it() {
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        for valid_for in [Duration::days(365 * 9_000), Duration::days(365 * 100_000), Duration::MAX] {
            let root = create_root("demo", &key, valid_for, now).unwrap();
            let (_, pem) = x509_parser::pem::parse_x509_pem(root.certificate.as_bytes()).unwrap();
            let end = pem.parse_x509().unwrap().validity().not_after.timestamp();
            let end = DateTime::from_timestamp(end, 0).unwrap();
            assert_eq!(end.to_rfc3339(), "9999-12-31T23:59:59+00:00");
        }
    }

    #[test]
    fn a_key_in_another_form_is_refused_with_the_forms_that_work() {
        for wrong in ["-----BEGIN EC PRIVATE KEY-----\n", "", "-----BEGIN X-----\nAAAA\n-----END X-----\n"] {
            let Err(error) = signing_key(wrong) else { panic!("{wrong} is taken") };
            assert!(error.to_string().contains("PKCS#8"), "{error}");
        }
    }
}
