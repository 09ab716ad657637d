//! Proxies that bring along as much as they can, by a token that lets them.

use std::ops::Range;

use reqwest::Method;
use serde_json::json;
use tonic::Code;

use super::ads_peer::{join, node, refused, token};
use crate::{
    harness::{Options, Zone, eventually},
    mesh::{ALLOW_ALL, MESH, Member, Shape, federation, federation_with, ingress},
};

/// As SECURITY.md says.
const INBOUNDS: usize = 128;
const TOLD: usize = 10_000;

/// A dataplane with an inbound for each of `numbers`, of the web or of a service of its own.
fn dataplane(name: &str, numbers: Range<usize>, of_web: bool) -> String {
    let tags = |n: usize| match of_web {
        // It comes before what begins with `kuma.io`.
        true => json!({"a": format!("v-{n}"), "kuma.io/service": "web"}),
        false => json!({"kuma.io/service": format!("s-{n}")}),
    };
    let inbounds = numbers.clone().map(|n| json!({"port": n - numbers.start + 1, "tags": tags(n)}));
    json!({
        "type": "Dataplane", "mesh": "default", "name": name,
        "networking": {"address": "127.0.0.9", "inbound": inbounds.collect::<Vec<_>>()},
    })
    .to_string()
}

async fn services(zone: &Zone) -> usize {
    let (_, listed) = zone.call(Method::GET, "/meshes/default/meshservices?size=1", None).await;
    usize::try_from(listed["total"].as_u64().expect("a list has a total")).unwrap()
}

#[tokio::test]
async fn a_proxy_brings_along_no_more_than_one_has_and_an_operator_may_apply_it() {
    let options = Options::default().with("xdsServer.dataplaneDeregistrationDelay", "1s");
    let (global, zones) = federation_with(1, Options::default(), options).await;
    let zone = &zones[0];
    global.apply(&format!("{MESH}meshServices: {{ mode: Everywhere }}\n"));
    let named = token(zone, &["--name", "web-1"]).await;
    for (numbers, says) in [(0..4000, "4000 services"), (0..65, "65 services"), (0..200, "200 inbounds")] {
        let brought = dataplane("web-1", numbers.clone(), numbers.end == 200);
        refused(zone, node("default.web-1", Some(&brought)), Some(&named), Code::InvalidArgument, says).await;
        refused(
            zone,
            node("default.web-1", Some(&brought)),
            Some(&named),
            Code::InvalidArgument,
            "networking.inbound",
        )
        .await;
    }
    assert_eq!(services(zone).await, 0, "nothing of it was kept");
    // Coming back with other services makes no more than a share of them.
    for round in 0..6 {
        let brought = dataplane("web-1", round * 64..(round + 1) * 64, false);
        let stream = join(zone, node("default.web-1", Some(&brought)), Some(&named)).await;
        let stream = stream.expect("so many are allowed");
        let made = ((round + 1) * 64).min(256);
        eventually(&format!("{made} services"), || async move {
            let found = services(zone).await;
            if found == made { Ok(()) } else { Err(found.to_string()) }
        })
        .await;
        drop(stream);
    }
    zone.apply(&dataplane("big-1", 1000..1300, false));
    let big = token(zone, &["--name", "big-1"]).await;
    join(zone, node("default.big-1", None), Some(&big)).await.expect("an operator said so");
    eventually("all services of what an operator applied", || async {
        let found = services(zone).await;
        if found == 556 { Ok(()) } else { Err(found.to_string()) }
    })
    .await;
}

#[tokio::test]
async fn a_token_for_one_service_hides_no_other_from_other_zones() {
    let (global, zones) = federation(2).await;
    global.apply(ALLOW_ALL);
    let [here, there] = &zones[..] else { panic!("two zones") };
    let _ingress = ingress(&global, there).await;
    let web = token(there, &["--tag", "kuma.io/service=web"]).await;
    let mut held = Vec::new();
    for n in 0..TOLD / INBOUNDS + 5 {
        let name = format!("web-{n}");
        let brought = dataplane(&name, n * INBOUNDS..(n + 1) * INBOUNDS, true);
        let stream = join(there, node(&format!("default.{name}"), Some(&brought)), Some(&web)).await;
        held.push(stream.expect("its token says so"));
    }
    let _payments = Member::join(there, Shape::http("payments-1", "payments", &[])).await;
    let client = Member::join(here, Shape::http("client-1", "client", &["payments"])).await;
    eventually("all that zones are told", || async {
        let all = here.try_get("/zoneingresses").await?;
        let theirs = all["items"].as_array().into_iter().flatten().find(|item| item["zone"] == "zone-2");
        let offered = theirs.and_then(|ingress| ingress["availableServices"].as_array()).map_or(0, Vec::len);
        if offered == TOLD { Ok(()) } else { Err(format!("{offered} tag sets")) }
    })
    .await;
    client.reaches(0, "payments-1").await;
}
