//! A mesh whose zones are of Kuma's and of ours: what one has of services, identities and ways in and out arrives at the
//! other as it is, in both directions, under a global of either.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use common::{
    ca,
    kds::{codec, order},
    keys::{KeyForm, PrivateKey},
    model::{Kind, Origin, Resource, ResourceKey, kinds, labels, transcode},
    proto::envoy::service::discovery::v3::DeltaDiscoveryResponse,
    registry,
};
use serde_json::{Value, json};
use zone::kds::ZoneKdsSettings;

use crate::{
    kumas_global::KumasGlobal,
    plane::{Plane, store},
    scripted::{Answering, Asking, Scripted},
    world::World,
};

const OURS: &str = "zone-1";
const THEIRS: &str = "zone-2";
const MODES: [&str; 4] = ["Disabled", "Everywhere", "ReachableBackends", "Exclusive"];

fn resource(kind: &'static Kind, name: &str, spec: &Value) -> Resource {
    let key = ResourceKey::new(kind, if kind.is_mesh_scoped() { "default" } else { "" }, name);
    let spec = transcode::from_json(kind, spec).unwrap();
    Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(spec)
}

/// What a zone has that is for the others as well.
fn of_zone(zone: &str) -> Vec<Resource> {
    let key = PrivateKey::generate(KeyForm::P256).unwrap();
    let root =
        ca::create_root("default", &key, chrono::Duration::days(1), chrono::DateTime::UNIX_EPOCH).unwrap();
    let service = json!({
        "state": "Available",
        "selector": {"dataplaneTags": {"kuma.io/service": "stock"}},
        "ports": [{"port": 80, "targetPort": 8080, "appProtocol": "http", "name": "http"}],
        "identities": [
            {"type": "ServiceTag", "value": "stock"},
            {"type": "SpiffeID", "value": format!("spiffe://default.{zone}.mesh.local/workload/stock")},
        ],
    });
    let trust = json!({
        "trustDomain": format!("default.{zone}.mesh.local"),
        "caBundles": [{"type": "Pem", "pem": {"value": root.certificate}}],
    });
    let ingress = json!({
        "zone": zone,
        "networking": {"address": "10.0.0.1", "port": 10001, "advertisedAddress": "10.0.0.2",
            "advertisedPort": 10002},
        "availableServices": [{"mesh": "default", "instances": 2, "tags": {"kuma.io/service": "stock"}},
            {"mesh": "default", "instances": 1, "externalService": true, "tags": {"kuma.io/service": "outside"}}],
    });
    vec![
        resource(&kinds::mesh_service::KIND, &format!("stock-{zone}"), &service),
        resource(&kinds::mesh_trust::KIND, &format!("given-{zone}"), &trust),
        resource(
            &kinds::mesh_zone_address::KIND,
            &format!("door-{zone}"),
            &json!({"address": "10.0.0.3", "port": 1}),
        ),
        resource(&kinds::zone_ingress::KIND, &format!("ingress-{zone}"), &ingress),
    ]
}

/// What only global knows of it: a way out, and who is believed about somebody else.
fn for_nobody_else(zone: &str) -> Vec<Resource> {
    let egress = json!({"zone": zone, "networking": {"address": "10.0.0.4", "port": 10003}});
    let mut foreign = of_zone("elsewhere").swap_remove(1);
    foreign.key = ResourceKey::new(&kinds::mesh_trust::KIND, "default", &format!("foreign-{zone}"));
    vec![resource(&kinds::zone_egress::KIND, &format!("egress-{zone}"), &egress), foreign]
}

/// What everybody gets from global.
fn of_everybody() -> Vec<Resource> {
    let ports = json!([{"port": 80, "appProtocol": "http", "name": "http"}]);
    let several = json!({"selector": {"meshService": {"matchLabels": {"app": "stock"}}}, "ports": ports});
    let outside = json!({
        "match": {"type": "HostnameGenerator", "port": 80, "protocol": "http"},
        "endpoints": [{"address": "out.example", "port": 80}],
    });
    let identity = json!({
        "selector": {"dataplane": {"matchLabels": {}}},
        "provider": {"type": "Bundled", "bundled": {"insecureAllowSelfSigned": true, "autogenerate": {"enabled": true}}},
    });
    vec![
        resource(&kinds::destinations::MESH_MULTI_ZONE_SERVICE, "everywhere", &several),
        resource(&kinds::mesh_external_service::KIND, "outside", &outside),
        resource(&kinds::identity::KIND, "given", &identity),
    ]
}

/// Kind and name that its author gave it, of every resource that counts here, with its spec and zone.
type Seen = BTreeMap<(String, String), (Value, Option<String>)>;

fn seen(
    kind: &'static Kind,
    name: &str,
    spec: &[u8],
    zone: Option<&str>,
) -> ((String, String), (Value, Option<String>)) {
    let spec = transcode::to_json(kind, spec).unwrap();
    ((kind.name.to_owned(), name.to_owned()), (spec, zone.map(str::to_owned)))
}

