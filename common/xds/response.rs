//! A response as the engine makes it: references to what is sent, and how they go onto the wire.

use std::{borrow::Cow, collections::BTreeMap, mem, time::Duration, vec};

use bytes::{BufMut, Bytes, BytesMut};
use prost::{
    Message,
    encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len},
};

use super::{Name, Wanted, variant, virtual_host::vacancy};

/// What a response consists of. Contents are shared with everybody who is sent the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseParts {
    /// Of which type.
    pub type_url: Cow<'static, str>,
    /// Its number.
    pub nonce: u64,
    /// At which version; in an incremental response what stands in `system_version_info`.
    pub version: String,
    /// Who answers.
    pub identifier: String,
    /// New or changed resources, or all there are.
    pub updated: Vec<Wanted>,
    /// Names the peer shall drop; only in an incremental response.
    pub removed: Vec<Name>,
    /// Names the peer asked for that do not exist, where it has to be told so in words of their own.
    pub missing: Vec<Name>,
    /// Other names of what is new or changed, by which the peer asked for it.
    pub aliases: BTreeMap<Name, Vec<Name>>,
    /// Names the peer asked for that stand for nothing, where it is told so by an empty resource.
    pub unresolved: Vec<Name>,
    /// What the peer has and shall go on to keep, at these versions.
    pub alive: Vec<(Name, String)>,
    /// How long the peer keeps all this unless it is told again.
    pub ttl: Option<Duration>,
}

impl ResponseParts {
    /// Whether it says of what the peer has that it is still good, and nothing more.
    pub fn is_heartbeat(&self) -> bool {
        let says_more =
            [&self.removed, &self.missing, &self.unresolved].iter().any(|names| !names.is_empty());
        !self.alive.is_empty() && self.updated.is_empty() && !says_more
    }
}

/// Where a response has what.
#[derive(Clone, Copy, Debug)]
pub struct ResponseFields {
    /// The version.
    pub version: u32,
    /// The resources.
    pub resources: u32,
    /// The type.
    pub type_url: u32,
    /// The number.
    pub nonce: u32,
    /// Who answers.
    pub control_plane: u32,
    /// Names that were removed.
    pub removed: Option<u32>,
    /// Variants that were removed.
    pub removed_variants: Option<u32>,
    /// What is wrong with single resources; only where `removed` does not say it.
    pub errors: Option<u32>,
    /// Whether a resource stands in an envelope with its name and version.
    pub named: bool,
}

const IDENTIFIER: u32 = 1;
const ANY_TYPE_URL: u32 = 1;
const ANY_VALUE: u32 = 2;
const RESOURCE_VERSION: u32 = 1;
const RESOURCE_CONTENT: u32 = 2;
const RESOURCE_NAME: u32 = 3;
const RESOURCE_ALIAS: u32 = 4;
const RESOURCE_TTL: u32 = 6;
const RESOURCE_CACHE: u32 = 7;
const RESOURCE_VARIANT: u32 = 8;
/// What says that nobody on the way may keep a resource.
const DO_NOT_CACHE: &[u8] = &[1 << 3, 1];
const ERROR_NAME: u32 = 1;
const ERROR_STATUS: u32 = 2;
const NAME: u32 = 1;
const STATUS_CODE: u32 = 1;
const STATUS_MESSAGE: u32 = 2;
/// The code of what does not exist, and what is said about it.
pub(super) const NOT_FOUND: u64 = 5;
pub(super) const NO_SUCH_RESOURCE: &str = "this control plane has no such resource for this node";
const DURATION_SECONDS: u32 = 1;
const DURATION_NANOS: u32 = 2;
/// What stands around a resource, as a type.
pub(super) const ENVELOPE: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";
/// Contents larger than this are handed on instead of being copied.
const LARGE: usize = 8 << 10;

/// Bytes before a message of gRPC: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// A response as a message of gRPC, its prefix included, made piece by piece.
#[derive(Debug)]
pub struct Encoding {
    fields: ResponseFields,
    length: usize,
    left: usize,
    /// Encoded already.
    ready: BytesMut,
    /// A large content that comes after that.
    large: Bytes,
    updated: vec::IntoIter<Wanted>,
    removed: vec::IntoIter<Name>,
    aliases: BTreeMap<Name, Vec<Name>>,
    unresolved: vec::IntoIter<Name>,
    alive: vec::IntoIter<(Name, String)>,
    missing: vec::IntoIter<Name>,
    ttl: Option<Duration>,
}

