//! The view of one mesh, kept up to date change by change: what an update costs follows what changed.

mod elsewhere;
mod gateways;
mod identities;
mod services;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{Kind, Resource, ResourceKey, kinds},
    policy::{
        legacy::{self, LegacyChange, LegacySet},
        rules::{Destinations, PolicyChange, PolicySet},
    },
    proto::kuma::mesh::v1alpha1 as proto,
    registry,
    store::index::Index,
};
use imbl::OrdMap;
use prost::Message;
use thiserror::Error;

use super::{
    Dataplane, Destination, ExternalServices, GatewayRoute, GatewayRouteChange, GatewayRoutes, Gateways,
    Inbound, MeshContext, MeshServices, Mtls, MultiZoneServices, Problem, SharedCollector, SharedCollectors,
    Surroundings, Topology, Trusts, VirtualOutbounds, WorkloadIdentities, ZoneAddress, address_book,
    authority::Secrets, calls::OutboundInterner, endpoints::EndpointIndex, problem::Subject,
    topology::Difference, virtual_outbound::Announced,
};

/// Why there is no context.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum MeshError {
    /// The mesh is not among the resources.
    #[error("mesh {0:?} does not exist here (yet)")]
    NoMesh(String),
    /// The spec of the mesh does not decode.
    #[error("mesh {mesh:?}: {reason}")]
    BrokenMesh {
        /// Which one.
        mesh: String,
        /// What is wrong.
        reason: String,
    },
}

