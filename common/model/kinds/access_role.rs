//! Roles of those who write: an `AccessRole` lists what may be done, an `AccessRoleBinding` gives roles to users and
//! groups.

use serde::{Deserialize, Serialize};

use crate::model::{FieldPath, Kind, Spec, SpecError, Violations, decode};

/// The descriptor of roles. Only administrators see and write them.
pub static ROLE: Kind = Kind::json("AccessRole", "accessroles")
    .global()
    .flow(24)
    .named("accessrole", "")
    .admin_only()
    .typed::<AccessRole>();

/// The descriptor of bindings.
pub static BINDING: Kind = Kind::json("AccessRoleBinding", "accessrolebindings")
    .global()
    .flow(24)
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

/// What may be done to which resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RoleRule {
    /// What.
    pub verbs: Vec<WriteVerb>,
    /// To these types, or `*`.
    pub kinds: Vec<String>,
    /// In meshes that are called so; in all when there is none. `*` stands for any text.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub meshes: Vec<String>,
    /// To resources that are called so; to all when there is none. `*` stands for any text.
    #[serde(default, deserialize_with = "decode::list", skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// What can be done to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WriteVerb {
    /// Make or change it.
    Put,
    /// Delete it.
    Delete,
}

impl WriteVerb {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::Delete => "delete",
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
            let at = rules.clone().index(n);
            bounded(&mut violations, &at.clone().field("verbs"), rule.verbs.len());
            bounded(&mut violations, &at.clone().field("kinds"), rule.kinds.len());
            violations.check(rule.meshes.len() > MOST, at.clone().field("meshes"), "has too many items");
            violations.check(rule.names.len() > MOST, at.field("names"), "has too many items");
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
        bounded(&mut violations, &spec.clone().field("subjects"), self.subjects.len());
        bounded(&mut violations, &spec.clone().field("roles"), self.roles.len());
        for (n, subject) in self.subjects.iter().enumerate().take(MOST) {
            let field = spec.clone().field("subjects").index(n).field("name");
            violations.check(subject.name.is_empty(), field, "cannot be empty");
        }
        violations
    }
}

fn bounded(violations: &mut Violations, field: &FieldPath, length: usize) {
    violations.check(length == 0, field.clone(), "cannot be empty");
    violations.check(length > MOST, field.clone(), format!("has more than {MOST} items"));
}
