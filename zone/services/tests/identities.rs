use chrono::{DateTime, Duration};
use common::{
    ca,
    keys::{KeyForm, PrivateKey},
    model::{
        Origin, Resource, ResourceKey,
        kinds::{
            destinations::MESH_IDENTITY,
            mesh,
            mesh_trust::{self, MeshTrust},
            secret,
        },
        labels,
    },
    token,
};
use serde_json::Value;

use super::world::{World, proxy};

const EXCLUSIVE: &str = "{type: Mesh, name: default, meshServices: {mode: Exclusive}}";

fn identity(provider: &str) -> String {
    format!(
        "{{type: MeshIdentity, mesh: default, name: all, labels: {{kuma.io/origin: global}}, spec: {{selector: {{dataplane: \
         {{matchLabels: {{}}}}}}, {provider}}}}}"
    )
}

const MADE: &str =
    "provider: {type: Bundled, bundled: {insecureAllowSelfSigned: true, autogenerate: {enabled: true}}}";

/// Its conditions: type, whether they hold, and reason.
fn conditions(world: &World) -> Vec<(String, bool, String)> {
    let identity = world.index.find(&MESH_IDENTITY, "default", "all").unwrap();
    let status: Value = serde_json::from_slice(identity.status.as_ref().unwrap()).unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = status["conditions"].as_array().unwrap().iter();
    all.map(|c| (text(&c["type"]), c["status"] == "True", text(&c["reason"]))).collect()
}

fn expect(world: &World, expected: &[(&str, bool, &str)]) {
    let conditions = conditions(world);
    let told: Vec<_> = conditions.iter().map(|(a, b, c)| (a.as_str(), *b, c.as_str())).collect();
    assert_eq!(told, expected);
}

fn trust(world: &World) -> Option<MeshTrust> {
    world.index.find(&mesh_trust::KIND, "default", "all").map(|trust| trust.spec().unwrap())
}

const READY: [(&str, bool, &str); 3] = [
    ("ProviderAvailable", true, "ProviderInitialized"),
    ("MeshTrustCreated", true, "MeshTrustCreated"),
    ("Ready", true, "Ready"),
];

#[test]
fn an_authority_is_made_believed_and_only_then_ready() {
    let mut world = World::new();
    world.put(EXCLUSIVE);
    world.put(&proxy("a", "web", 80, "Ready", "kuma.io/workload: shop"));
    world.put(&identity(MADE));
    // Whoever leads may end between any two writes.
    for _ in 0..20 {
        let mut writes = world.step();
        if writes.is_empty() {
            break;
        }
        let first = writes.remove(0);
        world.commit(first);
        world.die();
    }
    world.settle();
    expect(&world, &READY);
    let made = trust(&world).unwrap();
    assert_eq!((made.trust_domain.as_str(), made.ca_bundles.len()), ("default.east.mesh.local", 1));
    let root = world.index.find(&secret::SECRET, "default", "all-root-ca").unwrap();
    assert_eq!(root.owner.as_ref().map(|owner| &*owner.name), Some("all"));
    let ids: Vec<_> = world.spec("web").identities.into_iter().map(|identity| identity.value).collect();
    assert_eq!(ids, ["web", "spiffe://default.east.mesh.local/workload/shop"]);

    // A key that got lost makes a new authority; the one before is believed on.
    world.delete(&secret::SECRET, "all-private-key");
    world.settle();
    expect(&world, &READY);
    let both = trust(&world).unwrap();
    assert_eq!(both.ca_bundles.len(), 2);
    assert_eq!(both.ca_bundles[0], made.ca_bundles[0]);
}

