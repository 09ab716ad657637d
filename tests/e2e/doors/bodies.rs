//! Bodies and first words: who sends half of one, slowly, or far too much of one, takes nothing from others.

use std::{net::SocketAddr, time::Duration};

use futures::future::join_all;
use reqwest::{Method, StatusCode};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout},
};
use tonic::Code;

use super::ads_peer::{join, meanwhile, node, refused, token};
use crate::harness::{Global, Options, Zone, eventually, wait::PATIENCE};

/// Memory a flood may add, in MiB: bodies have 64, and each connection has its buffers.
const MEMORY: u64 = 250;

/// Where the API of a control plane listens.
fn api(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().expect("an address")
}

/// Sends the head of a request, with these headers, and this much of its body.
async fn begin(
    api: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
    length: usize,
    sent: usize,
) -> TcpStream {
    let mut stream = TcpStream::connect(api).await.expect("the API accepts connections");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: {api}\r\ncontent-type: application/json\r\n{headers}content-length: \
         {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.expect("the head is sent");
    // The other side may end the connection at any moment.
    let _sent_or_refused = stream.write_all(&vec![b' '; sent]).await;
    stream
}

/// The status of the answer.
async fn status(mut stream: TcpStream) -> String {
    let mut answer = vec![0; 64];
    let read = timeout(PATIENCE, stream.read(&mut answer)).await.expect("an answer").expect("it is readable");
    String::from_utf8_lossy(&answer[..read]).lines().next().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn who_may_not_write_is_refused_before_the_body() {
    let global = Global::start().await;
    let api = api(&global.url(""));
    for (method, path) in [
        ("POST", "/tokens/dataplane"),
        ("POST", "/tokens/zone"),
        ("POST", "/tokens/user"),
        ("PUT", "/global-secrets/s"),
        ("PUT", "/meshes/default/secrets/s"),
    ] {
        // Nothing of the body ever comes.
        let answer = status(begin(api, method, path, "", 4_000_000, 0).await).await;
        assert_eq!(answer, "HTTP/1.1 403 Forbidden", "{method} {path}");
    }
}

#[tokio::test]
async fn half_a_body_takes_no_room_from_others() {
    let global = Global::start().await;
    let api = api(&global.url(""));
    let memory = global.process.resident();
    let mesh = "/meshes/default/meshtimeouts/t";
    let admin = format!("authorization: Bearer {}\r\n", global.admin_token());
    let half = join_all((0..300).map(|_| begin(api, "PUT", mesh, &admin, 4 << 20, 3 << 20))).await;
    let grown = global.process.resident().saturating_sub(memory) >> 20;
    println!("{} halves of bodies: {grown} MiB", half.len());
    assert!(grown < MEMORY, "{grown} MiB");
    // While they wait, somebody writes.
    let policy = json!({"type": "MeshTimeout", "mesh": "default", "name": "t", "spec":
        {"to": [{"targetRef": {"kind": "Mesh"}, "default": {"connectionTimeout": "5s"}}]}});
    let (status, said) = global.call(Method::PUT, mesh, Some(policy)).await;
    assert_eq!(status, StatusCode::CREATED, "{said}");
    drop(half);
}

#[tokio::test]
async fn a_body_that_trickles_ends() {
    let global = Global::start().await;
    let admin = format!("authorization: Bearer {}\r\n", global.admin_token());
    let mut stream = begin(api(&global.url("")), "PUT", "/meshes/m", &admin, 1 << 20, 100).await;
    let begin = Instant::now();
    let answer = loop {
        let mut answer = vec![0; 64];
        match timeout(Duration::from_millis(100), stream.read(&mut answer)).await {
            Ok(read) => break String::from_utf8_lossy(&answer[..read.expect("it is readable")]).into_owned(),
            Err(_) => {
                let _sent_or_refused = stream.write_all(b" ").await;
            }
        }
        // Five seconds; before, half a minute.
        assert!(begin.elapsed() < Duration::from_secs(20), "it goes on");
    };
    assert!(answer.starts_with("HTTP/1.1 408 Request Timeout"), "{answer}");
}

#[tokio::test]
async fn a_node_of_megabytes_leaves_no_trace() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(
        "{type: Dataplane, mesh: default, name: probe, networking: {address: 127.0.0.1, inbound: [{port: 80, \
         servicePort: 8080, serviceAddress: 127.0.0.1, tags: {kuma.io/service: probe}}]}}",
    );
    let token = token(&zone, &[]).await;
    let (zone, token) = (&zone, token.as_str());
    let (memory, logged) = (zone.process.resident(), zone.process.log_bytes());
    let megabytes = |count: usize| format!("default.{}", "x".repeat(count << 20));
    const STREAMS: usize = 16;
    let flood = async {
        for _ in 0..STREAMS / 8 {
            join_all((0..8).map(|_| async {
                refused(zone, node(&megabytes(15), None), None, Code::Unauthenticated, "must show a token")
                    .await;
                refused(zone, node(&megabytes(3), None), Some("x.y.z"), Code::Unauthenticated, "token").await;
                refused(zone, node(&megabytes(3), None), Some(token), Code::InvalidArgument, "node id").await;
                refused(zone, node(&megabytes(15), None), Some(token), Code::OutOfRange, "too large").await;
                let long = "y".repeat(3 << 20);
                let words = "is 3145728 bytes long";
                refused(zone, node("default.web-1", Some(&long)), Some(token), Code::InvalidArgument, words)
                    .await;
                let mut node = node("default.web-1", None);
                let fields = &mut node.metadata.get_or_insert_default().fields;
                fields.insert(long, Default::default());
                refused(zone, node, Some(token), Code::InvalidArgument, "node metadata").await;
            }))
            .await;
        }
    };
    // Measured by what the same takes on this machine when nobody floods it.
    let calm = Instant::now();
    join(zone, node("default.probe", None), Some(token)).await.expect("the probe is served");
    let budget = Duration::from_secs(30).max(20 * calm.elapsed());
    meanwhile(zone, token, budget, flood).await;
    let (memory, logged) =
        (zone.process.resident().saturating_sub(memory) >> 20, zone.process.log_bytes() - logged);
    println!("{} huge nodes: {memory} MiB, {logged} bytes of log", 6 * STREAMS);
    assert!(memory < MEMORY && logged < 6 * STREAMS * 2048, "{memory} MiB, {logged} bytes of log");
    let metrics = zone.metrics().await;
    assert!(!metrics.contains("xxxxxxxx"), "a node id is in the metrics");
}