impl Encoding {
    /// Of `parts`.
    pub fn new(parts: ResponseParts, fields: ResponseFields) -> Self {
        let mut ready = BytesMut::zeroed(PREFIX);
        put_text(&mut ready, fields.version, &parts.version);
        put_text(&mut ready, fields.type_url, &parts.type_url);
        put_text(&mut ready, fields.nonce, &parts.nonce.to_string());
        if !parts.identifier.is_empty() {
            put_head(&mut ready, fields.control_plane, text_len(IDENTIFIER, &parts.identifier));
            put_text(&mut ready, IDENTIFIER, &parts.identifier);
        }
        let ttl = parts.ttl;
        let sizes = parts
            .updated
            .iter()
            .map(|wanted| fields.resource_len(wanted, aliases_of(&parts.aliases, wanted), ttl));
        let alive = parts.alive.iter().map(|(name, version)| fields.alive_len(name, version, &[], ttl));
        let unresolved = parts
            .unresolved
            .iter()
            .map(|asked| fields.alive_len(&vacancy(asked), "", std::slice::from_ref(asked), ttl));
        let updated: usize =
            sizes.chain(alive).chain(unresolved).map(|size| delimited_len(fields.resources, size)).sum();
        let removed: usize = parts.removed.iter().map(|name| fields.removed_len(name)).sum();
        let names = parts.missing.iter().zip(fields.errors.iter().cycle());
        let missing: usize = names.map(|(name, field)| delimited_len(*field, error_len(name))).sum();
        let length = ready.len() - PREFIX + updated + removed + missing;
        let prefix = u32::try_from(length).expect("a response fits into 4 GiB").to_be_bytes();
        ready[PREFIX - prefix.len()..PREFIX].copy_from_slice(&prefix);
        Self {
            fields,
            length,
            left: PREFIX + length,
            ready,
            large: Bytes::new(),
            updated: parts.updated.into_iter(),
            removed: parts.removed.into_iter(),
            aliases: parts.aliases,
            unresolved: parts.unresolved.into_iter(),
            alive: parts.alive.into_iter(),
            missing: parts.missing.into_iter(),
            ttl,
        }
    }

    /// Bytes of the message without its prefix.
    pub fn length(&self) -> usize {
        self.length
    }

    /// Bytes that were not taken yet.
    pub fn left(&self) -> usize {
        self.left
    }

    /// The next piece, about `size` bytes; small contents are gathered into one. Empty at the end.
    pub fn piece(&mut self, size: usize) -> Bytes {
        let room = size.min(self.left);
        if self.ready.is_empty() && !self.large.is_empty() {
            return self.taken(|encoding| encoding.large.split_to(encoding.large.len().min(size)));
        }
        while self.ready.len() < room && self.large.is_empty() {
            self.ready.reserve(room.saturating_sub(self.ready.len()));
            if let Some(wanted) = self.updated.next() {
                self.put_resource(wanted);
            } else if let Some(asked) = self.unresolved.next() {
                self.put_alive(&vacancy(&asked), "", &[asked]);
            } else if let Some((name, version)) = self.alive.next() {
                self.put_alive(&name, &version, &[]);
            } else if let Some((name, (plain, variants))) =
                self.removed.next().zip(self.fields.removed.zip(self.fields.removed_variants))
            {
                match variant::resource_name(&name) {
                    Some(of_variant) => put_delimited(&mut self.ready, variants, &of_variant.encode_to_vec()),
                    None => put_delimited(&mut self.ready, plain, name.as_bytes()),
                }
            } else if let Some((name, field)) = self.missing.next().zip(self.fields.errors) {
                put_error(&mut self.ready, field, &name);
            } else {
                break;
            }
        }
        self.taken(|encoding| mem::take(&mut encoding.ready).freeze())
    }

    fn taken(&mut self, take: impl FnOnce(&mut Self) -> Bytes) -> Bytes {
        let piece = take(self);
        self.left = self.left.saturating_sub(piece.len());
        piece
    }

