//! What an operator applied, and what a proxy brings along.

use std::time::Duration;

use common::proto::envoy::config::core::v3::Node;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::time::timeout;
use tonic::Code;

use super::ads_peer::{join, node, refused, token};
use crate::harness::{Global, Options, Zone, eventually};

/// A dataplane of this service.
fn dataplane(name: &str, service: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, labels: {{kuma.io/workload: {service}-workload}}, networking: \
         {{address: 127.0.0.1, inbound: [{{port: 80, servicePort: 8080, serviceAddress: 127.0.0.1, tags: \
         {{kuma.io/service: {service}}}}}]}}}}"
    )
}

fn who(name: &str, service: &str) -> Node {
    node(&format!("default.{name}"), Some(&dataplane(name, service)))
}

async fn zone(options: Options) -> (Global, Zone) {
    let global = Global::start().await;
    let options = options.with("xdsServer.dataplaneDeregistrationDelay", "1s");
    let zone = Zone::start_with(&global, "zone-1", options).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    (global, zone)
}

/// The service of a stored dataplane; `None` when there is no such dataplane.
async fn service(zone: &Zone, name: &str) -> Option<String> {
    let (status, body) = zone.call(Method::GET, &format!("/meshes/default/dataplanes/{name}"), None).await;
    let service = body["networking"]["inbound"][0]["tags"]["kuma.io/service"].as_str().map(str::to_owned);
    if status == StatusCode::NOT_FOUND { None } else { Some(service.expect("a dataplane has a service")) }
}

async fn gone(zone: &Zone, name: &str) {
    eventually(&format!("{name} is deleted"), || async {
        service(zone, name).await.map_or(Ok(()), |service| Err(format!("it still is {service}")))
    })
    .await;
}

/// Returns when whoever left before was deregistered, if at all.
async fn deregistration(zone: &Zone) {
    let token = token(zone, &["--name", "clock"]).await;
    drop(join(zone, who("clock", "clock"), Some(&token)).await.expect("the clock is let in"));
    gone(zone, "clock").await;
}

#[tokio::test]
async fn what_an_operator_applied_is_neither_replaced_nor_deleted_by_a_proxy() {
    let (_global, mut zone) = zone(Options::default()).await;
    let bound = token(&zone, &["--name", "web-1"]).await;
    zone.apply(&dataplane("web-1", "web"));

    // A proxy that brings something else is refused, and one that brings the same is served.
    let refuse = async |zone: &Zone| {
        let thief = who("web-1", "bank");
        refused(zone, thief, Some(&bound), Code::FailedPrecondition, "was applied by somebody").await;
        assert_eq!(service(zone, "web-1").await.as_deref(), Some("web"));
    };
    refuse(&zone).await;
    let honest = join(&zone, who("web-1", "web"), Some(&bound)).await.expect("it is the same");
    drop(honest);
    deregistration(&zone).await;
    assert_eq!(service(&zone, "web-1").await.as_deref(), Some("web"));

    zone.process.stop().await;
    zone.start_again().await;
    refuse(&zone).await;
}

#[tokio::test]
async fn what_a_proxy_registered_is_its_own_across_restarts_until_somebody_applies_it() {
    let (_global, mut zone) = zone(Options::default()).await;
    let bound = token(&zone, &["--name", "web-1"]).await;
    let stream = join(&zone, who("web-1", "web"), Some(&bound)).await.expect("it is let in");
    zone.process.kill();
    drop(stream);
    zone.start_again().await;
    assert_eq!(service(&zone, "web-1").await.as_deref(), Some("web"));

    let stream = join(&zone, who("web-1", "shop"), Some(&bound)).await.expect("it may change its own");
    assert_eq!(service(&zone, "web-1").await.as_deref(), Some("shop"));
    drop(stream);
    gone(&zone, "web-1").await;

    // Applied while the proxy is there, even from what the API shows, it is the operator's.
    let stream = join(&zone, who("web-1", "web"), Some(&bound)).await.expect("it is let in");
    let shown = zone.get("/meshes/default/dataplanes/web-1").await;
    assert_eq!(shown["labels"]["kuma.io/registered-by"], "proxy");
    zone.apply(&shown.to_string());
    drop(stream);
    deregistration(&zone).await;
    assert_eq!(service(&zone, "web-1").await.as_deref(), Some("web"));
}

