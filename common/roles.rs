//! Who may write what, as `AccessRole` and `AccessRoleBinding` say.
//!
//! Without any binding everybody who is known may write what the settings do not keep for administrators. With one,
//! only administrators and who is given a role may, each what his roles say. Roles narrow; what the settings keep for
//! administrators stays theirs. Each control plane has roles of its own: no peer knows the kinds.

use std::collections::BTreeSet;

use crate::{
    access::User,
    envoy_config::is_like,
    model::{
        ResourceKey, Spec,
        kinds::access_role::{
            ANY, AccessRole, AccessRoleBinding, BINDING, ROLE, RoleRule, RoleSubject, RoleSubjectType,
            WriteVerb,
        },
    },
    store::index::Index,
};

fn allows(rule: &RoleRule, verb: WriteVerb, key: &ResourceKey) -> bool {
    let named = |patterns: &[String], text: &str| {
        patterns.is_empty() || patterns.iter().any(|pattern| is_like(pattern, text))
    };
    rule.verbs.contains(&verb)
        && rule.kinds.iter().any(|kind| kind == ANY || kind == key.kind.name)
        && (!key.kind.is_mesh_scoped() || named(&rule.meshes, &key.mesh))
        && named(&rule.names, &key.name)
}

fn means(subject: &RoleSubject, user: &User) -> bool {
    match subject.kind {
        RoleSubjectType::User => subject.name == user.name,
        RoleSubjectType::Group => user.groups.contains(&subject.name),
    }
}

/// What roles say about somebody who wants to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleVerdict {
    /// There are no bindings, so nothing is narrowed.
    Unbound,
    /// This role allows it.
    Allowed(String),
    /// None of these, which he has, allows it.
    Denied(BTreeSet<String>),
}

/// Whether roles let `user` do this. Looks at the bindings and at the roles of the user, and at nothing else.
pub fn judge(index: &Index, user: &User, verb: WriteVerb, key: &ResourceKey) -> RoleVerdict {
    if index.count(&BINDING) == 0 {
        return RoleVerdict::Unbound;
    }
    let mut roles = BTreeSet::new();
    for binding in index.list(&BINDING) {
        // One that cannot be read gives nothing to anybody.
        let Ok(binding) = AccessRoleBinding::decode(&binding.spec) else { continue };
        if binding.subjects.iter().any(|subject| means(subject, user)) {
            roles.extend(binding.roles);
        }
    }
    let allowing = roles.iter().find(|name| {
        let role = index.find(&ROLE, "", name).and_then(|role| AccessRole::decode(&role.spec).ok());
        role.is_some_and(|role| role.rules.iter().any(|rule| allows(rule, verb, key)))
    });
    match allowing {
        Some(role) => RoleVerdict::Allowed(role.clone()),
        None => RoleVerdict::Denied(roles),
    }
}

#[cfg(test)]
mod tests;
