//! What callers say, read without the codec of the gRPC library: that keeps two buffers as large as the largest message of a
//! stream for as long as it lives, and unpacks and decodes each message where everybody is served.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use common::{
    frames::{FrameRoom, Frames},
    incoming::RoomShare,
    parts,
};
use futures::{Stream, StreamExt, stream};
use http::{Extensions, HeaderMap, HeaderValue};
use prost::Message;
use tokio::time::timeout;
use tonic::{Request, Status, Streaming};

/// The messages of a stream.
pub(crate) type ZoneMessages<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

const ENCODING: &str = "grpc-encoding";
/// Bytes of the message of a call that is no stream. All of them are empty; what else there is to say is in the headers.
const ONLY: usize = 4 << 10;
/// How long that may take to come, and the end of its call with it: beside long messages on a slow line.
const ONLY_WITHIN: Duration = Duration::from_secs(60);

/// The body of a stream, on its way past the gRPC library; and how much of the room its messages may take up.
struct CallBody {
    body: Body,
    share: RoomShare,
}

/// The same in a request, out of which it is taken once.
#[derive(Clone)]
struct KeptBody(Arc<Mutex<Option<CallBody>>>);

/// Keeps the body of a stream for [`messages`].
pub(super) fn keep(body: Body, share: RoomShare, extensions: &mut Extensions) {
    extensions.insert(KeptBody(Arc::new(Mutex::new(Some(CallBody { body, share })))));
}

/// Whether what comes with these headers may be compressed by gzip; `None` where the gRPC library will refuse it.
pub(super) fn is_gzipped(headers: &HeaderMap) -> Option<bool> {
    match headers.get(ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Some(false),
        Some(b"gzip") => Some(true),
        Some(_) => None,
    }
}

fn frames(body: Body, is_gzipped: bool, limit: usize, room: &FrameRoom) -> Frames {
    if is_gzipped { Frames::gzipped(body, limit, room) } else { Frames::new(body, limit, room) }
}

/// The message of a call that is no stream, as the body of one that is not compressed. Zones of Kuma compress it.
pub(super) async fn only(body: Body, is_gzipped: bool, room: FrameRoom) -> Result<Body, Status> {
    let mut frames = frames(body, is_gzipped, ONLY, &room.within(ONLY_WITHIN));
    let whole = async {
        let Some(only) = frames.next().await.transpose()? else { return Ok(Body::empty()) };
        match frames.next().await {
            None => {}
            Some(Ok(_)) => return Err(Status::invalid_argument("this call takes one message")),
            Some(Err(status)) => return Err(status),
        }
        let length = u32::try_from(only.len()).unwrap_or(u32::MAX);
        let mut framed = BytesMut::with_capacity(5 + only.len());
        framed.put_u8(0);
        framed.put_u32(length);
        framed.put_slice(&only);
        Ok(Body::from(framed.freeze()))
    };
    let late =
        |_| Status::deadline_exceeded(format!("the call did not come to its end within {ONLY_WITHIN:?}"));
    timeout(ONLY_WITHIN, whole).await.map_err(late)?
}

/// The messages of a stream, none of them longer than `limit`; until they are whole they lie in `room`.
pub(super) fn messages<T>(request: Request<Streaming<T>>, limit: usize, room: &FrameRoom) -> ZoneMessages<T>
where
    T: Message + Default + 'static,
{
    messages_as(request, limit, room, parts::decode::<T>)
}

/// The same, and of each is made what `decode` makes of it: of a long one where that holds up nobody.
pub(super) fn messages_as<T, U: Send + 'static>(
    mut request: Request<Streaming<T>>,
    limit: usize,
    room: &FrameRoom,
    decode: fn(Bytes) -> Result<U, Status>,
) -> ZoneMessages<U> {
    // The library has refused every other encoding.
    let is_gzipped = request.metadata().get(ENCODING).is_some_and(|encoding| encoding == "gzip");
    let kept = request.extensions_mut().remove::<KeptBody>();
    // It is taken out whole, so a panic elsewhere leaves nothing half done.
    let kept = kept.and_then(|KeptBody(body)| body.lock().unwrap_or_else(PoisonError::into_inner).take());
    let Some(CallBody { body, share }) = kept else {
        let nothing = Status::internal("the messages of this stream are read elsewhere");
        return stream::once(std::future::ready(Err(nothing))).boxed();
    };
    let frames = frames(body, is_gzipped, limit, &room.clone().of(share)).decoded(decode);
    Box::pin(stream::unfold(Some(frames), |frames| async move {
        let mut frames = frames?;
        let message = frames.next().await?;
        // Nobody knows where the message after a broken one begins.
        let rest = message.is_ok().then_some(frames);
        Some((message, rest))
    }))
}
