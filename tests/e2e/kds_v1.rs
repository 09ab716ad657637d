//! Sync by KDS v1, where both sides are told to: the real programs, both directions over one stream.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Global, Options, Zone, control_plane::ControlPlane, eventually};

const DATAPLANE: &str = "
type: Dataplane
mesh: default
name: NAME
networking:
  address: 127.0.0.9
  inbound: [{ port: 80, servicePort: 8080, tags: { kuma.io/service: web } }]
";

fn dataplane(name: &str) -> String {
    DATAPLANE.replace("NAME", name)
}

async fn put(cp: &ControlPlane, name: &str, labels: Value) {
    let policy = json!({"type": "MeshTimeout", "mesh": "default", "name": name, "labels": labels,
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}});
    let path = format!("/meshes/default/meshtimeouts/{name}");
    let (status, answer) = cp.call(Method::PUT, &path, Some(policy)).await;
    assert!(status.is_success(), "{answer}");
}

async fn delete(cp: &ControlPlane, path: &str) {
    let (status, answer) = cp.call(Method::DELETE, path, None).await;
    assert_eq!(status, StatusCode::OK, "{answer}");
}

/// Waits until exactly these are there, by the names they have at home; the defaults of the mesh apart.
async fn holds(cp: &ControlPlane, what: &str, names: &[&str]) -> Value {
    let mut expected: Vec<&str> = names.to_vec();
    expected.sort_unstable();
    let expected = &expected;
    eventually(&format!("{names:?} among {what}"), || async move {
        let all = cp.try_get(&format!("/meshes/default/{what}?size=1000")).await?;
        let items = all["items"].as_array().cloned().unwrap_or_default();
        let named = items.iter().filter_map(|item| {
            item["labels"]["kuma.io/display-name"].as_str().or_else(|| item["name"].as_str())
        });
        let mut named: Vec<&str> = named.filter(|name| !name.starts_with("mesh-")).collect();
        named.sort_unstable();
        if named == *expected { Ok(all) } else { Err(format!("{named:?}")) }
    })
    .await
}

async fn overview(global: &Global, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let is = &is;
    eventually(what, || async move {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        if is(&overview["strait"]) { Ok(overview) } else { Err(overview.to_string()) }
    })
    .await
}

#[tokio::test]
async fn a_zone_syncs_both_ways_by_v1_and_comes_back() {
    let switch = |side: &str| Options::default().with(&format!("multizone.{side}.kds.v1.enabled"), "true");
    let mut global = Global::start_with(switch("global")).await;
    let zone = Zone::start_with(&global, "zone-1", switch("zone")).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;

    // Down and up, what is there and what goes.
    for name in ["one", "two"] {
        put(&global, name, json!({})).await;
        zone.apply(&dataplane(name));
    }
    holds(&zone, "meshtimeouts", &["one", "two"]).await;
    holds(&global, "dataplanes", &["one", "two"]).await;
    delete(&global, "/meshes/default/meshtimeouts/two").await;
    delete(&zone, "/meshes/default/dataplanes/two").await;
    let left = holds(&zone, "meshtimeouts", &["one"]).await;
    holds(&global, "dataplanes", &["one"]).await;

    // Both sides say by what they speak.
    let is_settled = |strait: &Value| {
        strait["status"] == "online" && strait["protocol"] == "KDS v1" && strait["down"]["lag"] == 0
    };
    overview(&global, "the zone in sync by v1", is_settled).await;
    let (ok, _, notes) = global.try_straitctl(&["inspect", "zones"]);
    assert!(ok && notes.contains("zone-1: syncs by KDS v1"), "{notes}");
    let (ok, _, notes) = zone.try_straitctl(&["link"]);
    assert!(ok && notes.contains("syncs by KDS v1"), "{notes}");

    // One is refused, because the zone has another one under its name; the other is taken.
    let name = left["items"].as_array().unwrap().iter();
    let name = name.filter_map(|item| item["name"].as_str()).find(|name| name.starts_with("one-")).unwrap();
    let path = format!("/meshes/default/meshtimeouts/{name}");
    delete(&global, "/meshes/default/meshtimeouts/one").await;
    holds(&zone, "meshtimeouts", &[]).await;
    put(&zone, name, json!({"kuma.io/origin": "zone"})).await;
    put(&global, "one", json!({})).await;
    put(&global, "three", json!({})).await;
    let refused = |strait: &Value| {
        let notes = strait["notes"].to_string();
        notes.contains("the zone refused MeshTimeout") && notes.contains("belongs to zone zone-1")
    };
    overview(&global, "the refusal", refused).await;
    holds(&zone, "meshtimeouts", &[name, "three"]).await;
    delete(&zone, &path).await;
    holds(&zone, "meshtimeouts", &["one", "three"]).await;
    overview(&global, "no refusal any more", |strait| strait["notes"].is_null()).await;

    // What changes while they do not see each other is there when they do.
    assert!(global.process.stop().await.success());
    zone.apply(&dataplane("four"));
    delete(&zone, "/meshes/default/dataplanes/one").await;
    global.start_again().await;
    holds(&global, "dataplanes", &["four"]).await;
    overview(&global, "the zone back by v1", is_settled).await;
    put(&global, "five", json!({})).await;
    holds(&zone, "meshtimeouts", &["one", "three", "five"]).await;
}

#[tokio::test]
async fn a_global_that_does_not_speak_v1_says_what_to_do() {
    let global = Global::start().await;
    let options = Options::default().with("multizone.zone.kds.v1.enabled", "true");
    let mut zone = Zone::start_with(&global, "zone-1", options).await;
    let words = ["KDS v1", "Unimplemented", "multizone.global.kds.v1.enabled"];
    let told = &zone;
    eventually("the reason in the zone", || async {
        let (_, _, notes) = told.try_straitctl(&["link"]);
        if words.iter().all(|word| notes.contains(word)) { Ok(()) } else { Err(notes) }
    })
    .await;
    assert!(zone.process.runs(), "it goes on with what it has");
}
