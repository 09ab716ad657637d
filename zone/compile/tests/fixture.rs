//! A zone written as YAML documents.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    ca,
    document::Document,
    keys::{KeyForm, PrivateKey},
    model::{Origin, Resource, ResourceKey, kinds},
    proto::{google::protobuf::BytesValue, kuma::system::v1alpha1::Secret},
    store::{Snapshot, StoreIdentity, index::Index},
    tls::KeyPairPem,
};
use prost::Message;
use serde::Deserialize;

use crate::{
    compile::scratch::{self, Generated},
    generator::{
        AdminEndpoint, FEATURE_GRPC, ProxyMetadata, Shown, Sidecar, ZoneEgressProxy, ZoneIngressProxy,
    },
    mesh::{
        Authority, Dataplane, Identity, MeshContext, MeshState, Surroundings, WorkloadCertificate,
        WorkloadKey,
    },
};

/// The local zone of every fixture.
pub(super) const ZONE: &str = "zone-1";

/// All meshes of the zone, and the certificates of its proxies.
pub(super) struct Fixture {
    pub(super) meshes: Vec<Arc<MeshContext>>,
    shown: BTreeMap<String, Shown>,
}

pub(super) fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

/// One root for all tests.
static ROOT: LazyLock<KeyPairPem> = LazyLock::new(|| {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    ca::create_root("demo", &key, TimeDelta::days(1), now()).unwrap()
});

/// A certificate that may have signed something.
pub(super) fn authority() -> &'static str {
    &ROOT.certificate
}

pub(super) fn documents(yaml: &str) -> Vec<serde_json::Value> {
    let documents = serde_norway::Deserializer::from_str(yaml);
    let json = documents.map(|document| serde_json::Value::deserialize(document).unwrap());
    json.filter(|json| !json.is_null()).collect()
}

/// The resource of a document, or what is wrong with it.
pub(super) fn resource(json: &serde_json::Value) -> Result<Arc<Resource>, String> {
    let mut resource = Document::parse(json).map_err(|e| e.to_string())?.into_resource(now());
    let zone = json.get("zone").and_then(|z| z.as_str()).unwrap_or(ZONE);
    let of_zone = ["Dataplane", "ZoneIngress", "ZoneEgress"].contains(&resource.kind().name);
    resource.origin = if of_zone { Origin::Zone(zone.into()) } else { Origin::Global };
    let violations = resource.kind().validate(&resource.spec).map_err(|e| e.to_string())?;
    if violations.is_empty() { Ok(Arc::new(resource)) } else { Err(violations.to_string()) }
}

fn secret(mesh: &str, name: &str, data: &str) -> Arc<Resource> {
    let secret = Secret { data: Some(BytesValue { value: data.as_bytes().to_vec() }) };
    let key = ResourceKey::new(&kinds::secret::SECRET, mesh, name);
    Arc::new(Resource::new(key, now()).with_spec(secret.encode_to_vec()))
}

fn shown(mesh: &MeshContext, dataplane: &Dataplane) -> Option<Shown> {
    if let Some(identity) = mesh.agent_identity(dataplane) {
        return Some(Shown::FromAgent(Arc::new(identity)));
    }
    let (authority, identity) = mesh.lacks_certificate(dataplane, None, now()).unwrap()?;
    Some(Shown::Certificate(issued(&authority, identity)))
}

fn issued(authority: &Authority, identity: Identity) -> Arc<WorkloadCertificate> {
    Arc::new(authority.issue(identity, &WorkloadKey::generate().unwrap(), now()).unwrap())
}

impl Fixture {
    /// From documents; builtin backends called `ca-1` get their secrets.
    pub(super) fn parse(yaml: &str) -> Self {
        Self::parse_in(ZONE, yaml)
    }

    /// The same, seen from another zone.
    pub(super) fn parse_in(zone: &str, yaml: &str) -> Self {
        Self::of(zone, documents(yaml).iter().map(|document| resource(document).unwrap()).collect())
    }

    /// From those documents that the API would accept.
    pub(super) fn of_valid(documents: &[serde_json::Value]) -> Self {
        Self::of(ZONE, documents.iter().filter_map(|document| resource(document).ok()).collect())
    }