#[tokio::test]
async fn a_token_says_what_a_proxy_may_bring_when_that_is_required() {
    let (_global, zone) =
        zone(Options::default().with("dpServer.authn.dpProxy.dpToken.requireBound", "true")).await;
    let by_name = token(&zone, &["--name", "web-1"]).await;
    let by_tag = token(&zone, &["--name", "web-1", "--tag", "kuma.io/service=web"]).await;
    let by_workload = token(&zone, &["--workload", "web-workload"]).await;
    let by_both =
        token(&zone, &["--name", "web-1", "--tag", "kuma.io/service=web", "--workload", "web-workload"])
            .await;
    let by_other_tag = token(&zone, &["--tag", "team=shop"]).await;
    let no = Code::PermissionDenied;
    refused(&zone, who("web-1", "web"), Some(&by_name), no, "must name its services or its workload").await;
    refused(&zone, who("web-1", "web"), Some(&by_other_tag), no, "team").await;
    refused(&zone, who("web-1", "bank"), Some(&by_tag), no, "kuma.io/service=bank").await;
    refused(&zone, who("web-1", "bank"), Some(&by_workload), no, "workload").await;
    // What a token does not name is nothing a proxy may call itself.
    refused(&zone, who("web-1", "web"), Some(&by_tag), no, "labels[\"kuma.io/workload\"]").await;
    refused(&zone, who("web-1", "web"), Some(&by_workload), no, "tags[\"kuma.io/service\"]").await;
    join(&zone, who("web-1", "web"), Some(&by_both)).await.expect("its token says so");
    // What an operator applied needs no more than a name.
    zone.apply(&dataplane("web-2", "web"));
    let named = token(&zone, &["--name", "web-2"]).await;
    join(&zone, node("default.web-2", None), Some(&named)).await.expect("it brings nothing");
}

const EDGE: [&str; 2] = ["ZoneEgress", "ZoneIngress"];

/// The web with this more in its networking.
fn web_with(more: &str) -> String {
    dataplane("web-1", "web").replace("networking: {", &format!("networking: {{{more}, "))
}

fn edge(kind: &str) -> String {
    web_with(&format!("listeners: [{{type: {kind}, address: 127.0.0.1, port: 10002, name: out}}]"))
}

/// Who takes part for others gets what others are sent: that takes a token for it.
#[tokio::test]
async fn a_proxy_is_no_edge_of_its_mesh_and_no_gateway_without_a_token_for_that() {
    let (_global, zone) = zone(Options::default()).await;
    let by_name = token(&zone, &["--name", "web-1"]).await;
    let by_service = token(&zone, &["--name", "web-1", "--tag", "kuma.io/service=web"]).await;
    let egress = token(&zone, &["--name", "web-1", "--proxy-type", "egress"]).await;
    let no = Code::PermissionDenied;
    let gateway = "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, gateway: {type: \
                   BUILTIN, tags: {kuma.io/service: web}}}}";
    for kind in EDGE {
        for ordinary in [&by_name, &by_service] {
            let says = "networking.listeners[0].type";
            refused(&zone, node("default.web-1", Some(&edge(kind))), Some(ordinary), no, says).await;
        }
    }
    refused(&zone, node("default.web-1", Some(gateway)), Some(&by_name), no, "networking.gateway.type").await;
    refused(
        &zone,
        node("default.web-1", Some(&edge(EDGE[1]))),
        Some(&egress),
        no,
        "has no listener of a ZoneEgress",
    )
    .await;
    // An ordinary one is nothing that has a token for an egress.
    refused(&zone, who("web-1", "web"), Some(&egress), no, "has no listener of a ZoneEgress").await;
    assert_eq!(service(&zone, "web-1").await, None, "nothing of it was kept");

    let serves = join(&zone, node("default.web-1", Some(&edge(EDGE[0]))), Some(&egress)).await;
    let serves = serves.expect("its token says so");
    // Somebody else with the name does not become it by bringing nothing, or the same.
    let says = "networking.listeners[0].type";
    refused(&zone, node("default.web-1", None), Some(&by_service), no, says).await;
    refused(&zone, node("default.web-1", Some(&edge(EDGE[0]))), Some(&by_service), no, says).await;
    drop(serves);
    gone(&zone, "web-1").await;
    join(&zone, node("default.web-1", Some(gateway)), Some(&by_service))
        .await
        .expect("its token names the service");
}

