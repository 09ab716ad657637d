//! What an Envoy looks at in routes beyond their members one by one.

use std::collections::BTreeSet;

use prost::Message;
use regex_syntax::ast::ErrorKind;

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
    let Err(error) = regex_syntax::ast::parse::Parser::new().parse(&regex) else { return Some(()) };
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
    if wrong {
        noted.note(&at.field("regex"), format!("is no regular expression: {}", error.kind()));
    }
    Some(())
}
