//! What a stolen zone says to the proxies of others by policies that it calls a producer's, and what it says about whom to
//! believe.

use common::{
    kds::mapper,
    model::{Resource, ResourceKey, labels, names},
    registry,
};
use serde_json::{Value, json};

use crate::{
    harness::{
        Global, KdsPeer, Zone, eventually,
        kds_peer::{Up, item},
    },
    mesh::{ALLOW_ALL, Member, Shape, federation},
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
    let routes = |config: &Value| config["xds"]["RouteConfiguration"].clone();
    assert_eq!(routes(&after), routes(&before));
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
