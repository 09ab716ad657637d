//! Selectors by tags, as the older model has them, and host names of gateways.

use std::collections::BTreeMap;

use crate::{
    model::{FieldPath, Violations, labels},
    proto::kuma::mesh::v1alpha1::Selector,
};

/// What a set of tags must have.
#[derive(Clone, Copy, Default)]
pub(super) struct TagRequirements {
    /// A tag that names a service, and so at least one.
    pub(super) service: bool,
    /// None of the tags by which dataplanes say what they are.
    pub(super) foreign: bool,
}

/// Tags that say what a dataplane is, which nothing else may claim.
const OF_DATAPLANES: [&str; 4] =
    ["kuma.io/external-service-name", labels::TAG_PROTOCOL, labels::TAG_SERVICE, labels::ZONE];

/// Adds a violation for each of `selectors` that cannot be one; each has to name a service.
pub(super) fn check(selectors: &[Selector], one: bool, path: &FieldPath, violations: &mut Violations) {
    violations.check(selectors.is_empty(), path.clone(), "must have at least one element");
    for (i, selector) in selectors.iter().enumerate() {
        let at = path.index(i);
        let rules = TagRequirements { service: true, ..TagRequirements::default() };
        check_tags(&selector.r#match, rules, &at.field("match"), violations);
        violations.check(one && i > 0, at, "there can be at most one selector");
    }
}

/// Adds a violation for each tag that cannot stand in a selector, where `*` means any value.
pub(super) fn check_tags(
    tags: &BTreeMap<String, String>,
    rules: TagRequirements,
    path: &FieldPath,
    violations: &mut Violations,
) {
    let of_name = |c: char| c.is_ascii_alphanumeric() || "-_./:".contains(c);
    violations.check(rules.service && tags.is_empty(), path.clone(), "must have at least one tag");
    for (key, value) in tags {
        violations.check(key.is_empty(), path.clone(), "tag name must be non-empty");
        let reason =
            "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores";
        violations.check(!key.chars().all(of_name), path.key(key), reason);
        let taken = rules.foreign && OF_DATAPLANES.contains(&key.as_str());
        violations.check(taken, path.key(key), format!("tag name must not be {key:?}"));
        violations.check(value.is_empty(), path.key(key), "tag value must be non-empty");
        let reason = "tag value must consist of alphanumeric characters, dots, dashes, slashes and underscores or be \"*\"";
        violations.check(value != "*" && !value.chars().all(of_name), path.key(key), reason);
    }
    let nameless = rules.service && !tags.contains_key(labels::TAG_SERVICE);
    let reason = format!("mandatory tag {:?} is missing", labels::TAG_SERVICE);
    violations.check(nameless, path.clone(), reason);
}

/// Adds a violation unless `hostname` is the name of a host, `*` for all, or that before a domain.
pub(super) fn check_hostname(hostname: &str, path: &FieldPath, violations: &mut Violations) {
    if hostname == "*" {
        return;
    }
    violations.check(hostname.len() > 253, path.clone(), "must be at most 253 characters");
    match hostname.strip_prefix("*.") {
        Some(domain) => violations.check(!is_domain(domain), path.clone(), "invalid wildcard domain"),
        None => violations.check(!is_domain(hostname), path.clone(), "invalid hostname"),
    }
}

fn is_domain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let label = |label: &str| {
        label.starts_with(plain) && label.ends_with(plain) && label.chars().all(|c| plain(c) || c == '-')
    };
    name.split('.').all(label)
}
