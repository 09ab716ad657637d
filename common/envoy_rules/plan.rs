//! The rules in the form in which they are looked up: read once per process.

use std::collections::{BTreeSet, HashMap};

use prost::Message;
use regex::Regex;

use super::{
    noted::Look,
    table::{MemberRules, NumberRules, RuleTable, TextRules, ValueRules, shape},
};

/// Messages in which things are packed that Envoy keeps without looking at them.
const KEPT_AS_THEY_ARE: [&str; 2] = ["envoy.config.core.v3.Metadata", "xds.type.v3.TypedStruct"];

/// Messages that Envoy reads without a look at the rules of their members, for all that stands there.
const UNCHECKED: [&str; 1] = ["envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig"];

/// All rules.
pub(super) struct RuleBook {
    by_name: HashMap<String, usize>,
    messages: Vec<MessagePlan>,
}

/// What is looked at in one type of message.
pub(super) struct MessagePlan {
    /// By number.
    pub(super) members: Vec<MemberPlan>,
    /// Oneofs of which one member must be there.
    pub(super) choices: Vec<(String, Vec<u32>)>,
    pub(super) look: Option<Look>,
}

/// What is looked at in one member.
pub(super) struct MemberPlan {
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) kind: ValueKind,
    pub(super) shape: MemberShape,
    pub(super) required: bool,
    pub(super) disallowed: bool,
    pub(super) fewest: Option<u64>,
    pub(super) most: Option<u64>,
    pub(super) unique: bool,
    pub(super) value: Option<ValuePlan>,
    /// Of a map: what is said of keys.
    pub(super) key: Option<ValuePlan>,
}

/// How a member holds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberShape {
    /// One, which is the default of its type where none is written.
    Implied,
    /// One or none.
    Told,
    /// Any number of them.
    List,
    /// Any number, by key.
    Map,
}

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueKind {
    Scalar(Scalar),
    /// A scalar in a message of its own.
    Wrapped(Scalar),
    /// A message in which there is something to look at.
    Message(usize),
    /// Something of any type.
    Packed,
    Duration,
    /// Nothing to look at.
    Opaque,
}

/// Types of values that are no messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Double,
    Float,
    /// With its sign as the highest bit.
    Signed,
    Unsigned,
    /// With its sign as the lowest bit.
    Zigzag,
    Fixed,
    FixedSigned,
    Text,
    Bytes,
}

/// What is said of a value.
pub(super) struct ValuePlan {
    pub(super) number: Option<NumberRules>,
    pub(super) text: Option<TextPlan>,
    pub(super) defined: BTreeSet<i32>,
    pub(super) disallowed: Vec<i32>,
    pub(super) ignore_empty: bool,
}

/// What is said of a text.
pub(super) struct TextPlan {
    pub(super) rules: TextRules,
    pub(super) pattern: Option<Regex>,
}

impl RuleBook {
    /// What the build script wrote, and what looks at messages as a whole.
    pub(super) fn read(table: &[u8], looks: &[(&str, Look)]) -> Self {
        let table = RuleTable::decode(table).expect("the build script wrote a table of rules");
        let names = table.messages.iter().enumerate().map(|(at, rules)| (rules.name.clone(), at));
        let by_name: HashMap<String, usize> = names.collect();
        let messages = table.messages.into_iter().map(|rules| {
            let look = looks.iter().find(|(name, _)| *name == rules.name).map(|(_, look)| *look);
            let keeps = KEPT_AS_THEY_ARE.contains(&&*rules.name);
            if UNCHECKED.contains(&&*rules.name) {
                return MessagePlan { members: Vec::new(), choices: Vec::new(), look };
            }
            let members = rules.members.into_iter().map(|member| MemberPlan::of(member, &by_name));
            MessagePlan {
                members: members.filter(|member| !(keeps && member.kind == ValueKind::Packed)).collect(),
                choices: rules.choices.into_iter().map(|choice| (choice.name, choice.members)).collect(),
                look,
            }
        });
        let messages = messages.collect();
        Self { by_name, messages }
    }

    /// The rules of a type, if there are any.
    pub(super) fn of(&self, type_url: &str) -> Option<&MessagePlan> {
        let (_, name) = type_url.rsplit_once('/')?;
        self.by_name.get(name).map(|at| &self.messages[*at])
    }

    /// The rules of a type that a member holds.
    pub(super) fn at(&self, place: usize) -> &MessagePlan {
        &self.messages[place]
    }
}

impl MemberPlan {
    fn of(rules: MemberRules, by_name: &HashMap<String, usize>) -> Self {
        let shape = match rules.shape {
            shape::IMPLIED => MemberShape::Implied,
            shape::TOLD => MemberShape::Told,
            shape::LIST => MemberShape::List,
            shape::MAP => MemberShape::Map,
            other => unreachable!("the build script wrote the shape {other}"),
        };
        let kind = match Scalar::of(rules.kind) {
            Some(scalar) => ValueKind::Scalar(scalar),
            None if rules.skip => ValueKind::Opaque,
            None => ValueKind::of_message(&rules.message, by_name),
        };
        Self {
            number: rules.number,
            name: rules.name,
            kind,
            shape,
            required: rules.required,
            disallowed: rules.disallowed,
            fewest: rules.fewest,
            most: rules.most,
            unique: rules.unique,
            value: rules.value.map(ValuePlan::of),
            key: rules.key.filter(|_| rules.key_kind == TEXT).map(ValuePlan::of),
        }
    }
}

impl ValueKind {
    fn of_message(name: &str, by_name: &HashMap<String, usize>) -> Self {
        match name {
            "google.protobuf.Any" => Self::Packed,
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.DoubleValue" => Self::Wrapped(Scalar::Double),
            "google.protobuf.FloatValue" => Self::Wrapped(Scalar::Float),
            "google.protobuf.Int32Value" | "google.protobuf.Int64Value" => Self::Wrapped(Scalar::Signed),
            "google.protobuf.UInt32Value" | "google.protobuf.UInt64Value" | "google.protobuf.BoolValue" => {
                Self::Wrapped(Scalar::Unsigned)
            }
            "google.protobuf.StringValue" => Self::Wrapped(Scalar::Text),
            "google.protobuf.BytesValue" => Self::Wrapped(Scalar::Bytes),
            other => by_name.get(other).map_or(Self::Opaque, |at| Self::Message(*at)),
        }
    }
}

/// The number of texts among the types of descriptors.
const TEXT: i32 = 9;

impl Scalar {
    /// By its number in descriptors; `None` for messages.
    const fn of(number: i32) -> Option<Self> {
        Some(match number {
            1 => Self::Double,
            2 => Self::Float,
            3 | 5 | 14 => Self::Signed,
            4 | 8 | 13 => Self::Unsigned,
            6 | 7 => Self::Fixed,
            TEXT => Self::Text,
            12 => Self::Bytes,
            15 | 16 => Self::FixedSigned,
            17 | 18 => Self::Zigzag,
            _ => return None,
        })
    }
}

impl ValuePlan {
    fn of(rules: ValueRules) -> Self {
        let text = rules.text.map(|rules| {
            let pattern = (!rules.pattern.is_empty()).then(|| {
                Regex::new(&rules.pattern).expect("the patterns of Envoy's rules are regular expressions")
            });
            TextPlan { rules, pattern }
        });
        Self {
            number: rules.number,
            text,
            defined: rules.defined.into_iter().collect(),
            disallowed: rules.disallowed,
            ignore_empty: rules.ignore_empty,
        }
    }
}
