//! Strangers who send messages that become a thousand times as long, to every call there is: none of them is unpacked, because
//! nobody looks at a body before he knows who calls.

use std::{io::Write, time::Duration};

use bytes::Bytes;
use common::proto::DECLARED_CALLS;
use flate2::{Compression, write::GzEncoder};
use futures::future::join_all;
use h2::{SendStream, client::SendRequest};
use tokio::time::timeout;

use super::{
    answers::Peak,
    stage::{Door, Stage, Watching, doors_of},
};
use crate::harness::{addresses, relay::Relay};

/// What a message becomes: no more than may be.
const PLAIN: usize = 9 << 20;
/// Streams with such a message for each call, all on one connection. Together they would become gigabytes.
const STREAMS: usize = 8;
/// How long an answer may take, on a machine that is busy with everything else.
const PATIENCE: Duration = Duration::from_secs(45);
/// What is still there afterwards, in MiB, most of it the allocator's.
const LEFT: u64 = 128;

/// A compressed message of one member that no message has.
fn bomb() -> Bytes {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(&[0x78, 0].repeat(PLAIN / 2)).unwrap();
    let packed = packed.finish().unwrap();
    let length = u32::try_from(packed.len()).unwrap().to_be_bytes();
    [&[1][..], &length, &packed].concat().into()
}

/// Makes a call with this message and does not end it; how it is answered, and the call.
async fn call(
    client: SendRequest<Bytes>,
    path: &str,
    claims: &[(&str, &str)],
    bomb: &Bytes,
) -> Result<(String, SendStream<Bytes>), String> {
    let mut client = client.ready().await.map_err(|e| e.to_string())?;
    let mut request = http::Request::post(format!("http://a{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-encoding", "gzip");
    for (name, value) in claims {
        request = request.header(*name, *value);
    }
    let (answer, mut body) =
        client.send_request(request.body(()).unwrap(), false).map_err(|e| e.to_string())?;
    body.send_data(bomb.clone(), false).map_err(|e| e.to_string())?;
    let answer = timeout(PATIENCE, answer).await.map_err(|_| "no answer")?.map_err(|e| e.to_string())?;
    let code = answer.headers().get("grpc-status").ok_or("it is not refused at once")?;
    Ok((code.to_str().unwrap().to_owned(), body))
}

/// Bombs for every call at this door; what went wrong.
async fn bombed(door: &Door, bomb: &Bytes) -> Vec<String> {
    let claims: [&[(&str, &str)]; 3] =
        [&[], &[("client-id", "zone-1")], &[("strait-relay", "relay-1"), ("client-id", "zone-1")]];
    let mut failed = Vec::new();
    for claims in claims {
        for declared in DECLARED_CALLS {
            let io = door.dial(addresses::loopback(), b"h2").await.expect("a connection");
            let (client, connection) = h2::client::handshake(io).await.expect("HTTP/2");
            let driver = tokio::spawn(connection);
            let calls = (0..STREAMS).map(|_| call(client.clone(), declared.path, claims, bomb));
            // All of them are open until the last is answered.
            for answer in join_all(calls).await {
                match answer {
                    // A relay does not serve what is of global alone.
                    Ok((code, _)) if matches!(&*code, "3" | "16") || (code == "12" && door.of == "relay") => {
                    }
                    Ok((code, _)) => failed.push(format!("{} of {claims:?}: {code}", declared.path)),
                    Err(error) => failed.push(format!("{} of {claims:?}: {error}", declared.path)),
                }
            }
            driver.abort();
        }
    }
    failed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_of_a_stranger_is_unpacked_at_any_call() {
    let mut stage = Stage::set(&[]).await;
    let mut relay = Relay::start(&stage.global, "relay-1").await;
    let of_relay = doors_of(&relay);
    let of_global: Vec<Door> = stage.doors().into_iter().filter(|door| door.of == "global").collect();
    let all: Vec<Door> = of_global.iter().chain(&of_relay).cloned().collect();
    let (before, bomb) = (stage.cost(), bomb());
    let watching = Watching::start(&all);
    let mut peaks = [Peak::watch(stage.global.process.id()), Peak::watch(relay.process.id())];
    for door in all.iter().filter(|door| door.name == "kds") {
        let failed = bombed(door, &bomb).await;
        assert!(failed.is_empty(), "{}: {failed:#?}", door.of);
    }
    for (peak, of) in peaks.iter_mut().zip(["global", "relay"]) {
        peak.ends(of).await;
    }
    watching.was_served().await;
    assert!(relay.process.runs());
    stage.stands(before, LEFT, 1 << 20).await;
}
