//! Encoded messages with markers in them, into which the texts of one proxy are put without a look at the rest.
//!
//! A text changes the length of every message around it, and those stand before them. So the way down to each marker
//! is found once, with the descriptors of the messages; then the lengths are added up from the inside, and what lies beside the
//! markers is copied as it is.

use bytes::Bytes;
use prost::encoding::{WireType, decode_key, decode_varint, encode_varint, encoded_len_varint};
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use super::{
    encode,
    particulars::{MARKER, OPENING, Particular, Particulars},
};

/// An encoded message with markers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template {
    /// What to write, one after the other.
    parts: Vec<TemplatePart>,
    /// Messages and texts whose length depends on the proxy. The first is the whole; one within another comes after it.
    fields: Vec<TemplateField>,
    /// Those whose markers are in it, in their order.
    asks: Vec<Particular>,
}

#[derive(Debug, PartialEq, Eq)]
enum TemplatePart {
    /// Bytes as they are.
    Bytes(Bytes),
    /// A text in place of a marker.
    Text(Particular),
    /// The length of a field, by its place.
    Length(usize),
}

/// What makes the length of a field, but for the fields in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct TemplateField {
    /// The field it is in.
    within: Option<usize>,
    /// Bytes that are as they are.
    bytes: usize,
    texts: Vec<Particular>,
}

impl Template {
    /// That of `encoded`; `None` where there is no marker.
    pub(super) fn of(type_url: &str, encoded: &Bytes) -> Option<Self> {
        if !holds_marker(encoded) {
            return None;
        }
        let mut template =
            Self { parts: Vec::new(), fields: vec![TemplateField::default()], asks: Vec::new() };
        template.add_message(WHOLE, &encode::descriptor(type_url)?, encoded)?;
        let mut asks: Vec<Particular> =
            template.fields.iter().flat_map(|field| &field.texts).copied().collect();
        asks.sort_unstable();
        asks.dedup();
        template.asks = asks;
        (!template.asks.is_empty()).then_some(template)
    }

    /// What it asks about a proxy.
    pub(super) fn asks(&self) -> impl Iterator<Item = Particular> {
        self.asks.iter().copied()
    }

    /// The message for the proxy with these.
    pub(super) fn filled(&self, particulars: &Particulars) -> Bytes {
        let lengths = self.lengths(particulars);
        let mut filled = Vec::with_capacity(lengths[WHOLE]);
        for part in &self.parts {
            match part {
                TemplatePart::Bytes(bytes) => filled.extend_from_slice(bytes),
                TemplatePart::Text(particular) => {
                    filled.extend_from_slice(particulars.text(*particular).as_bytes());
                }
                TemplatePart::Length(field) => encode_varint(lengths[*field] as u64, &mut filled),
            }
        }
        filled.into()
    }

    /// The length of each field. Who is in another comes after it, so from the end each is known when it is asked for.
    fn lengths(&self, particulars: &Particulars) -> Vec<usize> {
        let own = |field: &TemplateField| {
            field.bytes + field.texts.iter().map(|text| particulars.text(*text).len()).sum::<usize>()
        };
        let mut lengths: Vec<usize> = self.fields.iter().map(own).collect();
        for (at, field) in self.fields.iter().enumerate().rev() {
            if let Some(within) = field.within {
                lengths[within] += encoded_len_varint(lengths[at] as u64) + lengths[at];
            }
        }
        lengths
    }

    /// Adds the content of a message to the field at `field`; `None` when it is no message.
    fn add_message(&mut self, field: usize, descriptor: &MessageDescriptor, bytes: &Bytes) -> Option<()> {
        let packed = packed_in(descriptor, bytes);
        let (mut rest, mut copied) = (&bytes[..], 0);
        while !rest.is_empty() {
            let (number, wire) = decode_key(&mut rest).ok()?;
            let before = bytes.len() - rest.len();
            let content = match wire {
                WireType::Varint => {
                    decode_varint(&mut rest).ok()?;
                    continue;
                }
                WireType::SixtyFourBit => take(&mut rest, 8).map(|_| None)?,
                WireType::ThirtyTwoBit => take(&mut rest, 4).map(|_| None)?,
                WireType::LengthDelimited => {
                    let length = usize::try_from(decode_varint(&mut rest).ok()?).ok()?;
                    Some(take(&mut rest, length)?)
                }
                WireType::StartGroup | WireType::EndGroup => return None,
            };
            let Some(content) = content.filter(|content| holds_marker(content)) else { continue };
            let content = bytes.slice_ref(content);
            self.add_bytes(field, bytes.slice(copied..before));
            let inner = self.fields.len();
            self.fields.push(TemplateField { within: Some(field), ..TemplateField::default() });
            self.parts.push(TemplatePart::Length(inner));
            match descriptor.get_field(number).map(|field| field.kind()) {
                Some(Kind::Message(message)) => self.add_message(inner, &message, &content)?,
                Some(Kind::Bytes) if number == PACKED_VALUE && packed.is_some() => {
                    self.add_message(inner, packed.as_ref()?, &content)?;
                }
                Some(_) | None => self.add_text(inner, &content),
            }
            copied = bytes.len() - rest.len();
        }
        self.add_bytes(field, bytes.slice(copied..));
        Some(())
    }

