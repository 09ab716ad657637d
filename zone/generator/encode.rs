//! Bytes and JSON of Envoy messages, both independent of hash order.

use std::sync::LazyLock;

use common::{
    policy::mesh_proxy_patch::native,
    proto::{self, google::protobuf::Any},
};
use prost::{
    Message,
    encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint},
};
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, Kind, MessageDescriptor, SerializeOptions,
};
use thiserror::Error;

static POOL: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(proto::ENVOY_DESCRIPTORS).expect("the build script wrote valid descriptors")
});

/// Why a packed message has no JSON form.
#[derive(Debug, Error)]
pub enum JsonError {
    /// The type is not among the messages this control plane knows.
    #[error("no descriptor for {0:?}")]
    UnknownType(String),
    /// The bytes are not of that type.
    #[error("decode message: {0}")]
    Decode(#[from] prost::DecodeError),
    /// It is not the JSON form of such a message.
    #[error("read message: {0}")]
    Parse(serde_json::Error),
    /// A value has no JSON form.
    #[error("render message: {0}")]
    Render(#[from] serde_json::Error),
}

pub(super) fn descriptor(type_url: &str) -> Option<MessageDescriptor> {
    let (_, name) = type_url.rsplit_once('/')?;
    POOL.get_message_by_name(name)
}

/// The descriptor of a message that nothing here makes, but a patch may pack.
pub(super) fn packed_by_patches(type_url: &str) -> Option<MessageDescriptor> {
    native::packed(type_url).ok()
}

/// The JSON form of a packed message, messages packed inside it included.
///
/// # Errors
/// [`JsonError`] when its type is unknown or its bytes are broken.
pub fn to_json(type_url: &str, value: &[u8]) -> Result<serde_json::Value, JsonError> {
    let known = descriptor(type_url).ok_or_else(|| JsonError::UnknownType(type_url.to_owned()))?;
    // Patches may have packed in it what nothing here ever makes.
    rendered(known, value).or_else(|error| {
        let all = native::packed(type_url).map_err(|_| error)?;
        rendered(all, value)
    })
}

/// The bytes of a message in its JSON form; members it does not have are left out.
///
/// # Errors
/// [`JsonError`] when its type is unknown, or a member is not what it should be.
pub fn from_json(type_url: &str, json: serde_json::Value) -> Result<Vec<u8>, JsonError> {
    let known = descriptor(type_url).ok_or_else(|| JsonError::UnknownType(type_url.to_owned()))?;
    let options = DeserializeOptions::new().deny_unknown_fields(false);
    let message = DynamicMessage::deserialize_with_options(known, json, &options);
    Ok(message.map_err(JsonError::Parse)?.encode_to_vec())
}

fn rendered(descriptor: MessageDescriptor, value: &[u8]) -> Result<serde_json::Value, JsonError> {
    let message = DynamicMessage::decode(descriptor, value)?;
    let options = SerializeOptions::new().stringify_64_bit_integers(true).skip_default_fields(true);
    let json = message.serialize_with_options(serde_json::value::Serializer, &options)?;
    Ok(sorted(json))
}

/// The same with members in alphabetical order.
fn sorted(json: serde_json::Value) -> serde_json::Value {
    match json {
        serde_json::Value::Object(object) => {
            let mut members: Vec<_> = object.into_iter().map(|(k, v)| (k, sorted(v))).collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            serde_json::Value::Object(members.into_iter().collect())
        }
        serde_json::Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// Encodes `message` so that equal messages give equal bytes.
///
/// The generated types hold maps in hash order, which would leak into versions and make every restart
/// look like a change; so the entries of each map are sorted on the encoded form.
pub(super) fn stable(type_url: &str, message: &impl Message) -> Vec<u8> {
    match descriptor(type_url) {
        Some(descriptor) => stable_as(&descriptor, message),
        None => message.encode_to_vec(),
    }
}

/// The same for a message with this descriptor.
pub(super) fn stable_as(descriptor: &MessageDescriptor, message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    rewrite(descriptor, &bytes).unwrap_or(bytes)
}

/// One encoded message with sorted maps; `None` when the bytes are not such a message.
fn rewrite(descriptor: &MessageDescriptor, mut bytes: &[u8]) -> Option<Vec<u8>> {
    if descriptor.full_name() == "google.protobuf.Any" {
        return rewrite_any(descriptor.parent_pool(), bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut entries: Vec<Vec<u8>> = Vec::new();
    let mut map_field = 0;
    while !bytes.is_empty() {
        let (number, wire_type) = decode_key(&mut bytes).ok()?;
        if number != map_field {
            flush(map_field, &mut entries, &mut out);
        }
        if wire_type != WireType::LengthDelimited {
            encode_key(number, wire_type, &mut out);
            copy_scalar(wire_type, &mut bytes, &mut out)?;
            continue;
        }
        let content = length_delimited(&mut bytes)?;
        let field = descriptor.get_field(number);
        let rewritten = match field.as_ref().map(prost_reflect::FieldDescriptor::kind) {
            Some(Kind::Message(inner)) => rewrite(&inner, content)?,
            _ => content.to_vec(),
        };
        if field.is_some_and(|f| f.is_map()) {
            map_field = number;
            entries.push(rewritten);
        } else {
            put(number, &rewritten, &mut out);
        }
    }
    flush(map_field, &mut entries, &mut out);
    Some(out)
}

fn rewrite_any(pool: &DescriptorPool, bytes: &[u8]) -> Option<Vec<u8>> {
    let mut any = Any::decode(bytes).ok()?;
    let name = any.type_url.rsplit_once('/').map(|(_, name)| name);
    if let Some(descriptor) = name.and_then(|name| pool.get_message_by_name(name)) {
        any.value = rewrite(&descriptor, &any.value)?;
    }
    Some(any.encode_to_vec())
}

/// Writes the entries of a map. Each starts with its key, so the order of bytes is the order of keys of
/// one length; any fixed order will do.
fn flush(number: u32, entries: &mut Vec<Vec<u8>>, out: &mut Vec<u8>) {
    entries.sort_unstable();
    for entry in entries.drain(..) {
        put(number, &entry, out);
    }
}

fn put(number: u32, content: &[u8], out: &mut Vec<u8>) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(content.len() as u64, out);
    out.extend_from_slice(content);
}

fn length_delimited<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
    let (content, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(content)
}

fn copy_scalar(wire_type: WireType, bytes: &mut &[u8], out: &mut Vec<u8>) -> Option<()> {
    let width = match wire_type {
        WireType::Varint => {
            encode_varint(decode_varint(bytes).ok()?, out);
            return Some(());
        }
        WireType::SixtyFourBit => 8,
        WireType::ThirtyTwoBit => 4,
        WireType::LengthDelimited | WireType::StartGroup | WireType::EndGroup => return None,
    };
    let (content, rest) = bytes.split_at_checked(width)?;
    out.extend_from_slice(content);
    *bytes = rest;
    Some(())
}
