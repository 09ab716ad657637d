//! Who was given which roles: read out of bindings and roles when these are written, not when somebody asks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use imbl::{OrdMap, OrdSet};

use super::{AskedFor, RoleVerdict, allows};
use crate::{
    access::User,
    model::{
        Resource, Spec,
        kinds::access_role::{
            AccessRole, AccessRoleBinding, BINDING, ROLE, RoleRule, RoleSubject, RoleSubjectType, RoleVerb,
        },
    },
    store::index::{Index, OfKind},
};

/// Names of bindings, by whom they name.
type BindingsByName = OrdMap<Arc<str>, OrdSet<Arc<str>>>;

/// What the roles and bindings of one index say. To have that of another index costs what was written of them in between.
#[derive(Clone, Debug, Default)]
pub(super) struct GivenRoles {
    bindings: OfKind,
    roles: OfKind,
    of_users: BindingsByName,
    of_groups: BindingsByName,
    /// What could be read of the bindings, by name. One that cannot be read gives nothing to anybody.
    bound: OrdMap<Arc<str>, Arc<AccessRoleBinding>>,
    /// The rules of each role, by its name; none of one that cannot be read.
    rules: OrdMap<Arc<str>, Arc<[RoleRule]>>,
}

impl GivenRoles {
    /// What they say on `index`: always on the very same, as it may be the one in which somebody lost his role.
    pub(super) fn moved_to(self: &Arc<Self>, index: &Index) -> Arc<Self> {
        let (bindings, roles) = (index.of_kind(&BINDING), index.of_kind(&ROLE));
        if bindings.is_same(&self.bindings) && roles.is_same(&self.roles) {
            return Arc::clone(self);
        }
        let mut moved = Self::clone(self);
        for (was, is) in self.bindings.changes_to(&bindings) {
            was.into_iter().for_each(|was| moved.unbind(&was.key.name));
            is.into_iter().for_each(|is| moved.bind(is));
        }
        for (was, is) in self.roles.changes_to(&roles) {
            was.into_iter().for_each(|was| drop(moved.rules.remove(&was.key.name)));
            let read = is.and_then(|is| Some((&is.key.name, AccessRole::decode(&is.spec).ok()?)));
            if let Some((name, role)) = read {
                moved.rules.insert(Arc::clone(name), role.rules.into());
            }
        }
        (moved.bindings, moved.roles) = (bindings, roles);
        Arc::new(moved)
    }

    fn bind(&mut self, stored: &Resource) {
        let Ok(binding) = AccessRoleBinding::decode(&stored.spec) else { return };
        let name = &stored.key.name;
        for RoleSubject { kind, name: subject } in &binding.subjects {
            self.naming(*kind).entry(subject.as_str().into()).or_default().insert(Arc::clone(name));
        }
        self.bound.insert(Arc::clone(name), Arc::new(binding));
    }

    fn unbind(&mut self, name: &Arc<str>) {
        let Some(binding) = self.bound.remove(name) else { return };
        for RoleSubject { kind, name: subject } in &binding.subjects {
            let naming = self.naming(*kind);
            let Some(bindings) = naming.get_mut(subject.as_str()) else { continue };
            bindings.remove(name);
            if bindings.is_empty() {
                naming.remove(subject.as_str());
            }
        }
    }

    fn naming(&mut self, kind: RoleSubjectType) -> &mut BindingsByName {
        match kind {
            RoleSubjectType::User => &mut self.of_users,
            RoleSubjectType::Group => &mut self.of_groups,
        }
    }

    /// The roles of `user`. Looks at what names him and his groups, and at nothing else.
    pub(super) fn of(&self, user: &User) -> UserRoles {
        let of_groups = user.groups.iter().filter_map(|group| self.of_groups.get(group.as_str()));
        let bindings = self.of_users.get(user.name.as_str()).into_iter().chain(of_groups).flatten();
        let bound = bindings.filter_map(|binding| self.bound.get(binding));
        let mut roles = BTreeMap::new();
        for role in bound.flat_map(|binding| &binding.roles) {
            if !roles.contains_key(role.as_str()) {
                let rules = self.rules.get(role.as_str()).cloned();
                roles.insert(role.clone(), rules.unwrap_or_default());
            }
        }
        UserRoles { is_unbound: self.bindings.is_empty(), roles }
    }
}

/// The roles that somebody has.
#[derive(Debug)]
pub(super) struct UserRoles {
    /// Whether nobody was given any.
    is_unbound: bool,
    /// The rules of each; none of one that does not exist.
    roles: BTreeMap<String, Arc<[RoleRule]>>,
}

impl UserRoles {
    /// Whether they let him do this.
    pub(super) fn judge(&self, verb: RoleVerb, asked: &AskedFor<'_>) -> RoleVerdict {
        if self.is_unbound {
            return RoleVerdict::Unbound;
        }
        let allowing =
            self.roles.iter().find(|(_, rules)| rules.iter().any(|rule| allows(rule, verb, asked)));
        match allowing {
            Some((role, _)) => RoleVerdict::Allowed(role.clone()),
            None => RoleVerdict::Denied(self.roles.keys().cloned().collect()),
        }
    }

    /// Whatever they say.
    pub(super) fn rules(&self) -> impl Iterator<Item = &RoleRule> {
        self.roles.values().flat_map(|rules| rules.iter())
    }
}

/// What the roles and bindings said on the index somebody last asked about.
#[derive(Debug, Default)]
pub(super) struct SharedRoles(Mutex<Arc<GivenRoles>>);

impl SharedRoles {
    /// What they say on `index`.
    pub(super) fn at(&self, index: &Index) -> Arc<GivenRoles> {
        // Replaced whole, so a panic while holding the lock leaves the last ones intact.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.moved_to(index);
        Arc::clone(&last)
    }
}

#[cfg(test)]
mod tests;
