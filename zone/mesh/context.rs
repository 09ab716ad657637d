//! The immutable view of one mesh from which configuration is generated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    model::{Kind, Resource, labels},
    policy::{
        legacy::{LegacySet, traffic_route},
        rules::{Destinations, PolicySet},
    },
    proto::kuma::mesh::v1alpha1 as proto,
};
use imbl::OrdMap;
use thiserror::Error;

use super::{
    AgentIdentity, AgentSocket, Authority, CrossMeshDoor, Dataplane, ExternalServices, GatewayRoutes,
    Gateways, Identity, MeshServices, Mtls, MultiZoneServices, Neighbour, SharedCollectors, Topology,
    TrustBundle, Trusts, VirtualOutbounds, WorkloadCertificate, WorkloadIdentities, ZoneAddress, ZoneEgress,
    ZoneIngress, authority, belief,
    problem::{Problem, Subject},
    tag_name,
};

/// One mesh, at one moment, seen from one zone. Cloning shares.
#[derive(Clone, Debug)]
pub struct MeshContext {
    /// Its name.
    pub mesh: Arc<str>,
    /// The local zone.
    pub zone: Arc<str>,
    /// Decoded spec of the mesh.
    pub spec: Arc<proto::Mesh>,
    /// Proxies of the local zone, by name.
    pub dataplanes: OrdMap<Arc<str>, Arc<Dataplane>>,
    /// Ingresses of every zone, by name.
    pub ingresses: OrdMap<Arc<str>, Arc<ZoneIngress>>,
    /// The zones they are of.
    pub zones: Arc<BTreeSet<String>>,
    /// Egresses of every zone, by name.
    pub egresses: OrdMap<Arc<str>, Arc<ZoneEgress>>,
    /// Where the ingresses of this mesh in other zones are reached, by name.
    pub zone_addresses: OrdMap<Arc<str>, Arc<ZoneAddress>>,
    /// All meshes of the zone, by name.
    pub neighbours: OrdMap<Arc<str>, Arc<Neighbour>>,
    /// Services outside the mesh.
    pub external: ExternalServices,
    /// Services that are resources.
    pub mesh_services: MeshServices,
    /// Services made of those.
    pub multi_zone_services: MultiZoneServices,
    /// Builtin gateways.
    pub gateways: Gateways,
    /// Their routes, of the older generation.
    pub gateway_routes: GatewayRoutes,
    /// Secrets of the mesh.
    pub secrets: OrdMap<Arc<str>, Arc<Resource>>,
    /// Addresses at which services are called where traffic is redirected.
    pub virtual_outbounds: VirtualOutbounds,
    /// Collectors that policies refer to.
    pub collectors: SharedCollectors,
    /// Every policy of the mesh, parsed, by kind name.
    pub policies: OrdMap<&'static str, PolicySet>,
    /// Every policy of the older kinds, by kind name.
    pub legacy: OrdMap<&'static str, LegacySet>,
    /// What policies can point at.
    pub destinations: Destinations,
    /// Present when the mesh has mutual TLS.
    pub mtls: Option<Mtls>,
    /// Who gives identities of their own to proxies.
    pub identities: WorkloadIdentities,
    /// Who is believed about whom, besides the authority of the mesh.
    pub trusts: Trusts,
    /// The trust domains that follow from both, with who vouches for their members.
    pub trust_domains: Arc<BTreeMap<String, TrustBundle>>,
    /// Who serves what.
    pub topology: Topology,
    /// Where agents who hand out identities listen, unless a proxy says otherwise.
    pub agent_socket: AgentSocket,
    /// What could not be used.
    pub problems: OrdMap<Subject, Arc<[Problem]>>,
}

/// Why a proxy cannot get a certificate.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The secrets of the backend have not arrived or do not parse.
    #[error(
        "mesh {mesh}: the CA of mTLS backend {backend:?} is not usable here; \
         see that its secrets have been synced and hold a PEM certificate and key"
    )]
    NoAuthority {
        /// Which mesh.
        mesh: Arc<str>,
        /// Its enabled backend.
        backend: String,
    },
    /// Who gives it its identity cannot sign.
    #[error("the proxy has its identity from {by}, of which no certificate can be made here: {reason}")]
    NoSigner {
        /// Which `MeshIdentity`.
        by: Arc<str>,
        /// Why not.
        reason: String,
    },
    /// It has no name.
    #[error("the proxy has its identity from {by}, which makes no name of its labels: {reason}")]
    NoName {
        /// Which `MeshIdentity`.
        by: Arc<str>,
        /// Why not.
        reason: String,
    },
}

impl MeshContext {
    /// Policies of a kind; `None` when there are none.
    pub fn policies(&self, kind: &Kind) -> Option<&PolicySet> {
        self.policies.get(kind.name)
    }