    fn of(zone: &str, mut resources: Vec<Arc<Resource>>) -> Self {
        let meshes = resources.iter().filter(|r| r.kind() == &kinds::mesh::KIND);
        let meshes: Vec<String> = meshes.map(|r| r.name().to_owned()).collect();
        for mesh in &meshes {
            resources.push(secret(mesh, &ca::certificate_secret(mesh, "ca-1"), &ROOT.certificate));
            resources.push(secret(mesh, &ca::key_secret(mesh, "ca-1"), &ROOT.key));
        }
        let identities: Vec<_> =
            resources.iter().filter(|r| r.kind() == &kinds::identity::KIND).cloned().collect();
        for identity in identities {
            let (mesh, name) = (identity.mesh(), identity.name());
            resources.push(secret(mesh, &format!("{name}-root-ca"), &ROOT.certificate));
            resources.push(secret(mesh, &format!("{name}-private-key"), &ROOT.key));
        }
        let snapshot = Snapshot { revision: 1, commit: None, resources };
        let index = Index::of(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }, snapshot);
        let keys: Vec<ResourceKey> = index.iter().map(|r| r.key.clone()).collect();
        let mut around = Surroundings { zone: zone.into(), ..Surroundings::default() };
        around.update(&keys, &index);
        let build =
            |mesh: &String| Arc::new(MeshState::new(mesh, &index, &around).unwrap().context().clone());
        let meshes: Vec<_> = meshes.iter().map(build).collect();
        let mut all = BTreeMap::new();
        for mesh in &meshes {
            for (name, dataplane) in &mesh.dataplanes {
                all.extend(shown(mesh, dataplane).map(|shown| (name.to_string(), shown)));
            }
        }
        Self { meshes, shown: all }
    }

    /// The same with the certificates another fixture issued.
    pub(super) fn with_identities_of(mut self, other: &Self) -> Self {
        self.shown.clone_from(&other.shown);
        self
    }

    /// What is called so has a gRPC library and no Envoy.
    pub(super) fn is_library(name: &str) -> bool {
        name.starts_with("grpc-")
    }

    pub(super) fn sidecar(&self, name: &str) -> Sidecar {
        let mut dataplanes = self.meshes.iter().flat_map(|m| m.dataplanes.get(name));
        if Self::is_library(name) {
            return Sidecar {
                dataplane: Arc::clone(dataplanes.next().unwrap()),
                metadata: ProxyMetadata {
                    features: [FEATURE_GRPC.to_owned()].into(),
                    ..ProxyMetadata::default()
                },
                shown: self.shown.get(name).cloned(),
                admin: None,
            };
        }
        Sidecar {
            dataplane: Arc::clone(dataplanes.next().unwrap()),
            metadata: ProxyMetadata {
                admin: Some(AdminEndpoint {
                    address: Ipv4Addr::LOCALHOST.into(),
                    port: 9901,
                    socket: None,
                    readiness_port: None,
                }),
                dns_port: Some(15053),
                ..ProxyMetadata::default()
            },
            shown: self.shown.get(name).cloned(),
            admin: None,
        }
    }

    /// The configuration of every egress of the local zone, by name.
    pub(super) fn egresses(&self) -> BTreeMap<String, Generated> {
        let meshes = || self.meshes.iter().map(|mesh| &**mesh);
        let shown = meshes().filter_map(|mesh| {
            let (authority, identity) = mesh.lacks_egress_certificate(None, now()).unwrap()?;
            Some((Arc::clone(&mesh.mesh), issued(&authority, identity)))
        });
        let certificates: BTreeMap<_, _> = shown.collect();
        let egresses = self.meshes.first().into_iter().flat_map(|m| m.egresses.values());
        let ours = egresses.filter(|egress| !egress.is_remote(ZONE)).map(|egress| {
            let proxy = ZoneEgressProxy {
                egress: Arc::clone(egress),
                metadata: ProxyMetadata {
                    system_ca: Some("/etc/ssl/certs/ca-certificates.crt".to_owned()),
                    ..ProxyMetadata::default()
                },
                certificates: certificates.clone(),
                admin: None,
            };
            (egress.name().to_owned(), scratch::zone_egress(&proxy, meshes()))
        });
        ours.collect()
    }

    /// The configuration of every proxy of the local zone, by name.
    pub(super) fn generate(&self) -> BTreeMap<String, Generated> {
        let mut all = BTreeMap::new();
        for mesh in &self.meshes {
            for name in mesh.dataplanes.keys() {
                let proxy = self.sidecar(name);
                all.insert(name.to_string(), scratch::sidecar(&proxy, mesh).unwrap());
            }
        }
        let ingresses = self.meshes.first().into_iter().flat_map(|m| m.ingresses.values());
        for ingress in ingresses.filter(|i| !i.is_remote(ZONE)) {
            let ingress = Arc::clone(ingress);
            let name = ingress.name().to_owned();
            let proxy = ZoneIngressProxy { ingress, metadata: ProxyMetadata::default(), admin: None };
            let meshes = self.meshes.iter().map(|mesh| &**mesh);
            all.insert(name, scratch::zone_ingress(&proxy, ZONE, meshes));
        }
        all.extend(self.egresses());
        all
    }
}