    fn put_resource(&mut self, wanted: Wanted) {
        let (fields, ttl, out) = (self.fields, self.ttl, &mut self.ready);
        let aliases = aliases_of(&self.aliases, &wanted);
        put_head(out, fields.resources, fields.resource_len(&wanted, aliases, ttl));
        let enveloped = enveloped_len(&wanted, aliases, ttl);
        let is_packed = !fields.named && is_packed(&wanted, ttl);
        if is_packed {
            put_text(out, ANY_TYPE_URL, ENVELOPE);
            put_head(out, ANY_VALUE, enveloped);
        }
        if fields.named || is_packed {
            put_name(out, &wanted.name);
            put_head(out, RESOURCE_VERSION, wanted.told_version_len());
            match &wanted.own_version {
                Some(own) => out.extend_from_slice(own.text.as_bytes()),
                None => out.extend_from_slice(&wanted.version.digits()),
            }
            aliases.iter().for_each(|alias| put_text(out, RESOURCE_ALIAS, alias));
            put_ttl(out, ttl);
            if wanted.is_private() {
                put_delimited(out, RESOURCE_CACHE, DO_NOT_CACHE);
            }
            put_head(out, RESOURCE_CONTENT, any_len(&wanted));
        }
        put_text(out, ANY_TYPE_URL, wanted.type_url);
        if !wanted.value.is_empty() {
            put_head(out, ANY_VALUE, wanted.value.len());
        }
        if wanted.value.len() > LARGE {
            self.large = wanted.value;
        } else {
            out.extend_from_slice(&wanted.value);
        }
    }

    fn put_alive(&mut self, name: &str, version: &str, aliases: &[Name]) {
        let (fields, ttl, out) = (self.fields, self.ttl, &mut self.ready);
        put_head(out, fields.resources, fields.alive_len(name, version, aliases, ttl));
        if !fields.named {
            put_text(out, ANY_TYPE_URL, ENVELOPE);
            put_head(out, ANY_VALUE, alive_len(name, version, aliases, ttl));
        }
        put_name(out, name);
        put_text(out, RESOURCE_VERSION, version);
        aliases.iter().for_each(|alias| put_text(out, RESOURCE_ALIAS, alias));
        put_ttl(out, ttl);
    }
}

impl ResponseFields {
    fn resource_len(&self, wanted: &Wanted, aliases: &[Name], ttl: Option<Duration>) -> usize {
        match (self.named, is_packed(wanted, ttl)) {
            (true, _) => enveloped_len(wanted, aliases, ttl),
            (false, true) => in_any(enveloped_len(wanted, aliases, ttl)),
            (false, false) => any_len(wanted),
        }
    }

    fn removed_len(&self, name: &str) -> usize {
        match (variant::resource_name(name), self.removed, self.removed_variants) {
            (Some(of_variant), _, Some(field)) => delimited_len(field, of_variant.encoded_len()),
            (None, Some(field), _) => delimited_len(field, name.len()),
            _ => 0,
        }
    }

    fn alive_len(&self, name: &str, version: &str, aliases: &[Name], ttl: Option<Duration>) -> usize {
        let length = alive_len(name, version, aliases, ttl);
        if self.named { length } else { in_any(length) }
    }
}

/// Whether there is an envelope around it also in the state of the world: that says how long it lives, or what a variant
/// is for.
fn is_packed(wanted: &Wanted, ttl: Option<Duration>) -> bool {
    ttl.is_some() || variant::is_variant(&wanted.name)
}

/// The name in an envelope.
fn name_len(name: &str) -> usize {
    match variant::resource_name(name) {
        Some(of_variant) => delimited_len(RESOURCE_VARIANT, of_variant.encoded_len()),
        None => text_len(RESOURCE_NAME, name),
    }
}

fn put_name(out: &mut BytesMut, name: &str) {
    match variant::resource_name(name) {
        Some(of_variant) => put_delimited(out, RESOURCE_VARIANT, &of_variant.encode_to_vec()),
        None => put_text(out, RESOURCE_NAME, name),
    }
}

/// A resource that does not exist.
fn error_len(name: &str) -> usize {
    let name = variant::plain_name(name);
    delimited_len(ERROR_NAME, text_len(NAME, name)) + delimited_len(ERROR_STATUS, status_len())
}

fn status_len() -> usize {
    key_len(STATUS_CODE) + encoded_len_varint(NOT_FOUND) + text_len(STATUS_MESSAGE, NO_SUCH_RESOURCE)
}

