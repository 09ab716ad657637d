//! What somebody may read, asked about one resource after the other.

use std::sync::{Arc, OnceLock};

use super::{
    AskedFor, allows,
    asked::zone_of,
    given::{GivenRoles, UserRoles},
};
use crate::{
    access::User,
    model::{
        Kind, Resource, ResourceKey,
        kinds::access_role::{RoleRule, RoleVerb},
    },
    store::index::Index,
};

/// What somebody may read. Roles are looked at once, and only if the settings do not decide.
pub struct Readable {
    pub(super) everything: bool,
    pub(super) of_administrators: bool,
    pub(super) given: Arc<GivenRoles>,
    pub(super) roles: OnceLock<UserRoles>,
    pub(super) user: User,
    pub(super) zone: Option<String>,
    pub(super) index: Arc<Index>,
}

impl Readable {
    /// Whether `resource` is shown.
    pub fn shows(&self, resource: &Resource) -> bool {
        // Most may read everything, and who asks for a list asks this of each.
        self.shows_all(resource.kind()) || self.shows_of(&resource.key, zone_of(resource))
    }

    /// The same for a resource that may not be there any more.
    pub fn shows_key(&self, key: &ResourceKey) -> bool {
        match self.index.get(key) {
            Some(resource) => self.shows(resource),
            None => self.shows_of(key, self.zone.as_deref()),
        }
    }

    /// Whether nothing of `kind` is shown, whatever it is called and wherever it is.
    pub fn shows_none(&self, kind: &Kind) -> bool {
        let verb = RoleVerb::Read.on(kind);
        !self.shows_all(kind) && !self.rules().any(|rule| rule.verbs.contains(&verb))
    }

    /// Whether the settings alone show all of `kind`.
    fn shows_all(&self, kind: &Kind) -> bool {
        if kind.admin_only { self.of_administrators } else { self.everything }
    }

    fn shows_of(&self, key: &ResourceKey, zone: Option<&str>) -> bool {
        if self.shows_all(key.kind) {
            return true;
        }
        let verb = RoleVerb::Read.on(key.kind);
        let asked = AskedFor::one(key, zone);
        self.rules().any(|rule| allows(rule, verb, &asked))
    }

    fn rules(&self) -> impl Iterator<Item = &RoleRule> {
        self.roles.get_or_init(|| self.given.of(&self.user)).rules()
    }
}
