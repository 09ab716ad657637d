//! Roles of those who ask: an `AccessRole` lists what may be done, an `AccessRoleBinding` gives roles to users and
//! groups.

mod verb;

pub use verb::{RoleVerb, VerbLimit};

use serde::{Deserialize, Serialize};

use crate::model::{FieldPath, Kind, Spec, SpecError, Violations, decode};

/// Said by global when it has roles and bindings for who asks for them, and by a zone that knows what they are.
pub const KNOWN_BY: &str = "strait-roles";

/// The descriptor of roles. Only administrators see and write them. Bindings name them, so they keep their names.
pub static ROLE: Kind = Kind::json("AccessRole", "accessroles")
    .global()
    .flow(25)
    .known_by(KNOWN_BY)
    .keeps_name()
    .named("accessrole", "")
    .admin_only()
    .typed::<AccessRole>();

/// The descriptor of bindings.
pub static BINDING: Kind = Kind::json("AccessRoleBinding", "accessrolebindings")
    .global()
    .flow(25)
    .known_by(KNOWN_BY)
    .keeps_name()
    .named("accessrolebinding", "")
    .admin_only()
    .typed::<AccessRoleBinding>();

/// Rules, subjects or roles in one resource.
const MOST: usize = 1_000;

/// Stands for every kind.
pub const ANY: &str = "*";

/// What may be done.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessRole {
    /// Whatever one of these allows.
    pub rules: Vec<RoleRule>,
}

/// What may be done to what.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleRule {
    /// What.
    pub verbs: Vec<RoleVerb>,
    /// To these types, or `*`. What is about no type takes none, or `*`.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<String>,
    /// In meshes that are called so; in all when there is none. `*` stands for any text.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub meshes: Vec<String>,
    /// To resources that are called so; to all when there is none. `*` stands for any text.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// To what belongs to zones that are called so; to all when there is none. `*` stands for any text.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
}

impl RoleRule {
    /// Whether every type is meant.
    pub fn is_of_any_kind(&self) -> bool {
        self.kinds.is_empty() || self.kinds.iter().any(|kind| kind == ANY)
    }

    fn patterns(&self) -> [(VerbLimit, &'static str, &[String]); 3] {
        [
            (VerbLimit::Mesh, "meshes", &self.meshes),
            (VerbLimit::Name, "names", &self.names),
            (VerbLimit::Zone, "zones", &self.zones),
        ]
    }

    fn validate(&self, at: &FieldPath, violations: &mut Violations) {
        bounded(violations, &at.field("verbs"), self.verbs.len());
        let of_resources = self.verbs.iter().any(|verb| verb.names_kinds());
        violations.check(of_resources && self.kinds.is_empty(), at.field("kinds"), "cannot be empty");
        violations.check(self.kinds.len() > MOST, at.field("kinds"), format!("has more than {MOST} items"));
        for (_, name, patterns) in self.patterns() {
            let field = at.field(name);
            violations.check(patterns.len() > MOST, field.clone(), format!("has more than {MOST} items"));
            for (n, pattern) in patterns.iter().enumerate().take(MOST) {
                violations.check(pattern.is_empty(), field.index(n), "cannot be empty");
            }
        }
        // Such a rule would allow nothing, and its author would find out when somebody is refused.
        for (n, verb) in self.verbs.iter().enumerate().take(MOST) {
            let of_kinds = (VerbLimit::Kind, "kinds", !self.is_of_any_kind());
            let limits = self.patterns().map(|(limit, name, patterns)| (limit, name, !patterns.is_empty()));
            for (limit, name, is_set) in limits.into_iter().chain([of_kinds]) {
                let reason = format!("{} is not about {name}: it needs a rule without them", verb.as_str());
                violations.check(is_set && !verb.has_limit(limit), at.field("verbs").index(n), reason);
            }
        }
    }
}

/// Who has which roles.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AccessRoleBinding {
    /// Who.
    pub subjects: Vec<RoleSubject>,
    /// Names of roles. One that does not exist allows nothing.
    pub roles: Vec<String>,
}

/// A user, or all members of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleSubject {
    /// Which of the two.
    #[serde(rename = "type")]
    pub kind: RoleSubjectType,
    /// Its name.
    pub name: String,
}

/// What a subject is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RoleSubjectType {
    /// A user.
    User,
    /// A group.
    Group,
}

impl Spec for AccessRole {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let rules = FieldPath::new("spec").field("rules");
        bounded(&mut violations, &rules, self.rules.len());
        for (n, rule) in self.rules.iter().enumerate().take(MOST) {
            rule.validate(&rules.index(n), &mut violations);
        }
        violations
    }
}

impl Spec for AccessRoleBinding {
    fn decode(spec: &[u8]) -> Result<Self, SpecError> {
        decode::spec(spec)
    }

    fn encode(&self) -> Vec<u8> {
        decode::encode(self)
    }

    fn validate(&self) -> Violations {
        let mut violations = Violations::none();
        let spec = FieldPath::new("spec");
        bounded(&mut violations, &spec.field("subjects"), self.subjects.len());
        bounded(&mut violations, &spec.field("roles"), self.roles.len());
        for (n, subject) in self.subjects.iter().enumerate().take(MOST) {
            let field = spec.field("subjects").index(n).field("name");
            violations.check(subject.name.is_empty(), field, "cannot be empty");
        }
        for (n, role) in self.roles.iter().enumerate().take(MOST) {
            violations.check(role.is_empty(), spec.field("roles").index(n), "cannot be empty");
        }
        violations
    }
}

fn bounded(violations: &mut Violations, field: &FieldPath, length: usize) {
    violations.check(length == 0, field.clone(), "cannot be empty");
    violations.check(length > MOST, field.clone(), format!("has more than {MOST} items"));
}
