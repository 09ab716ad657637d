//! Clients that ask for much and take nothing of it: what lies ready for them has a budget. They ask from this
//! machine, as an administrator: no search for secrets slows down what they are given.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use h2::client::SendRequest;
use http::StatusCode;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::stage::{Door, Stage, Watching, resident};
use crate::harness::{addresses, control_plane::ControlPlane, eventually};

const LIST: &str = "/meshes/default/meshtimeouts?size=1000";
const METRICS: &str = "/metrics";
/// What an attack may cost: the budget of a listener, what is being made meanwhile, and what an allocator
/// keeps of it.
const COST: u64 = 200 << 20;
/// What is still there when the attackers are gone, most of it the allocator's.
const LEFT: u64 = 192 << 20;
/// How long one attack goes on at most.
const ATTACK: Duration = Duration::from_secs(240);
/// Longest time in which a client that behaves has a long answer in full.
const PATIENCE: Duration = Duration::from_secs(45);
/// What the list has at least.
const LIST_BYTES: u64 = 2_000_000;
const CONNECTIONS: usize = 80;
const STREAMS: usize = 16;
/// Addresses the attackers come from.
const SOURCES: usize = 4;

/// Policies whose list is an answer of about two megabytes.
async fn fill(cp: &ControlPlane) {
    // A few long texts: what is measured is what lies there, not how fast it is written.
    let target = json!({"kind": "MeshService", "name": "x".repeat(4000)});
    let rule = json!({"targetRef": target, "default": {"idleTimeout": "20s"}});
    for n in 0..3 {
        let name = format!("large-{n}");
        let policy = json!({"type": "MeshTimeout", "mesh": "default", "name": name,
            "spec": {"to": vec![rule.clone(); 180]}});
        let path = format!("/meshes/default/meshtimeouts/{name}");
        let (status, answer) = cp.call(reqwest::Method::PUT, &path, Some(policy)).await;
        assert!(status.is_success(), "{answer}");
    }
}

/// The most memory a process uses while this watches.
pub(super) struct Peak {
    process: u32,
    before: u64,
    most: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    watch: JoinHandle<()>,
}

impl Peak {
    pub(super) fn watch(process: u32) -> Self {
        let before = resident(process);
        let (most, stop) = (Arc::new(AtomicU64::new(before)), Arc::new(AtomicBool::new(false)));
        let watch = tokio::spawn({
            let (most, stop) = (Arc::clone(&most), Arc::clone(&stop));
            async move {
                while !stop.load(Ordering::Relaxed) {
                    most.fetch_max(resident(process), Ordering::Relaxed);
                    sleep(Duration::from_millis(10)).await;
                }
            }
        });
        Self { process, before, most, stop, watch }
    }

    /// Growth of the memory at most.
    pub(super) async fn ends(&mut self, what: &str) {
        self.stop.store(true, Ordering::Relaxed);
        (&mut self.watch).await.expect("nobody panics");
        let grown = self.most.load(Ordering::Relaxed).saturating_sub(self.before);
        println!("{what}: {} MiB more memory at most", grown >> 20);
        assert!(grown <= COST, "{what} grew by {} MiB", grown >> 20);
    }

    fn grown(&self) -> u64 {
        resident(self.process).saturating_sub(self.before)
    }
}

/// One that behaves and asks for the same: takes its answer in full, again and again.
struct Honest {
    stop: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<Result<Duration, String>>,
}

impl Honest {
    fn asks(door: &Door, path: &'static str) -> Self {
        let (stop, asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let task = tokio::spawn({
            let (stop, asked, door, source) =
                (Arc::clone(&stop), Arc::clone(&asked), door.clone(), addresses::loopback());
            async move {
                let mut longest = Duration::ZERO;
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    let answer = timeout(PATIENCE, async {
                        loop {
                            match whole(&door, source, path).await {
                                // As it is told to.
                                Err(error) if error.contains("retry-after") => {
                                    sleep(Duration::from_millis(500)).await;
                                }
                                answer => return answer,
                            }
                        }
                    });
                    let answer =
                        answer.await.map_err(|_| format!("{path}: no answer within {PATIENCE:?}"))?;
                    answer.map_err(|error| format!("{path}: {error}"))?;
                    longest = longest.max(started.elapsed());
                    asked.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(100)).await;
                }
                Ok(longest)
            }
        });
        Self { stop, asked, task }
    }

    async fn was_served(self, what: &str) {
        let (asked, task) = (&self.asked, &self.task);
        let before = asked.load(Ordering::Relaxed);
        eventually("one more answer", || async move {
            let now = asked.load(Ordering::Relaxed);
            if now > before || task.is_finished() { Ok(()) } else { Err(now) }
        })
        .await;
        self.stop.store(true, Ordering::Relaxed);
        let longest = self.task.await.expect("a client does not panic").expect("a client is served");
        println!("{what}: {} long answers, the longest took {longest:?}", asked.load(Ordering::Relaxed));
    }
}

