//! What bytes may hold and JSON has no words for: times and durations beyond all bounds, and numbers that are none.
//!
//! Peers send bytes. What one of them says so of what it owns is shown as the nearest that can be said, because else
//! everybody would be refused each list that it stands in.

use prost_reflect::{DynamicMessage, ReflectMessage, Value};

use super::authored::DURATION;

const TIMESTAMP: &str = "google.protobuf.Timestamp";
const VALUE: &str = "google.protobuf.Value";
/// Seconds since 1970, from the beginning of the year 1 to the end of the year 9999.
const TIMES: (i64, i64) = (-62_135_596_800, 253_402_300_799);
/// Seconds of ten thousand years.
const LONGEST: i64 = 315_576_000_000;
const NANOS: i32 = 999_999_999;

/// Makes of all that `message` holds what JSON can say.
pub(super) fn bounded(message: &mut DynamicMessage) {
    match message.descriptor().full_name() {
        TIMESTAMP => clamp(message, TIMES, (0, NANOS)),
        DURATION => clamp(message, (-LONGEST, LONGEST), (-NANOS, NANOS)),
        VALUE => say_number(message),
        _ => {}
    }
    message.fields_mut().for_each(|(_, value)| within(value));
}

fn within(value: &mut Value) {
    match value {
        Value::Message(inner) => bounded(inner),
        Value::List(items) => items.iter_mut().for_each(within),
        Value::Map(entries) => entries.values_mut().for_each(within),
        _ => {}
    }
}

fn clamp(message: &mut DynamicMessage, seconds: (i64, i64), nanos: (i32, i32)) {
    if let Some(Value::I64(value)) = message.get_field_by_name_mut("seconds") {
        *value = (*value).clamp(seconds.0, seconds.1);
    }
    if let Some(Value::I32(value)) = message.get_field_by_name_mut("nanos") {
        *value = (*value).clamp(nanos.0, nanos.1);
    }
}

/// As where such a structure is read otherwise: what is no number is nothing.
fn say_number(value: &mut DynamicMessage) {
    let number = value.get_field_by_name("number_value").and_then(|number| number.as_f64());
    if number.is_some_and(|number| !number.is_finite()) {
        value.set_field_by_name("null_value", Value::EnumNumber(0));
    }
}
