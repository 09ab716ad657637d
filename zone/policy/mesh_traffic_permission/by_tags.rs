//! Permissions for groups of clients, told apart by the tags in their certificates.

use std::collections::HashMap;

use common::{
    issuing,
    model::{labels, spiffe},
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
    list(rbac::Action::Allow, POLICY, Vec::new())
}

/// Allows the groups whose action says so; the second lists those whose calls would be denied if the
/// shadow were real.
pub(super) fn rbac(mesh: &MeshContext, groups: &[(&Subset, Action)]) -> (Rbac, Option<Rbac>) {
    let of = |wanted: &[Action]| -> Vec<Principal> {
        let matching = groups.iter().filter(|(_, action)| wanted.contains(action));
        matching.map(|(subset, _)| group(mesh, subset)).collect()
    };
    let allowed = list(rbac::Action::Allow, POLICY, of(&[Action::Allow, Action::AllowWithShadowDeny]));
    let shadow = of(&[Action::AllowWithShadowDeny]);
    let shadow = (!shadow.is_empty()).then(|| list(rbac::Action::Deny, POLICY, shadow));
    (allowed, shadow)
}

/// Allows all of these groups, by a policy of this name.
pub(super) fn permit(mesh: &MeshContext, name: &str, groups: &[Subset]) -> Rbac {
    list(rbac::Action::Allow, name, groups.iter().map(|subset| group(mesh, subset)).collect())
}

fn list(action: rbac::Action, name: &str, principals: Vec<Principal>) -> Rbac {
    let mut policies = HashMap::new();
    if !principals.is_empty() {
        let any = Permission { rule: Some(permission::Rule::Any(true)) };
        let policy = Policy { permissions: vec![any], principals, ..Policy::default() };
        policies.insert(name.to_owned(), policy);
    }
    Rbac { action: action.into(), policies, ..Rbac::default() }
}

fn principal(identifier: Identifier) -> Principal {
    Principal { identifier: Some(identifier) }
}

/// Clients that meet every condition of `subset`.
fn group(mesh: &MeshContext, subset: &Subset) -> Principal {
    let mut conditions: Vec<Principal> = subset.0.iter().map(|tag| condition(mesh, tag)).collect();
    if !conditions.is_empty() {
        conditions.extend(of_mesh_itself(mesh));
    }
    match conditions.len() {
        0 => principal(Identifier::Any(true)),
        1 => conditions.remove(0),
        _ => principal(Identifier::AndIds(principal::Set { ids: conditions })),
    }
}

/// Clients that the authority of the mesh vouches for; `None` where there are no others. What other trust domains write
/// into certificates besides their own names proves nothing, and tags are not theirs.
fn of_mesh_itself(mesh: &MeshContext) -> Option<Principal> {
    let others = mesh.trust_domains.keys().filter(|domain| **domain != *mesh.mesh);
    let mut others: Vec<Principal> =
        others.map(|domain| authenticated(tls::prefix(spiffe::prefix(domain)))).collect();
    let elsewhere = match others.len() {
        0 => return None,
        1 => others.remove(0),
        _ => principal(Identifier::OrIds(principal::Set { ids: others })),
    };
    Some(unless(true, elsewhere))
}

fn condition(context: &MeshContext, tag: &Tag) -> Principal {
    let mesh = &context.mesh;
    let mtls = context.mtls.as_ref().filter(|mtls| mtls.is_by_zone());
    let name = match (tag.key.as_str(), tag.value.as_str()) {
        (labels::ZONE, zone) if tag.not && mtls.is_some() => return elsewhere(context, zone),
        // Any zone can sign the URI name of another; the DNS names of a zone only itself.
        (labels::ZONE, zone) if zone != "*" && mtls.is_some_and(|mtls| mtls.proves(zone)) => {
            return below(&issuing::domain(zone, mesh));
        }
        // Any value at all: certificates carry a name per tag.
        (labels::TAG_SERVICE, "*") => tls::prefix(format!("spiffe://{mesh}/")),
        (key, "*") => tls::prefix(format!("kuma://{key}/")),
        (labels::TAG_SERVICE, service) => tls::exact(format!("spiffe://{mesh}/{service}")),
        (key, value) => tls::exact(format!("kuma://{key}/{value}")),
    };
    unless(tag.not, authenticated(name))
}

/// Clients that prove to be in a zone other than `zone`; none when that is `*`.
///
/// That a name is missing proves nothing where zones sign, since they may leave out what they like. So a client
/// needs a DNS name of the mesh, which then is one of the zone that signed it. Zones without a key of their own,
/// known by their ingresses, put no such name into certificates; their URI names have to be believed.
fn elsewhere(context: &MeshContext, zone: &str) -> Principal {
    if zone == "*" {
        return unless(true, principal(Identifier::Any(true)));
    }
    let mesh = &context.mesh;
    // The domains of all zones of the mesh end so; it begins with the dot.
    let somewhere = proven(tls::dns(tls::suffix(issuing::domain("", mesh))));
    let not_there = unless(true, below(&issuing::domain(zone, mesh)));
    let proven = principal(Identifier::AndIds(principal::Set { ids: vec![somewhere, not_there.clone()] }));
    let others = context.zones.iter().map(String::as_str).filter(|other| {
        *other != zone
            && *other != &*context.zone
            && !context.mtls.as_ref().is_some_and(|mtls| mtls.proves(other))
    });
    let believed = others.map(|other| {
        let claimed = authenticated(tls::exact(format!("kuma://{}/{other}", labels::ZONE)));
        principal(Identifier::AndIds(principal::Set { ids: vec![claimed, not_there.clone()] }))
    });
    let mut ids = vec![proven];
    ids.extend(believed);
    principal(Identifier::OrIds(principal::Set { ids }))
}

/// Clients with a DNS name below `domain`.
fn below(domain: &str) -> Principal {
    proven(tls::dns(tls::suffix(format!(".{domain}"))))
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
