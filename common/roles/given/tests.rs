#![allow(clippy::unwrap_used)]

use chrono::DateTime;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::{
    model::{Kind, ResourceKey},
    store::{Change, StoreIdentity},
};

fn empty() -> Index {
    Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 })
}

/// Writes it, or deletes it where there is no document.
fn write(index: &mut Index, kind: &'static Kind, name: &str, spec: Option<Value>) {
    let key = ResourceKey::global(kind, name);
    let resource = spec.map(|spec| {
        let resource = Resource::new(key.clone(), DateTime::UNIX_EPOCH);
        Arc::new(resource.with_spec(spec.to_string().into_bytes()))
    });
    index.apply(&Change { revision: index.revision + 1, key, resource });
}

fn role(kind: &str) -> Value {
    json!({ "rules": [{ "verbs": ["write"], "kinds": [kind] }] })
}

/// Gives `role` to these, users but where they are in capitals.
fn binding(subjects: &[&str], role: &str) -> Value {
    let subject = |name: &&str| {
        let is_group = name.chars().all(char::is_uppercase);
        json!({ "type": if is_group { "Group" } else { "User" }, "name": name })
    };
    json!({ "subjects": subjects.iter().map(subject).collect::<Vec<_>>(), "roles": [role] })
}

fn user(name: &str, groups: &[&str]) -> User {
    User::authenticated(name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

#[test]
fn what_was_not_written_is_not_read_again() {
    let shared = SharedRoles::default();
    let mut index = empty();
    for n in 0..50 {
        write(&mut index, &BINDING, &format!("b{n}"), Some(binding(&["ann", "bob"], "r")));
        write(&mut index, &ROLE, &format!("r{n}"), Some(role("Mesh")));
    }
    let first = shared.at(&index);
    assert_eq!((first.bound.len(), first.rules.len()), (50, 50));
    // Others are written, and nothing is looked at.
    write(&mut index, &crate::model::kinds::mesh::KIND, "default", Some(json!({})));
    assert!(Arc::ptr_eq(&first, &shared.at(&index)), "of the index of another revision");
    assert!(Arc::ptr_eq(&first, &shared.at(&index.clone())), "of a copy");
    write(&mut index, &BINDING, "b7", Some(binding(&["ann"], "r")));
    let second = shared.at(&index);
    let again = |name: &str| !Arc::ptr_eq(&first.bound[name], &second.bound[name]);
    let read: Vec<String> = (0..50).map(|n| format!("b{n}")).filter(|name| again(name)).collect();
    assert_eq!(read, ["b7"]);
    let again = |name: &str| !Arc::ptr_eq(&first.rules[name], &second.rules[name]);
    assert_eq!((0..50).filter(|n| again(&format!("r{n}"))).count(), 0);
    // Who asks about an older one is told what was so then, and nobody else is.
    let mut before = index.clone();
    write(&mut index, &BINDING, "b7", None);
    assert_eq!(shared.at(&index).bound.len(), 49);
    assert_eq!(shared.at(&before).bound.len(), 50);
    write(&mut before, &BINDING, "other", Some(binding(&["eve"], "r")));
    assert_eq!(shared.at(&before).bound.len(), 51);
    assert_eq!(shared.at(&index).bound.len(), 49);
}

#[test]
fn what_was_read_step_by_step_is_what_is_read_at_once() {
    let steps: [(&'static Kind, &str, Option<Value>); 16] = [
        (&ROLE, "r", Some(role("Mesh"))),
        (&BINDING, "a", Some(binding(&["ann", "OPS"], "r"))),
        (&BINDING, "b", Some(binding(&["ann", "ann", "bob"], "s"))),
        (&ROLE, "s", Some(role("Zone"))),
        (&ROLE, "r", Some(role("MeshTimeout"))),
        (&BINDING, "b", Some(binding(&["bob"], "s"))),
        (&BINDING, "a", Some(json!({ "subjects": 1 }))),
        (&BINDING, "a", Some(binding(&["OPS", "eve"], "missing"))),
        (&ROLE, "s", Some(json!({ "rules": [{ "verbs": ["fly"] }] }))),
        (&BINDING, "c", Some(binding(&["DEVS", "bob"], "r"))),
        (&BINDING, "b", None),
        (&ROLE, "r", None),
        (&ROLE, "r", Some(role("Mesh"))),
        (&BINDING, "c", None),
        (&BINDING, "a", None),
        (&BINDING, "a", Some(binding(&["ann"], "r"))),
    ];
    let users =
        [user("ann", &[]), user("bob", &["OPS"]), user("eve", &["DEVS", "OPS"]), user("OPS", &["ann"])];
    let seen =
        |given: &GivenRoles| users.iter().map(|user| format!("{:?}", given.of(user))).collect::<Vec<_>>();
    let mut index = empty();
    let mut given = Arc::<GivenRoles>::default();
    let mut told = Vec::new();
    for (n, (kind, name, spec)) in steps.into_iter().enumerate() {
        write(&mut index, kind, name, spec);
        given = given.moved_to(&index);
        let at_once = Arc::<GivenRoles>::default().moved_to(&index);
        assert_eq!(seen(&given), seen(&at_once), "after step {n}");
        let names = |naming: &BindingsByName| naming.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&given.of_users), names(&at_once.of_users), "after step {n}");
        assert_eq!(names(&given.of_groups), names(&at_once.of_groups), "after step {n}");
        told.push(seen(&given));
    }
    assert!(told.windows(2).filter(|pair| pair[0] != pair[1]).count() > 10, "something moved");
    // From anywhere to anywhere.
    let there = given.moved_to(&empty());
    assert_eq!((seen(&there), there.bound.len()), (seen(&GivenRoles::default()), 0));
}
