//! Who may do what: the settings, and what `AccessRole` and `AccessRoleBinding` say.
//!
//! Each verb has users and groups in the settings who may without a role, and roles add to them. Writing is the
//! exception: what the settings do not keep for administrators everybody who is known writes until there is a binding,
//! and from then on only administrators and who is given a role. Whatever cannot be read allows nothing. A zone has the roles
//! of its global, if that is of this make, and its own.

mod asked;
mod readable;

use std::collections::BTreeSet;

pub use self::{
    asked::{AskedFor, Extent},
    readable::Readable,
};

use crate::{
    access::{Access, AccessRule, Denied, User},
    envoy_config::is_like,
    model::{
        Spec,
        kinds::access_role::{
            AccessRole, AccessRoleBinding, BINDING, ROLE, RoleRule, RoleSubject, RoleSubjectType, RoleVerb,
        },
    },
    store::index::{Index, IndexReader},
};

fn allows(rule: &RoleRule, verb: RoleVerb, asked: &AskedFor<'_>) -> bool {
    let named = |patterns: &[String], extent: Extent<&str>| match extent {
        _ if patterns.is_empty() => true,
        Extent::One(text) => patterns.iter().any(|pattern| is_like(pattern, text)),
        Extent::Any => true,
        Extent::All => false,
    };
    let lists = |name: &str| rule.kinds.iter().any(|kind| kind == name);
    let in_meshes = match asked.kind {
        // Whoever limits a rule to meshes does not mean what is in none, unless he names it.
        Extent::One(kind) if !kind.is_mesh_scoped() => rule.meshes.is_empty() || lists(kind.name),
        _ => named(&rule.meshes, asked.mesh),
    };
    let of_kinds = match asked.kind {
        _ if rule.is_of_any_kind() => true,
        Extent::One(kind) => lists(kind.name),
        Extent::Any => true,
        Extent::All => false,
    };
    rule.verbs.iter().any(|of_rule| of_rule.parts().contains(&verb))
        && of_kinds
        && in_meshes
        && named(&rule.names, asked.name)
        && named(&rule.zones, asked.zone)
}

fn means(subject: &RoleSubject, user: &User) -> bool {
    match subject.kind {
        RoleSubjectType::User => subject.name == user.name,
        RoleSubjectType::Group => user.groups.contains(&subject.name),
    }
}

/// What roles say about somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleVerdict {
    /// There are no bindings.
    Unbound,
    /// This role allows it.
    Allowed(String),
    /// None of these, which he has, allows it.
    Denied(BTreeSet<String>),
}

/// The names of the roles that `user` has.
fn roles_of(index: &Index, user: &User) -> BTreeSet<String> {
    let mut roles = BTreeSet::new();
    for binding in index.list(&BINDING) {
        // One that cannot be read gives nothing to anybody.
        let Ok(binding) = AccessRoleBinding::decode(&binding.spec) else { continue };
        if binding.subjects.iter().any(|subject| means(subject, user)) {
            roles.extend(binding.roles);
        }
    }
    roles
}

/// The rules of a role; none of one that does not exist or cannot be read.
fn rules_of(index: &Index, role: &str) -> Vec<RoleRule> {
    let role = index.find(&ROLE, "", role).and_then(|role| AccessRole::decode(&role.spec).ok());
    role.map(|role| role.rules).unwrap_or_default()
}

/// Whether roles let `user` do this. Looks at the bindings and at the roles of the user, and at nothing else.
pub fn judge(index: &Index, user: &User, verb: RoleVerb, asked: &AskedFor<'_>) -> RoleVerdict {
    if index.count(&BINDING) == 0 {
        return RoleVerdict::Unbound;
    }
    let roles = roles_of(index, user);
    let allowing =
        roles.iter().find(|role| rules_of(index, role).iter().any(|rule| allows(rule, verb, asked)));
    match allowing {
        Some(role) => RoleVerdict::Allowed(role.clone()),
        None => RoleVerdict::Denied(roles),
    }
}

/// Decides, on one control plane.
#[derive(Clone)]
pub struct Rights {
    settings: Access,
    anonymous_may_write: bool,
    zone: Option<String>,
    index: IndexReader,
}

impl Rights {
    /// By these settings and the roles in the index of global or, with its name, of a zone.
    pub fn new(settings: Access, zone: Option<&str>, index: IndexReader) -> Self {
        Self { settings, anonymous_may_write: false, zone: zone.map(str::to_owned), index }
    }

