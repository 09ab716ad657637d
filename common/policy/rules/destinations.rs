//! The resources that items of policies may point at.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use serde::Deserialize;

use super::memo::Memo;
use crate::{
    model::{Kind, Resource, kri::Kri, labels, names, registry},
    policy::{TargetKind, TargetRef, decode, mesh_http_route::MeshHttpRoute},
};

/// A port of a service.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Port {
    /// Its name, often empty.
    #[serde(default)]
    pub name: String,
    /// Its number.
    pub port: u32,
}

impl Port {
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
pub struct Destination {
    /// The resource.
    pub resource: Arc<Resource>,
    /// Its identifier, without section.
    pub kri: Kri,
    /// Its ports; `None` for kinds without any.
    pub ports: Option<Vec<Port>>,
    /// The spec, when it is an HTTP route.
    pub route: Option<Arc<MeshHttpRoute>>,
}

/// The mesh, its services and its routes, parsed once. Also remembers the rules computed for them.
#[derive(Clone, Debug, Default)]
pub struct Destinations {
    by_kind: BTreeMap<&'static str, Vec<Destination>>,
    by_kri: HashMap<Kri, (&'static str, usize)>,
    by_name: HashMap<String, Vec<(&'static str, usize)>>,
    pub(super) rules: Arc<Memo>,
}

#[derive(Deserialize)]
struct Ports {
    #[serde(default, deserialize_with = "decode::list")]
    ports: Vec<Port>,
}

impl Destinations {
    /// Of all `resources`, those that can be pointed at.
    pub fn new<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Self {
        let mut all = Self::default();
        for resource in resources {
            if let Some(destination) = Destination::of(resource) {
                let kind = resource.kind().name;
                let list = all.by_kind.entry(kind).or_default();
                all.by_kri.insert(destination.kri.clone(), (kind, list.len()));
                all.by_name.entry(destination.kri.name.clone()).or_default().push((kind, list.len()));
                list.push(destination);
            }
        }
        all
    }

    /// Whether these are the destinations among `resources`: then nothing has to be parsed or computed again.
    pub fn are_of<'a>(&self, resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> bool {
        let mut met: BTreeMap<&str, usize> = BTreeMap::new();
        for resource in resources.into_iter().filter(|r| Destination::may_be(r.kind())) {
            let position = met.entry(resource.kind().name).or_default();
            let known = self.of_kind(resource.kind().name).get(*position);
            if known.is_none_or(|known| !Arc::ptr_eq(&known.resource, resource)) {
                return false;
            }
            *position += 1;
        }
        self.by_kind.iter().all(|(kind, list)| met.get(kind).is_some_and(|count| *count == list.len()))
    }

    /// All of one kind.
    pub fn of_kind(&self, kind: &str) -> &[Destination] {
        self.by_kind.get(kind).map_or(&[], Vec::as_slice)
    }

    /// The one with this identifier, whose section is not looked at.
    pub fn get(&self, kri: &Kri) -> Option<&Destination> {
        let (kind, index) = self.by_kri.get(&kri.clone().with_section(""))?;
        self.by_kind.get(kind)?.get(*index)
    }

    /// What an item of `policy` points at, each with the section that is meant (empty for all of it).
    pub fn resolve(&self, policy: &Resource, target: &TargetRef) -> Vec<(&Destination, String)> {
        if !target.kind.is_resource() {
            return Vec::new();
        }
        if target.kind == TargetKind::Mesh {
            let meshes = self.of_kind("Mesh").iter().filter(|m| m.resource.name() == policy.mesh());
            return meshes.map(|m| (m, String::new())).collect();
        }
        let tag = legacy_service(target);
        let found: Vec<&Destination> = match (&tag, target.labels()) {
            (Some(tag), _) => self.labelled(target.kind, &|r| tag.names(r)),
            (None, Some(labels)) => self.labelled(target.kind, &|r| has_labels(r, labels)),
            (None, None) => self.named(policy, target),
        };
        let section = target.section();
        let port = tag.and_then(|t| t.port);
        if section.is_empty() && port.is_none() {
            return found.into_iter().map(|d| (d, String::new())).collect();
        }
        let meant = |p: &&Port| port.map_or_else(|| p.is(section), |number| p.port == number);
        let in_section = |d: &'_ Destination| match &d.ports {
            None => Some(String::new()),
            Some(ports) => ports.iter().find(meant).map(Port::section),
        };
        found.into_iter().filter_map(|d| in_section(d).map(|s| (d, s))).collect()
    }

