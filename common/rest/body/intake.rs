//! Bodies on their way in: what they may hold of the memory together, and how long each may take.

use std::{net::IpAddr, ops::Deref, sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::Request,
    http::StatusCode,
};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use thiserror::Error;
use tokio::time::{Instant, timeout_at};

use crate::{
    incoming::{Arrival, IncomingRoom, MemoryReservation, NoRoom, PROGRESS, RoomShare, STEP, TooSlow},
    runtime::{Offload, http::Client},
};

/// Bytes that all bodies of one listener hold together.
const ROOM: usize = 64 << 20;
/// Longest time a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(30);
/// How much of a body that is too long is read and dropped, so that a client that is still sending gets to
/// the answer instead of a broken connection.
const DRAINED: usize = 128 << 20;

/// Takes in the bodies of one listener, and gives the reading of long ones threads of their own.
///
/// When there is no room left, the body that has been coming for the longest time gives way: who sends half of
/// one and waits cannot keep others out. All that comes from one address, and what of it is here and waits to be read, has
/// half of the room.
#[derive(Clone, Debug)]
pub struct Intake {
    room: IncomingRoom,
    half: usize,
    offload: Offload,
}

/// Why a body is not taken in.
#[derive(Debug, Error)]
pub enum BodyError {
    /// Longer than it may be.
    #[error(
        "the request body is longer than {0} bytes: make it shorter, or spread it over several resources"
    )]
    TooLong(usize),
    /// It comes too slowly, or not at all.
    #[error(
        "the request body did not arrive: it may take {} seconds, and has to bring {PROGRESS} bytes every {}",
        ARRIVAL.as_secs(),
        STEP.as_secs()
    )]
    Slow,
    /// Others take up all the room.
    #[error("too many request bodies are on their way at the moment; try again in a second")]
    Busy,
    /// The connection or its encoding is broken.
    #[error("the request body could not be read: {0}")]
    Broken(axum::Error),
}

impl From<NoRoom> for BodyError {
    fn from(NoRoom: NoRoom) -> Self {
        Self::Busy
    }
}

impl From<TooSlow> for BodyError {
    fn from(TooSlow: TooSlow) -> Self {
        Self::Slow
    }
}

impl BodyError {
    /// What HTTP calls it.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Slow => StatusCode::REQUEST_TIMEOUT,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken(_) => StatusCode::BAD_REQUEST,
        }
    }
}

/// A whole body; it takes up room until it is dropped.
#[derive(Debug)]
pub struct ReceivedBody {
    bytes: Bytes,
    _place: MemoryReservation,
}

impl Deref for ReceivedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Default for Intake {
    fn default() -> Self {
        Self::new(ROOM)
    }
}

impl Intake {
    /// With room for so many bytes.
    pub fn new(bytes: usize) -> Self {
        Self { room: IncomingRoom::new(bytes), half: bytes / 2, offload: Offload::default() }
    }

    /// The whole body of `request`, of at most `limit` bytes.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn read(&self, request: Request, limit: usize) -> Result<ReceivedBody, BodyError> {
        let from = request.extensions().get::<Client>().and_then(Client::network);
        self.read_from(from, request, limit).await
    }

    /// The same, from this address.
    async fn read_from(
        &self,
        from: Option<IpAddr>,
        request: Request,
        limit: usize,
    ) -> Result<ReceivedBody, BodyError> {
        let mut place = self.room.begin_in(from.map(|from| self.share(from, limit)));
        let gives_way = place.gives_way().clone();
        let collected = tokio::select! {
            () = gives_way.cancelled() => return Err(BodyError::Busy),
            collected = collect(request.into_body(), limit, &mut place) => collected?,
        };
        place.arrived()?;
        Ok(ReceivedBody { bytes: collected, _place: place })
    }

    /// What may come from one address at once: one body at least.
    fn share(&self, from: IpAddr, limit: usize) -> Arc<RoomShare> {
        Arc::new(RoomShare { owner: from.to_string(), bytes: self.half.max(limit) })
    }

    /// Does `work` with a body, on a thread of its own when it is long.
    pub async fn work<T: Send + 'static>(
        &self,
        body: ReceivedBody,
        work: impl FnOnce(&[u8]) -> T + Send + 'static,
    ) -> T {
        self.offload.run(body.len(), move || work(&body)).await
    }
}

