//! Doing only what a change asks for must come to the same as doing everything again.
#![allow(clippy::unwrap_used)]

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chrono::{DateTime, TimeDelta, Utc};
use common::{
    ca,
    document::Document,
    keys::{KeyForm, PrivateKey},
    model::{Origin, Resource, ResourceKey, kinds::secret},
    proto::google::protobuf::{ListValue, Struct, Value, value::Kind},
    runtime::Entropy,
    store::{Change, StoreIdentity, index::Index},
    token,
};
use proptest::prelude::{ProptestConfig, proptest};
use rand::{Rng, rngs::StdRng};

use super::{
    meshes::Meshes,
    signing::{SigningAnswer, sign},
};
use crate::{
    ads::{
        kept::KeptByProxy,
        node::{Proxy, ProxyId, ProxyKind},
    },
    compile::{Signed, SigningRequest, scratch},
    generator::{
        FEATURE_GRPC, ProxyMetadata, ResourceSet, Shown, Sidecar, ZoneEgressProxy, ZoneIngressProxy, type_url,
    },
    mesh::{Hosts, MeshContext, MeshState, Surroundings, WorkloadCertificate},
};

mod addresses;
mod changes;
mod egresses;
mod endpoints;
mod gateways;
mod hosts;
mod identities;
mod legacy;
mod libraries;
mod limits;
mod outside;
mod particulars;
mod refused;
mod scale;
mod timing;
mod zones;

const PROXIES: usize = 6;
const SERVICES: [&str; 5] = ["web", "web-api", "db", "cache", "queue"];

struct World {
    meshes: Meshes,
    index: Arc<Index>,
    /// What host names stand for.
    hosts: Hosts,
    /// What every proxy was told last.
    has: BTreeMap<ProxyId, ResourceSet>,
    /// What was left out of it.
    problems: BTreeMap<ProxyId, Vec<String>>,
    /// What it was left that it should not have any more.
    kept: BTreeMap<ProxyId, KeptByProxy>,
    /// By who shows them, and the mesh in which.
    certificates: BTreeMap<(ProxyId, Arc<str>), Arc<WorkloadCertificate>>,
    now: DateTime<Utc>,
    rng: StdRng,
}

fn proxy(kind: ProxyKind, name: &str) -> Proxy {
    let mesh = if kind == ProxyKind::Dataplane { "default" } else { "" };
    let id = ProxyId::new(kind, mesh, name);
    Proxy { id, cluster: Arc::default(), metadata: Arc::new(metadata(name)), user_agent: String::new() }
}

/// Whether it is an application with a gRPC library.
fn is_library(name: &str) -> bool {
    name.starts_with("lib-")
}

/// What a proxy says about itself.
fn metadata(name: &str) -> Struct {
    let text = |text: &str| Value { kind: Some(Kind::StringValue(text.to_owned())) };
    let said = [("dataplane.dns.port", "15053"), ("workdir", "/run/proxy")];
    let mut fields: HashMap<String, Value> = said.map(|(name, value)| (name.to_owned(), text(value))).into();
    if is_library(name) {
        let features = ListValue { values: vec![text(FEATURE_GRPC)] };
        fields.insert("features".to_owned(), Value { kind: Some(Kind::ListValue(features)) });
    }
    Struct { fields }
}

/// What is known before anything is read.
fn east() -> Surroundings {
    Surroundings { zone: "east".into(), ..Surroundings::default() }
}

