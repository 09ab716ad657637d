//! Permissions for groups of clients, told apart by the tags in their certificates.

use std::collections::HashMap;

use common::{
    model::labels,
    policy::{
        mesh_traffic_permission::Action,
        rules::{Subset, Tag},
    },
    proto::envoy::{
        config::rbac::v3::{
            Permission, Policy, Principal, Rbac, permission, principal,
            principal::{Authenticated, Identifier},
            rbac,
        },
        r#type::matcher::v3::StringMatcher,
    },
};

use crate::generator::envoy::tls;

const POLICY: &str = "MeshTrafficPermission";

/// Allows nobody.
pub(super) fn nobody() -> Rbac {
    list(rbac::Action::Allow, Vec::new())
}

/// Allows the groups whose action says so; the second lists those whose calls would be denied if the
/// shadow were real.
pub(super) fn rbac(mesh: &str, groups: &[(&Subset, Action)]) -> (Rbac, Option<Rbac>) {
    let of = |wanted: &[Action]| -> Vec<Principal> {
        let matching = groups.iter().filter(|(_, action)| wanted.contains(action));
        matching.map(|(subset, _)| group(mesh, subset)).collect()
    };
    let allowed = list(rbac::Action::Allow, of(&[Action::Allow, Action::AllowWithShadowDeny]));
    let shadow = of(&[Action::AllowWithShadowDeny]);
    let shadow = (!shadow.is_empty()).then(|| list(rbac::Action::Deny, shadow));
    (allowed, shadow)
}

fn list(action: rbac::Action, principals: Vec<Principal>) -> Rbac {
    let mut policies = HashMap::new();
    if !principals.is_empty() {
        let any = Permission { rule: Some(permission::Rule::Any(true)) };
        let policy = Policy { permissions: vec![any], principals, ..Policy::default() };
        policies.insert(POLICY.to_owned(), policy);
    }
    Rbac { action: action.into(), policies, ..Rbac::default() }
}

fn principal(identifier: Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

/// Clients that meet every condition of `subset`.
fn group(mesh: &str, subset: &Subset) -> Principal {
    let mut conditions: Vec<Principal> = subset.0.iter().map(|tag| condition(mesh, tag)).collect();
    match conditions.len() {
        0 => principal(Identifier::Any(true)),
        1 => conditions.remove(0),
        _ => principal(Identifier::AndIds(principal::Set { ids: conditions })),
    }
}

fn condition(mesh: &str, tag: &Tag) -> Principal {
    let name = match (tag.key.as_str(), tag.value.as_str()) {
        // Any value at all: certificates carry a name per tag.
        (labels::TAG_SERVICE, "*") => tls::prefix(format!("spiffe://{mesh}/")),
        (key, "*") => tls::prefix(format!("kuma://{key}/")),
        (labels::TAG_SERVICE, service) => tls::exact(format!("spiffe://{mesh}/{service}")),
        (key, value) => tls::exact(format!("kuma://{key}/{value}")),
    };
    let holds = authenticated(name);
    if tag.not { principal(Identifier::NotId(Box::new(holds))) } else { holds }
}

fn authenticated(name: StringMatcher) -> Principal {
    principal(Identifier::Authenticated(Authenticated { principal_name: Some(name) }))
}
