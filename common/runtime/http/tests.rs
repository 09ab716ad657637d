#![allow(clippy::unwrap_used)]

use axum::{
    Extension,
    routing::{get, post},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    task::JoinHandle,
};

use super::*;

const GET: &[u8] = b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n";

struct Running {
    address: SocketAddr,
    shutdown: CancellationToken,
    server: JoinHandle<anyhow::Result<()>>,
}

async fn start(limits: Limits) -> Running {
    let vouching = |Extension(client): Extension<Client>| async move {
        client.vouch("somebody", None);
        std::future::pending::<()>().await;
    };
    let router = Router::new().route("/ready", get(async || "yes")).route("/known", get(vouching));
    start_with(limits, router).await
}

async fn start_with(limits: Limits, router: Router) -> Running {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = Server::new("test", limits).serve(listener, router, shutdown.clone());
    Running { address, shutdown, server: tokio::spawn(server) }
}

async fn ask(client: &mut TcpStream) -> String {
    client.write_all(GET).await.unwrap();
    let mut answer = vec![0; 1024];
    let length = client.read(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer[..length]).into_owned()
}

/// Whether the server has closed it, without an answer.
async fn closed(client: &mut TcpStream) -> bool {
    matches!(client.read(&mut [0; 64]).await, Ok(0) | Err(_))
}

#[tokio::test]
async fn serves_until_told_to_stop() {
    let running = start(Limits::default()).await;
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    let mut client = TcpStream::connect(running.address).await.unwrap();
    let answer = ask(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("content-length: 3"), "{answer}");

    running.shutdown.cancel();
    running.server.await.unwrap().unwrap();
    assert!(closed(&mut client).await, "the kept connection is closed");
    assert!(closed(&mut idle).await, "so is one that never asked");
    assert!(TcpStream::connect(running.address).await.is_err(), "nothing listens any more");
}

#[tokio::test]
async fn silent_clients_make_way_for_one_that_asks() {
    let running = start(Limits::default().for_connections(8)).await;
    let mut silent = Vec::new();
    for _ in 0..50 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    let mut client = TcpStream::connect(running.address).await.unwrap();
    assert!(ask(&mut client).await.starts_with("HTTP/1.1 200"));
    assert!(closed(&mut silent[0]).await, "the oldest made way");
}

#[tokio::test]
async fn slow_clients_are_cut_off_and_known_ones_are_not() {
    let short = Duration::from_millis(300);
    let limits = Limits { first_request: short, request: short, idle: short, ..Limits::default() };
    let running = start(limits).await;
    let mut known = TcpStream::connect(running.address).await.unwrap();
    known.write_all(b"GET /known HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    let mut silent = TcpStream::connect(running.address).await.unwrap();
    let mut half = TcpStream::connect(running.address).await.unwrap();
    half.write_all(&GET[..10]).await.unwrap();
    let mut preface = TcpStream::connect(running.address).await.unwrap();
    preface.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    let mut kept = TcpStream::connect(running.address).await.unwrap();
    assert!(ask(&mut kept).await.starts_with("HTTP/1.1 200"));
    for client in [&mut silent, &mut half, &mut preface, &mut kept] {
        assert!(closed(client).await);
    }
    let waits = tokio::time::timeout(short * 2, known.read(&mut [0; 64])).await;
    assert!(waits.is_err(), "the known one still waits for its answer");
}

#[tokio::test]
async fn what_has_leave_is_done_to_its_end_and_the_server_waits_for_it() {
    let (steps, mut seen) = watch::channel("");
    let go = Arc::new(Notify::new());
    let (done, going) = (Arc::new(steps), Arc::clone(&go));
    let write = move |client: Client| async move {
        let work = {
            let client = client.clone();
            async move {
                done.send_replace("begun");
                while client.network().is_some() {
                    tokio::task::yield_now().await;
                }
                done.send_replace("left");
                going.notified().await;
                done.send_replace("done");
            }
        };
        client.completion().await.unwrap().run(work).await;
        "done"
    };
    let mut running = start_with(Limits::default(), Router::new().route("/write", post(write))).await;
    let mut client = TcpStream::connect(running.address).await.unwrap();
    client.write_all(b"POST /write HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    seen.wait_for(|step| *step == "begun").await.unwrap();
    client.set_zero_linger().unwrap();
    drop(client);
    seen.wait_for(|step| *step == "left").await.unwrap();
    running.shutdown.cancel();
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!running.server.is_finished(), "it ends before what it has begun");
    go.notify_one();
    (&mut running.server).await.unwrap().unwrap();
    assert_eq!(*seen.borrow(), "done");
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_not_asked_for() {
    let running = start(Limits::default()).await;
    let mut client = TcpStream::connect(running.address).await.unwrap();
    let head = b"PUT /ready HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    client.write_all(head).await.unwrap();
    let mut answer = [0; 12];
    client.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 405");
}

#[test]
fn a_client_that_made_way_is_told_to_come_again() {
    let response = nobody_waits();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert!(response.headers().contains_key(header::RETRY_AFTER));
}
