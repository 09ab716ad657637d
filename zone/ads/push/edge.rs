//! The proxies at the edge of the zone.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use chrono::{DateTime, Utc};

use super::meshes::Configured;
use crate::{
    ads::node::{ProxyId, ProxyKind},
    compile::{Departures, EdgeOwn, Exposure, HEARD, Signed, SigningRequest},
    generator::{AdminIdentity, ProxyMetadata, ResourceSet, ZoneEgressProxy, ZoneIngressProxy},
    mesh::{
        Authority, Identity, MeshChange, MeshContext, Surroundings, WorkloadCertificate, ZoneEgress,
        ZoneIngress, identity,
    },
};

/// Zone ingresses and egresses that are connected, what the ingresses let in and what the egresses let out.
#[derive(Debug, Default)]
pub(super) struct ZoneEdge {
    exposure: Exposure,
    departures: Departures,
    proxies: BTreeMap<ProxyId, EdgeProxy>,
    /// Who is to be looked at.
    outdated: BTreeSet<ProxyId>,
    /// Who lacks something that has to be signed.
    lacking: BTreeSet<ProxyId>,
    /// What proxies that left had, as far as that was something else than they should have had.
    left_with: BTreeMap<ProxyId, ResourceSet>,
}

#[derive(Debug)]
struct EdgeProxy {
    metadata: ProxyMetadata,
    admin: Option<Arc<AdminIdentity>>,
    /// The address an admin identity was asked for, whether or not there is one.
    asked: Option<IpAddr>,
    /// What an egress shows in each mesh.
    certificates: BTreeMap<Arc<str>, Arc<WorkloadCertificate>>,
    /// Why nobody signed for it in these meshes; it is not asked for again before somebody says so.
    refused: BTreeMap<Arc<str>, String>,
    /// Since when somebody else is to sign in these meshes than who signed what it shows.
    succeeded: BTreeMap<Arc<str>, DateTime<Utc>>,
    signing: bool,
    /// What is its own, with what it was made from; what is signed anew takes it away.
    own: Option<(EdgeOwn, EdgeResource)>,
    told: Option<ResourceSet>,
    /// What it has if it was told nothing since it came (again).
    had: Option<ResourceSet>,
    /// Whether it was left something that it should not have any more, because it would refuse what it should.
    keeps: bool,
}

/// What a proxy at the edge is made from.
#[derive(Clone, Debug)]
enum EdgeResource {
    Ingress(Arc<ZoneIngress>),
    Egress(Arc<ZoneEgress>),
}

impl EdgeResource {
    fn of(id: &ProxyId, around: &Surroundings) -> Option<Self> {
        match id.kind {
            ProxyKind::Ingress => around.ingresses.get(&id.name).cloned().map(Self::Ingress),
            ProxyKind::Egress => around.egresses.get(&id.name).cloned().map(Self::Egress),
            ProxyKind::Dataplane => None,
        }
    }

    fn listen(&self) -> Option<IpAddr> {
        match self {
            Self::Ingress(ingress) => ingress.listen,
            Self::Egress(egress) => egress.listen,
        }
    }

    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ingress(a), Self::Ingress(b)) => Arc::ptr_eq(a, b),
            (Self::Egress(a), Self::Egress(b)) => Arc::ptr_eq(a, b),
            (Self::Ingress(_), Self::Egress(_)) | (Self::Egress(_), Self::Ingress(_)) => false,
        }
    }
}

impl ZoneEdge {
    /// Whether somebody is here who needs every mesh.
    pub(super) fn is_used(&self) -> bool {
        !self.proxies.is_empty()
    }

