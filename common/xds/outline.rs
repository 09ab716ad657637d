//! A request as it came, looked through before anything of it is kept.
//!
//! An Envoy lists all names it is interested in with every answer, thousands of them, and they are nearly
//! always those of the request before. So they are counted and hashed where they lie.

use std::hash::{BuildHasher, Hasher, RandomState};

use prost::{
    DecodeError, Message,
    encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field},
};

use crate::proto::{envoy::config::core::v3::Node, google::rpc::Status};

/// Where a request has what the engine reads.
#[derive(Clone, Copy, Debug)]
pub struct RequestFields {
    /// Text that is only repeated.
    pub version: Option<u32>,
    /// Who asks.
    pub node: u32,
    /// For which type.
    pub type_url: u32,
    /// Which response it answers.
    pub nonce: u32,
    /// Why that was refused.
    pub error: u32,
    /// Lists of names.
    pub names: &'static [u32],
    /// Lists of messages with names and more, which the engine does not read.
    pub locators: &'static [u32],
    /// What the peer holds: a map of names to versions.
    pub held: Option<u32>,
}

/// A request that was looked through.
#[derive(Debug, Default)]
pub struct Outline<'a> {
    /// For which type.
    pub type_url: &'a str,
    /// Which response it answers.
    pub nonce: &'a str,
    /// How many names it lists.
    pub names: usize,
    /// How many resources the peer says it holds.
    pub held: usize,
    /// Bytes of all these names, and of the versions of what is held.
    pub bytes: usize,
    /// Bytes of the longest.
    pub longest: usize,
    /// What tells the names, in their order, from others.
    pub listed: u64,
    error: Option<&'a [u8]>,
    node: Option<&'a [u8]>,
    /// It has something twice that it should have once, or something that nobody has used yet.
    is_odd: bool,
}

/// Why a request cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Unreadable {
    /// Its form is not that of a protobuf message.
    #[error("failed to decode Protobuf message: {0}")]
    Message(#[from] DecodeError),
    /// A member is not what it should be.
    #[error("failed to decode Protobuf message: field {0} is malformed")]
    Field(u32),
}

/// An answer that lists the names the request before it has listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Repeat {
    /// Of which type.
    pub type_url: String,
    /// Which response it answers.
    pub nonce: String,
    /// Why that was refused, if it was.
    pub error: Option<Status>,
    /// The id of the node it says it comes from, if it does.
    pub node: Option<String>,
}

impl<'a> Outline<'a> {
    /// Looks through `message`.
    ///
    /// # Errors
    /// [`Unreadable`], of which the whole message would be decoded in vain.
    pub fn of(message: &'a [u8], fields: &RequestFields, hasher: &RandomState) -> Result<Self, Unreadable> {
        let (mut outline, mut listed) = (Self::default(), Listed::new(hasher));
        let mut rest = message;
        let mut seen = 0_u32;
        while !rest.is_empty() {
            let (tag, wire) = decode_key(&mut rest)?;
            let is_known = fields.knows(tag);
            if !is_known {
                skip_field(wire, tag, &mut rest, DecodeContext::default())?;
                continue;
            }
            // A map's entries are read by the decoder whatever wire type their key names, so they are here.
            let is_entry = fields.held == Some(tag);
            let value = delimited(&mut rest, tag, if is_entry { WireType::LengthDelimited } else { wire })?;
            let repeats =
                fields.names.contains(&tag) || fields.locators.contains(&tag) || fields.held == Some(tag);
            if !repeats {
                outline.is_odd |= seen & (1 << tag) != 0;
                seen |= 1 << tag;
            }
            if fields.names.contains(&tag) {
                outline.names += 1;
                outline.weigh(value.len());
                listed.add(value);
            } else if fields.locators.contains(&tag) {
                outline.names += 1;
                outline.weigh(value.len());
                outline.is_odd = true;
            } else if fields.held == Some(tag) {
                outline.entry(value, tag)?;
            } else if tag == fields.type_url {
                outline.type_url = text(value, tag)?;
            } else if tag == fields.nonce {
                outline.nonce = text(value, tag)?;
            } else if tag == fields.error {
                outline.error = Some(value);
            } else if tag == fields.node {
                outline.node = Some(value);
            } else {
                text(value, tag)?;
            }
        }
        outline.listed = listed.finish();
        Ok(outline)
    }

    /// The request as an answer, where its names need not be read because they are those that were listed
    /// before. `None` where it has to be read as a whole.
    pub fn repeat(&self) -> Option<Repeat> {
        if self.is_odd || self.nonce.is_empty() {
            return None;
        }
        // What is wrong with these is for the whole message to say.
        let node = match self.node {
            Some(node) => Some(Node::decode(node).ok()?.id),
            None => None,
        };
        let error = match self.error {
            Some(error) => Some(Status::decode(error).ok()?),
            None => None,
        };
        Some(Repeat { type_url: self.type_url.to_owned(), nonce: self.nonce.to_owned(), error, node })
    }

