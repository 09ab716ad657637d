//! The resources that items of policies may point at.

use std::{
    collections::BTreeMap,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use imbl::{HashMap, OrdMap};
use serde::Deserialize;

use super::{producer::guest_of, reach::most_telling};
use crate::{
    model::{Referent, Resource, ResourceKey, decode, kinds, kri::Kri, labels, names},
    policy::{TargetKind, TargetRef, mesh_http_route::MeshHttpRoute},
};

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServicePort {
    /// Its name, often empty.
    #[serde(default)]
    pub name: String,
    /// Its number.
    pub port: u32,
}

impl ServicePort {
    /// What identifies the port in references: its name, or its number when it has none.
    pub fn section(&self) -> String {
        if self.name.is_empty() { self.port.to_string() } else { self.name.clone() }
    }

    fn is(&self, section: &str) -> bool {
        self.name == section || (self.name.is_empty() && section.parse() == Ok(self.port))
    }
}

/// A resource that can be pointed at.
#[derive(Clone, Debug)]
pub struct TargetResource {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Its identifier, without section.
    pub kri: Kri,
    /// Its ports; `None` for kinds without any.
    pub ports: Option<Vec<ServicePort>>,
    /// The spec, when it is an HTTP route.
    pub route: Option<Arc<MeshHttpRoute>>,
}

/// The mesh, its services and its routes, parsed once. Cloning is cheap, and a change costs what changes.
///
/// Of resources with the same identifier the last by key is the one that is meant.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    by_key: OrdMap<ResourceKey, Arc<TargetResource>>,
    by_kri: HashMap<Kri, Vec<Arc<TargetResource>>>,
    /// By the hash of each [`Handle`]; no key comes before all others.
    by_handle: OrdMap<(u64, Option<ResourceKey>), Arc<TargetResource>>,
    hasher: RandomState,
}

