//! Identities that proxies are given, and who is believed.

use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    model::{
        Resource, ResourceKey,
        kinds::{destinations::MESH_IDENTITY, mesh_trust, secret},
    },
    token,
};
use rand::Rng;

use super::*;

const DOMAINS: [&str; 2] = ["default.east.mesh.local", "default.west.mesh.local"];

pub(super) const BUNDLED: &str = "{type: Bundled, bundled: {autogenerate: {enabled: true}}}";
const SPIRE: &str = "{type: Spire, spire: {agent: {timeout: 2s}}}";

pub(super) fn identity(n: usize, selector: &str, state: &str) -> String {
    identity_from(n, selector, state, BUNDLED)
}

fn identity_from(n: usize, selector: &str, state: &str, provider: &str) -> String {
    format!(
        "{{type: MeshIdentity, mesh: default, name: mid-{n}, spec: {{selector: {{dataplane: {{matchLabels: {selector}}}}}, \
         spiffeID: {{path: /workload/w-{n}}}, provider: {provider}}}, \
         status: {{conditions: [{{type: Ready, status: '{state}', reason: a, message: b}}]}}}}"
    )
}

impl World {
    /// The secrets of the identities that come and go.
    pub(super) fn put_identity_authorities(&mut self) {
        for n in 0..2 {
            let key = PrivateKey::generate(KeyForm::P256).unwrap();
            let root = ca::create_root(DOMAINS[0], &key, TimeDelta::days(1), self.now).unwrap();
            for (name, data) in [("root-ca", root.certificate), ("private-key", root.key)] {
                let key = ResourceKey::new(&secret::SECRET, "default", &format!("mid-{n}-{name}"));
                let secret = Resource::new(key.clone(), DateTime::UNIX_EPOCH);
                self.apply(key, Some(secret.with_spec(token::secret_spec(data))));
            }
        }
    }

    fn root_of(&self, n: usize) -> String {
        let key = ResourceKey::new(&secret::SECRET, "default", &format!("mid-{n}-root-ca"));
        String::from_utf8(token::data_of(self.index.get(&key).unwrap()).unwrap()).unwrap()
    }

    fn put_trust(&mut self, n: usize, domain: &str, labels: &str) {
        self.put_trust_in("default", n, domain, labels);
    }

    /// Says in a mesh that the authority of an identity is believed about this domain.
    pub(super) fn put_trust_in(&mut self, mesh: &str, n: usize, domain: &str, labels: &str) {
        let root = serde_json::to_string(&self.root_of(n)).unwrap();
        self.put(
            &format!(
                "{{type: MeshTrust, mesh: {mesh}, name: mid-{n}, labels: {{{labels}}}, spec: {{trustDomain: {domain}, \
                 caBundles: [{{type: Pem, pem: {{value: {root}}}}}]}}}}"
            ),
            "east",
        );
    }

    /// Somebody gives identities, or does not any more; somebody is believed, or is not; time passes.
    pub(super) fn change_identities(&mut self, n: usize, one: &str, other: &str) {
        match self.rng.random_range(0..8_u32) {
            0..=1 => {
                let provider = [BUNDLED, SPIRE][self.rng.random_range(0..2)];
                let (selector, state) = (["{}", "{team: a}", "{}"][n % 3], ["True", "False", "True"][n % 3]);
                self.put(&identity_from(n % 2, selector, state, provider), "east");
            }
            2 => {
                let key = ResourceKey::new(&MESH_IDENTITY, "default", &format!("mid-{}", n % 2));
                self.apply(key, None);
            }
            3..=4 => self.put_trust(n % 2, DOMAINS[n % 3 % 2], ["", "kuma.io/zone: west"][n % 2]),
            5 => {
                let key = ResourceKey::new(&mesh_trust::KIND, "default", &format!("mid-{}", n % 2));
                self.apply(key, None);
            }
            6 => self.put(
                &format!(
                    "{{type: MeshService, mesh: default, name: {one}-here, spec: {{selector: {{dataplaneTags: {{kuma.io/service: \
                     {other}}}}}, ports: [{{port: 80, appProtocol: http}}], identities: [{{type: SpiffeID, value: \
                     'spiffe://{}/workload/w-{n}'}}, {{type: ServiceTag, value: {other}}}]}}}}",
                    DOMAINS[n % 2]
                ),
                "east",
            ),
            _ => self.now += TimeDelta::seconds(6),
        }
    }
}

const MTLS: &str =
    "{type: Mesh, name: default, mtls: {enabledBackend: ca-1, backends: [{name: ca-1, type: builtin}]}}";

fn server() -> ProxyId {
    ProxyId::new(ProxyKind::Dataplane, "default", "p-0")
}

