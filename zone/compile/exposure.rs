//! What the edges of this zone pass on without reading it, the same for all of them: ingresses what others call here,
//! every service of every mesh with mutual TLS; egresses what is called in other zones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{model::labels, policy::legacy::traffic_route};

use super::{
    admission,
    behind::{Behind, Side},
    door::{self, SniRoute, StandingDoor},
    kept,
    sidecar::admin_port_taken,
};
use crate::{
    generator::{
        Backend, Draft, Encoded, ResourceCollection, ResourceSet, SharedResources, ZoneIngressProxy, admin,
        ingress, names, sni,
    },
    mesh::{Destination, MeshChange, MeshContext, Problem, problem::Subject, topology::Endpoint},
    policy,
};

/// Mesh by mesh, what is let in, or out.
#[derive(Debug, Default)]
pub(crate) struct Exposure {
    meshes: BTreeMap<Arc<str>, BTreeMap<Destination, Vec<StandingDoor>>>,
    /// Destinations with more tags than a service, to which routes of the mesh send traffic.
    targets: BTreeMap<Arc<str>, BTreeSet<Destination>>,
    /// Clusters and endpoints.
    behind: Behind,
    /// Counts the doors that came.
    doors_made: u64,
    /// Counts how often something else was let in, be it by other names.
    generation: u64,
}

/// What belongs to one ingress or egress alone.
#[derive(Debug)]
pub(crate) struct EdgeOwn {
    /// What was let in or out when it was made.
    pub(super) generation: u64,
    pub(super) resources: ResourceCollection,
    pub(super) listens: bool,
    /// What was left out of it.
    pub(crate) problems: BTreeSet<Problem>,
}

impl EdgeOwn {
    /// What it comes to beside what is `shared`, in place of what the proxy had `before`; and what it keeps of that.
    pub(super) fn beside(
        &self,
        shared: &SharedResources,
        before: Option<&ResourceSet>,
    ) -> (ResourceSet, Vec<Arc<Encoded>>) {
        let refused = self.problems.iter().filter_map(Problem::refused);
        let kept = before.map(|before| kept::with_kept(&self.resources, shared, refused, before));
        let (own, kept) = kept.map_or((None, Vec::new()), |(own, kept)| (Some(own), kept));
        (ResourceSet::new(own.as_ref().unwrap_or(&self.resources), shared, before), kept)
    }
}

/// Whether requests may be sent to other parts of services than before.
pub(super) fn reroutes(change: &MeshChange) -> bool {
    !change.gateway_routes.is_empty()
        || change.policies.iter().any(|(kind, _)| policy::is_route(kind))
        || change.legacy.iter().any(|(kind, _)| *kind == &traffic_route::KIND)
}

impl Exposure {
    /// Nothing yet, in this direction.
    pub(super) fn of(side: Side) -> Self {
        Self { behind: Behind::of(side), ..Self::default() }
    }

    fn side(&self) -> Side {
        self.behind.side()
    }

    /// Clusters and endpoints.
    pub(super) fn shared(&self) -> &ResourceCollection {
        self.behind.shared()
    }

    /// What is not shared because Envoys would refuse it. Who had an earlier one keeps that.
    pub(super) fn refused(&self) -> impl Iterator<Item = &Problem> {
        self.behind.refused()
    }

    /// Counts how often something else was let through.
    pub(super) fn generation(&self) -> u64 {
        // Both only grow, so no two states have one sum.
        self.generation + self.behind.generation()
    }

    /// Follows a mesh, of which this changed; everything when that is not known. Says whether anything is let
    /// in differently, be it only by other endpoints.
    pub(crate) fn follow(&mut self, mesh: &MeshContext, change: Option<&MeshChange>) -> bool {
        match change.filter(|change| !change.everything && !reroutes(change)) {
            Some(change) => self.expose_each(mesh, change.services.keys()),
            None => self.expose_all(mesh),
        }
    }

