//! Clients that connect and let us wait.

use std::time::Duration;

use common::kds::metadata::Peer;
use futures::future::join_all;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep},
};

use super::stage::{Door, Stage, Watching, closed_within, open_files};
use crate::harness::{
    Options, Zone, addresses, eventually,
    kds_peer::KdsPeer,
    tally::{Class, Tally, say},
};

/// Deadlines of the tests below; those of the product are minutes.
const DEADLINES: [(&str, &str); 3] = [
    ("general.connections.firstRequestTimeout", "3s"),
    ("general.connections.requestTimeout", "4s"),
    ("general.connections.idleTimeout", "4s"),
];
/// By then every slow client is gone: the longest deadline, with room for a busy machine.
const REAPED: Duration = Duration::from_secs(30);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const GET: &[u8] = b"GET /healthy HTTP/1.1\r\nhost: a\r\n\r\n";
/// The same and HEADERS of stream 1 without their end.
const HALF_HEADERS: &[u8] =
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\x01\x01\0\0\0\0\x01\x82";

/// What a slow client does, byte by byte after what it says at once.
struct Slow {
    name: &'static str,
    /// Whether it gets as far as a protocol.
    alpn: Option<&'static [u8]>,
    at_once: &'static [u8],
    trickle: &'static [u8],
}

/// What is tried, for the count of bad input: each way to be slow at each door that knows it, and the crowds.
pub fn count() -> Tally {
    let doors = [(false, true), (false, true), (true, false), (false, true), (false, true), (true, true)];
    let clients: usize = doors.iter().map(|(tls, http1)| ways_to_be_slow(*tls, *http1).len()).sum();
    let mut tally = Tally::default();
    tally.add(Class::Slowness, clients + doors.len() * CROWDS.len() + LAZY_ZONES.len());
    tally
}

fn slow_clients(door: &Door) -> Vec<Slow> {
    ways_to_be_slow(door.tls(), door.http1)
}

