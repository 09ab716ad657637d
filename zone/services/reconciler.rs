//! Follows the index change by change, and says what has to be written so that services are as they should be.
//!
//! A step takes what changed and gives writes, each under the precondition that nobody else wrote meanwhile. Nothing
//! is remembered that does not follow from the index, but for addresses that were given away and not stored yet, and for
//! who brought about a service that nobody serves any more; so whoever begins anew, in the middle of anything, comes to the
//! same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Duration, Utc};
use common::{
    model::{
        Kind, Resource, ResourceKey, Spec,
        kinds::{
            dataplane, dataplane_insight,
            destinations::{
                HOSTNAME_GENERATOR, MESH_EXTERNAL_SERVICE, MESH_IDENTITY, MESH_MULTI_ZONE_SERVICE,
            },
            mesh, mesh_identity,
            mesh_multi_zone_service::MeshMultiZoneService,
            mesh_service::{self, MeshService},
            mesh_trust, secret,
            service_status::{ServiceStatus, Vip},
            workload,
        },
        kri::Kri,
        labels,
    },
    proto::kuma::mesh::v1alpha1::{self as proto, mesh::mesh_services::Mode},
    store::{Precondition, Write, index::Index},
};

use super::{
    ServiceSettings,
    foreign::ForeignServices,
    generation::{self, ServiceOutcome, ServiceTag},
    hostnames::Hostnames,
    identities,
    population::{Names, Population, ProxyStatus, ServingProxy},
    shares::{self, ServiceShares},
    status,
    vips::{KINDS, Vips},
    workloads::{self, Program},
};
use crate::deadlines::Deadlines;

/// What the state of identities follows from, besides their mesh.
const OF_IDENTITIES: [&Kind; 3] = [&MESH_IDENTITY, &mesh_trust::KIND, &secret::SECRET];

/// What is known of the services of a zone.
#[derive(Debug)]
pub(super) struct Reconciler {
    settings: ServiceSettings,
    meshes: BTreeMap<Arc<str>, PopulatedMesh>,
    hostnames: Hostnames,
    vips: Vips,
    foreign: ForeignServices,
    /// On whose account services of tags are, and workloads.
    shares: ServiceShares,
    program_shares: ServiceShares,
    /// Services to be looked at.
    dirty: BTreeSet<ResourceKey>,
    /// Service tags to be looked at, by mesh.
    tags: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Workloads to be looked at, by mesh.
    workloads: BTreeSet<(Arc<str>, Arc<str>)>,
    /// Meshes whose identities are to be looked at.
    identities: BTreeSet<Arc<str>>,
    /// When services go that nobody serves.
    going: Deadlines<ResourceKey, DateTime<Utc>>,
}

#[derive(Debug, Default)]
struct PopulatedMesh {
    population: Population,
    /// Whether services are made of tags; `None` while the mesh itself is not known.
    generates: Option<bool>,
    /// Whether it has mutual TLS.
    mtls: bool,
}

impl Reconciler {
    /// Nothing is known yet.
    pub(super) fn new(settings: ServiceSettings) -> Self {
        let vips = Vips::new(settings.ranges);
        Self {
            settings,
            meshes: BTreeMap::new(),
            hostnames: Hostnames::default(),
            vips,
            foreign: ForeignServices::default(),
            shares: ServiceShares::default(),
            program_shares: ServiceShares::default(),
            dirty: BTreeSet::new(),
            tags: BTreeSet::new(),
            workloads: BTreeSet::new(),
            identities: BTreeSet::new(),
            going: Deadlines::default(),
        }
    }

