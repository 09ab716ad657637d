//! How TLS is spoken to what can be called: whom a client shows itself as, whom it believes, and what it asks for.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    issuing,
    model::{kri::Kri, spiffe},
    proto::envoy::extensions::transport_sockets::tls::v3::{SubjectAltNameMatcher, UpstreamTlsContext},
};

use super::{Backend, ResourceBackend};
use crate::{
    generator::{Giver, envoy::tls, names, sni},
    mesh::{Abroad, Destination, MeshContext, Mtls, egress_identity, topology::Service},
};

impl Backend {
    /// TLS towards it in this zone.
    pub(super) fn tls(&self, mesh: &MeshContext, given: Option<&Giver>) -> UpstreamTlsContext {
        self.tls_in([&*mesh.zone], mesh, given)
    }

    /// Whether TLS towards it differs by zone.
    fn differs_by_zone(&self, mesh: &MeshContext, given: Option<&Giver>) -> bool {
        let abroad = |abroad: &Arc<Abroad>| {
            mesh.neighbours
                .get(&abroad.mesh)
                .and_then(|other| other.mtls.as_ref())
                .is_some_and(Mtls::is_by_zone)
        };
        // Among several domains nobody proves a zone.
        let told_by_names = mesh.mtls.as_ref().is_some_and(Mtls::is_by_zone);
        let told_abroad =
            matches!(&self.destination, Destination::Abroad(destination) if abroad(destination));
        ((told_by_names || told_abroad) && !self.is_in_several_domains(mesh, given))
            || self.resource.as_ref().is_some_and(|resource| !resource.sni_elsewhere.is_empty())
    }

    /// TLS towards it in other zones, as far as it differs by zone.
    pub(super) fn tls_elsewhere(
        &self,
        mesh: &MeshContext,
        service: &Service,
        given: Option<&Giver>,
    ) -> BTreeMap<String, UpstreamTlsContext> {
        if !self.differs_by_zone(mesh, given) {
            return BTreeMap::new();
        }
        let zones = service.other_zones();
        let elsewhere = self.resource.as_ref().map(|resource| &resource.sni_elsewhere);
        let tls = |zone: &&str| {
            // An egress chooses among all zones in which the service is.
            let any = !service.beyond.is_empty();
            let mut tls = if any {
                self.tls_in(zones.iter().copied(), mesh, given)
            } else {
                self.tls_in([*zone], mesh, given)
            };
            if let Some(sni) = elsewhere.and_then(|elsewhere| elsewhere.get(*zone)) {
                tls.sni.clone_from(sni);
            }
            tls
        };
        zones.iter().map(|zone| ((*zone).to_owned(), tls(zone))).collect()
    }

    /// Whether who answers may be in another trust domain than that of the mesh, for who was `given` its identity.
    fn is_in_several_domains(&self, mesh: &MeshContext, given: Option<&Giver>) -> bool {
        let of_mesh = spiffe::prefix(&mesh.mesh);
        let elsewhere = self.resource.as_ref().is_some_and(|resource| {
            resource.identities.iter().any(|identity| !identity.starts_with(&of_mesh))
        });
        let told_by_names = mesh.mtls.as_ref().is_some_and(Mtls::is_by_zone);
        if let Destination::Abroad(abroad) = &self.destination {
            return mesh.neighbours.get(&abroad.mesh).is_some_and(|other| other.has_domains());
        }
        // What an agent says of whom to believe is always told by domain.
        matches!(given, Some(Giver::Agent(_)))
            || (elsewhere && mesh.has_trust_domains())
            || (given.is_some() && (elsewhere || !told_by_names))
    }

