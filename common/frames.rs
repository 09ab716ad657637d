//! The messages of one gRPC stream as they come, not decoded yet.
//!
//! Nothing is kept of a message that was taken, where gRPC libraries keep a buffer as large as the largest one for as long
//! as the stream lives. What has begun and is not whole takes up room that all streams of a listener share, and has to keep
//! coming.

use std::{io::Read, time::Duration};

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status};

use crate::incoming::{Arrival, IncomingRoom, MemoryReservation, NoRoom, PROGRESS, STEP, TooSlow};

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Where messages lie until they are whole. When there is no room left, the one that began first ends, and its stream.
#[derive(Clone, Debug)]
pub struct FrameRoom {
    memory: IncomingRoom,
    within: Option<Duration>,
}

impl FrameRoom {
    /// Of so many bytes. A message may come for as long as it keeps coming.
    pub fn new(bytes: usize) -> Self {
        Self { memory: IncomingRoom::new(bytes), within: None }
    }

    /// The same where each message is to come within this time.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }
}

/// A message that did not come in one piece, on its way.
struct Unfinished {
    place: MemoryReservation,
    arrival: Arrival,
}

impl Unfinished {
    fn begin(room: &FrameRoom) -> Box<Self> {
        let arrival = Arrival::begin(Instant::now(), room.within);
        Box::new(Self { place: room.memory.begin(), arrival })
    }
}

fn crowded(NoRoom: NoRoom) -> Status {
    Status::resource_exhausted("too many messages are on their way at the moment; try again in a second")
}

fn slow(TooSlow: TooSlow) -> Status {
    Status::deadline_exceeded(format!(
        "a message did not arrive in time: it has to bring {PROGRESS} bytes every {} seconds",
        STEP.as_secs()
    ))
}

/// The messages a peer sends.
pub struct Frames {
    body: Body,
    /// Largest message.
    limit: usize,
    /// Messages may be compressed.
    gzip: bool,
    /// What came and was not taken yet, where it is one piece as it came.
    came: Bytes,
    /// The beginning of a message that did not come in one piece.
    begun: BytesMut,
    /// Where that lies, and since when.
    unfinished: Option<Box<Unfinished>>,
    room: FrameRoom,
}

impl Frames {
    /// Those in `body`, none of them longer than `limit`, and none compressed. Until they are whole they lie in `room`.
    pub fn new(body: Body, limit: usize, room: &FrameRoom) -> Self {
        let (came, begun, room) = (Bytes::new(), BytesMut::new(), room.clone());
        Self { body, limit, gzip: false, came, begun, unfinished: None, room }
    }

    /// The same where messages may be compressed by gzip; the limit is for what they are without that, too.
    pub fn gzipped(body: Body, limit: usize, room: &FrameRoom) -> Self {
        Self { gzip: true, ..Self::new(body, limit, room) }
    }

