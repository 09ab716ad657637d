//! Every mesh with somebody connected, and what its proxies get.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    model::{
        ResourceKey,
        kinds::{config, mesh, zone_egress, zone_ingress},
    },
    store::{StoreIdentity, index::Index},
};

use super::{edge::ZoneEdge, signing::SigningAnswer};
use crate::{
    ads::{
        hosts::HostUsers,
        insight::Certificate,
        kept::KeptByProxy,
        node::{Proxy, ProxyId, ProxyKind},
    },
    compile::{Compiler, SigningRequest},
    generator::{ProxyMetadata, ResourceSet, Shown},
    mesh::{Hosts, MeshChange, MeshContext, MeshState, Problem, Surroundings, address_book},
};

/// All meshes that somebody needs, at one revision of the store.
#[derive(Debug)]
pub(super) struct Meshes {
    index: Arc<Index>,
    around: Surroundings,
    rooms: BTreeMap<Arc<str>, NeededMesh>,
    edge: ZoneEdge,
    /// What dataplanes have that was made by a process before this one, by mesh.
    kept: BTreeMap<Arc<str>, BTreeMap<Arc<str>, ResourceSet>>,
    /// Where host names stand.
    users: HostUsers,
}

/// A mesh that somebody needs.
#[derive(Debug, Default)]
struct NeededMesh {
    /// The mesh, or why there is none.
    mesh: Option<Result<CompiledMesh, String>>,
    /// Who is connected.
    proxies: BTreeMap<Arc<str>, ProxyMetadata>,
    /// Who is to be told that there is none.
    untold: BTreeSet<Arc<str>>,
}

#[derive(Debug)]
struct CompiledMesh {
    state: MeshState,
    compiler: Compiler,
}

/// What came out for one proxy.
pub(super) struct Configured {
    pub(super) id: ProxyId,
    /// Revision of the store it was made from.
    pub(super) revision: u64,
    /// What it gets; `None` to keep what it has.
    pub(super) set: Option<ResourceSet>,
    /// The certificate it shows; `None` when nothing is known to have changed about that.
    pub(super) certificate: Option<Option<Certificate>>,
    /// What was left out.
    pub(super) problems: Arc<[String]>,
    /// Those of them that are about what an Envoy gets.
    pub(super) of_envoy: Arc<[Problem]>,
    /// The first of them by which it does without something.
    pub(super) lacks: Option<Arc<str>>,
    /// What it was left that it should not have any more; `None` when that was not looked at.
    pub(super) kept: Option<KeptByProxy>,
    /// Whether nothing could be made for it.
    pub(super) failed: bool,
}

impl Default for Meshes {
    /// Nothing: what stands in its place while others work with it.
    fn default() -> Self {
        let store = StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 0 };
        Self::new(Surroundings::default(), Arc::new(Index::empty(store)))
    }
}

impl Meshes {
    /// Nobody is connected yet. `around` is what is known before anything is read.
    pub(super) fn new(mut around: Surroundings, index: Arc<Index>) -> Self {
        around.update(&edge_keys(&index), &index).iter().for_each(complain);
        let (rooms, kept) = (BTreeMap::new(), BTreeMap::new());
        let users = HostUsers::of_all(&index);
        Self { index, around, rooms, edge: ZoneEdge::default(), kept, users }
    }

    /// Lets proxies go on with what they have, where they would refuse what is made now.
    pub(super) fn remember(&mut self, kept: BTreeMap<ProxyId, ResourceSet>) {
        for (id, had) in kept {
            if id.kind != ProxyKind::Dataplane {
                self.edge.remember(id, had);
                continue;
            }
            match self.rooms.get_mut(&id.mesh).and_then(|room| room.mesh.as_mut()) {
                Some(Ok(mesh)) => mesh.compiler.remember(id.name, had),
                Some(Err(_)) | None => drop(self.kept.entry(id.mesh).or_default().insert(id.name, had)),
            }
        }
    }

    /// The revision of the store they were read at.
    pub(super) fn revision(&self) -> u64 {
        self.index.revision
    }

    /// Whether there is nothing to work on.
    pub(super) fn is_idle(&self) -> bool {
        let idle = |room: &NeededMesh| match &room.mesh {
            Some(Ok(mesh)) => mesh.compiler.is_idle() && room.untold.is_empty(),
            Some(Err(_)) => room.untold.is_empty(),
            None => false,
        };
        self.rooms.values().all(idle) && self.edge.is_idle()
    }

