//! Between a resource and its envelope on the wire, `KumaResource` inside an `Any`.
//!
//! The spec travels as the bytes the store holds, so that protobuf fields and JSON members of a newer
//! peer pass through unharmed.

use bytes::Bytes;
use prost::Message;
use thiserror::Error;

mod object;

use super::names::delta_name;
use crate::{
    clip::clip,
    model::{Format, Kind, Labels, Resource, ResourceKey, Violations, labels, names::MAX_NAME, transcode},
    proto::{
        google::protobuf::Any,
        kuma::mesh::v1alpha1::{KumaResource, kuma_resource::Meta},
    },
    xds::Wanted,
};

/// Type URL of the envelope.
pub const ENVELOPE_URL: &str = "type.googleapis.com/kuma.mesh.v1alpha1.KumaResource";
const URL_PREFIX: &str = "type.googleapis.com/";
/// Longest text of a signature, in bytes; a real one has 103.
const LONGEST_SIGNATURE: usize = 128;
/// How much of what a peer sent an error shows back, in bytes.
const SHOWN: usize = 80;

/// Encodes `mapped`, the form of a resource that leaves.
pub fn encode(mapped: &Resource) -> Wanted {
    let kind = mapped.kind();
    let (spec_url, status) = match kind.format {
        Format::Proto { message } => (format!("{URL_PREFIX}{message}"), None),
        // Receivers take JSON specs by their empty type URL.
        Format::Json { .. } => (String::new(), mapped.status.as_ref()),
    };
    let mut labels = mapped.labels.to_map();
    // It is longer than labels may be, and none of Kuma's business.
    let strait_signature = labels.remove(labels::SIGNATURE).unwrap_or_default();
    let envelope = KumaResource {
        meta: Some(Meta {
            name: mapped.name().to_owned(),
            mesh: mapped.mesh().to_owned(),
            version: String::new(),
            labels,
        }),
        spec: Some(Any { type_url: spec_url, value: mapped.spec.to_vec() }),
        status: status.map(|status| Any { type_url: String::new(), value: status.to_vec() }),
        strait_signature,
    };
    Wanted::new(delta_name(mapped.name(), mapped.mesh()), ENVELOPE_URL, envelope.encode_to_vec())
}

/// A resource as it arrived: identity, labels, encoded spec.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Identity under the name the peer gave it.
    pub key: ResourceKey,
    /// All labels.
    pub labels: Labels,
    /// Spec in the format of the kind.
    pub spec: Bytes,
    /// JSON status, for kinds that have one.
    pub status: Option<Bytes>,
}

/// Why something on the wire is not a resource of the announced type.
#[derive(Debug, Error)]
pub enum DecodeError {
    /// There is nothing in the envelope's place, or something else.
    #[error("the resource is of type {0:?}, not KumaResource")]
    NotAnEnvelope(String),
    /// The envelope is broken.
    #[error("decode KumaResource: {0}")]
    Envelope(#[from] prost::DecodeError),
    /// A part of the envelope is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// The name or mesh cannot be one.
    #[error("{field} {value:?} is not a valid name")]
    Name {
        /// `name` or `mesh`.
        field: &'static str,
        /// What was sent, cut to a length fit for a log.
        value: String,
    },
    /// The spec is of another type than the stream.
    #[error("the spec is of type {actual:?}, not {expected}")]
    SpecType {
        /// Of the stream.
        expected: &'static str,
        /// In the envelope.
        actual: String,
    },
    /// A label holds a character no store keeps.
    #[error("label {0:?} holds a NUL character")]
    Label(String),
    /// What should be a signature cannot be one.
    #[error("what stands in the place of its signature is none")]
    Signature,
    /// The spec or status does not decode.
    #[error("{0}")]
    Spec(String),
    /// The spec decodes but breaks rules.
    #[error("{0}")]
    Invalid(Violations),
}

/// Decodes and validates one resource of `kind`.
///
/// # Errors
/// [`DecodeError`] saying what is wrong with it; meant for the peer.
pub fn decode(kind: &'static Kind, any: &Any) -> Result<Item, DecodeError> {
    let envelope = open(any)?;
    let mut meta = envelope.meta.ok_or(DecodeError::Missing("meta"))?;
    check_name("name", &meta.name)?;
    if kind.is_mesh_scoped() {
        check_name("mesh", &meta.mesh)?;
    }
    if let Some((key, _)) = meta.labels.iter().find(|(k, v)| k.contains('\0') || v.contains('\0')) {
        return Err(DecodeError::Label(key.replace('\0', "\\0")));
    }
    let signature = envelope.strait_signature;
    if signature.len() > LONGEST_SIGNATURE || signature.contains('\0') {
        return Err(DecodeError::Signature);
    }
    meta.labels.remove(labels::SIGNATURE);
    if !signature.is_empty() {
        meta.labels.insert(labels::SIGNATURE.to_owned(), signature);
    }
    let spec = envelope.spec.ok_or(DecodeError::Missing("spec"))?;
    check_spec(kind, &spec)?;
    let violations = kind.validate(&spec.value).map_err(|e| DecodeError::Spec(e.to_string()))?;
    if !violations.is_empty() {
        return Err(DecodeError::Invalid(violations));
    }
    let status = envelope.status.map(|s| s.value).filter(|s| kind.has_status() && !s.is_empty());
    if let Some(status) = &status {
        check_object("status", status)?;
    }
    Ok(Item {
        key: ResourceKey::new(kind, &meta.mesh, &meta.name),
        labels: meta.labels.into_iter().collect(),
        spec: spec.value.into(),
        status: status.map(Into::into),
    })
}

/// The key an envelope names, even when the rest of it is wrong.
pub fn named(kind: &'static Kind, any: &Any) -> Option<ResourceKey> {
    let meta = open(any).ok()?.meta?;
    Some(ResourceKey::new(kind, &meta.mesh, &meta.name))
}

fn open(any: &Any) -> Result<KumaResource, DecodeError> {
    if any.type_url != ENVELOPE_URL {
        return Err(DecodeError::NotAnEnvelope(clip(&any.type_url, SHOWN).to_owned()));
    }
    Ok(KumaResource::decode(any.value.as_slice())?)
}

fn check_name(field: &'static str, name: &str) -> Result<(), DecodeError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
        return Err(DecodeError::Name { field, value: clip(name, SHOWN).to_owned() });
    }
    Ok(())
}

