//! Zones that sign with keys of their own: names, requests and certificates of their authorities.
//!
//! A zone makes a key that never leaves it and sends a request for a certificate along when it connects. Global
//! signs it with the root of each mesh whose label [`labels::ISSUING`] says so. The certificate may sign workloads
//! only, and only with DNS names of its zone; what Kuma puts into a certificate, the URI names, is not confined,
//! because other peers read those and their hosts are the mesh and the keys of tags. So peers that want to know the
//! zone of a workload look at its DNS names.
//!
//! Such zones get no key of the whole mesh: not that of the root, and of those for dataplane tokens the public halves.
//! Other zones do get the keys, because they can do nothing else, unless the mesh is for zones with keys only.

use std::sync::Arc;

use base64::{Engine, prelude::BASE64_STANDARD};
use chrono::{DateTime, Duration, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    GeneralSubtree, IsCa, Issuer, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, PublicKeyData,
};
use x509_parser::prelude::FromDer;

use crate::{
    ca::{self, CaError},
    model::{Resource, kinds::secret::SECRET, labels},
    store::{Precondition, Write, index::Index},
    tls::{KeyPairPem, x509_time},
    token,
};

/// Name of the global secret of a zone with the key it signs with. It is never sent anywhere.
pub const KEY_SECRET: &str = "zone-issuing-key";
/// How long the certificate of a zone lives; it is renewed after a third, so that a zone goes on signing for two
/// thirds of this without global.
pub const LIFETIME: Duration = Duration::days(90);

const REQUEST_SECRET: &str = "zone-issuing-request.";
/// A request of ours has 300 bytes.
const MAX_REQUEST: usize = 4096;

/// Name of the global secret with the request of `zone`.
pub fn request_secret(zone: &str) -> String {
    format!("{REQUEST_SECRET}{zone}")
}

/// The zone whose request a global secret of this name holds.
pub fn requesting_zone(secret: &str) -> Option<&str> {
    secret.strip_prefix(REQUEST_SECRET)
}

/// Name of the secret with the certificate by which `zone` signs for a backend.
pub fn certificate_secret(mesh: &str, backend: &str, zone: &str) -> String {
    format!("{mesh}.ca-zone-cert-{backend}.{zone}")
}

/// Whether a secret of `mesh` with this name holds a certificate by which `zone` signs.
pub fn is_certificate_of(zone: &str, mesh: &str, name: &str) -> bool {
    let rest = name.strip_prefix(mesh).and_then(|rest| rest.strip_prefix(".ca-zone-cert-"));
    let backend = rest.and_then(|rest| rest.strip_suffix(zone)?.strip_suffix('.'));
    backend.is_some_and(|backend| certificate_secret(mesh, backend, zone) == name)
}

/// Whether the zones of this mesh sign with keys of their own.
pub fn is_by_zone(mesh: &Resource) -> bool {
    mesh.label(labels::ISSUING) == Some(labels::ISSUING_ZONE) || is_by_zone_only(mesh)
}

/// Whether nobody signs for this mesh but zones with keys of their own, so that a name in a certificate that a zone
/// could make up is never believed.
pub fn is_by_zone_only(mesh: &Resource) -> bool {
    mesh.label(labels::ISSUING) == Some(labels::ISSUING_ZONE_ONLY)
}

/// Marks `secret`, when it holds a key that signs workloads or dataplane tokens of `mesh`, as the mesh is marked: by
/// that the key is kept from zones with keys of their own.
pub fn mark(secret: &mut Resource, mesh: &Resource) {
    if !is_key_of(mesh, secret) {
        return;
    }
    match mesh.label(labels::ISSUING) {
        Some(by) => secret.labels.insert(labels::ISSUING, by),
        None => secret.labels.remove(labels::ISSUING),
    };
}

/// Marks the keys of `mesh` that are not marked as it is.
pub fn marks(mesh: &Resource, index: &Index) -> Vec<Write> {
    let is_other = |key: &&Arc<Resource>| {
        is_key_of(mesh, key) && key.label(labels::ISSUING) != mesh.label(labels::ISSUING)
    };
    let others = index.list_in_mesh(&SECRET, mesh.name()).filter(is_other);
    let marked = others.map(|key| {
        let mut marked = Resource::clone(key);
        mark(&mut marked, mesh);
        Write::put_when(marked, Precondition::At(key.revision))
    });
    marked.collect()
}

fn is_key_of(mesh: &Resource, secret: &Resource) -> bool {
    ca::is_key_secret(mesh.name(), secret.name()) || token::is_dataplane_key(secret.name())
}

/// What all DNS names of workloads of a zone end with, without a dot before it.
pub fn domain(zone: &str, mesh: &str) -> String {
    format!("{}.{}.zone.mesh.local", one_label(zone), one_label(mesh))
}

/// The DNS name of a service in a zone.
pub fn name(service: &str, zone: &str, mesh: &str) -> String {
    format!("{service}.{}", domain(zone, mesh))
}

/// Without dots, or the domain of zone `b` would hold that of zone `a.b`. No two names become one.
fn one_label(name: &str) -> String {
    name.replace('_', "_u").replace('.', "_d")
}

