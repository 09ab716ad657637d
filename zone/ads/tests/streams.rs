//! What a proxy is told, when, and what happens when it says no.

use std::time::Duration;

use common::model::{
    ResourceKey,
    kinds::{dataplane, mesh},
};
use common::proto::envoy::extensions::transport_sockets::tls::v3::Secret;
use prost::Message;

use super::{
    client::{BOTH, CDS, Client, EDS, LDS, Protocol, SDS, Who, addresses},
    harness::{Zone, dataplane},
};

const BACKEND: &str = "backend";

/// A zone where `web-1` uses `backend`, served by one proxy at 127.0.0.3.
async fn zone() -> Zone {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[BACKEND])).await;
    zone.put(&dataplane("backend-1", "127.0.0.3", BACKEND, &[])).await;
    zone
}

/// A client that has taken everything there is for `web-1`.
async fn settled(zone: &Zone, protocol: Protocol) -> Client {
    let token = zone.token_for("web-1");
    let mut client = Client::begin(zone, protocol, Who::known("default.web-1", &token)).await;
    let clusters = client.take(CDS).await;
    assert_eq!(clusters.names, [BACKEND, "localhost:18080"], "{protocol:?}");
    client.subscribe(EDS, &[BACKEND]).await;
    // Whether endpoints or listeners come first depends on which request is heard first.
    let mut seen = Vec::new();
    for _ in 0..2 {
        let answer = client.receive().await.unwrap();
        client.accept(&answer).await;
        if answer.type_url == EDS {
            assert_eq!(addresses(&answer), ["127.0.0.3"]);
        } else {
            assert_eq!(answer.names, ["inbound:127.0.0.2:10080", "outbound:127.0.0.1:20000"]);
        }
        seen.push(answer.type_url);
    }
    seen.sort();
    assert_eq!(seen, [EDS, LDS]);
    client
}