    /// The HTTP route that `policy` means by `name`.
    pub fn route(&self, policy: &Resource, name: &str) -> Option<&Destination> {
        self.of_kind("MeshHTTPRoute").iter().find(|route| is_referenced(policy, name, &route.resource))
    }

    fn labelled(&self, kind: TargetKind, has: &dyn Fn(&Resource) -> bool) -> Vec<&Destination> {
        self.of_kind(kind.name()).iter().filter(|d| has(&d.resource)).collect()
    }

    /// A name means the resource of the same owner and namespace. A policy of global has no zone of its
    /// own: it means the resource of that name in every zone.
    fn named(&self, policy: &Resource, target: &TargetRef) -> Vec<&Destination> {
        let Some(kind) = registry::by_name(target.kind.name()) else { return Vec::new() };
        let namespace = target.namespace().or_else(|| policy.label(labels::NAMESPACE)).unwrap_or_default();
        let kri = Kri {
            short: kind.short,
            mesh: policy.mesh().to_owned(),
            zone: policy.label(labels::ZONE).unwrap_or_default().to_owned(),
            namespace: namespace.to_owned(),
            name: target.name().to_owned(),
            section: String::new(),
        };
        if policy.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL) && has_zone(kind) {
            let of_kind = self.by_name.get(&kri.name).into_iter().flatten().filter(|(k, _)| *k == kind.name);
            let found = of_kind.filter_map(|(k, index)| self.by_kind.get(k)?.get(*index));
            let meant = |d: &&Destination| {
                d.kri.mesh == kri.mesh && target.namespace().is_none_or(|n| n == d.kri.namespace)
            };
            return found.filter(meant).collect();
        }
        self.get(&kri).into_iter().collect()
    }
}

/// Whether resources of a kind may belong to a zone.
fn has_zone(kind: &Kind) -> bool {
    kind.flow.written_by_zone()
}

impl Destination {
    fn may_be(kind: &Kind) -> bool {
        ["Mesh", "MeshService", "MeshMultiZoneService", "MeshExternalService", "MeshHTTPRoute"]
            .contains(&kind.name)
    }

    fn of(resource: &Arc<Resource>) -> Option<Self> {
        let kind = resource.kind().name;
        let (ports, route) = match kind {
            "MeshService" | "MeshMultiZoneService" => {
                (Some(decode::spec::<Ports>(&resource.spec).map(|p| p.ports).unwrap_or_default()), None)
            }
            "MeshHTTPRoute" => (None, resource.spec().ok().map(Arc::new)),
            "Mesh" | "MeshExternalService" => (None, None),
            _ => return None,
        };
        Some(Self { resource: Arc::clone(resource), kri: Kri::of(resource)?, ports, route })
    }
}

/// A service tag of Kubernetes, which older policies name: `<name>_<namespace>_svc[_<port>]`.
struct LegacyService<'a> {
    name: &'a str,
    namespace: &'a str,
    port: Option<u32>,
}

impl LegacyService<'_> {
    fn names(&self, resource: &Resource) -> bool {
        resource.label(labels::DISPLAY_NAME) == Some(self.name)
            && resource.label(labels::NAMESPACE) == Some(self.namespace)
    }
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

fn has_labels(resource: &Resource, wanted: &BTreeMap<String, String>) -> bool {
    wanted.iter().all(|(k, v)| resource.labels.get(k) == Some(v))
}

/// Whether `policy` means `resource` by `name`. Policy and resource may have travelled apart, so that one
/// of the names is hashed.
pub(super) fn is_referenced(policy: &Resource, name: &str, resource: &Resource) -> bool {
    let core = resource.name();
    let hashed = |name| names::hashed(policy.mesh(), name, None, None);
    policy.mesh() == resource.mesh()
        && (name == core || name == resource.display_name() || hashed(name) == core || hashed(core) == name)
}
