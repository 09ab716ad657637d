//! Whose an item is. Who sends it is known from the session alone; what the payload says about it is
//! corrected, and the receiver learns what it said.
//!
//! What a payload says is what its decoder reads: the last of a field that stands twice, of a message in
//! pieces all of them, of an entry without a key the empty one. So it is decoded, corrected, and encoded
//! again in the one form that leaves nothing to read differently. Fields nobody knows are kept.

use std::fmt;

use bytes::Bytes;
use prost_reflect::{DynamicMessage, MapKey, Value};

use crate::{
    clip::clip,
    model::{Format, Kind, Labels, SpecError, ZoneField, ZoneFieldForm, labels, names::MAX_NAME, transcode},
};

/// What global does with an item that claims another zone than its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Attribute it to the sender. Zones of Kuma send what their users wrote and rely on it.
    Rewrite,
    /// Refuse it, and keep what is stored. The sender says that it names itself everywhere, so another
    /// name is a mistake nobody should paper over.
    Refuse,
}

/// Where an item claims another zone than its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginClaim {
    /// The field that names it.
    pub field: &'static str,
    /// The zone it names.
    pub zone: String,
}

impl OriginClaim {
    /// The claim of a field that names `named`; none when that is nobody, or `zone` itself.
    fn of(field: &'static str, named: &str, zone: &str) -> Option<Self> {
        let another = !named.is_empty() && named != zone;
        another.then(|| Self { field, zone: clip(named, MAX_NAME).to_owned() })
    }
}

impl fmt::Display for OriginClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names zone {:?}", self.field, self.zone)
    }
}

/// Makes labels and spec of a resource of `kind` say that it belongs to `zone`; tells what claimed another
/// zone before, the first of all. Doing it again changes nothing.
///
/// # Errors
/// When the spec does not decode.
pub fn pin(
    kind: &Kind,
    labels: &mut Labels,
    spec: &mut Bytes,
    zone: &str,
) -> Result<Option<OriginClaim>, SpecError> {
    let labelled = labels.insert(labels::ZONE, zone).unwrap_or_default();
    labels.insert(labels::ORIGIN, labels::ORIGIN_ZONE);
    let mut claim = OriginClaim::of("labels[\"kuma.io/zone\"]", &labelled, zone);
    if let Format::Proto { message } = kind.format
        && !kind.zone_fields.is_empty()
    {
        let mut decoded = transcode::reflect(message, spec)?;
        for field in kind.zone_fields {
            let mut named = None;
            pin_field(field, &mut decoded, zone, &mut named);
            claim = claim.or(named);
        }
        *spec = transcode::stable(&decoded).into();
    }
    Ok(claim)
}

fn pin_field(field: &ZoneField, message: &mut DynamicMessage, zone: &str, claim: &mut Option<OriginClaim>) {
    each(message, field.path, &mut |value| {
        let named = match (field.form, &mut *value) {
            (ZoneFieldForm::Name, name) => Some(name),
            (ZoneFieldForm::Tags, Value::Map(tags)) => tags.get_mut(&MapKey::String(labels::ZONE.to_owned())),
            (ZoneFieldForm::Tags, _) => None,
        };
        if let Some(Value::String(named)) = named {
            *claim = claim.take().or_else(|| OriginClaim::of(field.shown, named, zone));
            zone.clone_into(named);
        }
    });
}

/// Visits the value of the field `path` leads to, in every item of the lists on the way. What is absent on
/// the way stays absent; the field itself is there afterwards.
pub(super) fn each(message: &mut DynamicMessage, path: &[&str], visit: &mut dyn FnMut(&mut Value)) {
    let Some((name, rest)) = path.split_first() else { return };
    if !rest.is_empty() && !message.has_field_by_name(name) {
        return;
    }
    let value = message.get_field_by_name_mut(name).expect("a path names fields of its message");
    match value {
        value if rest.is_empty() => visit(value),
        Value::Message(inner) => each(inner, rest, visit),
        Value::List(items) => {
            items.iter_mut().filter_map(Value::as_message_mut).for_each(|item| each(item, rest, visit));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
