//! The messages of one gRPC stream as they come, not decoded yet.
//!
//! Nothing is kept of a message that was taken, where gRPC libraries keep a buffer as large as the largest one for as long
//! as the stream lives.

use std::io::Read;

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use flate2::read::GzDecoder;
use http_body_util::BodyExt;
use tonic::{Code, Status};

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

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
}

impl Frames {
    /// Those in `body`, none of them longer than `limit`, and none compressed.
    pub fn new(body: Body, limit: usize) -> Self {
        Self { body, limit, gzip: false, came: Bytes::new(), begun: BytesMut::new() }
    }

    /// The same where messages may be compressed by gzip; the limit is for what they are without that, too.
    pub fn gzipped(body: Body, limit: usize) -> Self {
        Self { gzip: true, ..Self::new(body, limit) }
    }

    /// The next message; `None` when the peer has said everything. Can be given up and asked again.
    pub async fn next(&mut self) -> Option<Result<Bytes, Status>> {
        loop {
            if let Some(message) = self.whole().transpose() {
                return Some(message);
            }
            let data = match self.body.frame().await {
                Some(Ok(frame)) => frame.into_data().ok(),
                Some(Err(error)) => {
                    let status = Status::from_error(error.into_inner());
                    // It went away, which is no fault.
                    return (status.code() != Code::Cancelled).then_some(Err(status));
                }
                None => None,
            };
            match data {
                Some(data) if self.begun.is_empty() => self.came = data,
                Some(data) => self.begun.extend_from_slice(&data),
                None if self.begun.is_empty() => return None,
                None => {
                    self.begun.clear();
                    return Some(Err(Status::internal("the stream ended within a message")));
                }
            }
        }
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
            self.begun.extend_from_slice(&rest);
            return Ok(None);
        }
        let Some(Length { bytes, compressed }) = self.length(&self.begun)? else { return Ok(None) };
        self.begun.advance(PREFIX);
        let message = self.begun.split_to(bytes).freeze();
        // No more is kept than what is there.
        self.came = std::mem::take(&mut self.begun).freeze();
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

    use std::convert::Infallible;

    use axum::body::Body;
    use bytes::Bytes;
    use futures::stream;
    use proptest::{collection::vec, prelude::*};
    use tonic::Code;

    use super::{Frames, PREFIX};

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
        let mut requests = Frames::new(Body::from_stream(stream::iter(pieces)), limit);
        let mut messages = Vec::new();
        loop {
            match futures::executor::block_on(requests.next()) {
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
            let mut frames = Frames::gzipped(Body::from(bytes), 1000);
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
            let endless = stream::StreamExt::chain(stream::iter(pieces), stream::pending());
            let mut frames = Frames::gzipped(Body::from_stream(endless), 2 * LARGE);
            assert_eq!(frames.next().await.unwrap().unwrap().len(), LARGE);
            let waiting = tokio::time::timeout(std::time::Duration::from_millis(1), frames.next()).await;
            assert!(waiting.is_err(), "there is nothing more");
            assert_eq!((frames.came.len(), frames.begun.capacity()), (0, 0), "plain: {plain}");
        }
    }
}
