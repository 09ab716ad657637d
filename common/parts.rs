//! What a message of a peer becomes in memory, judged before it is decoded.
//!
//! An empty part of a message takes two bytes on its way and hundreds in memory, so a limit for the length of a
//! message bounds nothing. Here its parts are counted where they lie: texts, bytes and messages, while numbers cost
//! no more than a small multiple of their length. Which of the three a part is cannot be told by looking, so whatever
//! can be read as a message counts as one, but for what the decoder leaves as bytes.

use std::{any::TypeId, marker::PhantomData};

use bytes::{Buf, Bytes};
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

use crate::proto::kuma::mesh::v1alpha1;

/// What is nested deeper is refused by the decoder.
const DEPTH: usize = 100;

/// How many parts a message may have.
#[derive(Clone, Copy, Debug)]
pub struct PartLimits {
    /// Right in it, the largest of them as wide as an item of a response.
    pub members: usize,
    /// At all depths.
    pub parts: usize,
    /// Field numbers from the message down to bytes that are judged by those who decode them.
    opaque: &'static [u32],
}

impl PartLimits {
    /// Between control planes: ten megabytes of small resources are half of that.
    ///
    /// What is in the `Any` of a `Resource` of a `DeltaDiscoveryResponse` is judged item by item, so that one of
    /// countless parts is refused alone.
    pub const CONTROL_PLANE: Self = Self { members: 250_000, parts: 2_000_000, opaque: &[2, 2, 2] };
    /// The same over one stream for both directions, where all lies one deeper: the `Any` of a `DiscoveryResponse` of a
    /// `Message` is judged item by item.
    pub const MULTIPLEXED: Self = Self { members: 4, parts: 1_000_000, opaque: &[4, 2, 2] };
    /// From a proxy: as many names as it may list, with versions.
    pub const PROXY: Self = Self::new(200_000, 400_000);

    /// So many right in a message, and at all depths; nothing in it is judged elsewhere.
    pub const fn new(members: usize, parts: usize) -> Self {
        Self { members, parts, opaque: &[] }
    }
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
    // What is left of each message around the place, and whether the way there is one to opaque bytes so far.
    let mut around = vec![(message, true)];
    while let Some((rest, leads)) = around.last_mut() {
        let Some((field, inner)) = part(rest) else {
            around.pop();
            continue;
        };
        let Some(inner) = inner else { continue };
        let leads = *leads && limits.opaque.get(around.len() - 1) == Some(&field);
        parts += 1;
        members += usize::from(around.len() == 1);
        if members > limits.members {
            return Err(too_many(limits.members));
        }
        if parts > limits.parts {
            return Err(too_many(limits.parts));
        }
        let opaque = leads && around.len() == limits.opaque.len();
        if !inner.is_empty() && !opaque && around.len() < DEPTH {
            around.push((inner, leads));
        }
    }
    Ok(())
}

/// Takes the next part off, with the number of its field and what may be a message in it; `None` at the end, or where
/// it is no message.
fn part<'a>(rest: &mut &'a [u8]) -> Option<(u32, Option<&'a [u8]>)> {
    if rest.is_empty() {
        return None;
    }
    let (field, wire) = decode_key(rest).ok()?;
    let length = match wire {
        WireType::Varint => {
            decode_varint(rest).ok()?;
            0
        }
        WireType::ThirtyTwoBit => 4,
        WireType::SixtyFourBit => 8,
        WireType::LengthDelimited => usize::try_from(decode_varint(rest).ok()?).ok()?,
        // The ends of a group, which no message has: what is between them are parts like others.
        WireType::StartGroup | WireType::EndGroup => 0,
    };
    let (value, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some((field, (wire == WireType::LengthDelimited).then_some(value)))
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

/// Decodes a message between control planes, of no more parts than that.
///
/// # Errors
/// The status its stream ends with.
pub fn decode<U: Message + Default + 'static>(message: Bytes) -> Result<U, Status> {
    admit_from_control_plane::<U>(&message)?;
    U::decode(message).map_err(|error| Status::internal(error.to_string()))
}

fn admit_from_control_plane<U: 'static>(message: &[u8]) -> Result<(), Status> {
    let is_multiplexed = TypeId::of::<U>() == TypeId::of::<v1alpha1::Message>();
    let limits = if is_multiplexed { PartLimits::MULTIPLEXED } else { PartLimits::CONTROL_PLANE };
    admit(message, limits).map_err(|error| Status::resource_exhausted(error.to_string()))
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
        admit_from_control_plane::<U>(message.chunk())?;
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
        let few = PartLimits { members: 100, parts: 1_000, opaque: &[] };
        let refused = |message: &[u8], what: &str| assert!(admit(message, few).is_err(), "{what}");
        refused(&[0x12, 0].repeat(101), "right in it");
        let mut nested = [0x12, 0].repeat(1_001);
        for depth in 1..DEPTH - 1 {
            nested = delimited(2, &nested);
            refused(&nested, &format!("{depth} deep"));
        }
        refused(&[0x13, 0x12, 0, 0x14].repeat(101), "in groups");
        let half = delimited(1, &[0x12, 0].repeat(500));
        assert_eq!(admit(&half, few), Ok(()));
        refused(&[half.clone(), half].concat(), "in two places");
    }

    #[test]
    fn numbers_and_the_brackets_of_a_text_are_no_parts() {
        for text in ["{a: ", "[", "[[{", "-", "  ", "\n  - x"] {
            let text = text.repeat(500_000 / text.len());
            assert_eq!(admit(&delimited(1, text.as_bytes()), PartLimits::PROXY), Ok(()), "{:?}", &text[..4]);
        }
        assert_eq!(admit(&[0x10, 1].repeat(1_000_000), PartLimits::PROXY), Ok(()));
    }

    #[test]
    fn what_is_judged_item_by_item_is_not_looked_into_and_nothing_else() {
        let crumbs = [0x0a, 0].repeat(3_000_000);
        let inside =
            |path: &[u8]| path.iter().rev().fold(crumbs.clone(), |inner, field| delimited(*field, &inner));
        assert_eq!(admit(&inside(&[2, 2, 2]), PartLimits::CONTROL_PLANE), Ok(()));
        for elsewhere in [&[2, 2][..], &[2, 2, 1], &[2, 1, 2], &[1, 2, 2], &[2, 2, 3, 2], &[1, 2, 2, 2]] {
            assert!(admit(&inside(elsewhere), PartLimits::CONTROL_PLANE).is_err(), "{elsewhere:?}");
        }
    }

    proptest! {
        /// Whatever it is, it is gone through once at most.
        #[test]
        fn what_is_no_message_is_left_to_the_decoder(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(admit(&bytes, PartLimits::CONTROL_PLANE), Ok(()));
        }
    }
}
