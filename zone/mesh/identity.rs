//! Certificates of workloads, signed by the authority of their mesh.
//!
//! Time comes in as an argument; randomness is used in exactly one place, [`WorkloadKey::generate`].

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Duration, Utc};
use common::{
    ca::{self, CaError},
    model::labels,
    tls::x509_time,
};
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use sha2::{Digest, Sha256};

/// How long a workload certificate lives when the mesh does not say.
pub const DEFAULT_LIFETIME: Duration = Duration::hours(24);

/// An authority that signs workloads of one mesh.
#[derive(Debug)]
pub struct Authority {
    /// Name of the backend.
    pub backend: String,
    /// Its certificates, as PEM: what peers trust.
    pub certificate: String,
    /// How long certificates live.
    pub lifetime: Duration,
    fingerprint: [u8; 32],
    key_fingerprint: [u8; 32],
    issuer: Issuer<'static, KeyPair>,
}

/// The key of a workload.
pub struct WorkloadKey(KeyPair);

impl WorkloadKey {
    /// A fresh EC P-256 key.
    ///
    /// # Errors
    /// [`CaError`] when the machine has no randomness to give.
    pub fn generate() -> Result<Self, CaError> {
        Ok(Self(KeyPair::generate()?))
    }
}

/// Whom a certificate names: every value of every tag.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The mesh, which is the trust domain.
    pub mesh: String,
    /// All tags of the proxy.
    pub tags: BTreeMap<String, BTreeSet<String>>,
}

impl Identity {
    /// URI names: the services first, then every tag.
    pub fn names(&self) -> Vec<String> {
        let services = self.tags.get(labels::TAG_SERVICE).into_iter().flatten();
        let services = services.map(|service| format!("spiffe://{}/{service}", self.mesh));
        let tags = self
            .tags
            .iter()
            .flat_map(|(tag, values)| values.iter().map(move |value| format!("kuma://{tag}/{value}")));
        services.chain(tags).collect()
    }
}

/// A certificate a proxy presents, and its key.
#[derive(Clone, PartialEq, Eq)]
pub struct WorkloadCertificate {
    /// Whom it names.
    pub identity: Identity,
    /// Chain as PEM, leaf first.
    pub certificate: String,
    /// Key as PEM (PKCS#8).
    pub key: String,
    /// Backend that signed it.
    pub backend: String,
    /// When it was signed.
    pub issued: DateTime<Utc>,
    /// When it ends.
    pub expires: DateTime<Utc>,
    authority: [u8; 32],
}

impl std::fmt::Debug for WorkloadCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { identity, backend, issued, expires, .. } = self;
        write!(f, "WorkloadCertificate({identity:?} by {backend}, {issued} to {expires})")
    }
}

impl Authority {
    /// From the PEM texts of its certificate and key.
    ///
    /// # Errors
    /// [`CaError`] when either does not parse.
    pub fn from_pem(
        backend: &str,
        certificate: &str,
        key: &str,
        lifetime: Duration,
    ) -> Result<Self, CaError> {
        let issuer = Issuer::from_ca_cert_pem(certificate, ca::signing_key(key)?)?;
        Ok(Self {
            backend: backend.to_owned(),
            certificate: certificate.to_owned(),
            lifetime,
            fingerprint: Sha256::digest(certificate).into(),
            key_fingerprint: Sha256::digest(key).into(),
            issuer,
        })
    }

    /// Whether it was made from these PEM texts.
    pub fn is_of(&self, certificate: &str, key: &str) -> bool {
        let digest = |text: &str| -> [u8; 32] { Sha256::digest(text).into() };
        self.fingerprint == digest(certificate) && self.key_fingerprint == digest(key)
    }

    /// Signs `key` for `identity`.
    ///
    /// # Errors
    /// [`CaError`] when a tag cannot stand in a URI.
    pub fn issue(
        &self,
        identity: Identity,
        key: &WorkloadKey,
        now: DateTime<Utc>,
    ) -> Result<WorkloadCertificate, CaError> {
        let expires = now + self.lifetime;
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for name in identity.names() {
            params.subject_alt_names.push(SanType::URI(name.try_into()?));
        }
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyAgreement,
        ];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.not_before = x509_time(now - ca::CLOCK_SKEW);
        params.not_after = x509_time(expires);
        Ok(WorkloadCertificate {
            certificate: params.signed_by(&key.0, &self.issuer)?.pem(),
            key: key.0.serialize_pem(),
            identity,
            backend: self.backend.clone(),
            issued: now,
            expires,
            authority: self.fingerprint,
        })
    }

    /// Whether `certificate` should be replaced: it names someone else, another authority signed it, or
    /// four fifths of its life are over.
    pub fn must_replace(
        &self,
        certificate: &WorkloadCertificate,
        identity: &Identity,
        now: DateTime<Utc>,
    ) -> bool {
        certificate.identity != *identity
            || certificate.authority != self.fingerprint
            || certificate.backend != self.backend
            || now >= renewal_time(certificate)
    }
}