    /// Policies of one of the older kinds; `None` when there are none.
    pub fn legacy(&self, kind: &Kind) -> Option<&LegacySet> {
        self.legacy.get(kind.name).filter(|set| !set.is_empty())
    }

    /// Whether calls are routed, and shaped, by the older kinds, wherever the newer ones say nothing of routes.
    pub fn routes_by_older(&self) -> bool {
        self.legacy(&traffic_route::KIND).is_some()
    }

    /// Who has to sign what for `dataplane`, which shows `current`; `None` when that is good, when the mesh has no
    /// mutual TLS, or when an agent gives it [its identity](Self::agent_identity).
    ///
    /// # Errors
    /// [`IdentityError::NoAuthority`]; the caller keeps serving what it has.
    pub fn lacks_certificate(
        &self,
        dataplane: &Dataplane,
        current: Option<&WorkloadCertificate>,
        now: DateTime<Utc>,
    ) -> Result<Option<(Arc<Authority>, Identity)>, IdentityError> {
        let Some((authority, identity)) = self.identified(dataplane)? else { return Ok(None) };
        let good = current.is_some_and(|current| !authority.must_replace(current, &identity, now));
        Ok((!good).then_some((authority, identity)))
    }

    /// Who signs what for `dataplane`; `None` when nobody has to.
    fn identified(&self, dataplane: &Dataplane) -> Result<Option<(Arc<Authority>, Identity)>, IdentityError> {
        let mesh = || self.mesh.to_string();
        if let Some(given) = self.identities.of(dataplane).filter(|identity| identity.ready) {
            let by = || Arc::clone(&given.kri);
            let name = given.name(&dataplane.resource);
            match name.map_err(|reason| IdentityError::NoName { by: by(), reason }) {
                Ok(_) if given.spec.agent_timeout().is_some() => return Ok(None),
                Ok(name) => {
                    let authority = given.authority.clone();
                    let authority =
                        authority.map_err(|reason| IdentityError::NoSigner { by: by(), reason })?;
                    let tags = dataplane.all_tags();
                    return Ok(Some((authority, Identity { mesh: mesh(), tags, given: Some(name) })));
                }
                Err(error) if self.mtls.is_none() => return Err(error),
                // It goes on as a member of the mesh; [`Self::unnamed`] says so.
                Err(_) => {}
            }
        }
        let Some(mtls) = &self.mtls else { return Ok(None) };
        let identity = Identity { mesh: mesh(), tags: dataplane.all_tags(), given: None };
        Ok(Some((self.signer(mtls)?, identity)))
    }

    /// What `dataplane` takes from an agent of SPIRE; `None` where it shows something else, or nothing.
    pub fn agent_identity(&self, dataplane: &Dataplane) -> Option<AgentIdentity> {
        let given = self.identities.of(dataplane).filter(|identity| identity.ready)?;
        let connect_timeout = given.spec.agent_timeout()?;
        let given = given.name(&dataplane.resource).ok()?;
        Some(AgentIdentity { given, connect_timeout })
    }

    /// Whether `dataplane` shows a certificate to others.
    pub fn wants_certificate(&self, dataplane: &Dataplane) -> bool {
        self.mtls.is_some() || self.identities.of(dataplane).is_some_and(|identity| identity.ready)
    }

    /// Who `dataplane` proves to be: one of these names is in its certificate, whichever it has got so far of those it
    /// is to have.
    pub fn names_of(&self, dataplane: &Dataplane) -> BTreeSet<String> {
        let mut names = match &self.mtls {
            Some(_) => dataplane.identities(&self.mesh),
            None => BTreeSet::new(),
        };
        let given = self.identities.of(dataplane).filter(|identity| identity.ready);
        let given = given.and_then(|identity| identity.name(&dataplane.resource).ok());
        names.extend(given.map(|given| given.id));
        names
    }

    /// Why `dataplane` does not have the identity that it is to be given.
    pub fn unnamed(&self, dataplane: &Dataplane) -> Option<String> {
        let given = self.identities.of(dataplane).filter(|identity| identity.ready)?;
        let reason = given.name(&dataplane.resource).err()?;
        Some(IdentityError::NoName { by: Arc::clone(&given.kri), reason }.to_string())
    }

    /// What the certificate of `dataplane` does not say of its tags, because it would be taken for something else.
    pub fn unsaid(&self, dataplane: &Dataplane) -> Option<String> {
        self.mtls.as_ref()?;
        let all = dataplane.tag_sets().flatten();
        let mut forged = all.filter_map(|(tag, value)| Some((tag, value, tag_name::forged(tag, value)?)));
        let (tag, value, (said, by_it)) = forged.next()?;
        Some(format!("its certificate does not say {tag}={value}, which would be taken for {said}={by_it}"))
    }

