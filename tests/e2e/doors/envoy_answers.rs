//! An Envoy that was taken over, and answers with what takes many times its length to look through. Who asks may be
//! anybody who may look at it, as often as he likes.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use common::proto::google::protobuf::{Value, value::Kind};
use futures::future::join_all;
use reqwest::{Method, StatusCode};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::sleep,
};

use super::{
    ads_peer::{join, node, token},
    stage::resident,
};
use crate::harness::{Global, Options, Zone, eventually};

/// Bytes it answers with.
const LENGTH: usize = 24 << 20;
/// Memory that may cost: a few such answers, and what is made of one of them until it is too much.
const COST: u64 = 900 << 20;
/// Questions at once.
const ASKERS: usize = 24;

/// An admin endpoint on this machine that says it is `web-1`, and how often it was asked for more.
async fn admin() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    tokio::spawn(async move {
        let objects = Arc::new(format!("[{}0]", "{\"\":0},".repeat(LENGTH / 7)));
        while let Ok((io, _)) = listener.accept().await {
            tokio::spawn(answer(io, Arc::clone(&objects), Arc::clone(&counted)));
        }
    });
    (port, asked)
}

async fn answer(mut io: TcpStream, objects: Arc<String>, asked: Arc<AtomicUsize>) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        match io.read_u8().await {
            Ok(byte) => request.push(byte),
            Err(_) => return,
        }
    }
    let body: &str = match request.starts_with(b"GET /server_info ") {
        true => r#"{"node":{"id":"default.web-1"}}"#,
        false => {
            asked.fetch_add(1, Ordering::Relaxed);
            &objects
        }
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    // Whoever asks may have heard enough before the end.
    let _heard = async {
        io.write_all(head.as_bytes()).await?;
        io.write_all(body.as_bytes()).await
    }
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_envoy_answers_takes_so_much_memory_and_no_more_however_often_it_is_asked() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    let (port, asked) = admin().await;
    // At the address of its admin endpoint there is no listener to ask at, so it is asked itself.
    zone.apply(
        "{type: Dataplane, mesh: default, name: web-1, networking: {address: 127.0.0.1, inbound: [{port: 80, servicePort: \
         8080, tags: {kuma.io/service: web}}]}}",
    );
    let mut who = node("default.web-1", None);
    let admin_port = Value { kind: Some(Kind::StringValue(port.to_string())) };
    who.metadata.get_or_insert_default().fields.insert("dataplane.admin.port".to_owned(), admin_port);
    let bound = token(&zone, &["--name", "web-1"]).await;
    let _stream = join(&zone, who, Some(&bound)).await.expect("it is let in");

    let process = zone.process.id();
    let (before, most, stop) =
        (resident(process), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let watch = tokio::spawn({
        let (most, stop) = (Arc::clone(&most), Arc::clone(&stop));
        async move {
            while !stop.load(Ordering::Relaxed) {
                most.fetch_max(resident(process), Ordering::Relaxed);
                sleep(Duration::from_millis(10)).await;
            }
        }
    });
    let answers = join_all((0..ASKERS).map(async |n| {
        let what = ["xds", "stats?format=json", "clusters?format=json"][n % 3];
        zone.call(Method::GET, &format!("/meshes/default/dataplanes/web-1/{what}"), None).await
    }));
    for (status, answer) in answers.await {
        let detail = answer["detail"].as_str().unwrap_or_default();
        let withheld =
            status == StatusCode::BAD_REQUEST && detail.contains("more in it than is looked through");
        let put_off = status == StatusCode::SERVICE_UNAVAILABLE;
        assert!(withheld || put_off, "{status}: {answer}");
    }
    stop.store(true, Ordering::Relaxed);
    watch.await.unwrap();
    assert!(asked.load(Ordering::Relaxed) > 0, "it was asked");
    let grown = most.load(Ordering::Relaxed).saturating_sub(before);
    println!("class: answers of an Envoy; {ASKERS} questions, {} MiB more memory at most", grown >> 20);
    assert!(grown <= COST, "it grew by {} MiB", grown >> 20);
    zone.get("/meshes/default/dataplanes/web-1").await;
}
