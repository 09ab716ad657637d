//! Merging of messages.

use prost_reflect::{DynamicMessage, ReflectMessage, Value};

/// Takes `patch` into `message`: lists grow, entries of maps are replaced, messages are merged member by member. What
/// stands for one value is replaced as one.
pub(super) fn merge(message: &mut DynamicMessage, patch: &DynamicMessage) {
    for (field, value) in patch.fields() {
        match value {
            Value::List(items) => {
                if let Some(list) = message.get_field_mut(&field).as_list_mut() {
                    list.extend(items.iter().cloned());
                }
            }
            Value::Map(entries) => {
                if let Some(map) = message.get_field_mut(&field).as_map_mut() {
                    map.extend(entries.iter().map(|(key, value)| (key.clone(), value.clone())));
                }
            }
            Value::Message(inner) if !is_one_value(inner) && message.has_field(&field) => {
                if let Some(into) = message.get_field_mut(&field).as_message_mut() {
                    merge(into, inner);
                }
            }
            value => message.set_field(&field, value.clone()),
        }
    }
}

/// A duration of half a second is not one of a second and a half to be merged, and `false` is no lack of a value.
fn is_one_value(message: &DynamicMessage) -> bool {
    let descriptor = message.descriptor();
    let wrapped = descriptor.parent_file().name() == "google/protobuf/wrappers.proto";
    wrapped || descriptor.full_name() == "google.protobuf.Duration"
}
