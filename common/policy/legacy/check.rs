//! Checks that several of the older kinds have in common.

use super::selector::ANY;
use crate::{
    model::{FieldPath, Violations, labels},
    proto::{google::protobuf::Duration, kuma::mesh::v1alpha1::Selector},
};

/// What selectors may and must name.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SelectorRequirements {
    /// There is at least one selector.
    pub(super) some: bool,
    /// It names a service.
    pub(super) service: bool,
    /// It names nothing else.
    pub(super) only_service: bool,
    /// It names a protocol over HTTP.
    pub(super) http: bool,
}

/// Sources of what is said about calls.
pub(super) const CALLERS: SelectorRequirements =
    SelectorRequirements { some: true, service: true, only_service: false, http: false };
/// Destinations of what is said about calls.
pub(super) const SERVICES: SelectorRequirements =
    SelectorRequirements { some: true, service: true, only_service: true, http: false };
/// Anybody with tags.
pub(super) const ANYBODY: SelectorRequirements =
    SelectorRequirements { some: true, service: false, only_service: false, http: false };

const HTTP: [&str; 3] = ["http", "http2", "grpc"];

/// What is wrong with the selectors at `name`.
pub(super) fn selectors(name: &str, selectors: &[Selector], asked: SelectorRequirements) -> Violations {
    let path = FieldPath::new(name);
    let mut violations = Violations::none();
    violations.check(asked.some && selectors.is_empty(), path.clone(), "must have at least one element");
    for (i, selector) in selectors.iter().enumerate() {
        violations.extend(tags(&path.index(i).field("match"), selector.r#match.iter(), asked));
    }
    violations
}

/// What is wrong with one set of tags that somebody must have.
pub(super) fn tags<'a>(
    path: &FieldPath,
    tags: impl Iterator<Item = (&'a String, &'a String)> + Clone,
    asked: SelectorRequirements,
) -> Violations {
    let mut violations = Violations::none();
    let count = tags.clone().count();
    let named = tags.clone().any(|(key, _)| key == labels::TAG_SERVICE);
    let service = labels::TAG_SERVICE;
    if asked.only_service {
        let reason = format!("must consist of exactly one tag {service:?}");
        violations.check(count != 1 || !named, path.clone(), reason);
    } else {
        violations.check(count == 0, path.clone(), "must have at least one tag");
    }
    if asked.http {
        let protocol = tags.clone().find(|(key, _)| *key == labels::TAG_PROTOCOL).map(|(_, value)| value);
        match protocol {
            None => violations.add(path.clone(), "protocol must be specified"),
            Some(protocol) if !HTTP.contains(&protocol.as_str()) => {
                let reason = format!("must be one of the [{}]", HTTP.join(", "));
                violations.add(path.key(labels::TAG_PROTOCOL), reason);
            }
            Some(_) => {}
        }
    }
    for (key, value) in tags {
        violations.extend(tag(path, key, value, asked));
    }
    let reason = format!("mandatory tag {service:?} is missing");
    violations.check(asked.service && !named, path.clone(), reason);
    violations
}

fn tag(path: &FieldPath, key: &str, value: &str, asked: SelectorRequirements) -> Violations {
    let mut violations = Violations::none();
    let is_text = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
    violations.check(key.is_empty(), path.clone(), "tag name must be non-empty");
    let at = || path.key(key);
    violations.check(
        !is_text(key),
        at(),
        "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
    );
    let foreign = asked.only_service && key != labels::TAG_SERVICE;
    violations.check(foreign, at(), format!("tag {key:?} is not allowed"));
    violations.check(value.is_empty(), at(), "tag value must be non-empty");
    violations.check(
        !is_text(value) && value != ANY,
        at(),
        "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"",
    );
    violations
}

/// Whether it is no time at all, or less.
pub(super) fn is_nothing(span: &Duration) -> bool {
    (span.seconds, span.nanos) <= (0, 0)
}

/// A span that may be left out and takes some time if not.
pub(super) fn span_if_set(span: Option<&Duration>, path: FieldPath, violations: &mut Violations) {
    violations.check(span.is_some_and(is_nothing), path, "has to be greater than 0 when defined");
}

/// A span that has to be there.
pub(super) fn positive_span(span: Option<&Duration>, path: FieldPath, violations: &mut Violations) {
    violations.check(span.is_none_or(is_nothing), path, "must have a positive value");
}

/// A percentage.
pub(super) fn share(share: f64, path: FieldPath, reason: &str, violations: &mut Violations) {
    violations.check(!(0.0..=100.0).contains(&share), path, reason);
}

/// What is said of a percentage out of its range.
pub(super) const SHARE: &str = "has to be in [0.0 - 100.0] range";