fn secrets(world: &World) -> Vec<String> {
    let set = &world.has[&server()];
    let secrets = set.iter().filter(|resource| resource.type_url == type_url::SECRET);
    let mut names: Vec<String> = secrets.map(|resource| resource.name.to_string()).collect();
    names.sort();
    names
}

fn world() -> World {
    let mut world = World::new(0);
    world.put(MTLS, "");
    world.put_authority();
    world.put_identity_authorities();
    world.put(
        "{type: Dataplane, mesh: default, name: p-0, networking: {address: 127.0.0.1, inbound: [{port: 80, tags: \
         {kuma.io/service: web}}], outbound: [{port: 1, tags: {kuma.io/service: web}}]}}",
        "east",
    );
    world.settle();
    world
}

/// Others hear of the authority that signs next before they meet anybody with a certificate of it.
#[test]
fn an_identity_is_given_once_everybody_heard_of_it() {
    let mut world = world();
    assert_eq!(secrets(&world), ["identity_cert:secret:default", "mesh_ca:secret:default"]);
    world.put_trust(0, DOMAINS[0], "");
    world.put(&identity(0, "{}", "True"), "east");
    world.settle();
    let all = ["identity_cert:secret:default", "mesh_ca:secret:default", "system_trust_bundle"];
    assert_eq!(secrets(&world), all, "they are believed, and not in use");
    world.check(0, 0);
    world.now += TimeDelta::seconds(9);
    world.settle();
    assert_eq!(secrets(&world), all);
    world.now += TimeDelta::seconds(1);
    world.settle();
    let given = ["kri_mid_default___mid-0_", "mesh_ca:secret:default", "system_trust_bundle"];
    assert_eq!(secrets(&world), given);
    world.check(0, 1);

    // Whoever begins with it has nothing to wait for.
    world.meshes.leave(&server());
    world.certificates.clear();
    world.meshes.arrive(&proxy(ProxyKind::Dataplane, "p-0"));
    world.settle();
    assert_eq!(secrets(&world), given);

    // Without mutual TLS of the mesh it stays.
    world.put("{type: Mesh, name: default}", "");
    world.settle();
    assert_eq!(secrets(&world), ["kri_mid_default___mid-0_", "system_trust_bundle"]);
    world.check(0, 2);
}

fn of_agent(world: &World) -> bool {
    world.has[&server()].get(type_url::CLUSTER, "system_identity_sds-spire-agent").is_some()
}

/// Where an agent knows who a proxy is, nothing of that comes from here but how to ask the agent; and others hear of the
/// new name first, whichever way it goes.
#[test]
fn an_identity_is_taken_from_an_agent_and_given_back() {
    let mut world = world();
    let of_mesh = ["identity_cert:secret:default", "mesh_ca:secret:default"];
    world.put(&identity_from(0, "{}", "True", SPIRE), "east");
    world.settle();
    assert!(!of_agent(&world), "its name is listed, and not in use");
    assert_eq!(secrets(&world), of_mesh);
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert!(of_agent(&world));
    assert_eq!(secrets(&world), [""; 0]);
    world.check(0, 0);
    let cluster =
        |world: &World| world.has[&server()].get(type_url::CLUSTER, "web").unwrap().to_json().unwrap();
    let asked = cluster(&world).to_string();
    for name in ["spiffe://default.east.mesh.local/workload/w-0", "system_identity_sds-spire-agent", "ALL"] {
        assert!(asked.contains(&format!("\"{name}\"")), "{name}: {asked}");
    }

    // Another timeout is no other identity.
    world.put(&identity_from(0, "{}", "True", "{type: Spire, spire: {}}"), "east");
    world.settle();
    let agent = world.has[&server()].get(type_url::CLUSTER, "system_identity_sds-spire-agent").unwrap();
    assert_eq!(agent.to_json().unwrap()["connectTimeout"], "1s");

    let key = ResourceKey::new(&MESH_IDENTITY, "default", "mid-0");
    world.apply(key, None);
    world.settle();
    assert!(of_agent(&world), "others may not have heard yet that it is a member of the mesh again");
    world.check(0, 1);
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert!(!of_agent(&world));
    assert_eq!(secrets(&world), of_mesh);
    assert!(!cluster(&world).to_string().contains("system_identity_sds-spire-agent"));
    world.check(0, 2);
}

/// Signing takes a while, in which it may be decided that the proxy is somebody else.
#[test]
fn what_was_signed_too_late_takes_the_place_of_nothing() {
    let mut world = world();
    world.now += TimeDelta::hours(20);
    world.meshes.renew(world.now);
    world.meshes.work(world.now, || false);
    let late = world.meshes.unsigned(world.now);
    assert_eq!(late.len(), 1, "one certificate is renewed");
    world.put(&identity_from(0, "{}", "True", SPIRE), "east");
    world.settle();
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert!(of_agent(&world));
    let now = world.now;
    let answers = late.into_iter().map(|(id, request)| {
        let signed = sign(&request, None, now);
        SigningAnswer { id, request, signed }
    });
    let answers = answers.collect();
    world.meshes.signed(answers, |id| panic!("nothing for {id}"));
    world.settle();
    assert!(of_agent(&world), "it was told to ask the agent");
    world.check(0, 0);
    // What is wanted again is asked for again.
    world.apply(ResourceKey::new(&MESH_IDENTITY, "default", "mid-0"), None);
    world.settle();
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert_eq!(secrets(&world), ["identity_cert:secret:default", "mesh_ca:secret:default"]);
}