impl World {
    fn new(seed: u64) -> Self {
        let index = Arc::new(Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 }));
        let mut meshes = Meshes::new(east(), Arc::clone(&index));
        for i in 0..PROXIES {
            meshes.arrive(&proxy(ProxyKind::Dataplane, &format!("p-{i}")));
        }
        meshes.arrive(&proxy(ProxyKind::Ingress, "east-in"));
        meshes.arrive(&proxy(ProxyKind::Egress, "east-out"));
        let rng = Entropy::seeded(seed).with(|rng| rng.clone());
        let (has, problems, kept) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let now = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let (hosts, certificates) = (Hosts::default(), BTreeMap::new());
        Self { meshes, index, hosts, has, problems, kept, certificates, now, rng }
    }

    fn apply(&mut self, key: ResourceKey, resource: Option<Resource>) {
        let mut next = Index::clone(&self.index);
        let change = Change { revision: next.revision + 1, key, resource: resource.map(Arc::new) };
        next.apply(&change);
        self.index = Arc::new(next);
    }

    /// Follows the index and compiles `slices` batches.
    fn slice(&mut self, slices: usize) {
        self.meshes.follow(&self.index, self.hosts.clone());
        self.meshes.renew(self.now);
        let left = std::cell::Cell::new(slices);
        self.meshes.work(self.now, || {
            left.set(left.get().saturating_sub(1));
            left.get() == 0
        });
        for configured in self.meshes.configured(self.now) {
            if let Some(set) = configured.set {
                self.has.insert(configured.id.clone(), set);
            }
            if let Some(kept) = configured.kept {
                self.kept.insert(configured.id.clone(), kept);
            }
            self.problems.insert(configured.id, configured.problems.to_vec());
        }
        let answers = self.meshes.unsigned(self.now).into_iter().map(|(id, request)| {
            let signed = sign(&request, None, self.now);
            if let (Some((_, identity)), Some(Ok(certificate))) = (&request.workload, &signed.workload) {
                let mesh: Arc<str> = identity.mesh.as_str().into();
                self.certificates.insert((id.clone(), mesh), Arc::clone(certificate));
            }
            SigningAnswer { id, request, signed }
        });
        let answers = answers.collect();
        self.meshes.signed(answers, |id| panic!("nothing for {id}"));
    }

    fn settle(&mut self) {
        self.slice(usize::MAX);
        while !self.meshes.is_idle() {
            self.slice(usize::MAX);
        }
        self.slice(usize::MAX);
    }

    fn put(&mut self, yaml: &str, origin: &str) {
        self.put_at(DateTime::UNIX_EPOCH, yaml, origin);
    }

    fn put_at(&mut self, created: DateTime<Utc>, yaml: &str, origin: &str) {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(created);
        resource.spec = resource.kind().normalize(&resource.spec).unwrap().into();
        resource.origin = Origin::from_column(origin);
        self.apply(resource.key.clone(), Some(resource));
    }

    /// Each service as a resource too, and one that only another zone has.
    fn put_services(&mut self) {
        let services = SERVICES.map(|s| (format!("{s}-here"), s, "east"));
        for (name, service, zone) in services.into_iter().chain([("far".to_owned(), "far", "west")]) {
            let yaml = format!(
                "{{type: MeshService, mesh: default, name: {name}, labels: {{kuma.io/zone: {zone}}}, spec: \
                 {{selector: {{dataplaneTags: {{kuma.io/service: {service}}}}}, ports: [{{port: 80, appProtocol: http}}]}}}}"
            );
            self.put(&yaml, zone);
        }
    }

    /// Lets the time come at which certificates are renewed, and refuses that; gives who is not renewed.
    fn refuse_renewals(&mut self) -> Vec<ProxyId> {
        self.now += TimeDelta::hours(20);
        self.meshes.renew(self.now);
        self.meshes.work(self.now, || false);
        let refuse = |(id, request): (ProxyId, SigningRequest)| {
            let signed = Signed { workload: Some(Err("the authority is away".to_owned())), admin: None };
            SigningAnswer { id, request, signed }
        };
        let refused: Vec<SigningAnswer> = self.meshes.unsigned(self.now).into_iter().map(refuse).collect();
        let mut failed = Vec::new();
        self.meshes.signed(refused, |id| failed.push(id));
        failed
    }

    /// The secrets of the backend `ca-1` in every mesh.
    fn put_authority(&mut self) {
        for mesh in ["default", "other"] {
            self.put_authority_of(mesh, "ca-1");
        }
    }

    /// The secrets of a backend.
    fn put_authority_of(&mut self, mesh: &str, backend: &str) {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root(mesh, &key, TimeDelta::days(1), self.now).unwrap();
        for (name, data) in [
            (ca::certificate_secret(mesh, backend), &root.certificate),
            (ca::key_secret(mesh, backend), &root.key),
        ] {
            let key = ResourceKey::new(&secret::SECRET, mesh, &name);
            let secret = Resource::new(key.clone(), DateTime::UNIX_EPOCH)
                .with_spec(token::secret_spec(data.as_bytes()));
            self.apply(key, Some(secret));
        }
    }

    /// The meshes made from nothing, the one that everything happens in first.
    fn fresh(&self) -> (Vec<MeshContext>, Surroundings) {
        let keys: Vec<ResourceKey> = self.index.iter().map(|r| r.key.clone()).collect();
        let mut around = Surroundings { hosts: self.hosts.clone(), ..east() };
        around.update(&keys, &self.index);
        let of = |mesh| Some(MeshState::new(mesh, &self.index, &around).ok()?.context().clone());
        (["default", "other"].into_iter().filter_map(of).collect(), around)
    }

    /// What a dataplane shows: what was signed for it last, unless it asks an agent.
    fn shown(&self, id: &ProxyId) -> Option<Shown> {
        if let Some(shown @ Shown::FromAgent(_)) = self.meshes.shown(id) {
            return Some(shown.clone());
        }
        self.certificates.get(&(id.clone(), "default".into())).cloned().map(Shown::Certificate)
    }

    /// Compares what every proxy has with what it would get from scratch.
    fn check(&self, seed: u64, step: usize) -> usize {
        let (meshes, around) = self.fresh();
        let context = &meshes[0];
        let mut compared = 0;
        for (id, has) in &self.has {
            let fresh = match id.kind {
                ProxyKind::Dataplane => {
                    let Some(dataplane) = context.dataplanes.get(&id.name) else { continue };
                    let wanted = context.wants_certificate(dataplane);
                    let shown = self.shown(id).filter(|_| wanted);
                    let (dataplane, metadata) =
                        (Arc::clone(dataplane), ProxyMetadata::of_node(&metadata(&id.name)));
                    let sidecar = Sidecar { dataplane, metadata, shown, admin: None };
                    scratch::sidecar(&sidecar, context).unwrap()
                }
                ProxyKind::Egress => {
                    let Some(egress) = around.egresses.get(&id.name) else { continue };
                    let shown = self.certificates.iter().filter(|((who, _), _)| who == id);
                    let shown = shown.map(|((_, mesh), shown)| (Arc::clone(mesh), Arc::clone(shown)));
                    let proxy = ZoneEgressProxy {
                        egress: Arc::clone(egress),
                        metadata: ProxyMetadata::default(),
                        certificates: shown.collect(),
                        admin: None,
                    };
                    scratch::zone_egress(&proxy, &meshes)
                }
                ProxyKind::Ingress => {
                    let Some(ingress) = around.ingresses.get(&id.name) else { continue };
                    let (ingress, metadata) = (Arc::clone(ingress), ProxyMetadata::default());
                    let proxy = ZoneIngressProxy { ingress, metadata, admin: None };
                    scratch::zone_ingress(&proxy, "east", &meshes)
                }
            };
            let differs = differences(&fresh.set, has);
            assert!(differs.is_empty(), "seed {seed}, step {step}, {id}: {differs:#?}");
            let problems: Vec<String> = fresh.problems.iter().map(ToString::to_string).collect();
            assert_eq!(self.problems[id], problems, "seed {seed}, step {step}, {id}");
            compared += 1;
        }
        compared
    }
}

