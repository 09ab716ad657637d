//! Doing only what a change asks for must come to the same as doing everything again.
#![allow(clippy::unwrap_used)]

use chrono::{DateTime, TimeDelta};
use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    model::{Origin, Resource, ResourceKey, document::Document, kinds::secret},
    proto::google::protobuf::Struct,
    runtime::Entropy,
    store::{Change, StoreIdentity},
    token,
};
use rand::{Rng, rngs::StdRng};

use super::*;
use crate::{
    ads::{
        node::{Proxy, ProxyKind},
        proxies::{Session, StreamView},
    },
    generator::{self, ProxyMetadata, ResourceSet, Sidecar, type_url},
    mesh::MeshInput,
};

const PROXIES: usize = 6;
const SERVICES: [&str; 5] = ["web", "web-api", "db", "cache", "queue"];

struct World {
    push: Push,
    index: watch::Sender<Arc<Index>>,
    _hosts: watch::Sender<Hosts>,
    _sessions: Vec<Session>,
    rng: StdRng,
}

impl World {
    fn new(seed: u64) -> Self {
        let env = Env::system("test");
        let proxies = Arc::new(Proxies::default());
        let sessions = (0..PROXIES).map(|i| {
            let id = ProxyId::new(ProxyKind::Dataplane, "default", &format!("p-{i}"));
            let proxy = Proxy { id, metadata: Arc::new(Struct::default()), user_agent: String::new() };
            proxies.join(Arc::new(proxy), None, StreamView::default())
        });
        let sessions = sessions.collect();
        let index = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        let index = watch::Sender::new(Arc::new(index));
        let hosts = watch::Sender::new(Hosts::default());
        let zone: Arc<str> = "east".into();
        let insights = Arc::new(Insights::new(&zone, &env));
        let reader = IndexReader::new(index.subscribe());
        let push = Push::new(zone, env, reader, hosts.subscribe(), proxies, insights, None);
        let rng = Entropy::seeded(seed).with(|rng| rng.clone());
        Self { push, index, _hosts: hosts, _sessions: sessions, rng }
    }

    fn apply(&mut self, key: ResourceKey, resource: Option<Resource>) {
        let mut next = Index::clone(&self.index.borrow());
        let change = Change { revision: next.revision + 1, key, resource: resource.map(Arc::new) };
        next.apply(&change);
        self.index.send_replace(Arc::new(next));
    }

    fn put(&mut self, yaml: &str, origin: &str) {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(DateTime::UNIX_EPOCH);
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

    /// The secrets of the backend `ca-1`.
    fn put_authority(&mut self) {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let root = ca::create_root("default", &key, TimeDelta::days(1), self.push.env.now()).unwrap();
        for (name, data) in [
            (ca::certificate_secret("default", "ca-1"), &root.certificate),
            (ca::key_secret("default", "ca-1"), &root.key),
        ] {
            let key = ResourceKey::new(&secret::SECRET, "default", &name);
            let secret = Resource::new(key.clone(), DateTime::UNIX_EPOCH)
                .with_spec(token::secret_spec(data.as_bytes()));
            self.apply(key, Some(secret));
        }
    }

    fn service(&mut self) -> &'static str {
        SERVICES[self.rng.random_range(0..SERVICES.len())]
    }

