//! Which members a reference of a kind may have.

use std::collections::BTreeMap;

use super::{TargetKind, TargetRef};
use crate::model::{FieldPath, Violations};

/// What a policy accepts at one place.
#[derive(Clone, Copy, Debug)]
pub struct Allowed<'a> {
    /// The kinds; any other "is not supported".
    pub kinds: &'a [TargetKind],
    /// Whether tags may pick listeners of a gateway.
    pub listener_tags: bool,
    /// Whether the policy acts on inbounds, which `sectionName` of a dataplane picks.
    pub inbound: bool,
    /// Said instead of "value 'X' is not supported".
    pub unsupported: Option<&'a str>,
}

impl<'a> Allowed<'a> {
    /// These kinds, nothing special.
    pub const fn kinds(kinds: &'a [TargetKind]) -> Self {
        Self { kinds, listener_tags: false, inbound: false, unsupported: None }
    }

    /// As a top-level reference: gateway listeners by tags, and inbounds when the policy has any rule
    /// for them.
    pub const fn top(kinds: &'a [TargetKind], inbound: bool) -> Self {
        Self { kinds, listener_tags: true, inbound, unsupported: None }
    }

    /// Everything wrong with `target`, which stands at `path`.
    pub fn check(&self, path: &FieldPath, target: &TargetRef) -> Violations {
        if !self.kinds.contains(&target.kind) {
            let usual = || format!("value '{}' is not supported", target.kind.name());
            let reason = self.unsupported.map_or_else(usual, str::to_owned);
            return Violations::one(path.field("kind"), reason);
        }
        if target.proxy_types.as_ref().is_some_and(Vec::is_empty) {
            return Violations::one(path.field("proxyTypes"), "in body should have at least 1 items");
        }
        let mut found = ExaminedReference { path, target, violations: Violations::none() };
        match target.kind {
            TargetKind::Mesh => {
                if !target.name().is_empty() {
                    found.add("name", "using name with kind Mesh is not yet supported");
                }
                found.forbid(&["mesh", "tags", "labels", "namespace", "sectionName"]);
            }
            TargetKind::Dataplane => self.dataplane(&mut found),
            TargetKind::MeshSubset => {
                found.forbid(&["name", "mesh"]);
                found.tags(is_tag_value, "dots, dashes and underscores");
                found.forbid(&["labels", "namespace", "sectionName"]);
            }
            TargetKind::MeshService | TargetKind::MeshHttpRoute | TargetKind::MeshMultiZoneService => {
                found.named_resource("either labels or name and namespace must be specified");
            }
            TargetKind::MeshExternalService => {
                found.named_resource("either labels or name must be specified");
                found.forbid(&["sectionName"]);
            }
            TargetKind::MeshServiceSubset | TargetKind::MeshGateway => self.tagged(&mut found),
        }
        found.violations
    }

    fn dataplane(&self, found: &mut ExaminedReference<'_>) {
        found.forbid(&["tags", "mesh", "proxyTypes"]);
        found.labels_or_name("either labels or name and namespace must be specified");
        if !self.inbound && !found.target.section().is_empty() {
            found.add("sectionName", "can only be used with inbound policies");
        }
    }

    fn tagged(&self, found: &mut ExaminedReference<'_>) {
        found.require_name();
        found.name_characters();
        found.forbid(&["mesh", "proxyTypes"]);
        found.tags(
            |v| v == "*" || v.chars().all(is_tag_char),
            "dots, dashes, slashes and underscores or be \"*\"",
        );
        if found.target.kind == TargetKind::MeshGateway && !self.listener_tags {
            found.forbid(&["tags"]);
        }
        found.forbid(&["labels", "namespace", "sectionName"]);
    }
}

/// One reference under examination.
struct ExaminedReference<'a> {
    path: &'a FieldPath,
    target: &'a TargetRef,
    violations: Violations,
}

impl ExaminedReference<'_> {
    fn add(&mut self, member: &str, reason: impl Into<String>) {
        self.violations.add(self.path.field(member), reason);
    }

    fn is_set(&self, member: &str) -> bool {
        let text = |value: &Option<String>| value.as_deref().is_some_and(|v| !v.is_empty());
        let map = |value: &Option<BTreeMap<_, _>>| value.as_ref().is_some_and(|v| !v.is_empty());
        match member {
            "name" => text(&self.target.name),
            "mesh" => text(&self.target.mesh),
            "namespace" => text(&self.target.namespace),
            "sectionName" => text(&self.target.section_name),
            "tags" => map(&self.target.tags),
            "labels" => map(&self.target.labels),
            "proxyTypes" => self.target.proxy_types.as_ref().is_some_and(|t| !t.is_empty()),
            _ => false,
        }
    }

    fn forbid(&mut self, members: &[&str]) {
        for member in members {
            if self.is_set(member) {
                self.add(member, format!("must not be set with kind {}", self.target.kind.name()));
            }
        }
    }

    fn require_name(&mut self) {
        if !self.is_set("name") {
            self.add("name", format!("must be set with kind {}", self.target.kind.name()));
        }
    }

    fn name_characters(&mut self) {
        if !is_name(self.target.name()) {
            self.add(
                "name",
                "invalid characters: must consist of lower case alphanumeric characters, '-', '.' and '_'.",
            );
        }
    }

    fn labels_or_name(&mut self, reason: &str) {
        if self.is_set("labels") && (self.is_set("name") || self.is_set("namespace")) {
            self.add("labels", reason);
        }
    }

    fn named_resource(&mut self, either: &str) {
        self.name_characters();
        self.forbid(&["mesh", "tags", "proxyTypes"]);
        if !self.is_set("labels") {
            self.require_name();
        }
        self.labels_or_name(either);
    }

    fn tags(&mut self, valid: impl Fn(&str) -> bool, of: &str) {
        let path = self.path.field("tags");
        for (key, value) in self.target.tags() {
            let at = path.key(key);
            self.violations.check(key.is_empty(), path.clone(), "tag name must be non-empty");
            self.violations.check(
                !key.chars().all(is_tag_char),
                at.clone(),
                "tag name must consist of alphanumeric characters, dots, dashes, slashes and underscores",
            );
            self.violations.check(value.is_empty(), at.clone(), "tag value must be non-empty");
            let reason = format!("tag value must consist of alphanumeric characters, {of}");
            self.violations.check(!valid(value), at, reason);
        }
    }
}

fn is_tag_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '/')
}

fn is_tag_value(value: &str) -> bool {
    value.chars().all(|c| is_tag_char(c) && c != '/')
}

/// Whether `name` has only characters a resource name may have.
pub fn is_name(name: &str) -> bool {
    name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '-' | '_'))
}
