//! Nodes that belong to no mesh.

use std::time::Duration;

use bytes::Bytes;
use common::{
    envoy_config::KIND,
    model::ResourceKey,
    token::{self, NODE_GROUP, Purpose, UserClaims},
};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};
use tonic::Code;

use super::{
    client::{BOTH, CDS, Client, EDS, LDS, Protocol, Who, addresses},
    front_door::exchange,
    harness::{Zone, dataplane},
};
use crate::ads::auth::{Credential, Requirement};

/// A zone with a key for user tokens.
async fn zone() -> Zone {
    let zone = Zone::start().await;
    let key = token::new_signing_key().unwrap();
    zone.secret(Purpose::User.key(1), key.pem().as_bytes()).await;
    zone
}

fn token_of(zone: &Zone, name: &str, groups: &[&str]) -> String {
    let groups = groups.iter().map(|group| (*group).to_owned()).collect();
    let claims = UserClaims { name: name.to_owned(), groups };
    let valid = Duration::from_secs(3600);
    token::issue(&zone.index.current(), Purpose::User, &claims, valid, &zone.env).unwrap()
}

fn node<'a>(id: &'a str, token: Option<&'a str>) -> Who<'a> {
    Who { id, kind: "", resource: None, token }
}

async fn put(zone: &Zone, name: &str, id: &str, resources: &str) {
    zone.put(&format!("{{type: EnvoyConfig, name: {name}, spec: {{nodes: [{{id: '{id}'}}], {resources}}}}}"))
        .await;
}

async fn delete(zone: &Zone, name: &str) {
    zone.delete(ResourceKey::global(&KIND, name)).await;
}

fn endpoints(cluster: &str, address: &str) -> String {
    let address = format!("{{socket_address: {{address: {address}, port_value: 80}}}}");
    format!(
        "endpoints: [{{cluster_name: '{cluster}', endpoints: [{{lb_endpoints: [{{endpoint: {{address: {address}}}}}]}}]}}]"
    )
}

#[tokio::test]
async fn what_somebody_wrote_for_a_node_reaches_it_and_so_does_every_change() {
    let zone = zone().await;
    let token = token_of(&zone, "edge-1", &[NODE_GROUP]);
    put(&zone, "one", "edge-*", "clusters: [{name: a}], listeners: [{name: l}]").await;
    put(&zone, "other", "core-*", "clusters: [{name: x}]").await;
    for protocol in BOTH {
        let mut client = Client::begin(&zone, protocol, node("edge-1", Some(&token))).await;
        assert_eq!(client.take(CDS).await.names, ["a"], "{protocol:?}");
        assert_eq!(client.take(LDS).await.names, ["l"]);

        put(&zone, "two", "*", "clusters: [{name: 'xdstp://plane/b?x=y'}]").await;
        let (all, added) = (&["a", "xdstp://plane/b?x=y"][..], &["xdstp://plane/b?x=y"][..]);
        let is_delta = protocol == Protocol::Delta;
        assert_eq!(client.take(CDS).await.names, if is_delta { added } else { all });

        // What is asked for by name need not be there yet; until it is, nothing is behind it.
        client.subscribe(EDS, &["late"]).await;
        let vacant = client.take(EDS).await;
        match is_delta {
            true => assert_eq!(vacant.removed, ["late"]),
            false => assert_eq!((&vacant.names[..], addresses(&vacant)), (&["late".to_owned()][..], vec![])),
        }
        put(&zone, "late", "edge-1", &endpoints("late", "10.0.0.1")).await;
        assert_eq!(addresses(&client.take(EDS).await), ["10.0.0.1"]);
        put(&zone, "late", "edge-1", &endpoints("late", "10.0.0.2")).await;
        assert_eq!(addresses(&client.take(EDS).await), ["10.0.0.2"]);

        delete(&zone, "two").await;
        let gone = client.take(CDS).await;
        match is_delta {
            true => assert_eq!((&gone.names[..], &gone.removed[..]), (&[][..], &[added[0].to_owned()][..])),
            false => assert_eq!(gone.names, ["a"]),
        }
        delete(&zone, "late").await;
        if is_delta {
            assert_eq!(client.take(EDS).await.removed, ["late"]);
        }
    }
    zone.stop().await;
}

