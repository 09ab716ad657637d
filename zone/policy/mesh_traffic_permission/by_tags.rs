//! Permissions for groups of clients, told apart by the tags in their certificates.

use std::collections::HashMap;

use common::{
    issuing,
    model::labels,
    policy::{
        mesh_traffic_permission::Action,
        rules::{Subset, Tag},
    },
    proto::envoy::{
        config::core::v3::TypedExtensionConfig,
        config::rbac::v3::{
            Permission, Policy, Principal, Rbac, permission, principal,
            principal::{Authenticated, Identifier},
            rbac,
        },
        extensions::{
            rbac::principals::mtls_authenticated::v3 as mtls_authenticated,
            transport_sockets::tls::v3::SubjectAltNameMatcher,
        },
        r#type::matcher::v3::StringMatcher,
    },
};

use crate::{
    generator::envoy::{cluster, tls},
    mesh::MeshContext,
};

const POLICY: &str = "MeshTrafficPermission";

/// Allows nobody.
pub(super) fn nobody() -> Rbac {
    list(rbac::Action::Allow, Vec::new())
}

/// Allows the groups whose action says so; the second lists those whose calls would be denied if the
/// shadow were real.
pub(super) fn rbac(mesh: &MeshContext, groups: &[(&Subset, Action)]) -> (Rbac, Option<Rbac>) {
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
fn group(mesh: &MeshContext, subset: &Subset) -> Principal {
    let mut conditions: Vec<Principal> = subset.0.iter().map(|tag| condition(mesh, tag)).collect();
    match conditions.len() {
        0 => principal(Identifier::Any(true)),
        1 => conditions.remove(0),
        _ => principal(Identifier::AndIds(principal::Set { ids: conditions })),
    }
}

fn condition(context: &MeshContext, tag: &Tag) -> Principal {
    let mesh = &context.mesh;
    let issuers = context.mtls.as_ref().map(|mtls| &mtls.issuers);
    let name = match (tag.key.as_str(), tag.value.as_str()) {
        // Any zone can sign the URI name of another; the DNS names of a zone only itself.
        (labels::ZONE, zone) if issuers.is_some_and(|issuers| issuers.contains(zone)) => {
            let names = tls::dns(tls::suffix(format!(".{}", issuing::domain(zone, mesh))));
            return unless(tag.not, proven(names));
        }
        // Any value at all: certificates carry a name per tag.
        (labels::TAG_SERVICE, "*") => tls::prefix(format!("spiffe://{mesh}/")),
        (key, "*") => tls::prefix(format!("kuma://{key}/")),
        (labels::TAG_SERVICE, service) => tls::exact(format!("spiffe://{mesh}/{service}")),
        (key, value) => tls::exact(format!("kuma://{key}/{value}")),
    };
    unless(tag.not, authenticated(name))
}

fn unless(not: bool, holds: Principal) -> Principal {
    if not { principal(Identifier::NotId(Box::new(holds))) } else { holds }
}

/// A client with such a name of whatever kind.
fn proven(name: SubjectAltNameMatcher) -> Principal {
    let config = mtls_authenticated::Config { san_matcher: Some(name), ..Default::default() };
    principal(Identifier::Custom(TypedExtensionConfig {
        name: "envoy.rbac.principals.mtls_authenticated".to_owned(),
        typed_config: Some(cluster::pack(&config)),
    }))
}

fn authenticated(name: StringMatcher) -> Principal {
    principal(Identifier::Authenticated(Authenticated { principal_name: Some(name) }))
}
