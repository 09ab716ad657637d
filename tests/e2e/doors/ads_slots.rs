//! Who opens more streams than there is room for: strangers, each with a token that looks right, and the bearer of a good one
//! who says nothing on them, or nothing to the end.

use std::time::Duration;

use common::proto::envoy::service::discovery::v3::{
    DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
};
use futures::{StreamExt, future::join_all, stream::FuturesUnordered};
use tokio::time::timeout;
use tonic::{Code, Request, Status, transport::Channel};

use super::ads_peer::{CDS, Stream, channel, join, meanwhile, node, token};
use crate::{
    bad_input::grpc::{Call, Grpc, framed, prefixed},
    harness::{Global, Options, Zone, eventually, wait::PATIENCE},
};

/// Connections of the strangers.
const CONNECTIONS: usize = 4;
/// Streams each of them has open at once.
const STREAMS: usize = 500;
/// An answer to somebody else takes no longer meanwhile, with two busy cores and a debug build.
const BUDGET: Duration = Duration::from_secs(30);

async fn zone() -> (Global, Zone) {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(
        "{type: Dataplane, mesh: default, name: probe, networking: {address: 127.0.0.1, inbound: [{port: 80, \
         servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: probe}}]}}",
    );
    (global, zone)
}

/// With the key id and the signature of a good token, and claims that name no mesh.
fn forged(good: &str) -> String {
    let mut parts = good.split('.');
    let (header, signature) = (parts.next().unwrap(), parts.nth(1).unwrap());
    format!("{header}.eyJOYW1lIjoieCJ9.{signature}")
}

/// Opens a stream, says nothing on it, and waits for its end.
async fn silent(channel: Channel, token: &str) -> Result<(), Status> {
    let mut request = Request::new(tokio_stream::pending::<DiscoveryRequest>());
    request.metadata_mut().insert("authorization", token.parse().unwrap());
    let mut client = AggregatedDiscoveryServiceClient::new(channel);
    client.stream_aggregated_resources(request).await?.into_inner().message().await.map(|_| ())
}

#[tokio::test]
async fn many_streams_with_forged_tokens_keep_no_proxy_out() {
    let (_global, zone) = zone().await;
    let good = token(&zone, &["--name", "probe"]).await;
    let forged = forged(&good);
    let flood = join_all((0..CONNECTIONS).map(|_| async {
        let channel = channel(&zone).await;
        join_all((0..STREAMS).map(|_| silent(channel.clone(), &forged))).await
    }));
    let ends = meanwhile(&zone, &good, BUDGET, flood).await;
    let codes = ends.into_iter().flatten().map(|end| end.expect_err("it is forged").code());
    let (judged, turned_away): (Vec<_>, Vec<_>) = codes.partition(|code| *code == Code::Unauthenticated);
    assert!(turned_away.iter().all(|code| *code == Code::Unavailable), "{turned_away:?}");
    // Most are not even looked at.
    assert!(!judged.is_empty() && !turned_away.is_empty(), "{} {}", judged.len(), turned_away.len());
    join(&zone, node("default.probe", None), Some(&good)).await.expect("it is served afterwards");
}

/// Streams with one token that may say nothing, as SECURITY.md says.
const SILENT: usize = 128;
/// Of which so many are opened, over connections that may have many.
const OPENED: usize = 180;

#[tokio::test]
async fn who_says_nothing_on_his_streams_makes_way() {
    let (_global, zone) = zone().await;
    let good = token(&zone, &["--name", "probe", "--tag", "kuma.io/service=probe"]).await;
    let (mut known, mut ends) = (Vec::new(), FuturesUnordered::new());
    for _ in 0..2 {
        let channel = channel(&zone).await;
        let node = node("default.probe", None);
        let mut stream = Stream::open(channel.clone(), node, Some(&good)).await.unwrap();
        stream.admitted().await.unwrap();
        known.push(stream);
        ends.extend((0..OPENED / 2).map(|_| silent(channel.clone(), &good)));
    }
    for _ in SILENT..OPENED {
        let end = timeout(PATIENCE, ends.next()).await.expect("it makes way").unwrap();
        let status = end.expect_err("it is ended");
        assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
        assert!(status.message().contains("makes way"), "{status:?}");
    }
    join(&zone, node("default.probe", None), Some(&good)).await.expect("whoever speaks is served");
    drop(known);
}

#[tokio::test]
async fn a_request_that_is_begun_and_goes_no_further_ends_its_stream() {
    let (_global, zone) = zone().await;
    let good = token(&zone, &["--name", "probe"]).await;
    let certificate = std::fs::read_to_string(zone.certificate()).unwrap();
    let node = Some(node("default.probe", None));
    let first = DiscoveryRequest { node, type_url: CDS.to_owned(), ..Default::default() };
    let call = Call {
        path: "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources",
        metadata: vec![("authorization".to_owned(), good)],
        body: vec![framed(&first), prefixed(0, 1 << 20, &[0; 64 << 10])],
        closes: false,
        until: Box::new(|_| None),
    };
    let ads = Grpc::new("ADS", zone.dp_server, &certificate);
    let answer = timeout(PATIENCE, ads.call(&call)).await.expect("it ends");
    assert_eq!(answer.verdict, "DeadlineExceeded", "{}", answer.text);
    assert!(answer.text.contains("did not arrive"), "{}", answer.text);
}