#[tokio::test]
async fn a_proxy_gets_everything_once_and_its_insight_says_so() {
    for protocol in BOTH {
        let zone = zone().await;
        let client = settled(&zone, protocol).await;
        let insight = zone
            .insight("web-1", |insight| {
                let status = insight.subscriptions.first().and_then(|s| s.status);
                status.and_then(|s| s.total).is_some_and(|total| total.responses_acknowledged == 3)
            })
            .await;
        let status = insight.subscriptions[0].status.unwrap();
        assert_eq!(status.total.unwrap().responses_sent, 3);
        assert_eq!(status.eds.unwrap().responses_acknowledged, 1);
        assert!(insight.subscriptions[0].disconnect_time.is_none());
        drop(client);
        zone.insight("web-1", |insight| insight.subscriptions[0].disconnect_time.is_some()).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_change_sends_only_what_it_changes() {
    for protocol in BOTH {
        let zone = zone().await;
        let mut client = settled(&zone, protocol).await;

        zone.put(&dataplane("backend-2", "127.0.0.4", BACKEND, &[])).await;
        let endpoints = client.take(EDS).await;
        assert_eq!(addresses(&endpoints), ["127.0.0.3", "127.0.0.4"]);

        // What concerns nobody here, or another mesh, is not heard of.
        zone.put(&dataplane("other-1", "127.0.0.5", "other", &[])).await;
        zone.put("{type: Mesh, name: elsewhere}").await;
        zone.delete(ResourceKey::new(&dataplane::KIND, "default", "backend-1")).await;
        let endpoints = client.take(EDS).await;
        assert_eq!(addresses(&endpoints), ["127.0.0.4"]);
        zone.stop().await;
    }
}

#[tokio::test]
async fn what_is_refused_stays_away_until_it_changes_and_the_rest_goes_on() {
    for protocol in BOTH {
        let zone = zone().await;
        let mut client = settled(&zone, protocol).await;

        let tagged = |version: &str| {
            let http = format!("kuma.io/protocol: http, version: {version}");
            dataplane("web-1", "127.0.0.2", "web", &[BACKEND]).replace("kuma.io/protocol: http", &http)
        };
        zone.put(&tagged("v1")).await;
        let listeners = client.expect(LDS).await;
        client.refuse(&listeners, "cannot bind").await;
        let insight = zone
            .insight("web-1", |insight| {
                let status = insight.subscriptions.last().and_then(|s| s.status);
                status.and_then(|s| s.lds).is_some_and(|lds| lds.responses_rejected == 1)
            })
            .await;
        assert_eq!(insight.subscriptions.len(), 1);
        let view = zone.proxies.view();
        let seen = &view.iter().find(|v| &*v.proxy.id.name == "web-1").unwrap().streams[0].types[LDS];
        assert_eq!(seen.last_rejection.as_deref(), Some("cannot bind"));

        zone.put(&dataplane("backend-2", "127.0.0.4", BACKEND, &[])).await;
        client.take(EDS).await;
        zone.put(&tagged("v2")).await;
        client.take(LDS).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn what_is_refused_is_offered_again_after_a_pause() {
    for protocol in BOTH {
        let zone = Zone::start_with(|config| config.reconsider_after = Duration::from_millis(1)).await;
        zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
        let token = zone.token_for("web-1");
        let mut client = Client::begin(&zone, protocol, Who::known("default.web-1", &token)).await;
        client.take(CDS).await;
        let refused = client.expect(LDS).await;
        client.refuse(&refused, "the port is in use").await;
        let again = client.expect(LDS).await;
        assert_eq!(again.names, refused.names);
        client.refuse(&again, "the port is still in use").await;
        client.take(LDS).await;
        zone.insight("web-1", |insight| {
            let lds = insight.subscriptions[0].status.and_then(|s| s.lds);
            lds.is_some_and(|lds| (lds.responses_rejected, lds.responses_acknowledged) == (2, 1))
        })
        .await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_mesh_that_cannot_be_used_leaves_the_last_good_configuration() {
    for protocol in BOTH {
        let zone = zone().await;
        let mut client = settled(&zone, protocol).await;
        // Mutual TLS without an authority: a proxy without a certificate would have to serve plaintext.
        zone.put(
            "{type: Mesh, name: default, mtls: {enabledBackend: ca-9, backends: [{name: ca-9, type: builtin}]}}",
        )
        .await;
        let problem = async {
            loop {
                let view = zone.proxies.view();
                if let Some(problem) = view[0].problems.first() {
                    return problem.clone();
                }
                tokio::task::yield_now().await;
            }
        };
        let problem = tokio::time::timeout(super::harness::PATIENCE, problem).await.unwrap();
        assert!(problem.contains("ca-9"), "{problem}");
        zone.put("{type: Mesh, name: default}").await;
        zone.put(&dataplane("backend-2", "127.0.0.4", BACKEND, &[])).await;
        client.take(EDS).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn with_mutual_tls_a_proxy_gets_its_certificate_and_a_new_one_in_time() {
    let zone = zone().await;
    zone.mtls(", dpCert: {rotation: {expiration: 3s}}").await;
    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Delta, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    client.subscribe(SDS, &["identity_cert:secret:default", "mesh_ca:secret:default"]).await;
    let mut certificates = Vec::new();
    while certificates.len() < 2 {
        let answer = client.receive().await.unwrap();
        client.accept(&answer).await;
        if answer.type_url == SDS {
            let secrets = answer.values.iter().map(|v| Secret::decode(&v.value[..]).unwrap());
            certificates.extend(secrets.filter(|s| s.name.starts_with("identity")));
        }
    }
    assert_ne!(certificates[0], certificates[1]);
    let insight =
        zone.insight("web-1", |i| i.m_tls.as_ref().is_some_and(|m| m.certificate_regenerations >= 2)).await;
    assert_eq!(insight.m_tls.unwrap().issued_backend, "ca-1");
    zone.stop().await;
}

#[tokio::test]
async fn who_is_not_known_yet_waits_and_is_served_once_known() {
    for protocol in BOTH {
        let zone = Zone::start().await;
        let token = zone.token_for("late");
        let mut client = Client::begin(&zone, protocol, Who::known("default.late", &token)).await;
        zone.put(&dataplane("late", "127.0.0.2", "late", &[])).await;
        assert_eq!(client.take(CDS).await.names, ["localhost:18080"]);
        client.take(LDS).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn a_mesh_that_comes_later_is_waited_for_too() {
    let zone = zone().await;
    zone.delete(ResourceKey::global(&mesh::KIND, "default")).await;
    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Delta, Who::known("default.web-1", &token)).await;
    zone.put("{type: Mesh, name: default}").await;
    client.take(CDS).await;
    zone.stop().await;
}