    /// Whether there is nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.outdated.is_empty()
    }

    /// Follows a mesh; see [`Exposure::follow`] and [`Departures::follow`]. Nothing is done for nobody.
    pub(super) fn follow(&mut self, mesh: &MeshContext, change: Option<&MeshChange>) {
        if !self.is_used() {
            return;
        }
        if self.exposure.follow(mesh, change) {
            self.look_again_at_all(ProxyKind::Ingress);
        }
        if self.departures.follow(mesh, change) {
            self.look_again_at_all(ProxyKind::Egress);
        }
    }

    /// A mesh is gone.
    pub(super) fn forget(&mut self, mesh: &str) {
        if self.exposure.forget(mesh) {
            self.look_again_at_all(ProxyKind::Ingress);
        }
        if self.departures.forget(mesh) {
            self.look_again_at_all(ProxyKind::Egress);
        }
    }

    fn look_again_at_all(&mut self, kind: ProxyKind) {
        self.outdated.extend(self.proxies.keys().filter(|id| id.kind == kind).cloned());
    }

    /// When the next certificate is to be replaced.
    pub(super) fn next_renewal(&self) -> Option<DateTime<Utc>> {
        self.proxies.values().filter_map(|connected| connected.next_renewal(&self.departures)).min()
    }

    /// Looks again at those whose certificates are to be replaced.
    pub(super) fn renew(&mut self, now: DateTime<Utc>) {
        let departures = &self.departures;
        let due = |connected: &EdgeProxy| connected.next_renewal(departures).is_some_and(|at| at <= now);
        let due = self.proxies.iter().filter(|(_, connected)| due(connected)).map(|(id, _)| id.clone());
        self.outdated.extend(due);
    }

    /// The resource of an ingress or egress is another.
    pub(super) fn look_again_at(&mut self, name: &str) {
        self.outdated.extend(self.proxies.keys().filter(|id| *id.name == *name).cloned());
    }

    /// A proxy came, or came again: it may have been away, so it is told everything.
    pub(super) fn arrive(&mut self, id: &ProxyId, metadata: ProxyMetadata) {
        let before = self.proxies.remove(id).and_then(|before| before.told.or(before.had));
        let connected = EdgeProxy {
            metadata,
            admin: None,
            asked: None,
            certificates: BTreeMap::new(),
            refused: BTreeMap::new(),
            succeeded: BTreeMap::new(),
            signing: false,
            own: None,
            told: None,
            had: before.or_else(|| self.left_with.remove(id)),
            keeps: false,
        };
        self.proxies.insert(id.clone(), connected);
        self.outdated.insert(id.clone());
    }

    /// What this proxy has that was made by a process before this one, or beside it.
    pub(super) fn remember(&mut self, id: ProxyId, had: ResourceSet) {
        if !self.proxies.contains_key(&id) {
            self.left_with.entry(id).or_insert(had);
        }
    }

    /// A proxy left.
    pub(super) fn leave(&mut self, id: &ProxyId) {
        let left = self.proxies.remove(id).filter(|left| left.keeps);
        let had = left.and_then(|left| left.told.or(left.had));
        self.left_with.extend(had.map(|had| (id.clone(), had)));
        self.outdated.remove(id);
        self.lacking.remove(id);
        if self.proxies.is_empty() {
            // It is not followed while nobody needs it.
            self.exposure = Exposure::default();
            self.departures = Departures::default();
        }
    }

    /// What has to be signed before they can be told.
    pub(super) fn unsigned(
        &mut self,
        around: &Surroundings,
        now: DateTime<Utc>,
    ) -> Vec<(ProxyId, SigningRequest)> {
        let mut requests = Vec::new();
        for id in std::mem::take(&mut self.lacking) {
            let Some(connected) = self.proxies.get_mut(&id).filter(|connected| !connected.signing) else {
                continue;
            };
            let workload = connected.lacks_certificate(&id, &self.departures, now);
            let admin = connected.lacks(&id, around);
            if workload.is_none() && admin.is_none() {
                self.outdated.insert(id);
                continue;
            }
            connected.signing = true;
            let name = Arc::clone(&id.name);
            requests.push((id, SigningRequest { name, workload, admin }));
        }
        requests
    }

    /// Takes in what was asked for.
    pub(super) fn signed(&mut self, id: &ProxyId, request: &SigningRequest, signed: Signed) {
        let Some(connected) = self.proxies.get_mut(id) else { return };
        if request.admin.is_some() {
            (connected.admin, connected.asked) = (signed.admin.and_then(Result::ok), request.admin);
        }
        if let (Some((_, identity)), Some(signed)) = (&request.workload, signed.workload) {
            let mesh: Arc<str> = identity.mesh.as_str().into();
            match signed {
                Ok(certificate) => {
                    connected.certificates.insert(mesh, certificate);
                }
                Err(reason) => {
                    connected.refused.insert(mesh, reason);
                }
            }
        }
        connected.own = None;
        connected.signing = false;
        self.outdated.insert(id.clone());
    }

    /// Tries again what could not be signed.
    pub(super) fn retry(&mut self, id: &ProxyId) {
        if let Some(connected) = self.proxies.get_mut(id) {
            connected.refused.clear();
            if connected.admin.is_none() {
                connected.asked = None;
            }
            self.outdated.insert(id.clone());
        }
    }

    /// What they are to have from now on.
    pub(super) fn configured(
        &mut self,
        around: &Surroundings,
        revision: u64,
        now: DateTime<Utc>,
    ) -> Vec<Configured> {
        let mut all = Vec::new();
        for id in std::mem::take(&mut self.outdated) {
            let Some(connected) = self.proxies.get_mut(&id) else { continue };
            let Some(origin) = EdgeResource::of(&id, around) else {
                let reason = format!("{} does not exist (yet)", id.key());
                all.push(Configured {
                    id,
                    revision,
                    set: None,
                    certificate: None,
                    lacks: Some(reason.as_str().into()),
                    problems: [reason].into(),
                    of_envoy: Arc::default(),
                    kept: None,
                    failed: true,
                });
                continue;
            };
            connected.follow_signers(&self.departures, now);
            if connected.lacks(&id, around).is_some()
                || connected.lacks_certificate(&id, &self.departures, now).is_some()
            {
                // What it shows comes first.
                self.lacking.insert(id);
                continue;
            }
            let current = |(own, of): &(EdgeOwn, EdgeResource)| {
                origin.is(of)
                    && match of {
                        EdgeResource::Ingress(_) => self.exposure.is_current(own),
                        EdgeResource::Egress(_) => self.departures.is_current(own),
                    }
            };
            if !connected.own.as_ref().is_some_and(current) {
                let own = connected.own_of(&origin, &self.exposure, &self.departures, &around.zone);
                connected.own = Some((own, origin));
            }
            let Some((own, origin)) = &connected.own else { continue };
            let before = connected.told.as_ref().or(connected.had.as_ref());
            let (set, kept) = match origin {
                EdgeResource::Ingress(_) => self.exposure.configure(own, before),
                EdgeResource::Egress(_) => self.departures.configure(own, before),
            };
            connected.keeps = !kept.is_empty();
            let differs = connected.told.as_ref().is_none_or(|told| !set.is_same(told));
            (connected.told, connected.had) = (Some(set.clone()), None);
            all.push(Configured {
                id,
                revision,
                set: differs.then_some(set),
                certificate: None,
                problems: own.problems.iter().map(ToString::to_string).collect(),
                of_envoy: own.problems.iter().filter(|problem| problem.is_of_envoy()).cloned().collect(),
                lacks: own
                    .problems
                    .iter()
                    .find(|problem| problem.is_lack())
                    .map(|lack| lack.to_string().into()),
                kept: Some(kept.into()),
                failed: false,
            });
        }
        all
    }
}

