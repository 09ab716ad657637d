//! Which nodes a request means. Whoever asks writes the conditions, so how many there are and what they take compiled has a
//! limit for all together.

mod expression;

use common::proto::{
    envoy::r#type::matcher::v3::{
        NodeMatcher, StringMatcher, StructMatcher, ValueMatcher, double_matcher, list_matcher,
        string_matcher::MatchPattern as Text, struct_matcher::path_segment::Segment,
        value_matcher::MatchPattern as Matching,
    },
    google::protobuf::{Struct, Value, value::Kind},
};
use regex::Regex;
use thiserror::Error;

use self::expression::ExpressionRoom;
use crate::ads::node::Proxy;

/// Matchers of a request: each is tried on every node.
const MATCHERS: usize = 100;
/// And those with all their conditions.
const CONDITIONS: usize = 1000;

/// The matchers of a request; one that holds is enough.
pub(super) struct NodeFilter(Vec<NodeTest>);

/// All of it has to hold.
struct NodeTest {
    id: Option<TextTest>,
    metadata: Vec<MemberTest>,
}

/// Something in the metadata of a node.
struct MemberTest {
    path: Vec<String>,
    value: ValueTest,
}

enum ValueTest {
    Null,
    Number(f64),
    Range(f64, f64),
    Text(TextTest),
    Bool(bool),
    Present(bool),
    OneOf(Box<ValueTest>),
    Either(Vec<ValueTest>),
}

struct TextTest {
    pattern: TextPattern,
    ignore_case: bool,
}

enum TextPattern {
    Exact(String),
    Prefix(String),
    Suffix(String),
    Contains(String),
    Expression(Regex),
}

/// Why matchers cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum MatcherError {
    #[error("there are more than {MATCHERS} matchers, or more than {CONDITIONS} with all conditions in them")]
    TooMany,
    #[error("all regular expressions together take more than {room} bytes compiled", room = expression::ROOM)]
    TooLarge,
    #[error("a matcher says nothing about {0}")]
    Empty(&'static str),
    #[error("a matcher of an extension is not understood here")]
    Custom,
    #[error("a regular expression cannot be used: {0}")]
    Expression(String),
}