#[tokio::test]
async fn a_node_that_nothing_is_for_is_served_nothing_until_something_is() {
    let zone = zone().await;
    let token = token_of(&zone, "edge-1", &[NODE_GROUP]);
    let mut client = Client::begin(&zone, Protocol::Delta, node("edge-1", Some(&token))).await;
    assert!(client.take(CDS).await.names.is_empty());
    assert!(client.take(LDS).await.names.is_empty());
    put(&zone, "one", "edge-1", "clusters: [{name: a}]").await;
    assert_eq!(client.take(CDS).await.names, ["a"]);
    // Another selector takes it away again.
    put(&zone, "one", "edge-2", "clusters: [{name: a}]").await;
    assert_eq!(client.take(CDS).await.removed, ["a"]);
    zone.stop().await;
}

#[tokio::test]
async fn a_node_shows_a_token_in_its_name() {
    let zone = zone().await;
    put(&zone, "one", "*", "clusters: [{name: a}]").await;
    let (good, other) = (token_of(&zone, "edge-1", &[NODE_GROUP]), token_of(&zone, "edge-2", &[NODE_GROUP]));
    let (user, proxy) = (token_of(&zone, "edge-1", &["team"]), zone.token_for("web-1"));
    for (id, token, expected) in [
        ("edge-1", None, Code::Unauthenticated),
        ("edge-1", Some("nonsense"), Code::Unauthenticated),
        ("edge-1", Some(&*other), Code::PermissionDenied),
        ("edge-1", Some(&user), Code::Unauthenticated),
        ("edge-1", Some(&proxy), Code::Unauthenticated),
        ("default.web-1", Some(&good), Code::PermissionDenied),
    ] {
        let mut client = Client::begin(&zone, Protocol::Sotw, node(id, token)).await;
        let status = client.end().await;
        assert_eq!(status.code(), expected, "{id} {status}");
    }
    // Who was let in leaves when its token is revoked.
    let mut client = Client::begin(&zone, Protocol::Sotw, node("edge-1", Some(&good))).await;
    assert_eq!(client.take(CDS).await.names, ["a"]);
    zone.delete(Purpose::User.key(1)).await;
    assert_eq!(client.end().await.code(), Code::Unauthenticated);
    zone.stop().await;
}

#[tokio::test]
async fn without_tokens_a_node_is_whoever_it_says_and_proxies_still_show_theirs() {
    let requirement = Requirement { node: Credential::None, ..Requirement::default() };
    let zone = Zone::start_with(|config| config.requirement = requirement).await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    put(&zone, "one", "*", "clusters: [{name: a}]").await;
    for id in ["edge-1", "envoy.front", "test-id"] {
        let mut client = Client::begin(&zone, Protocol::Delta, node(id, None)).await;
        assert_eq!(client.take(CDS).await.names, ["a"], "{id}");
    }
    let mut client = Client::begin(&zone, Protocol::Delta, node("default.web-1", None)).await;
    assert_eq!(client.end().await.code(), Code::Unauthenticated);
    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Delta, node("default.web-1", Some(&token))).await;
    assert!(!client.take(CDS).await.names.contains(&"a".to_owned()), "a proxy gets what its mesh says");
    zone.stop().await;
}

#[tokio::test]
async fn a_node_may_ask_now_and_then() {
    let zone = zone().await;
    let token = token_of(&zone, "edge-1", &[NODE_GROUP]);
    put(&zone, "one", "*", "clusters: [{name: a}], runtimes: [{name: r, layer: {on: true}}]").await;
    let ask = async |rest: &str, asked: Value| {
        let request = Request::post(format!("https://localhost/v3/discovery:{rest}"))
            .header("authorization", &token)
            .body(Full::new(Bytes::from(asked.to_string())))
            .unwrap();
        let (status, text) = exchange(&zone, "h2", request).await;
        assert_eq!(status, StatusCode::OK, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        answer["resources"].clone()
    };
    let by = json!({"id": "edge-1", "cluster": "front"});
    assert_eq!(ask("clusters", json!({"node": by})).await[0]["name"], "a");
    let runtime = ask("runtime", json!({"node": by, "resourceNames": ["r"]})).await;
    assert_eq!(runtime[0]["layer"], json!({"on": true}));
    zone.stop().await;
}
