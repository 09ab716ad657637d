#![allow(clippy::unwrap_used)]

use std::{
    convert::Infallible,
    io::Write,
    sync::atomic::{AtomicBool, Ordering},
    task::Poll,
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use common::{
    events::EventBus,
    runtime::{Entropy, Env, SystemClock},
    store::{Store, feed::Feed, memory::MemoryStore},
};
use flate2::{Compression, write::GzEncoder};
use futures::{StreamExt, stream};
use http_body_util::BodyExt;
use tokio::time::timeout;
use tower::Service;
use uuid::Uuid;

use super::*;
use crate::kds::{AnyZone, GlobalKdsSettings, ShownCredentials, ZoneAuthError, ZoneAuthenticator};

const PING: &str = "/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck";

/// Lets nobody in.
struct Nobody;

impl ZoneAuthenticator for Nobody {
    fn authenticate(&self, zone: &str, _shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        Err(ZoneAuthError::Missing { zone: zone.to_owned() })
    }
}

async fn kds(authenticator: Arc<dyn ZoneAuthenticator>) -> Kds {
    let store = Arc::new(MemoryStore::new(Uuid::from_u128(1))) as Arc<dyn Store>;
    let feed = Feed::load(Arc::clone(&store)).await.unwrap();
    let env = Env { clock: Arc::new(SystemClock), entropy: Entropy::seeded(1), instance_id: "here".into() };
    let settings = GlobalKdsSettings { v1: true, ..GlobalKdsSettings::default() };
    Kds::new(settings, store, feed.reader(), EventBus::new(8), env, authenticator)
}

/// How a call ends: its code, as it stands on the wire.
async fn code(kds: &Kds, path: &str, headers: &[(&str, &str)], body: Body) -> String {
    let mut request = http::Request::post(path).header("content-type", "application/grpc");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answered = kds.router().call(request.body(body).unwrap());
    let answer = timeout(Duration::from_secs(600), answered).await.expect("an answer").unwrap();
    let (head, body) = answer.into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let code = head.headers.get("grpc-status").or(trailers.get("grpc-status"));
    code.unwrap().to_str().unwrap().to_owned()
}

/// A body that never says anything, and whether somebody has asked.
fn unread(asked: &Arc<AtomicBool>) -> Body {
    let asked = Arc::clone(asked);
    Body::from_stream(stream::poll_fn(move |_| {
        asked.store(true, Ordering::Relaxed);
        Poll::<Option<Result<Bytes, Infallible>>>::Pending
    }))
}

fn message(flag: u8, bytes: &[u8]) -> Vec<u8> {
    [&[flag], &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::best());
    packed.write_all(bytes).unwrap();
    message(1, &packed.finish().unwrap())
}

#[test]
fn every_declared_call_is_of_somebody() {
    assert!(DECLARED_CALLS.len() >= 11, "{DECLARED_CALLS:?}");
    for DeclaredCall { path, .. } in DECLARED_CALLS {
        assert!(CallerRole::of(path).is_some(), "who may call {path}?");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_call_is_read_before_it_is_known_who_calls() {
    let kds = kds(Arc::new(Nobody)).await;
    let zone = ("client-id", "zone-1");
    let relay = [("strait-relay", "relay-1"), ("strait-relay-session", "s")];
    let callers: [&[(&str, &str)]; 3] = [&[], &[zone], &[relay[0], relay[1], zone]];
    for call in DECLARED_CALLS {
        for caller in callers {
            for encoding in [("grpc-encoding", "gzip"), ("grpc-encoding", "identity")] {
                let asked = Arc::new(AtomicBool::new(false));
                let headers = [caller, &[encoding]].concat();
                let code = code(&kds, call.path, &headers, unread(&asked)).await;
                assert!(matches!(&*code, "3" | "16"), "{} of {caller:?}: {code}", call.path);
                assert!(!asked.load(Ordering::Relaxed), "{} of {caller:?} was read", call.path);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_declared_is_not_read_whoever_calls() {
    let kds = kds(Arc::new(AnyZone)).await;
    for path in [
        "/",
        "/kuma.mesh.v1alpha1.GlobalKDSService/Invented",
        "/kuma.mesh.v1alpha1.GlobalKDSService/HealthCheck/",
    ] {
        let asked = Arc::new(AtomicBool::new(false));
        assert_eq!(code(&kds, path, &[("client-id", "zone-1")], unread(&asked)).await, "12", "{path}");
        assert!(!asked.load(Ordering::Relaxed), "{path} was read");
    }
}

#[tokio::test(start_paused = true)]
async fn a_ping_is_one_short_message_compressed_or_not() {
    let kds = kds(Arc::new(AnyZone)).await;
    let ping = async |encoding: &str, body: Body| {
        code(&kds, PING, &[("client-id", "zone-1"), ("grpc-encoding", encoding)], body).await
    };
    // As zones of Kuma send it, before and since 2.10.
    assert_eq!(ping("identity", message(0, b"").into()).await, "0");
    assert_eq!(ping("gzip", gzipped(b"").into()).await, "0");
    assert_eq!(ping("gzip", message(0, b"").into()).await, "0");
    // A member that nobody knows.
    assert_eq!(ping("gzip", gzipped(&[0x78, 0].repeat(1000)).into()).await, "0");
    assert_eq!(ping("gzip", gzipped(&[0x78, 0].repeat(1 << 20)).into()).await, "8");
    assert_eq!(ping("identity", message(0, &[0x78, 0].repeat(4 << 10)).into()).await, "11");
    assert_eq!(ping("identity", message(0, b"").repeat(2).into()).await, "3");
    assert_eq!(ping("identity", gzipped(b"").into()).await, "13");
    let asked = Arc::new(AtomicBool::new(false));
    assert_eq!(ping("br", unread(&asked)).await, "12");
    assert!(!asked.load(Ordering::Relaxed), "nobody can read that");
    // One that begins and goes no further.
    let half = stream::iter([Ok::<_, Infallible>(Bytes::from_static(&[0, 0]))]).chain(stream::pending());
    assert_eq!(ping("identity", Body::from_stream(half)).await, "4");
    assert_eq!(ping("identity", unread(&asked)).await, "4");
}

#[tokio::test(start_paused = true)]
async fn pings_without_end_are_refused() {
    let kds = kds(Arc::new(AnyZone)).await;
    let mut codes = Vec::new();
    for _ in 0..501 {
        codes.push(code(&kds, PING, &[("client-id", "zone-1")], message(0, b"").into()).await);
    }
    let (allowed, last) = codes.split_at(500);
    assert!(allowed.iter().all(|code| code == "0"), "{codes:?}");
    assert_eq!(last, ["8"]);
    let asked = Arc::new(AtomicBool::new(false));
    assert_eq!(code(&kds, PING, &[("client-id", "zone-1")], unread(&asked)).await, "8");
    assert!(!asked.load(Ordering::Relaxed), "nothing is read of what is too much");
    let other = code(&kds, PING, &[("client-id", "zone-2")], message(0, b"").into()).await;
    assert_eq!(other, "0", "each zone pays for itself");
}