    /// Follows the store to `index`, and the resolver to `hosts`.
    pub(super) fn follow(&mut self, index: &Arc<Index>, hosts: Hosts) {
        let mut keys =
            if Arc::ptr_eq(index, &self.index) { Vec::new() } else { index.changed_since(&self.index) };
        for key in &keys {
            _ = self.users.follow(key, index.get(key));
        }
        let moved = self.around.hosts.differences(&hosts);
        self.around.hosts = hosts;
        // What has a name that stands for another address now is read again, and nothing else.
        let mut readers = self.users.with(&moved);
        for key in &keys {
            readers.remove(key);
        }
        keys.extend(readers);
        if !keys.is_empty() || !Arc::ptr_eq(index, &self.index) {
            self.follow_keys(index, keys);
        }
    }

    fn follow_keys(&mut self, index: &Arc<Index>, keys: Vec<ResourceKey>) {
        self.index = Arc::clone(index);
        let neighbours = self.around.neighbours.clone();
        self.around.update(&keys, index).iter().for_each(complain);
        let neighbours_differ = !neighbours.ptr_eq(&self.around.neighbours);
        for key in &keys {
            if key.kind == &mesh::KIND && self.edge.is_used() && index.get(key).is_some() {
                self.rooms.entry(Arc::clone(&key.name)).or_default();
            }
            if [&zone_ingress::KIND, &zone_egress::KIND].contains(&key.kind) {
                self.edge.look_again_at(&key.name);
            }
        }
        let ChangedKeys { anywhere, mut by_mesh } = ChangedKeys::of(keys);
        let names: Vec<Arc<str>> = self.rooms.keys().cloned().collect();
        for name in names {
            let mut keys = by_mesh.remove(&name).unwrap_or_default();
            keys.extend(anywhere.iter().cloned());
            if !keys.is_empty()
                || neighbours_differ
                || self.rooms.get(&name).is_some_and(|room| room.mesh.is_none())
            {
                self.follow_mesh(&name, &keys);
            }
        }
    }

    fn follow_mesh(&mut self, name: &Arc<str>, keys: &[ResourceKey]) {
        let Some(room) = self.rooms.get_mut(name) else { return };
        let mesh = match &mut room.mesh {
            Some(Ok(mesh)) => mesh,
            // Only the mesh itself can change that.
            Some(Err(_)) if !keys.iter().any(|key| key.kind == &mesh::KIND && key.name == *name) => return,
            Some(Err(_)) | None => {
                self.build(name);
                return;
            }
        };
        match mesh.state.update(keys, &self.index, &self.around) {
            Ok(change) => {
                change.problems.iter().for_each(|problem| left_out(name, problem));
                let context = Arc::new(mesh.state.context().clone());
                self.edge.follow(&context, Some(&change));
                mesh.compiler.follow(context, &change);
            }
            Err(error) => self.break_off(name, error.to_string()),
        }
    }

    /// Makes the mesh of this name from nothing.
    fn build(&mut self, name: &Arc<str>) {
        let state = match MeshState::new(name, &self.index, &self.around) {
            Ok(state) => state,
            Err(error) => {
                self.break_off(name, error.to_string());
                return;
            }
        };
        let Some(room) = self.rooms.get_mut(name) else { return };
        let context = Arc::new(state.context().clone());
        for problem in context.problems.values().flat_map(|problems| problems.iter()) {
            left_out(name, problem);
        }
        self.edge.follow(&context, None);
        let compiler = match room.mesh.take() {
            // Who is connected keeps what they show to others.
            Some(Ok(mut mesh)) => {
                let everything = MeshChange {
                    everything: true,
                    dataplanes: context.dataplanes.keys().chain(room.proxies.keys()).cloned().collect(),
                    ..MeshChange::default()
                };
                mesh.compiler.follow(context, &everything);
                mesh.compiler
            }
            Some(Err(_)) | None => {
                let mut compiler = Compiler::new(context);
                let kept = self.kept.remove(name).unwrap_or_default();
                kept.into_iter().for_each(|(name, had)| compiler.remember(name, had));
                room.proxies.iter().for_each(|(name, metadata)| compiler.arrive(name, metadata.clone()));
                compiler
            }
        };
        room.untold.clear();
        room.mesh = Some(Ok(CompiledMesh { state, compiler }));
    }

    /// There is no such mesh (any more); its proxies keep what they have.
    fn break_off(&mut self, name: &Arc<str>, reason: String) {
        self.edge.forget(name);
        if self.rooms.get(name).is_some_and(|room| room.proxies.is_empty()) {
            self.rooms.remove(name);
        } else if let Some(room) = self.rooms.get_mut(name) {
            room.untold = room.proxies.keys().cloned().collect();
            room.mesh = Some(Err(reason));
        }
    }