    /// A mesh is gone; says whether anything of it was let in.
    pub(crate) fn forget(&mut self, mesh: &str) -> bool {
        self.targets.remove(mesh);
        let Some((mesh, doors)) = self.meshes.remove_entry(mesh) else { return false };
        self.generation += 1;
        for (destination, door) in
            doors.iter().flat_map(|(of, doors)| doors.iter().map(move |door| (of, &door.route)))
        {
            self.behind.take_out(&door.cluster, &door.claim(&mesh, destination));
        }
        !doors.is_empty()
    }

    fn expose_all(&mut self, mesh: &MeshContext) -> bool {
        let known = self.meshes.get(&mesh.mesh).into_iter().flat_map(BTreeMap::keys).cloned();
        let mut all: BTreeSet<Destination> = known.collect();
        all.extend(mesh.topology.services().map(|(name, _)| Destination::Service(Arc::clone(name))));
        all.extend(mesh.doors().iter().map(|door| Destination::Service(Arc::clone(&door.service))));
        for service in mesh.mesh_services.iter() {
            all.extend(service.spec.ports.iter().map(|port| service.callee(port)));
        }
        for service in mesh.multi_zone_services.iter() {
            all.extend(service.spec.ports.iter().map(|port| service.callee(port)));
        }
        self.targets.insert(Arc::clone(&mesh.mesh), policy::route_targets(mesh));
        self.expose_each(mesh, &all)
    }

