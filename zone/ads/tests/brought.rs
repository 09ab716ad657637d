//! What proxies bring along that is more than their tokens say.

use common::{
    model::{ResourceKey, kinds::dataplane, labels},
    token::DataplaneClaims,
};
use tokio::time::Instant;
use tonic::Code;

use super::{
    client::{BOTH, CDS, Client, Protocol, Who},
    harness::{self, Zone},
};

/// The web, with this more in its networking.
fn web(more: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: web-1, networking: {{address: 127.0.0.2, inbound: [{{port: 80, \
         servicePort: 8080, tags: {{kuma.io/service: web}}}}]{more}}}}}"
    )
}

fn edge(kind: &str) -> String {
    web(&format!(", listeners: [{{type: {kind}, address: 127.0.0.2, port: 10002, name: out}}]"))
}

const GATEWAY: &str = "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.2, gateway: {type: \
                       BUILTIN, tags: {kuma.io/service: web}}}}";

/// A token for the web with these claims more.
fn token(zone: &Zone, adjust: impl FnOnce(&mut DataplaneClaims)) -> String {
    let mut claims = DataplaneClaims { name: "web-1".to_owned(), ..DataplaneClaims::default() };
    adjust(&mut claims);
    zone.dataplane_token(claims)
}

fn of_service(claims: &mut DataplaneClaims) {
    claims.tags = [(labels::TAG_SERVICE.to_owned(), ["web".to_owned()].into())].into();
}

fn stored(zone: &Zone) -> bool {
    zone.index.current().get(&ResourceKey::new(&dataplane::KIND, "default", "web-1")).is_some()
}

async fn comes(zone: &Zone, protocol: Protocol, resource: Option<&str>, token: &str) -> Client {
    let mut client =
        Client::begin(zone, protocol, Who { resource, ..Who::known("default.web-1", token) }).await;
    client.take(CDS).await;
    client
}

async fn refused(zone: &Zone, protocol: Protocol, resource: Option<&str>, token: &str, says: &str) {
    let who = Who { resource, ..Who::known("default.web-1", token) };
    let mut client = Client::connect(zone, protocol, who).await;
    client.subscribe(CDS, &[]).await;
    let status = client.receive().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status:?}");
    assert!(status.message().contains(says), "{says}: {status:?}");
}

#[tokio::test]
async fn a_proxy_takes_no_part_for_others_without_a_token_for_that() {
    let zone = Zone::start_with(|config| config.requirement.bound = true).await;
    let ordinary = token(&zone, of_service);
    let exit = "networking.listeners[0].type";
    for protocol in BOTH {
        for kind in ["ZoneEgress", "ZoneIngress"] {
            refused(&zone, protocol, Some(&edge(kind)), &ordinary, exit).await;
            assert!(!stored(&zone), "nothing of it is kept");
        }
    }
    // What an operator applied says what it likes, also to a proxy that brings the same.
    zone.put(&edge("ZoneEgress")).await;
    comes(&zone, Protocol::Delta, None, &ordinary).await;
    zone.stop().await;
}