/// When four fifths of the life of `certificate` are over.
pub fn renewal_time(certificate: &WorkloadCertificate) -> DateTime<Utc> {
    certificate.issued + (certificate.expires - certificate.issued) * 4 / 5
}

/// Parses a lifetime as meshes write it: `24h`, `1d12h`, `500ms`. `None` when it is not one.
pub fn parse_lifetime(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = Duration::zero();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let count: i64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let millis: i64 = match &rest[..unit] {
            "ms" => 1,
            "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            "y" => 365 * 86_400_000,
            _ => return None,
        };
        total = total.checked_add(&Duration::try_milliseconds(count.checked_mul(millis)?)?)?;
        rest = &rest[unit..];
    }
    // A certificate that lives for centuries is a typing error, and X.509 times end in the year 9999.
    (total > Duration::zero() && total <= Duration::days(365 * 100)).then_some(total)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::keys::{KeyForm, PrivateKey};

    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn identity(version: &str) -> Identity {
        let tags = [("kuma.io/service", "web"), ("version", version)];
        let tags = tags.map(|(k, v)| (k.to_owned(), BTreeSet::from([v.to_owned()])));
        Identity { mesh: "demo".into(), tags: tags.into() }
    }

    fn authority() -> Authority {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("demo", &key, DEFAULT_LIFETIME, now()).unwrap();
        Authority::from_pem("ca-1", &root.certificate, &root.key, DEFAULT_LIFETIME).unwrap()
    }

    #[test]
    fn a_certificate_names_services_and_tags_and_verifies_against_the_root() {
        let authority = authority();
        let key = WorkloadKey::generate().unwrap();
        let issued = authority.issue(identity("v1"), &key, now()).unwrap();

        let (_, root) = x509_parser::pem::parse_x509_pem(authority.certificate.as_bytes()).unwrap();
        let (_, leaf) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let (root, leaf) = (root.parse_x509().unwrap(), leaf.parse_x509().unwrap());
        assert_eq!(leaf.issuer(), root.subject());
        let names = leaf.subject_alternative_name().unwrap().unwrap();
        assert_eq!(
            format!("{:?}", names.value.general_names),
            r#"[URI("spiffe://demo/web"), URI("kuma://kuma.io/service/web"), URI("kuma://version/v1")]"#
        );
        assert!(names.critical, "with an empty subject the names must be critical");
        assert_eq!(leaf.validity().not_after.timestamp(), issued.expires.timestamp());
    }

    #[test]
    fn a_certificate_is_replaced_late_in_life_or_when_what_it_says_changed() {
        let authority = authority();
        let key = WorkloadKey::generate().unwrap();
        let issued = authority.issue(identity("v1"), &key, now()).unwrap();
        let check = |minutes, identity: &Identity, replace| {
            let now = now() + Duration::minutes(minutes);
            assert_eq!(authority.must_replace(&issued, identity, now), replace, "after {minutes} min");
        };
        check(0, &identity("v1"), false);
        check(0, &identity("v2"), true);
        check(24 * 60 * 4 / 5 - 1, &identity("v1"), false);
        check(24 * 60 * 4 / 5, &identity("v1"), true);
        assert!(super::tests::authority().must_replace(&issued, &identity("v1"), now()), "other root");
    }

    #[test]
    fn lifetimes_are_sums_of_units() {
        let check = |text, seconds: Option<i64>| {
            assert_eq!(parse_lifetime(text).map(|d| d.num_seconds()), seconds, "{text}");
        };
        check("24h", Some(86_400));
        check("1d12h", Some(129_600));
        check("2w", Some(1_209_600));
        check("1500ms", Some(1));
        for wrong in ["", "24", "h", "1x", "-1h", "0s", "999999999y", "99999999999999999999h"] {
            check(wrong, None);
        }
    }
}
