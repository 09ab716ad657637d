//! What a message of a peer becomes in memory, judged before it is decoded.
//!
//! An empty part of a message takes two bytes on its way and hundreds in memory, so a limit for the length of a
//! message bounds nothing. Here its parts are counted where they lie. What is no text and no bytes but a message of
//! its own cannot be told by looking, so whatever can be read as one counts as one.

use std::marker::PhantomData;

use bytes::Buf;
use prost::{
    Message,
    encoding::{WireType, decode_key, decode_varint},
};
use thiserror::Error;
use tonic::{
    Status,
    codec::{BufferSettings, Codec, DecodeBuf, Decoder},
};
use tonic_prost::{ProstCodec, ProstEncoder};

/// What is nested deeper is refused by the decoder.
const DEPTH: usize = 100;

/// How many parts a message may have.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Right in it, the largest of them as wide as an item of a response.
    pub members: usize,
    /// At all depths.
    pub parts: usize,
}

impl PartLimits {
    /// Between control planes: ten megabytes of small resources are half of that.
    pub const CONTROL_PLANE: Self = Self { members: 250_000, parts: 2_000_000 };
    /// From a proxy: as many names as it may list, with versions.
    pub const PROXY: Self = Self { members: 200_000, parts: 400_000 };
}

/// A message has more parts than anybody needs to say something.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("a message of {bytes} bytes is made of more than {most} parts")]
pub struct TooManyParts {
    bytes: usize,
    most: usize,
}

/// Whether `message` may be decoded. One that is malformed may: the decoder finds out.
///
/// # Errors
/// [`TooManyParts`].
pub fn admit(message: &[u8], limits: PartLimits) -> Result<(), TooManyParts> {
    let too_many = |most| TooManyParts { bytes: message.len(), most };
    let (mut parts, mut members) = (0, 0);
    // What is left of each message around the place.
    let mut around = vec![message];
    while let Some(rest) = around.last_mut() {
        let Some(inner) = part(rest) else {
            around.pop();
            continue;
        };
        parts += 1;
        members += usize::from(around.len() == 1);
        if members > limits.members {
            return Err(too_many(limits.members));
        }
        if parts > limits.parts {
            return Err(too_many(limits.parts));
        }
        if !inner.is_empty() && around.len() < DEPTH {
            around.push(inner);
        }
    }
    Ok(())
}

/// Takes the next part off, and what may be a message in it; `None` at the end, or where it is no message.
fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    if rest.is_empty() {
        return None;
    }
    let (_, wire) = decode_key(rest).ok()?;
    let length = match wire {
        WireType::Varint => {
            decode_varint(rest).ok()?;
            0
        }
        WireType::ThirtyTwoBit => 4,
        WireType::SixtyFourBit => 8,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        // The ends of a group: what is between them are parts like others.
        WireType::StartGroup | WireType::EndGroup => 0,
    };
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(if wire == WireType::LengthDelimited { value } else { &[] })
}

/// The codec of the gRPC services between control planes: protobuf, of no more parts than that.
#[derive(Clone, Debug)]
pub struct CountedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CountedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for CountedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CountedDecoder<T, U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::default())
    }

    fn decoder(&mut self) -> Self::Decoder {
        CountedDecoder(ProstCodec::<T, U>::new().decoder())
    }
}

/// Decodes what [`admit`] lets through.
#[derive(Debug)]
pub struct CountedDecoder<T, U>(<ProstCodec<T, U> as Codec>::Decoder)
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static;

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Decoder for CountedDecoder<T, U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, message: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        // All of a message lies in one piece.
        admit(message.chunk(), PartLimits::CONTROL_PLANE)
            .map_err(|error| Status::resource_exhausted(error.to_string()))?;
        self.0.decode(message)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource},
        google::protobuf::Any,
    };

    fn delimited(field: u8, inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![(field << 3) | 2];
        prost::encoding::encode_varint(inner.len() as u64, &mut bytes);
        bytes.extend_from_slice(inner);
        bytes
    }

    #[test]
    fn ten_megabytes_of_resources_are_few_parts() {
        let spec: Vec<u8> = (0..40).flat_map(|n| delimited(n % 15 + 1, b"kuma.io/service")).collect();
        let one = |n: usize| Resource {
            name: format!("web-{n}.default"),
            resource: Some(Any { type_url: "type.googleapis.com/kuma".to_owned(), value: spec.clone() }),
            ..Resource::default()
        };
        let resources = (0..13_000).map(one).collect();
        let response = DeltaDiscoveryResponse { resources, ..DeltaDiscoveryResponse::default() };
        let bytes = response.encode_to_vec();
        assert!(bytes.len() > 9 << 20);
        assert_eq!(admit(&bytes, PartLimits::CONTROL_PLANE), Ok(()));
    }

    #[test]
    fn empty_parts_are_too_many_wherever_they_are() {
        let few = PartLimits { members: 100, parts: 1_000 };
        let refused = |message: &[u8], what: &str| assert!(admit(message, few).is_err(), "{what}");
        refused(&[0x12, 0].repeat(101), "right in it");
        let mut nested = [0x12, 0].repeat(1_001);
        for depth in 1..DEPTH - 1 {
            nested = delimited(2, &nested);
            refused(&nested, &format!("{depth} deep"));
        }
        refused(&[0x13, 0x14].repeat(51), "as groups");
        let half = delimited(1, &[0x12, 0].repeat(500));
        assert_eq!(admit(&half, few), Ok(()));
        refused(&[half.clone(), half].concat(), "in two places");
    }

    proptest! {
        /// Whatever it is, it is gone through once at most.
        #[test]
        fn what_is_no_message_is_left_to_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(admit(&bytes, PartLimits::CONTROL_PLANE), Ok(()));
        }
    }
}
