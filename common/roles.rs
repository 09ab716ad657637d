//! Who may do what: the settings, and what `AccessRole` and `AccessRoleBinding` say.
//!
//! Each verb has users and groups in the settings who may without a role, and roles add to them. Writing is the
//! exception: what the settings do not keep for administrators everybody who is known writes until there is a binding,
//! and from then on only administrators and who is given a role. Whatever cannot be read allows nothing. A zone has the roles
//! of its global, if that is of this make, and its own.

mod asked;
mod given;
mod readable;
mod user_rights;

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

pub use self::{
    asked::{AskedFor, Extent},
    readable::Readable,
    user_rights::UserRights,
};

use crate::{
    access::{Access, AccessRule, Denied, User},
    envoy_config::is_like,
    model::kinds::access_role::{RoleRule, RoleVerb},
    store::index::{Index, IndexReader},
};
use given::SharedRoles;

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

/// Decides, on one control plane.
#[derive(Clone)]
pub struct Rights {
    settings: Access,
    anonymous_may_write: bool,
    zone: Option<String>,
    index: IndexReader,
    /// Read when roles or bindings are written, and not for each that asks.
    roles: Arc<SharedRoles>,
}

impl Rights {
    /// By these settings and the roles in the index of global or, with its name, of a zone.
    pub fn new(settings: Access, zone: Option<&str>, index: IndexReader) -> Self {
        let (zone, roles) = (zone.map(str::to_owned), Arc::default());
        Self { settings, anonymous_may_write: false, zone, index, roles }
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
        self.of(&self.index.current(), user).check(verb, asked)
    }

    /// What `user` may do by the roles of this index, for who asks about many resources.
    pub fn of<'a>(&'a self, index: &Index, user: &'a User) -> UserRights<'a> {
        UserRights { rights: self, user, given: self.roles.at(index), roles: OnceLock::new() }
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
        let index = self.index.current();
        Readable {
            everything: self.is_set_for(user, RoleVerb::Read),
            of_administrators: self.is_set_for(user, RoleVerb::Admin),
            given: self.roles.at(&index),
            roles: OnceLock::new(),
            user: user.clone(),
            zone: self.zone.clone(),
            index,
        }
    }
}

#[cfg(test)]
mod tests;
