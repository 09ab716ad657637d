//! What one user may do, asked about one resource after the other.

use std::sync::{Arc, OnceLock};

use super::{
    AskedFor, Extent, Rights, RoleVerdict,
    asked::zone_of,
    given::{GivenRoles, UserRoles},
};
use crate::{
    access::{Denied, User},
    model::{
        Resource, ResourceKey,
        kinds::{access_role::RoleVerb, zone},
    },
    store::index::Index,
};

/// What one user may do by the roles of one index. They are looked up once, and only if the settings do not decide.
pub struct UserRights<'a> {
    pub(super) rights: &'a Rights,
    pub(super) user: &'a User,
    pub(super) given: Arc<GivenRoles>,
    pub(super) roles: OnceLock<UserRoles>,
}

impl UserRights<'_> {
    /// Goes by the roles of this index from now on.
    pub fn move_to(&mut self, index: &Index) {
        let given = self.given.moved_to(index);
        if !Arc::ptr_eq(&given, &self.given) {
            (self.given, self.roles) = (given, OnceLock::new());
        }
    }

    /// Whose rights they are.
    pub fn user(&self) -> &User {
        self.user
    }

    /// Refuses him unless settings or roles let him do that. Of resources that are kept for administrators, what takes
    /// the place of `verb` is asked for; a verb that stands for others needs all of them.
    ///
    /// # Errors
    /// [`Denied`], which names user and groups, and what is missing.
    pub fn check(&self, verb: RoleVerb, asked: &AskedFor<'_>) -> Result<(), Denied> {
        let needed = match asked.kind {
            Extent::One(kind) => verb.on(kind),
            Extent::Any | Extent::All => verb,
        };
        needed.parts().iter().try_for_each(|part| self.check_part(*part, asked))
    }

    fn check_part(&self, verb: RoleVerb, asked: &AskedFor<'_>) -> Result<(), Denied> {
        let (rights, user) = (self.rights, self.user);
        if rights.is_set_for(user, verb) {
            return Ok(());
        }
        match self.roles.get_or_init(|| self.given.of(user)).judge(verb, asked) {
            RoleVerdict::Allowed(_) => Ok(()),
            RoleVerdict::Unbound if rights.is_unbound_writing(user, verb) => Ok(()),
            RoleVerdict::Unbound => Err(Denied::new(user, &asked.deed(verb))),
            RoleVerdict::Denied(roles) => {
                let has = match roles.is_empty() {
                    true => "has no role".to_owned(),
                    false => format!("has the roles {}", Vec::from_iter(roles).join(", ")),
                };
                let missing = format!(
                    "{}: an AccessRole must allow it ({}), and this user {has}",
                    asked.deed(verb),
                    verb.as_str()
                );
                Err(Denied::new(user, &missing))
            }
        }
    }

    /// Refuses him unless he may do that to the resource `key`, of the zone it is in on `index` or would be in.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_resource(&self, index: &Index, verb: RoleVerb, key: &ResourceKey) -> Result<(), Denied> {
        let zone = match index.get(key) {
            Some(resource) => zone_of(resource),
            None if key.kind == &zone::KIND => Some(&*key.name),
            None => self.rights.zone(),
        };
        self.check(verb, &AskedFor::one(key, zone))
    }

    /// The same for one version of a resource, as it was once or will be.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_version(&self, verb: RoleVerb, resource: &Resource) -> Result<(), Denied> {
        self.check(verb, &AskedFor::one(&resource.key, zone_of(resource)))
    }

    /// Refuses him where `resource` is called otherwise than before by its label, unless he may write what has that name:
    /// host names, references and other control planes go by it.
    ///
    /// # Errors
    /// [`Denied`].
    pub fn check_called(&self, index: &Index, resource: &Resource) -> Result<(), Denied> {
        let called = resource.display_name();
        let before = index.get(&resource.key).map_or(resource.name(), |known| known.display_name());
        if called == before {
            return Ok(());
        }
        let key = ResourceKey::new(resource.kind(), resource.mesh(), called);
        self.check(RoleVerb::Write, &AskedFor::one(&key, zone_of(resource)))
    }
}
