//! Clients that send too much: HTTP/2 frames that cost more than they say, compressed messages that are larger
//! than they look, and connections that come and go.

use std::{io::Write, sync::Arc, time::Duration};

use bytes::Bytes;
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, future::join_all, stream};
use tokio::{
    io::AsyncWriteExt,
    time::{Instant, timeout},
};

use super::stage::{Door, Io, Stage, Watching, closed_within, open_files};
use crate::harness::{
    Global, addresses, eventually,
    tally::{Class, Tally, say},
};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// How long one attack goes on at most.
const ATTACK: Duration = Duration::from_secs(60);
/// What one attack sends at most, if nobody stops it.
const MOST: usize = 24 << 20;
/// What is sent at once.
const PIECE: usize = 64 << 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![length[1], length[2], length[3], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// `GET /` or `POST /`, http, authority `a`, in HPACK with nothing indexed by it.
fn head(post: bool) -> Vec<u8> {
    let mut head = vec![if post { 0x83 } else { 0x82 }, 0x84, 0x86];
    head.extend(b"\x01\x01a");
    head
}

/// What is sent once, and what is sent again and again, made from a counter.
struct Flood {
    name: &'static str,
    once: Vec<u8>,
    again: Box<dyn Fn(u32) -> Vec<u8> + Send + Sync>,
    /// Whether the client reads what it is sent.
    reads: bool,
}

fn flood(
    name: &'static str,
    settings: &[u8],
    once: &[Vec<u8>],
    again: impl Fn(u32) -> Vec<u8> + Send + Sync + 'static,
) -> Flood {
    let once = [PREFACE, &frame(SETTINGS, 0, 0, settings), &once.concat()].concat();
    Flood { name, once, again: Box::new(again), reads: true }
}

fn stream_id(n: u32) -> u32 {
    (n * 2 + 1) & 0x7fff_ffff
}

/// How a client comes and goes.
const WAYS_TO_GO: [&str; 5] = ["close", "reset", "half", "greeting", "request"];
/// How zones do.
const RESTLESS_ZONES: [&str; 3] =
    ["one from fifty clients", "one that comes again and again", "many at once"];
/// Ports a stranger can reach.
const DOORS: usize = 6;

/// What is tried, for the count of bad input.
pub fn count() -> Tally {
    let mut tally = Tally::default();
    tally.add(Class::Churn, WAYS_TO_GO.len() * DOORS + RESTLESS_ZONES.len());
    tally.add(Class::Compression, bombs().len());
    tally.add(Class::Frames, floods().len());
    tally
}

fn floods() -> Vec<Flood> {
    let open = |post: bool| frame(HEADERS, END_HEADERS, 1, &head(post));
    let get = |n: u32| frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &head(false));
    let header = |n: u32, length: usize| {
        let mut block = head(false);
        for i in 0..length {
            // A literal header that is put into the table, of 100 bytes.
            block.extend(b"\x40\x04");
            block.extend(format!("{:04}", (n as usize + i) % 10_000).bytes());
            block.push(100);
            block.extend([b'a'; 100]);
        }
        block
    };
    let indexed =
        || [head(false), b"\x40\x01b\x7f\x80\x1e".to_vec(), vec![b'b'; 3967], vec![0xbe; 12_000]].concat();
    let zero_window = [0, 4, 0, 0, 0, 0];
    let one_window = [0, 4, 0, 0, 0, 1];
    let mut floods = vec![
        flood("rapid reset", &[], &[], move |n| {
            [get(n), frame(RST_STREAM, 0, stream_id(n), &[0, 0, 0, 8])].concat()
        }),
        flood("reset before the end of the headers", &[], &[], |n| {
            [
                frame(HEADERS, END_HEADERS, stream_id(n), &head(true)),
                frame(RST_STREAM, 0, stream_id(n), &[0; 4]),
            ]
            .concat()
        }),
        flood("errors of the client that this side resets", &[], &[], move |n| {
            [get(n), frame(WINDOW_UPDATE, 0, stream_id(n), &[0; 4])].concat()
        }),
        flood("CONTINUATION without end", &[], &[frame(HEADERS, 0, 1, &head(false))], |_| {
            frame(CONTINUATION, 0, 1, &[])
        }),
        flood("CONTINUATION with headers", &[], &[frame(HEADERS, 0, 1, &head(false))], move |n| {
            frame(CONTINUATION, 0, 1, &header(n, 10)[6..])
        }),
        flood("empty DATA", &[], &[open(true)], |_| frame(DATA, 0, 1, &[])),
        flood("DATA of one byte", &[], &[open(true)], |_| frame(DATA, 0, 1, b"a")),
        flood("padding only", &[], &[open(true)], |_| frame(DATA, 8, 1, &[255; 256])),
        flood("SETTINGS", &[], &[], |_| frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])),
        flood("acknowledged SETTINGS", &[], &[], |_| frame(SETTINGS, 1, 0, &[])),
        flood("PING", &[], &[], |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes())),
        flood("PING with a stream open", &[], &[open(true)], |n| {
            frame(PING, 0, 0, &u64::from(n).to_be_bytes())
        }),
        flood("answers to no PING", &[], &[], |n| frame(PING, 1, 0, &u64::from(n).to_be_bytes())),
        flood("PRIORITY", &[], &[], |n| frame(PRIORITY, 0, stream_id(n % 1000), &[0, 0, 0, 0, 1])),
        flood("WINDOW_UPDATE", &[], &[open(true)], |_| frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1])),
        flood("GOAWAY", &[], &[], |_| frame(GOAWAY, 0, 0, &[0; 8])),
        flood("frames of no kind", &[], &[], |_| frame(0xbe, 0, 0, &[0; 64])),
        flood("PUSH_PROMISE", &[], &[], |n| frame(PUSH_PROMISE, END_HEADERS, 1, &(n * 2 + 2).to_be_bytes())),
        flood("a frame that is too large", &[], &[], |_| frame(DATA, 0, 1, &[0; 17 << 10])),
        flood("streams over the limit", &[], &[], |n| frame(HEADERS, END_HEADERS, stream_id(n), &head(true))),
        flood("header bomb", &[], &[], move |n| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &header(n, 140))
        }),
        flood("indexed header bomb", &[], &[], move |n| {
            frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &indexed())
        }),
        flood("no HTTP/2 after its greeting", &[], &[], |_| vec![0xff; 64]),
        flood("requests, no window", &zero_window, &[], move |n| if n < 50 { get(n) } else { Vec::new() }),
        flood(
            "requests, a window of one byte",
            &one_window,
            &[],
            move |n| if n < 50 { get(n) } else { Vec::new() },
        ),
        flood("PING, nothing read", &[], &[], |n| frame(PING, 0, 0, &u64::from(n).to_be_bytes())),
        flood("requests, nothing read", &[], &[], get),
    ];
    for flood in floods.iter_mut().filter(|flood| flood.name.ends_with("nothing read")) {
        flood.reads = false;
    }
    floods
}