/// The names of what comes from global are hashes, and a zone that was taken over can make them.
#[test]
fn what_another_zone_calls_like_an_identity_is_not_in_its_way() {
    let mut world = World::new();
    world.put(EXCLUSIVE);
    let key = ResourceKey::new(&mesh_trust::KIND, "default", "all");
    let taken = Resource::new(key.clone(), world.now).with_label(labels::ZONE, "stolen");
    let taken = Resource { origin: Origin::Global, ..taken.with_spec(&b"{}"[..]) };
    world.store(key.clone(), Some(taken));
    world.put(&identity(MADE));
    world.settle();
    expect(&world, &READY);
    let domain = |world: &World| {
        let trust = world.index.find(&mesh_trust::KIND, "default", "all.own");
        trust.map(|trust| (trust.display_name().to_owned(), trust.spec::<MeshTrust>().unwrap().trust_domain))
    };
    let own = Some(("all".to_owned(), "default.east.mesh.local".to_owned()));
    assert_eq!(domain(&world), own, "global and others know it by its usual name");
    world.store(key, None);
    world.die();
    world.settle();
    expect(&world, &READY);
    assert_eq!((domain(&world), trust(&world)), (own, None), "it stays where it is");
}

/// Who may write identities need not be one who may write secrets.
#[test]
fn no_root_is_made_in_the_place_of_what_somebody_keeps() {
    let kept = |name: &str, owner: Option<ResourceKey>| {
        let key = ResourceKey::new(&secret::SECRET, "default", name);
        let secret = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(token::secret_spec("of an operator"));
        Resource { origin: Origin::Zone("east".into()), owner, ..secret }
    };
    let mesh = ResourceKey::global(&mesh::KIND, "default");
    for (name, owner) in [("all-private-key", None), ("all-root-ca", Some(mesh))] {
        let mut world = World::new();
        world.put(EXCLUSIVE);
        let secret = kept(name, owner);
        world.store(secret.key.clone(), Some(secret.clone()));
        world.put(&identity(MADE));
        world.settle();
        let failed = ("Ready", false, "Failure");
        expect(&world, &[("ProviderAvailable", false, "ProviderInitializationError"), failed]);
        assert_eq!(world.index.list(&secret::SECRET).count(), 1);
        assert_eq!(world.index.get(&secret.key).unwrap().spec, secret.spec);
        // Whoever keeps it may take it away.
        world.store(secret.key, None);
        world.settle();
        expect(&world, &READY);
    }
}

#[test]
fn what_lacks_is_said() {
    let check = |mesh: &str, provider: &str, expected: &[(&str, bool, &str)]| {
        let mut world = World::new();
        world.put(mesh);
        world.put(&identity(provider));
        world.settle();
        expect(&world, expected);
        assert_eq!(trust(&world), None);
    };
    let failed = ("Ready", false, "Failure");
    check(
        "{type: Mesh, name: default}",
        MADE,
        &[("DependenciesReady", false, "MeshServicesDisabled"), failed],
    );
    check(
        EXCLUSIVE,
        "provider: {type: Bundled, bundled: {autogenerate: {enabled: true}}}",
        &[("ProviderAvailable", false, "ProviderValidationError"), failed],
    );
    check(
        EXCLUSIVE,
        "provider: {type: Spire, spire: {}}, spiffeID: {trustDomain: '{{ label \"none\" }}'}",
        &[("ProviderAvailable", false, "ProviderInitializationError"), failed],
    );
    check(
        EXCLUSIVE,
        "provider: {type: Spire, spire: {}}",
        &[("ProviderAvailable", true, "ProviderInitialized"), ("Ready", true, "Ready")],
    );
    check(
        EXCLUSIVE,
        "provider: {type: Extension, extension: {name: x}}",
        &[("ProviderAvailable", false, "ProviderInitializationError"), failed],
    );
    check(
        EXCLUSIVE,
        "provider: {type: Bundled, bundled: {ca: {certificate: {type: Secret, secretRef: {kind: Secret, name: a}}, \
         privateKey: {type: Secret, secretRef: {kind: Secret, name: b}}}}}",
        &[("ProviderAvailable", false, "ProviderValidationError"), failed],
    );
    check(
        EXCLUSIVE,
        "spiffeID: {path: /a}",
        &[("SpiffeIDProvided", true, "SpiffeIDProvided"), ("Ready", false, "PartiallyReady")],
    );
}