    /// Looks at every one of these; says whether that makes a difference.
    fn expose_each<'a>(
        &mut self,
        mesh: &MeshContext,
        destinations: impl IntoIterator<Item = &'a Destination>,
    ) -> bool {
        let mut differs = false;
        for destination in destinations {
            differs |= self.expose(mesh, destination);
        }
        differs
    }

    /// Lets in who calls `destination`, and nobody else than is meant; says whether that makes a difference.
    fn expose(&mut self, mesh: &MeshContext, destination: &Destination) -> bool {
        let exposed = match destination {
            _ if !mesh.is_encrypted() => Vec::new(),
            Destination::Service(name) if self.side() == Side::Egress || !mesh.services_are_exclusive() => {
                self.tagged(mesh, name)
            }
            Destination::Port(name, port) => port_of(self.side(), mesh, name, *port).into_iter().collect(),
            Destination::MultiZone(..) => of_parts(self.side(), mesh, destination).into_iter().collect(),
            Destination::Service(_)
            | Destination::Subset(_)
            | Destination::External(_)
            | Destination::Through(_)
            | Destination::Here(_)
            | Destination::Abroad(_) => Vec::new(),
        };
        let of_mesh = self.meshes.entry(Arc::clone(&mesh.mesh)).or_default();
        let before = of_mesh.remove(destination).unwrap_or_default();
        let routes = || exposed.iter().map(|(route, _)| route);
        let mut differs = !before.iter().map(|door| &door.route).eq(routes());
        self.generation += u64::from(differs);
        for door in before.iter().map(|door| &door.route) {
            if routes().all(|route| route != door) {
                self.behind.take_out(&door.cluster, &door.claim(&mesh.mesh, destination));
            }
        }
        let mut doors = Vec::new();
        for (route, endpoints) in exposed {
            differs |= self.behind.put(&route.cluster, route.claim(&mesh.mesh, destination), &endpoints);
            // Who leads to another cluster by the same name has it for as long as he had.
            let known = before.iter().find(|door| door.route.server_name == route.server_name);
            let since = known.map_or(self.doors_made, |known| known.since);
            self.doors_made += u64::from(known.is_none());
            doors.push(StandingDoor { route, since });
        }
        if !doors.is_empty() {
            self.meshes.entry(Arc::clone(&mesh.mesh)).or_default().insert(destination.clone(), doors);
        }
        differs
    }

    /// The service, and the parts of it that routes name. A part that leaves out some of the endpoints is a
    /// cluster of its own, where others use subsets of one cluster: the proxy needs no metadata match then,
    /// and both forms route alike.
    fn tagged(&self, mesh: &MeshContext, service: &str) -> Vec<(SniRoute, Vec<Endpoint>)> {
        let mut all = on_the_way(self.side(), mesh, &Destination::Service(service.into()));
        if self.side() == Side::Ingress {
            let doors = mesh.doors().iter().filter(|door| *door.service == *service);
            let mut gateways: Vec<Endpoint> = doors.flat_map(|door| door.endpoints(&mesh.zone)).collect();
            tag_with_mesh(mesh, &mut gateways);
            all.extend(gateways);
        }
        let mut exposed = Vec::new();
        for tags in self.tag_sets(mesh, service) {
            let members: Vec<Endpoint> = all.iter().filter(|e| e.has_tags(&tags)).cloned().collect();
            if members.is_empty() {
                continue;
            }
            let base = names::ingress_cluster(&mesh.mesh, service);
            let at_will = members.len() == all.len();
            let cluster = if at_will { base } else { names::service_cluster(&base, &tags) };
            let server_name = sni::of_tags(service, &mesh.mesh, &tags);
            exposed.push((SniRoute { server_name, cluster, at_will }, members));
        }
        exposed
    }

    /// Beyond the service, the tags by which parts of it are called. As long as the older kind of route says what is
    /// called, nobody leaves for anything that no route names.
    fn tag_sets(&self, mesh: &MeshContext, service: &str) -> BTreeSet<BTreeMap<String, String>> {
        let mut tag_sets: BTreeSet<BTreeMap<String, String>> = BTreeSet::new();
        if self.side() == Side::Ingress || !mesh.routes_by_older() {
            tag_sets.insert(BTreeMap::new());
        }
        for target in self.targets.get(&mesh.mesh).into_iter().flatten() {
            let means = |name: &str| name == service || name == "*";
            match target {
                Destination::Service(name) if means(name) => {
                    tag_sets.insert(BTreeMap::new());
                }
                Destination::Subset(subset) if means(&subset.service) => {
                    let extra = subset.tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE);
                    tag_sets.insert(extra.map(|(k, v)| (k.clone(), v.clone())).collect());
                }
                _ => {}
            }
        }
        for door in mesh.doors().iter().filter(|door| *door.service == *service) {
            let extra = door.tags.iter().filter(|(key, _)| *key != labels::TAG_SERVICE);
            tag_sets.insert(extra.map(|(k, v)| (k.clone(), v.clone())).collect());
        }
        tag_sets
    }

    /// The server names by which a service and its parts are called.
    pub(super) fn server_names(&self, mesh: &MeshContext, service: &str) -> Vec<String> {
        let tag_sets = self.tag_sets(mesh, service);
        tag_sets.iter().map(|tags| sni::of_tags(service, &mesh.mesh, tags)).collect()
    }

    /// What is the own of `proxy` in `zone`: its listener, which names everything that is let in.
    pub(crate) fn own(&self, proxy: &ZoneIngressProxy, zone: &str) -> EdgeOwn {
        let mut draft = Draft::default();
        let mut problems: BTreeSet<Problem> = proxy.ingress.problems.iter().cloned().collect();
        problems.extend(self.refused().cloned());
        match ingress::listener(proxy, zone, self.doors(&mut problems).into_iter()) {
            Some(listener) => {
                draft.listeners.insert(listener.message.name.clone(), listener);
            }
            None => {
                let networking = proxy.ingress.spec.networking.clone().unwrap_or_default();
                problems.insert(Problem {
                    subject: Subject::of(&proxy.ingress.resource),
                    reason: format!("the address {:?} to listen on is not resolved", networking.address),
                });
            }
        }
        if !admin::generate(&proxy.metadata, proxy.admin.as_ref(), |_, _| false, &mut draft) {
            problems.insert(admin_port_taken(Subject::of(&proxy.ingress.resource)));
        }
        EdgeOwn {
            generation: self.generation(),
            resources: admission::admitted_whole(draft.finish(), &mut problems),
            listens: proxy.ingress.listen.is_some(),
            problems,
        }
    }

    /// Whether `own` names what is let in now.
    pub(crate) fn is_current(&self, own: &EdgeOwn) -> bool {
        own.generation == self.generation()
    }

    /// What the proxy with this of its own gets in place of what it had `before`, and what it keeps of that.
    pub(crate) fn configure(
        &self,
        own: &EdgeOwn,
        before: Option<&ResourceSet>,
    ) -> (ResourceSet, Vec<Arc<Encoded>>) {
        // Without a listener nobody gets to what is behind it.
        let shared = if own.listens { self.shared().clone() } else { ResourceCollection::default() };
        own.beside(&SharedResources::new(shared, None), before)
    }

    /// Server name and cluster of every chain: tagged services of all meshes, then those that are resources.
    /// Envoy compares server names without regard to case and refuses a second chain for one. Which has none because
    /// another comes first is one of the `problems`.
    pub(super) fn doors(&self, problems: &mut BTreeSet<Problem>) -> Vec<(&str, &str)> {
        let of = |resources: bool| {
            let meshes = self.meshes.iter();
            let all =
                meshes.flat_map(|(mesh, all)| all.iter().map(move |(called, doors)| (mesh, called, doors)));
            let meant = all.filter(move |(_, called, _)| called.is_of_resource() == resources);
            meant.flat_map(|(mesh, called, doors)| doors.iter().map(move |door| (mesh, called, door)))
        };
        door::opened(of(false).chain(of(true)), &self.behind, problems)
    }
}

