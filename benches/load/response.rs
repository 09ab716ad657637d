//! Responses as they come out of a stream: each resource is looked at and dropped as soon as it is whole, so
//! that a client never holds a response of a megabyte.

use bytes::{Buf, Bytes, BytesMut};
use thiserror::Error;

use crate::{
    ResourceType,
    wire::{FieldValue, Scanned, bytes_of, scan},
};

/// Length of what gRPC writes before each message.
pub(crate) const PREFIX: usize = 5;

/// Why a stream cannot be read on.
#[derive(Debug, Error)]
pub enum BrokenStream {
    /// The server compresses, which nobody asked it to.
    #[error("a compressed message")]
    Compressed,
    /// Not a message of the protocol.
    #[error("a broken message")]
    Broken,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Incoming {
    /// A resource.
    Resource(ResourceType, Bytes),
    /// The name of a resource that is no more; incremental protocol only.
    Gone(Bytes),
    /// The end of a response.
    End(ResponseEnd),
}

/// What is known at the end of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseEnd {
    pub(crate) version: Bytes,
    pub(crate) type_url: Bytes,
    pub(crate) nonce: Bytes,
    /// Its length.
    pub(crate) bytes: usize,
    /// Resources in it.
    pub(crate) resources: usize,
}

/// Reads the messages of one stream.
pub(crate) struct ResponseReader {
    delta: bool,
    pending: BytesMut,
    /// What of the current message is not read yet.
    left: Option<usize>,
    end: ResponseEnd,
    /// The messages as they came, when somebody wants them.
    raw: Option<BytesMut>,
}

impl ResponseReader {
    pub(crate) fn new(delta: bool, keep: bool) -> Self {
        Self {
            delta,
            pending: BytesMut::new(),
            left: None,
            end: ResponseEnd::default(),
            raw: keep.then(BytesMut::new),
        }
    }

    /// Takes what came.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.pending.extend_from_slice(chunk);
    }

    /// The response that ended last, as it came.
    pub(crate) fn take_raw(&mut self) -> Option<Bytes> {
        self.raw.as_mut().map(|raw| raw.split().freeze())
    }

    /// The next part that is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Incoming>, BrokenStream> {
        loop {
            let Some(left) = self.left else {
                if !self.begin()? {
                    return Ok(None);
                }
                continue;
            };
            if left == 0 {
                self.left = None;
                return Ok(Some(Incoming::End(std::mem::take(&mut self.end))));
            }
            let here = left.min(self.pending.len());
            let (number, value, length) = match scan(&self.pending[..here]) {
                Scanned::Field(number, value, length) => (number, range(&self.pending, value), length),
                Scanned::Partial if here < left => return Ok(None),
                Scanned::Partial | Scanned::Broken => return Err(BrokenStream::Broken),
            };
            let field = self.pending.split_to(length).freeze();
            if let Some(raw) = &mut self.raw {
                raw.extend_from_slice(&field);
            }
            self.left = Some(left - length);
            let Some(value) = value.map(|range| field.slice(range)) else { continue };
            if let Some(incoming) = self.field(number, value) {
                return Ok(Some(incoming));
            }
        }
    }

    /// Reads the prefix of a message, when it is there.
    fn begin(&mut self) -> Result<bool, BrokenStream> {
        if self.pending.len() < PREFIX {
            if self.pending.is_empty() {
                // Thousands of idle clients keep nothing.
                self.pending = BytesMut::new();
            }
            return Ok(false);
        }
        if self.pending.get_u8() != 0 {
            return Err(BrokenStream::Compressed);
        }
        let length = self.pending.get_u32() as usize;
        self.end.bytes = length;
        self.left = Some(length);
        Ok(true)
    }

    fn field(&mut self, number: u32, value: Bytes) -> Option<Incoming> {
        match number {
            1 => self.end.version = value,
            2 => {
                self.end.resources += 1;
                let any = if self.delta { slice_of(&value, 2)? } else { value };
                let kind = bytes_of(&any, 1).and_then(ResourceType::of)?;
                return Some(Incoming::Resource(kind, slice_of(&any, 2).unwrap_or_default()));
            }
            4 => self.end.type_url = value,
            5 => self.end.nonce = value,
            6 if self.delta => return Some(Incoming::Gone(value)),
            _ => {}
        }
        None
    }
}

