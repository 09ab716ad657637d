//! Certificates of workloads, signed by the authority of their mesh.
//!
//! Time comes in as an argument; randomness is used in exactly one place, [`WorkloadKey::generate`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Duration, Utc};
use common::{
    ca::{self, CaError},
    issuing,
    model::{labels, spiffe},
    tls::x509_time,
};
use rcgen::{
    CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    SanType,
};
use sha2::{Digest, Sha256};

use super::{TrustBundle, tag_name, trust::Fingerprint};

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
    material: AuthorityPem,
    /// Until when it may sign.
    ends: Option<DateTime<Utc>>,
    fingerprint: [u8; 32],
    root: Option<Fingerprint>,
    issuer: Issuer<'static, KeyPair>,
}

/// The PEM texts of an authority.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthorityPem {
    /// Certificate of the root: what peers trust.
    pub root: String,
    /// Key that signs: that of the root, or of the zone.
    pub key: String,
    /// When the zone signs with a key of its own: its name, and the certificate the root gave it.
    pub zone: Option<(String, String)>,
}

impl std::fmt::Debug for AuthorityPem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthorityPem(of {})", self.zone.as_ref().map_or("the mesh", |(zone, _)| zone))
    }
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

/// Whom a certificate names: every value of every tag, or one workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The mesh, which is the trust domain of who has no other.
    pub mesh: String,
    /// All tags of the proxy.
    pub tags: BTreeMap<String, BTreeSet<String>>,
    /// What a `MeshIdentity` calls it, in place of what its tags say.
    pub given: Option<GivenIdentity>,
}

/// What a `MeshIdentity` calls a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenIdentity {
    /// The SPIFFE identity.
    pub id: String,
    /// Identifier of the `MeshIdentity`, by which the certificate is known to the proxy.
    pub by: Arc<str>,
}

impl Identity {
    /// URI names: the services first, then every tag, but for what would be taken for what control planes say.
    pub fn names(&self) -> Vec<String> {
        if let Some(given) = &self.given {
            // Others tell by the first name which authorities to ask, so there must be no second.
            return vec![given.id.clone()];
        }
        let services = self.tags.get(labels::TAG_SERVICE).into_iter().flatten();
        let services = services.map(|service| format!("spiffe://{}/{service}", self.mesh));
        let tags = self.said().map(|(tag, value)| tag_name::of_tag(tag, value));
        services.chain(tags).collect()
    }

    fn said(&self) -> impl Iterator<Item = (&String, &String)> {
        let all = self.tags.iter().flat_map(|(tag, values)| values.iter().map(move |value| (tag, value)));
        all.filter(|(tag, value)| tag_name::forged(tag, value).is_none())
    }

    /// The trust domain it is in.
    pub fn trust_domain(&self) -> &str {
        self.given.as_ref().and_then(|given| spiffe::trust_domain(&given.id)).unwrap_or(&self.mesh)
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
    root: Option<Fingerprint>,
}

impl std::fmt::Debug for WorkloadCertificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { identity, backend, issued, expires, .. } = self;
        write!(f, "WorkloadCertificate({identity:?} by {backend}, {issued} to {expires})")
    }
}

impl Authority {
    /// From its PEM texts.
    ///
    /// # Errors
    /// [`CaError`] when one of them does not parse.
    pub fn from_pem(backend: &str, material: AuthorityPem, lifetime: Duration) -> Result<Self, CaError> {
        let zone = material.zone.as_ref().map(|(_, certificate)| certificate.as_str());
        let issuer =
            Issuer::from_ca_cert_pem(zone.unwrap_or(&material.root), ca::signing_key(&material.key)?)?;
        let mut fingerprint = Sha256::new().chain_update(&material.root);
        if zone.is_some() {
            // That the certificate of the zone was renewed is no reason to replace what its key has signed.
            fingerprint.update(&material.key);
        }
        Ok(Self {
            backend: backend.to_owned(),
            certificate: material.root.clone(),
            lifetime,
            ends: zone.and_then(issuing::validity).map(|(_, until)| until),
            fingerprint: fingerprint.finalize().into(),
            root: TrustBundle::parse(&material.root).ok().and_then(|root| root.certificates.first().copied()),
            issuer,
            material,
        })
    }

    /// Whether it was made from these PEM texts.
    pub fn is_of(&self, material: &AuthorityPem) -> bool {
        self.material == *material
    }

    /// Signs `key` for `identity`.
    ///
    /// # Errors
    /// [`CaError`] when a tag cannot stand in a URI, or the authority has come to its end.
    pub fn issue(
        &self,
        identity: Identity,
        key: &WorkloadKey,
        now: DateTime<Utc>,
    ) -> Result<WorkloadCertificate, CaError> {
        // Nothing is believed for longer than who signed it.
        let expires = self.ends.map_or(now + self.lifetime, |ends| ends.min(now + self.lifetime));
        if expires <= now {
            let reason = "its certificate ran out while global was away; connect the zone to renew it";
            return Err(CaError::Key(reason.to_owned()));
        }
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        for name in identity.names() {
            params.subject_alt_names.push(SanType::URI(name.try_into()?));
        }
        if let Some((zone, _)) = self.material.zone.as_ref().filter(|_| identity.given.is_none()) {
            for service in identity.tags.get(labels::TAG_SERVICE).into_iter().flatten() {
                let name = issuing::name(service, zone, &identity.mesh);
                params.subject_alt_names.push(SanType::DnsName(name.try_into()?));
            }
        }
        params.is_ca = IsCa::ExplicitNoCa;
        // Roots of one name are told apart by their keys.
        params.use_authority_key_identifier_extension = true;
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
            certificate: params.signed_by(&key.0, &self.issuer)?.pem()
                + self.material.zone.as_ref().map_or("", |(_, certificate)| certificate),
            key: key.0.serialize_pem(),
            identity,
            backend: self.backend.clone(),
            issued: now,
            expires,
            authority: self.fingerprint,
            root: self.root,
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
        !self.stands_by(certificate, identity, now) || now >= renewal_time(certificate)
    }

