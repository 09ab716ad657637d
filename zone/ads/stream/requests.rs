//! Requests as they come: the messages of one gRPC stream, not decoded yet.

use axum::body::Body;
use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use tonic::{Code, Status};

/// Bytes before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The messages a proxy sends.
pub(in crate::ads) struct Requests {
    body: Body,
    /// Largest message.
    limit: usize,
    /// What came and was not taken yet, where it is one piece as it came.
    came: Bytes,
    /// The beginning of a message that did not come in one piece.
    begun: BytesMut,
}

impl Requests {
    /// Those in `body`, none of them longer than `limit`.
    pub(in crate::ads) fn new(body: Body, limit: usize) -> Self {
        Self { body, limit, came: Bytes::new(), begun: BytesMut::new() }
    }

    /// The next message; `None` when the proxy has said everything. Can be given up and asked again.
    pub(in crate::ads) async fn next(&mut self) -> Option<Result<Bytes, Status>> {
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
            if let Some(length) = self.length(&self.came)? {
                self.came.advance(PREFIX);
                return Ok(Some(self.came.split_to(length)));
            }
            let rest = std::mem::take(&mut self.came);
            self.begun.extend_from_slice(&rest);
            return Ok(None);
        }
        let Some(length) = self.length(&self.begun)? else { return Ok(None) };
        self.begun.advance(PREFIX);
        let message = self.begun.split_to(length).freeze();
        // No more is kept than what is there.
        self.came = std::mem::take(&mut self.begun).freeze();
        Ok(Some(message))
    }

    /// The length of the message that begins here, if all of it is here.
    fn length(&self, here: &[u8]) -> Result<Option<usize>, Status> {
        let Some((prefix, message)) = here.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            return Err(Status::internal("a message claims to be compressed, which was not agreed on"));
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > self.limit {
            let limit = self.limit;
            return Err(Status::out_of_range(format!(
                "a message of {length} bytes is too large, the limit is {limit} bytes"
            )));
        }
        Ok((message.len() >= length).then_some(length))
    }
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

    use super::Requests;

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
        let mut requests = Requests::new(Body::from_stream(stream::iter(pieces)), limit);
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
}