/// What an item of a policy has of the resources it points at, and by which they are found.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Handle<'a> {
    /// All of a mesh.
    Mesh,
    /// Kind and name in the identifier.
    Name(&'static str, &'a str),
    /// Kind, name and value of a label.
    Label(&'static str, &'a str, &'a str),
    /// A name under which a policy may know an HTTP route.
    Alias(&'a str),
}

#[derive(Deserialize)]
struct ServicePorts {
    #[serde(default, deserialize_with = "decode::list")]
    ports: Vec<ServicePort>,
}

impl Destinations {
    /// Of all `resources`, those that can be pointed at.
    pub fn new<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Self {
        let mut all = Self::default();
        for resource in resources {
            all.insert(resource);
        }
        all
    }

    /// Takes in `resource`, in place of what has its key, and says whether that changed anything. What
    /// cannot be pointed at is passed over.
    pub fn insert(&mut self, resource: &Arc<Resource>) -> bool {
        if self.by_key.get(&resource.key).is_some_and(|known| Arc::ptr_eq(&known.resource, resource)) {
            return false;
        }
        let removed = self.remove(&resource.key);
        let Some(destination) = TargetResource::of(resource).map(Arc::new) else { return removed };
        let same = self.by_kri.entry(destination.kri.clone()).or_default();
        let position = same.partition_point(|other| other.resource.key < resource.key);
        same.insert(position, Arc::clone(&destination));
        for hash in self.hashes(&destination) {
            self.by_handle.insert((hash, Some(resource.key.clone())), Arc::clone(&destination));
        }
        self.by_key.insert(resource.key.clone(), destination);
        true
    }

    /// Takes out the resource with this key, and says whether it was here.
    pub fn remove(&mut self, key: &ResourceKey) -> bool {
        let Some(destination) = self.by_key.remove(key) else { return false };
        if let Some(same) = self.by_kri.get_mut(&destination.kri) {
            same.retain(|other| other.resource.key != *key);
            if same.is_empty() {
                self.by_kri.remove(&destination.kri);
            }
        }
        for hash in self.hashes(&destination) {
            self.by_handle.remove(&(hash, Some(key.clone())));
        }
        true
    }

    /// Whether these are the destinations among `resources`: then nothing has to be parsed or computed again.
    #[cfg(test)]
    pub fn are_of<'a>(&self, resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> bool {
        let mut met = 0;
        for resource in resources.into_iter().filter(|r| r.kind().referent.is_some()) {
            let known = self.by_key.get(&resource.key);
            if known.is_none_or(|known| !Arc::ptr_eq(&known.resource, resource)) {
                return false;
            }
            met += 1;
        }
        met == self.by_key.len()
    }

    /// Whether these are the same as `other`, of which they are a copy, without any change since.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.by_key.ptr_eq(&other.by_key)
    }

    /// All of them, in order of their keys.
    pub fn all(&self) -> impl Iterator<Item = &TargetResource> {
        self.by_key.values().map(|destination| &**destination)
    }

    /// The mesh of this name.
    pub(super) fn mesh(&self, name: &str) -> Option<&TargetResource> {
        self.by_key.get(&ResourceKey::global(&kinds::mesh::KIND, name)).map(|mesh| &**mesh)
    }

    /// The one with this identifier, whose section is not looked at.
    pub fn get(&self, kri: &Kri) -> Option<&TargetResource> {
        self.by_kri.get(&kri.clone().with_section(""))?.last().map(|last| &**last)
    }

    /// What an item of `policy` points at, each with the section that is meant (empty for all of it).
    pub fn resolve(&self, policy: &Resource, target: &TargetRef) -> Vec<(&TargetResource, String)> {
        let found: Vec<&TargetResource> = match Handle::of(target) {
            None => Vec::new(),
            Some(Handle::Mesh) => self.mesh(policy.mesh()).into_iter().collect(),
            Some(Handle::Label(kind, ..)) => self.labelled(kind, &wanted_labels(target)),
            Some(handle) => self.at(&handle).collect(),
        };
        let meant = found.into_iter().filter(|d| self.is_meant(d));
        meant.filter_map(|d| points_at(policy, target, d).map(|section| (d, section))).collect()
    }

    /// The HTTP route that `policy` means by `name`.
    pub fn route(&self, policy: &Resource, name: &str) -> Option<&TargetResource> {
        let hashed = names::hashed(policy.mesh(), name, None, None);
        let routes = [name, &hashed].into_iter().flat_map(|alias| self.at(&Handle::Alias(alias)));
        // One that came from another zone may have any name, and nobody but its zone means it.
        let foreign = |route: &TargetResource| {
            guest_of(&route.resource).is_some_and(|zone| policy.label(labels::ZONE) != Some(zone))
        };
        let meant = routes.filter(|route| is_referenced(policy, name, &route.resource) && !foreign(route));
        meant.min_by(|a, b| a.resource.key.cmp(&b.resource.key))
    }

    /// Those of a kind that have all these labels, in order of their keys. The label that fewest have is
    /// where they are looked for.
    fn labelled(&self, kind: &'static str, wanted: &BTreeMap<&str, &str>) -> Vec<&TargetResource> {
        /// Beyond this it does not matter which label has more.
        const MANY: usize = 64;
        let handles = wanted.iter().map(|(key, value)| Handle::Label(kind, key, value));
        let rarest = handles.min_by_key(|handle| self.at(handle).take(MANY).count());
        rarest.into_iter().flat_map(|handle| self.at(&handle).collect::<Vec<_>>()).collect()
    }

    /// Those found by a handle, in order of their keys, and perhaps a few others.
    fn at<'s>(&'s self, handle: &Handle<'_>) -> impl Iterator<Item = &'s TargetResource> + use<'s> {
        let hash = self.hasher.hash_one(handle);
        let filed = self.by_handle.range((hash, None)..);
        filed.take_while(move |((filed, _), _)| *filed == hash).map(|(_, destination)| &**destination)
    }

    fn hashes(&self, destination: &TargetResource) -> Vec<u64> {
        let hash = |handle: Handle<'_>| self.hasher.hash_one(handle);
        let mut hashes: Vec<u64> = destination.handles().map(hash).collect();
        if destination.route.is_some() {
            let resource = &destination.resource;
            let hashed = names::hashed(resource.mesh(), resource.name(), None, None);
            hashes.extend([resource.name(), resource.display_name(), &hashed].map(Handle::Alias).map(hash));
        }
        hashes
    }

    /// Whether no other resource takes its identifier.
    fn is_meant(&self, destination: &TargetResource) -> bool {
        self.get(&destination.kri).is_some_and(|last| std::ptr::eq(last, destination))
    }
}

impl TargetResource {
    fn of(resource: &Arc<Resource>) -> Option<Self> {
        let (ports, route) = match resource.kind().referent? {
            Referent::Whole => (None, None),
            Referent::Ports => (
                Some(decode::spec::<ServicePorts>(&resource.spec).map(|p| p.ports).unwrap_or_default()),
                None,
            ),
            Referent::Requests => (None, resource.spec().ok().map(Arc::new)),
        };
        Some(Self { resource: Arc::clone(resource), kri: Kri::of(resource)?, ports, route })
    }

    /// By which items of policies find it.
    pub(super) fn handles(&self) -> impl Iterator<Item = Handle<'_>> {
        let kind = self.resource.kind().name;
        let labels = self.resource.labels.iter().map(move |(key, value)| Handle::Label(kind, key, value));
        std::iter::once(Handle::Name(kind, &self.kri.name)).chain(labels)
    }
}