/// The whole answer to `GET`; an error for any but 200.
async fn whole(door: &Door, source: std::net::Ipv4Addr, path: &str) -> Result<Vec<u8>, String> {
    let mut io = door.dial(source, b"http/1.1").await.map_err(|e| format!("connect: {e}"))?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await.map_err(|e| format!("ask: {e}"))?;
    let mut answer = Vec::new();
    io.read_to_end(&mut answer).await.map_err(|e| format!("read: {e}"))?;
    let text = String::from_utf8_lossy(&answer);
    let head = text.split("\r\n\r\n").next().unwrap_or_default();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse::<usize>().ok()).unwrap_or_default();
    if head.starts_with("HTTP/1.1 200") && answer.len() == head.len() + 4 + length {
        Ok(answer)
    } else {
        Err(format!("{} bytes of {length}: {head}", answer.len()))
    }
}

/// What lies ready at a listener of global.
async fn lying(global: &ControlPlane, door: &Door) -> u64 {
    let text = global.metrics().await;
    let wanted = format!("listener=\"{}\"", door.name);
    let mut lines = text.lines().filter(|line| line.starts_with("answers_lying_bytes{"));
    let line = lines.find(|line| line.contains(&wanted)).unwrap_or_default();
    line.rsplit(' ').next().and_then(|n| n.parse::<f64>().ok()).map_or(u64::MAX, |n| n as u64)
}

/// What became of the requests of the attackers.
#[derive(Default)]
struct Fates {
    given: AtomicUsize,
    put_off: AtomicUsize,
    cut_off: AtomicUsize,
}

impl Fates {
    /// Some were served, and not all of them: the budget decided.
    fn were_decided(&self) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        assert!(of(&self.given) > 0, "nobody was given anything");
        assert!(of(&self.put_off) + of(&self.cut_off) > 0, "everybody was given everything");
    }

    fn told(&self, what: &str) {
        let of = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        println!(
            "class: answers nobody takes; {what}: {} given, {} put off, {} cut off",
            of(&self.given),
            of(&self.put_off),
            of(&self.cut_off)
        );
    }
}

/// Asks with no window and keeps what it is given until the connection ends; where it is told to come again it
/// comes again, a few times.
async fn ask_without_window(client: SendRequest<Bytes>, path: &str, fates: &Fates) -> Vec<h2::RecvStream> {
    let mut kept = Vec::new();
    for _ in 0..4 {
        let request = http::Request::get(format!("http://localhost{path}")).body(()).expect("a request");
        let sent = async {
            let mut client = client.clone().ready().await.ok()?;
            let (response, _) = client.send_request(request, true).ok()?;
            response.await.ok()
        };
        match sent.await {
            Some(response) if response.status() == StatusCode::OK => {
                fates.given.fetch_add(1, Ordering::Relaxed);
                kept.push(response.into_body());
                return kept;
            }
            Some(response) if response.headers().contains_key("retry-after") => {
                assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
                fates.put_off.fetch_add(1, Ordering::Relaxed);
                kept.push(response.into_body());
            }
            // Also the last a displaced client may hear says when to come again.
            Some(response) => panic!("{response:?}"),
            None => {
                fates.cut_off.fetch_add(1, Ordering::Relaxed);
                return kept;
            }
        }
    }
    kept
}

/// Many connections with many streams each, without a window.
async fn windowless(door: &Door, path: &str) {
    let fates = Fates::default();
    let sources: Vec<_> = (0..SOURCES).map(|_| addresses::loopback()).collect();
    let clients = (0..CONNECTIONS).map(|n| {
        let (fates, source) = (&fates, sources[n % SOURCES]);
        async move {
            let io = door.dial(source, b"h2").await.expect("the port is open");
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(0);
            let Ok((client, connection)) = builder.handshake::<_, Bytes>(io).await else { return None };
            let driver = tokio::spawn(async move { drop(connection.await) });
            let asked = join_all((0..STREAMS).map(|_| ask_without_window(client.clone(), path, fates))).await;
            Some((driver, client, asked))
        }
    });
    let kept = timeout(ATTACK, join_all(clients)).await.expect("every request has its fate");
    fates.told(&format!("{path}, no window"));
    kept.into_iter().flatten().for_each(|(driver, ..)| driver.abort());
}