/// How a mesh differs from what it was.
#[derive(Debug, Default)]
pub struct MeshChange {
    /// Something changed that everything may follow from: the mesh, or who signs for it.
    pub everything: bool,
    /// Services whose endpoints differ, and how.
    pub services: BTreeMap<Destination, Difference>,
    /// There are ingresses of more, fewer or other zones.
    pub zones: bool,
    /// Other meshes came, went or were written.
    pub meshes: bool,
    /// Members of other meshes are known by other roots.
    pub roots: bool,
    /// References to services with these names may lead elsewhere.
    pub references: BTreeSet<String>,
    /// Collectors that policies refer to came, went or changed.
    pub collectors: bool,
    /// Routes of builtin gateways that came, went or changed.
    pub gateway_routes: Vec<GatewayRouteChange>,
    /// Secrets that came, went or changed.
    pub secrets: BTreeSet<Arc<str>>,
    /// Services are called at other virtual addresses, or have other names.
    pub virtual_outbounds: bool,
    /// These proxies have another resource.
    pub dataplanes: BTreeSet<Arc<str>>,
    /// Policies that came, went or changed, with their kind.
    pub policies: Vec<(&'static Kind, PolicyChange)>,
    /// The same of the older kinds.
    pub legacy: Vec<(&'static Kind, LegacyChange)>,
    /// Others are believed.
    pub trust: bool,
    /// What could not be used and was not known before.
    pub problems: Vec<Problem>,
}

/// A mesh and what is looked up to keep it up to date.
#[derive(Debug)]
pub struct MeshState {
    context: MeshContext,
    population: EndpointIndex,
    calls: OutboundInterner,
    /// Where the virtual addresses of services are kept that are known by their tags.
    addresses: ResourceKey,
    /// Those addresses, whether or not they are in use.
    tagged: Arc<Announced>,
    /// Those of them that are.
    tagged_in_use: Arc<Announced>,
}

/// What an update has come across.
#[derive(Default)]
struct MeshUpdate {
    change: MeshChange,
    /// Whose endpoints have to be looked at.
    touched: BTreeSet<Destination>,
    secrets: bool,
    /// Who gives identities may do that differently.
    identities: BTreeSet<Arc<str>>,
    /// The virtual addresses of services that are known by their tags may be others.
    tagged: bool,
    /// Zones whose ingresses of this mesh are reached elsewhere.
    readdressed: BTreeSet<String>,
}

impl MeshState {
    /// The mesh of this name as `index` has it.
    ///
    /// # Errors
    /// [`MeshError`] when there is no usable mesh; anything else that is broken becomes one of
    /// [`MeshContext::problems`] and is left out.
    pub fn new(mesh: &str, index: &Index, around: &Surroundings) -> Result<Self, MeshError> {
        // Nothing else is worth a look without it.
        mesh_spec(mesh, index.find(&kinds::mesh::KIND, "", mesh))?;
        let context = MeshContext {
            mesh: mesh.into(),
            zone: Arc::clone(&around.zone),
            spec: Arc::default(),
            dataplanes: OrdMap::new(),
            ingresses: OrdMap::new(),
            zones: Arc::default(),
            egresses: OrdMap::new(),
            zone_addresses: OrdMap::new(),
            neighbours: OrdMap::new(),
            external: ExternalServices::default(),
            mesh_services: MeshServices::default(),
            multi_zone_services: MultiZoneServices::default(),
            gateways: Gateways::default(),
            gateway_routes: GatewayRoutes::default(),
            secrets: OrdMap::new(),
            virtual_outbounds: VirtualOutbounds::default(),
            collectors: SharedCollectors::default(),
            policies: OrdMap::new(),
            legacy: OrdMap::new(),
            destinations: Destinations::default(),
            mtls: None,
            identities: WorkloadIdentities::default(),
            trusts: Trusts::default(),
            trust_domains: Arc::default(),
            topology: Topology::default(),
            agent_socket: around.agent_socket.clone(),
            problems: OrdMap::new(),
        };
        let (tagged, tagged_in_use) = (Arc::default(), Arc::default());
        let (population, addresses) = (EndpointIndex::default(), address_book::key(mesh));
        let mut state = Self {
            context,
            population,
            calls: OutboundInterner::default(),
            addresses,
            tagged,
            tagged_in_use,
        };
        let in_mesh = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped());
        let mut keys: Vec<ResourceKey> =
            in_mesh.flat_map(|kind| index.list_in_mesh(kind, mesh)).map(|r| r.key.clone()).collect();
        keys.push(ResourceKey::new(&kinds::mesh::KIND, "", mesh));
        keys.push(state.addresses.clone());
        state.update(&keys, index, around)?;
        state.context.virtual_outbounds.settle();
        Ok(state)
    }

    /// The mesh as it is.
    pub fn context(&self) -> &MeshContext {
        &self.context
    }

    /// What a proxy serves.
    pub fn served_by(&self, dataplane: &Dataplane) -> BTreeSet<Destination> {
        let mut served = BTreeSet::new();
        self.population.served_by(dataplane, &self.context.mesh_services, &mut served);
        served
    }

    /// Follows `index`, in which `keys` changed, and `around`. Keys of other meshes are passed over.
    ///
    /// # Errors
    /// [`MeshError`] when there is no usable mesh any more; the state is of no use then.
    pub fn update(
        &mut self,
        keys: &[ResourceKey],
        index: &Index,
        around: &Surroundings,
    ) -> Result<MeshChange, MeshError> {
        let mut update = MeshUpdate::default();
        let mut by_kind: BTreeMap<&'static str, (&'static Kind, Vec<&ResourceKey>)> = BTreeMap::new();
        for key in keys {
            let resource = index.get(key);
            if key.kind == &kinds::mesh::KIND {
                if key.name == self.context.mesh {
                    self.context.spec = Arc::new(mesh_spec(&key.name, resource)?);
                    update.change.everything = true;
                }
            } else if key.kind == &kinds::secret::GLOBAL_SECRET {
                update.secrets = true;
            } else if *key == self.addresses {
                let read = resource.map(|resource| Announced::of_tagged(resource, &around.naming));
                self.tagged = Arc::new(self.usable(key, read, &mut update).unwrap_or_default());
                update.tagged = true;
            } else if key.mesh != self.context.mesh {
            } else if key.kind == &kinds::dataplane::KIND {
                self.dataplane(key, resource, around, &mut update);
            } else if key.kind == &kinds::dataplane_insight::KIND {
                self.insight(key, resource, &mut update);
            } else if key.kind == &kinds::mesh_service::KIND {
                self.mesh_service(key, resource, &mut update);
            } else if key.kind == &kinds::destinations::MESH_MULTI_ZONE_SERVICE {
                self.multi_zone_service(key, resource, &mut update);
            } else if key.kind == &kinds::mesh_zone_address::KIND {
                let read = resource.map(|resource| ZoneAddress::read(resource, &around.hosts));
                self.zone_address(key, read, &mut update);
            } else if key.kind == &kinds::mesh_open_telemetry_backend::KIND {
                let collector = self.usable(key, resource.map(SharedCollector::read), &mut update);
                self.context.collectors.set(&key.name, collector);
                update.change.collectors = true;
            } else if key.kind == &kinds::identity::KIND {
                update.identities.insert(Arc::clone(&key.name));
            } else if key.kind == &kinds::mesh_trust::KIND {
                self.trust(key, resource, &mut update);
            } else if key.kind == &kinds::mesh_gateway::KIND {
                self.gateway(&key.name, resource, &mut update);
            } else if key.kind == &kinds::mesh_gateway_route::KIND {
                let route = self.usable(key, resource.map(GatewayRoute::read), &mut update).map(Arc::new);
                update.change.gateway_routes.push(self.context.gateway_routes.set(&key.name, route));
            } else if is_external(key.kind) {
                self.external(key, resource, index, &mut update);
            } else if key.kind == &kinds::secret::SECRET {
                self.secret(&key.name, resource, &mut update);
            } else if key.kind.policy.is_some_and(|traits| traits.target_ref) {
                by_kind.entry(key.kind.name).or_insert((key.kind, Vec::new())).1.push(key);
            } else if legacy::is_one(key.kind) {
                self.legacy(key, resource, &mut update);
            }
            self.target(key, resource);
        }
        for (kind, keys) in by_kind.into_values() {
            self.policies(kind, &keys, index, &mut update);
        }
        if update.change.everything || update.secrets {
            self.mtls(index, &mut update);
        }
        if update.secrets {
            let known = self.context.identities.iter().map(|one| Arc::clone(&one.resource.key.name));
            update.identities.extend(known);
        }
        for name in std::mem::take(&mut update.identities) {
            self.identity(&name, index, &mut update);
        }
        if update.secrets {
            for key in self.context.external.with_secrets() {
                self.external(&key, index.get(&key), index, &mut update);
            }
        }
        if update.change.everything || update.change.trust {
            self.believe(&mut update);
        }
        if update.change.everything || update.tagged {
            self.tagged_addresses(&mut update);
        }
        self.readdressed(&mut update);
        self.neighbours(around, &mut update);
        self.ingresses(around, &mut update);
        self.egresses(around, &mut update);
        self.own_egresses(&mut update);
        self.endpoints(&mut update);
        Ok(update.change)
    }

