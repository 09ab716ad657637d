//! What zones say on the streams of the sync, read without the codec of the gRPC library: that keeps two buffers as large
//! as the largest message of a stream for as long as it lives.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{body::Body, extract};
use common::{
    frames::{FrameRoom, Frames},
    parts,
};
use futures::{Stream, stream};
use prost::Message;
use tonic::{Request, Status, Streaming};

/// The messages of a stream.
pub(crate) type ZoneMessages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Services whose streams are read here.
const OWN: [&str; 2] = ["/kuma.mesh.v1alpha1.KDSSyncService/", "/kuma.mesh.v1alpha1.MultiplexService/"];
const ENCODING: &str = "grpc-encoding";

/// The body of a call, on its way past the gRPC library.
#[derive(Clone)]
struct CallBody(Arc<Mutex<Option<Body>>>);

/// Keeps the body of a call for [`messages`], if it is a stream of the sync.
pub(super) async fn keep(mut request: extract::Request) -> extract::Request {
    if OWN.iter().any(|service| request.uri().path().starts_with(service)) {
        let body = std::mem::take(request.body_mut());
        request.extensions_mut().insert(CallBody(Arc::new(Mutex::new(Some(body)))));
    }
    request
}

/// The messages of a call, none of them longer than `limit`; until they are whole they lie in `room`.
pub(super) fn messages<T>(
    mut request: Request<Streaming<T>>,
    limit: usize,
    room: &FrameRoom,
) -> ZoneMessages<T>
where
    T: Message + Default + 'static,
{
    // The library has refused every other encoding.
    let is_compressed = request.metadata().get(ENCODING).is_some_and(|encoding| encoding == "gzip");
    let kept = request.extensions_mut().remove::<CallBody>();
    // It is taken out whole, so a panic elsewhere leaves nothing half done.
    let body = kept.and_then(|CallBody(body)| body.lock().unwrap_or_else(PoisonError::into_inner).take());
    let Some(body) = body else { return Box::pin(request.into_inner()) };
    let read = if is_compressed { Frames::gzipped } else { Frames::new };
    let frames = read(body, limit, room);
    Box::pin(stream::unfold(Some(frames), |frames| async move {
        let mut frames = frames?;
        let message = frames.next().await?.and_then(parts::decode);
        // Nobody knows where the message after a broken one begins.
        let rest = message.is_ok().then_some(frames);
        Some((message, rest))
    }))
}
