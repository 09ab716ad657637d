//! Bytes of a message that depend on its content alone.
//!
//! A reflected message holds its maps in hash order. Versions are digests of bytes, so each map is written
//! in the order of its keys; fields come in the order of their numbers, those nobody knows after the others.

use std::collections::BTreeMap;

use prost::{Message, encoding::bytes::encode as encode_bytes};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

/// The encoding of `message` that every message of equal content has.
pub fn stable(message: &DynamicMessage) -> Vec<u8> {
    let mut out = Vec::new();
    for (field, value) in message.fields() {
        put(message, &field, value, &mut out);
    }
    message.unknown_fields().for_each(|unknown| unknown.encode(&mut out));
    out
}

fn put(message: &DynamicMessage, field: &FieldDescriptor, value: &Value, out: &mut Vec<u8>) {
    match (value, field.kind()) {
        (Value::Message(inner), _) => nested(field, inner, out),
        (Value::List(items), Kind::Message(_)) => {
            items.iter().filter_map(Value::as_message).for_each(|item| nested(field, item, out));
        }
        (Value::Map(entries), Kind::Message(entry)) => {
            for (key, value) in entries.iter().collect::<BTreeMap<_, _>>() {
                let mut one = DynamicMessage::new(entry.clone());
                one.set_field(&entry.map_entry_key_field(), key.clone().into());
                one.set_field(&entry.map_entry_value_field(), value.clone());
                nested(field, &one, out);
            }
        }
        // Scalars have one form each, which the library writes.
        _ => {
            let mut alone = DynamicMessage::new(message.descriptor());
            alone.set_field(field, value.clone());
            out.extend(alone.encode_to_vec());
        }
    }
}

fn nested(field: &FieldDescriptor, message: &DynamicMessage, out: &mut Vec<u8>) {
    encode_bytes(field.number(), &stable(message), out);
}