    fn dataplane(
        &mut self,
        key: &ResourceKey,
        resource: Option<&Arc<Resource>>,
        around: &Surroundings,
        update: &mut MeshUpdate,
    ) {
        let (after, problems) = match resource.map(|resource| Dataplane::read(resource, &around.hosts)) {
            Some(Ok(mut dataplane)) => {
                self.calls.share(&mut dataplane.outbounds);
                let nameless: Vec<Problem> = dataplane.nameless(&around.naming).collect();
                dataplane.problems.extend(nameless);
                let dataplane = self.with_gateway(dataplane);
                let problems = dataplane.problems.clone();
                (Some(Arc::new(dataplane)), problems)
            }
            Some(Err(problem)) => (None, vec![problem]),
            None => (None, Vec::new()),
        };
        self.note(key, problems, update);
        let before = match &after {
            Some(dataplane) => self.context.dataplanes.insert(Arc::clone(&key.name), Arc::clone(dataplane)),
            None => self.context.dataplanes.remove(&key.name),
        };
        let service = |dataplane: &Option<Arc<Dataplane>>| {
            dataplane.as_ref().and_then(|d| d.gateway_service().map(str::to_owned))
        };
        self.context.gateways.moved(&key.name, service(&before).as_deref(), service(&after).as_deref());
        self.population.moved(&key.name, before.as_deref(), after.as_deref());
        update.change.dataplanes.insert(Arc::clone(&key.name));
        for dataplane in [before, after].into_iter().flatten() {
            self.population.served_by(&dataplane, &self.context.mesh_services, &mut update.touched);
        }
    }