    fn weigh(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.longest = self.longest.max(bytes);
    }

    fn entry(&mut self, mut entry: &[u8], field: u32) -> Result<(), Unreadable> {
        self.held += 1;
        while !entry.is_empty() {
            let (tag, wire) = decode_key(&mut entry)?;
            if tag == 1 || tag == 2 {
                let value = delimited(&mut entry, field, wire)?;
                self.weigh(value.len());
            } else {
                skip_field(wire, tag, &mut entry, DecodeContext::default())?;
            }
        }
        Ok(())
    }
}

impl RequestFields {
    fn knows(&self, tag: u32) -> bool {
        let single = [Some(self.node), Some(self.type_url), Some(self.nonce), Some(self.error)];
        single.contains(&Some(tag))
            || [self.version, self.held].contains(&Some(tag))
            || self.names.contains(&tag)
            || self.locators.contains(&tag)
    }
}

/// What tells a list of names from another. The names are those of a peer, so the hash has a key that no
/// peer knows.
pub(super) struct Listed(<RandomState as BuildHasher>::Hasher);

impl Listed {
    pub(super) fn new(hasher: &RandomState) -> Self {
        Self(hasher.build_hasher())
    }

    pub(super) fn of(names: &[String], hasher: &RandomState) -> u64 {
        let mut listed = Self::new(hasher);
        names.iter().for_each(|name| listed.add(name.as_bytes()));
        listed.finish()
    }

    fn add(&mut self, name: &[u8]) {
        self.0.write_usize(name.len());
        self.0.write(name);
    }

    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

fn delimited<'a>(rest: &mut &'a [u8], tag: u32, wire: WireType) -> Result<&'a [u8], Unreadable> {
    if wire != WireType::LengthDelimited {
        return Err(Unreadable::Field(tag));
    }
    let length = usize::try_from(decode_varint(rest)?).map_err(|_| Unreadable::Field(tag))?;
    let (value, after) = rest.split_at_checked(length).ok_or(Unreadable::Field(tag))?;
    *rest = after;
    Ok(value)
}