fn put_error(out: &mut BytesMut, field: u32, name: &str) {
    let name = variant::plain_name(name);
    put_head(out, field, error_len(name));
    put_head(out, ERROR_NAME, text_len(NAME, name));
    put_text(out, NAME, name);
    put_head(out, ERROR_STATUS, status_len());
    encode_key(STATUS_CODE, WireType::Varint, out);
    encode_varint(NOT_FOUND, out);
    put_text(out, STATUS_MESSAGE, NO_SUCH_RESOURCE);
}

/// An envelope of so many bytes, packed.
fn in_any(envelope: usize) -> usize {
    text_len(ANY_TYPE_URL, ENVELOPE) + delimited_len(ANY_VALUE, envelope)
}

/// The other names of a resource. They are the same however often this is asked.
fn aliases_of<'a>(aliases: &'a BTreeMap<Name, Vec<Name>>, wanted: &Wanted) -> &'a [Name] {
    if aliases.is_empty() { &[] } else { aliases.get(&wanted.name).map_or(&[], Vec::as_slice) }
}

fn aliases_len(aliases: &[Name]) -> usize {
    aliases.iter().map(|alias| text_len(RESOURCE_ALIAS, alias)).sum()
}

fn enveloped_len(wanted: &Wanted, aliases: &[Name], ttl: Option<Duration>) -> usize {
    name_len(&wanted.name)
        + aliases_len(aliases)
        + delimited_len(RESOURCE_VERSION, wanted.told_version_len())
        + ttl_len(ttl)
        + if wanted.is_private() { delimited_len(RESOURCE_CACHE, DO_NOT_CACHE.len()) } else { 0 }
        + delimited_len(RESOURCE_CONTENT, any_len(wanted))
}

fn alive_len(name: &str, version: &str, aliases: &[Name], ttl: Option<Duration>) -> usize {
    name_len(name) + aliases_len(aliases) + text_len(RESOURCE_VERSION, version) + ttl_len(ttl)
}

fn ttl_len(ttl: Option<Duration>) -> usize {
    ttl.map_or(0, |ttl| delimited_len(RESOURCE_TTL, duration_len(ttl)))
}

fn duration_len(ttl: Duration) -> usize {
    let member = |field, value: u64| if value == 0 { 0 } else { key_len(field) + encoded_len_varint(value) };
    member(DURATION_SECONDS, ttl.as_secs()) + member(DURATION_NANOS, ttl.subsec_nanos().into())
}

fn put_ttl(out: &mut BytesMut, ttl: Option<Duration>) {
    let Some(ttl) = ttl else { return };
    put_head(out, RESOURCE_TTL, duration_len(ttl));
    for (field, value) in [(DURATION_SECONDS, ttl.as_secs()), (DURATION_NANOS, ttl.subsec_nanos().into())] {
        if value != 0 {
            encode_key(field, WireType::Varint, out);
            encode_varint(value, out);
        }
    }
}

fn any_len(wanted: &Wanted) -> usize {
    let value = wanted.value.len();
    text_len(ANY_TYPE_URL, wanted.type_url) + if value == 0 { 0 } else { delimited_len(ANY_VALUE, value) }
}

fn delimited_len(field: u32, length: usize) -> usize {
    key_len(field) + encoded_len_varint(length as u64) + length
}

/// Empty text is not written.
fn text_len(field: u32, text: &str) -> usize {
    if text.is_empty() { 0 } else { delimited_len(field, text.len()) }
}

fn put_head(out: &mut BytesMut, field: u32, length: usize) {
    encode_key(field, WireType::LengthDelimited, out);
    encode_varint(length as u64, out);
}

fn put_delimited(out: &mut BytesMut, field: u32, value: &[u8]) {
    put_head(out, field, value.len());
    out.put_slice(value);
}

