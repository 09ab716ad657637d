//! From resources to a [`MeshContext`]. Pure: the same resources give the same context.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use common::{
    ca, issuing,
    model::{Kind, Resource, kinds, labels, registry},
    policy::rules::{Destinations, PolicySet},
    proto::kuma::{mesh::v1alpha1 as proto, system::v1alpha1 as system},
    store::index::Index,
};
use prost::Message;
use thiserror::Error;

use super::{
    Authority, AuthorityPem, Dataplane, Hosts, MeshContext, MeshService, Topology, ZoneIngress,
    context::{Mtls, enabled_backend, is_permissive},
    problem::{Problem, Subject, decode},
    topology::TopologyInput,
};

/// What a context is built from.
#[derive(Clone, Debug, Default)]
pub struct MeshInput {
    /// The local zone.
    pub zone: String,
    /// The mesh.
    pub mesh: String,
    /// Every resource of the mesh, the ingresses of all zones and the issuing key of this one; others are
    /// ignored.
    pub resources: Vec<Arc<Resource>>,
    /// Host names that occur in addresses.
    pub hosts: Hosts,
}

/// Why there is no context.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BuildError {
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

impl MeshInput {
    /// What `index` holds for `mesh`.
    pub fn from_index(zone: &str, mesh: &str, index: &Index, hosts: Hosts) -> Self {
        let mut resources: Vec<Arc<Resource>> =
            index.find(&kinds::mesh::KIND, "", mesh).cloned().into_iter().collect();
        resources.extend(index.list(&kinds::zone_ingress::KIND).cloned());
        resources.extend(index.find(&kinds::secret::GLOBAL_SECRET, "", issuing::KEY_SECRET).cloned());
        for kind in registry::ALL.iter().filter(|k| k.is_mesh_scoped()) {
            resources.extend(index.list_in_mesh(kind, mesh).cloned());
        }
        Self { zone: zone.to_owned(), mesh: mesh.to_owned(), resources, hosts }
    }
}

impl MeshContext {
    /// Builds the context of `input`. What did not change since `previous` is not decoded again.
    ///
    /// # Errors
    /// [`BuildError`] when there is no usable mesh; anything else that is broken becomes one of
    /// [`MeshContext::problems`] and is left out.
    pub fn build(input: &MeshInput, previous: Option<&Self>) -> Result<Self, BuildError> {
        let mut problems = Vec::new();
        let spec = mesh_spec(input)?;
        let mut mtls = None;
        if let Some((backend, lifetime)) = enabled_backend(&spec) {
            let authority = match reused_authority(input, &backend, lifetime, previous) {
                Some(authority) => Some(authority),
                None => authority(input, &backend, lifetime, &mut problems),
            };
            let permissive = is_permissive(&backend);
            let issuers = issuers(input, &backend);
            mtls = Some(Mtls { backend: backend.name.clone(), permissive, issuers, authority });
        }
        let unchanged = previous.filter(|p| p.hosts == input.hosts);
        let dataplanes: Vec<Arc<Dataplane>> = of_kind(input, &kinds::dataplane::KIND)
            .filter_map(|resource| {
                let known = unchanged.and_then(|p| p.dataplanes.get(resource.name()));
                match known.filter(|d| Arc::ptr_eq(&d.resource, resource)) {
                    Some(known) => Some(Arc::clone(known)),
                    None => usable(Dataplane::read(resource, &input.hosts), &mut problems),
                }
            })
            .collect();
        let ingresses: Vec<Arc<ZoneIngress>> = of_kind(input, &kinds::zone_ingress::KIND)
            .filter_map(|resource| {
                let known = unchanged.and_then(|p| p.ingresses.iter().find(|i| i.name() == resource.name()));
                match known.filter(|i| Arc::ptr_eq(&i.resource, resource)) {
                    Some(known) => Some(Arc::clone(known)),
                    None => usable(ZoneIngress::read(resource, &input.hosts), &mut problems),
                }
            })
            .collect();
        problems.extend(dataplanes.iter().flat_map(|d| d.problems.iter().cloned()));
        problems.extend(ingresses.iter().flat_map(|i| i.problems.iter().cloned()));
        let known: HashMap<&str, &Arc<MeshService>> =
            previous.iter().flat_map(|p| &p.mesh_services).map(|s| (s.resource.name(), s)).collect();
        let mesh_services: Vec<Arc<MeshService>> = of_kind(input, &kinds::mesh_service::KIND)
            .filter_map(|resource| {
                match known.get(resource.name()).filter(|s| Arc::ptr_eq(&s.resource, resource)) {
                    Some(known) => Some(Arc::clone(known)),
                    None => usable(MeshService::read(resource, &input.zone), &mut problems),
                }
            })
            .collect();
        // A strict mesh uses TLS whoever is ready, so who is must not look like a change there.
        let permissive = mtls.as_ref().is_some_and(|m| m.permissive);
        let certified = if permissive { certified(input) } else { BTreeSet::new() };
        let topology = TopologyInput {
            zone: &input.zone,
            mesh: &input.mesh,
            dataplanes: &dataplanes,
            ingresses: &ingresses,
            mesh_services: &mesh_services,
            mtls: mtls.is_some(),
            locality_aware: spec.routing.as_ref().is_some_and(|r| r.locality_aware_load_balancing),
            certified: &certified,
        };
        let topology = Topology::compute(&topology, previous.map(|p| &p.topology));
        let policies = policies(input, previous, &mut problems);
        let destinations = match previous.filter(|p| p.destinations.are_of(&input.resources)) {
            Some(previous) => Arc::clone(&previous.destinations),
            None => Arc::new(Destinations::new(&input.resources)),
        };
        Ok(Self {
            mesh: input.mesh.as_str().into(),
            zone: input.zone.as_str().into(),
            spec,
            dataplanes: dataplanes.into_iter().map(|d| (Arc::clone(&d.resource.key.name), d)).collect(),
            ingresses,
            mesh_services,
            policies,
            destinations,
            mtls,
            topology,
            hosts: input.hosts.clone(),
            problems,
        })
    }
}