fn text(value: &[u8], tag: u32) -> Result<&str, Unreadable> {
    std::str::from_utf8(value).map_err(|_| Unreadable::Field(tag))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::hash::RandomState;

    use proptest::{collection::vec, prelude::*};
    use prost::Message;

    use super::{Outline, Repeat, RequestFields, Unreadable};
    use crate::{
        proto::{
            envoy::{
                config::core::v3::Node,
                service::discovery::v3::{DeltaDiscoveryRequest, DiscoveryRequest, ResourceLocator},
            },
            google::rpc::Status,
        },
        xds::{Delta, Dialect, Sotw},
    };

    fn name() -> impl Strategy<Value = String> {
        "[a-zé]{0,6}"
    }

    fn node() -> impl Strategy<Value = Option<Node>> {
        prop::option::of(name().prop_map(|id| Node { id, ..Node::default() }))
    }

    fn error() -> impl Strategy<Value = Option<Status>> {
        prop::option::of(name().prop_map(|message| Status { message, code: 3, ..Status::default() }))
    }

    fn locators() -> impl Strategy<Value = Vec<ResourceLocator>> {
        vec(name().prop_map(|name| ResourceLocator { name, ..ResourceLocator::default() }), 0..2)
    }

    fn sotw() -> impl Strategy<Value = DiscoveryRequest> {
        (name(), node(), vec(name(), 0..9), name(), name(), error(), locators()).prop_map(
            |(
                version_info,
                node,
                resource_names,
                type_url,
                response_nonce,
                error_detail,
                resource_locators,
            )| {
                DiscoveryRequest {
                    version_info,
                    node,
                    resource_names,
                    resource_locators,
                    type_url,
                    response_nonce,
                    error_detail,
                }
            },
        )
    }

    fn delta() -> impl Strategy<Value = DeltaDiscoveryRequest> {
        let names = || vec(name(), 0..6);
        (node(), name(), names(), names(), vec((name(), name()), 0..4), name(), error()).prop_map(
            |(node, type_url, subscribe, unsubscribe, held, response_nonce, error_detail)| {
                DeltaDiscoveryRequest {
                    node,
                    type_url,
                    resource_names_subscribe: subscribe,
                    resource_names_unsubscribe: unsubscribe,
                    initial_resource_versions: held.into_iter().collect(),
                    response_nonce,
                    error_detail,
                    ..DeltaDiscoveryRequest::default()
                }
            },
        )
    }

    /// What a stranger makes of a message: bytes replaced, taken out, put in, or cut off.
    fn mutated(mut bytes: Vec<u8>, changes: &[(u8, usize, u8)]) -> Vec<u8> {
        for (how, at, byte) in changes {
            let at = at % (bytes.len() + 1);
            match how {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, *byte),
                2 if at < bytes.len() => drop(bytes.remove(at)),
                3 => bytes.extend_from_within(at..),
                _ if at < bytes.len() => bytes[at] = *byte,
                _ => {}
            }
        }
        bytes
    }

    fn changes() -> impl Strategy<Value = Vec<(u8, usize, u8)>> {
        vec((0..6_u8, any::<usize>(), any::<u8>()), 0..4)
    }

    fn outline<'a>(bytes: &'a [u8], fields: &RequestFields) -> Result<Outline<'a>, Unreadable> {
        Outline::of(bytes, fields, &RandomState::new())
    }

    /// Compares what `D` would make of the decoded message with what the outline says.
    fn check<D: Dialect<Request: Message + Default>>(bytes: &[u8]) -> Option<Repeat> {
        let decoded = D::Request::decode(bytes);
        let Ok(outline) = outline(bytes, &D::REQUEST) else {
            assert!(decoded.is_err(), "refused, and would have been decoded");
            return None;
        };
        let Ok(request) = decoded else { return None };
        let envelope = D::envelope(&request);
        assert_eq!(envelope.type_url, outline.type_url);
        assert_eq!(envelope.is_first, outline.nonce.is_empty());
        // Members that nobody reads count, and so do entries of a map that replace each other.
        assert!(envelope.names <= outline.names && envelope.held <= outline.held);
        assert!(envelope.bytes <= outline.bytes && envelope.longest <= outline.longest);
        let repeat = outline.repeat();
        if let Some(repeat) = &repeat {
            assert_eq!(repeat.error.as_ref(), envelope.error);
            assert_eq!(repeat.type_url, envelope.type_url);
        }
        repeat
    }

    #[test]
    fn an_entry_is_read_under_whatever_wire_type_its_key_names() {
        // Key of the field that says what is held, as bytes and as each other wire type.
        for wire in 0..6_u8 {
            let request = [(5 << 3) | wire, 6, 0x0a, 1, b'a', 0x12, 1, b'1'];
            check::<Delta>(&request);
            let seen = outline(&request, &Delta::REQUEST).unwrap();
            assert_eq!((seen.held, seen.bytes), (1, 2), "wire type {wire}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]

        #[test]
        fn a_request_is_seen_as_it_would_be_decoded(request in sotw()) {
            let bytes = request.encode_to_vec();
            let repeat = check::<Sotw>(&bytes);
            let plain = !request.response_nonce.is_empty() && request.resource_locators.is_empty();
            prop_assert_eq!(repeat.is_some(), plain);
            let seen = outline(&bytes, &Sotw::REQUEST).unwrap();
            prop_assert_eq!(seen.names, request.resource_names.len() + request.resource_locators.len());
        }

        #[test]
        fn a_difference_is_seen_as_it_would_be_decoded(request in delta()) {
            let bytes = request.encode_to_vec();
            check::<Delta>(&bytes);
            let (seen, envelope) = (outline(&bytes, &Delta::REQUEST).unwrap(), Delta::envelope(&request));
            prop_assert_eq!((seen.names, seen.held), (envelope.names, envelope.held));
            prop_assert_eq!((seen.bytes, seen.longest), (envelope.bytes, envelope.longest));
        }

        #[test]
        fn what_strangers_make_of_it_is_refused_only_if_it_could_not_be_decoded(
            sotw in sotw(), delta in delta(), changes in changes(),
        ) {
            check::<Sotw>(&mutated(sotw.encode_to_vec(), &changes));
            check::<Delta>(&mutated(delta.encode_to_vec(), &changes));
        }

        #[test]
        fn equal_names_in_an_equal_order_are_known_again(one in vec(name(), 0..6), other in vec(name(), 0..6)) {
            let hasher = RandomState::new();
            let listed = |names: &[String], nonce: &str| {
                let request = DiscoveryRequest {
                    resource_names: names.to_vec(),
                    response_nonce: nonce.to_owned(),
                    ..DiscoveryRequest::default()
                };
                let listed = Outline::of(&request.encode_to_vec(), &Sotw::REQUEST, &hasher).unwrap().listed;
                assert_eq!(listed, super::Listed::of(names, &hasher));
                listed
            };
            prop_assert_eq!(listed(&one, "1"), listed(&one, "2"));
            prop_assert_eq!(listed(&one, "1") == listed(&other, "1"), one == other);
        }
    }
}