    /// Callers who show nothing may write what needs no role.
    pub fn with_anonymous_writers(self, anonymous_may_write: bool) -> Self {
        Self { anonymous_may_write, ..self }
    }

    /// The name of the zone whose control plane this is.
    pub fn zone(&self) -> Option<&str> {
        self.zone.as_deref()
    }

    /// Whether `user` is known, or everyone is trusted.
    pub fn trusts(&self, user: &User) -> bool {
        self.anonymous_may_write || !user.is_anonymous()
    }

    /// Refuses `user` unless settings or roles let him do that. Of resources that are kept for administrators, what
    /// takes the place of `verb` is asked for; a verb that stands for others needs all of them.
    ///
    /// # Errors
    /// [`Denied`], which names user and groups, and what is missing.
    pub fn check(&self, user: &User, verb: RoleVerb, asked: &AskedFor<'_>) -> Result<(), Denied> {
        self.check_on(&self.index.current(), user, verb, asked)
    }

    /// The same by the roles of this index.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_on(
        &self,
        index: &Index,
        user: &User,
        verb: RoleVerb,
        asked: &AskedFor<'_>,
    ) -> Result<(), Denied> {
        let needed = match asked.kind {
            Extent::One(kind) => verb.on(kind),
            Extent::Any | Extent::All => verb,
        };
        needed.parts().iter().try_for_each(|part| {
            if self.is_set_for(user, *part) {
                return Ok(());
            }
            match judge(index, user, *part, asked) {
                RoleVerdict::Allowed(_) => Ok(()),
                RoleVerdict::Unbound if self.is_unbound_writing(user, *part) => Ok(()),
                RoleVerdict::Unbound => Err(Denied::new(user, &asked.deed(*part))),
                RoleVerdict::Denied(roles) => {
                    let has = match roles.is_empty() {
                        true => "has no role".to_owned(),
                        false => format!("has the roles {}", Vec::from_iter(roles).join(", ")),
                    };
                    let missing = format!(
                        "{}: an AccessRole must allow it ({}), and this user {has}",
                        asked.deed(*part),
                        part.as_str()
                    );
                    Err(Denied::new(user, &missing))
                }
            }
        })
    }

    /// Whether the settings alone let `user` do that, to whatever.
    fn is_set_for(&self, user: &User, verb: RoleVerb) -> bool {
        let settings = &self.settings;
        let admins = AccessRule::admins();
        let rule = match verb {
            RoleVerb::Read if settings.read_resources.names(user) => return true,
            // Who operates is not who may see secrets: Kuma's setting says only the latter.
            RoleVerb::Operate => &admins,
            RoleVerb::GenerateDataplaneToken => &settings.generate_dp_token,
            RoleVerb::GenerateZoneToken => &settings.generate_zone_token,
            RoleVerb::GenerateUserToken => &settings.generate_user_token,
            RoleVerb::ViewConfigDump => &settings.view_config_dump,
            RoleVerb::ViewStats => &settings.view_stats,
            RoleVerb::ViewClusters => &settings.view_clusters,
            RoleVerb::Settings => &settings.control_plane_metadata,
            RoleVerb::Read
            | RoleVerb::Write
            | RoleVerb::Delete
            | RoleVerb::ViewSecrets
            | RoleVerb::Audit
            | RoleVerb::Backup
            | RoleVerb::Admin => &settings.admin_resources,
            RoleVerb::Tokens | RoleVerb::ConfigDump => return false,
        };
        rule.names(user)
    }

    /// Whom a provider has accounts for is nothing that was said here, so its users need a role from the start.
    fn is_unbound_writing(&self, user: &User, verb: RoleVerb) -> bool {
        let is_trusted = self.anonymous_may_write || user.is_ours();
        matches!(verb, RoleVerb::Write | RoleVerb::Delete) && is_trusted
    }

    /// What `user` may read, for what shows many resources.
    pub fn readable(&self, user: &User) -> Readable {
        Readable {
            everything: self.is_set_for(user, RoleVerb::Read),
            of_administrators: self.is_set_for(user, RoleVerb::Admin),
            rules: std::sync::OnceLock::new(),
            user: user.clone(),
            zone: self.zone.clone(),
            index: self.index.current(),
        }
    }
}

#[cfg(test)]
mod tests;