    /// What has to be written now that `index` differs in `changed`.
    pub(super) fn step(&mut self, index: &Index, changed: &[ResourceKey], now: DateTime<Utc>) -> Vec<Write> {
        self.keep_addresses(index, changed, now);
        for key in changed {
            self.follow(key, index);
        }
        for key in self.going.take(now) {
            if key.kind == &workload::KIND {
                self.workloads.insert((key.mesh, key.name));
            } else {
                self.tags.insert((key.mesh, key.name));
            }
        }
        let mut writes = BTreeMap::new();
        self.count_programs(index, now, &mut writes);
        for mesh in std::mem::take(&mut self.identities) {
            let place = identities::IdentityContext { zone: &self.settings.zone, index, now };
            let settled = identities::settle(&mesh, place).into_iter();
            writes.extend(settled.map(|write| (write.key().clone(), write)));
        }
        let made = self.generate(index, now, &mut writes);
        // What a name is taken from, or given back to, joins those that are looked at.
        while let Some(key) = self.dirty.pop_first() {
            let stored = index.get(&key);
            let wanted = made.get(&key).or_else(|| stored.map(|stored| &**stored));
            match wanted.cloned() {
                Some(wanted) => {
                    let write = self.completed(wanted, stored, index, now);
                    writes.extend(write.map(|write| (key, write)));
                }
                None => {
                    self.dirty.extend(self.hostnames.forget(&key));
                    self.vips.release(&key, now);
                }
            }
        }
        writes.into_values().collect()
    }

    /// Makes the workloads that proxies name, and counts who stands beside each.
    fn count_programs(
        &mut self,
        index: &Index,
        now: DateTime<Utc>,
        writes: &mut BTreeMap<ResourceKey, Write>,
    ) {
        while let Some((mesh, name)) = self.workloads.pop_first() {
            let Some(known) = self.meshes.get(&mesh) else { continue };
            let proxies = known.population.beside(&name);
            let program = Program { zone: &self.settings.zone, mesh: &mesh, name: &name, proxies: &proxies };
            let key = ResourceKey::new(&workload::KIND, &mesh, &name);
            let (is_there, exists) =
                index.get(&key).map_or((false, false), |stored| (true, workloads::is_generated(stored)));
            let wanted = proxies.iter().map(|(proxy, _)| shares::payers_of(&proxy.resource));
            let settled = self.program_shares.settle(&(Arc::clone(&mesh), Arc::clone(&name)), exists, wanted);
            self.workloads.extend(settled.follow);
            if is_there || settled.may {
                let write = program.settle(index, self.grace(), now);
                writes.extend(write.map(|write| (key, write)));
            }
        }
    }

    /// What has to be written so that `wanted` is stored, with everything the zone says of it.
    fn completed(
        &mut self,
        wanted: Resource,
        stored: Option<&Arc<Resource>>,
        index: &Index,
        now: DateTime<Utc>,
    ) -> Option<Write> {
        let mut complete = self.complete(wanted, index, now);
        let when = match stored {
            Some(stored) if stored.same_content(&complete) => return None,
            Some(stored) => Precondition::At(stored.revision),
            None => Precondition::Absent,
        };
        complete.modified = now;
        Some(Write::put_when(complete, when))
    }

