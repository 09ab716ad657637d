//! How proxies come and go, and who is not let in.

use std::time::Duration;

use common::{
    model::{
        ResourceKey,
        kinds::{dataplane, secret, zone_ingress},
    },
    proto::{
        envoy::service::health::v3::{
            HealthCheckRequest, HealthCheckRequestOrEndpointHealthResponse, HealthCheckSpecifier,
            health_check_request_or_endpoint_health_response::RequestType,
        },
        kuma::mesh::v1alpha1 as proto,
    },
    token::DataplaneClaims,
};
use futures::StreamExt;
use http::uri::PathAndQuery;
use tokio::time::timeout;
use tonic::Code;
use tonic_prost::ProstCodec;

use super::{
    client::{BOTH, CDS, Client, EDS, LDS, Protocol, Who, authorized, channel},
    harness::{PATIENCE, Zone, dataplane},
};

fn key(name: &str) -> ResourceKey {
    ResourceKey::new(&dataplane::KIND, "default", name)
}

#[tokio::test]
async fn a_proxy_that_brings_its_resource_is_registered_and_goes_with_it() {
    for protocol in BOTH {
        let zone = Zone::start_with(|config| config.deregister_after = Duration::from_millis(1)).await;
        let token = zone.token_for("web-1");
        let resource = dataplane("web-1", "127.0.0.2", "web", &[]);
        let who = Who { resource: Some(&resource), ..Who::known("default.web-1", &token) };
        let mut client = Client::begin(&zone, protocol, who).await;
        client.take(CDS).await;
        let stored = zone.index.current().get(&key("web-1")).cloned().unwrap();
        assert_eq!(&stored.labels["kuma.io/zone"], "east");
        let spec = stored.spec::<proto::Dataplane>().unwrap();
        assert_eq!(spec.networking.unwrap().inbound[0].tags["kuma.io/zone"], "east");
        drop(client);
        zone.until(|index| index.get(&key("web-1")).is_none().then_some(())).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_proxy_that_comes_back_or_was_made_by_the_api_stays() {
    let zone = Zone::start_with(|config| config.deregister_after = Duration::from_secs(3600)).await;
    zone.put(&dataplane("by-api", "127.0.0.3", "web", &[])).await;
    let token = zone.dataplane_token(DataplaneClaims::default());
    let resource = dataplane("web-1", "127.0.0.2", "web", &[]);
    for _ in 0..2 {
        let who = Who { resource: Some(&resource), ..Who::known("default.web-1", &token) };
        Client::begin(&zone, Protocol::Delta, who).await.take(CDS).await;
        Client::begin(&zone, Protocol::Delta, Who::known("default.by-api", &token)).await.take(CDS).await;
    }
    for name in ["web-1", "by-api"] {
        assert!(zone.index.current().get(&key(name)).is_some(), "{name}");
    }
    zone.stop().await;
}

#[tokio::test]
async fn a_restart_of_the_server_deregisters_nobody() {
    let zone = Zone::start_with(|config| config.deregister_after = Duration::ZERO).await;
    let token = zone.token_for("web-1");
    let resource = dataplane("web-1", "127.0.0.2", "web", &[]);
    let who = Who { resource: Some(&resource), ..Who::known("default.web-1", &token) };
    let mut client = Client::begin(&zone, Protocol::Sotw, who).await;
    client.take(CDS).await;
    let store = std::sync::Arc::clone(&zone.store);
    let ended = async { client.end().await };
    let ((), status) = tokio::join!(zone.stop(), ended);
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    let left = common::store::Store::snapshot(store.as_ref()).await.unwrap().resources;
    assert!(left.iter().any(|r| r.key == key("web-1")));
    let insight = left.iter().find(|r| r.kind().name == "DataplaneInsight").unwrap();
    let insight = prost::Message::decode(&insight.spec[..]).map(|i: proto::DataplaneInsight| i).unwrap();
    assert!(insight.subscriptions[0].disconnect_time.is_some(), "{insight:?}");
}

#[tokio::test]
async fn who_cannot_prove_who_they_are_gets_a_reason_and_nothing_else() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let fits = zone.token_for("web-1");
    let other = zone.token_for("web-2");
    let of_db = zone.dataplane_token(DataplaneClaims {
        tags: [("kuma.io/service".to_owned(), ["db".to_owned()].into())].into(),
        ..DataplaneClaims::default()
    });
    let ingress_token = zone.zone_token("ingress");
    let egress_token = zone.zone_token("egress");
    let stolen = dataplane("web-1", "127.0.0.2", "db", &[]);
    let mut cases = vec![
        ("default.web-1", "dataplane", None, None, Code::Unauthenticated, "must show a token"),
        ("default.web-1", "dataplane", None, Some("nonsense"), Code::Unauthenticated, "is not accepted"),
        (
            "default.web-1",
            "dataplane",
            None,
            Some(&*other),
            Code::PermissionDenied,
            "made for name \"web-2\"",
        ),
        ("default.web-1", "dataplane", None, Some(&*of_db), Code::PermissionDenied, "kuma.io/service"),
        ("default.web-1", "dataplane", None, Some(&*ingress_token), Code::Unauthenticated, "is not accepted"),
        (".in", "ingress", None, Some(&*egress_token), Code::PermissionDenied, "scope"),
        (".in", "ingress", None, Some(&*fits), Code::Unauthenticated, "is not accepted"),
        ("default.web-1", "gateway", None, Some(&*fits), Code::InvalidArgument, "dataplane.proxyType"),
        ("web-1", "dataplane", None, Some(&*fits), Code::InvalidArgument, "node id"),
        (
            "default.web-1",
            "dataplane",
            Some("{a: "),
            Some(&*fits),
            Code::InvalidArgument,
            "neither JSON nor YAML",
        ),
    ];
    // A token that fits what the proxy claims to be may still not replace what is stored.
    cases.push((
        "default.web-1",
        "dataplane",
        Some(&*stolen),
        Some(&*of_db),
        Code::PermissionDenied,
        "kuma.io/service",
    ));
    for protocol in BOTH {
        for (id, kind, resource, token, code, reason) in &cases {
            let who = Who { id, kind, resource: *resource, token: *token };
            let mut client = Client::connect(&zone, protocol, who).await;
            client.subscribe(CDS, &[]).await;
            let status = client.receive().await.unwrap_err();
            assert_eq!(status.code(), *code, "{id} {kind}: {status:?}");
            assert!(status.message().contains(reason), "{id} {kind}: {status:?}");
        }
    }
    assert!(zone.proxies.view().is_empty());
    zone.stop().await;
}

#[tokio::test]
async fn a_proxy_that_becomes_what_its_token_forbids_is_put_out() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.dataplane_token(DataplaneClaims {
        tags: [("kuma.io/service".to_owned(), ["web".to_owned()].into())].into(),
        ..DataplaneClaims::default()
    });
    let mut client = Client::begin(&zone, Protocol::Delta, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    client.take(LDS).await;
    zone.put(&dataplane("web-1", "127.0.0.2", "db", &[])).await;
    assert_eq!(client.end().await.code(), Code::PermissionDenied);
    zone.stop().await;
}

/// The id a token can be revoked by.
fn id_of(token: &str) -> String {
    let payload = token.split('.').nth(1).unwrap();
    let payload = base64::Engine::decode(&base64::prelude::BASE64_URL_SAFE_NO_PAD, payload).unwrap();
    let payload: serde_json::Value = serde_json::from_slice(&payload).unwrap();
    payload["jti"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked_and_nothing_is_pushed() {
    for protocol in BOTH {
        let zone = Zone::start().await;
        zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
        let (token, other) = (zone.token_for("web-1"), zone.token_for("web-1"));
        let mut client = Client::begin(&zone, protocol, Who::known("default.web-1", &token)).await;
        let mut stays = Client::begin(&zone, protocol, Who::known("default.web-1", &other)).await;
        for client in [&mut client, &mut stays] {
            client.take(CDS).await;
            client.take(LDS).await;
        }
        // In the place that has nothing to do with any mesh, so that no configuration can change.
        let revocations = ResourceKey::global(&secret::GLOBAL_SECRET, "dataplane-token-revocations-default");
        zone.secret(revocations, id_of(&token).as_bytes()).await;
        let status = client.end().await;
        assert_eq!(status.code(), Code::Unauthenticated, "{status:?}");
        assert!(status.message().contains("revoked"), "{status:?}");
        zone.put(&dataplane("web-1", "127.0.0.3", "web", &[])).await;
        stays.take(LDS).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_stream_ends_when_the_time_of_its_token_is_over() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let claims = DataplaneClaims { mesh: "default".to_owned(), ..DataplaneClaims::default() };
    let token = zone.dataplane_token_for(claims, Duration::from_secs(3));
    let mut client = Client::begin(&zone, Protocol::Delta, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    client.take(LDS).await;
    let status = client.end().await;
    assert!(status.code() == Code::Unauthenticated && status.message().contains("expired"), "{status:?}");
    zone.stop().await;
}

#[tokio::test]
async fn a_health_stream_ends_when_the_time_of_its_token_is_over() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let claims = DataplaneClaims { mesh: "default".to_owned(), ..DataplaneClaims::default() };
    let token = zone.dataplane_token_for(claims, Duration::from_secs(3));
    let node = Some(Who::known("default.web-1", &token).node());
    let first = HealthCheckRequest { node, ..HealthCheckRequest::default() };
    let first = HealthCheckRequestOrEndpointHealthResponse {
        request_type: Some(RequestType::HealthCheckRequest(first)),
    };
    let said = futures::stream::once(async { first }).chain(futures::stream::pending());
    let mut stub = tonic::client::Grpc::new(channel(&zone).await);
    stub.ready().await.unwrap();
    let codec = ProstCodec::<HealthCheckRequestOrEndpointHealthResponse, HealthCheckSpecifier>::default();
    let path = PathAndQuery::from_static(crate::ads::health::PATH);
    let mut answers = stub.streaming(authorized(said, Some(&token)), path, codec).await.unwrap().into_inner();
    let status = timeout(PATIENCE, answers.message()).await.unwrap().unwrap_err();
    assert!(status.code() == Code::Unauthenticated && status.message().contains("expired"), "{status:?}");
    zone.stop().await;
}

#[tokio::test]
async fn what_is_pushed_costs_no_verification() {
    for protocol in BOTH {
        let zone = Zone::start().await;
        zone.put(&dataplane("web-1", "127.0.0.2", "web", &["backend"])).await;
        zone.put(&dataplane("backend-0", "127.0.0.4", "backend", &[])).await;
        let token = zone.token_for("web-1");
        let mut client = Client::begin(&zone, protocol, Who::known("default.web-1", &token)).await;
        let clusters = client.take(CDS).await;
        client.take(LDS).await;
        let backend = clusters.names.iter().find(|name| name.starts_with("backend")).unwrap().clone();
        client.subscribe(EDS, &[&backend]).await;
        client.take(EDS).await;
        let before = zone.authenticator.verified();
        for n in 1..4 {
            zone.put(&dataplane(&format!("backend-{n}"), &format!("127.0.1.{n}"), "backend", &[])).await;
            client.take(EDS).await;
        }
        assert_eq!(zone.authenticator.verified(), before);
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_zone_ingress_registers_and_offers_what_the_zone_has() {
    let zone = Zone::start().await;
    zone.mtls("").await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.zone_token("ingress");
    let resource = "{type: ZoneIngress, name: in, networking: {address: 127.0.0.9, port: 10001, advertisedAddress: \
         127.0.0.9, advertisedPort: 10001}}";
    let who = Who { id: ".in", kind: "ingress", resource: Some(resource), token: Some(&token) };
    let mut client = Client::begin(&zone, Protocol::Sotw, who).await;
    let services = zone
        .until(|index| {
            let ingress = index.find(&zone_ingress::KIND, "", "in")?;
            let spec = ingress.spec::<proto::ZoneIngress>().unwrap();
            (!spec.available_services.is_empty()).then_some(spec.available_services)
        })
        .await;
    assert_eq!(services[0].tags["kuma.io/service"], "web");
    // The catalogue may arrive before or after the first answer.
    loop {
        let clusters = client.receive().await.unwrap();
        client.accept(&clusters).await;
        if clusters.names == ["default:web"] {
            break;
        }
    }
    zone.stop().await;
}
