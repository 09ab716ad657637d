//! The messages of one gRPC stream as they come, not decoded yet.
//!
//! Nothing is kept of a message that was taken, where gRPC libraries keep a buffer as large as the largest one for as long
//! as the stream lives. What has begun and is not whole takes up room that all streams of a listener share, and has to keep
//! coming. What is long, or becomes long without its compression, is unpacked and decoded off the threads that serve, a few at
//! a time.

mod unpacking;

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use hyper::body::Frame;
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status};

use self::unpacking::Unpacking;
use crate::{
    incoming::{Arrival, IncomingRoom, MemoryReservation, NoRoom, PROGRESS, RoomShare, STEP, TooSlow},
    runtime::Offload,
};

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Where messages lie until they are whole. When there is no room left, the one that began first ends, and its stream.
#[derive(Clone, Debug)]
pub struct FrameRoom {
    memory: IncomingRoom,
    within: Option<Duration>,
    step: Duration,
    share: Option<Arc<RoomShare>>,
    /// Bytes of who is known only once his stream has begun.
    half: usize,
    /// Threads that unpack and decode what is long.
    unpackers: Offload,
}

impl FrameRoom {
    /// Of so many bytes. A message may come for as long as it keeps coming.
    pub fn new(bytes: usize) -> Self {
        let (memory, unpackers) = (IncomingRoom::new(bytes), Offload::default());
        Self { memory, within: None, step: STEP, share: None, half: bytes / 2, unpackers }
    }

    /// The same where each message is to come within this time.
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self { within: Some(time), ..self }
    }

    /// The same where a message makes progress in so much time: long, where several streams share what a connection may
    /// carry, and one waits for another that is not read at the moment.
    #[must_use]
    pub fn in_steps(self, step: Duration) -> Self {
        Self { step, ..self }
    }

    /// The same for what one of many sends, who has no more than his share: beyond that his own make way.
    #[must_use]
    pub fn of(self, share: RoomShare) -> Self {
        Self { share: Some(Arc::new(share)), ..self }
    }
}

/// A message that did not come in one piece, on its way.
struct Unfinished {
    place: MemoryReservation,
    arrival: Arrival,
}

impl Unfinished {
    fn begin(room: &FrameRoom) -> Box<Self> {
        let arrival = Arrival::begin_in_steps(Instant::now(), room.within, room.step);
        Box::new(Self { place: room.memory.begin_in(room.share.clone()), arrival })
    }
}

fn crowded(NoRoom: NoRoom) -> Status {
    Status::resource_exhausted("too many messages are on their way at the moment; try again in a second")
}

fn slow(step: Duration) -> Status {
    Status::deadline_exceeded(format!(
        "a message did not arrive in time: it has to bring {PROGRESS} bytes every {} seconds",
        step.as_secs()
    ))
}

/// A message of which every byte is here.
struct WholeMessage {
    bytes: Bytes,
    compressed: bool,
    /// Where it lies, if it did not come in one piece.
    place: Option<MemoryReservation>,
}

/// The messages a peer sends, as they are or decoded.
pub struct Frames<T = Bytes> {
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
    /// What is made of a message.
    decode: fn(Bytes) -> Result<T, Status>,
    /// That takes the longer, the longer the message is.
    is_decoded: bool,
    /// A long message, while it is unpacked or decoded elsewhere.
    opening: Option<BoxFuture<'static, Result<T, Status>>>,
}

impl Frames {
    /// Those in `body`, none of them longer than `limit`, and none compressed. Until they are whole they lie in `room`.
    pub fn new(body: Body, limit: usize, room: &FrameRoom) -> Self {
        let (came, begun, room) = (Bytes::new(), BytesMut::new(), room.clone());
        Self {
            body,
            limit,
            gzip: false,
            came,
            begun,
            unfinished: None,
            room,
            decode: Ok,
            is_decoded: false,
            opening: None,
        }
    }