impl NodeFilter {
    /// Reads the matchers of a request; without any it means everybody.
    pub(super) fn read(matchers: &[NodeMatcher]) -> Result<Self, MatcherError> {
        if matchers.len() > MATCHERS {
            return Err(MatcherError::TooMany);
        }
        let mut room = ConditionRoom { left: CONDITIONS, expressions: ExpressionRoom::default() };
        matchers.iter().map(|one| NodeTest::read(one, &mut room)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the request means this proxy.
    pub(super) fn admits(&self, proxy: &Proxy) -> bool {
        let id = proxy.id.to_string();
        self.0.is_empty() || self.0.iter().any(|test| test.holds(&id, &proxy.metadata))
    }
}

/// What more there may be in a request.
struct ConditionRoom {
    left: usize,
    expressions: ExpressionRoom,
}

impl ConditionRoom {
    fn take_one(&mut self) -> Result<(), MatcherError> {
        self.left = self.left.checked_sub(1).ok_or(MatcherError::TooMany)?;
        Ok(())
    }
}

impl NodeTest {
    fn read(matcher: &NodeMatcher, room: &mut ConditionRoom) -> Result<Self, MatcherError> {
        room.take_one()?;
        let id = matcher.node_id.as_ref().map(|text| TextTest::read(text, room)).transpose()?;
        let metadata = matcher.node_metadatas.iter().map(|one| MemberTest::read(one, room));
        let metadata: Vec<_> = metadata.collect::<Result<_, _>>()?;
        if id.is_none() && metadata.is_empty() {
            return Err(MatcherError::Empty("nodes"));
        }
        Ok(Self { id, metadata })
    }

    fn holds(&self, id: &str, metadata: &Struct) -> bool {
        self.id.as_ref().is_none_or(|test| test.holds(id))
            && self.metadata.iter().all(|test| test.holds(metadata))
    }
}

impl MemberTest {
    fn read(matcher: &StructMatcher, room: &mut ConditionRoom) -> Result<Self, MatcherError> {
        let keys = matcher.path.iter().map(|segment| match &segment.segment {
            Some(Segment::Key(key)) => Ok(key.clone()),
            None => Err(MatcherError::Empty("a part of a path")),
        });
        let path: Vec<String> = keys.collect::<Result<_, _>>()?;
        if path.is_empty() {
            return Err(MatcherError::Empty("the path in the metadata"));
        }
        let value = matcher.value.as_ref().ok_or(MatcherError::Empty("a value"))?;
        Ok(Self { path, value: ValueTest::read(value, room)? })
    }

    fn holds(&self, metadata: &Struct) -> bool {
        let mut found: Option<&Value> = None;
        for (depth, key) in self.path.iter().enumerate() {
            let members = match found.and_then(|value| value.kind.as_ref()) {
                _ if depth == 0 => Some(metadata),
                Some(Kind::StructValue(members)) => Some(members),
                _ => None,
            };
            found = members.and_then(|members| members.fields.get(key));
        }
        self.value.holds(found)
    }
}

impl ValueTest {
    fn read(matcher: &ValueMatcher, room: &mut ConditionRoom) -> Result<Self, MatcherError> {
        room.take_one()?;
        let pattern = matcher.match_pattern.as_ref().ok_or(MatcherError::Empty("a value"))?;
        Ok(match pattern {
            Matching::NullMatch(_) => Self::Null,
            Matching::BoolMatch(expected) => Self::Bool(*expected),
            Matching::PresentMatch(expected) => Self::Present(*expected),
            Matching::StringMatch(matcher) => Self::Text(TextTest::read(matcher, room)?),
            Matching::DoubleMatch(matcher) => match &matcher.match_pattern {
                Some(double_matcher::MatchPattern::Exact(number)) => Self::Number(*number),
                Some(double_matcher::MatchPattern::Range(range)) => Self::Range(range.start, range.end),
                None => return Err(MatcherError::Empty("a number")),
            },
            Matching::ListMatch(matcher) => match &matcher.match_pattern {
                Some(list_matcher::MatchPattern::OneOf(one)) => Self::OneOf(Box::new(Self::read(one, room)?)),
                None => return Err(MatcherError::Empty("a list")),
            },
            Matching::OrMatch(matcher) => {
                let tests = matcher.value_matchers.iter().map(|one| Self::read(one, room));
                Self::Either(tests.collect::<Result<_, _>>()?)
            }
        })
    }

    fn holds(&self, value: Option<&Value>) -> bool {
        let kind = value.and_then(|value| value.kind.as_ref());
        match (self, kind) {
            (Self::Either(tests), _) => tests.iter().any(|test| test.holds(value)),
            (Self::Present(expected), kind) => kind.is_some() == *expected,
            (Self::Null, Some(Kind::NullValue(_))) => true,
            #[expect(clippy::float_cmp, reason = "a matcher that names a number means that one")]
            (Self::Number(expected), Some(Kind::NumberValue(number))) => number == expected,
            (Self::Range(start, end), Some(Kind::NumberValue(number))) => (*start..*end).contains(number),
            (Self::Text(test), Some(Kind::StringValue(text))) => test.holds(text),
            (Self::Bool(expected), Some(Kind::BoolValue(value))) => value == expected,
            (Self::OneOf(test), Some(Kind::ListValue(list))) => {
                list.values.iter().any(|value| test.holds(Some(value)))
            }
            _ => false,
        }
    }
}

impl TextTest {
    fn read(matcher: &StringMatcher, room: &mut ConditionRoom) -> Result<Self, MatcherError> {
        let ignore_case = matcher.ignore_case;
        let cased = |text: &String| if ignore_case { text.to_ascii_lowercase() } else { text.clone() };
        let pattern = match matcher.match_pattern.as_ref().ok_or(MatcherError::Empty("a text"))? {
            Text::Exact(text) => TextPattern::Exact(cased(text)),
            Text::Prefix(text) => TextPattern::Prefix(cased(text)),
            Text::Suffix(text) => TextPattern::Suffix(cased(text)),
            Text::Contains(text) => TextPattern::Contains(cased(text)),
            // It is about the whole text, as in an Envoy.
            Text::SafeRegex(matcher) => {
                TextPattern::Expression(room.expressions.compile(&format!("^(?:{})$", matcher.regex))?)
            }
            Text::Custom(_) => return Err(MatcherError::Custom),
        };
        Ok(Self { pattern, ignore_case })
    }

    fn holds(&self, text: &str) -> bool {
        let lower = self.ignore_case.then(|| text.to_ascii_lowercase());
        let cased = lower.as_deref().unwrap_or(text);
        match &self.pattern {
            TextPattern::Exact(expected) => cased == expected,
            TextPattern::Prefix(expected) => cased.starts_with(expected),
            TextPattern::Suffix(expected) => cased.ends_with(expected),
            TextPattern::Contains(expected) => cased.contains(expected),
            // Case is for the expression itself to say.
            TextPattern::Expression(expression) => expression.is_match(text),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::{
        ads::node::{ProxyId, ProxyKind},
        generator::from_json,
    };

    fn filter(matchers: serde_json::Value) -> Result<NodeFilter, MatcherError> {
        const TYPE: &str = "type.googleapis.com/envoy.type.matcher.v3.NodeMatcher";
        let read = |matcher: &serde_json::Value| {
            let bytes = from_json(TYPE, matcher.clone()).unwrap();
            <NodeMatcher as prost::Message>::decode(&bytes[..]).unwrap()
        };
        let matchers: Vec<NodeMatcher> = matchers.as_array().unwrap().iter().map(read).collect();
        NodeFilter::read(&matchers)
    }

    fn proxy() -> Proxy {
        let metadata = json!({
            "team": "shop", "weight": 2.5, "canary": true, "none": null,
            "features": ["a", "b"], "version": {"kumaDp": {"version": "2.14.0"}},
        });
        let serde_json::Value::Object(members) = metadata else { panic!("it is an object") };
        let metadata = Arc::new(common::structure::from_json(members));
        let id = ProxyId::new(ProxyKind::Dataplane, "default", "Web-1");
        Proxy { id, cluster: Arc::from(""), metadata, user_agent: String::new() }
    }

    #[test]
    fn nodes_are_found_by_their_ids() {
        for (matchers, found) in [
            (json!([]), true),
            (json!([{"nodeId": {"exact": "default.Web-1"}}]), true),
            (json!([{"nodeId": {"exact": "default.web-1"}}]), false),
            (json!([{"nodeId": {"exact": "default.WEB-1", "ignoreCase": true}}]), true),
            (json!([{"nodeId": {"prefix": "default."}}]), true),
            (json!([{"nodeId": {"prefix": "other."}}]), false),
            (json!([{"nodeId": {"suffix": "-1"}}]), true),
            (json!([{"nodeId": {"contains": "Web"}}]), true),
            (json!([{"nodeId": {"safeRegex": {"regex": "default\\..*-[0-9]"}}}]), true),
            (json!([{"nodeId": {"safeRegex": {"regex": "Web"}}}]), false),
            (json!([{"nodeId": {"exact": "x"}}, {"nodeId": {"prefix": "default"}}]), true),
        ] {
            assert_eq!(filter(matchers.clone()).unwrap().admits(&proxy()), found, "{matchers}");
        }
    }

    #[test]
    fn nodes_are_found_by_their_metadata() {
        let member = |path: &[&str], value: serde_json::Value| {
            let path: Vec<_> = path.iter().map(|key| json!({"key": key})).collect();
            json!({"path": path, "value": value})
        };
        let kuma = ["version", "kumaDp", "version"];
        for (path, value, found) in [
            (&["team"][..], json!({"stringMatch": {"exact": "shop"}}), true),
            (&["team"], json!({"stringMatch": {"exact": "other"}}), false),
            (&["team", "deeper"], json!({"presentMatch": true}), false),
            (&["missing"], json!({"presentMatch": false}), true),
            (&["missing"], json!({"stringMatch": {"prefix": ""}}), false),
            (&kuma, json!({"stringMatch": {"prefix": "2.14"}}), true),
            (&["weight"], json!({"doubleMatch": {"exact": 2.5}}), true),
            (&["weight"], json!({"doubleMatch": {"range": {"start": 2.5, "end": 3}}}), true),
            (&["weight"], json!({"doubleMatch": {"range": {"start": 1, "end": 2.5}}}), false),
            (&["canary"], json!({"boolMatch": true}), true),
            (&["canary"], json!({"boolMatch": false}), false),
            (&["none"], json!({"nullMatch": {}}), true),
            (&["features"], json!({"listMatch": {"oneOf": {"stringMatch": {"exact": "b"}}}}), true),
            (&["features"], json!({"listMatch": {"oneOf": {"stringMatch": {"exact": "c"}}}}), false),
            (
                &["team"],
                json!({"orMatch": {"valueMatchers": [{"boolMatch": true}, {"stringMatch": {"suffix": "op"}}]}}),
                true,
            ),
        ] {
            let matchers = json!([{"nodeMetadatas": [member(path, value)]}]);
            assert_eq!(filter(matchers.clone()).unwrap().admits(&proxy()), found, "{matchers}");
        }
        let both = json!([{
            "nodeId": {"exact": "nobody"},
            "nodeMetadatas": [member(&["team"], json!({"presentMatch": true}))],
        }]);
        assert!(!filter(both).unwrap().admits(&proxy()), "all that one matcher says has to hold");
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        for (matchers, says) in [
            (json!([{}]), "nodes"),
            (json!([{"nodeId": {}}]), "a text"),
            (json!([{"nodeId": {"safeRegex": {"regex": "("}}}]), "regular expression"),
            (json!([{"nodeId": {"safeRegex": {"regex": "(a{1000}){1000}"}}}]), "regular expression"),
            (
                json!(vec![json!({"nodeId": {"safeRegex": {"regex": "a{5000}"}}}); 20]),
                "regular expressions together",
            ),
            (
                json!([{"nodeMetadatas": vec![json!({"path": [{"key": "a"}], "value": {"stringMatch":
                    {"safeRegex": {"regex": "a"}}}}); 200]}]),
                "regular expressions together",
            ),
            (json!(vec![json!({"nodeId": {"exact": "a"}}); MATCHERS + 1]), "more than 100 matchers"),
            (
                json!([{"nodeMetadatas": [{"path": [{"key": "a"}], "value": {"orMatch":
                    {"valueMatchers": vec![json!({"boolMatch": true}); CONDITIONS]}}}]}]),
                "more than 1000",
            ),
            (json!([{"nodeMetadatas": [{"value": {"boolMatch": true}}]}]), "path"),
            (json!([{"nodeMetadatas": [{"path": [{"key": "a"}]}]}]), "value"),
        ] {
            let refused = filter(matchers.clone()).err().map(|error| error.to_string()).unwrap();
            assert!(refused.contains(says), "{matchers}: {refused}");
        }
    }
}
