//! The fields of an encoded message, one after the other. Decoding a response costs more than sending it; a
//! client that plays thousands looks at names only.

/// What one field holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldValue<'a> {
    /// A number or a truth.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
    /// Four or eight bytes nobody here reads.
    Fixed,
}

/// What the beginning of some bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned<'a> {
    /// A whole field: its number, what it holds, and its length with all that belongs to it.
    Field(u32, FieldValue<'a>, usize),
    /// The beginning of one.
    Partial,
    /// No field at all.
    Broken,
}

/// Looks at the first field in `bytes`.
pub fn scan(bytes: &[u8]) -> Scanned<'_> {
    let (key, at) = match varint(bytes) {
        Ok(read) => read,
        Err(other) => return other,
    };
    let Ok(number) = u32::try_from(key >> 3) else { return Scanned::Broken };
    match key & 7 {
        0 => match varint(&bytes[at..]) {
            Ok((value, length)) => Scanned::Field(number, FieldValue::Number(value), at + length),
            Err(other) => other,
        },
        1 => fixed(bytes, number, at + 8),
        5 => fixed(bytes, number, at + 4),
        2 => match varint(&bytes[at..]) {
            Ok((length, more)) => {
                let from = at + more;
                let Some(to) = usize::try_from(length).ok().and_then(|length| from.checked_add(length))
                else {
                    return Scanned::Broken;
                };
                match bytes.get(from..to) {
                    Some(value) => Scanned::Field(number, FieldValue::Bytes(value), to),
                    None => Scanned::Partial,
                }
            }
            Err(other) => other,
        },
        _ => Scanned::Broken,
    }
}

/// All fields of a whole message; ends early where it is broken.
pub fn fields(mut message: &[u8]) -> impl Iterator<Item = (u32, FieldValue<'_>)> {
    std::iter::from_fn(move || match scan(message) {
        Scanned::Field(number, value, length) => {
            message = &message[length..];
            Some((number, value))
        }
        Scanned::Partial | Scanned::Broken => None,
    })
}

/// The bytes of the first field of this number.
pub fn bytes_of(message: &[u8], wanted: u32) -> Option<&[u8]> {
    fields(message).find_map(|(number, value)| match value {
        FieldValue::Bytes(bytes) if number == wanted => Some(bytes),
        _ => None,
    })
}

/// Appends a field that holds bytes; an empty one is left out, as the encoding of messages does.
pub fn put(number: u32, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() {
        put_varint(u64::from(number) << 3 | 2, out);
        put_varint(value.len() as u64, out);
        out.extend_from_slice(value);
    }
}

fn put_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

fn fixed(bytes: &[u8], number: u32, to: usize) -> Scanned<'_> {
    if bytes.len() < to { Scanned::Partial } else { Scanned::Field(number, FieldValue::Fixed, to) }
}

fn varint(bytes: &[u8]) -> Result<(u64, usize), Scanned<'static>> {
    let mut value = 0;
    for (i, byte) in bytes.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return Ok((value, i + 1));
        }
    }
    Err(if bytes.len() < 10 { Scanned::Partial } else { Scanned::Broken })
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::{envoy::service::discovery::v3::DiscoveryResponse, google::protobuf::Any};
    use prost::Message;

    use super::*;

    #[test]
    fn a_message_reads_as_it_was_written() {
        let any = |name: &str| Any { type_url: name.to_owned(), value: vec![1; 300] };
        let response = DiscoveryResponse {
            version_info: "7".to_owned(),
            resources: vec![any("a"), any("b")],
            canary: true,
            nonce: "9".to_owned(),
            ..DiscoveryResponse::default()
        };
        let bytes = response.encode_to_vec();
        let read: Vec<_> = fields(&bytes).collect();
        assert_eq!(read.len(), 5);
        assert_eq!(read[0], (1, FieldValue::Bytes(b"7")));
        assert_eq!(read[3], (3, FieldValue::Number(1)));
        assert_eq!(bytes_of(&bytes, 5), Some(&b"9"[..]));
        let FieldValue::Bytes(second) = read[2].1 else { panic!("a message is bytes") };
        assert_eq!(bytes_of(second, 1), Some(&b"b"[..]));
        for cut in 0..bytes.len() {
            assert!(fields(&bytes[..cut]).count() <= 5, "a cut message ends and no more");
        }
    }

    #[test]
    fn what_is_put_is_read() {
        let mut out = Vec::new();
        put(2, &[7; 200], &mut out);
        put(3, b"", &mut out);
        assert_eq!(fields(&out).collect::<Vec<_>>(), [(2, FieldValue::Bytes(&[7; 200]))]);
        assert_eq!(scan(&[0xff; 12]), Scanned::Broken);
        assert_eq!(scan(&[0x0a, 0x05, 1]), Scanned::Partial);
    }
}