    /// One random change of the kinds that happen.
    fn change(&mut self) {
        let n = self.rng.random_range(0..10_usize);
        let (one, other) = (self.service(), self.service());
        let who = self.rng.random_range(0..PROXIES + 2);
        match self.rng.random_range(0..12_u32) {
            0..=5 => {
                let protocol = ["http", "tcp", "grpc"][n % 3];
                let state = ["Ready", "Ready", "NotReady"][n % 3];
                let yaml = format!(
                    "{{type: Dataplane, mesh: default, name: p-{who}, networking: {{address: 127.0.0.{}, inbound: \
                     [{{port: 80, servicePort: 8080, state: {state}, tags: {{kuma.io/service: {one}, version: v{}, \
                     kuma.io/protocol: {protocol}}}}}], outbound: [{{port: 1, tags: {{kuma.io/service: {other}}}}}, \
                     {{port: 2, tags: {{kuma.io/service: web, version: v1}}}}, \
                     {{port: 3, backendRef: {{kind: MeshService, name: {one}-here, port: 80}}}}, \
                     {{port: 4, backendRef: {{kind: MeshService, name: far, port: 80}}}}]}}}}",
                    who + 1,
                    n % 2
                );
                self.put(&yaml, "east");
            }
            6 => {
                let name = format!("p-{who}");
                let kind = &common::model::kinds::dataplane::KIND;
                self.apply(ResourceKey::new(kind, "default", &name), None);
            }
            7 => {
                let split = format!(
                    "{{type: MeshHTTPRoute, mesh: default, name: split, spec: {{targetRef: {{kind: Mesh}}, to: \
                     [{{targetRef: {{kind: MeshService, name: {one}}}, rules: [{{matches: [{{path: {{type: \
                     PathPrefix, value: /}}}}], default: {{backendRefs: [{{kind: MeshService, name: {other}, \
                     weight: 1}}, {{kind: MeshServiceSubset, name: web, tags: {{version: v0}}, weight: 1}}]}}}}]}}]}}}}"
                );
                self.put(&split, "");
            }
            8 => {
                let ingress = format!(
                    "{{type: ZoneIngress, name: west-in, zone: west, networking: {{address: 10.0.0.1, port: 1, \
                     advertisedAddress: 10.0.0.1, advertisedPort: {}}}, availableServices: [{{mesh: default, \
                     instances: 1, tags: {{kuma.io/service: {one}, kuma.io/zone: west}}}}]}}",
                    n + 1
                );
                self.put(&ingress, "west");
            }
            9 => {
                let insight = format!(
                    "{{type: DataplaneInsight, mesh: default, name: p-{who}, mTLS: {{issuedBackend: {}}}}}",
                    ["''", "ca-1"][n % 2]
                );
                self.put(&insight, "east");
            }
            10 => {
                let seconds = format!(
                    "{{type: MeshTimeout, mesh: default, name: all, spec: {{targetRef: {{kind: Mesh}}, to: \
                     [{{targetRef: {{kind: Mesh}}, default: {{idleTimeout: {}s}}}}]}}}}",
                    n + 1
                );
                self.put(&seconds, "");
            }
            _ => {
                let mtls = [
                    "{type: Mesh, name: default}",
                    "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}",
                    "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin, mode: PERMISSIVE}]}}",
                ];
                self.put(mtls[n % 3], "");
            }
        }
    }

    /// Compares what every proxy has with what it would get from scratch.
    fn check(&self, seed: u64, step: usize) -> usize {
        let index = Arc::clone(&self.index.borrow());
        let input = MeshInput::from_index("east", "default", &index, Hosts::default());
        let context = MeshContext::build(&input, None).unwrap();
        let mut compared = 0;
        for (id, held) in &self.push.held {
            let Some(dataplane) = context.dataplanes.get(&id.name) else { continue };
            let sidecar = Sidecar {
                dataplane: Arc::clone(dataplane),
                metadata: ProxyMetadata::default(),
                certificate: context.mtls.is_some().then(|| held.certificate.clone()).flatten(),
                admin: None,
            };
            let fresh = generator::sidecar(&sidecar, &context, &Interner::default()).unwrap().set;
            let has = held.config.as_ref().unwrap().resources();
            let differs = fresh.changes_since(has);
            assert!(differs.is_empty(), "seed {seed}, step {step}, {id}: {differs:?}");
            compared += 1;
        }
        compared
    }
}

#[tokio::test]
async fn incremental_rounds_come_to_the_same_as_full_ones() {
    let mut compared = 0;
    for seed in 0..6 {
        let mut world = World::new(seed);
        world.put("{type: Mesh, name: default}", "");
        world.put_services();
        world.put_authority();
        for step in 0..60 {
            for _ in 0..world.rng.random_range(1..3) {
                world.change();
            }
            world.push.round(Affected::default()).await;
            compared += world.check(seed, step);
        }
    }
    assert!(compared > 800, "only {compared} configurations were compared");
}

#[tokio::test]
async fn an_endpoint_more_leaves_everything_else_as_it_is() {
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
    world.push.round(Affected::default()).await;
    let client = ProxyId::new(ProxyKind::Dataplane, "default", "p-0");
    let config = |world: &World| world.push.held[&client].config.as_ref().unwrap().resources().clone();
    // Secrets are made anew with everything else, so who has the same one was not generated again.
    let secret = |set: &ResourceSet| {
        let (_, secret) = set.of_type(type_url::SECRET).next().unwrap();
        Arc::clone(secret)
    };

    let before = config(&world);
    world.put(&dataplane("p-1", 2, "http"), "east");
    world.push.round(Affected::default()).await;
    let after = config(&world);
    let changes = after.changes_since(&before);
    assert_eq!(changes.0.keys().copied().collect::<Vec<_>>(), [type_url::ENDPOINT]);
    assert_eq!(
        changes.of(type_url::ENDPOINT).count(),
        3,
        "the service, its subset and the resource: {changes:?}"
    );
    assert!(Arc::ptr_eq(&secret(&before), &secret(&after)), "everything was generated again");

    // Another protocol is more than another endpoint.
    world.put(&dataplane("p-1", 2, "tcp"), "east");
    world.push.round(Affected::default()).await;
    let last = config(&world);
    assert!(last.changes_since(&after).of(type_url::LISTENER).next().is_some());
}
