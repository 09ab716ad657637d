//! Checks of tags, the labels of the older model.

use std::collections::BTreeMap;

use crate::model::{FieldPath, FieldStep, Violations, labels};

/// Protocols a service may speak.
const PROTOCOLS: [&str; 5] = ["grpc", "http", "http2", "kafka", "tcp"];

/// Adds a violation for each tag that cannot be one, and for a protocol nobody knows.
pub(super) fn check(tags: &BTreeMap<String, String>, path: &FieldStep<'_>, violations: &mut Violations) {
    check_values(tags, path, violations);
    // An empty one has been told already.
    let Some(protocol) = tags.get(labels::TAG_PROTOCOL).filter(|protocol| !protocol.is_empty()) else {
        return;
    };
    let tag = format!("tag {:?} has an invalid value", labels::TAG_PROTOCOL);
    check_protocol(Some(protocol), &tag, path.key(labels::TAG_PROTOCOL).into(), violations);
}

/// Adds a violation for each tag that cannot be one, whatever it is called.
pub(super) fn check_values(
    tags: &BTreeMap<String, String>,
    path: &FieldStep<'_>,
    violations: &mut Violations,
) {
    if tags.contains_key("") {
        violations.add(path.into(), "tag name must be non-empty");
    }
    let mut add = |key: &str, reason: &str| violations.add(path.key(key).into(), reason);
    for (key, value) in tags {
        if !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c)) {
            add(
                key,
                "tag name must consist of alphanumeric characters, dots, dashes, slashes, colons and underscores",
            );
        }
        if value.is_empty() {
            add(key, "tag value must be non-empty");
        }
        if !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/@".contains(c)) {
            add(
                key,
                "tag value must consist of alphanumeric characters, dots, dashes, slashes, colons and underscores",
            );
        }
    }
}

/// Adds a violation for each tag that cannot select any.
pub(super) fn check_selector(
    tags: &BTreeMap<String, String>,
    path: &FieldStep<'_>,
    violations: &mut Violations,
) {
    // A star stands for any value.
    let exact = tags.iter().filter(|(_, value)| *value != "*");
    check_values(&exact.map(|(key, value)| (key.clone(), value.clone())).collect(), path, violations);
}

/// Whether this is something that may be spoken.
pub(super) fn is_protocol(name: &str) -> bool {
    PROTOCOLS.contains(&name)
}

/// Adds a violation that starts with `problem` when there is a protocol and we do not know it.
pub(super) fn check_protocol(
    protocol: Option<&str>,
    problem: &str,
    path: FieldPath,
    violations: &mut Violations,
) {
    let Some(unknown) = protocol.filter(|protocol| !PROTOCOLS.contains(protocol)) else { return };
    violations.add(path, format!("{problem} {unknown:?}. Allowed values: {}", PROTOCOLS.join(", ")));
}

/// Adds a violation unless the tags name a service.
pub(super) fn check_service(
    tags: &BTreeMap<String, String>,
    path: &FieldStep<'_>,
    violations: &mut Violations,
) {
    if !tags.contains_key(labels::TAG_SERVICE) {
        violations.add(path.into(), format!("mandatory tag {:?} is missing", labels::TAG_SERVICE));
    }
}
