//! What an Envoy looks at in routes beyond their members one by one.

use std::collections::BTreeSet;

use prost::Message;
use regex_syntax::ast::{
    Ast, ErrorKind, Flag, Flags, FlagsItem, FlagsItemKind, GroupKind, RepetitionKind, RepetitionRange,
    parse::Parser,
};

use super::noted::Noted;
use crate::model::FieldStep;

#[derive(Clone, PartialEq, Message)]
struct RoutesGist {
    #[prost(message, repeated, tag = "2")]
    virtual_hosts: Vec<HostGist>,
}

#[derive(Clone, PartialEq, Message)]
struct HostGist {
    #[prost(string, repeated, tag = "2")]
    domains: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct SplitGist {
    #[prost(message, repeated, tag = "1")]
    clusters: Vec<ShareGist>,
}

#[derive(Clone, PartialEq, Message)]
struct ShareGist {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "12")]
    cluster_header: String,
    #[prost(message, optional, tag = "2")]
    weight: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct ExpressionGist {
    #[prost(string, tag = "2")]
    regex: String,
}

/// Each host name leads to one virtual host.
pub(super) fn configuration(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let routes = RoutesGist::decode(message).ok()?;
    let at = at.field("virtual_hosts");
    let mut domains = BTreeSet::new();
    for (i, host) in routes.virtual_hosts.iter().enumerate() {
        let at = at.index(i);
        for (i, domain) in host.domains.iter().enumerate() {
            if !domains.insert(domain.to_lowercase()) {
                let reason = format!("must be unique among all virtual hosts: {domain:?} is there twice");
                noted.note(&at.field("domains").index(i), reason);
            }
        }
    }
    Some(())
}

/// What is split goes somewhere.
pub(super) fn weights(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let split = SplitGist::decode(message).ok()?;
    let at = at.field("clusters");
    for (i, share) in split.clusters.iter().enumerate() {
        if share.name.is_empty() == share.cluster_header.is_empty() {
            noted.note(&at.index(i), "must have either a name or a cluster_header");
        }
    }
    let sum: u64 = split.clusters.iter().map(|share| u64::from(share.weight.unwrap_or(1))).sum();
    if !split.clusters.is_empty() && !(1..=u64::from(u32::MAX)).contains(&sum) {
        noted.note(
            &at,
            format!("must have weights that add up to 1 at least and {} at most: {sum}", u32::MAX),
        );
    }
    Some(())
}

/// An expression is one for Envoy's engine as well, as far as it is known to be none.
pub(super) fn expression(noted: &mut Noted, message: &[u8], at: &FieldStep<'_>) -> Option<()> {
    let regex = ExpressionGist::decode(message).ok()?.regex;
    if let Some(wrong) = wrong_expression(&regex) {
        noted.note(&at.field("regex"), format!("is no regular expression: {wrong}"));
    }
    Some(())
}

/// What keeps Envoy's engine from taking an expression.
fn wrong_expression(regex: &str) -> Option<String> {
    let error = match Parser::new().parse(regex) {
        Ok(parsed) => return wrong_for_envoy(&parsed, 1).map(str::to_owned),
        Err(error) => error,
    };
    // The engines differ in what they know; these are wrong to both.
    let wrong = matches!(
        error.kind(),
        ErrorKind::ClassRangeInvalid
            | ErrorKind::ClassUnclosed
            | ErrorKind::EscapeUnexpectedEof
            | ErrorKind::GroupUnclosed
            | ErrorKind::GroupUnopened
            | ErrorKind::RepetitionMissing
            | ErrorKind::UnsupportedBackreference
            | ErrorKind::UnsupportedLookAround
    );
    wrong.then(|| error.kind().to_string())
}

/// How often Envoy's engine repeats something, repetitions inside repetitions multiplied.
const MOST_REPEATED: u32 = 1_000;

/// What another engine reads and Envoy's does not. `repeated`: how often the place is, by what stands around it.
fn wrong_for_envoy(ast: &Ast, repeated: u32) -> Option<&'static str> {
    match ast {
        Ast::Repetition(repetition) => {
            if matches!(*repetition.ast, Ast::Repetition(_)) {
                return Some("a repetition follows a repetition");
            }
            let times = match &repetition.op.kind {
                RepetitionKind::Range(
                    RepetitionRange::Exactly(n)
                    | RepetitionRange::AtLeast(n)
                    | RepetitionRange::Bounded(_, n),
                ) => (*n).max(1),
                RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore | RepetitionKind::OneOrMore => 1,
            };
            let repeated = repeated.saturating_mul(times);
            if repeated > MOST_REPEATED {
                return Some("it repeats something more than 1000 times");
            }
            wrong_for_envoy(&repetition.ast, repeated)
        }
        Ast::Flags(set) => wrong_flags(&set.flags),
        Ast::Group(group) => {
            let flags = match &group.kind {
                GroupKind::NonCapturing(flags) => wrong_flags(flags),
                GroupKind::CaptureIndex(_) | GroupKind::CaptureName { .. } => None,
            };
            flags.or_else(|| wrong_for_envoy(&group.ast, repeated))
        }
        Ast::Alternation(some) => some.asts.iter().find_map(|ast| wrong_for_envoy(ast, repeated)),
        Ast::Concat(some) => some.asts.iter().find_map(|ast| wrong_for_envoy(ast, repeated)),
        _ => None,
    }
}

fn wrong_flags(flags: &Flags) -> Option<&'static str> {
    let is_unknown = |item: &FlagsItem| {
        matches!(item.kind, FlagsItemKind::Flag(Flag::Unicode | Flag::CRLF | Flag::IgnoreWhitespace))
    };
    flags.items.iter().any(is_unknown).then_some("it has a flag that is none of i, m, s and U")
}

#[cfg(test)]
mod tests {
    use super::wrong_expression;

    #[test]
    fn what_envoy_would_refuse_is_known() {
        // As an Envoy said of each of them.
        for refused in [
            "a++",
            "a*+",
            "a{2}{3}",
            "(?u)a",
            "(?x:a b)",
            "a{1001}",
            "(a{1000}){1000}",
            "((a{20}){20}){20}",
            "(?=x)a",
            "[",
            r"\1",
            "a|(b++)",
        ] {
            assert!(wrong_expression(refused).is_some(), "{refused}");
        }
        for taken in [
            "/v1/[a-z]+",
            "(a{100}){10}",
            "a{1000}",
            "(?:a+)+",
            "(?i)a",
            "(?P<x>a)",
            "(?<x>a)",
            r"\C",
            "a+?",
            "(a*)*",
            "a{0}",
        ] {
            assert_eq!(wrong_expression(taken), None, "{taken}");
        }
    }
}
