//! The port itself: one for gRPC and HTTP, with TLS.

use common::{
    proto::envoy::{
        config::core::v3::Node,
        service::discovery::v3::{
            DiscoveryRequest, aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    tls::Trust,
};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_stream::StreamExt;

use super::{
    client::{BOTH, CDS, Client, EDS, Protocol, Who, channel, channel_from},
    harness::{Zone, dataplane},
};

pub(super) async fn exchange(
    zone: &Zone,
    alpn: &str,
    request: Request<Full<bytes::Bytes>>,
) -> (StatusCode, String) {
    let tls = Trust::Roots(zone.certificate.clone()).client_config(&[alpn]).unwrap();
    let stream = TcpStream::connect(zone.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(std::sync::Arc::new(tls)).connect(name, stream).await.unwrap();
    let response = if alpn == "h2" {
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    } else {
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender.send_request(request).await.unwrap()
    };
    let status = response.status();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn one_port_serves_bootstraps_beside_streams() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.token_for("web-1");
    let body =
        || Full::new(bytes::Bytes::from(format!("{{\"name\": \"web-1\", \"dataplaneToken\": \"{token}\"}}")));
    let old = Request::post("/bootstrap").header("host", "localhost:5678").body(body()).unwrap();
    let (status, yaml) = exchange(&zone, "http/1.1", old).await;
    assert_eq!(status, StatusCode::OK, "{yaml}");
    assert!(yaml.contains(&format!("portValue: {}", zone.address.port())), "{yaml}");
    let new = Request::post("https://localhost:5678/bootstrap").body(body()).unwrap();
    assert_eq!(exchange(&zone, "h2", new).await, (StatusCode::OK, yaml));

    let lost = Request::get("/meshes").header("host", "localhost").body(Full::default()).unwrap();
    let (status, text) = exchange(&zone, "http/1.1", lost).await;
    assert_eq!((status, text.as_str()), (StatusCode::NOT_FOUND, "404: Page Not Found"));
    zone.stop().await;
}

#[tokio::test]
async fn another_grpc_service_is_unimplemented() {
    let zone = Zone::start().await;
    let mut grpc = tonic::client::Grpc::new(channel(&zone).await);
    grpc.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<DiscoveryRequest, DiscoveryRequest>::default();
    let path = http::uri::PathAndQuery::from_static(
        "/envoy.service.load_stats.v3.LoadReportingService/StreamLoadStats",
    );
    let status = grpc.unary(tonic::Request::new(DiscoveryRequest::default()), path, codec).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    zone.stop().await;
}

#[tokio::test]
async fn a_connection_has_few_streams_until_a_proxy_was_let_in() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.token_for("web-1");
    let mut stub = AggregatedDiscoveryServiceClient::new(channel(&zone).await);
    let silent = || {
        let mut request = tonic::Request::new(tokio_stream::pending::<DiscoveryRequest>());
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        request
    };
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(stub.stream_aggregated_resources(silent()).await.unwrap());
    }
    let refused = stub.stream_aggregated_resources(silent()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused:?}");
    drop(held);
    let mut client = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;
    zone.stop().await;
}

#[tokio::test]
async fn one_good_token_takes_no_more_than_its_share_of_the_streams() {
    let zone = Zone::start_with(|config| config.streams = 8).await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    zone.put(&dataplane("web-2", "127.0.0.3", "web", &[])).await;
    let (token, other) = (zone.token_for("web-1"), zone.token_for("web-2"));
    let mut held = Vec::new();
    for protocol in BOTH.into_iter().cycle().take(4) {
        let mut client = Client::begin(&zone, protocol, Who::known("default.web-1", &token)).await;
        client.take(CDS).await;
        held.push(client);
    }
    let mut more = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", &token)).await;
    let status = more.end().await;
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status:?}");
    assert!(status.message().contains("give each a token of its own"), "{status:?}");

    // From elsewhere, with another token: half of the places are still there.
    let mut stub =
        AggregatedDiscoveryServiceClient::new(channel_from(&zone, Some([127, 0, 0, 9].into())).await);
    let node = Some(Node { id: "default.web-2".to_owned(), ..Node::default() });
    let first = DiscoveryRequest { node, type_url: CDS.to_owned(), ..DiscoveryRequest::default() };
    let mut request = tonic::Request::new(tokio_stream::once(first).chain(tokio_stream::pending()));
    request.metadata_mut().insert("authorization", other.parse().unwrap());
    let mut responses = stub.stream_aggregated_resources(request).await.unwrap().into_inner();
    assert_eq!(responses.message().await.unwrap().unwrap().type_url, CDS);
    zone.stop().await;
}

#[tokio::test]
async fn streams_and_requests_have_limits() {
    let zone = Zone::start_with(|config| {
        config.streams = 1;
        config.message_bytes = 4096;
    })
    .await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let token = zone.token_for("web-1");
    let mut client = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", &token)).await;
    client.take(CDS).await;

    // Who shows nothing is told so, whether there is room or not.
    for (token, code) in [(&*token, tonic::Code::ResourceExhausted), ("", tonic::Code::Unauthenticated)] {
        let mut second = Client::begin(&zone, Protocol::Sotw, Who::known("default.web-1", token)).await;
        assert_eq!(second.end().await.code(), code);
    }

    let long = "x".repeat(8192);
    client.subscribe(EDS, &[&long]).await;
    assert_eq!(client.end().await.code(), tonic::Code::OutOfRange);
    zone.stop().await;
}