/// What was read, to be shared; a problem goes where it is told.
fn usable<T>(read: Result<T, Problem>, problems: &mut Vec<Problem>) -> Option<Arc<T>> {
    read.map(Arc::new).map_err(|problem| problems.push(problem)).ok()
}

fn of_kind<'a>(input: &'a MeshInput, kind: &'static Kind) -> impl Iterator<Item = &'a Arc<Resource>> {
    let of_mesh = move |r: &&Arc<Resource>| !kind.is_mesh_scoped() || r.mesh() == input.mesh;
    input.resources.iter().filter(move |r| r.kind() == kind).filter(of_mesh)
}

fn mesh_spec(input: &MeshInput) -> Result<proto::Mesh, BuildError> {
    let mesh = of_kind(input, &kinds::mesh::KIND).find(|r| r.name() == input.mesh);
    let mesh = mesh.ok_or_else(|| BuildError::NoMesh(input.mesh.clone()))?;
    proto::Mesh::decode(&mesh.spec[..])
        .map_err(|e| BuildError::BrokenMesh { mesh: input.mesh.clone(), reason: e.to_string() })
}

/// The policies of the mesh, by kind. A kind of which no resource changed since `previous` is not parsed
/// again.
fn policies(
    input: &MeshInput,
    previous: Option<&MeshContext>,
    problems: &mut Vec<Problem>,
) -> BTreeMap<&'static str, Arc<PolicySet>> {
    let mut by_kind: BTreeMap<&'static str, Vec<&Arc<Resource>>> = BTreeMap::new();
    let in_mesh = input.resources.iter().filter(|r| r.mesh() == input.mesh);
    let target_ref = |r: &&Arc<Resource>| r.kind().policy.is_some_and(|traits| traits.target_ref);
    for resource in in_mesh.filter(target_ref) {
        by_kind.entry(resource.kind().name).or_default().push(resource);
    }
    let mut sets = BTreeMap::new();
    for (name, mut resources) in by_kind {
        resources.sort_by(|a, b| a.key.cmp(&b.key));
        let Some(kind) = resources.first().map(|r| r.kind()) else { continue };
        let known = previous.and_then(|p| p.policies.get(name)).filter(|set| is_of(set, &resources));
        let set = known.cloned().unwrap_or_else(|| Arc::new(PolicySet::parse(kind, resources)));
        problems.extend(set.broken.iter().map(|(key, error)| Problem {
            subject: Subject::Resource(key.clone()),
            reason: format!("the policy is not applied: {error}"),
        }));
        sets.insert(name, set);
    }
    sets
}

