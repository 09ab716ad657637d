#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use chrono::DateTime;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::{
    model::{Kind, Resource, kinds},
    policy,
    store::{Snapshot, StoreIdentity},
};

fn index(of: &[(&'static Kind, &str, Value)]) -> Index {
    let resource = |(kind, name, spec): &(&'static Kind, &str, Value)| {
        let resource = Resource::new(ResourceKey::global(kind, name), DateTime::UNIX_EPOCH);
        Arc::new(resource.with_spec(spec.to_string().into_bytes()))
    };
    let resources = of.iter().map(resource).collect();
    Index::of(StoreIdentity { store_id: Uuid::nil(), epoch: 1 }, Snapshot { revision: 1, resources })
}

fn user(name: &str, groups: &[&str]) -> User {
    User::authenticated(name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

fn binding(subjects: Value, roles: Value) -> Value {
    json!({ "subjects": subjects, "roles": roles })
}

#[test]
fn a_role_allows_what_one_of_its_rules_names() {
    let role = json!({ "rules": [
        { "verbs": ["put"], "kinds": ["MeshTimeout", "Mesh"], "meshes": ["pay*"], "names": ["a", "team-*"] },
        { "verbs": ["delete"], "kinds": ["*"], "names": ["junk"] },
    ] });
    let bound = binding(
        json!([{ "type": "Group", "name": "devs" }, { "type": "User", "name": "bob" }]),
        json!(["payments", "missing"]),
    );
    let index = index(&[(&ROLE, "payments", role), (&BINDING, "devs", bound)]);
    let timeout = |mesh: &str, name: &str| ResourceKey::new(&policy::mesh_timeout::KIND, mesh, name);
    let check = |user: &User, verb, key: ResourceKey, allowed: bool| {
        let verdict = judge(&index, user, verb, &key);
        assert_eq!(
            matches!(verdict, RoleVerdict::Allowed(_)),
            allowed,
            "{user:?} {verb:?} {key}: {verdict:?}"
        );
    };
    let (put, delete) = (WriteVerb::Put, WriteVerb::Delete);
    for someone in [user("ann", &["devs"]), user("bob", &[])] {
        check(&someone, put, timeout("pay", "a"), true);
        check(&someone, put, timeout("payments", "team-1"), true);
        check(&someone, put, timeout("default", "a"), false);
        check(&someone, put, timeout("pay", "b"), false);
        check(&someone, put, ResourceKey::new(&policy::mesh_retry::KIND, "pay", "a"), false);
        check(&someone, put, ResourceKey::global(&kinds::mesh::KIND, "a"), true);
        check(&someone, delete, timeout("pay", "a"), false);
        check(&someone, delete, timeout("default", "junk"), true);
    }
    check(&user("devs", &["bob"]), put, timeout("pay", "a"), false);
    let denied = judge(&index, &user("bob", &[]), delete, &timeout("pay", "a"));
    assert_eq!(denied, RoleVerdict::Denied(["missing".to_owned(), "payments".to_owned()].into()));
}

#[test]
fn without_a_binding_nothing_is_narrowed() {
    let key = ResourceKey::global(&kinds::mesh::KIND, "a");
    let role = json!({ "rules": [{ "verbs": ["put"], "kinds": ["*"] }] });
    let of_roles = index(&[(&ROLE, "all", role)]);
    assert_eq!(judge(&of_roles, &user("ann", &[]), WriteVerb::Put, &key), RoleVerdict::Unbound);
    let broken = index(&[(&BINDING, "broken", json!({ "subjects": 1 }))]);
    assert_eq!(judge(&broken, &user("ann", &[]), WriteVerb::Put, &key), RoleVerdict::Denied(BTreeSet::new()));
}

#[test]
fn what_means_nothing_is_refused() {
    let check = |kind: &Kind, spec: Value, field: &str| {
        let refused = match kind.validate_authored(spec.to_string().as_bytes()) {
            Ok(violations) => violations.iter().map(|v| v.field.to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => format!("{error:?}"),
        };
        assert!(refused.contains(field), "{spec}: {refused}");
    };
    check(&ROLE, json!({ "rules": [] }), "spec.rules");
    check(&ROLE, json!({ "rules": [{ "verbs": [], "kinds": ["*"] }] }), "spec.rules[0].verbs");
    check(&ROLE, json!({ "rules": [{ "verbs": ["eat"], "kinds": ["*"] }] }), "verbs");
    let someone = json!([{ "type": "User", "name": "a" }]);
    check(&BINDING, binding(someone.clone(), json!([])), "spec.roles");
    check(&BINDING, binding(json!([{ "type": "User", "name": "" }]), json!(["a"])), "spec.subjects[0].name");
    check(&BINDING, binding(json!([{ "type": "Robot", "name": "a" }]), json!(["a"])), "type");
    let good = binding(someone, json!(["a"]));
    assert!(BINDING.validate_authored(good.to_string().as_bytes()).unwrap().is_empty());
}
