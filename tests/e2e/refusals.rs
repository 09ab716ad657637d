//! Those who say no: a real Envoy and a real zone refuse what they are sent. Nothing else suffers, an operator
//! sees who refused what and why, and it ends by itself once the cause is gone.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{
    Envoy, Global, Options, Zone, addresses, control_plane::ControlPlane, envoy::admin_address, eventually,
};

/// A dataplane whose inbound listens at `port`.
fn dataplane(name: &str, address: Ipv4Addr, port: u16, admin: SocketAddr) -> String {
    format!(
        "
type: Dataplane
mesh: default
name: {name}
networking:
  address: {address}
  admin: {{ port: {} }}
  inbound:
    - {{ port: {port}, servicePort: 1, serviceAddress: 127.0.0.1, tags: {{ kuma.io/service: {name} }} }}
",
        admin.port()
    )
}

/// Waits for the insight of a dataplane to say this. On global the dataplane has a longer name, and keeps
/// this one as a label.
async fn insight(cp: &ControlPlane, name: &str, what: &str, is: impl Fn(&Value) -> bool) {
    let (is, of) =
        (&is, |item: &Value| item["name"] == name || item["labels"]["kuma.io/display-name"] == name);
    eventually(what, || async move {
        let all = cp.try_get("/meshes/default/dataplanes/_overview").await?;
        let found = all["items"].as_array().into_iter().flatten().find(|item| of(item));
        let insight = found.map(|item| &item["dataplaneInsight"]).unwrap_or(&Value::Null);
        if is(insight) { Ok(()) } else { Err(all.to_string()) }
    })
    .await;
}