    /// A proxy came, or came again.
    pub(super) fn arrive(&mut self, proxy: &Proxy) {
        let metadata = ProxyMetadata::of_node(&proxy.metadata);
        let name = &proxy.id.name;
        match proxy.id.kind {
            ProxyKind::Dataplane => {
                let room = self.rooms.entry(Arc::clone(&proxy.id.mesh)).or_default();
                room.proxies.insert(Arc::clone(name), metadata.clone());
                match &mut room.mesh {
                    Some(Ok(mesh)) => mesh.compiler.arrive(name, metadata),
                    Some(Err(_)) => {
                        room.untold.insert(Arc::clone(name));
                    }
                    None => self.build(&proxy.id.mesh),
                }
            }
            ProxyKind::Ingress | ProxyKind::Egress => {
                let first = !self.edge.is_used();
                self.edge.arrive(&proxy.id, metadata);
                if first && self.edge.is_used() {
                    self.open_meshes();
                }
            }
        }
    }

    /// An ingress or egress needs every mesh.
    fn open_meshes(&mut self) {
        let names: Vec<Arc<str>> = self.index.list(&mesh::KIND).map(|m| Arc::clone(&m.key.name)).collect();
        for name in names {
            let room = self.rooms.entry(Arc::clone(&name)).or_default();
            match &room.mesh {
                Some(Ok(mesh)) => self.edge.follow(mesh.state.context(), None),
                Some(Err(_)) => {}
                None => self.build(&name),
            }
        }
    }

    /// A proxy left.
    pub(super) fn leave(&mut self, id: &ProxyId) {
        match id.kind {
            ProxyKind::Dataplane => {
                if let Some(room) = self.rooms.get_mut(&id.mesh) {
                    room.proxies.remove(&id.name);
                    room.untold.remove(&id.name);
                    if let Some(Ok(mesh)) = &mut room.mesh {
                        mesh.compiler.leave(&id.name);
                    }
                }
            }
            ProxyKind::Ingress | ProxyKind::Egress => self.edge.leave(id),
        }
        if !self.edge.is_used() {
            self.rooms.retain(|_, room| !room.proxies.is_empty());
        }
    }

    /// Replaces the certificates whose time has come.
    pub(super) fn renew(&mut self, now: DateTime<Utc>) {
        self.compilers().for_each(|(_, compiler)| compiler.renew(now));
        self.edge.renew(now);
    }

    /// When the next certificate is to be replaced.
    pub(super) fn next_renewal(&self) -> Option<DateTime<Utc>> {
        let meshes = self.rooms.values().filter_map(|room| room.mesh.as_ref()?.as_ref().ok());
        meshes.filter_map(|mesh| mesh.compiler.next_renewal()).chain(self.edge.next_renewal()).min()
    }

    /// Tries again what failed for a reason that may go away by itself.
    pub(super) fn retry(&mut self, id: &ProxyId) {
        if id.kind != ProxyKind::Dataplane {
            self.edge.retry(id);
            return;
        }
        if let Some(Some(Ok(mesh))) = self.rooms.get_mut(&id.mesh).map(|room| &mut room.mesh) {
            mesh.compiler.retry(&id.name);
        }
    }

    /// Works until there is nothing left or `enough` says so; on every mesh at least once.
    pub(super) fn work(&mut self, now: DateTime<Utc>, enough: impl Fn() -> bool) {
        self.compilers().for_each(|(_, compiler)| compiler.work(now, &enough));
    }

    /// What has to be signed.
    pub(super) fn unsigned(&mut self, now: DateTime<Utc>) -> Vec<(ProxyId, SigningRequest)> {
        let of_mesh = self.compilers().flat_map(|(mesh, compiler)| {
            let id = move |name: &Arc<str>| ProxyId {
                kind: ProxyKind::Dataplane,
                mesh: Arc::clone(mesh),
                name: Arc::clone(name),
            };
            compiler.unsigned().into_iter().map(move |request| (id(&request.name), request))
        });
        let mut all: Vec<_> = of_mesh.collect();
        all.extend(self.edge.unsigned(&self.around, now));
        all
    }

    /// Takes in what was signed; `failed` hears of those for whom there is nothing.
    pub(super) fn signed(&mut self, answers: Vec<SigningAnswer>, mut failed: impl FnMut(ProxyId)) {
        for SigningAnswer { id, request, signed } in answers {
            if signed.is_incomplete() {
                failed(id.clone());
            }
            if id.kind != ProxyKind::Dataplane {
                self.edge.signed(&id, &request, signed);
                continue;
            }
            if let Some(Some(Ok(mesh))) = self.rooms.get_mut(&id.mesh).map(|room| &mut room.mesh) {
                mesh.compiler.signed(&request, signed);
            }
        }
    }