/// Sends until the connection is closed; bytes sent by then.
/// A connection. One that is cut off before it has begun made way for another flood, and tries again: what it
/// has to send is still to be seen.
async fn connected(door: &Door) -> std::io::Result<Box<dyn Io>> {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    loop {
        match door.dial(addresses::loopback(), b"h2").await {
            Err(error)
                if [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof]
                    .contains(&error.kind()) => {}
            dialled => return dialled,
        }
    }
}

async fn attack(door: &Door, flood: &Flood) -> Result<usize, String> {
    let told = |what: &str| format!("{} of {}: {} {what}", door.name, door.of, flood.name);
    let io = timeout(ATTACK, connected(door)).await.map_err(|_| told("never came in"))?;
    let io = io.map_err(|e| told(&e.to_string()))?;
    let (mut read, mut write) = tokio::io::split(io);
    let mut sent = 0;
    let writes = async {
        write.write_all(&flood.once).await?;
        let mut n = 0;
        while sent < MOST {
            let mut piece = Vec::with_capacity(PIECE * 2);
            while piece.len() < PIECE {
                let next = (flood.again)(n);
                n += 1;
                if next.is_empty() {
                    break;
                }
                piece.extend(next);
            }
            if piece.is_empty() {
                return std::future::pending().await;
            }
            write.write_all(&piece).await?;
            sent += piece.len();
        }
        Ok::<(), std::io::Error>(())
    };
    let ended = timeout(ATTACK, async {
        if flood.reads {
            tokio::select! {
                closed = closed_within(&mut read, ATTACK) => closed,
                written = writes => written.is_err(),
            }
        } else {
            writes.await.is_err()
        }
    })
    .await;
    match ended {
        Ok(true) => Ok(sent),
        Ok(false) => Err(told(&format!("was taken, all {sent} bytes of it"))),
        Err(_) => Err(told(&format!("was not ended after {sent} bytes"))),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn floods_of_frames_are_cut_off_and_nobody_else_notices() {
    let flags = [
        ("general.connections.requestTimeout", "4s"),
        ("general.connections.idleTimeout", "3s"),
        ("general.gracefulShutdownTimeout", "1s"),
    ];
    let mut stage = Stage::set(&flags).await;
    let (doors, before) = (stage.doors(), stage.cost());
    let watching = Watching::start(&doors);
    let floods: Vec<_> = floods().into_iter().map(Arc::new).collect();
    let started = Instant::now();
    // A few at a time: the machine is to be busy, not standing still.
    let attacks =
        doors.iter().flat_map(|door| floods.iter().map(move |flood| (door.clone(), Arc::clone(flood))));
    let failed: Vec<_> = stream::iter(attacks)
        .map(|(door, flood)| tokio::spawn(async move { attack(&door, &flood).await }))
        .buffer_unordered(32)
        .filter_map(async |ended| ended.expect("an attack does not panic").err())
        .collect()
        .await;
    let (cases, took) = (floods.len() * doors.len(), started.elapsed());
    say(&format!("{}: {cases} cases at every door, all took {took:.1?}", Class::Frames));
    assert!(failed.is_empty(), "{failed:#?}");
    for door in &doors {
        assert!(door.refused(Some("flood")).await > 0, "nothing counted at {} of {}", door.name, door.of);
    }
    watching.was_served().await;
    stage.stands(before, 96, 96 << 10).await;
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A gRPC message with this flag.
fn message(flag: u8, bytes: &[u8]) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    [&[flag], &length[..], bytes].concat()
}

struct Bomb {
    name: &'static str,
    encoding: Option<&'static str>,
    body: Vec<u8>,
}

fn bombs() -> Vec<Bomb> {
    let bomb = |name, encoding, body| Bomb { name, encoding, body };
    let zeros = vec![0; 64 << 20];
    let large = gzip(&zeros);
    let allowed = gzip(&zeros[..9 << 20]);
    let cut = &allowed[..allowed.len() / 2];
    let mut damaged = allowed.clone();
    damaged[allowed.len() / 2] ^= 0x55;
    let gz = Some("gzip");
    vec![
        bomb("1:1000", gz, message(1, &large)),
        bomb("1:1000 in a bomb", gz, message(1, &gzip(&large))),
        bomb("a hundred within the limit", gz, message(1, &allowed).repeat(100)),
        bomb("truncated", gz, message(1, cut)),
        bomb("truncated, more to come", gz, message(1, &allowed)[..100].to_vec()),
        bomb("damaged", gz, message(1, &damaged)),
        bomb("not gzip", gz, message(1, b"this is no gzip")),
        bomb("an empty compressed message", gz, message(1, b"")),
        bomb("more after its end", gz, message(1, &[&gzip(b"")[..], b"more"].concat())),
        bomb("two in one", gz, message(1, &[allowed.clone(), allowed.clone()].concat())),
        bomb("flag of no kind", gz, message(2, &allowed)),
        bomb("every flag", gz, message(255, &allowed)),
        bomb("flag without encoding", None, message(1, &allowed)),
        bomb("encoding nobody knows", Some("br"), message(1, &allowed)),
        bomb("encoding that is off", Some("zstd"), message(1, &allowed)),
        bomb("encoding without flag", gz, message(0, &allowed)),
        bomb("4 GiB to come", gz, vec![1, 255, 255, 255, 255, 0]),
        bomb("empty messages without end", gz, message(0, b"").repeat(200_000)),
        bomb("small compressed messages without end", gz, message(1, &gzip(b"")).repeat(50_000)),
    ]
}

/// Sends a bomb as a stream of gRPC; gives what became of it.
async fn detonate(door: &Door, path: &str, headers: &[(&str, &str)], bomb: &Bomb) -> Result<String, String> {
    let told = |what: String| format!("{path}, {}: {what}", bomb.name);
    let io: Box<dyn Io> = door.dial(addresses::loopback(), b"h2").await.map_err(|e| told(e.to_string()))?;
    let (mut client, connection) = h2::client::handshake(io).await.map_err(|e| told(e.to_string()))?;
    let driver = tokio::spawn(connection);
    let mut request = http::Request::post(format!("http://a{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    if let Some(encoding) = bomb.encoding {
        request = request.header("grpc-encoding", encoding);
    }
    let request = request.body(()).expect("a request");
    let outcome = async {
        let (response, mut body) = client.send_request(request, false).map_err(|e| e.to_string())?;
        let rest = Bytes::copy_from_slice(&bomb.body);
        let writes = async {
            for piece in rest.chunks(PIECE) {
                body.reserve_capacity(piece.len());
                while body.capacity() < piece.len() {
                    match std::future::poll_fn(|cx| body.poll_capacity(cx)).await {
                        Some(Ok(_)) => {}
                        _ => return,
                    }
                }
                if body.send_data(Bytes::copy_from_slice(piece), false).is_err() {
                    return;
                }
            }
            let _refused_already = body.send_data(Bytes::new(), true);
        };
        let answer = async {
            let response = response.await.map_err(|e| e.to_string())?;
            let (head, mut body) = response.into_parts();
            while let Some(Ok(data)) = body.data().await {
                let _closed = body.flow_control().release_capacity(data.len());
            }
            let trailers = body.trailers().await.map_err(|e| e.to_string())?.unwrap_or_default();
            let status = trailers.get("grpc-status").or(head.headers.get("grpc-status"));
            Ok(format!("{status:?}"))
        };
        tokio::join!(writes, answer).1
    };
    let outcome = timeout(ATTACK, outcome).await;
    driver.abort();
    match outcome {
        Ok(Ok(status)) => Ok(status),
        // The stream or its connection was cut off.
        Ok(Err(error)) => Ok(error),
        Err(_) => Err(told(format!("did not end within {ATTACK:?}"))),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn compressed_bombs_go_off_in_a_stream_of_their_own() {
    let mut stage = Stage::set(&[]).await;
    let token = stage.global.straitctl(&["generate", "zone-token", "--zone", "stolen", "--scope", "cp"]);
    let token = format!("Bearer {}", token.trim());
    let (doors, bombs) = (stage.doors(), bombs());
    let (kds, dp_server) = (&doors[2], &doors[5]);
    let before = stage.cost();
    let watching = Watching::start(&doors);
    let stolen = [("client-id", "stolen"), ("authorization", token.as_str())];
    let sync = "/kuma.mesh.v1alpha1.KDSSyncService/";
    let paths = [
        (kds, format!("{sync}ZoneToGlobalSync"), &stolen[..]),
        (kds, format!("{sync}GlobalToZoneSync"), &stolen[..]),
        (kds, format!("{sync}ZoneToGlobalSync"), &[]),
        (kds, "/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck".to_owned(), &stolen[..]),
        (kds, "/kuma.mesh.v1alpha1.GlobalKDSService/StreamStats".to_owned(), &stolen[..]),
        (kds, "/strait.federation.v1.FederationService/StreamHoldings".to_owned(), &stolen[..]),
        (
            dp_server,
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources".to_owned(),
            &[],
        ),
        (
            dp_server,
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources".to_owned(),
            &[],
        ),
    ];
    let mut failed = Vec::new();
    for bomb in &bombs {
        let all = paths.iter().map(|(door, path, headers)| detonate(door, path, headers, bomb));
        failed.extend(join_all(all).await.into_iter().filter_map(Result::err));
    }
    say(&format!("{}: {} cases of gRPC", Class::Compression, bombs.len() * paths.len()));
    assert!(failed.is_empty(), "{failed:#?}");
    watching.was_served().await;
    stage.stands(before, 128, 128 << 10).await;
}

/// Zones that connect at once.
const ZONES: u64 = 150;

/// A token that lets a zone of this name in.
async fn token_of(global: &Global, zone: &str) -> String {
    let asked = serde_json::json!({"zone": zone, "scope": ["cp"], "validFor": "1h"});
    let (status, token) = global.call(reqwest::Method::POST, "/tokens/zone", Some(asked)).await;
    assert!(status.is_success(), "{status}: {token}");
    format!("Bearer {}", token.as_str().expect("a token is text").trim())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_come_and_go_leave_nothing_behind() {
    let mut stage = Stage::set(&[]).await;
    let doors = stage.doors();
    let before = stage.cost();
    let of = |stage: &Stage| [open_files(stage.global.process.id()), open_files(stage.zone.process.id())];
    let files = of(&stage);
    let watching = Watching::start(&doors);
    let token = stage.global.straitctl(&["generate", "zone-token", "--zone", "busy", "--scope", "cp"]);
    let token = format!("Bearer {}", token.trim());
    let mut cases = 0;
    for door in &doors {
        for way in WAYS_TO_GO {
            cases += 1;
            let source = addresses::loopback();
            for _ in 0..200 {
                let Ok(mut tcp) = door.tcp(source).await else { continue };
                match way {
                    "reset" => tcp.set_zero_linger().unwrap(),
                    "half" => tcp.shutdown().await.unwrap_or_default(),
                    "greeting" => tcp.write_all(b"\x16\x03\x01\x02\0\x01").await.unwrap_or_default(),
                    "request" => {
                        tcp.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap_or_default()
                    }
                    _ => {}
                }
            }
        }
    }
    // One zone from fifty clients at once, with its own token, and then again and again: each session ends the
    // one before.
    let path = "/kuma.mesh.v1alpha1.KDSSyncService/ZoneToGlobalSync";
    let nothing = Bomb { name: "nothing", encoding: None, body: Vec::new() };
    let stolen = [("client-id", "busy"), ("authorization", token.as_str())];
    let all = (0..50).map(|_| detonate(&doors[2], path, &stolen, &nothing));
    let ended = join_all(all).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    for _ in 0..100 {
        detonate(&doors[2], path, &stolen, &nothing).await.unwrap();
    }
    // Many zones at once. Each is made when it comes.
    let zones: Vec<String> = (0..ZONES).map(|n| format!("crowd-{n}")).collect();
    let tokens =
        stream::iter(&zones).map(|zone| token_of(&stage.global, zone)).buffered(8).collect::<Vec<_>>().await;
    let (kds, nothing) = (&doors[2], &nothing);
    let all = zones.iter().zip(&tokens).map(|(zone, token)| async move {
        let headers = [("client-id", zone.as_str()), ("authorization", token.as_str())];
        detonate(kds, path, &headers, nothing).await
    });
    let ended = join_all(all).await;
    assert!(ended.iter().all(Result::is_ok), "{ended:?}");
    let known = stage.global.get("/zones?size=1").await["total"].as_u64();
    assert!(known >= Some(ZONES), "all of them were let in: {known:?}");
    cases += RESTLESS_ZONES.len();
    say(&format!("{}: {cases} cases", Class::Churn));
    watching.was_served().await;
    eventually("the files are closed", || {
        let now = of(&stage);
        async move {
            let back = now.iter().zip(&files).all(|(now, before)| *now <= before + 16);
            if back { Ok(()) } else { Err(format!("{now:?}, before {files:?}")) }
        }
    })
    .await;
    stage.stands(before, 96, 96 << 10).await;
}
