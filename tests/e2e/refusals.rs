//! Those who say no: a real Envoy and a real zone refuse what they are sent. Nothing else suffers, an operator
//! sees who refused what and why, and it ends by itself once the cause is gone.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use common::{kds::metadata::Peer, proto::envoy::service::discovery::v3::DeltaDiscoveryResponse};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{
    Envoy, Global, KdsPeer, Options, Zone, addresses, control_plane::ControlPlane, envoy::admin_address,
    eventually, kds_peer::Down,
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

/// A zone that asks for timeouts, and what it is sent at first: with what it calls the one that global calls `mine`.
async fn picky(global: &Global) -> (KdsPeer, Down, DeltaDiscoveryResponse, String) {
    let peer = KdsPeer::connect(global, "picky").await;
    let mut down = peer.down(peer.first("MeshTimeout", Peer::default())).await.unwrap();
    let first = down.next().await.unwrap();
    let mine = first.resources.iter().find(|item| item.name.contains("mine"));
    let mine = mine.unwrap_or_else(|| panic!("it is sent the timeout: {first:?}")).name.clone();
    (peer, down, first, mine)
}

/// What global shows as refused of and by the zone `picky`.
async fn refused_by_picky(global: &Global) -> Result<Value, String> {
    Ok(global.try_get("/zones/picky/_overview").await?["strait"]["refused"].clone())
}

/// Who mended the reason of a refusal says so, and need not wait or touch the resource. Without that it would be tried
/// again after ten seconds at first.
#[tokio::test]
async fn what_a_zone_refused_is_offered_again_when_an_operator_says_so() {
    let global = Global::start().await;
    put(&global, "mine", json!({})).await;
    let (_peer, mut down, first, mine) = picky(&global).await;
    down.refuse("picky", &first, &mine, "there is no room").await;
    eventually("the refusal on global", || async {
        let refused = refused_by_picky(&global).await?;
        let one = &refused[0];
        let is_it = one["by"] == "zone"
            && one["type"] == "MeshTimeout"
            && one["reason"].to_string().contains("no room");
        if is_it { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    let offer = async |query: &str| {
        let path = format!("/strait/zones/picky/offer{query}");
        global.call(Method::POST, &path, None).await
    };
    for (query, words) in [
        ("?kind=MeshRetry", "refuses nothing"),
        ("?kind=MeshTimeout&name=other", "refuses nothing"),
        ("?kind=MeshTimeout&name=mine&mesh=other", "refuses nothing"),
        ("?kind=Nonsense", "no type"),
        ("?name=mine", "need a kind"),
    ] {
        let (status, answer) = offer(query).await;
        assert!(
            status == StatusCode::BAD_REQUEST && answer.to_string().contains(words),
            "{query}: {status} {answer}"
        );
    }
    let (status, _) = global.call(Method::POST, "/strait/zones/nobody/offer", None).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let stranger = reqwest::Client::new().post(global.url("/strait/zones/picky/offer"));
    assert_eq!(stranger.send().await.unwrap().status(), StatusCode::FORBIDDEN);

    // It says no once more, and takes it the next time.
    let said =
        global.straitctl(&["zones", "offer-again", "picky", "meshtimeout", "mine", "--mesh", "default"]);
    assert!(said.contains("1 resource is offered again"), "{said}");
    let again = down.next().await.unwrap();
    let names: Vec<&str> = again.resources.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, [&mine], "nothing else is sent again");
    assert_ne!(again.nonce, first.nonce);
    down.refuse("picky", &again, &mine, "there is still no room").await;
    eventually("the new words on global", || async {
        let refused = refused_by_picky(&global).await?;
        if refused.to_string().contains("still no room") { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    let said = global.straitctl(&["zones", "offer-again", "picky"]);
    assert!(said.contains("1 resource is offered again"), "{said}");
    let third = down.next().await.unwrap();
    assert_eq!((third.resources.len(), third.resources[0].name.as_str()), (1, &*mine));
    down.accept("picky", &third).await;
    eventually("nothing is refused any more", || async {
        let refused = refused_by_picky(&global).await?;
        if refused.is_null() { Ok(()) } else { Err(refused.to_string()) }
    })
    .await;
    assert_eq!(offer("").await.0, StatusCode::BAD_REQUEST, "there is nothing to offer");
    let audit = global.get("/audit?size=50").await.to_string();
    assert!(audit.contains("/strait/zones/picky/offer"), "{audit}");
}

/// Waits until a policy is, or is not, at this path.
async fn is_there(cp: &ControlPlane, path: &str, expected: bool) {
    eventually(path, || async {
        let (status, answer) = cp.call(Method::GET, path, None).await;
        if status.is_success() == expected { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn what_global_refused_is_offered_again_by_the_zone() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let of_zone = || json!({"kuma.io/origin": "zone"});
    // Global gets a policy of its own under the name that the one of the zone arrives by.
    put(&zone, "mine", of_zone()).await;
    let arrives_as = eventually("the policy of the zone on global", || async {
        let all = global.try_get("/meshes/default/meshtimeouts").await?;
        let mut items = all["items"].as_array().into_iter().flatten();
        let mine = items.find(|p| p["labels"]["kuma.io/display-name"] == "mine");
        mine.and_then(|mine| mine["name"].as_str()).map(str::to_owned).ok_or_else(|| all.to_string())
    })
    .await;
    let path = format!("/meshes/default/meshtimeouts/{arrives_as}");
    assert_eq!(zone.call(Method::DELETE, "/meshes/default/meshtimeouts/mine", None).await.0, StatusCode::OK);
    is_there(&global, &path, false).await;
    put(&global, &arrives_as, json!({})).await;
    put(&zone, "mine", of_zone()).await;
    eventually("the refusal in the zone", || async {
        let refusals = &zone.try_get("/strait/link").await?["refusals"];
        if refusals["MeshTimeout at global"].is_string() { Ok(()) } else { Err(refusals.to_string()) }
    })
    .await;
    eventually("it is offered again, in vain", || async {
        let (status, answer) =
            zone.call(Method::POST, "/strait/link/offer?kind=meshtimeouts&name=mine", None).await;
        if status == StatusCode::ACCEPTED { Ok(()) } else { Err(answer.to_string()) }
    })
    .await;
    let (status, answer) = zone.call(Method::POST, "/strait/link/offer?kind=MeshRetry", None).await;
    assert!(status == StatusCode::BAD_REQUEST && answer.to_string().contains("refuses nothing"), "{answer}");
    assert_eq!(global.call(Method::DELETE, &path, None).await.0, StatusCode::OK);
    is_there(&global, &path, false).await;
    let (_, said, error) = zone.try_straitctl(&["link", "offer-again", "meshtimeout"]);
    assert!(said.contains("offered again") || error.contains("refuses nothing"), "{said} {error}");
    is_there(&global, &path, true).await;
    eventually("nothing is refused any more", || async {
        let refusals = zone.try_get("/strait/link").await?["refusals"].clone();
        if refusals == json!({}) { Ok(()) } else { Err(refusals.to_string()) }
    })
    .await;
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