    /// Where a zone signs with a key of its own, its workloads prove by a DNS name that they are there: any zone
    /// could sign the URI names. It may be in any of `zones`.
    fn tls_in<'z>(
        &self,
        zones: impl IntoIterator<Item = &'z str> + Clone,
        mesh: &MeshContext,
        given: Option<&Giver>,
    ) -> UpstreamTlsContext {
        // Who is in another mesh is believed on the word of that.
        let (of, mtls) = match &self.destination {
            Destination::Abroad(abroad) => {
                (&abroad.mesh, mesh.neighbours.get(&abroad.mesh).and_then(|other| other.mtls.as_ref()))
            }
            _ => (&mesh.mesh, mesh.mtls.as_ref()),
        };
        let trust_domain = spiffe::prefix(of);
        let several = self.is_in_several_domains(mesh, given);
        let mut secrets = tls::SecretNames::of(&mesh.mesh, given, several);
        if of != &mesh.mesh {
            secrets = secrets.believing(names::ca_secret(of));
        }
        let name = |identity: &str, zone: &str| {
            // Among several domains Envoy looks at nothing but URI names.
            let proves_zone = !several && mtls.is_some_and(|mtls| mtls.proves(zone));
            match identity.strip_prefix(&trust_domain) {
                Some(service) if proves_zone => tls::dns(tls::exact(issuing::name(service, zone, of))),
                _ => tls::uri(tls::exact(identity.to_owned())),
            }
        };
        let names = |identity: &str| {
            let mut names: Vec<SubjectAltNameMatcher> = Vec::new();
            for zone in zones.clone() {
                let name = name(identity, zone);
                if !names.contains(&name) {
                    names.push(name);
                }
            }
            names
        };
        let (known, sni) = match &self.resource {
            Some(resource) => (resource.identities.clone(), self.server_name(resource, mesh, given)),
            None => (self.identities_by_tags(mesh), sni::of_tags(&self.name, of, &self.tags())),
        };
        let is_told = self.resource.is_some() || of != &mesh.mesh;
        let only_proven = several && is_told && mtls.is_some_and(|mtls| mtls.issuers_only);
        let believed = known.iter().filter(|identity| !(only_proven && identity.starts_with(&trust_domain)));
        let mut names: Vec<_> = believed.flat_map(|identity| names(identity)).collect();
        if names.is_empty() {
            // No names would mean any name. This one nobody has.
            names.push(tls::uri(tls::exact(trust_domain)));
        }
        tls::upstream(secrets, names, sni)
    }

    /// Who may answer for a service that is known by its tags.
    fn identities_by_tags(&self, mesh: &MeshContext) -> BTreeSet<String> {
        let other = |abroad: &Abroad| mesh.neighbours.get(&abroad.mesh);
        match &self.destination {
            _ if self.behind_egress => [egress_identity(&mesh.mesh)].into(),
            Destination::Abroad(abroad) => {
                let known = other(abroad).map(|other| other.identities(&abroad.mesh, &abroad.service));
                known.unwrap_or_default()
            }
            _ => [format!("{}{}", spiffe::prefix(&mesh.mesh), self.name)].into(),
        }
    }

    /// The server name it is asked for. Who was given an identity asks by the identifier, where nobody who knows only
    /// hashes is between them.
    fn server_name(&self, resource: &ResourceBackend, mesh: &MeshContext, given: Option<&Giver>) -> String {
        let is_beside = match self.destination.itself() {
            Destination::Port(name, _) => {
                mesh.mesh_services.get(name).is_some_and(|service| service.remote_zone.is_none())
            }
            destination @ Destination::MultiZone(..) => {
                mesh.topology.service(destination).other_zones().is_empty()
            }
            _ => false,
        };
        let by_identifier = given.filter(|_| is_beside).and_then(|_| sni::of_kri(&resource.kri));
        by_identifier.unwrap_or_else(|| resource.sni.clone())
    }
}

/// The server name by which a port is asked for, and those for zones whose ingresses know another one. An ingress of
/// this mesh alone knows identifiers, one of all meshes hashes; those who serve it in this zone know both.
pub(super) fn server_names(
    service: &Service,
    kri: &Kri,
    hashed: String,
) -> (String, BTreeMap<String, String>) {
    let by_identifier = service.zones_by_identifier();
    let name = sni::of_kri(kri).filter(|_| !by_identifier.is_empty());
    let Some(name) = name else { return (hashed, BTreeMap::new()) };
    let others = service.other_zones().into_iter().filter(|zone| !by_identifier.contains(zone));
    let elsewhere = others.map(|zone| (zone.to_owned(), hashed.clone())).collect();
    (name, elsewhere)
}
