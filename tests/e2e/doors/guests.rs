//! What a stolen zone says to the proxies of others by policies that it calls a producer's, and what it says about whom to
//! believe.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
};

use common::{
    kds::mapper,
    model::{Resource, ResourceKey, kinds::zone_ingress, labels, names},
    proto::envoy::service::discovery::v3::Resource as Item,
    registry, xds,
};
use serde_json::{Value, json};

use crate::{
    harness::{
        Global, KdsPeer, Zone, eventually,
        kds_peer::{Up, item},
    },
    mesh::{ALLOW_ALL, MESH, Member, Shape, egress, federation, ingress, ingress_called},
};

const THIEF: &str = "thief";

/// What the thief has under this name, in whatever form it likes.
fn loot(kind: &str, name: &str, role: Option<&str>, spec: &Value) -> Resource {
    let kind = registry::by_name(kind).expect("there is such a kind");
    let key = ResourceKey::new(kind, "default", name);
    let mut resource = Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_label(labels::NAMESPACE, "demo");
    if let Some(role) = role {
        resource = resource.with_label(labels::POLICY_ROLE, role);
    }
    let sent = mapper::up(&resource.with_spec(spec.to_string()), THIEF, &[]).expect("a spec that decodes");
    // It says what it wants, whatever an honest zone would have made of that.
    role.into_iter().fold(sent, |sent, role| sent.with_label(labels::POLICY_ROLE, role))
}

/// Sends this to global; whether it is taken or refused, the stream goes on.
async fn tell(up: &mut Up, loot: &Resource) {
    up.offer(loot.kind(), vec![item(loot)]).await.expect("the stream goes on");
}

/// What the zone has of a kind, by the names people gave, once it has what global was given last.
async fn names_after(global: &Global, zone: &Zone, kind: &str, path: &str, last: Value) -> Vec<String> {
    let named = last["name"].as_str().expect("it has a name").to_owned();
    assert_eq!(last["type"], kind);
    global.apply(&last.to_string());
    eventually(&format!("{named} in {}", zone.zone), || async {
        let list = zone.try_get(&format!("/meshes/default/{path}?size=1000")).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let name = |item: &Value| {
            let shown = item["labels"][labels::DISPLAY_NAME].as_str().or(item["name"].as_str());
            shown.unwrap_or_default().to_owned()
        };
        let names: Vec<String> = items.iter().map(name).collect();
        if names.contains(&named) { Ok(names) } else { Err(format!("{names:?}")) }
    })
    .await
}

/// A client and a service of an honest zone, with real Envoys, and somebody who has the token of another zone.
async fn besieged() -> (Global, Zone, Member, Member, Up) {
    let (global, mut zones) = federation(1).await;
    let zone = zones.remove(0);
    global.apply(ALLOW_ALL);
    let bank = Member::join(&zone, Shape::http("bank-1", "bank", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["bank"])).await;
    client.reaches(0, "bank-1").await;
    let up = KdsPeer::connect(&global, THIEF).await.up().await.expect("its token is good");
    (global, zone, bank, client, up)
}

