//! What an Envoy would refuse does not reach it: traffic goes on over what was good, everything else is served, and an
//! operator sees who is to blame.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::{
    harness::{Global, Zone, eventually, http},
    mesh::{ALLOW_ALL, Member, Shape, federation},
};

/// A patch of all proxies with these modifications.
fn patch(modifications: &str) -> String {
    format!(
        "
type: MeshProxyPatch
name: odd
mesh: default
spec:
  default:
    appendModifications:
{modifications}
"
    )
}

/// A header on every answer of the backend, seen by its clients.
const HEADER: &str = "
      - virtualHost:
          operation: Patch
          match: { origin: outbound, routeConfigurationName: 'outbound:backend' }
          value: 'responseHeadersToAdd: [{ header: { key: x-patched, value: \"yes\" } }]'";
/// Something behind what ends the filters of requests.
const NO_END: &str = "
      - httpFilter:
          operation: AddLast
          value: |
            name: late
            typedConfig:
              '@type': type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
              maxRequestBytes: 1";
/// A cluster that balances by nothing.
const NO_BALANCE: &str = "
      - cluster:
          operation: Patch
          match: { name: backend }
          value: 'lbPolicy: 77'";

async fn pair() -> (Global, Zone, Member, Member) {
    let (global, mut zones) = federation(1).await;
    let zone = zones.pop().unwrap();
    global.apply(ALLOW_ALL);
    let backend = Member::join(&zone, Shape::http("backend-1", "backend", &[])).await;
    let client = Member::join(&zone, Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-1").await;
    (global, zone, backend, client)
}

/// Waits until the zone says this of the configuration of `proxy`.
async fn told(zone: &Zone, proxy: &str, what: &str) {
    eventually(&format!("word of {what}"), || async move {
        let said = zone.try_get("/debug/proxies").await?;
        let of = |item: &&Value| item["id"] == format!("default.{proxy}");
        let problems = said["items"].as_array().into_iter().flatten().find(of).map(|item| &item["problems"]);
        let problems = problems.map(ToString::to_string).unwrap_or_default();
        if problems.contains(what) { Ok(()) } else { Err(said.to_string()) }
    })
    .await;
}

/// Waits until nothing is withheld.
async fn healed(zone: &Zone) {
    eventually("nothing is withheld", || async move {
        let status = zone.try_get("/debug/push_status").await?;
        if status == json!({}) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
    let metrics = zone.metrics().await;
    let withheld = |line: &&str| line.starts_with("xds_resources_withheld{") && !line.ends_with(" 0");
    assert_eq!(metrics.lines().find(withheld), None, "{metrics}");
}

async fn patched(client: &Member) -> Result<bool, String> {
    let answer = reqwest::get(format!("http://{}/", client.outbounds[0])).await.map_err(|e| e.to_string())?;
    match answer.status() {
        StatusCode::OK => Ok(answer.headers().contains_key("x-patched")),
        status => Err(status.to_string()),
    }
}

#[tokio::test]
async fn traffic_goes_on_over_the_listener_that_was_good_until_the_patch_is_corrected() {
    let (global, zone, _backend, client) = pair().await;
    let client = &client;
    global.apply(&patch(&format!("{HEADER}{NO_END}")));
    told(&zone, "client-1", "since modification 1 of MeshProxyPatch odd").await;
    assert_eq!(patched(client).await, Ok(false), "the good one is from before the patch");
    assert_eq!(client.envoy.stat("listener_manager.lds.update_rejected").await, Ok(0));
    assert_eq!(client.envoy.stat("cluster_manager.cds.update_rejected").await, Ok(0));
    let status = zone.get("/debug/push_status").await;
    let refused = status["strait_refused_listeners"].as_object().unwrap();
    let messages: Vec<&str> = refused.values().filter_map(|one| one["message"].as_str()).collect();
    assert!(messages.iter().all(|message| message.contains("MeshProxyPatch odd")), "{status}");
    let metrics = zone.metrics().await;
    let counted = metrics.lines().find(|line| {
        line.starts_with("xds_resources_withheld_total{")
            && line.contains("Listener")
            && line.contains("refused")
    });
    assert!(counted.is_some(), "{metrics}");
    for measured in ["xds_queue_time", "xds_delivery", "xds_convergence_time"] {
        let count = metrics.lines().find(|line| line.starts_with(&format!("{measured}_count")));
        assert!(count.is_some_and(|line| !line.ends_with(" 0")), "{measured}: {metrics}");
    }

    // Who is new gets everything but what is broken.
    let fresh = Member::join(&zone, Shape::http("fresh-1", "fresh", &["backend"])).await;
    told(&zone, "fresh-1", "since modification 1 of MeshProxyPatch odd").await;
    eventually("the cluster of the fresh one", || async {
        let clusters = fresh.envoy.admin("/clusters").await?;
        if clusters.contains("backend::") { Ok(()) } else { Err(clusters) }
    })
    .await;
    let listeners = fresh.envoy.admin("/listeners").await.unwrap();
    assert!(!listeners.contains(&fresh.outbounds[0].to_string()), "{listeners}");
    // An operator finds it where everything else is that was left out.
    eventually("the problem in the status of the proxy", || async {
        let insight = zone.try_get("/meshes/default/dataplane-insights/fresh-1").await?;
        let problems = insight["metadata"]["strait"]["problems"].to_string();
        if problems.contains("MeshProxyPatch odd") { Ok(()) } else { Err(insight.to_string()) }
    })
    .await;
    let (_, _, notes) = zone.try_straitctl(&["inspect", "dataplanes"]);
    assert!(notes.contains("fresh-1") && notes.contains("MeshProxyPatch odd"), "{notes}");

    global.apply(&patch(HEADER));
    eventually("the corrected patch", || async move {
        if patched(client).await? { Ok(()) } else { Err("not patched".to_owned()) }
    })
    .await;
    fresh.reaches(0, "backend-1").await;
    healed(&zone).await;
}

#[tokio::test]
async fn traffic_goes_on_over_the_cluster_that_was_good_and_follows_its_endpoints() {
    let (global, zone, backend, client) = pair().await;
    global.apply(&patch(NO_BALANCE));
    told(&zone, "client-1", "since modification 0 of MeshProxyPatch odd").await;
    client.reaches(0, "backend-1").await;
    assert_eq!(client.envoy.stat("cluster_manager.cds.update_rejected").await, Ok(0));
    // The cluster is the old one, and its endpoints are those of now.
    drop(backend);
    let (status, _) = zone.call(Method::DELETE, "/meshes/default/dataplanes/backend-1", None).await;
    assert_eq!(status, StatusCode::OK);
    let _other = Member::join(&zone, Shape::http("backend-2", "backend", &[])).await;
    client.reaches(0, "backend-2").await;

    global.straitctl(&["delete", "meshproxypatch", "odd"]);
    healed(&zone).await;
    client.reaches(0, "backend-2").await;
}

/// What is noted of it may be read by who comes to another process.
#[tokio::test]
async fn traffic_goes_on_over_the_listener_that_was_good_when_the_zone_starts_again() {
    let (global, mut zone, _backend, client) = pair().await;
    global.apply(&patch(NO_END));
    told(&zone, "client-1", "since modification 0 of MeshProxyPatch odd").await;
    zone.process.stop().await;
    zone.start_again().await;
    // The Envoy is back, has been told everything, and goes on with what it had.
    told(&zone, "client-1", "since modification 0 of MeshProxyPatch odd").await;
    eventually("an answer for everything", || async {
        let status = zone.try_get("/debug/syncz").await?;
        let of = |item: &&Value| item["proxy"] == "default.client-1";
        let client = status.as_array().into_iter().flatten().find(of).cloned().unwrap_or_default();
        let is_settled = ["cluster", "listener"].iter().all(|of| {
            let (sent, acked) = (&client[format!("{of}_sent")], &client[format!("{of}_acked")]);
            sent == acked && sent.as_str().is_some_and(|nonce| !nonce.is_empty())
        });
        if is_settled { Ok(()) } else { Err(client.to_string()) }
    })
    .await;
    assert_eq!(patched(&client).await, Ok(false));
    client.reaches(0, "backend-1").await;

    global.apply(&patch(HEADER));
    eventually("the corrected patch", || async {
        if patched(&client).await? { Ok(()) } else { Err("not patched".to_owned()) }
    })
    .await;
    healed(&zone).await;
}

#[tokio::test]
async fn what_somebody_writes_for_envoys_is_refused_where_it_is_applied() {
    let zone = Zone::alone("zone-1", crate::harness::Options::default()).await;
    let config = |cluster: Value| json!({"type": "EnvoyConfig", "name": "edge", "spec": {"nodes": [{"id": "*"}], "clusters": [cluster]}});
    let good = json!({"name": "a", "connect_timeout": "1s"});
    let (status, answer) = zone.call(Method::PUT, "/envoyconfigs/edge", Some(config(good))).await;
    assert_eq!(status, StatusCode::CREATED, "{answer}");
    let bad = json!({"name": "a", "connect_timeout": "0s"});
    let (status, answer) = zone.call(Method::PUT, "/envoyconfigs/edge", Some(config(bad))).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
    let told = answer.to_string();
    assert!(told.contains("spec.clusters[0].connect_timeout") && told.contains("greater than 0s"), "{told}");
    // Who may not see what proxies are sent may not see what is wrong with it.
    let anybody = http::client().get(zone.url("/debug/push_status")).send().await.unwrap();
    assert_eq!(anybody.status(), StatusCode::FORBIDDEN);
}