#[tokio::test]
async fn a_token_for_an_edge_is_for_that_edge_and_its_resource_for_nobody_else() {
    let zone = Zone::start().await;
    let ordinary = token(&zone, of_service);
    let egress = token(&zone, |claims| claims.r#type = "egress".to_owned());
    let ingress = token(&zone, |claims| claims.r#type = "ingress".to_owned());
    refused(&zone, Protocol::Sotw, Some(&edge("ZoneEgress")), &ingress, "has no listener of a ZoneIngress")
        .await;
    refused(&zone, Protocol::Sotw, Some(&web("")), &egress, "has no listener of a ZoneEgress").await;
    let client = comes(&zone, Protocol::Sotw, Some(&edge("ZoneEgress")), &egress).await;
    // What is there by such a token does not open to another, which may still replace it by what it may be itself.
    refused(&zone, Protocol::Sotw, None, &ordinary, "networking.listeners[0].type").await;
    refused(&zone, Protocol::Sotw, Some(&edge("ZoneEgress")), &ordinary, "networking.listeners[0].type")
        .await;
    let mut ends = client;
    comes(&zone, Protocol::Sotw, Some(&web("")), &ordinary).await;
    assert_eq!(ends.end().await.code(), Code::PermissionDenied, "it is no egress any more");
    zone.stop().await;
}

#[tokio::test]
async fn a_builtin_gateway_needs_a_token_for_its_service() {
    let zone = Zone::start().await;
    let by_name = token(&zone, |_| {});
    refused(&zone, Protocol::Delta, Some(GATEWAY), &by_name, "networking.gateway.type").await;
    comes(&zone, Protocol::Delta, Some(GATEWAY), &token(&zone, of_service)).await;
    zone.stop().await;
}

#[tokio::test]
async fn a_token_that_must_be_bound_names_all_by_which_a_proxy_is_known() {
    let zone = Zone::start_with(|config| config.requirement.bound = true).await;
    let web = token(&zone, of_service);
    let payments = |label: &str| {
        harness::dataplane("web-1", "127.0.0.2", "web", &[])
            .replace("networking:", &format!("labels: {{{label}: payments}}, networking:"))
            // As the API would have completed it.
            .replace("kuma.io/protocol", "kuma.io/zone: east, kuma.io/protocol")
    };
    for label in ["kuma.io/workload", "k8s.kuma.io/namespace", "k8s.kuma.io/service-account", "app"] {
        refused(&zone, Protocol::Delta, Some(&payments(label)), &web, &format!("labels[\"{label}\"]")).await;
    }
    let workload = token(&zone, |claims| claims.workload = "payments".to_owned());
    let service = "networking.inbound[0].tags[\"kuma.io/service\"]";
    refused(&zone, Protocol::Delta, Some(&payments("kuma.io/workload")), &workload, service).await;
    let both = token(&zone, |claims| {
        of_service(claims);
        claims.workload = "payments".to_owned();
    });
    let client = comes(&zone, Protocol::Delta, Some(&payments("kuma.io/workload")), &both).await;
    // Nor does a wider token become what one that was bound let in.
    let wide = token(&zone, |_| {});
    refused(&zone, Protocol::Delta, None, &wide, "must name its services or its workload").await;
    drop(client);
    // What an operator applied says what it likes.
    zone.put(&payments("app")).await;
    comes(&zone, Protocol::Delta, Some(&payments("app")), &web).await;
    zone.stop().await;
}

/// The web with so many inbounds, each of a service of its own or all of one.
fn large(inbounds: usize, services: usize) -> String {
    let inbound = |n: usize| format!("{{port: {}, tags: {{kuma.io/service: s-{}}}}}", n + 1, n % services);
    let inbounds: Vec<String> = (0..inbounds).map(inbound).collect();
    format!(
        "{{type: Dataplane, mesh: default, name: web-1, networking: {{address: 127.0.0.2, inbound: [{}]}}}}",
        inbounds.join(", ")
    )
}

async fn turned_away(zone: &Zone, resource: &str, token: &str, code: Code, says: &str) {
    let who = Who { resource: Some(resource), ..Who::known("default.web-1", token) };
    let mut client = Client::connect(zone, Protocol::Delta, who).await;
    client.subscribe(CDS, &[]).await;
    let status = client.receive().await.unwrap_err();
    assert!(status.code() == code && status.message().contains(says), "{says}: {status:?}");
}

#[tokio::test]
async fn a_proxy_brings_along_what_one_has_and_an_operator_may_apply_more() {
    let zone = Zone::start().await;
    let named = token(&zone, |_| {});
    let no = Code::InvalidArgument;
    turned_away(&zone, &large(129, 1), &named, no, "networking.inbound: 129 inbounds").await;
    turned_away(&zone, &large(65, 65), &named, no, "networking.inbound: 65 services").await;
    assert!(!stored(&zone), "nothing of it is kept");
    comes(&zone, Protocol::Delta, Some(&large(128, 64)), &named).await;
    // It stays the operator's, and a proxy may bring the same.
    zone.put(&large(300, 100).replace("tags: {", "tags: {kuma.io/zone: east, ")).await;
    comes(&zone, Protocol::Delta, Some(&large(300, 100)), &named).await;
    comes(&zone, Protocol::Delta, None, &named).await;
    zone.stop().await;
}

#[tokio::test]
async fn proxies_with_one_token_bring_along_so_much_and_others_too() {
    let zone = Zone::start_with(|config| config.streams = 8).await;
    let named = token(&zone, |_| {});
    turned_away(&zone, &large(9, 1), &named, Code::ResourceExhausted, "as many inbounds as one token may")
        .await;
    let held = comes(&zone, Protocol::Delta, Some(&large(8, 1)), &named).await;
    let label = |zone: &Zone| {
        let index = zone.index.current();
        let stored = index.get(&ResourceKey::new(&dataplane::KIND, "default", "web-1")).unwrap();
        stored.label(labels::REGISTERED_WITH).map(str::to_owned)
    };
    assert_eq!(label(&zone).map(|label| label.len()), Some(16));
    drop(held);
    let before = label(&zone);
    comes(&zone, Protocol::Delta, Some(&large(7, 1)), &token(&zone, of_service_0)).await;
    assert_ne!(label(&zone), before, "it is on the account of who came last");
    zone.stop().await;
}

fn of_service_0(claims: &mut DataplaneClaims) {
    claims.tags = [(labels::TAG_SERVICE.to_owned(), ["s-0".to_owned()].into())].into();
}

#[tokio::test]
async fn a_proxy_changes_what_it_brings_along_now_and_then_only() {
    let zone = Zone::start().await;
    let named = token(&zone, |_| {});
    let begun = Instant::now();
    let mut changes = 0;
    let refused = loop {
        let resource = large(1 + changes % 2, 1);
        let who = Who { resource: Some(&resource), ..Who::known("default.web-1", &named) };
        let mut client = Client::connect(&zone, Protocol::Delta, who).await;
        client.subscribe(CDS, &[]).await;
        if let Err(status) = client.receive().await {
            break status;
        }
        changes += 1;
        assert!(changes <= 8 + usize::try_from(begun.elapsed().as_secs() / 5).unwrap() + 1);
    };
    assert!(changes >= 8, "a few in a row are nothing strange: {changes}");
    let says = refused.message().contains("too often");
    assert!(refused.code() == Code::ResourceExhausted && says, "{refused:?}");
    // Who starts again with what it had is let in.
    for _ in 0..8 {
        comes(&zone, Protocol::Delta, Some(&large(1 + (changes + 1) % 2, 1)), &named).await;
    }
    zone.stop().await;
}