fn check_spec(kind: &Kind, spec: &Any) -> Result<(), DecodeError> {
    match kind.format {
        Format::Json { .. } => check_object("spec", &spec.value),
        Format::Proto { message } => {
            if spec.type_url.strip_prefix(URL_PREFIX) != Some(message) {
                return Err(DecodeError::SpecType {
                    expected: message,
                    actual: clip(&spec.type_url, SHOWN).to_owned(),
                });
            }
            transcode::reflect(message, &spec.value).map_err(|e| DecodeError::Spec(e.to_string()))?;
            Ok(())
        }
    }
}

fn check_object(part: &'static str, json: &[u8]) -> Result<(), DecodeError> {
    object::check(json).map_err(|e| DecodeError::Spec(format!("{part}: {e}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;
    use crate::{model::kinds, policy::mesh_timeout};

    fn wire(resource: &Resource) -> Any {
        Any { type_url: ENVELOPE_URL.to_owned(), value: encode(resource).value.to_vec() }
    }

    fn timeout() -> Resource {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", "t");
        Resource::new(key, DateTime::UNIX_EPOCH)
            .with_spec(&br#"{"to":[{"targetRef":{"kind":"Mesh"},"default":{"idleTimeout":"20s","fromTheFuture":1}}]}"#[..])
    }

    #[test]
    fn members_nobody_knows_survive() {
        let resource = timeout().with_label("team", "a");
        let item = decode(resource.kind(), &wire(&resource)).unwrap();
        assert_eq!((item.spec, item.labels), (resource.spec, resource.labels));
    }

    #[test]
    fn protobuf_fields_nobody_knows_survive() {
        // Field 1 = "zone-1", then field 99 of varint type.
        let spec = [&b"\x0a\x06zone-1"[..], &[0x98, 0x06, 0x2a]].concat();
        let key = ResourceKey::global(&kinds::zone_ingress::KIND, "i");
        let mut resource = Resource::new(key, DateTime::UNIX_EPOCH).with_spec(spec);
        if !resource.kind().validate(&resource.spec).unwrap().is_empty() {
            // Typed validation wants an address; field 99 is what this test is about.
            let full = r#"{"zone":"zone-1","networking":{"address":"10.0.0.1","port":10001}}"#;
            let json = serde_json::from_str(full).unwrap();
            let mut bytes = transcode::from_json(resource.kind(), &json).unwrap();
            bytes.extend([0x98, 0x06, 0x2a]);
            resource = resource.with_spec(bytes);
        }
        let item = decode(resource.kind(), &wire(&resource)).unwrap();
        assert_eq!(item.spec, resource.spec);
    }

    #[test]
    fn equal_content_has_an_equal_version() {
        let (a, b) = (timeout().with_label("x", "1"), timeout().with_label("x", "2"));
        assert_eq!(encode(&a).version, encode(&a).version);
        assert_ne!(encode(&a).version, encode(&b).version);
    }

    #[test]
    fn what_is_not_a_resource_is_refused_with_a_reason() {
        let good = timeout();
        let envelope = |change: &dyn Fn(&mut KumaResource)| {
            let mut message = KumaResource::decode(encode(&good).value).unwrap();
            change(&mut message);
            Any { type_url: ENVELOPE_URL.to_owned(), value: message.encode_to_vec() }
        };
        let check = |any: Any, expected: &str| {
            let error = decode(&mesh_timeout::KIND, &any).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} should mention {expected}");
        };
        check(Any::default(), "KumaResource");
        check(Any { type_url: ENVELOPE_URL.to_owned(), value: vec![0xff; 9] }, "decode KumaResource");
        check(envelope(&|m| m.meta = None), "meta");
        check(envelope(&|m| m.spec = None), "spec");
        check(envelope(&|m| m.spec.as_mut().unwrap().value.clear()), "spec");
        check(envelope(&|m| m.spec.as_mut().unwrap().value = b"[1]".to_vec()), "spec");
        check(envelope(&|m| m.meta.as_mut().unwrap().name = "../x".to_owned()), "name");
        check(envelope(&|m| m.meta.as_mut().unwrap().name = "x".repeat(300)), "name");
        check(envelope(&|m| m.meta.as_mut().unwrap().mesh.clear()), "mesh");
        check(
            envelope(&|m| {
                m.meta.as_mut().unwrap().labels.insert("k".to_owned(), "a\0b".to_owned());
            }),
            "NUL",
        );
    }
}
