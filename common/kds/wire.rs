//! Edits encoded protobuf in place of decoding it: everything an edit does not name keeps its bytes, in
//! its order. Decoding and encoding again would lose unknown fields or shuffle maps, and equal content
//! would stop having equal bytes.

use prost::{
    DecodeError,
    bytes::Buf,
    encoding::{DecodeContext, WireType, decode_key, encode_key, encode_varint, skip_field},
};

/// What to do with one field that was asked about.
pub(super) enum Edit {
    /// Leave it.
    Keep,
    /// Remove it.
    Drop,
    /// Put this content in its place.
    Replace(Vec<u8>),
}

/// Rewrites the fields `path` leads to (field numbers from the outside in; all but the last are messages,
/// repeated or not). `decide` sees the content of each: of a length-delimited field without its length.
/// `None` when nothing was changed.
pub(super) fn rewrite(
    message: &[u8],
    path: &[u32],
    decide: &mut dyn FnMut(&[u8]) -> Result<Edit, DecodeError>,
) -> Result<Option<Vec<u8>>, DecodeError> {
    let Some((first, rest)) = path.split_first() else { return Ok(None) };
    let mut out = Vec::with_capacity(message.len());
    let mut changed = false;
    let mut left = message;
    while left.has_remaining() {
        let field = Field::take(&mut left)?;
        let edit = match (field.number == *first, rest.is_empty(), field.wire_type) {
            (true, true, _) => decide(field.content)?,
            (true, false, WireType::LengthDelimited) => match rewrite(field.content, rest, decide)? {
                Some(content) => Edit::Replace(content),
                None => Edit::Keep,
            },
            _ => Edit::Keep,
        };
        match edit {
            Edit::Keep => out.extend_from_slice(field.whole),
            Edit::Drop => changed = true,
            Edit::Replace(content) => {
                changed = true;
                encode_key(field.number, WireType::LengthDelimited, &mut out);
                encode_varint(content.len() as u64, &mut out);
                out.extend_from_slice(&content);
            }
        }
    }
    Ok(changed.then_some(out))
}

/// The content of the first field `number`, when there is one.
pub(super) fn find(mut message: &[u8], number: u32) -> Result<Option<&[u8]>, DecodeError> {
    while message.has_remaining() {
        let field = Field::take(&mut message)?;
        if field.number == number {
            return Ok(Some(field.content));
        }
    }
    Ok(None)
}

/// Appends a string field.
pub(super) fn push_string(message: &mut Vec<u8>, number: u32, text: &str) {
    prost::encoding::string::encode(number, &text.to_owned(), message);
}

struct Field<'a> {
    number: u32,
    wire_type: WireType,
    whole: &'a [u8],
    content: &'a [u8],
}

impl<'a> Field<'a> {
    fn take(left: &mut &'a [u8]) -> Result<Self, DecodeError> {
        let start = *left;
        let (number, wire_type) = decode_key(left)?;
        let value = *left;
        skip_field(wire_type, number, left, DecodeContext::default())?;
        let whole = &start[..start.len() - left.len()];
        let mut content = &value[..value.len() - left.len()];
        if wire_type == WireType::LengthDelimited {
            prost::encoding::decode_varint(&mut content)?;
        }
        Ok(Self { number, wire_type, whole, content })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use prost::Message;

    use super::*;
    use crate::proto::kuma::mesh::v1alpha1::{
        Dataplane,
        dataplane::{Networking, networking::Inbound},
    };

    fn dataplane() -> Vec<u8> {
        let inbound = |port| Inbound { port, ..Inbound::default() };
        let networking = Networking {
            address: "10.0.0.1".to_owned(),
            inbound: vec![inbound(1), inbound(2)],
            ..Networking::default()
        };
        let mut bytes = Dataplane { networking: Some(networking), ..Dataplane::default() }.encode_to_vec();
        bytes.extend([0x98, 0x06, 0x2a]); // Field 99, which nobody knows.
        bytes
    }

    #[test]
    fn untouched_content_is_not_copied() {
        let kept = rewrite(&dataplane(), &[1, 5], &mut |_| Ok(Edit::Keep)).unwrap();
        assert!(kept.is_none());
    }

    #[test]
    fn an_edit_leaves_everything_else_alone() {
        let edited = rewrite(&dataplane(), &[1, 5], &mut |address| {
            assert_eq!(address, b"10.0.0.1");
            Ok(Edit::Replace(b"10.0.0.2".to_vec()))
        });
        let edited = edited.unwrap().unwrap();
        assert!(edited.ends_with(&[0x98, 0x06, 0x2a]));
        let networking = Dataplane::decode(edited.as_slice()).unwrap().networking.unwrap();
        assert_eq!(networking.address, "10.0.0.2");
        assert_eq!(networking.inbound.len(), 2);
    }

    #[test]
    fn broken_bytes_are_an_error() {
        assert!(rewrite(&[0x0a, 0xff], &[1], &mut |_| Ok(Edit::Drop)).is_err());
    }
}