/// Lists that the kind does not have make no policy a producer's: it would be for everybody.
#[tokio::test]
async fn a_stolen_zone_patches_and_permits_nothing_elsewhere() {
    let (global, zone, _bank, client, mut up) = besieged().await;
    let shown = "/meshes/default/dataplanes/client-1/_config";
    let before = zone.get(shown).await;
    let of_all = json!([{"targetRef": {"kind": "MeshService", "name": "bank"}, "default": {}}]);
    let cut = json!({"appendModifications": [{"cluster": {"operation": "Remove"}}, {"listener": {"operation": "Remove"}}]});
    let deny = json!([{"default": {"deny": [{"spiffeID": {"type": "Prefix", "value": "spiffe://"}}]}}]);
    let everybody = json!({"kind": "Mesh"});
    let patch = json!({"targetRef": everybody, "to": of_all, "default": cut});
    let rules = json!({"targetRef": everybody, "to": of_all, "rules": deny});
    let from = json!({"targetRef": everybody, "to": of_all,
        "from": [{"targetRef": everybody, "default": {"action": "Deny"}}]});
    for (name, role) in [("a", Some("producer")), ("b", Some("system")), ("c", Some("consumer")), ("d", None)]
    {
        tell(&mut up, &loot("MeshProxyPatch", &format!("patch-{name}"), role, &patch)).await;
        tell(&mut up, &loot("MeshTrafficPermission", &format!("rules-{name}"), role, &rules)).await;
        tell(&mut up, &loot("MeshTrafficPermission", &format!("from-{name}"), role, &from)).await;
    }
    let harmless = json!({"type": "MeshProxyPatch", "mesh": "default", "name": "last", "spec": {
        "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "nobody"}},
        "default": {"appendModifications": [{"cluster": {"operation": "Remove", "match": {"name": "none"}}}]}}});
    assert_eq!(names_after(&global, &zone, "MeshProxyPatch", "meshproxypatches", harmless).await, ["last"]);
    let last = json!({"type": "MeshTrafficPermission", "mesh": "default", "name": "last", "spec": {
        "targetRef": {"kind": "MeshSubset", "tags": {"kuma.io/service": "nobody"}},
        "from": [{"targetRef": everybody, "default": {"action": "Allow"}}]}});
    let mut names =
        names_after(&global, &zone, "MeshTrafficPermission", "meshtrafficpermissions", last).await;
    names.sort();
    assert_eq!(names, ["allow-all", "last"]);
    assert_eq!(zone.get(shown).await, before, "the Envoy of the client has what it had");
    client.reaches(0, "bank-1").await;
}

/// A name that a producer says is one of its own zone, whatever else is called so.
#[tokio::test]
async fn a_stolen_zone_turns_no_calls_of_others_to_itself() {
    let (global, zone, _bank, client, mut up) = besieged().await;
    let shown = "/meshes/default/dataplanes/client-1/_config";
    let before = zone.get(shown).await;
    let bank = json!({"kind": "MeshService", "name": "bank"});
    let home = json!([{"kind": "MeshService", "name": "home", "port": 80}]);
    let rules = json!([{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}], "default": {"backendRefs": home}}]);
    let route = json!({"to": [{"targetRef": bank, "rules": rules}]});
    let timeout = json!({"to": [{"targetRef": bank, "default": {"http": {"requestTimeout": "1ms"}}}]});
    tell(&mut up, &loot("MeshHTTPRoute", "route", Some("producer"), &route)).await;
    tell(&mut up, &loot("MeshTimeout", "timeout", Some("producer"), &timeout)).await;
    // They may say this of a service of their own, so both arrive.
    for path in ["meshhttproutes", "meshtimeouts"] {
        eventually(path, || async {
            let list = zone.try_get(&format!("/meshes/default/{path}")).await?;
            if list.to_string().contains(THIEF) { Ok(()) } else { Err(list.to_string()) }
        })
        .await;
    }
    // What global says afterwards shows that the client was looked at again.
    global.apply(
        &json!({"type": "MeshTimeout", "mesh": "default", "name": "last", "spec": {
            "targetRef": {"kind": "Mesh"},
            "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "7s"}}]}})
        .to_string(),
    );
    let after = eventually("the timeout of global in the Envoy of the client", || async {
        let config = zone.try_get(shown).await?;
        if config.to_string().contains(r#""connectTimeout":"7s""#) {
            Ok(config)
        } else {
            Err(config.to_string())
        }
    })
    .await;
    let text = after.to_string();
    assert!(!text.contains("home") && !text.contains("0.001s"), "{text}");
    // Routes of an outbound are part of its listener.
    let calls = |config: &Value| {
        let all = config["xds"][xds::envoy::LISTENER].as_object().expect("it has listeners").clone();
        all.into_iter().filter(|(name, _)| name.starts_with("outbound:")).collect::<BTreeMap<_, _>>()
    };
    let (before, after) = (calls(&before), calls(&after));
    assert!(!before.is_empty());
    assert_eq!(after, before);
    client.reaches(0, "bank-1").await;
}

/// Each sort of clients that somebody tells apart costs their zone what all of them cost together.
#[tokio::test]
async fn a_stolen_zone_tells_no_clients_of_others_apart() {
    let (global, mut zones) = federation(1).await;
    let zone = zones.remove(0);
    let mut up = KdsPeer::connect(&global, THIEF).await.up().await.expect("its token is good");
    let home =
        json!([{"targetRef": {"kind": "MeshService", "name": "home"}, "default": {"idleTimeout": "1s"}}]);
    let top = [
        ("by-tag", json!({"kind": "MeshSubset", "tags": {"kuma.io/service": "client"}})),
        ("by-label", json!({"kind": "Dataplane", "labels": {"app": "client"}})),
        ("by-name", json!({"kind": "Dataplane", "name": "client-1"})),
        ("to-all", json!({"kind": "Mesh"})),
    ];
    for (name, top) in top {
        let policy = json!({"targetRef": top, "to": home});
        tell(&mut up, &loot("MeshTimeout", name, Some("producer"), &policy)).await;
    }
    let last = json!({"type": "MeshTimeout", "mesh": "default", "name": "last", "spec": {
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "7s"}}]}});
    let names = names_after(&global, &zone, "MeshTimeout", "meshtimeouts", last).await;
    assert!(names.iter().any(|name| name == "to-all"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("by-")), "{names:?}");
}