/// The request for a certificate of this key, as it travels.
///
/// # Errors
/// [`CaError`] when the key cannot sign.
pub fn request(key: &str) -> Result<String, CaError> {
    let key = ca::signing_key(key)?;
    let request = CertificateParams::default().serialize_request(&key)?;
    Ok(BASE64_STANDARD.encode(request.der()))
}

/// Reads what [`request`] wrote, and checks that the sender has the key.
///
/// # Errors
/// [`CaError`] when it is too long, does not parse, is not signed by its key, or is for another kind of key.
pub fn read_request(text: &str) -> Result<CertificateSigningRequestParams, CaError> {
    let bad = |reason: &str| CaError::Key(format!("the issuing request of the zone {reason}"));
    if text.len() > MAX_REQUEST {
        return Err(bad("is too long"));
    }
    let der = BASE64_STANDARD.decode(text).map_err(|_| bad("is not base64"))?;
    let request = CertificateSigningRequestParams::from_der(&der.into())?;
    if request.public_key.algorithm() != &PKCS_ECDSA_P256_SHA256 {
        return Err(bad("is not for an ECDSA key on P-256"));
    }
    Ok(request)
}

/// The public key that the request `text` is for. Only this counts: a signature is another each time, so a zone that starts
/// again sends other bytes for the same key.
///
/// # Errors
/// As [`read_request`].
pub fn requested_key(text: &str) -> Result<Vec<u8>, CaError> {
    Ok(read_request(text)?.public_key.subject_public_key_info())
}

/// Signs the certificate by which `zone` may sign workloads of `mesh`. Of the request only the key counts.
///
/// # Errors
/// [`CaError`] when the root or the request is unusable.
pub fn certify(
    request: &str,
    root: &KeyPairPem,
    zone: &str,
    mesh: &str,
    now: DateTime<Utc>,
) -> Result<String, CaError> {
    let request = read_request(request)?;
    let issuer = Issuer::from_ca_cert_pem(&root.certificate, ca::signing_key(&root.key)?)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationalUnitName, mesh);
    params.distinguished_name.push(DnType::CommonName, zone);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // While a mesh moves from one root to another both have the same name.
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![GeneralSubtree::DnsName(domain(zone, mesh))],
        excluded_subtrees: Vec::new(),
    });
    params.not_before = x509_time(now - ca::CLOCK_SKEW);
    params.not_after = x509_time(now + LIFETIME);
    Ok(params.signed_by(&request.public_key, &issuer)?.pem())
}

/// From when to when a certificate is valid; `None` when it is none.
pub fn validity(pem: &str) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let (_, certificate) = x509_parser::certificate::X509Certificate::from_der(&pem.contents).ok()?;
    let validity = certificate.validity();
    let time = |time: x509_parser::time::ASN1Time| DateTime::from_timestamp(time.timestamp(), 0);
    Some((time(validity.not_before)?, time(validity.not_after)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::keys::{KeyForm, PrivateKey};

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_800_000_000, 0).unwrap()
    }

    fn key() -> PrivateKey {
        PrivateKey::generate(KeyForm::P256).unwrap()
    }

    #[test]
    fn a_zone_gets_a_certificate_for_its_names_and_its_key_alone() {
        let root = ca::create_root("demo", &key(), Duration::days(365), now()).unwrap();
        let asked = request(key().pem()).unwrap();
        let pem = certify(&asked, &root, "zone-1", "demo", now()).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).unwrap();
        let certificate = pem.parse_x509().unwrap();
        let basic = certificate.basic_constraints().unwrap().unwrap().value;
        assert_eq!((basic.ca, basic.path_len_constraint), (true, Some(0)));
        let names = certificate.name_constraints().unwrap().unwrap();
        assert!(names.critical);
        let permitted = format!("{:?}", names.value.permitted_subtrees);
        assert!(permitted.contains("zone-1.demo.zone.mesh.local"), "{permitted}");
        assert_eq!(certificate.public_key().raw, requested_key(&asked).unwrap());
    }

    #[test]
    fn requests_for_one_key_are_told_by_it() {
        let (one, other) = (key(), key());
        let asked = |key: &PrivateKey| requested_key(&request(key.pem()).unwrap()).unwrap();
        assert_eq!(asked(&one), asked(&one));
        assert_ne!(asked(&one), asked(&other));
    }

    #[test]
    fn a_request_without_its_key_is_refused() {
        let mut der = BASE64_STANDARD.decode(request(key().pem()).unwrap()).unwrap();
        let last = der.len() - 1;
        der[last] ^= 1;
        let long = "A".repeat(MAX_REQUEST + 4);
        for wrong in ["", "AAAA", "not base64", &long, &BASE64_STANDARD.encode(der)] {
            assert!(read_request(wrong).is_err(), "{wrong}");
        }
        let rsa = PrivateKey::generate(KeyForm::Rsa2048).unwrap();
        assert!(read_request(&request(rsa.pem()).unwrap()).is_err());
    }

    #[test]
    fn no_domain_of_a_zone_holds_that_of_another() {
        let zones = ["b", "a.b", "a_b", "a_db", "a", "b.a"];
        for a in zones {
            for b in zones.into_iter().filter(|b| *b != a) {
                let (a, b) = (domain(a, "m"), domain(b, "m"));
                assert!(a != b && !a.ends_with(&format!(".{b}")), "{a} in {b}");
            }
        }
    }
}