    /// These writes did not go through; they are made again.
    pub(super) fn undone<'a>(&mut self, keys: impl Iterator<Item = &'a ResourceKey>) {
        for key in keys {
            if OF_IDENTITIES.contains(&key.kind) {
                self.identities.insert(Arc::clone(&key.mesh));
                continue;
            }
            if key.kind == &workload::KIND {
                self.workloads.insert((Arc::clone(&key.mesh), Arc::clone(&key.name)));
                continue;
            }
            self.dirty.insert(key.clone());
            if key.kind == &mesh_service::KIND {
                self.tags.insert((Arc::clone(&key.mesh), Arc::clone(&key.name)));
            }
        }
    }

    /// When there is something to do even if nothing changes.
    pub(super) fn next(&self) -> Option<DateTime<Utc>> {
        self.going.next()
    }

    /// Before any address is given away, all that somebody has are known.
    fn keep_addresses(&mut self, index: &Index, changed: &[ResourceKey], now: DateTime<Utc>) {
        for key in changed.iter().filter(|key| KINDS.contains(&key.kind)) {
            match index.get(key) {
                Some(service) => {
                    let addresses: Vec<_> = ServiceStatus::of(service).ips().collect();
                    addresses.into_iter().for_each(|address| self.vips.reserve(key, address));
                }
                None => self.vips.release(key, now),
            }
        }
    }

    fn follow(&mut self, key: &ResourceKey, index: &Index) {
        let resource = index.get(key);
        if key.kind == &mesh::KIND {
            self.identities.insert(Arc::clone(&key.name));
        } else if OF_IDENTITIES.contains(&key.kind) {
            self.identities.insert(Arc::clone(&key.mesh));
        }
        if key.kind == &mesh::KIND {
            self.mesh(&key.name, resource);
        } else if key.kind == &dataplane::KIND {
            self.proxy(key, resource);
        } else if key.kind == &dataplane_insight::KIND {
            let seen = resource.map(|insight| ProxyStatus::of(insight)).unwrap_or_default();
            let population = &mut self.in_mesh(&key.mesh).population;
            let concerned = population.seen(&key.name, seen);
            let workload = population.workload_of(&key.name);
            self.workloads.extend(workload.map(|name| (Arc::clone(&key.mesh), name)));
            self.look_at(&key.mesh, concerned);
        } else if key.kind == &HOSTNAME_GENERATOR {
            let services = KINDS.into_iter().flat_map(|kind| index.list(kind));
            let concerned = self.hostnames.generator(&key.name, resource.map(|r| &**r), services);
            for service in concerned.iter().filter_map(|key| index.get(key)) {
                self.dirty.extend(self.hostnames.service(service, &self.settings.zone));
            }
            self.dirty.extend(concerned);
        } else if key.kind == &MESH_IDENTITY {
            let of_zone = self.in_mesh(&key.mesh).population.of_zone().cloned().collect();
            self.look_at(&key.mesh, of_zone);
        } else if key.kind == &workload::KIND {
            self.workload(key, resource);
        } else if KINDS.contains(&key.kind) {
            self.service(key, resource);
        }
    }

    fn mesh(&mut self, name: &Arc<str>, resource: Option<&Arc<Resource>>) {
        let spec = resource.and_then(|resource| resource.spec::<proto::Mesh>().ok());
        let mesh = self.in_mesh(name);
        let mode = |spec: &proto::Mesh| spec.mesh_services.as_ref().map(|services| services.mode());
        mesh.generates = match &spec {
            Some(spec) => Some(mode(spec).is_some_and(|mode| mode != Mode::Disabled)),
            // What is broken says nothing; in a mesh that is gone there are no services.
            None => resource.is_none().then_some(false),
        };
        mesh.mtls = spec.and_then(|spec| spec.mtls).is_some_and(|mtls| !mtls.enabled_backend.is_empty());
        let of_zone: Names = mesh.population.of_zone().cloned().collect();
        let tags: Names = mesh.population.tagged().union(&of_zone).cloned().collect();
        self.tags.extend(tags.into_iter().map(|tag| (Arc::clone(name), tag)));
        self.look_at(name, of_zone);
    }

    fn proxy(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>) {
        let ours = resource.filter(|r| r.label(labels::ZONE).is_none_or(|zone| *zone == *self.settings.zone));
        let after = ours.and_then(ServingProxy::read);
        let population = &mut self.in_mesh(&key.mesh).population;
        let mut tags = population.tags_of(&key.name);
        let mut workloads = [population.workload_of(&key.name), None];
        let concerned = population.proxy(&key.name, after);
        workloads[1] = population.workload_of(&key.name);
        tags.extend(population.tags_of(&key.name));
        self.workloads.extend(workloads.into_iter().flatten().map(|name| (Arc::clone(&key.mesh), name)));
        self.tags.extend(tags.into_iter().map(|tag| (Arc::clone(&key.mesh), tag)));
        self.look_at(&key.mesh, concerned);
    }

    /// Somebody may have written one of this zone, or taken it away.
    fn workload(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>) {
        let is_ours = resource.is_none_or(|resource| self.is_of_zone(resource));
        let going = resource.filter(|_| is_ours).and_then(|stored| workloads::goes_at(stored, self.grace()));
        self.going.note(key, going);
        if is_ours {
            self.workloads.insert((Arc::clone(&key.mesh), Arc::clone(&key.name)));
        }
    }

    fn service(&mut self, key: &ResourceKey, resource: Option<&Arc<Resource>>) {
        // When one of another zone goes is for that zone to say.
        let ours = resource.filter(|service| self.is_of_zone(service));
        let generated = ours.filter(|_| key.kind == &mesh_service::KIND);
        let going = generated.and_then(|service| generation::goes_at(service, self.grace()));
        self.going.note(key, going);
        self.dirty.extend(match resource {
            Some(service) => self.hostnames.service(service, &self.settings.zone),
            None => self.hostnames.forget(key),
        });
        self.dirty.insert(key.clone());
        if key.kind == &MESH_MULTI_ZONE_SERVICE {
            let spec = resource.and_then(|service| service.spec::<MeshMultiZoneService>().ok());
            return self.in_mesh(&key.mesh).population.multi_zone(&key.name, spec.as_ref());
        }
        if key.kind != &mesh_service::KIND {
            return;
        }
        let foreign = resource.filter(|service| !self.is_of_zone(service));
        self.dirty.extend(self.foreign.follow(key, foreign.map(|service| &**service)));
        let selector = ours
            .and_then(|service| service.spec::<MeshService>().ok())
            .map(|spec| spec.selector.unwrap_or_default());
        let population = &mut self.in_mesh(&key.mesh).population;
        let composed = population.service(&key.name, selector, resource.map(|service| &**service));
        self.tags.insert((Arc::clone(&key.mesh), Arc::clone(&key.name)));
        let composed = composed.into_iter();
        self.dirty.extend(composed.map(|name| ResourceKey::new(&MESH_MULTI_ZONE_SERVICE, &key.mesh, &name)));
    }

    /// Makes the services that tags ask for; what is deleted goes to `writes`.
    fn generate(
        &mut self,
        index: &Index,
        now: DateTime<Utc>,
        writes: &mut BTreeMap<ResourceKey, Write>,
    ) -> BTreeMap<ResourceKey, Resource> {
        let mut made = BTreeMap::new();
        while let Some((mesh, service)) = self.tags.pop_first() {
            let Some(PopulatedMesh { generates: Some(generates), population, .. }) = self.meshes.get(&mesh)
            else {
                continue;
            };
            let key = ResourceKey::new(&mesh_service::KIND, &mesh, &service);
            let existing = index.get(&key).map(|existing| &**existing);
            let proxies = population.serving(&service);
            let mut outcome = if existing.is_some_and(|existing| !self.is_of_zone(existing)) {
                // What another zone made of the tags of its proxies is that zone's.
                ServiceOutcome::Leave
            } else if *generates {
                let zone = &self.settings.zone;
                let tag = ServiceTag { zone, mesh: &mesh, service: &service, proxies: &proxies, existing };
                tag.outcome(now, self.grace())
            } else if existing.is_some_and(generation::is_generated) {
                ServiceOutcome::Delete
            } else {
                ServiceOutcome::Leave
            };
            let is_wanted = matches!(outcome, ServiceOutcome::Keep(_));
            let wanted = proxies.iter().filter(|_| is_wanted).map(|proxy| &proxy.resource);
            let wanted = wanted.map(|resource| shares::payers_of(resource));
            let exists = existing.is_some_and(generation::is_generated);
            let tag = (Arc::clone(&mesh), Arc::clone(&service));
            let settled = self.shares.settle(&tag, exists, wanted);
            self.tags.extend(settled.follow);
            if is_wanted && !settled.may {
                tracing::warn!(service = %key, "no service is made of a tag: who has it has as many as it may");
                outcome = ServiceOutcome::Leave;
            }
            match (outcome, existing) {
                (ServiceOutcome::Leave, _) | (ServiceOutcome::Delete, None) => {}
                (ServiceOutcome::Delete, Some(existing)) => {
                    tracing::info!(service = %key, "nobody serves it any more; it goes");
                    self.dirty.remove(&key);
                    let gone = Write::delete_when(key.clone(), Precondition::At(existing.revision));
                    writes.insert(key, gone);
                }
                (ServiceOutcome::Keep(service), _) => {
                    self.dirty.extend(self.hostnames.service(&service, &self.settings.zone));
                    self.dirty.insert(key.clone());
                    made.insert(key, *service);
                }
            }
        }
        made
    }

    /// `service` with everything that the zone says of it.
    fn complete(&mut self, mut service: Resource, index: &Index, now: DateTime<Utc>) -> Resource {
        let mut status = ServiceStatus::of(&service);
        let may_have_one = self.foreign.admit(&service.key);
        if !may_have_one {
            (status.vip, status.vips) = (None, Vec::new());
        } else if status.ips().next().is_none() {
            match self.vips.of(&service, now) {
                None => {
                    metrics::counter!("vip_allocation_exhaustion_total").increment(1);
                    tracing::warn!(service = %service.key, "there is no virtual address left for it");
                }
                Some(ip) if service.kind() == &MESH_EXTERNAL_SERVICE => {
                    status.vip = Some(Vip { ip: ip.to_string() });
                }
                Some(ip) => status.vips = vec![Vip { ip: ip.to_string() }],
            }
        }
        (status.addresses, status.hostname_generators) = self.hostnames.of(&service.key);
        if let Some(mesh) = self.meshes.get(&service.key.mesh) {
            if service.kind() == &mesh_service::KIND && self.is_of_zone(&service) {
                self.serve(&mut service, &mut status, mesh, index);
            } else if service.kind() == &MESH_MULTI_ZONE_SERVICE
                && let Some(parts) = mesh.population.parts_of(service.name(), &self.settings.zone)
            {
                let resource = |name| index.find(&mesh_service::KIND, service.mesh(), name);
                let services = parts.names.into_iter().filter_map(|name| resource(name)).map(|part| &**part);
                status::of_parts(&mut status, services, parts.crowded);
            }
        }
        let encoded = status::encode(&mut status);
        if service.status.as_deref().is_none_or(|stored| differs(stored, &encoded)) {
            service.status = Some(encoded.into());
        }
        service
    }

    fn serve(&self, service: &mut Resource, status: &mut ServiceStatus, mesh: &PopulatedMesh, index: &Index) {
        let Ok(mut spec) = service.spec::<MeshService>() else { return };
        let before = spec.clone();
        let mut proxies = mesh.population.selected(&spec.selector.clone().unwrap_or_default());
        // Whoever comes later does not crowd out those who are there.
        proxies.sort_by_key(|(proxy, _)| proxy.resource.created);
        let mut spiffe_ids = BTreeSet::new();
        for (proxy, seen) in &proxies {
            if spiffe_ids.len() >= status::MOST_IDENTITIES {
                break;
            }
            let identities = index.list_in_mesh(&MESH_IDENTITY, service.mesh());
            let given = mesh_identity::spiffe_id(identities, &proxy.resource, &self.settings.zone);
            let by = given.as_ref().and_then(|(identity, _)| Kri::of(identity)).map(|kri| kri.to_string());
            if seen.connected && seen.given_by.is_some() && seen.given_by.as_deref() != by.as_deref() {
                // It still shows what somebody else gave it, by whatever name that was. One that is gone shows
                // nothing, and would never say so.
                let ids = before.identities.iter().filter(|identity| identity.r#type == status::SPIFFE_ID);
                spiffe_ids.extend(ids.map(|identity| identity.value.clone()));
            }
            spiffe_ids.extend(given.map(|(_, id)| id));
        }
        let encrypted = mesh.mtls || index.list_in_mesh(&MESH_IDENTITY, service.mesh()).next().is_some();
        status::of_zone(&mut spec, status, &proxies, spiffe_ids, encrypted);
        if spec != before {
            service.spec = spec.encode().into();
        }
    }

    fn is_of_zone(&self, service: &Resource) -> bool {
        service.label(labels::ZONE).is_none_or(|zone| *zone == *self.settings.zone)
    }

    fn grace(&self) -> Duration {
        Duration::from_std(self.settings.grace).unwrap_or(Duration::MAX)
    }

    fn in_mesh(&mut self, name: &Arc<str>) -> &mut PopulatedMesh {
        self.meshes.entry(Arc::clone(name)).or_default()
    }

    fn look_at(&mut self, mesh: &str, services: Names) {
        let keys = services.into_iter().map(|name| ResourceKey::new(&mesh_service::KIND, mesh, &name));
        self.dirty.extend(keys);
    }
}

/// Whether two texts are different JSON: members may stand in another order.
fn differs(stored: &[u8], wanted: &[u8]) -> bool {
    let read = |text: &[u8]| serde_json::from_slice::<serde_json::Value>(text).ok();
    read(stored) != read(wanted)
}