    /// The same where messages may be compressed by gzip; the limit is for what they are without that, too.
    pub fn gzipped(body: Body, limit: usize, room: &FrameRoom) -> Self {
        Self { gzip: true, ..Self::new(body, limit, room) }
    }

    /// The same, each of them decoded.
    #[must_use]
    pub fn decoded<T>(self, decode: fn(Bytes) -> Result<T, Status>) -> Frames<T> {
        let Self { body, limit, gzip, came, begun, unfinished, room, .. } = self;
        Frames { body, limit, gzip, came, begun, unfinished, room, decode, is_decoded: true, opening: None }
    }
}

impl<T> Frames<T> {
    /// What comes from now on is that of `owner`, who has no more than half of the room.
    pub fn belong_to(&mut self, owner: String) {
        self.room.share = Some(Arc::new(RoomShare { owner, bytes: self.room.half }));
    }
}

impl<T: Send + 'static> Frames<T> {
    /// The next message; `None` when the peer has said everything. Can be given up and asked again.
    pub async fn next(&mut self) -> Option<Result<T, Status>> {
        loop {
            if let Some(opening) = &mut self.opening {
                let opened = opening.await;
                self.opening = None;
                return Some(opened);
            }
            match self.whole() {
                Ok(None) => {}
                Ok(Some(message)) => match self.open(message) {
                    Some(opened) => return Some(opened),
                    None => continue,
                },
                Err(status) => return Some(Err(status)),
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
                () = sleep_until(arrival.due()) => arrival.look(self.begun.len()).map_err(|TooSlow| slow(self.room.step))?,
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
    fn whole(&mut self) -> Result<Option<WholeMessage>, Status> {
        if self.begun.is_empty() {
            if let Some(Length { bytes, compressed }) = self.length(&self.came)? {
                self.came.advance(PREFIX);
                let bytes = self.came.split_to(bytes);
                return Ok(Some(WholeMessage { bytes, compressed, place: None }));
            }
            let rest = std::mem::take(&mut self.came);
            self.keep(&rest)?;
            return Ok(None);
        }
        let Some(Length { bytes, compressed }) = self.length(&self.begun)? else { return Ok(None) };
        self.begun.advance(PREFIX);
        let bytes = self.begun.split_to(bytes).freeze();
        // No more is kept than what is there.
        self.came = std::mem::take(&mut self.begun).freeze();
        let place = self.unfinished.take().map(|unfinished| unfinished.place);
        Ok(Some(WholeMessage { bytes, compressed, place }))
    }

    /// What is in a message; `None` while that is found out elsewhere, because it is long.
    fn open(&mut self, message: WholeMessage) -> Option<Result<T, Status>> {
        let (WholeMessage { bytes, compressed, place }, decode) = (message, self.decode);
        // One may be long and become short: nobody knows how much of it says nothing.
        let is_short = bytes.len() <= unpacking::SHORT;
        if !compressed {
            if is_short || !self.is_decoded {
                return Some(decode(bytes));
            }
            return self.open_elsewhere(place, move || decode(bytes));
        }
        let mut unpacking = Unpacking::new(bytes, self.limit);
        if is_short {
            match unpacking.begin() {
                Ok(true) => return Some(decode(unpacking.into_plain())),
                Ok(false) => {}
                Err(status) => return Some(Err(status)),
            }
        }
        self.open_elsewhere(place, move || unpacking.finish().and_then(decode))
    }

    /// Has a long message opened where that holds up nobody.
    fn open_elsewhere(
        &mut self,
        mut place: Option<MemoryReservation>,
        open: impl FnOnce() -> Result<T, Status> + Send + 'static,
    ) -> Option<Result<T, Status>> {
        // It waits in line as what it was when it came, and takes up room until it is opened.
        if let Some(Err(NoRoom)) = place.as_mut().map(MemoryReservation::arrived) {
            return Some(Err(crowded(NoRoom)));
        }
        let unpackers = self.room.unpackers.clone();
        let work = move || {
            let opened = open();
            drop(place);
            opened
        };
        self.opening = Some(Box::pin(async move { unpackers.long(work).await }));
        None
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
mod tests;