/// Many connections that ask once and never read: what has arrived is only looked at.
async fn deaf(door: &Door, path: &str) {
    let fates = Fates::default();
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    let before = door.refused(Some("answers")).await;
    let sources: Vec<_> = (0..SOURCES).map(|_| addresses::loopback()).collect();
    let clients = (0..CONNECTIONS * 2).map(async |n| {
        // The system would take a whole answer in for the client.
        let mut tcp = door.narrow(sources[n % SOURCES]).await.expect("the port is open");
        let mut answer = [0; 12];
        let arrived = match tcp.write_all(request.as_bytes()).await {
            Ok(()) => tcp.peek(&mut answer).await.unwrap_or_default(),
            Err(_) => 0,
        };
        let fate = match &answer[..arrived] {
            [] => &fates.cut_off,
            b"HTTP/1.1 200" => &fates.given,
            b"HTTP/1.1 503" => &fates.put_off,
            other => panic!("{}", String::from_utf8_lossy(other)),
        };
        fate.fetch_add(1, Ordering::Relaxed);
        tcp
    });
    let kept = timeout(ATTACK, join_all(clients)).await.expect("every request has its fate");
    // Who was given something and left it lying made way for those who came later.
    let made_way = door.refused(Some("answers")).await.saturating_sub(before);
    fates.cut_off.fetch_add(usize::try_from(made_way).unwrap_or(usize::MAX), Ordering::Relaxed);
    fates.told(&format!("{path}, nothing read"));
    if path == LIST {
        assert!(kept.len() as u64 * LIST_BYTES > COST, "together they ask for more than may lie ready");
        fates.were_decided();
    }
    drop(kept);
}

/// Asks for a list and for the metrics by `attack`, while others ask for the same and take it.
async fn withstand(what: &str, attack: impl AsyncFn(&Door, &str)) {
    let mut stage = Stage::set(&[("apiServer.authn.localhostIsAdmin", "true")]).await;
    fill(&stage.global).await;
    let doors = stage.doors();
    let list = whole(&doors[0], addresses::loopback(), LIST).await.expect("the list");
    println!("the list has {} bytes", list.len());
    assert!(list.len() as u64 > LIST_BYTES);
    let before = stage.cost();
    let watching = Watching::start(&doors);
    for (door, path) in [(&doors[0], LIST), (&doors[1], METRICS)] {
        let mut peak = Peak::watch(stage.global.process.id());
        let honest = Honest::asks(door, path);
        attack(door, path).await;
        peak.ends(&format!("{what}, {path}")).await;
        honest.was_served(path).await;
        let (global, budget) = (&stage.global, &peak);
        eventually("nothing lies ready any more", || async move {
            // Not less than the answer that tells it.
            let (lies, grown) = (lying(global, door).await, budget.grown());
            if lies < 4 << 20 && grown < LEFT { Ok(()) } else { Err(format!("{lies} bytes, {grown} more")) }
        })
        .await;
    }
    watching.was_served().await;
    stage.stands(before, LEFT >> 20, 96 << 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_for_clients_without_a_window_have_a_budget() {
    withstand("HTTP/2 without a window", windowless).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn answers_for_clients_that_do_not_read_have_a_budget() {
    withstand("HTTP/1.1 that is not read", deaf).await;
}

/// Dataplanes whose overviews fill several answers of the API.
async fn fill_with_dataplanes(cp: &ControlPlane) {
    let service = |n: usize| format!("{}-{n}", "x".repeat(200));
    let outbounds: Vec<_> =
        (0..60).map(|n| json!({"port": 20_000 + n, "tags": {"kuma.io/service": service(n)}})).collect();
    let inbound = json!([{"port": 80, "tags": {"kuma.io/service": "web"}}]);
    stream::iter(0..600)
        .for_each_concurrent(8, async |n| {
            let name = format!("d{n}");
            let networking = json!({"address": "10.0.0.1", "inbound": inbound, "outbound": outbounds});
            let document =
                json!({"type": "Dataplane", "mesh": "default", "name": name, "networking": networking});
            let path = format!("/meshes/default/dataplanes/{name}");
            let (status, answer) = cp.call(reqwest::Method::PUT, &path, Some(document)).await;
            assert!(status.is_success(), "{answer}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn pages_cost_what_they_show_however_many_ask() {
    let mut stage = Stage::set(&[("apiServer.authn.localhostIsAdmin", "true")]).await;
    fill_with_dataplanes(&stage.zone).await;
    let doors: Vec<Door> = stage.doors().into_iter().filter(|door| door.of == "zone").collect();
    let before = stage.cost();
    let watching = Watching::start(&doors);
    for path in
        ["/gui/dataplanes?status=offline", "/gui/dataplanes", "/gui/services", "/gui/meshes/default", "/gui"]
    {
        let mut peak = Peak::watch(stage.zone.process.id());
        let asked = (0..60).map(|_| whole(&doors[0], addresses::loopback(), path));
        let answers = timeout(ATTACK, join_all(asked)).await.expect("every request has its fate");
        let (given, put_off): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
        println!("{path}: {} given, {} put off", given.len(), put_off.len());
        assert!(!given.is_empty(), "{put_off:?}");
        for answer in put_off {
            let why = answer.expect_err("it was put off");
            assert!(why.contains("retry-after"), "{path}: {why}");
        }
        peak.ends(path).await;
    }
    watching.was_served().await;
    stage.stands(before, LEFT >> 20, 96 << 10).await;
}
