//! How large a resource may be: so that what is taken can be sent on, and what cannot be sent holds back
//! nothing but itself.
//!
//! A limit for what is taken leaves room for the form it is sent in. That form has another name, a few labels
//! more, and stands in a message with a nonce and a stamp.

use crate::model::{Kind, Labels};

/// Largest message either side sends or accepts, as Kuma's.
pub const MAX_MESSAGE: usize = 10 * 1024 * 1024;
/// What a message needs besides the resource in it, in bytes; far more than names and labels can have.
const AROUND: usize = 256 * 1024;
/// Labels a resource may have, and bytes of one label.
const MAX_LABELS: usize = 128;
const MAX_LABEL: usize = 1024;

/// The largest resource, as it leaves, that fits into a message of `max_message` bytes.
pub fn largest_sent(max_message: usize) -> usize {
    max_message.saturating_sub(AROUND).max(max_message / 2)
}

/// Whether an encoded resource of `kind` is worth decoding, which takes many times its bytes of memory.
///
/// # Errors
/// What is too large about it.
pub(super) fn admits(kind: &Kind, bytes: usize) -> Result<(), String> {
    let largest = kind.largest + AROUND;
    match bytes > largest {
        true => Err(format!(
            "it has {bytes} bytes, more than the {largest} a {} may have in a message",
            kind.name
        )),
        false => Ok(()),
    }
}

/// What is too large about a resource that is to be taken; `None` when nothing is.
pub fn excess(kind: &Kind, labels: &Labels, spec: &[u8], status: Option<&[u8]>) -> Option<String> {
    if labels.len() > MAX_LABELS {
        return Some(format!("it has {} labels, more than {MAX_LABELS}", labels.len()));
    }
    if labels.iter().any(|(key, value)| key.len() + value.len() > MAX_LABEL) {
        return Some(format!("one of its labels has more than {MAX_LABEL} bytes"));
    }
    let (bytes, largest) = (spec.len() + status.map_or(0, <[u8]>::len), kind.largest);
    (bytes > largest)
        .then(|| format!("it has {bytes} bytes, more than the {largest} a {} may have", kind.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{model::kinds, policy::mesh_timeout, registry};

    #[test]
    fn whatever_is_taken_can_be_sent_on() {
        for kind in registry::ALL.iter() {
            let labels = MAX_LABELS * (MAX_LABEL + 16);
            assert!(kind.largest + labels <= largest_sent(MAX_MESSAGE), "{kind:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_said() {
        let none = Labels::new();
        let spec = vec![0; Kind::LARGEST + 1];
        let said = |kind, labels: &_, spec: &[u8]| excess(kind, labels, spec, None).unwrap_or_default();
        assert_eq!(said(&mesh_timeout::KIND, &none, &spec[1..]), "");
        assert!(said(&mesh_timeout::KIND, &none, &spec).contains("a MeshTimeout may have"));
        assert!(said(&kinds::dataplane::KIND, &none, &spec[1..]).contains("a Dataplane may have"));
        assert_eq!(said(&kinds::zone_ingress::KIND, &none, &spec), "");
        let many = (0..=MAX_LABELS).map(|n| (n.to_string(), String::new())).collect();
        assert!(said(&kinds::dataplane::KIND, &many, &[]).contains("labels"));
        let long = Labels::from([("team", &*"x".repeat(MAX_LABEL))]);
        assert!(said(&kinds::dataplane::KIND, &long, &[]).contains("1024 bytes"));
    }
}