fn lds(insight: &Value, counter: &str) -> u64 {
    let last = insight["subscriptions"].as_array().and_then(|all| all.last());
    let text = last.and_then(|last| last["status"]["lds"][counter].as_str());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[tokio::test]
async fn an_envoy_that_cannot_bind_is_seen_everywhere_and_recovers_by_itself() {
    let global = Global::start().await;
    let flags = Options::default().with("xdsServer.dataplaneStatusFlushInterval", "1s");
    let mut zone = Zone::start_with(&global, "zone-1", flags).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let address = addresses::loopback();
    let taken = TcpListener::bind((address, 0)).unwrap();
    let port = taken.local_addr().unwrap().port();
    let admin = admin_address();
    zone.apply(&dataplane("web", address, port, admin));
    let envoy = Envoy::sidecar(&zone, "default", "web", admin).await;

    let bind = format!("cannot bind '{address}:{port}': Address already in use");
    let refused = |insight: &Value| {
        let reason = insight["metadata"]["strait"]["rejections"]["Listener"].as_str();
        reason.is_some_and(|reason| reason.contains(&bind)) && lds(insight, "responsesRejected") > 0
    };
    insight(&zone, "web", "the reason in the zone", refused).await;
    insight(&global, "web", "the reason on global", refused).await;
    for cp in [&zone.cp, &global.cp] {
        let (ok, table, notes) = cp.try_straitctl(&["inspect", "dataplanes"]);
        assert!(ok && table.contains("web"), "{table}");
        assert!(notes.contains("Envoy refused its Listener") && notes.contains(&bind), "{notes}");
    }
    let log = zone.process.log();
    let line = log.lines().find(|line| line.contains("the proxy refused a configuration"));
    assert!(line.is_some_and(|line| line.contains("default.web") && line.contains(&bind)), "{log}");
    let metrics = zone.metrics().await;
    let counted = metrics.lines().find(|line| line.contains("NACK") && line.contains("Listener"));
    assert!(counted.is_some_and(|line| line.starts_with("xds_requests_received{")), "{metrics}");

    // The rest is served: to this proxy, and to one that came after it.
    let clusters = envoy.admin("/clusters").await.unwrap();
    assert!(clusters.contains("localhost:1::"), "{clusters}");
    let (second, second_admin) = (addresses::loopback(), admin_address());
    zone.apply(&dataplane("second", second, addresses::free_port(second), second_admin));
    let _second = Envoy::sidecar(&zone, "default", "second", second_admin).await;
    let taken_well = |insight: &Value| lds(insight, "responsesAcknowledged") > 0;
    insight(&zone, "second", "the other proxy has its listeners", taken_well).await;
    assert!(zone.process.runs());

    drop(taken);
    let recovered = |insight: &Value| {
        insight["metadata"]["strait"].is_null() && lds(insight, "responsesAcknowledged") > 0
    };
    insight(&zone, "web", "the listener once the port is free", recovered).await;
    insight(&global, "web", "the same on global", recovered).await;
    let inbound = envoy.admin("/listeners").await.unwrap();
    assert!(inbound.contains(&format!("{address}:{port}")), "{inbound}");
    let (_, _, notes) = global.try_straitctl(&["inspect", "dataplanes"]);
    assert!(!notes.contains("refused"), "{notes}");
}

/// A timeout of 5 s, as REST takes it.
fn policy(name: &str, labels: Value) -> Value {
    json!({"type": "MeshTimeout", "mesh": "default", "name": name, "labels": labels,
        "spec": {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}})
}

async fn put(cp: &ControlPlane, name: &str, labels: Value) {
    let path = format!("/meshes/default/meshtimeouts/{name}");
    let (status, answer) = cp.call(Method::PUT, &path, Some(policy(name, labels))).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
}

/// Waits for a policy of global, which arrives under a longer name.
async fn has(zone: &Zone, name: &str) {
    eventually(&format!("{name} in {}", zone.zone), || async move {
        let all = zone.try_get("/meshes/default/meshtimeouts").await?;
        let labels = all["items"].as_array().into_iter().flatten().map(|p| &p["labels"]);
        let found = labels.clone().any(|labels| labels["kuma.io/display-name"] == name);
        if found { Ok(()) } else { Err(format!("{:?}", labels.collect::<Vec<_>>())) }
    })
    .await;
}

#[tokio::test]
async fn a_zone_that_refuses_a_resource_is_shown_with_what_to_do_and_the_rest_goes_on() {
    let global = Global::start().await;
    let mut first = Zone::start_with(&global, "zone-1", Options::default()).await;
    let second = Zone::start_with(&global, "zone-2", Options::default()).await;
    eventually("the mesh in the zone", || first.try_get("/meshes/default")).await;
    // The zone gets a policy of its own under the name that the one of global arrives by.
    put(&global, "mine", json!({})).await;
    has(&first, "mine").await;
    let all = first.get("/meshes/default/meshtimeouts").await;
    let mut all = all["items"].as_array().unwrap().iter();
    let mine = all.find(|p| p["labels"]["kuma.io/display-name"] == "mine").unwrap();
    let arrives_as = mine["name"].as_str().unwrap().to_owned();
    let (status, _) = global.call(Method::DELETE, "/meshes/default/meshtimeouts/mine", None).await;
    assert_eq!(status, StatusCode::OK);
    let path = format!("/meshes/default/meshtimeouts/{arrives_as}");
    eventually("the policy of global is gone from the zone", || async {
        let (status, answer) = first.call(Method::GET, &path, None).await;
        if status == StatusCode::NOT_FOUND { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    put(&first, &arrives_as, json!({"kuma.io/origin": "zone"})).await;

    put(&global, "mine", json!({})).await;
    put(&global, "other", json!({})).await;
    for (zone, name) in [(&first, "other"), (&second, "mine"), (&second, "other")] {
        has(zone, name).await;
    }
    let words =
        ["the zone refused MeshTimeout", "correct it on global", "belongs to zone zone-1", &arrives_as];
    let overview = eventually("the refusal in the overview", || async {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        let notes = overview["strait"]["notes"].to_string();
        if words.iter().all(|word| notes.contains(word)) { Ok(overview) } else { Err(notes) }
    })
    .await;
    assert_eq!(overview["strait"]["status"], "online");
    let rejected = |overview: &Value| {
        let last = overview["zoneInsight"]["subscriptions"].as_array().and_then(|all| all.last().cloned());
        last.unwrap_or_default()["status"]["stat"]["MeshTimeout"]["responsesRejected"].clone()
    };
    eventually("the rejection is counted", || async {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        if rejected(&overview) == "1" { Ok(()) } else { Err(overview.to_string()) }
    })
    .await;
    let (ok, table, notes) = global.try_straitctl(&["inspect", "zones"]);
    assert!(ok && words.iter().all(|word| notes.contains(word)), "{notes}");
    let row = |zone: &str| table.lines().find(|line| line.starts_with(zone)).unwrap_or_default().to_owned();
    assert!(
        table.contains("NOTES") && row("zone-1").ends_with('1') && row("zone-2").ends_with('-'),
        "{table}"
    );
    let own = first.get(&path).await;
    assert_eq!(own["labels"]["kuma.io/origin"], "zone", "the zone's own policy is untouched");
    assert!(first.process.runs());

    // What to do was: rename or delete one of the two. Nothing changes on global.
    let (status, _) = first.call(Method::DELETE, &path, None).await;
    assert_eq!(status, StatusCode::OK);
    has(&first, "mine").await;
    eventually("the note is gone", || async {
        let overview = global.try_get("/zones/zone-1/_overview").await?;
        if overview["strait"]["notes"].is_null() { Ok(()) } else { Err(overview["strait"].to_string()) }
    })
    .await;
}