    /// What proxies are to have from now on.
    pub(super) fn configured(&mut self, now: DateTime<Utc>) -> Vec<Configured> {
        let revision = self.index.revision;
        let mut all = self.edge.configured(&self.around, revision, now);
        for (mesh_name, room) in &mut self.rooms {
            let id = |name| ProxyId { kind: ProxyKind::Dataplane, mesh: Arc::clone(mesh_name), name };
            match &mut room.mesh {
                Some(Ok(mesh)) => {
                    for told in mesh.compiler.publications() {
                        let shown = mesh.compiler.shown(&told.name);
                        all.push(Configured {
                            revision,
                            set: told.set,
                            certificate: (!told.failed)
                                .then(|| shown.map(|shown| certificate(shown, mesh.state.context()))),
                            problems: told.problems,
                            of_envoy: told.of_envoy,
                            lacks: told.lacks,
                            kept: told.kept,
                            failed: told.failed,
                            id: id(told.name),
                        });
                    }
                }
                Some(Err(reason)) => {
                    let untold = std::mem::take(&mut room.untold).into_iter();
                    all.extend(untold.map(|name| Configured {
                        id: id(name),
                        revision,
                        set: None,
                        certificate: None,
                        problems: [reason.clone()].into(),
                        of_envoy: Arc::default(),
                        lacks: Some(reason.as_str().into()),
                        kept: None,
                        failed: true,
                    }));
                }
                None => {}
            }
        }
        all
    }

    /// What a dataplane shows.
    #[cfg(test)]
    pub(super) fn shown(&self, id: &ProxyId) -> Option<&Shown> {
        self.rooms.get(&id.mesh)?.mesh.as_ref()?.as_ref().ok()?.compiler.shown(&id.name)
    }

    /// A mesh as it was read.
    #[cfg(test)]
    pub(super) fn context(&self, mesh: &str) -> Option<&MeshContext> {
        Some(self.rooms.get(mesh)?.mesh.as_ref()?.as_ref().ok()?.state.context())
    }

    /// How many parts and sets are kept.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        let meshes = self.rooms.values().filter_map(|room| room.mesh.as_ref()?.as_ref().ok());
        meshes.map(|mesh| mesh.compiler.held()).sum()
    }

    fn compilers(&mut self) -> impl Iterator<Item = (&Arc<str>, &mut Compiler)> {
        self.rooms.iter_mut().filter_map(|(name, room)| match &mut room.mesh {
            Some(Ok(mesh)) => Some((name, &mut mesh.compiler)),
            Some(Err(_)) | None => None,
        })
    }
}

/// Keys that changed, by the mesh they are about.
struct ChangedKeys {
    /// Those that are about any.
    anywhere: Vec<ResourceKey>,
    by_mesh: BTreeMap<Arc<str>, Vec<ResourceKey>>,
}

impl ChangedKeys {
    fn of(keys: Vec<ResourceKey>) -> Self {
        let mut changed = Self { anywhere: Vec::new(), by_mesh: BTreeMap::new() };
        for key in keys {
            if let Some(mesh) = address_book::mesh_of(&key.name).filter(|_| key.kind == &config::KIND) {
                changed.by_mesh.entry(mesh.into()).or_default().push(key);
                continue;
            }
            let mesh = if key.kind == &mesh::KIND { &key.name } else { &key.mesh };
            if key.kind.is_mesh_scoped() || key.kind == &mesh::KIND {
                changed.by_mesh.entry(Arc::clone(mesh)).or_default().push(key);
            } else {
                changed.anywhere.push(key);
            }
        }
        changed
    }
}

fn edge_keys(index: &Index) -> Vec<ResourceKey> {
    let edges = index.list(&zone_ingress::KIND).chain(index.list(&zone_egress::KIND));
    edges.chain(index.list(&mesh::KIND)).map(|resource| resource.key.clone()).collect()
}

fn complain(problem: &Problem) {
    tracing::warn!(%problem, "an ingress or egress is not used as it is");
}

fn left_out(mesh: &str, problem: &Problem) {
    tracing::warn!(mesh, %problem, "left out of the mesh");
}

fn certificate(shown: &Shown, context: &MeshContext) -> Certificate {
    let backends = context.spec.mtls.iter().flat_map(|m| &m.backends).map(|b| b.name.clone());
    let given_by = shown.name().map(|given| given.by.to_string());
    let (life, backend) = match shown {
        Shown::Certificate(signed) => (Some((signed.issued, signed.expires)), signed.backend.clone()),
        Shown::FromAgent(identity) => (None, identity.given.by.to_string()),
    };
    Certificate { life, backend, supported: backends.chain(given_by).collect() }
}
