//! The rules that stand beside the members of Envoy's messages, in the form in which the build script hands them on.

use prost::Message;

/// All messages of which something is to be looked at.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RuleTable {
    #[prost(message, repeated, tag = "1")]
    pub(super) messages: Vec<MessageRules>,
}

/// What is said of one type of message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MessageRules {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    /// Those of which something is said, or in which something is to be looked at; by number.
    #[prost(message, repeated, tag = "2")]
    pub(super) members: Vec<MemberRules>,
    #[prost(message, repeated, tag = "3")]
    pub(super) choices: Vec<RequiredChoice>,
}

/// A oneof of which one member must be there.
#[derive(Clone, PartialEq, Message)]
pub(super) struct RequiredChoice {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(uint32, repeated, tag = "2")]
    pub(super) members: Vec<u32>,
}

/// What is said of one member.
#[derive(Clone, PartialEq, Message)]
pub(super) struct MemberRules {
    #[prost(uint32, tag = "1")]
    pub(super) number: u32,
    #[prost(string, tag = "2")]
    pub(super) name: String,
    /// The type of its value, of the items of a list, of the values of a map, by its number in descriptors.
    #[prost(int32, tag = "3")]
    pub(super) kind: i32,
    /// One of [`shape`].
    #[prost(int32, tag = "4")]
    pub(super) shape: i32,
    /// Which message its value is.
    #[prost(string, tag = "5")]
    pub(super) message: String,
    #[prost(bool, tag = "6")]
    pub(super) required: bool,
    /// Nobody may use it any more.
    #[prost(bool, tag = "7")]
    pub(super) disallowed: bool,
    /// What is in its message is not looked at.
    #[prost(bool, tag = "8")]
    pub(super) skip: bool,
    /// How many items, at least and at most.
    #[prost(uint64, optional, tag = "9")]
    pub(super) fewest: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub(super) most: Option<u64>,
    #[prost(bool, tag = "11")]
    pub(super) unique: bool,
    #[prost(message, optional, tag = "12")]
    pub(super) value: Option<ValueRules>,
    /// Of a map.
    #[prost(message, optional, tag = "13")]
    pub(super) key: Option<ValueRules>,
    /// The type of the keys of a map.
    #[prost(int32, tag = "14")]
    pub(super) key_kind: i32,
}

/// How a member holds values.
pub(super) mod shape {
    /// One, which is the default of its type where none is written.
    pub(in super::super) const IMPLIED: i32 = 0;
    /// One or none.
    pub(in super::super) const TOLD: i32 = 1;
    /// Any number of them.
    pub(in super::super) const LIST: i32 = 2;
    /// Any number, by key.
    pub(in super::super) const MAP: i32 = 3;
}

/// What is said of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueRules {
    /// Of a number, the number of an enum, and a duration in nanoseconds.
    #[prost(message, optional, tag = "1")]
    pub(super) number: Option<NumberRules>,
    /// Of a text, of bytes, and of the type of something packed.
    #[prost(message, optional, tag = "2")]
    pub(super) text: Option<TextRules>,
    /// The values of an enum; empty where others are taken as well.
    #[prost(int32, repeated, tag = "3")]
    pub(super) defined: Vec<i32>,
    /// Values of an enum that nobody may use any more.
    #[prost(int32, repeated, tag = "4")]
    pub(super) disallowed: Vec<i32>,
    #[prost(bool, tag = "5")]
    pub(super) ignore_empty: bool,
}

/// What is said of a number.
#[derive(Clone, PartialEq, Message)]
pub(super) struct NumberRules {
    #[prost(double, optional, tag = "1")]
    pub(super) equal: Option<f64>,
    #[prost(double, optional, tag = "2")]
    pub(super) below: Option<f64>,
    #[prost(double, optional, tag = "3")]
    pub(super) at_most: Option<f64>,
    #[prost(double, optional, tag = "4")]
    pub(super) above: Option<f64>,
    #[prost(double, optional, tag = "5")]
    pub(super) at_least: Option<f64>,
    #[prost(double, repeated, tag = "6")]
    pub(super) among: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) but: Vec<f64>,
}

/// What is said of a text or of bytes.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TextRules {
    #[prost(uint64, optional, tag = "1")]
    pub(super) fewest_chars: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) most_chars: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) fewest_bytes: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) most_bytes: Option<u64>,
    #[prost(string, tag = "5")]
    pub(super) pattern: String,
    #[prost(string, tag = "6")]
    pub(super) prefix: String,
    #[prost(string, tag = "7")]
    pub(super) suffix: String,
    #[prost(string, tag = "8")]
    pub(super) contains: String,
    #[prost(string, tag = "9")]
    pub(super) lacks: String,
    #[prost(string, repeated, tag = "10")]
    pub(super) among: Vec<String>,
    #[prost(string, repeated, tag = "11")]
    pub(super) but: Vec<String>,
    /// One of [`header`].
    #[prost(int32, tag = "12")]
    pub(super) header: i32,
    #[prost(string, optional, tag = "13")]
    pub(super) equal: Option<String>,
}

/// What of a header a text is.
pub(super) mod header {
    /// Nothing.
    pub(in super::super) const NONE: i32 = 0;
    /// A name.
    pub(in super::super) const NAME: i32 = 1;
    /// A value.
    pub(in super::super) const VALUE: i32 = 2;
    /// Anything on one line.
    pub(in super::super) const LINE: i32 = 3;
}