fn insight(name: &str, by: &str) -> String {
    seen(name, by, "")
}

fn seen(name: &str, by: &str, end: &str) -> String {
    format!(
        "{{type: DataplaneInsight, mesh: default, name: {name}, subscriptions: [{{id: '1', connectTime: \
         '2026-01-01T00:00:00Z'{end}}}], mTLS: {{issuedBackend: {by}}}}}"
    )
}

/// The name somebody was given is listed for as long as anybody shows it, whoever gives names now.
#[test]
fn a_name_is_listed_until_nobody_shows_it() {
    let mut world = World::new();
    world.put(EXCLUSIVE);
    for name in ["a", "b"] {
        world.put(&proxy(name, "web", 80, "Ready", "kuma.io/workload: shop"));
        world.put(&insight(name, "kri_mid_default___all_"));
    }
    world.put(&identity(MADE));
    world.settle();
    let ids = |world: &World| -> Vec<String> {
        world.spec("web").identities.into_iter().map(|identity| identity.value).collect()
    };
    let both = ["web", "spiffe://default.east.mesh.local/workload/shop"];
    assert_eq!(ids(&world), both);
    world.delete(&MESH_IDENTITY, "all");
    world.settle();
    assert_eq!(ids(&world), both, "both proxies still show it");
    world.put(&insight("a", "ca-1"));
    world.settle();
    world.die();
    world.settle();
    assert_eq!(ids(&world), both, "one still does");
    world.put(&seen("b", "kri_mid_default___all_", ", disconnectTime: '2026-01-01T00:00:01Z'"));
    world.settle();
    assert_eq!(ids(&world), ["web"], "who is gone shows nothing");
}

#[test]
fn an_authority_is_brought_in_four_ways() {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let root = ca::create_root("x", &key, Duration::days(1), chrono::DateTime::UNIX_EPOCH).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert_file, key_file) = (path("cert", &root.certificate), path("key", &root.key));
    let inline = |text: &str| {
        format!(
            "{{type: InsecureInline, insecureInline: {{value: {}}}}}",
            serde_json::to_string(text).unwrap()
        )
    };
    let check = |certificate: String, key: String, is_ready: bool| {
        let mut world = World::new();
        world.put(EXCLUSIVE);
        for (name, text) in [("cert", &root.certificate), ("key", &root.key)] {
            let mut secret =
                Resource::new(common::model::ResourceKey::new(&secret::SECRET, "default", name), world.now);
            secret.spec = token::secret_spec(text.as_bytes()).into();
            world.store(secret.key.clone(), Some(secret));
        }
        world.put(&identity(&format!(
            "provider: {{type: Bundled, bundled: {{insecureAllowSelfSigned: true, ca: {{certificate: {certificate}, privateKey: \
             {key}}}}}}}"
        )));
        world.settle();
        assert_eq!(conditions(&world).last().unwrap().1, is_ready, "{certificate}: {:?}", conditions(&world));
        assert_eq!(trust(&world).is_some(), is_ready);
    };
    let secret = |name: &str| format!("{{type: Secret, secretRef: {{kind: Secret, name: {name}}}}}");
    let file = |path: &str| format!("{{type: File, file: {{path: {path}}}}}");
    let variable = |name: &str| format!("{{type: EnvVar, envVar: {{name: {name}}}}}");
    check(secret("cert"), secret("key"), true);
    check(inline(&root.certificate), inline(&root.key), true);
    check(file(&cert_file), file(&key_file), true);
    check(file("/nowhere"), file(&key_file), false);
    check(variable("STRAIT_NO_SUCH_VARIABLE"), secret("key"), false);
    let other = PrivateKey::generate(KeyForm::P256).unwrap();
    check(inline(&root.certificate), inline(other.pem()), false);
}