/// What no operator said and no token says makes a proxy nothing, by which policies and services would take it for another.
#[tokio::test]
async fn a_bound_token_is_not_got_round_by_what_else_makes_a_proxy_somebody() {
    let (_global, zone) =
        zone(Options::default().with("dpServer.authn.dpProxy.dpToken.requireBound", "true")).await;
    let bound =
        token(&zone, &["--name", "web-1", "--tag", "kuma.io/service=web", "--workload", "web-workload"])
            .await;
    let no = Code::PermissionDenied;
    for label in ["k8s.kuma.io/namespace", "k8s.kuma.io/service-account", "app", "team"] {
        let labelled = dataplane("web-1", "web").replace("labels: {", &format!("labels: {{{label}: bank, "));
        let says = format!("labels[\"{label}\"]");
        refused(&zone, node("default.web-1", Some(&labelled)), Some(&bound), no, &says).await;
    }
    let tagged = dataplane("web-1", "web").replace("tags: {", "tags: {team: bank, ");
    refused(&zone, node("default.web-1", Some(&tagged)), Some(&bound), no, "tags[\"team\"]").await;
    let second = dataplane("web-1", "web").replace(
        "inbound: [",
        "inbound: [{port: 81, servicePort: 8081, serviceAddress: 127.0.0.1, tags: {kuma.io/service: bank}}, ",
    );
    refused(&zone, node("default.web-1", Some(&second)), Some(&bound), no, "kuma.io/service=bank").await;
    assert_eq!(service(&zone, "web-1").await, None, "nothing of it was kept");
    join(&zone, who("web-1", "web"), Some(&bound)).await.expect("it says no more than its token");
}

/// A certificate says tag and value in one text, of which another tag may have made the same.
#[tokio::test]
async fn no_tag_says_what_a_token_or_a_control_plane_says_by_another() {
    let (_global, zone) = zone(Options::default()).await;
    let named = token(&zone, &["--tag", "kuma.io/service=web", "--tag", "example.com/team=a"]).await;
    let any = token(&zone, &[]).await;
    let with = |more: &str| {
        let tagged =
            dataplane("web-1", "web").replace("tags: {", &format!("tags: {{example.com/team: a, {more}, "));
        node("default.web-1", Some(&tagged))
    };
    let no = Code::PermissionDenied;
    for token in [&named, &any] {
        refused(
            &zone,
            with("kuma.io: zone/west"),
            Some(token),
            no,
            "would be taken for one that says kuma.io/zone=west",
        )
        .await;
    }
    let says = "tags[\"example.com\"]: a certificate that says so would be taken for one that says example.com/team=b";
    refused(&zone, with("example.com: team/b"), Some(&named), no, says).await;
    let says = "networking.inbound[0].tags[\"kuma.io/service\"]: the egresses of the mesh are called so";
    refused(&zone, who("web-1", "zone-egress"), Some(&any), no, says).await;
    assert_eq!(service(&zone, "web-1").await, None, "nothing of it was kept");
    join(&zone, with("example.com: path/b"), Some(&named)).await.expect("it says nothing of the team");
    gone(&zone, "web-1").await;
    // Nobody said anything of the team to whoever has the other token.
    join(&zone, with("example.com: team/b"), Some(&any)).await.expect("it may say anything");
}

/// A client that leaves in the middle leaves nothing behind.
#[tokio::test]
async fn who_takes_its_request_back_is_deregistered_all_the_same() {
    let (_global, zone) = zone(Options::default()).await;
    let wide = token(&zone, &[]).await;
    let certificate = std::fs::read(zone.certificate()).expect("the zone has a certificate");
    let client = reqwest::Client::builder()
        .tls_certs_only([reqwest::Certificate::from_pem(&certificate).unwrap()])
        .build()
        .unwrap();
    let ask = |n: u64| {
        let name = format!("web-{n}");
        let node = json!({"id": format!("default.{name}"), "metadata": {"dataplane.proxyType": "dataplane",
            "dataplane.resource": dataplane(&name, "web")}});
        let request = client.post(format!("https://{}/v3/discovery:runtime", zone.dp_server));
        let request = request.header("authorization", &wide).header("content-type", "application/json");
        request.body(json!({"node": node}).to_string()).send()
    };
    ask(1000).await.unwrap().error_for_status().expect("it is answered");
    for n in 0..200 {
        let _left_or_answered = timeout(Duration::from_millis(n % 14), ask(n)).await;
    }
    eventually("nothing of them is left", || async {
        let all = zone.try_get("/meshes/default/dataplanes?size=1").await?;
        if all["total"] == 0 { Ok(()) } else { Err(all["total"].to_string()) }
    })
    .await;
}