/// Where in `pending` the bytes of a field lie.
fn range(pending: &BytesMut, value: FieldValue<'_>) -> Option<std::ops::Range<usize>> {
    let FieldValue::Bytes(bytes) = value else { return None };
    let from = bytes.as_ptr() as usize - pending.as_ptr() as usize;
    Some(from..from + bytes.len())
}

fn slice_of(message: &Bytes, number: u32) -> Option<Bytes> {
    bytes_of(message, number).map(|part| message.slice_ref(part))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use envoy_types::pb::{
        envoy::{
            config::cluster::v3::Cluster,
            service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse, Resource},
        },
        google::protobuf::Any,
    };
    use prost::Message;

    use super::*;

    fn framed(message: &impl Message) -> Vec<u8> {
        let body = message.encode_to_vec();
        let mut out = vec![0];
        out.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
        out.extend(body);
        out
    }

    fn cluster(name: &str) -> Any {
        let cluster = Cluster { name: name.to_owned(), ..Cluster::default() };
        Any { type_url: ResourceType::Cluster.url().to_owned(), value: cluster.encode_to_vec() }
    }

    fn read(delta: bool, bytes: &[u8], chunk: usize) -> Vec<String> {
        let mut reader = ResponseReader::new(delta, true);
        let mut said = Vec::new();
        for chunk in bytes.chunks(chunk) {
            reader.push(chunk);
            while let Some(incoming) = reader.next().unwrap() {
                said.push(match incoming {
                    Incoming::Resource(kind, value) => {
                        format!("{kind:?} {}", String::from_utf8_lossy(bytes_of(&value, 1).unwrap()))
                    }
                    Incoming::Gone(name) => format!("gone {}", String::from_utf8_lossy(&name)),
                    Incoming::End(end) => {
                        assert_eq!(reader.take_raw().unwrap().len(), end.bytes);
                        let nonce = String::from_utf8_lossy(&end.nonce).into_owned();
                        format!("end {nonce} of {} with {}", end.bytes, end.resources)
                    }
                });
            }
        }
        said
    }

    #[test]
    fn both_protocols_read_the_same_however_they_are_cut() {
        let sotw = DiscoveryResponse {
            version_info: "v".into(),
            resources: vec![cluster("a"), cluster("b")],
            type_url: ResourceType::Cluster.url().into(),
            nonce: "1".into(),
            ..DiscoveryResponse::default()
        };
        let delta = DeltaDiscoveryResponse {
            resources: vec![Resource {
                name: "a".into(),
                resource: Some(cluster("a")),
                ..Resource::default()
            }],
            type_url: ResourceType::Cluster.url().into(),
            removed_resources: vec!["b".into()],
            nonce: "1".into(),
            ..DeltaDiscoveryResponse::default()
        };
        let (a, b) = (framed(&sotw), framed(&delta));
        for chunk in [1, 2, 7, 1000] {
            let twice = [a.clone(), a.clone()].concat();
            let end = format!("end 1 of {} with 2", a.len() - PREFIX);
            let once = ["Cluster a", "Cluster b", end.as_str()];
            assert_eq!(read(false, &twice, chunk), [once, once].concat());
            let end = format!("end 1 of {} with 1", b.len() - PREFIX);
            assert_eq!(read(true, &b, chunk), ["Cluster a", "gone b", end.as_str()]);
        }
    }

    #[test]
    fn what_is_no_message_ends_the_stream() {
        let mut reader = ResponseReader::new(false, false);
        reader.push(&[1, 0, 0, 0, 0]);
        assert!(matches!(reader.next(), Err(BrokenStream::Compressed)));
        let mut reader = ResponseReader::new(false, false);
        reader.push(&[0, 0, 0, 0, 2, 0x0a, 9]);
        assert!(matches!(reader.next(), Err(BrokenStream::Broken)));
    }
}