    /// Whether everybody still believes `certificate`, whoever is to sign the next one.
    pub fn believes(&self, certificate: &WorkloadCertificate, now: DateTime<Utc>) -> bool {
        let Some(root) = certificate.root().filter(|_| now < certificate.expires) else { return false };
        let bundle = self.trust_domains.get(certificate.identity.trust_domain());
        bundle.is_some_and(|bundle| bundle.certificates.contains(root))
    }

    /// Trust domains and who is believed about their members: that of the mesh itself, and those of `MeshTrust`s.
    pub(super) fn believed(&self) -> BTreeMap<String, TrustBundle> {
        let identities = || self.identities.iter().map(|one| (&*one.resource, &one.spec));
        belief::believed(&self.mesh, &self.zone, self.mtls.as_ref(), &self.trusts, identities)
    }

    /// The same of all meshes, for gateways that let in the proxies of every mesh; `None` where each is known by its
    /// authority and nothing else.
    pub fn believed_of_all(&self) -> Option<BTreeMap<String, TrustBundle>> {
        let mut others = self.others();
        if self.mtls.is_some() && !self.has_trust_domains() && !others.any(|(_, other)| other.has_domains()) {
            return None;
        }
        let mut all = vec![(&*self.mesh, &*self.trust_domains)];
        all.extend(self.others().map(|(name, other)| (&**name, &other.domains)));
        Some(belief::together(&all))
    }

    /// Whether members of several trust domains call each other.
    pub fn has_trust_domains(&self) -> bool {
        !self.trusts.is_empty()
    }

    /// Whether calls inside the mesh are encrypted, at least some. Other zones are reached in no other way.
    pub fn is_encrypted(&self) -> bool {
        self.mtls.is_some() || !self.identities.is_empty()
    }

    /// The same for the egresses of this zone, which are one and the same to their clients.
    ///
    /// # Errors
    /// As [`MeshContext::lacks_certificate`].
    pub fn lacks_egress_certificate(
        &self,
        current: Option<&WorkloadCertificate>,
        now: DateTime<Utc>,
    ) -> Result<Option<(Arc<Authority>, Identity)>, IdentityError> {
        let tags = [(labels::TAG_SERVICE, super::EGRESS_SERVICE), (labels::ZONE, &self.zone)];
        let tags = tags.map(|(key, value)| (key.to_owned(), [value.to_owned()].into())).into();
        let Some(mtls) = &self.mtls else { return Ok(None) };
        let identity = Identity { mesh: self.mesh.to_string(), tags, given: None };
        let authority = self.signer(mtls)?;
        let good = current.is_some_and(|current| !authority.must_replace(current, &identity, now));
        Ok((!good).then_some((authority, identity)))
    }

    fn signer(&self, mtls: &Mtls) -> Result<Arc<Authority>, IdentityError> {
        let missing =
            || IdentityError::NoAuthority { mesh: Arc::clone(&self.mesh), backend: mtls.backend.clone() };
        mtls.authority.clone().ok_or_else(missing)
    }

    /// The other meshes whose gateways its proxies may call.
    pub fn others(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<Neighbour>)> {
        self.neighbours.iter().filter(|(name, _)| **name != self.mesh)
    }

    /// By what its own gateways let in the proxies of other meshes.
    pub fn doors(&self) -> &[CrossMeshDoor] {
        self.neighbours.get(&self.mesh).map_or(&[], |own| &own.doors)
    }

    /// The text of a secret.
    ///
    /// # Errors
    /// Why there is none, in words.
    pub fn secret(&self, name: &str) -> Result<String, String> {
        let secret = self.secrets.get(name).ok_or_else(|| format!("the secret {name:?} is not here"))?;
        authority::text(secret)
    }

    /// Whether endpoints of other zones are tried only after those of this one.
    pub fn locality_aware(&self) -> bool {
        self.spec.routing.as_ref().is_some_and(|r| r.locality_aware_load_balancing)
    }

    /// Whether traffic to other zones and to what is outside the mesh leaves through the egresses of its zone.
    pub fn leaves_through_egress(&self) -> bool {
        self.spec.routing.as_ref().is_some_and(|r| r.zone_egress)
    }

    /// Whether nobody may call services outside the mesh that are resources.
    pub fn forbids_external_services(&self) -> bool {
        self.spec.routing.as_ref().is_some_and(|r| r.default_forbid_mesh_external_service_access)
    }

    /// Whether services exist as resources only, and no longer as tags for other zones.
    pub fn services_are_exclusive(&self) -> bool {
        use proto::mesh::mesh_services::Mode;
        self.spec.mesh_services.as_ref().is_some_and(|s| s.mode() == Mode::Exclusive)
    }
}