/// A port of a service of this zone or, on the way out, of others.
fn port_of(side: Side, mesh: &MeshContext, name: &str, port: u32) -> Option<(SniRoute, Vec<Endpoint>)> {
    let leaves = side == Side::Egress;
    let service = mesh.mesh_services.get(name).filter(|service| service.remote_zone.is_some() == leaves)?;
    let backend = Backend::of_port(mesh, service, service.numbered(port)?);
    let endpoints = on_the_way(side, mesh, &backend.destination);
    if leaves && endpoints.is_empty() {
        return None;
    }
    let server_name = backend.resource.map(|resource| resource.sni).unwrap_or_default();
    Some((SniRoute { server_name, cluster: backend.cluster, at_will: false }, endpoints))
}

/// A port of a service of several zones: who comes from another one gets to those who serve it here, and who leaves to
/// those elsewhere.
fn of_parts(side: Side, mesh: &MeshContext, destination: &Destination) -> Option<(SniRoute, Vec<Endpoint>)> {
    let backend = Backend::of(mesh, destination)?;
    let endpoints = on_the_way(side, mesh, destination);
    if side == Side::Egress && endpoints.is_empty() {
        return None;
    }
    let server_name = backend.resource.map(|resource| resource.sni).unwrap_or_default();
    Some((SniRoute { server_name, cluster: backend.cluster, at_will: false }, endpoints))
}

/// The endpoints in this zone or, on the way out, in others, with the mesh as one more tag.
fn on_the_way(side: Side, mesh: &MeshContext, destination: &Destination) -> Vec<Endpoint> {
    let service = mesh.topology.service(destination);
    let mut endpoints: Vec<Endpoint> = match side {
        Side::Ingress => service.endpoints.iter().filter(|e| !e.remote).cloned().collect(),
        Side::Egress => service.beyond.clone(),
    };
    tag_with_mesh(mesh, &mut endpoints);
    endpoints
}

fn tag_with_mesh(mesh: &MeshContext, endpoints: &mut [Endpoint]) {
    for endpoint in endpoints {
        endpoint.tags.insert("mesh".to_owned(), mesh.mesh.to_string());
    }
}
