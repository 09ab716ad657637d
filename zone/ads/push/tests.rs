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
    policy::mesh_load_balancing_strategy,
    proto::google::protobuf::{ListValue, Struct, Value, value::Kind},
    runtime::Entropy,
    store::{Change, StoreIdentity, index::Index},
    token,
};
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

#[test]
fn incremental_rounds_come_to_the_same_as_full_ones() {
    let mut compared = 0;
    for seed in 0..40 {
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
    }
    assert!(compared > 5_000, "only {compared} configurations were compared");
}

#[test]
fn an_endpoint_more_leaves_everything_else_as_it_is() {
    let mut world = World::new(0);
    world.put_services();
    let mesh =
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}";
    world.put(mesh, "");
    world.put_authority();
    let dataplane = |name: &str, last: u32, protocol: &str| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.{last}, inbound: [{{port: 80, \
             servicePort: 81, tags: {{kuma.io/service: web, version: v1, kuma.io/protocol: {protocol}}}}}], outbound: \
             [{{port: 1, tags: {{kuma.io/service: web}}}}, {{port: 2, tags: {{kuma.io/service: web, version: v1}}}}, \
             {{port: 3, backendRef: {{kind: MeshService, name: web-here, port: 80}}}}]}}}}"
        )
    };
    world.put(&dataplane("p-0", 1, "http"), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");

    let before = world.has[&client].clone();
    world.put(&dataplane("p-1", 2, "http"), "east");
    world.settle();
    let after = world.has[&client].clone();
    let changes = after.changes_since(&before);
    assert_eq!(changes.0.keys().copied().collect::<Vec<_>>(), [type_url::ENDPOINT]);
    assert_eq!(
        changes.of(type_url::ENDPOINT).count(),
        3,
        "the service, its subset and the resource: {changes:?}"
    );

    // Another protocol is more than another endpoint.
    world.put(&dataplane("p-1", 2, "tcp"), "east");
    world.settle();
    assert!(world.has[&client].changes_since(&after).of(type_url::LISTENER).next().is_some());
}

/// Endpoints of clients overtake whatever else is being compiled.
#[test]
fn an_endpoint_does_not_wait_for_a_policy() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..500).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    let caller = format!(
        "{{type: Dataplane, mesh: default, name: p-0, networking: {{address: 127.0.0.1, inbound: [{{port: 8000, tags: {{kuma.io/service: web}}}}], outbound: [{outbounds}]}}}}"
    );
    world.put(&caller, "east");
    let server = |port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: s-7, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, tags: {{kuma.io/service: s-7}}}}]}}}}"
        )
    };
    world.put(&server(80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.slice(1);
    assert!(!world.meshes.is_idle(), "a policy for all of them is more than one batch");
    world.put(&server(81), "east");
    world.slice(1);
    let changes = world.has[&client].changes_since(&before);
    assert!(!world.meshes.is_idle());
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"]);
    assert_eq!(changes.0.len(), 1, "nothing half done is published: {:?}", changes.0.keys());
    world.settle();
    assert_eq!(world.has[&client].changes_since(&before).of(type_url::CLUSTER).count(), 500);
}

/// Who is selected by another policy gets everything anew, and endpoints until then.
#[test]
fn an_endpoint_does_not_wait_for_a_new_selection() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..500).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    let caller = format!(
        "{{type: Dataplane, mesh: default, name: p-0, networking: {{address: 127.0.0.1, inbound: [{{port: 8000, tags: \
         {{kuma.io/service: web, version: v1}}}}], outbound: [{outbounds}]}}}}"
    );
    world.put(&caller, "east");
    let server = |port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: s-7, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, tags: \
             {{kuma.io/service: s-7}}}}]}}}}"
        )
    };
    world.put(&server(80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    let timeout = |tag: &str| {
        format!(
            "{{type: MeshTimeout, mesh: default, name: some, spec: {{targetRef: {{kind: MeshSubset, tags: {{{tag}}}}}, to: \
             [{{targetRef: {{kind: Mesh}}, default: {{connectionTimeout: 7s}}}}]}}}}"
        )
    };
    world.put(&timeout("version: v1"), "");
    for port in 81..84 {
        world.slice(1);
        assert!(!world.meshes.is_idle(), "all it calls is more than one batch");
        world.put(&server(port), "east");
    }
    world.slice(1);
    let changes = world.has[&client].changes_since(&before);
    assert!(!world.meshes.is_idle());
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"]);
    assert_eq!(changes.0.len(), 1, "nothing half done is published: {:?}", changes.0.keys());
    // It changes its mind, and back, before all of it is made.
    world.put(&timeout("version: v2"), "");
    world.slice(1);
    world.put(&timeout("version: v1"), "");
    world.slice(1);
    world.put(&server(84), "east");
    world.settle();
    world.check(0, 0);
    assert_eq!(world.has[&client].changes_since(&before).of(type_url::CLUSTER).count(), 500);
    world.meshes.leave(&client);
    assert_eq!(world.meshes.held(), 0, "nothing of what it had before is kept");
}

/// A certificate that is only to be renewed serves until it ends, so nobody waits for the next one.
#[test]
fn what_cannot_be_renewed_holds_up_nothing() {
    let mut world = World::new(0);
    let with_tls =
        "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}";
    world.put(with_tls, "");
    world.put_authority();
    let server = |last: u32, port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: p-{last}, networking: {{address: 127.0.0.{}, inbound: [{{port: {port}, \
             tags: {{kuma.io/service: web}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: web}}}}]}}}}",
            last + 1
        )
    };
    world.put(&server(0, 80), "east");
    world.settle();
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let before = world.has[&client].clone();

    assert_eq!(world.refuse_renewals(), std::slice::from_ref(&client));

    world.put(&server(1, 81), "east");
    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.settle();
    let changes = world.has[&client].changes_since(&before);
    assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["web"]);
    assert_eq!(changes.of(type_url::CLUSTER).collect::<Vec<_>>(), ["web"]);
    assert_eq!(world.problems[&client], ["the authority is away"]);

    // Once it is signed nobody is told of trouble any more.
    world.meshes.retry(&client);
    world.settle();
    assert!(world.problems[&client].is_empty());
    assert!(world.has[&client].changes_since(&before).of(type_url::SECRET).next().is_some());

    // Without mutual TLS there is nothing to renew, and nothing that could not be renewed.
    assert!(world.refuse_renewals().contains(&client));
    world.settle();
    assert_eq!(world.problems[&client], ["the authority is away"]);
    world.put("{type: Mesh, name: default}", "");
    world.settle();
    assert!(world.problems[&client].is_empty());
}