/// What is to arrive of these, which are of `zone`, or of global.
fn expected(resources: &[Resource], zone: Option<&str>) -> Seen {
    resources.iter().map(|one| seen(one.kind(), one.display_name(), &one.spec, zone)).collect()
}

/// What a zone of ours holds that it does not own.
fn held(zone: &Plane, kinds: &[&'static Kind]) -> Seen {
    let index = zone.index.current();
    let others = |kind: &&'static Kind| {
        let all: Vec<Arc<Resource>> = index.list(kind).cloned().collect();
        all.into_iter().filter(|one| one.origin == Origin::Global)
    };
    let all = kinds.iter().flat_map(others);
    all.map(|one| seen(one.kind(), one.display_name(), &one.spec, one.label(labels::ZONE))).collect()
}

/// What a zone of Kuma's was sent.
#[derive(Default)]
struct Taken(BTreeMap<String, Seen>);

impl Taken {
    fn take(&mut self, response: &DeltaDiscoveryResponse) {
        let kind = registry::by_name(&response.type_url).unwrap();
        for removed in &response.removed_resources {
            self.0.remove(&format!("{} {removed}", kind.name));
        }
        for item in &response.resources {
            let decoded = codec::decode(kind, item.resource.as_ref().unwrap()).unwrap();
            let zone = decoded.labels.get(labels::ZONE);
            let name = decoded.labels.get(labels::DISPLAY_NAME).unwrap_or(&decoded.key.name);
            let one = seen(kind, name, &decoded.spec, zone);
            self.0.insert(format!("{} {}", kind.name, item.name), [one].into());
        }
    }

    fn all(&self) -> Seen {
        self.0.values().flatten().map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Goes on taking until this is what there is.
    async fn until(&mut self, down: &mut Asking, expected: &Seen) {
        while self.all() != *expected {
            let response = down.next().await;
            self.take(&response);
            down.reply(&response, None).await;
        }
    }
}

fn shared_kinds() -> Vec<&'static Kind> {
    let mut kinds: Vec<&'static Kind> =
        of_zone(OURS).iter().chain(&for_nobody_else(OURS)).map(Resource::kind).collect();
    kinds.extend(of_everybody().iter().map(Resource::kind));
    kinds.sort_by_key(|kind| kind.name);
    kinds.dedup_by_key(|kind| kind.name);
    kinds
}

/// As a zone of Kuma's says of its own.
fn labelled(resource: Resource, zone: &str) -> Resource {
    let name = resource.name().to_owned();
    resource
        .with_label(labels::ORIGIN, labels::ORIGIN_ZONE)
        .with_label(labels::ZONE, zone)
        .with_label(labels::DISPLAY_NAME, &name)
}

/// Says all of what a zone of Kuma's has; global takes it.
async fn tell(up: &mut Answering, nonce: u64, all: &[Resource]) {
    let mut by_type: BTreeMap<&str, Vec<Resource>> = BTreeMap::new();
    for one in all {
        by_type.entry(one.kind().name).or_default().push(one.clone());
    }
    for (type_url, resources) in by_type {
        up.send(type_url, nonce, &resources, &[]).await;
        let verdict = up.verdict(type_url).await;
        assert_eq!(verdict.error_detail, None, "{type_url}");
    }
}

fn settings() -> ZoneKdsSettings {
    let backoff = (Duration::from_millis(10), Duration::from_millis(50));
    ZoneKdsSettings { backoff, ..ZoneKdsSettings::new(OURS) }
}

fn mesh(mode: &str) -> Resource {
    let spec = transcode::from_json(&kinds::mesh::KIND, &json!({"meshServices": {"mode": mode}})).unwrap();
    Resource::new(ResourceKey::new(&kinds::mesh::KIND, "", "default"), chrono::DateTime::UNIX_EPOCH)
        .with_spec(spec)
}