    /// Counters move all the time; only whether the proxy can speak TLS concerns others, and only while
    /// plaintext is an alternative.
    fn insight(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>, update: &mut MeshUpdate) {
        let certified = resource.is_some_and(|resource| {
            let spec = proto::DataplaneInsight::decode(&resource.spec[..]);
            spec.is_ok_and(|s| s.m_tls.is_some_and(|m| !m.issued_backend.is_empty()))
        });
        if !self.population.certify(&key.name, certified) || !self.is_permissive() {
            return;
        }
        if let Some(dataplane) = self.context.dataplanes.get(&key.name) {
            let services = dataplane.inbounds.iter().filter_map(Inbound::service);
            update.touched.extend(services.map(|name| Destination::Service(name.into())));
        }
    }

    /// Keeps what policies can point at.
    fn target(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>) {
        let of_mesh = if key.kind.is_mesh_scoped() { &key.mesh } else { &key.name };
        if *of_mesh == self.context.mesh {
            match resource {
                Some(resource) => self.context.destinations.insert(resource),
                None => self.context.destinations.remove(key),
            };
        }
    }

    fn policies(
        &mut self,
        kind: &'static Kind,
        keys: &[&ResourceKey],
        index: &Index,
        update: &mut MeshUpdate,
    ) {
        let known = self.context.policies.get(kind.name).cloned();
        let mut set = known.unwrap_or_else(|| PolicySet::new(kind));
        for key in keys {
            let change = match index.get(key) {
                Some(resource) => set.insert(resource),
                None => set.remove(key),
            };
            let problem = set.broken.get(*key).map(|error| Problem {
                subject: Subject::Resource((*key).clone()),
                reason: format!("the policy is not applied: {error}"),
            });
            self.note(key, problem.into_iter().collect(), update);
            if !change.is_empty() {
                update.change.policies.push((kind, change));
            }
        }
        self.context.policies.insert(kind.name, set);
    }

    fn legacy(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>, update: &mut MeshUpdate) {
        let set = self.context.legacy.entry(key.kind.name).or_insert_with(|| LegacySet::new(key.kind));
        let (change, error) = set.set(&key.name, resource);
        let problem = error.map(|error| Problem {
            subject: Subject::Resource(key.clone()),
            reason: format!("the policy is not applied: {error}"),
        });
        self.note(key, problem.into_iter().collect(), update);
        if change.versions().next().is_some() {
            update.change.legacy.push((key.kind, change));
        }
    }

    fn mtls(&mut self, index: &Index, update: &mut MeshUpdate) {
        let (zone, mesh) = (&*Arc::clone(&self.context.zone), &*Arc::clone(&self.context.mesh));
        let mut problems = Vec::new();
        let secrets = Secrets { zone, mesh, index };
        let mtls = Mtls::of(&self.context.spec, secrets, self.context.mtls.as_ref(), &mut problems);
        let same = match (&mtls, &self.context.mtls) {
            (Some(new), Some(old)) => new.is_like(old),
            (None, None) => true,
            _ => false,
        };
        update.change.everything |= !same;
        self.context.mtls = mtls;
        self.note(&ResourceKey::new(&kinds::mesh::KIND, "", mesh), problems, update);
    }