    /// The next message; `None` when the peer has said everything. Can be given up and asked again.
    pub async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some(message) = self.whole().transpose() {
                return Some(message);
            }
            let data = match self.frame().await {
                Ok(Some(Ok(frame))) => frame.into_data().ok(),
                Ok(Some(Err(error))) => {
                    let status = Status::from_error(error.into_inner());
                    // It went away, which is no fault.
                    return (status.code() != Code::Cancelled).then_some(Err(status));
                }
                Ok(None) => None,
                Err(status) => return Some(Err(self.give_up(status))),
            };
            match data {
                Some(data) if self.begun.is_empty() => self.came = data,
                Some(data) => {
                    if let Err(status) = self.keep(&data) {
                        return Some(Err(self.give_up(status)));
                    }
                }
                None if self.begun.is_empty() => return None,
                None => {
                    return Some(Err(self.give_up(Status::internal("the stream ended within a message"))));
                }
            }
        }
    }

    /// What comes next. Where a message has begun, that does not take for ever.
    async fn frame(&mut self) -> Result<Option<Result<Frame<Bytes>, axum::Error>>, Status> {
        let Some(Unfinished { place, arrival }) = self.unfinished.as_deref_mut() else {
            return Ok(self.body.frame().await);
        };
        loop {
            tokio::select! {
                biased;
                () = place.gives_way().cancelled() => return Err(crowded(NoRoom)),
                frame = self.body.frame() => return Ok(frame),
                () = sleep_until(arrival.due()) => arrival.look(self.begun.len()).map_err(slow)?,
            }
        }
    }

    /// Keeps a part of a message that is not whole yet.
    fn keep(&mut self, data: &[u8]) -> Result<(), Status> {
        if !data.is_empty() {
            let unfinished = self.unfinished.get_or_insert_with(|| Unfinished::begin(&self.room));
            unfinished.place.grow(data.len()).map_err(crowded)?;
            self.begun.extend_from_slice(data);
        }
        Ok(())
    }

    /// Nothing is kept of a message that will not be whole.
    fn give_up(&mut self, status: Status) -> Status {
        self.begun = BytesMut::new();
        self.unfinished = None;
        status
    }

    /// The next message, if all of it is here.
    fn whole(&mut self) -> Result<Option<Bytes>, Status> {
        if self.begun.is_empty() {
            if let Some(Length { bytes, compressed }) = self.length(&self.came)? {
                self.came.advance(PREFIX);
                let message = self.came.split_to(bytes);
                return self.plain(message, compressed).map(Some);
            }
            let rest = std::mem::take(&mut self.came);
            self.keep(&rest)?;
            return Ok(None);
        }
        let Some(Length { bytes, compressed }) = self.length(&self.begun)? else { return Ok(None) };
        self.begun.advance(PREFIX);
        let message = self.begun.split_to(bytes).freeze();
        // No more is kept than what is there.
        self.came = std::mem::take(&mut self.begun).freeze();
        self.unfinished = None;
        self.plain(message, compressed).map(Some)
    }

    /// A message as it was before it was compressed, if it was.
    fn plain(&self, message: Bytes, compressed: bool) -> Result<Bytes, Status> {
        if !compressed {
            return Ok(message);
        }
        let (mut plain, limit) = (Vec::new(), self.limit as u64);
        let read = GzDecoder::new(&*message).take(limit + 1).read_to_end(&mut plain);
        read.map_err(|error| Status::internal(format!("a message cannot be decompressed: {error}")))?;
        if plain.len() as u64 > limit {
            return Err(Status::resource_exhausted(format!(
                "a message is larger than {limit} bytes without its compression, which is the limit"
            )));
        }
        Ok(plain.into())
    }

    /// The length of the message that begins here, if all of it is here.
    fn length(&self, here: &[u8]) -> Result<Option<Length>, Status> {
        let Some((prefix, message)) = here.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        let compressed = compressed != 0;
        if compressed && !self.gzip {
            return Err(Status::internal("a message claims to be compressed, which was not agreed on"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.limit {
            let limit = self.limit;
            return Err(Status::out_of_range(format!(
                "a message of {length} bytes is too large, the limit is {limit} bytes"
            )));
        }
        Ok((message.len() >= length).then_some(Length { bytes: length, compressed }))
    }
}

/// How long a message is, as it lies there.
struct Length {
    bytes: usize,
    compressed: bool,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{convert::Infallible, pin::pin, time::Duration};

    use axum::body::Body;
    use bytes::Bytes;
    use futures::{Stream, StreamExt, poll, stream};
    use proptest::{collection::vec, prelude::*};
    use tokio::time::{Instant, sleep, timeout};
    use tonic::Code;

    use super::{FrameRoom, Frames, PREFIX};

    fn room() -> FrameRoom {
        FrameRoom::new(64 << 20)
    }

    fn framed(messages: &[Vec<u8>]) -> Vec<u8> {
        let frame = |message: &Vec<u8>| {
            [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
        };
        messages.iter().flat_map(frame).collect()
    }

    /// What is read of these bytes when they come in pieces of these sizes, and how it ends.
    fn read(bytes: &[u8], sizes: &[usize], limit: usize) -> (Vec<Vec<u8>>, Option<Code>) {
        let (mut rest, mut pieces, mut sizes) = (bytes, Vec::new(), sizes.iter().copied().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(sizes.next().unwrap_or(1).clamp(1, rest.len()));
            pieces.push(Ok::<_, Infallible>(Bytes::copy_from_slice(piece)));
            rest = after;
        }
        let mut requests = Frames::new(Body::from_stream(stream::iter(pieces)), limit, &room());
        let mut messages = Vec::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        loop {
            match runtime.block_on(requests.next()) {
                Some(Ok(message)) => messages.push(message.to_vec()),
                Some(Err(status)) => return (messages, Some(status.code())),
                None => return (messages, None),
            }
        }
    }

    proptest! {
        #[test]
        fn messages_are_the_same_however_they_come(
            messages in vec(vec(any::<u8>(), 0..40), 0..8), sizes in vec(1..60_usize, 1..8), cut in 0..400_usize,
        ) {
            let bytes = framed(&messages);
            prop_assert_eq!(read(&bytes, &sizes, 40), (messages.clone(), None));
            let cut = cut.min(bytes.len());
            let (whole, end) = read(&bytes[..cut], &sizes, 40);
            prop_assert!(messages.starts_with(&whole));
            prop_assert_eq!(end, (framed(&whole).len() != cut).then_some(Code::Internal));
        }
    }

    #[test]
    fn what_is_too_large_or_compressed_ends_the_stream() {
        assert_eq!(read(&framed(&[vec![1; 41]])[..5], &[5], 40), (vec![], Some(Code::OutOfRange)));
        assert_eq!(read(&[1, 0, 0, 0, 0], &[2], 40), (vec![], Some(Code::Internal)));
    }

    fn gzipped(message: &[u8]) -> Vec<u8> {
        use std::io::Write;
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(message).unwrap();
        let packed = packed.finish().unwrap();
        [&[1][..], &u32::try_from(packed.len()).unwrap().to_be_bytes(), &packed].concat()
    }

    #[test]
    fn what_was_compressed_is_taken_up_to_the_limit_where_that_was_agreed_on() {
        let next = |bytes: Vec<u8>| {
            let mut frames = Frames::gzipped(Body::from(bytes), 1000, &room());
            futures::executor::block_on(frames.next()).unwrap()
        };
        assert_eq!(next(gzipped(&[7; 1000])).unwrap(), &[7; 1000][..]);
        assert_eq!(next(framed(&[vec![7; 3]])).unwrap(), &[7; 3][..], "it need not be");
        // A few bytes that become many.
        assert_eq!(next(gzipped(&[7; 1001])).unwrap_err().code(), Code::ResourceExhausted);
        let mut broken = gzipped(&[7; 1000]);
        broken[PREFIX] ^= 1;
        assert_eq!(next(broken).unwrap_err().code(), Code::Internal);
    }

    /// A buffer that grows with the largest message and stays so is what every stream would cost for as long as it lives.
    #[tokio::test]
    async fn nothing_is_kept_of_a_large_message_once_the_next_one_is_waited_for() {
        const LARGE: usize = 8 << 20;
        for plain in [true, false] {
            // Bytes that compression cannot make fewer.
            let mut state = 1_u32;
            let message: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .take(LARGE)
            .collect();
            let bytes = if plain { framed(&[message]) } else { gzipped(&message) };
            let pieces: Vec<_> = bytes
                .chunks(16 << 10)
                .map(|piece| Ok::<_, Infallible>(Bytes::copy_from_slice(piece)))
                .collect();
            let endless = stream::iter(pieces).chain(stream::pending());
            let room = room();
            let mut frames = Frames::gzipped(Body::from_stream(endless), 2 * LARGE, &room);
            assert_eq!(frames.next().await.unwrap().unwrap().len(), LARGE);
            let waiting = timeout(Duration::from_millis(1), frames.next()).await;
            assert!(waiting.is_err(), "there is nothing more");
            assert_eq!((frames.came.len(), frames.begun.capacity()), (0, 0), "plain: {plain}");
            assert_eq!(room.memory.free(), 64 << 20);
        }
    }

    /// What comes of these pieces, and does not end with them.
    fn unended(pieces: impl Stream<Item = Vec<u8>> + Send + 'static, room: &FrameRoom) -> Frames {
        let pieces = pieces.map(|piece| Ok::<_, Infallible>(Bytes::from(piece)));
        Frames::new(Body::from_stream(pieces.chain(stream::pending())), 1 << 20, room)
    }

    #[tokio::test]
    async fn messages_that_are_not_finished_make_way_the_oldest_first() {
        const HALF: usize = 45;
        let room = FrameRoom::new(2 * HALF + 10);
        let half = || {
            let message = framed(&[vec![7; 2 * HALF]]);
            unended(stream::iter([message[..HALF].to_vec()]), &room)
        };
        let (mut oldest, mut younger, mut last) = (half(), half(), half());
        assert!(poll!(pin!(oldest.next())).is_pending());
        assert!(poll!(pin!(younger.next())).is_pending());
        assert_eq!(room.memory.free(), 10);
        assert!(poll!(pin!(last.next())).is_pending());
        let ended = oldest.next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::ResourceExhausted);
        assert!(poll!(pin!(younger.next())).is_pending());
        // One that is whole as it comes takes up nothing.
        let mut whole = unended(stream::iter([framed(&[vec![7; 1000]])]), &room);
        assert_eq!(whole.next().await.unwrap().unwrap().len(), 1000);
        drop(younger);
        assert_eq!(room.memory.free(), HALF + 10, "the last one is there");
        drop((oldest, last));
        assert_eq!(room.memory.free(), 2 * HALF + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_has_to_keep_coming() {
        const LONG: usize = 100 << 10;
        let message = framed(&[vec![7; LONG]]);
        let room = FrameRoom::new(1 << 20);
        let mut silent = unended(stream::iter([]), &room);
        assert!(timeout(Duration::from_secs(3600), silent.next()).await.is_err(), "nothing has begun");

        let begin = Instant::now();
        let mut stalled = unended(stream::iter([message[..LONG / 2].to_vec()]), &room);
        assert!(timeout(Duration::from_secs(9), stalled.next()).await.is_err(), "it can be asked again");
        assert_eq!(stalled.next().await.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        assert_eq!(begin.elapsed().as_secs(), 10);

        let slow = |room: &FrameRoom| {
            let pieces: Vec<_> = message.chunks(2 << 10).map(<[u8]>::to_vec).collect();
            let paced = stream::iter(pieces).then(async |piece| {
                sleep(Duration::from_secs(1)).await;
                piece
            });
            unended(paced, room)
        };
        assert_eq!(slow(&room).next().await.unwrap().unwrap().len(), LONG, "it may take its time");
        let begin = Instant::now();
        let ended = slow(&room.clone().within(Duration::from_secs(30))).next().await.unwrap().unwrap_err();
        assert_eq!(ended.code(), Code::DeadlineExceeded);
        assert!(begin.elapsed() < Duration::from_secs(35), "{:?}", begin.elapsed());
        assert_eq!(room.memory.free(), 1 << 20);
    }
}