/// What is in one configuration and not as it is in the other, whoever else has the same.
fn differences(fresh: &ResourceSet, has: &ResourceSet) -> Vec<String> {
    let changes = fresh.changes_since(has).0.into_iter();
    let names = changes.flat_map(|(kind, names)| names.into_iter().map(move |name| (kind, name)));
    let of = |set: &ResourceSet, (kind, name): &(&'static str, Arc<str>)| {
        let resource = set.get(kind, name)?;
        // Not by versions: what is made for one alone has another one than what is made for many and filled in.
        Some(resource.value.clone())
    };
    let different = names.filter(|name| of(fresh, name) != of(has, name));
    let shown = |set: &ResourceSet, (kind, name): &(&'static str, Arc<str>)| {
        Some(set.get(kind, name)?.to_json().unwrap().to_string())
    };
    different
        .map(|name| format!("{name:?}: {:?} instead of {:?}", shown(has, &name), shown(fresh, &name)))
        .collect()
}

proptest! {
    // A world is no smaller for a smaller seed. In a test run there are few; searching tries others.
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 0, ..ProptestConfig::default() })]

    #[test]
    fn incremental_rounds_come_to_the_same_as_full_ones(seed: u64) {
        let mut world = World::new(seed);
        world.put("{type: Mesh, name: default}", "");
        world.put(
            "{type: ZoneIngress, name: east-in, zone: east, networking: {address: 10.0.0.9, port: 1}}",
            "east",
        );
        world.put_egress("east-out", 9);
        world.put_services();
        world.put_authority();
        world.put_identity_authorities();
        world.meshes.arrive(&proxy(ProxyKind::Dataplane, "lib-0"));
        let mut compared = 0;
        for step in 0..60 {
            for _ in 0..world.rng.random_range(1..3) {
                world.change();
            }
            if world.rng.random_bool(0.2) {
                world.change_library();
            }
            // Changes also come while those before are being worked off.
            if world.rng.random_bool(0.3) {
                world.slice(1);
                continue;
            }
            world.settle();
            compared += world.check(seed, step);
        }
        assert!(compared > 60, "only {compared} configurations were compared");
    }
}

/// Whoever left leaves nothing behind.
#[test]
fn proxies_that_come_and_go_leave_nothing_behind() {
    let mut world = World::new(3);
    world.put("{type: Mesh, name: default}", "");
    world.put_identity_authorities();
    for _ in 0..40 {
        world.change();
    }
    world.put("{type: Mesh, name: default}", "");
    world.settle();
    for i in 0..PROXIES {
        world.meshes.leave(&ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}")));
    }
    assert_eq!(world.meshes.held(), 0);
}