async fn collect(mut body: Body, limit: usize, place: &mut MemoryReservation) -> Result<Bytes, BodyError> {
    let mut collected = BytesMut::new();
    let mut length = 0;
    let mut arrival = Arrival::begin(Instant::now(), Some(ARRIVAL));
    loop {
        let Ok(frame) = timeout_at(arrival.due(), body.frame()).await else {
            arrival.look(length)?;
            continue;
        };
        let Some(frame) = frame else {
            // A client that hung up is no end of what he was sending.
            if body.size_hint().lower() > 0 {
                return Err(BodyError::Broken(axum::Error::new("it ended before its length")));
            }
            break;
        };
        let Ok(data) = frame.map_err(BodyError::Broken)?.into_data() else { continue };
        length += data.len();
        if length > DRAINED {
            break;
        }
        if length > limit {
            collected = BytesMut::new();
            place.give_back();
        } else {
            place.grow(data.len())?;
            collected.extend_from_slice(&data);
        }
    }
    if length > limit { Err(BodyError::TooLong(limit)) } else { Ok(collected.freeze()) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use futures::{Stream, StreamExt, stream};

    use super::*;

    const KIB: usize = 1024;

    fn request(body: impl Stream<Item = Bytes> + Send + 'static) -> Request {
        Request::new(Body::from_stream(body.map(Ok::<_, std::convert::Infallible>)))
    }

    fn full(length: usize) -> Request {
        Request::new(Body::from(vec![b'x'; length]))
    }

    fn half(length: usize) -> Request {
        request(stream::iter([Bytes::from(vec![b'x'; length])]).chain(stream::pending()))
    }

    fn free(intake: &Intake) -> usize {
        intake.room.free()
    }

    #[tokio::test]
    async fn a_body_takes_up_room_until_it_is_dropped() {
        let intake = Intake::new(8 * KIB);
        let (first, second) = (intake.read(full(5 * KIB), 8 * KIB).await.unwrap(), full(5 * KIB));
        assert_eq!((first.len(), free(&intake)), (5 * KIB, 3 * KIB));
        assert!(matches!(intake.read(second, 8 * KIB).await, Err(BodyError::Busy)));
        drop(first);
        assert_eq!(intake.read(full(8 * KIB), 8 * KIB).await.unwrap().len(), 8 * KIB);
        assert_eq!(free(&intake), 8 * KIB);
        assert!(matches!(intake.read(full(9 * KIB), 8 * KIB).await, Err(BodyError::TooLong(_))));
        assert_eq!(free(&intake), 8 * KIB);
    }

    /// A body that says it is longer than what comes of it.
    struct Truncated(Option<Bytes>);

    impl HttpBody for Truncated {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            std::task::Poll::Ready(self.0.take().map(|bytes| Ok(hyper::body::Frame::data(bytes))))
        }

        fn size_hint(&self) -> hyper::body::SizeHint {
            hyper::body::SizeHint::with_exact(self.0.as_ref().map_or(1, |bytes| bytes.len() as u64 + 1))
        }
    }

    #[tokio::test]
    async fn half_a_body_is_not_taken_for_all_of_it() {
        let intake = Intake::default();
        let half = Request::new(Body::new(Truncated(Some(Bytes::from_static(b"a: 1")))));
        assert!(matches!(intake.read(half, KIB).await, Err(BodyError::Broken(_))));
        assert_eq!(free(&intake), ROOM);
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_half_a_body_gives_way_to_others() {
        let intake = Intake::new(8 * KIB);
        let begin = |length| {
            let intake = intake.clone();
            tokio::spawn(async move { intake.read(half(length), 8 * KIB).await })
        };
        let (oldest, younger) = (begin(3 * KIB), begin(4 * KIB));
        while free(&intake) > KIB {
            tokio::task::yield_now().await;
        }
        assert_eq!(intake.read(full(4 * KIB), 8 * KIB).await.unwrap().len(), 4 * KIB);
        assert!(matches!(oldest.await.unwrap(), Err(BodyError::Busy)));
        assert!(!younger.is_finished());
        assert!(matches!(younger.await.unwrap(), Err(BodyError::Slow)));
        assert_eq!(free(&intake), 8 * KIB);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_takes_more_than_half_of_the_room_from_one_address() {
        let intake = Intake::new(8 * KIB);
        let (greedy, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let here = intake.read_from(Some(greedy), full(2 * KIB), 3 * KIB).await.unwrap();
        let begin = || {
            let intake = intake.clone();
            tokio::spawn(async move { intake.read_from(Some(greedy), half(2 * KIB), 3 * KIB).await })
        };
        let first = begin();
        while free(&intake) > 4 * KIB {
            tokio::task::yield_now().await;
        }
        let second = begin();
        assert!(matches!(first.await.unwrap(), Err(BodyError::Busy)), "his own make way");
        assert_eq!(intake.read_from(Some(other), full(3 * KIB), 3 * KIB).await.unwrap().len(), 3 * KIB);
        assert!(!second.is_finished());
        let much = intake.read_from(Some(greedy), full(7 * KIB), 7 * KIB);
        assert!(matches!(much.await, Err(BodyError::Busy)), "what is here and waits is a part of it");
        drop(here);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_to_keep_coming() {
        let intake = Intake::default();
        let drip = |length: usize, every: u64| {
            request(stream::unfold((), move |()| async move {
                tokio::time::sleep(Duration::from_millis(every)).await;
                Some((Bytes::from(vec![b'x'; length]), ()))
            }))
        };
        let check = async |body: Request, seconds: u64| {
            let begin = Instant::now();
            assert!(matches!(intake.read(body, 4 << 20).await, Err(BodyError::Slow)));
            assert_eq!(begin.elapsed().as_secs(), seconds);
        };
        check(request(stream::pending()), 5).await;
        check(half(1 << 20), 10).await;
        check(drip(1, 10), 5).await;
        check(drip(2 * KIB, 1000), 30).await;
        assert_eq!(free(&intake), ROOM);
    }
}