/// The hash in a name is short, and a namespace can be found that makes it the one of a policy of global.
#[tokio::test]
async fn a_stolen_zone_takes_the_name_of_no_policy_of_global() {
    const FORGED: &str = "pppoae\u{1e}\r/>\u{7}\u{8}?\u{b}\u{1}=\u{18}\u{3}\u{8}\u{5}";
    const TAKEN: &str = "mesh-timeout-all-default";
    let (global, mut zones) = federation(1).await;
    let zone = zones.remove(0);
    let theirs = names::hashed("default", TAKEN, None, None);
    assert_eq!(names::hashed("default", TAKEN, Some(THIEF), Some(FORGED)), theirs);
    let mut up = KdsPeer::connect(&global, THIEF).await.up().await.expect("its token is good");
    let home = json!({"to": [{"targetRef": {"kind": "MeshService", "name": "home"}, "default": {"idleTimeout": "1s"}}]});
    let honest = loot("MeshTimeout", TAKEN, Some("producer"), &home);
    let key = ResourceKey::new(honest.kind(), "default", &theirs);
    let forged = Resource { key, ..honest }.with_label(labels::NAMESPACE, FORGED);
    let refused = up.offer(forged.kind(), vec![item(&forged)]).await.expect("the stream goes on");
    let refused = refused.expect("it is no namespace");
    assert!(refused.contains("k8s.kuma.io/namespace: a lowercase RFC 1123 label"), "{refused}");
    let last = json!({"type": "MeshTimeout", "mesh": "default", "name": "last", "spec": {
        "to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "7s"}}]}});
    names_after(&global, &zone, "MeshTimeout", "meshtimeouts", last).await;
    let policy = zone.get(&format!("/meshes/default/meshtimeouts/{theirs}")).await;
    assert!(policy["labels"][labels::ZONE].is_null() && !policy.to_string().contains("home"), "{policy}");
}

/// How a client calls a service: its cluster without what is for single zones, and the listener before it.
fn called(config: &Value, name: &str, outbound: SocketAddr) -> (Value, Value) {
    let mut cluster = config["xds"][xds::envoy::CLUSTER][name].clone();
    cluster.as_object_mut().expect("it has a cluster").remove("transportSocketMatches");
    let listeners = config["xds"][xds::envoy::LISTENER].as_object().expect("it has listeners");
    let listener = listeners.iter().find(|(name, _)| name.ends_with(&outbound.to_string()));
    (cluster, listener.expect("it listens for it").1.clone())
}

/// Whether a service is outside, whom its callers believe and what they speak is for those to say who have it.
#[tokio::test]
async fn a_stolen_zone_decides_nothing_about_services_of_others() {
    let (global, mut zones) = federation(1).await;
    let zone = zones.remove(0);
    global.apply(ALLOW_ALL);
    global.apply(
        "
type: ExternalService
name: httpbin
mesh: default
tags: { kuma.io/service: httpbin, kuma.io/protocol: http }
networking: { address: '192.0.2.7:443' }
",
    );
    let _payments = Member::join(&zone, Shape::http("payments-1", "payments", &[])).await;
    let calls = ["payments", "httpbin", "first", "last"];
    let client = Member::join(&zone, Shape::http("client-1", "client", &calls)).await;
    client.reaches(0, "payments-1").await;
    let peer = KdsPeer::connect(&global, THIEF).await;
    let mut up = peer.up().await.expect("its token is good");
    let ingress = |offers: &[(&str, bool)]| {
        let one = |&(service, external): &(&str, bool)| json!({"mesh": "default", "instances": 1, "externalService": external, "tags": {"kuma.io/service": service}});
        let spec = json!({"networking": {"address": "10.66.0.1", "port": 10001,
            "advertisedAddress": "10.66.0.1", "advertisedPort": 10001},
            "availableServices": offers.iter().map(one).collect::<Vec<_>>()});
        item(&peer.honest(&zone_ingress::KIND, "", "thief-1", &spec.to_string()))
    };
    // A service that nobody else has shows that the offers arrived.
    let arrived = async |name: &str| {
        eventually(&format!("{name} before the client"), || async {
            let config = zone.try_get("/meshes/default/dataplanes/client-1/_config").await?;
            if config["xds"][xds::envoy::CLUSTER][name].is_object() {
                Ok(config)
            } else {
                Err(config.to_string())
            }
        })
        .await
    };
    let refused = up.offer(&zone_ingress::KIND, vec![ingress(&[("first", false)])]).await;
    assert_eq!(refused.expect("the stream goes on"), None);
    let before = arrived("first").await;
    let offers =
        [("payments", true), ("payments", false), ("httpbin", true), ("httpbin", false), ("last", false)];
    let refused = up.offer(&zone_ingress::KIND, vec![ingress(&offers)]).await;
    assert_eq!(refused.expect("the stream goes on"), None);
    let after = arrived("last").await;
    for (name, outbound) in calls.iter().zip(&client.outbounds).take(2) {
        assert_eq!(called(&after, name, *outbound), called(&before, name, *outbound), "{name}");
    }
}

/// An ingress of the thief, where nobody is, that offers these services of the mesh.
fn offering(peer: &KdsPeer, services: &[&str]) -> Item {
    let one =
        |service: &&str| json!({"mesh": "default", "instances": 1, "tags": {"kuma.io/service": service}});
    let spec = json!({"networking": {"address": "10.66.0.1", "port": 10001,
        "advertisedAddress": "10.66.0.1", "advertisedPort": 10001},
        "availableServices": services.iter().map(one).collect::<Vec<_>>()});
    item(&peer.honest(&zone_ingress::KIND, "", "thief-1", &spec.to_string()))
}

/// Who reads the policies knows what the cluster of a part of a service is called, and can call a service so.
#[tokio::test]
async fn a_stolen_zone_takes_no_part_of_a_service_by_its_cluster_name() {
    const CLUSTER: &str = "backend-154693772bc47249";
    let (global, mut zones) = federation(1).await;
    let zone = zones.remove(0);
    global.apply(ALLOW_ALL);
    global.apply(
        "
type: MeshHTTPRoute
name: split
mesh: default
spec:
  targetRef: { kind: Mesh }
  to:
    - targetRef: { kind: MeshService, name: backend }
      rules:
        - matches: [{ path: { type: PathPrefix, value: / } }]
          default:
            backendRefs: [{ kind: MeshServiceSubset, name: backend, tags: { version: v1 }, weight: 1 }]
",
    );
    let first = Shape { tags: ", version: v1", ..Shape::http("backend-1", "backend", &[]) };
    let _first = Member::join(&zone, first).await;
    let second = Shape { tags: ", version: v2", ..Shape::http("backend-2", "backend", &[]) };
    let _second = Member::join(&zone, second).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend", CLUSTER, "last"])).await;
    let shown = "/meshes/default/dataplanes/client-1/_config";
    client.reaches(0, "backend-1").await;
    let before = zone.get(shown).await;
    let peer = KdsPeer::connect(&global, THIEF).await;
    let mut up = peer.up().await.expect("its token is good");
    let refused = up.offer(&zone_ingress::KIND, vec![offering(&peer, &[CLUSTER, "last"])]).await;
    assert_eq!(refused.expect("the stream goes on"), None);
    let after = eventually("what the thief offers before the client", || async {
        let config = zone.try_get(shown).await?;
        let last = config["xds"][xds::envoy::ENDPOINTS]["last"].to_string();
        if last.contains("10.66.0.1") { Ok(config) } else { Err(config.to_string()) }
    })
    .await;
    let outbound = client.outbounds[0];
    assert_eq!(called(&after, CLUSTER, outbound), called(&before, CLUSTER, outbound));
    for _ in 0..3 {
        client.reaches(0, "backend-1").await;
    }
    assert!(client.envoy.stat("listener_manager.lds.update_rejected").await.is_ok_and(|n| n == 0));
}

/// Envoy takes two names that differ in case only for one, and an egress has one chain for each.
#[tokio::test]
async fn a_stolen_zone_closes_no_service_of_others_by_its_name_in_upper_case() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(&format!("{MESH}routing: {{ zoneEgress: true }}\n"));
    let _ingress = ingress(&global, &zones[1]).await;
    let _egress = egress(&global, &zones[0]).await;
    let _bank = Member::join(&zones[1], Shape::http("bank-1", "bank", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["bank"])).await;
    client.reaches(0, "bank-1").await;
    let peer = KdsPeer::connect(&global, THIEF).await;
    let mut up = peer.up().await.expect("its token is good");
    let refused = up.offer(&zone_ingress::KIND, vec![offering(&peer, &["BANK", "last"])]).await;
    assert_eq!(refused.expect("the stream goes on"), None);
    let config = eventually("what the thief offers at the egress", || async {
        let config = zones[0].try_get("/zoneegresses/egress-zone-1/_config").await?.to_string();
        if config.contains("last{mesh=default}") { Ok(config) } else { Err(config) }
    })
    .await;
    assert!(config.contains("bank{mesh=default}") && !config.contains("BANK{mesh=default}"), "{config}");
    for _ in 0..3 {
        client.reaches(0, "bank-1").await;
    }
}

/// Whom to believe about the domain of somebody else is not a zone's to say.
#[tokio::test]
async fn a_stolen_zone_vouches_for_no_other() {
    let (global, zone, _bank, _client, mut up) = besieged().await;
    let own = "default.thief.mesh.local";
    let names = [
        own,
        "default.zone-1.mesh.local",
        "default.default.mesh.local",
        "cluster.local",
        "spiffe",
        "default",
    ];
    let pem = rcgen::generate_simple_self_signed(["thief".to_owned()]).unwrap().cert.pem();
    for (n, domain) in names.iter().enumerate() {
        let spec = json!({"trustDomain": domain, "caBundles": [{"type": "Pem", "pem": {"value": pem}}]});
        tell(&mut up, &loot("MeshTrust", &format!("trust-{n}"), None, &spec)).await;
    }
    let last = json!({"type": "MeshTrust", "mesh": "default", "name": "last", "spec": {
        "trustDomain": "of.global", "caBundles": [{"type": "Pem", "pem": {"value": pem}}]}});
    let names = names_after(&global, &zone, "MeshTrust", "meshtrusts", last).await;
    assert!(names.iter().all(|name| ["trust-0", "last"].contains(&name.as_str())), "{names:?}");
}

/// Ingresses of the thief, each at a host name that nobody finds.
const LOST: usize = 1_500;

/// Whose names are asked for is not for whoever has most of them to say.
#[tokio::test]
async fn a_stolen_zone_keeps_nobody_from_finding_the_hosts_of_others() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let peer = KdsPeer::connect(&global, THIEF).await;
    let mut up = peer.up().await.expect("its token is good");
    let lost: Vec<_> = (0..LOST)
        .map(|n| {
            let name = format!("lost-{n}");
            let spec = json!({"networking": {"address": "10.9.9.9", "port": 10001,
                "advertisedAddress": format!("{name}.thief.invalid"), "advertisedPort": 10001},
                "availableServices": [{"tags": {"kuma.io/service": "inventory"}, "instances": 1, "mesh": "default"}]});
            item(&peer.honest(&zone_ingress::KIND, "", &name, &spec.to_string()))
        })
        .collect();
    for part in lost.chunks(100) {
        up.offer(&zone_ingress::KIND, part.to_vec()).await.expect("the stream goes on");
    }
    eventually("all of them in the zone", || async {
        let count = zones[0].try_get("/zoneingresses?size=1").await?["total"].as_u64();
        if count == Some(LOST as u64) { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await;
    let _ingress = ingress_called(&global, &zones[1], Ipv4Addr::LOCALHOST, "localhost").await;
    let _inventory = Member::join(&zones[1], Shape::http("inventory-1", "inventory", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["inventory"])).await;
    client.reaches(0, "inventory-1").await;
}