    /// Computes who serves what was touched.
    fn endpoints(&mut self, update: &mut MeshUpdate) {
        if update.change.everything {
            update.touched.extend(self.context.topology.destinations().cloned());
            update.touched.extend(self.population.services().map(Destination::Service));
            let abroad: Vec<Destination> = self.abroad().collect();
            update.touched.extend(abroad);
            update.touched.extend(self.context.external.iter().map(|service| service.destination.clone()));
            for service in self.context.mesh_services.iter() {
                update.touched.extend(service.spec.ports.iter().map(|port| service.callee(port)));
            }
        }
        self.trace(update);
        self.population.extend_to_composed(&self.context, &mut update.touched);
        for destination in std::mem::take(&mut update.touched) {
            let service = self.population.service(&destination, &self.context);
            if let Some(difference) = self.context.topology.set(&destination, service) {
                let known = update.change.services.entry(destination).or_insert(difference);
                *known = difference.max(*known);
            }
        }
    }

    /// Finds out by whose word the services exist that were touched: who has names of theirs may follow from that.
    fn trace(&mut self, update: &mut MeshUpdate) {
        let service = |destination: &Destination| match destination {
            Destination::Service(service) => Some(Arc::clone(service)),
            _ => None,
        };
        let services: Vec<Arc<str>> = update.touched.iter().filter_map(service).collect();
        for service in &services {
            let (provenance, moved) = self.population.trace(service, &self.context);
            update.touched.extend(moved.into_iter().map(Destination::Service));
            let virtuals = &mut self.context.virtual_outbounds;
            update.change.virtual_outbounds |= virtuals.exists_by(service, provenance);
        }
        let subject = Subject::Part("names of services".to_owned());
        let told = self.population.displaced().into_iter();
        let problems: Vec<Problem> =
            told.map(|reason| Problem { subject: subject.clone(), reason }).collect();
        let known = self.context.problems.get(&subject).map_or(&[][..], |known| &known[..]);
        if known != problems {
            self.note_about(subject, problems, update);
        }
    }

    fn is_permissive(&self) -> bool {
        self.context.mtls.as_ref().is_some_and(|mtls| mtls.permissive)
    }

    /// What was read; a problem is noted, and forgotten when there is none any more.
    fn usable<T>(
        &mut self,
        key: &ResourceKey,
        read: Option<Result<T, Problem>>,
        update: &mut MeshUpdate,
    ) -> Option<T> {
        let (usable, problem) = match read {
            Some(Ok(usable)) => (Some(usable), None),
            Some(Err(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        self.note(key, problem.into_iter().collect(), update);
        usable
    }

    fn note(&mut self, key: &ResourceKey, problems: Vec<Problem>, update: &mut MeshUpdate) {
        self.note_about(Subject::Resource(key.clone()), problems, update);
    }

    fn note_about(&mut self, subject: Subject, problems: Vec<Problem>, update: &mut MeshUpdate) {
        let known = self.context.problems.get(&subject).cloned().unwrap_or_default();
        let before: BTreeSet<&Problem> = known.iter().collect();
        update.change.problems.extend(problems.iter().filter(|p| !before.contains(p)).cloned());
        if problems.is_empty() {
            self.context.problems.remove(&subject);
        } else {
            self.context.problems.insert(subject, problems.into());
        }
    }
}

fn is_external(kind: &Kind) -> bool {
    [&kinds::legacy::EXTERNAL_SERVICE, &kinds::mesh_external_service::KIND].contains(&kind)
}

fn mesh_spec(mesh: &str, resource: Option<&Arc<Resource>>) -> Result<proto::Mesh, MeshError> {
    let resource = resource.ok_or_else(|| MeshError::NoMesh(mesh.to_owned()))?;
    proto::Mesh::decode(&resource.spec[..])
        .map_err(|e| MeshError::BrokenMesh { mesh: mesh.to_owned(), reason: e.to_string() })
}
