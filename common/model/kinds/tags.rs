//! Checks of tags, the labels of the older model.

use std::collections::BTreeMap;

use crate::model::{FieldPath, Violations, labels};

/// Protocols a service may speak.
const PROTOCOLS: [&str; 5] = ["grpc", "http", "http2", "kafka", "tcp"];

/// Adds a violation for each tag that cannot be one.
pub(super) fn check(tags: &BTreeMap<String, String>, path: &FieldPath, violations: &mut Violations) {
    for (key, value) in tags {
        let bad_key =
            key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:".contains(c));
        violations.check(
            bad_key,
            path.key(key),
            "tag name must consist of alphanumeric characters, dots, dashes, slashes, colons and underscores",
        );
        let bad_value = !value.chars().all(|c| c.is_ascii_alphanumeric() || "-_.:/@".contains(c));
        violations.check(value.is_empty(), path.key(key), "tag value must be non-empty");
        violations.check(
            bad_value,
            path.key(key),
            "tag value must consist of alphanumeric characters, dots, dashes, slashes, colons and underscores",
        );
    }
    // An empty one has been told above.
    let protocol = tags.get(labels::TAG_PROTOCOL).filter(|protocol| !protocol.is_empty());
    let tag = format!("tag {:?} has an invalid value", labels::TAG_PROTOCOL);
    check_protocol(protocol.map(String::as_str), &tag, path.key(labels::TAG_PROTOCOL), violations);
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
pub(super) fn check_service(tags: &BTreeMap<String, String>, path: &FieldPath, violations: &mut Violations) {
    violations.check(
        !tags.contains_key(labels::TAG_SERVICE),
        path.clone(),
        format!("mandatory tag {:?} is missing", labels::TAG_SERVICE),
    );
}
