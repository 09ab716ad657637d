//! A zone written as YAML documents.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    model::{Origin, Resource, ResourceKey, document::Document, kinds},
    proto::{google::protobuf::BytesValue, kuma::system::v1alpha1::Secret},
    tls::KeyPairPem,
};
use prost::Message;
use serde::Deserialize;

use crate::{
    generator::{self, Generated, Interner, ProxyMetadata, Sidecar, ZoneIngressProxy},
    mesh::{Hosts, MeshContext, MeshInput, WorkloadCertificate},
};

/// The local zone of every fixture.
pub(super) const ZONE: &str = "zone-1";

/// All meshes of the zone, and the certificates of its proxies.
pub(super) struct Fixture {
    pub(super) meshes: Vec<Arc<MeshContext>>,
    certificates: BTreeMap<String, Arc<WorkloadCertificate>>,
    pub(super) interner: Interner,
}

pub(super) fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_790_000_000, 0).unwrap()
}

/// One root for all tests.
static ROOT: LazyLock<KeyPairPem> = LazyLock::new(|| {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    ca::create_root("demo", &key, TimeDelta::days(1), now()).unwrap()
});

fn documents(yaml: &str) -> Vec<serde_json::Value> {
    let documents = serde_norway::Deserializer::from_str(yaml);
    let json = documents.map(|document| serde_json::Value::deserialize(document).unwrap());
    json.filter(|json| !json.is_null()).collect()
}

/// The resource of a document, or what is wrong with it.
fn resource(json: &serde_json::Value) -> Result<Arc<Resource>, String> {
    let mut resource = Document::parse(json).map_err(|e| e.to_string())?.into_resource(now());
    let zone = json.get("zone").and_then(|z| z.as_str()).unwrap_or(ZONE);
    let of_zone = ["Dataplane", "ZoneIngress"].contains(&resource.kind().name);
    resource.origin = if of_zone { Origin::Zone(zone.into()) } else { Origin::Global };
    let violations = resource.kind().validate(&resource.spec).map_err(|e| e.to_string())?;
    if violations.is_empty() { Ok(Arc::new(resource)) } else { Err(violations.to_string()) }
}

fn secret(mesh: &str, name: &str, data: &str) -> Arc<Resource> {
    let secret = Secret { data: Some(BytesValue { value: data.as_bytes().to_vec() }) };
    let key = ResourceKey::new(&kinds::secret::SECRET, mesh, name);
    Arc::new(Resource::new(key, now()).with_spec(secret.encode_to_vec()))
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
        let build = |mesh: &String| {
            let (zone, mesh, resources) = (zone.to_owned(), mesh.clone(), resources.clone());
            let input = MeshInput { zone, mesh, resources, hosts: Hosts::default() };
            Arc::new(MeshContext::build(&input, None).unwrap())
        };
        let meshes: Vec<_> = meshes.iter().map(build).collect();
        let mut certificates = BTreeMap::new();
        for mesh in &meshes {
            for (name, dataplane) in &mesh.dataplanes {
                if let Some(certificate) = mesh.certificate(dataplane, None, now()).unwrap() {
                    certificates.insert(name.to_string(), certificate);
                }
            }
        }
        Self { meshes, certificates, interner: Interner::default() }
    }

    /// The same with the certificates another fixture issued.
    pub(super) fn with_identities_of(mut self, other: &Self) -> Self {
        self.certificates.clone_from(&other.certificates);
        self
    }

    pub(super) fn sidecar(&self, name: &str) -> Sidecar {
        let mut dataplanes = self.meshes.iter().flat_map(|m| m.dataplanes.get(name));
        Sidecar {
            dataplane: Arc::clone(dataplanes.next().unwrap()),
            metadata: ProxyMetadata::default(),
            certificate: self.certificates.get(name).cloned(),
            admin: None,
        }
    }

    /// The configuration of every proxy of the local zone, by name.
    pub(super) fn generate(&self) -> BTreeMap<String, Generated> {
        let mut all = BTreeMap::new();
        for mesh in &self.meshes {
            for name in mesh.dataplanes.keys() {
                let proxy = self.sidecar(name);
                all.insert(name.to_string(), generator::sidecar(&proxy, mesh, &self.interner).unwrap());
            }
        }
        let ingresses = self.meshes.first().into_iter().flat_map(|m| &m.ingresses);
        for ingress in ingresses.filter(|i| !i.is_remote(ZONE)) {
            let ingress = Arc::clone(ingress);
            let name = ingress.name().to_owned();
            let proxy = ZoneIngressProxy { ingress, metadata: ProxyMetadata::default(), admin: None };
            all.insert(name, generator::zone_ingress(&proxy, &self.meshes, &self.interner));
        }
        all
    }
}
