//! Trust domains of a mesh and who vouches for their members: what `MeshTrust`s say, of this zone and of others.

use std::{collections::BTreeMap, sync::Arc};

use common::model::{
    Resource,
    kinds::{identity, mesh_trust::MeshTrust},
    labels, spiffe,
};
use imbl::OrdMap;
use sha2::{Digest, Sha256};

use super::problem::{Problem, Subject};
use crate::share::ROOTS_OF_ZONE;

/// Of a certificate.
pub(crate) type Fingerprint = [u8; 32];

/// Certificates to believe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustBundle {
    /// All of them, as PEM, and nothing else.
    pub pem: String,
    /// Each of them.
    pub certificates: Vec<[u8; 32]>,
}

impl TrustBundle {
    /// The certificates in `text`.
    ///
    /// # Errors
    /// What is wrong with it, in words. One broken certificate makes a proxy refuse all of them.
    pub fn parse(text: &str) -> Result<Self, String> {
        let blocks = pem::parse_many(text).map_err(|error| format!("it is not PEM: {error}"))?;
        let mut bundle = Self::default();
        for block in blocks.iter().filter(|block| block.tag() == "CERTIFICATE") {
            let certificate = x509_parser::parse_x509_certificate(block.contents());
            certificate.map_err(|error| format!("a certificate in it does not parse: {error}"))?;
            bundle.certificates.push(Sha256::digest(block.contents()).into());
            let unix = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
            bundle.pem.push_str(&pem::encode_config(block, unix));
        }
        if bundle.certificates.is_empty() {
            Err("there is no certificate in it".to_owned())
        } else {
            Ok(bundle)
        }
    }
}

/// What one `MeshTrust` says.
#[derive(Debug)]
pub(crate) struct StatedTrust {
    resource: Arc<Resource>,
    /// The trust domain.
    pub(super) domain: String,
    /// Who vouches for its members.
    pub(super) bundle: TrustBundle,
}

impl StatedTrust {
    /// Reads `resource`.
    ///
    /// # Errors
    /// The problem, when it cannot be used.
    pub(super) fn read(resource: &Arc<Resource>) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let spec = resource.spec::<MeshTrust>().map_err(|error| problem(error.to_string()))?;
        if let Some(why) = spiffe::problem(&format!("{}x", spiffe::prefix(&spec.trust_domain))) {
            return Err(problem(format!("spec.trustDomain: {why}")));
        }
        let texts = spec.ca_bundles.iter().filter_map(|bundle| bundle.pem.as_ref());
        let text: String = texts.flat_map(|pem| [pem.value.as_str(), "\n"]).collect();
        let bundle =
            TrustBundle::parse(&text).map_err(|reason| problem(format!("spec.caBundles: {reason}")))?;
        Ok(Self { resource: Arc::clone(resource), domain: spec.trust_domain, bundle })
    }

    /// The zone it came from, when that is not `zone`.
    fn came_from(&self, zone: &str) -> Option<&str> {
        self.resource.label(labels::ZONE).filter(|owner| *owner != zone)
    }
}

/// All that is said about trust in a mesh.
#[derive(Clone, Debug, Default)]
pub struct Trusts(OrdMap<Arc<str>, Arc<StatedTrust>>);

impl Trusts {
    /// What these `MeshTrust`s say, but for those that cannot be used.
    pub(super) fn of<'a>(resources: impl Iterator<Item = &'a Arc<Resource>>) -> Self {
        let usable = resources.filter_map(|resource| {
            let stated = StatedTrust::read(resource).ok()?;
            Some((Arc::clone(&resource.key.name), Arc::new(stated)))
        });
        Self(usable.collect())
    }

    /// Replaces what the `MeshTrust` of this name says; gives what it said.
    pub(super) fn set(
        &mut self,
        name: &Arc<str>,
        trust: Option<Arc<StatedTrust>>,
    ) -> Option<Arc<StatedTrust>> {
        match trust {
            Some(trust) => self.0.insert(Arc::clone(name), trust),
            None => self.0.remove(name),
        }
    }

    /// Whether nobody said anything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Trust domains and who vouches for their members, as far as `counts` says, seen from `zone`: of what another zone says
    /// so many bytes and no more, since every proxy here gets them.
    pub(super) fn domains(
        &self,
        zone: &str,
        counts: impl Fn(&StatedTrust) -> bool,
    ) -> BTreeMap<String, TrustBundle> {
        let mut domains: BTreeMap<String, TrustBundle> = BTreeMap::new();
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for trust in self.0.values().filter(|trust| counts(trust)) {
            if let Some(owner) = trust.came_from(zone) {
                let left = left.entry(owner).or_insert(ROOTS_OF_ZONE);
                let Some(then) = left.checked_sub(trust.bundle.pem.len()) else {
                    let name = &*trust.resource.key.name;
                    tracing::warn!(
                        zone = owner,
                        name,
                        most = ROOTS_OF_ZONE,
                        "a zone states too much trust: the rest is left out"
                    );
                    continue;
                };
                *left = then;
            }
            let known = domains.entry(trust.domain.clone()).or_default();
            known.pem.push_str(&trust.bundle.pem);
            known.certificates.extend(&trust.bundle.certificates);
        }
        domains
    }
}

/// Whether a zone may vouch for members of a trust domain: none speaks of what is called after another, but of the domain that
/// it has by a `MeshIdentity` of global, or unless one gives it another. `identities` are those of the mesh.
pub(super) fn may_vouch<'a>(
    trust: &StatedTrust,
    zone: &str,
    mut identities: impl Iterator<Item = (&'a Resource, &'a identity::MeshIdentity)>,
) -> bool {
    let Some(owner) = trust.came_from(zone) else { return true };
    let named = |identity: &Resource, spec: &identity::MeshIdentity| {
        // What global wrote names the same for everybody; of a zone there is only its word.
        identity.label(labels::ZONE).is_none()
            && spec.trust_domain(identity, owner).is_ok_and(|domain| domain == trust.domain)
    };
    let usual = identity::MeshIdentity::default().trust_domain(&trust.resource, owner);
    usual.is_ok_and(|domain| domain == trust.domain)
        || identities.any(|(identity, spec)| named(identity, spec))
}
