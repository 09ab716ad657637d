//! Which of several endpoints a request goes to.

use std::collections::{BTreeMap, BTreeSet};

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::{
    harness::{Zone, eventually, http},
    mesh::{ALLOW_ALL, Member, Shape, federation, ingress},
};

/// Who answers a request of this user.
async fn who_serves(client: &Member, user: &str) -> Result<String, String> {
    let url = format!("http://{}/", client.outbounds[0]);
    let request = http::client().get(url).header("x-user", user);
    let answer = request.send().await.map_err(|e| e.to_string())?;
    let text = answer.text().await.map_err(|e| e.to_string())?;
    let seen: Value = serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))?;
    seen["service"].as_str().map(str::to_owned).ok_or(text)
}

#[tokio::test]
async fn a_hash_keeps_a_client_on_its_endpoint() {
    let (global, zones) = federation(1).await;
    global.apply(ALLOW_ALL);
    let _one = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let _two = Member::join(&zones[0], Shape::http("backend-2", "backend", &[])).await;
    let _three = Member::join(&zones[0], Shape::http("backend-3", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    for backend in ["backend-1", "backend-2", "backend-3"] {
        client.reaches(0, backend).await;
    }
    global.apply(
        "
type: MeshLoadBalancingStrategy
name: by-user
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default:
        loadBalancer: { type: RingHash }
        hashPolicies: [{ type: Header, header: { name: x-user } }]
",
    );
    let client = &client;
    eventually("each user to stay where they are", || async move {
        let mut homes: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for _ in 0..5 {
            for user in 0..12 {
                let user = format!("user-{user}");
                let home = who_serves(client, &user).await?;
                homes.entry(user).or_default().insert(home);
            }
        }
        let all: BTreeSet<&String> = homes.values().flatten().collect();
        let stay = homes.values().all(|homes| homes.len() == 1);
        if stay && all.len() > 1 { Ok(()) } else { Err(format!("{homes:?}")) }
    })
    .await;
}

/// Says whether the only inbound of a dataplane can serve.
async fn set_state(zone: &Zone, name: &str, state: &str) {
    let mut dataplane = zone.get(&format!("/meshes/default/dataplanes/{name}")).await;
    dataplane["networking"]["inbound"][0]["state"] = json!(state);
    zone.apply(&dataplane.to_string());
}

#[tokio::test]
async fn traffic_goes_to_the_other_zone_without_an_endpoint_here_and_comes_back() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    global.apply(
        "
type: MeshLoadBalancingStrategy
name: near
mesh: default
spec:
  to:
    - targetRef: { kind: MeshService, name: backend }
      default:
        localityAwareness: { crossZone: { failover: [{ to: { type: Only, zones: [zone-2] } }] } }
",
    );
    let _ingress = ingress(&global, &zones[1]).await;
    let _far = Member::join(&zones[1], Shape::http("backend-2", "backend", &[])).await;
    let client = Member::join(&zones[0], Shape::http("client-1", "client", &["backend"])).await;
    client.reaches(0, "backend-2").await;

    let _near = Member::join(&zones[0], Shape::http("backend-1", "backend", &[])).await;
    let client = &client;
    let only = |name: &'static str| async move {
        eventually(&format!("answers of {name} only"), || async move {
            for _ in 0..10 {
                match client.call(0, "/").await? {
                    (StatusCode::OK, seen) if seen["service"] == name => {}
                    (status, seen) => return Err(format!("{status}: {seen}")),
                }
            }
            Ok(())
        })
        .await;
    };
    only("backend-1").await;
    set_state(&zones[0], "backend-1", "NotReady").await;
    only("backend-2").await;
    set_state(&zones[0], "backend-1", "Ready").await;
    only("backend-1").await;
}