/// What one policy names is all that is compiled for it.
#[test]
fn a_policy_for_one_service_touches_those_who_call_it() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    for i in 0..PROXIES {
        let yaml = format!(
            "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: 127.0.0.{}, inbound: [{{port: 80, tags: {{kuma.io/service: web}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: s-{}}}}}]}}}}",
            i + 1,
            i % 2
        );
        world.put(&yaml, "east");
    }
    world.settle();
    world.has.clear();
    world.put("{type: MeshTimeout, mesh: default, name: one, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: MeshService, name: s-1}, default: {connectionTimeout: 7s}}]}}", "");
    world.settle();
    let told: Vec<&str> = world.has.keys().map(|id| &*id.name).collect();
    assert_eq!(told, ["p-1", "p-3", "p-5"]);
}

/// Proxies in different places see the endpoints of a service differently, and each change once.
#[test]
fn an_endpoint_is_told_to_each_class_as_it_sees_it() {
    let mut world = World::new(0);
    world.put("{type: Mesh, name: default}", "");
    let outbounds: String =
        (0..300).map(|i| format!("{{port: {}, tags: {{kuma.io/service: s-{i}}}}},", i + 1)).collect();
    for (i, node) in ["a", "b", "a"].into_iter().enumerate() {
        let caller = format!(
            "{{type: Dataplane, mesh: default, name: p-{i}, networking: {{address: 127.0.0.{}, inbound: [{{port: 8000, tags: \
             {{kuma.io/service: web, node: {node}}}}}], outbound: [{outbounds}]}}}}",
            i + 1
        );
        world.put(&caller, "east");
    }
    let server = |name: &str, node: &str, port: u32| {
        format!(
            "{{type: Dataplane, mesh: default, name: {name}, networking: {{address: 127.0.0.7, inbound: [{{port: {port}, \
             tags: {{kuma.io/service: {name}, node: {node}}}}}]}}}}"
        )
    };
    world.put(&server("s-7", "a", 80), "east");
    world.put(&server("s-8", "a", 80), "east");
    world.settle();
    let near = |to: &str, key: &str| {
        format!(
            "{{type: MeshLoadBalancingStrategy, mesh: default, name: near, spec: {{to: [{{targetRef: {{kind: MeshService, \
             name: {to}}}, default: {{localityAwareness: {{localZone: {{affinityTags: [{{key: {key}}}]}}}}}}}}]}}}}"
        )
    };
    world.put(&near("s-7", "node"), "");
    world.settle();
    world.check(0, 0);
    let has = |world: &World, i: usize| {
        world.has[&ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}"))].clone()
    };
    let endpoints =
        |world: &World, i: usize, name: &str| has(world, i).get(type_url::ENDPOINT, name).unwrap();
    assert!(Arc::ptr_eq(&endpoints(&world, 0, "s-7"), &endpoints(&world, 2, "s-7")), "one class, one part");
    assert_ne!(endpoints(&world, 0, "s-7").version, endpoints(&world, 1, "s-7").version);
    assert!(Arc::ptr_eq(&endpoints(&world, 0, "s-8"), &endpoints(&world, 1, "s-8")), "nothing is said of it");

    // An endpoint overtakes a policy for everything, and each class sees it in its way.
    let before = [has(&world, 0), has(&world, 1)];
    world.put("{type: MeshTimeout, mesh: default, name: all, spec: {targetRef: {kind: Mesh}, to: [{targetRef: {kind: Mesh}, default: {connectionTimeout: 7s}}]}}", "");
    world.slice(1);
    world.put(&server("s-7", "a", 81), "east");
    world.slice(1);
    assert!(!world.meshes.is_idle());
    for (i, before) in before.iter().enumerate() {
        let changes = has(&world, i).changes_since(before);
        assert_eq!(changes.of(type_url::ENDPOINT).collect::<Vec<_>>(), ["s-7"], "p-{i}");
        assert_eq!(changes.0.len(), 1, "p-{i}");
    }
    let text = |world: &World, i: usize| endpoints(world, i, "s-7").to_json().unwrap().to_string();
    assert!(text(&world, 0).contains("node=a") && !text(&world, 1).contains("node="));
    world.settle();
    world.check(0, 1);

    // Another tag tells what is near, then nothing does.
    world.put(&near("s-7", "kuma.io/service"), "");
    world.settle();
    world.check(0, 2);
    assert_eq!(endpoints(&world, 0, "s-7").version, endpoints(&world, 1, "s-7").version);
    world.apply(ResourceKey::new(&mesh_load_balancing_strategy::KIND, "default", "near"), None);
    world.settle();
    world.check(0, 3);
    for i in 0..PROXIES {
        world.meshes.leave(&ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}")));
    }
    assert_eq!(world.meshes.held(), 0);
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