#[tokio::test]
async fn zones_of_both_kinds_share_a_mesh_under_our_global() {
    let world = World::new().await;
    let mut ours = Plane::start(store(7), OURS, 7).await;
    let _link = ours.follow(settings(), Arc::clone(&world.dial));
    let theirs = Scripted::like_kumas(&world.dial, THEIRS).await;
    let kinds = shared_kinds();
    let wanted = order::requested_by_zone();
    let asked = kinds.iter().filter(|kind| wanted.iter().any(|wanted| wanted.name == kind.name));
    let mut first: Vec<_> = asked.map(|kind| theirs.first(kind.name)).collect();
    first.push(theirs.first("Mesh"));
    let mut down = theirs.ask(first).await.unwrap();
    let mut up = theirs.answer().await.unwrap();
    let mut taken = Taken::default();

    let everybody = of_everybody();
    for one in &everybody {
        world.global.put(one.clone()).await;
    }
    let (of_ours, of_theirs) = (of_zone(OURS), of_zone(THEIRS));
    let both = of_theirs.iter().cloned().chain(for_nobody_else(THEIRS));
    tell(&mut up, 1, &both.map(|one| labelled(one, THEIRS)).collect::<Vec<_>>()).await;
    for one in of_ours.iter().cloned().chain(for_nobody_else(OURS)) {
        let name = one.name().to_owned();
        let own = Resource { origin: Origin::Zone(OURS.into()), ..one };
        ours.put(labelled(own, OURS).with_label(labels::DISPLAY_NAME, &name)).await;
    }

    // Whatever a mesh does with services, it is what its zones are told.
    for mode in MODES {
        world.global.put(mesh(mode)).await;
        let spec = transcode::to_json(&kinds::mesh::KIND, &mesh(mode).spec).unwrap();
        let from_global = expected(&everybody, None);
        let mut to_ours = expected(&of_theirs, Some(THEIRS));
        to_ours.extend(from_global.clone());
        ours.until(mode, |index| {
            let mesh = index.find(&kinds::mesh::KIND, "", "default");
            mesh.is_some_and(|mesh| transcode::to_json(&kinds::mesh::KIND, &mesh.spec).unwrap() == spec)
                && held(&ours, &kinds) == to_ours
        })
        .await;
        let mut to_theirs = expected(&of_ours, Some(OURS));
        to_theirs.extend(from_global);
        to_theirs.insert(("Mesh".to_owned(), "default".to_owned()), (spec, None));
        taken.until(&mut down, &to_theirs).await;
    }

    // What is gone there is gone here.
    let gone = crate::scripted::on_global(&labelled(of_theirs[0].clone(), THEIRS), THEIRS);
    up.send("MeshService", 2, &[], &[&format!("{}.default", gone.name())]).await;
    assert_eq!(up.verdict("MeshService").await.error_detail, None);
    ours.until("one service less", |index| index.count(&kinds::mesh_service::KIND) == 1).await;
    ours.delete(of_ours[0].key.clone()).await;
    let mut left = taken.all();
    left.retain(|(kind, _), _| kind != "MeshService");
    taken.until(&mut down, &left).await;
}

#[tokio::test]
async fn a_zone_of_ours_shares_a_mesh_under_a_global_of_kumas() {
    let mut global = KumasGlobal::start(true).await;
    let mut ours = Plane::start(store(8), OURS, 8).await;
    let of_ours = of_zone(OURS);
    for one in of_ours.iter().cloned().chain(for_nobody_else(OURS)) {
        ours.put(Resource { origin: Origin::Zone(OURS.into()), ..one }).await;
    }
    let _link = ours.follow(settings(), Arc::clone(&global.dial));
    let (mut down, mut up) = global.accept().await;

    // As a global of Kuma's passes on what its zones have.
    let of_theirs = of_zone(THEIRS);
    let relayed = |one: &Resource| crate::scripted::on_global(&labelled(one.clone(), THEIRS), THEIRS);
    let everybody = of_everybody();
    let named = |one: &Resource| {
        let name = one.name().to_owned();
        one.clone().with_label(labels::ORIGIN, labels::ORIGIN_GLOBAL).with_label(labels::DISPLAY_NAME, &name)
    };
    let mut sent: Vec<Resource> = of_theirs.iter().map(relayed).collect();
    sent.extend(everybody.iter().map(named));
    sent.push(mesh("Exclusive").with_label(labels::ORIGIN, labels::ORIGIN_GLOBAL));
    let opening = down.opening(order::requested_by_zone().len()).await;
    for (nonce, request) in (1..).zip(opening) {
        let of_type: Vec<Resource> =
            sent.iter().filter(|one| one.kind().name == request.type_url).cloned().collect();
        let answer = down.send(&request.type_url, nonce, &of_type, &[]).await;
        assert_eq!(answer.error_detail, None, "{}", request.type_url);
    }
    let mut wanted = expected(&of_theirs, Some(THEIRS));
    wanted.extend(expected(&everybody, None));
    assert_eq!(held(&ours, &shared_kinds()), wanted);

    // And all that is its own goes up, the ways out included.
    let asked = ["MeshService", "MeshTrust", "MeshZoneAddress", "ZoneIngress", "ZoneEgress"];
    for type_url in asked {
        up.ask(OURS, type_url).await;
    }
    let mut taken = Taken::default();
    for answer in up.all(&asked).await {
        taken.take(&answer);
        up.reply(OURS, &answer, None).await;
    }
    let mut own = expected(&of_ours, Some(OURS));
    own.extend(expected(&for_nobody_else(OURS)[..1], Some(OURS)));
    let mut told = taken.all();
    told.retain(|(_, name), _| name != &format!("foreign-{OURS}"));
    assert_eq!(told, own);
}