/// Whoever was given a name shows it until others had the time to hear of the next one, whoever gives that.
#[test]
fn a_name_is_shown_until_others_heard_of_the_next() {
    let mut world = world();
    world.put_trust(0, DOMAINS[0], "");
    world.put_trust(1, DOMAINS[0], "");
    let given = |world: &World| secrets(world).into_iter().find(|name| name.starts_with("kri_mid_"));
    world.put(&identity(0, "{}", "True"), "east");
    world.settle();
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert_eq!(given(&world).as_deref(), Some("kri_mid_default___mid-0_"));
    let moves = |world: &mut World, change: &mut dyn FnMut(&mut World), next: Option<&str>| {
        let before = given(world);
        change(world);
        world.settle();
        assert_eq!(given(world), before, "{next:?} is not in use yet");
        world.now += TimeDelta::seconds(10);
        world.settle();
        assert_eq!(given(world).as_deref(), next);
        world.check(0, 0);
    };
    // Another one, which is narrower, then the mesh itself.
    let narrower = &mut |world: &mut World| {
        world.put(
            "{type: Dataplane, mesh: default, name: p-0, labels: {team: a}, networking: {address: 127.0.0.1, inbound: \
             [{port: 80, tags: {kuma.io/service: web}}], outbound: [{port: 1, tags: {kuma.io/service: web}}]}}",
            "east",
        );
        world.put(&identity(1, "{team: a}", "True"), "east");
    };
    moves(&mut world, narrower, Some("kri_mid_default___mid-1_"));
    let gone = &mut |world: &mut World| {
        for n in 0..2 {
            world.apply(ResourceKey::new(&MESH_IDENTITY, "default", &format!("mid-{n}")), None);
        }
    };
    moves(&mut world, gone, None);
}

/// The root of a second backend is believed before it signs.
#[test]
fn another_authority_of_the_mesh_is_believed_before_it_signs() {
    let mut world = world();
    let mesh = |enabled: &str, backends: &[&str]| {
        let listed: String =
            backends.iter().map(|name| format!("{{name: {name}, type: builtin}},")).collect();
        format!("{{type: Mesh, name: default, mtls: {{enabledBackend: {enabled}, backends: [{listed}]}}}}")
    };
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let root = ca::create_root("default", &key, TimeDelta::days(1), world.now).unwrap();
    for (name, data) in [
        (ca::certificate_secret("default", "ca-2"), &root.certificate),
        (ca::key_secret("default", "ca-2"), &root.key),
    ] {
        let key = ResourceKey::new(&secret::SECRET, "default", &name);
        let secret = Resource::new(key.clone(), DateTime::UNIX_EPOCH);
        world.apply(key, Some(secret.with_spec(token::secret_spec(data.as_bytes()))));
    }
    let believed = |world: &World| {
        let secret = world.has[&server()].get(type_url::SECRET, "mesh_ca:secret:default").unwrap().to_json();
        let text =
            secret.unwrap()["validationContext"]["trustedCa"]["inlineBytes"].as_str().unwrap().to_owned();
        let pem = base64::Engine::decode(&base64::prelude::BASE64_STANDARD, text).unwrap();
        String::from_utf8(pem).unwrap().matches("BEGIN CERTIFICATE").count()
    };
    world.put(&mesh("ca-1", &["ca-1", "ca-2"]), "");
    world.settle();
    assert_eq!(believed(&world), 2);
    assert_eq!(world.certificates[&(server(), "default".into())].backend, "ca-1");
    world.put(&mesh("ca-2", &["ca-1", "ca-2"]), "");
    world.settle();
    assert_eq!(
        world.certificates[&(server(), "default".into())].backend,
        "ca-1",
        "everybody has to hear of it first"
    );
    world.now += TimeDelta::seconds(10);
    world.settle();
    assert_eq!(world.certificates[&(server(), "default".into())].backend, "ca-2");
    world.put(&mesh("ca-2", &["ca-2"]), "");
    world.settle();
    assert_eq!(believed(&world), 1);
    world.check(0, 0);

    // Where the old one is not believed any more there is nothing to wait for.
    world.put(&mesh("ca-1", &["ca-1"]), "");
    world.settle();
    assert_eq!(world.certificates[&(server(), "default".into())].backend, "ca-1");
}