/// Whether `set` was parsed from exactly these resources.
fn is_of(set: &PolicySet, resources: &[&Arc<Resource>]) -> bool {
    let parsed = set.policies.iter().map(|p| &p.resource);
    set.broken.is_empty()
        && set.policies.len() == resources.len()
        && parsed.zip(resources).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Proxies whose insight says that they hold a certificate.
fn certified(input: &MeshInput) -> BTreeSet<Arc<str>> {
    let insights = of_kind(input, &kinds::dataplane_insight::KIND);
    let holds = |insight: &&Arc<Resource>| {
        let spec = proto::DataplaneInsight::decode(&insight.spec[..]);
        spec.is_ok_and(|s| s.m_tls.is_some_and(|m| !m.issued_backend.is_empty()))
    };
    insights.filter(holds).map(|insight| Arc::clone(&insight.key.name)).collect()
}

/// The zones that sign with keys of their own for `backend`: those global certified.
fn issuers(input: &MeshInput, backend: &proto::CertificateAuthorityBackend) -> BTreeSet<String> {
    let secrets = of_kind(input, &kinds::secret::SECRET);
    let zones = secrets.filter_map(|secret| {
        let zone = secret.label(labels::ISSUER)?;
        (secret.name() == issuing::certificate_secret(&input.mesh, &backend.name, zone)).then_some(zone)
    });
    zones.map(str::to_owned).collect()
}

/// PEM texts of the authority of `backend`, or what is missing.
fn authority_pem(
    input: &MeshInput,
    backend: &proto::CertificateAuthorityBackend,
) -> Result<AuthorityPem, String> {
    match backend.r#type.as_str() {
        "builtin" => {
            let root = secret(input, &ca::certificate_secret(&input.mesh, &backend.name))?;
            let own = issuing::certificate_secret(&input.mesh, &backend.name, &input.zone);
            if let (Ok(own), Some(key)) = (secret(input, &own), issuing_key(input)) {
                return Ok(AuthorityPem { root, key, zone: Some((input.zone.clone(), own)) });
            }
            let key = secret(input, &ca::key_secret(&input.mesh, &backend.name)).map_err(|reason| {
                format!("{reason}, nor is a certificate of global for the issuing key of this zone (yet)")
            })?;
            Ok(AuthorityPem { root, key, zone: None })
        }
        "provided" => {
            let conf = backend.conf.as_ref().ok_or("a provided backend needs conf.cert and conf.key")?;
            Ok(AuthorityPem {
                root: super::data_source::read(conf, "cert", |s| secret(input, s))?,
                key: super::data_source::read(conf, "key", |s| secret(input, s))?,
                zone: None,
            })
        }
        "" => Err("it is enabled, but not among the backends of the mesh".to_owned()),
        other => Err(format!("backends of type {other:?} are not supported; use builtin or provided")),
    }
}

fn authority(
    input: &MeshInput,
    backend: &proto::CertificateAuthorityBackend,
    lifetime: chrono::Duration,
    problems: &mut Vec<Problem>,
) -> Option<Arc<Authority>> {
    let made = authority_pem(input, backend).and_then(|material| {
        Authority::from_pem(&backend.name, material, lifetime).map_err(|e| e.to_string())
    });
    match made {
        Ok(authority) => Some(Arc::new(authority)),
        Err(reason) => {
            problems.push(Problem {
                subject: Subject::Part(format!("mTLS backend {} of mesh {}", backend.name, input.mesh)),
                reason,
            });
            None
        }
    }
}

/// The authority of `previous`, when its certificate, key and settings are still the same.
fn reused_authority(
    input: &MeshInput,
    backend: &proto::CertificateAuthorityBackend,
    lifetime: chrono::Duration,
    previous: Option<&MeshContext>,
) -> Option<Arc<Authority>> {
    let known = previous?.mtls.as_ref()?.authority.as_ref()?;
    let material = authority_pem(input, backend).ok()?;
    let same = known.backend == backend.name && known.lifetime == lifetime && known.is_of(&material);
    same.then(|| Arc::clone(known))
}

fn secret(input: &MeshInput, name: &str) -> Result<String, String> {
    let secret = of_kind(input, &kinds::secret::SECRET).find(|r| r.name() == name);
    text(secret.ok_or_else(|| format!("the secret {name:?} is not here"))?)
}

/// The key this zone signs with, where it may.
fn issuing_key(input: &MeshInput) -> Option<String> {
    let mut secrets = of_kind(input, &kinds::secret::GLOBAL_SECRET);
    text(secrets.find(|secret| secret.name() == issuing::KEY_SECRET)?).ok()
}

fn text(secret: &Arc<Resource>) -> Result<String, String> {
    let name = secret.name();
    let data = decode::<system::Secret>(secret).map_err(|problem| problem.to_string())?.data;
    let data = data.ok_or_else(|| format!("the secret {name:?} holds no data"))?;
    String::from_utf8(data.value.to_vec()).map_err(|_| format!("the secret {name:?} is not text"))
}