impl<'a> Handle<'a> {
    /// The handle by which an item finds what it points at; `None` when it cannot point at a resource.
    pub(super) fn of(target: &'a TargetRef) -> Option<Self> {
        if !target.kind.is_resource() {
            return None;
        }
        if target.kind == TargetKind::Mesh {
            return Some(Self::Mesh);
        }
        let kind = target.kind.name();
        let wanted = most_telling(wanted_labels(target).into_iter());
        Some(wanted.map_or(Self::Name(kind, target.name()), |(key, value)| Self::Label(kind, key, value)))
    }
}

/// At which section of `destination` (empty: all of it) an item of `policy` points, `None` when it does not
/// point at it. What another zone says is said of its own, however that is called.
pub(super) fn points_at(
    policy: &Resource,
    target: &TargetRef,
    destination: &TargetResource,
) -> Option<String> {
    let resource = &destination.resource;
    if !target.kind.is_resource() || target.kind.name() != resource.kind().name {
        return None;
    }
    if target.kind == TargetKind::Mesh {
        return (resource.name() == policy.mesh()).then(String::new);
    }
    if guest_of(policy).is_some_and(|zone| zone != destination.kri.zone) {
        return None;
    }
    let wanted = wanted_labels(target);
    let legacy = legacy_service(target);
    let is_meant = if legacy.as_ref().is_some_and(|l| l.name.is_empty() || l.namespace.is_empty()) {
        false
    } else if wanted.is_empty() {
        is_named(policy, target, destination)
    } else {
        let has = |(key, value): (&&str, &&str)| resource.labels.get(key).is_some_and(|v| v == *value);
        wanted.iter().all(has)
    };
    is_meant.then(|| section_of(target, destination, legacy.and_then(|l| l.port))).flatten()
}

/// A name means the resource of the same owner and namespace. A policy of global has no zone of its own, so it
/// means none of a zone by name: it does by labels.
fn is_named(policy: &Resource, target: &TargetRef, destination: &TargetResource) -> bool {
    let kri = &destination.kri;
    if kri.name != target.name() || kri.mesh != policy.mesh() {
        return false;
    }
    let namespace = target.namespace().or_else(|| policy.label(labels::NAMESPACE)).unwrap_or_default();
    kri.zone == policy.label(labels::ZONE).unwrap_or_default() && kri.namespace == namespace
}

/// The section that is meant: by name, or by the `port` in a service tag.
fn section_of(target: &TargetRef, destination: &TargetResource, port: Option<u32>) -> Option<String> {
    let section = target.section();
    let Some(ports) = destination.ports.as_ref().filter(|_| !section.is_empty() || port.is_some()) else {
        return Some(String::new());
    };
    let meant = |p: &&ServicePort| port.map_or_else(|| p.is(section), |number| p.port == number);
    ports.iter().find(meant).map(ServicePort::section)
}

/// The labels by which an item finds what it points at; none when it does so by name.
fn wanted_labels(target: &TargetRef) -> BTreeMap<&str, &str> {
    match (legacy_service(target), target.labels()) {
        (Some(tag), _) => {
            BTreeMap::from([(labels::DISPLAY_NAME, tag.name), (labels::NAMESPACE, tag.namespace)])
        }
        (None, Some(labels)) => labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
        (None, None) => BTreeMap::new(),
    }
}

/// A service tag of Kubernetes, which older policies name: `<name>_<namespace>_svc[_<port>]`.
struct LegacyService<'a> {
    name: &'a str,
    namespace: &'a str,
    port: Option<u32>,
}

fn legacy_service(target: &TargetRef) -> Option<LegacyService<'_>> {
    if target.kind != TargetKind::MeshService || !target.section().is_empty() {
        return None;
    }
    match target.name().split('_').collect::<Vec<_>>()[..] {
        [name, namespace, _] => Some(LegacyService { name, namespace, port: None }),
        [name, namespace, _, port] => Some(LegacyService { name, namespace, port: Some(port.parse().ok()?) }),
        _ => None,
    }
}

/// Whether `policy` means `resource` by `name`. Policy and resource may have travelled apart, so that one
/// of the names is hashed.
pub(super) fn is_referenced(policy: &Resource, name: &str, resource: &Resource) -> bool {
    let core = resource.name();
    let hashed = |name| names::hashed(policy.mesh(), name, None, None);
    policy.mesh() == resource.mesh()
        && (name == core || name == resource.display_name() || hashed(name) == core || hashed(core) == name)
}