    /// Adds a text to the field at `field`.
    fn add_text(&mut self, field: usize, content: &Bytes) {
        let (mut at, mut copied) = (0, 0);
        while at < content.len() {
            let Some(particular) = Particular::marked(&content[at..]) else {
                at += 1;
                continue;
            };
            self.add_bytes(field, content.slice(copied..at));
            self.fields[field].texts.push(particular);
            self.parts.push(TemplatePart::Text(particular));
            at += MARKER;
            copied = at;
        }
        self.add_bytes(field, content.slice(copied..));
    }

    fn add_bytes(&mut self, field: usize, bytes: Bytes) {
        self.fields[field].bytes += bytes.len();
        if !bytes.is_empty() {
            self.parts.push(TemplatePart::Bytes(bytes));
        }
    }
}

/// The place of the whole message among the fields.
const WHOLE: usize = 0;

fn holds_marker(bytes: &[u8]) -> bool {
    bytes.contains(&OPENING[0]) && bytes.windows(OPENING.len()).any(|window| window == OPENING)
}

/// Where a `google.protobuf.Any` has what it packs.
const PACKED_VALUE: u32 = 2;

/// The message that is packed in this one, if it is one that packs others.
fn packed_in(descriptor: &MessageDescriptor, bytes: &[u8]) -> Option<MessageDescriptor> {
    if descriptor.full_name() != "google.protobuf.Any" {
        return None;
    }
    let any = <common::proto::google::protobuf::Any as prost::Message>::decode(bytes).ok()?;
    let pool: &DescriptorPool = descriptor.parent_pool();
    let name = any.type_url.rsplit_once('/').map(|(_, name)| name)?;
    pool.get_message_by_name(name).or_else(|| encode::packed_by_patches(&any.type_url))
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use common::proto::{
        envoy::config::listener::v3::{Filter, FilterChain, Listener, filter::ConfigType},
        google::protobuf::{Any, ListValue, Struct, Value, value},
    };
    use proptest::prelude::*;
    use prost::{Message, Name};

    use super::*;
    use crate::generator::type_url;

    fn string(text: &str) -> Value {
        Value { kind: Some(value::Kind::StringValue(text.to_owned())) }
    }

    /// A listener with `texts` at several depths, packed and in maps.
    fn listener(texts: &[String]) -> Listener {
        let nested = Value {
            kind: Some(value::Kind::ListValue(ListValue {
                values: texts.iter().map(|text| string(text)).collect(),
            })),
        };
        let mut fields =
            HashMap::from([("plain".to_owned(), string("%START_TIME%")), ("all".to_owned(), nested)]);
        fields.extend(texts.first().map(|text| ("first".to_owned(), string(text))));
        let inner = FilterChain { name: texts.concat(), ..FilterChain::default() };
        let pack = |type_url: String, value: Vec<u8>| Any { type_url, value };
        let filters = [
            pack(Struct::type_url(), Struct { fields }.encode_to_vec()),
            pack(FilterChain::type_url(), inner.encode_to_vec()),
            pack("type.googleapis.com/nobody.knows.It".to_owned(), b"opaque".to_vec()),
        ];
        let filters = filters.into_iter().map(|config| Filter {
            name: "x".to_owned(),
            config_type: Some(ConfigType::TypedConfig(config)),
        });
        let chain = FilterChain { filters: filters.collect(), ..FilterChain::default() };
        let stat_prefix = texts.last().cloned().unwrap_or_default();
        Listener {
            name: "outbound".to_owned(),
            stat_prefix,
            filter_chains: vec![chain],
            ..Listener::default()
        }
    }

    fn encoded(texts: &[String]) -> Bytes {
        encode::stable(type_url::LISTENER, &listener(texts)).into()
    }

    proptest! {
        #[test]
        fn what_is_put_into_a_template_is_as_if_it_had_been_there_when_it_was_made(
            service in "[a-z0-9._-]{1,300}",
            tags in "[a-z&=]{1,40}",
            words in prop::collection::vec("[a-z %(){}\"é]{0,20}", 1..4),
        ) {
            let texts = |service: &str, tags: &str| -> Vec<String> {
                let around = |(n, word): (usize, &String)| match n {
                    0 => format!("{service}{word}{tags}{service}"),
                    1 => format!("{word}{tags}"),
                    _ => word.clone(),
                };
                words.iter().enumerate().map(around).collect()
            };
            let mut particulars = Particulars::default();
            let marked_service = particulars.abstracted(Particular::Service, service.clone());
            let marked_tags = particulars.abstracted(Particular::Tags, tags.clone());
            let template = Template::of(type_url::LISTENER, &encoded(&texts(&marked_service, &marked_tags)));
            let template = template.expect("it has markers");
            let expected = Listener::decode(encoded(&texts(&service, &tags))).expect("it is a listener");
            let filled = template.filled(&particulars);
            prop_assert_eq!(&filled, &encoded(&texts(&service, &tags)));
            prop_assert_eq!(Listener::decode(filled).expect("it is a listener"), expected);
            prop_assert!(template.asks().eq([Particular::Service, Particular::Tags]));
        }
    }

    #[test]
    fn what_asks_nothing_is_no_template() {
        let texts = ["\u{10fffd} and \u{10ffff}".to_owned(), "\u{10fffe}q\u{10ffff}".to_owned()];
        assert_eq!(Template::of(type_url::LISTENER, &encoded(&texts[..1])), None);
        assert_eq!(Template::of(type_url::LISTENER, &encoded(&texts)), None);
    }
}