fn put_text(out: &mut BytesMut, field: u32, text: &str) {
    if !text.is_empty() {
        put_delimited(out, field, text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{collections::BTreeMap, sync::Arc, time::Duration};

    use proptest::{collection::vec, prelude::*};
    use prost::Message;

    use super::{ENVELOPE, LARGE, PREFIX, ResponseParts};
    use crate::{
        proto::envoy::service::discovery::v3::{DiscoveryResponse, Resource},
        xds::{Delta, Dialect, OwnVersion, Sotw, Wanted, envoy::SECRET},
    };

    fn parts() -> impl Strategy<Value = ResponseParts> {
        let value = prop_oneof![4 => 0..200_usize, 1 => LARGE - 2..LARGE + 3, 1 => 0..100_000_usize];
        let own = prop::option::of("[a-z0-9]{1,40}");
        let variant = || "[a-z]{1,9}\u{2}[a-z]\u{4}[a-z]{0,9}(\u{3}[a-z]\u{4}[a-z]{0,9})?\u{2}";
        let name = prop_oneof![4 => "[a-z]{0,20}", 1 => variant()];
        let resource = (name, value, own).prop_map(|(name, size, own)| Wanted {
            own_version: own.map(|text| Arc::new(OwnVersion { text: text.into(), given: 1 })),
            ..Wanted::new(name, if size % 5 == 0 { SECRET } else { "T" }, vec![7; size])
        });
        let texts = ("[a-z]{0,9}", "[a-z]{0,9}", "[a-z]{0,9}");
        let names = vec(prop_oneof![4 => "[a-z]{0,20}", 1 => variant()], 0..20);
        let alive = vec((prop_oneof![4 => "[a-z]{0,20}", 1 => variant()], "[a-z]{0,9}"), 0..9);
        let ttl = prop::option::of((0..100_000_u64, 0..1_000_000_000_u32));
        let missing = vec("[a-z]{0,20}", 0..9);
        let aliased = (vec("[a-z]{1,20}", 0..3), vec("[a-z]{1,9}(/[a-z]{1,9})?", 0..4));
        (texts, any::<u64>(), vec(resource, 0..20), names, missing, alive, ttl, aliased).prop_map(
            |(
                (type_url, version, identifier),
                nonce,
                updated,
                removed,
                missing,
                alive,
                ttl,
                (aliases, unresolved),
            )| ResponseParts {
                aliases: updated
                    .iter()
                    .take(9)
                    .map(|one| (one.name.clone(), aliases.iter().map(|a| a.as_str().into()).collect()))
                    .collect(),
                unresolved: unresolved.into_iter().map(Into::into).collect(),
                missing: missing.into_iter().map(Into::into).collect(),
                type_url: type_url.into(),
                nonce,
                version,
                identifier,
                updated,
                removed: removed.into_iter().map(Into::into).collect(),
                // That something is still good is said of what has a time to live.
                alive: alive
                    .into_iter()
                    .filter(|_| ttl.is_some())
                    .map(|(name, version)| (name.into(), version))
                    .collect(),
                ttl: ttl.map(|(seconds, nanos)| Duration::new(seconds, nanos)),
            },
        )
    }

    fn check<D: Dialect<Response: Message + Default + PartialEq>>(
        parts: ResponseParts,
        size: usize,
        plain: impl Fn(D::Response) -> D::Response,
    ) {
        let (message, mut encoding) = (D::message(&parts), D::encode(parts));
        let (mut whole, length) = (Vec::new(), encoding.length());
        while encoding.left() > 0 {
            let piece = encoding.piece(size);
            assert!(!piece.is_empty() && piece.len() <= size + LARGE + 256, "{} bytes", piece.len());
            whole.extend_from_slice(&piece);
        }
        assert!(encoding.piece(size).is_empty());
        let prefix = [&[0][..], &u32::try_from(length).unwrap().to_be_bytes()].concat();
        assert_eq!((&whole[..PREFIX], whole.len()), (&prefix[..], PREFIX + length));
        assert_eq!(length, message.encoded_len());
        assert!(plain(D::Response::decode(&whole[PREFIX..]).unwrap()) == plain(message));
    }

    /// Envelopes that are packed say the same in whatever order.
    fn ordered(mut response: DiscoveryResponse) -> DiscoveryResponse {
        for any in response.resources.iter_mut().filter(|any| any.type_url == ENVELOPE) {
            any.value = Resource::decode(&any.value[..]).unwrap().encode_to_vec();
        }
        response
    }

    proptest! {
        #[test]
        fn pieces_make_the_message(parts in parts(), size in 1..40_000_usize) {
            check::<Delta>(ResponseParts { missing: Vec::new(), ..parts.clone() }, size, |same| same);
            let plain = ResponseParts { removed: Vec::new(), unresolved: Vec::new(), ..parts };
            check::<Sotw>(ResponseParts { aliases: BTreeMap::new(), ..plain }, size, ordered);
        }
    }
}