    /// Whether `certificate` is one this authority signed for `identity`, and has not ended.
    pub fn stands_by(
        &self,
        certificate: &WorkloadCertificate,
        identity: &Identity,
        now: DateTime<Utc>,
    ) -> bool {
        certificate.identity == *identity
            && certificate.authority == self.fingerprint
            && certificate.backend == self.backend
            && now < certificate.expires
    }

    /// Whether who believes the one believes the other: they have the same root, for the same trust domain.
    pub fn is_akin(&self, certificate: &WorkloadCertificate, identity: &Identity) -> bool {
        self.root == certificate.root && identity.trust_domain() == certificate.identity.trust_domain()
    }
}

impl WorkloadCertificate {
    /// The identifier of the `MeshIdentity` by which it was made; `None` for one of the mesh.
    pub fn given_by(&self) -> Option<&Arc<str>> {
        self.identity.given.as_ref().map(|given| &given.by)
    }

    /// The certificate of the root it comes from.
    pub fn root(&self) -> Option<&[u8; 32]> {
        self.root.as_ref()
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
        Identity { mesh: "demo".into(), tags: tags.into(), given: None }
    }

    fn authority() -> Authority {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("demo", &key, DEFAULT_LIFETIME, now()).unwrap();
        let material = AuthorityPem { root: root.certificate, key: root.key, zone: None };
        Authority::from_pem("ca-1", material, DEFAULT_LIFETIME).unwrap()
    }

    #[test]
    fn a_zone_signs_with_its_own_key_what_the_root_vouches_for() {
        let root_key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("demo", &root_key, Duration::days(3650), now()).unwrap();
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let request = issuing::request(key.pem()).unwrap();
        let of = |at| {
            let own = issuing::certify(&request, &root, "zone-1", "demo", at).unwrap();
            let zone = Some(("zone-1".to_owned(), own));
            let material = AuthorityPem { root: root.certificate.clone(), key: key.pem().to_owned(), zone };
            Authority::from_pem("ca-1", material, DEFAULT_LIFETIME).unwrap()
        };
        let authority = of(now());
        let workload = WorkloadKey::generate().unwrap();
        let issued = authority.issue(identity("v1"), &workload, now()).unwrap();
        assert_eq!(issued.certificate.matches("BEGIN CERTIFICATE").count(), 2, "leaf and zone");
        let (_, leaf) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let leaf = leaf.parse_x509().unwrap();
        let names = format!("{:?}", leaf.subject_alternative_name().unwrap().unwrap().value.general_names);
        assert!(names.contains(r#"DNSName("web.zone-1.demo.zone.mesh.local")"#), "{names}");
        assert!(names.contains(r#"URI("spiffe://demo/web")"#), "{names}");

        let renewed = of(now() + Duration::days(1));
        assert!(!renewed.must_replace(&issued, &identity("v1"), now()), "the same zone under the same root");
        let late = now() + issuing::LIFETIME - Duration::hours(1);
        assert_eq!(
            authority.issue(identity("v1"), &workload, late).unwrap().expires,
            now() + issuing::LIFETIME
        );
        assert!(authority.issue(identity("v1"), &workload, now() + issuing::LIFETIME).is_err());
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
    fn no_tag_says_in_which_zone_a_workload_is_or_which_service() {
        let mut identity = identity("v1");
        let more = [
            ("kuma.io", "zone/west"),
            ("kuma.io", "service/bank"),
            ("kuma.io/zone", "east"),
            ("example.com", "team/b"),
        ];
        for (tag, value) in more {
            identity.tags.entry(tag.to_owned()).or_default().insert(value.to_owned());
        }
        let expected = [
            "spiffe://demo/web",
            "kuma://example.com/team/b",
            "kuma://kuma.io/service/web",
            "kuma://kuma.io/zone/east",
            "kuma://version/v1",
        ];
        assert_eq!(identity.names(), expected);
    }

    #[test]
    fn a_workload_that_was_given_an_identity_has_no_other_name() {
        let given =
            GivenIdentity { id: "spiffe://demo.east.mesh.local/workload/shop".into(), by: "kri".into() };
        let identity = Identity { given: Some(given), ..identity("v1") };
        assert_eq!(identity.trust_domain(), "demo.east.mesh.local");
        let (authority, key) = (authority(), WorkloadKey::generate().unwrap());
        let issued = authority.issue(identity.clone(), &key, now()).unwrap();
        let (_, leaf) = x509_parser::pem::parse_x509_pem(issued.certificate.as_bytes()).unwrap();
        let leaf = leaf.parse_x509().unwrap();
        let names = &leaf.subject_alternative_name().unwrap().unwrap().value.general_names;
        assert_eq!(format!("{names:?}"), r#"[URI("spiffe://demo.east.mesh.local/workload/shop")]"#);
        assert!(authority.is_akin(&issued, &identity));
        assert!(!super::tests::authority().is_akin(&issued, &identity), "another root");
        assert!(!authority.is_akin(&issued, &super::tests::identity("v1")), "another domain");
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