fn ways_to_be_slow(tls: bool, http1: bool) -> Vec<Slow> {
    let slow = |name, alpn, at_once, trickle| Slow { name, alpn, at_once, trickle };
    let h2: Option<&'static [u8]> = Some(b"h2");
    let mut cases = vec![
        slow("connects", None, b"", b""),
        slow(
            "sends a byte now and then",
            None,
            b"",
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 and so on",
        ),
        slow("greets and says no more", h2, PREFACE, b""),
        slow("greets byte by byte", h2, b"", PREFACE),
        slow("sends half of its headers", h2, HALF_HEADERS, b""),
        slow(
            "continues its headers byte by byte",
            h2,
            HALF_HEADERS,
            b"\0\0\x01\x09\0\0\0\0\x01\x84\0\0\x01\x09",
        ),
    ];
    if tls {
        cases.push(slow("is silent after TLS", h2, b"", b""));
    }
    if http1 {
        let h1: Option<&'static [u8]> = Some(b"http/1.1");
        cases.extend([
            slow("sends its head byte by byte", h1, b"GET /healthy HTTP/1.1\r\n", b"x-a: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
            slow("idles after a request", h1, GET, b""),
            slow("asks again byte by byte", h1, GET, GET),
            slow(
                "sends its body byte by byte",
                h1,
                b"PUT /meshes/a HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n",
                b"{\"type\":\"Mesh\",\"name\":\"a\",\"labels\":{\"aaaaaaaaaaaaa",
            ),
        ]);
    }
    cases
}

/// Whether it was closed, and how long that took.
async fn attack(door: &Door, slow: &Slow) -> Result<Duration, String> {
    let told = |what: &str| format!("{} of {}: one that {} {what}", door.name, door.of, slow.name);
    let source = addresses::loopback();
    let started = Instant::now();
    let io: Box<dyn super::stage::Io> = match slow.alpn {
        None => Box::new(door.tcp(source).await.map_err(|e| told(&e.to_string()))?),
        Some(alpn) => door.dial(source, alpn).await.map_err(|e| told(&e.to_string()))?,
    };
    let (mut read, mut write) = tokio::io::split(io);
    let closed = closed_within(&mut read, REAPED);
    let writes = async {
        write.write_all(slow.at_once).await?;
        for byte in slow.trickle {
            sleep(Duration::from_millis(250)).await;
            write.write_all(&[*byte]).await?;
            write.flush().await?;
        }
        std::future::pending::<std::io::Result<()>>().await
    };
    let closed = tokio::select! {
        closed = closed => closed,
        // A write fails once the other side has closed.
        _refused = writes => true,
    };
    if closed { Ok(started.elapsed()) } else { Err(told("was never closed")) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_clients_are_reaped_at_every_door_and_nobody_else_notices() {
    let mut stage = Stage::set(&DEADLINES).await;
    let (doors, before) = (stage.doors(), stage.cost());
    let watching = Watching::start(&doors);
    let cases: Vec<_> =
        doors.iter().flat_map(|door| slow_clients(door).into_iter().map(move |slow| (door, slow))).collect();
    let reaped = join_all(cases.iter().map(|(door, slow)| attack(door, slow))).await;
    let failed: Vec<_> = reaped.iter().filter_map(|case| case.as_ref().err()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    let longest = reaped.into_iter().flatten().max().unwrap_or_default();
    say(&format!(
        "{}: {} cases at every door, the longest stayed {longest:.1?}",
        Class::Slowness,
        cases.len()
    ));
    for door in &doors {
        assert!(
            door.refused(Some("no_request")).await > 0,
            "nothing counted at {} of {}",
            door.name,
            door.of
        );
    }
    watching.was_served().await;
    stage.stands(before, 64, 64 << 10).await;
}

/// Who comes in crowds and says nothing.
const CROWDS: [&str; 2] = ["many behind one address", "many from many addresses"];

/// Connections that say nothing, at each door; more than any listener below has room for.
fn crowd() -> usize {
    // The full count is for a machine with the files and the time for it.
    #[allow(clippy::disallowed_methods, reason = "a knob of this test")]
    let asked = std::env::var("E2E_CROWD").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(300)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_idle_connections_closes_no_port() {
    let flags = [
        ("general.connections.max", "240"),
        ("general.connections.unknown", "60"),
        ("general.connections.unknownPerAddress", "40"),
    ];
    // A crowd that fills the usual limits meets those.
    let usual = crowd() > 2048;
    let mut stage = Stage::set(if usual { &[] } else { &flags }).await;
    let (doors, before) = (stage.doors(), stage.cost());
    let watching = Watching::start(&doors);
    let one_address = addresses::loopback();
    let mut crowd_at = Vec::new();
    for door in &doors {
        for n in 0..crowd() {
            // Two thirds come from one address, as behind a gateway, the rest from many.
            let source = if n % 3 == 0 { addresses::loopback() } else { one_address };
            // Half of those who can finish TLS first.
            let io: Box<dyn super::stage::Io> = if door.tls() && n % 2 == 0 {
                let Ok(io) = door.dial(source, b"h2").await else { continue };
                io
            } else {
                Box::new(door.tcp(source).await.expect("the port is open"))
            };
            crowd_at.push(io);
        }
    }
    let cases = doors.len() * CROWDS.len();
    say(&format!("{}: {cases} cases of idle crowds, connections {}", Class::Slowness, crowd_at.len()));
    for door in &doors {
        door.served(one_address).await.expect("even a client at the address of the crowd is served");
        let shed = door.refused(Some("shed")).await + door.refused(Some("address_shed")).await;
        assert!(shed > 0, "nobody made way at {} of {}", door.name, door.of);
    }
    for (name, process) in [("global", &stage.global.process), ("zone", &stage.zone.process)] {
        let files = open_files(process.id());
        assert!(files < if usual { 10_000 } else { 500 }, "{name} has {files} files open");
        let told = process.log().lines().filter(|line| line.contains("the oldest made way")).count();
        assert!((1..=12).contains(&told), "{name} told it {told} times:\n{}", process.log());
    }
    watching.was_served().await;
    stage.stands(before, if usual { 512 } else { 64 }, 64 << 10).await;
    // A zone that comes now is let in.
    let _another = Zone::start_with(&stage.global, "zone-2", Options::default()).await;
    let global = &stage.global;
    eventually("the new zone is online", || async move {
        let status = global.zone_status("zone-2").await?;
        if status == "online" { Ok(()) } else { Err(status) }
    })
    .await;
    drop(crowd_at);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn diagnostics_answer_when_the_process_has_no_file_left() {
    let mut stage = Stage::set(&[]).await;
    let process = stage.global.process.id();
    let doors = stage.doors();
    let before = stage.cost();
    let limit = open_files(process) + 30;
    let limited = std::process::Command::new("prlimit")
        .args([&format!("--pid={process}"), &format!("--nofile={limit}:{limit}")])
        .status();
    assert!(limited.is_ok_and(|status| status.success()), "prlimit sets the limit of a process");
    let mut crowd_at = Vec::new();
    for _ in 0..100 {
        crowd_at.push(doors[0].tcp(addresses::loopback()).await.expect("the system accepts"));
    }
    let worked = processor_time(process);
    for _ in 0..10 {
        doors[1].served(addresses::loopback()).await.expect("diagnostics have files of their own");
        doors[0].served(addresses::loopback()).await.expect("the oldest that waits makes way");
    }
    let worked = processor_time(process) - worked;
    assert!(worked < 500, "{worked} hundredths of a second of work: it spins");
    assert!(doors[0].refused(Some("files")).await > 0);
    println!("class: no files; cases: 2");
    drop(crowd_at);
    stage.stands(before, 64, 64 << 10).await;
}

/// Hundredths of a second a process has worked.
fn processor_time(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process runs");
    let after_name = stat.rsplit(')').next().expect("a name in brackets");
    after_name.split_whitespace().skip(11).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
}

/// What a zone with a token that is right does slowly.
const LAZY_ZONES: [&str; 3] = ["never acknowledges", "acknowledges late", "answers nothing it is asked"];

/// A zone that keeps its streams and is slow on them costs global no more than those streams, and other zones
/// nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zone_that_is_slow_on_its_streams_holds_up_nobody() {
    let mut stage = Stage::set(&DEADLINES).await;
    let before = stage.cost();
    let global = &stage.global;
    let asks = async |zone: &str| {
        let peer = KdsPeer::connect(global, zone).await;
        let mut down = peer.down(peer.first("Mesh", Peer::default())).await.unwrap();
        let first = down.next().await.unwrap();
        (peer, down, first)
    };
    let _never = asks("never").await;
    let (late, mut late_down, late_first) = asks("late").await;
    let silent = KdsPeer::connect(global, "silent").await;
    let _silent_up = silent.up().await.unwrap();
    // Changes that those never take, one after the other at the zone that does.
    for n in 0..20 {
        let mesh = serde_json::json!({"type": "Mesh", "name": format!("mesh-{n}")});
        let (status, body) =
            global.call(reqwest::Method::PUT, &format!("/meshes/mesh-{n}"), Some(mesh)).await;
        assert!(status.is_success(), "{status}: {body}");
    }
    let zone = &stage.zone;
    eventually("the newest mesh in the zone that answers", || zone.try_get("/meshes/mesh-19")).await;
    // Nothing was sent to the late one meanwhile; now it gets all of it at once.
    late_down.accept(&late.caller.zone, &late_first).await;
    let all = late_down.next().await.unwrap();
    assert!(all.resources.len() >= 20, "{} resources", all.resources.len());
    say(&format!("{}: {} cases of zones that are slow on their streams", Class::Slowness, LAZY_ZONES.len()));
    // Each mesh has keys and defaults of its own.
    stage.stands(before, 64, 64 << 10).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_is_known_outlives_every_deadline() {
    let stage = Stage::set(&DEADLINES).await;
    let global = &stage.global;
    let connected = |text: &str| {
        let line = text
            .lines()
            .find(|l| l.starts_with("connections_open") && l.contains("\"known\"") && l.contains("kds"));
        line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).unwrap_or_default()
    };
    assert!(connected(&global.metrics().await) >= 1.0);
    let opened = stream_opened(&stage).await;
    // Longer than any deadline: the condition waited for is that time has passed.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(stream_opened(&stage).await, opened, "the zone did not have to connect again");
    assert_eq!(global.zone_status("zone-1").await.as_deref(), Ok("online"));
    let mut idle = stage.doors()[2].tcp(addresses::loopback()).await.unwrap();
    assert!(matches!(idle.read(&mut [0; 1]).await, Ok(0) | Err(_)), "a stranger is cut off meanwhile");
}

/// When the zone connected.
async fn stream_opened(stage: &Stage) -> String {
    stage.zone.get("/strait/link").await["since"].to_string()
}