impl EdgeProxy {
    /// The address for which it has to show something and has nothing.
    fn lacks(&self, id: &ProxyId, around: &Surroundings) -> Option<IpAddr> {
        let address = EdgeResource::of(id, around)?.listen()?;
        let endpoint = self.metadata.admin.as_ref()?;
        (endpoint.needs_listener(address) && self.asked != Some(address)).then_some(address)
    }

    /// Who has to sign for it next, and whom.
    fn lacks_certificate(
        &self,
        id: &ProxyId,
        departures: &Departures,
        now: DateTime<Utc>,
    ) -> Option<(Arc<Authority>, Identity)> {
        let is_egress = id.kind == ProxyKind::Egress;
        let waits = |mesh: &str| {
            self.refused.contains_key(mesh)
                || self.succeeded.get(mesh).is_some_and(|since| now < *since + HEARD)
        };
        is_egress.then(|| departures.unsigned(&self.certificates, waits, now)).flatten()
    }

    /// Notes where somebody else is to sign from now on.
    fn follow_signers(&mut self, departures: &Departures, now: DateTime<Utc>) {
        let succeeded = departures.succeeded(&self.certificates, now);
        self.succeeded.retain(|mesh, _| succeeded.contains(mesh));
        for mesh in succeeded {
            self.succeeded.entry(mesh).or_insert(now);
        }
    }

    /// When to look again at what it shows; what it waits for, or was refused, comes back by itself.
    fn next_renewal(&self, departures: &Departures) -> Option<DateTime<Utc>> {
        let needed = self
            .certificates
            .iter()
            .filter(|(mesh, _)| !self.signing && departures.needs(mesh) && !self.refused.contains_key(*mesh));
        let times = needed.map(|(mesh, shown)| match self.succeeded.get(mesh) {
            Some(since) => *since + HEARD,
            None => identity::renewal_time(shown),
        });
        times.min()
    }

    fn own_of(
        &self,
        origin: &EdgeResource,
        exposure: &Exposure,
        departures: &Departures,
        zone: &str,
    ) -> EdgeOwn {
        let metadata = self.metadata.clone();
        let admin = self.admin.clone().filter(|admin| Some(admin.address) == origin.listen());
        match origin {
            EdgeResource::Ingress(ingress) => {
                let proxy = ZoneIngressProxy { ingress: Arc::clone(ingress), metadata, admin };
                exposure.own(&proxy, zone)
            }
            EdgeResource::Egress(egress) => {
                let certificates = self.certificates.clone();
                let proxy = ZoneEgressProxy { egress: Arc::clone(egress), metadata, certificates, admin };
                departures.own(&proxy, &self.refused)
            }
        }
    }
}
