#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use chrono::DateTime;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::{
    model::{
        Kind, Resource, ResourceKey,
        kinds::{
            self,
            access_role::{BINDING, ROLE},
        },
    },
    policy,
    store::{Snapshot, StoreIdentity},
};

fn index(of: &[(&'static Kind, &str, Value)]) -> Index {
    let resource = |(kind, name, spec): &(&'static Kind, &str, Value)| {
        let resource = Resource::new(ResourceKey::global(kind, name), DateTime::UNIX_EPOCH);
        Arc::new(resource.with_spec(spec.to_string().into_bytes()))
    };
    let resources = of.iter().map(resource).collect();
    Index::of(
        StoreIdentity { store_id: Uuid::nil(), epoch: 1 },
        Snapshot { revision: 1, commit: None, resources },
    )
}

fn user(name: &str, groups: &[&str]) -> User {
    User::authenticated(name.to_owned(), groups.iter().map(|group| (*group).to_owned()).collect())
}

fn binding(subjects: Value, roles: Value) -> Value {
    json!({ "subjects": subjects, "roles": roles })
}

fn judge(index: &Index, user: &User, verb: RoleVerb, asked: &AskedFor<'_>) -> RoleVerdict {
    SharedRoles::default().at(index).of(user).judge(verb, asked)
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
        let verdict = judge(&index, user, verb, &AskedFor::one(&key, None));
        assert_eq!(
            matches!(verdict, RoleVerdict::Allowed(_)),
            allowed,
            "{user:?} {verb:?} {key}: {verdict:?}"
        );
    };
    let (put, delete) = (RoleVerb::Write, RoleVerb::Delete);
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
    let denied = judge(&index, &user("bob", &[]), delete, &AskedFor::one(&timeout("pay", "a"), None));
    assert_eq!(denied, RoleVerdict::Denied(["missing".to_owned(), "payments".to_owned()].into()));
}

#[test]
fn without_a_binding_nothing_is_narrowed() {
    let key = ResourceKey::global(&kinds::mesh::KIND, "a");
    let role = json!({ "rules": [{ "verbs": ["put"], "kinds": ["*"] }] });
    let of_roles = index(&[(&ROLE, "all", role)]);
    let asked = AskedFor::one(&key, None);
    assert_eq!(judge(&of_roles, &user("ann", &[]), RoleVerb::Write, &asked), RoleVerdict::Unbound);
    let broken = index(&[(&BINDING, "broken", json!({ "subjects": 1 }))]);
    assert_eq!(
        judge(&broken, &user("ann", &[]), RoleVerb::Write, &asked),
        RoleVerdict::Denied(BTreeSet::new())
    );
}

/// The rights of users where `ann` has one role with these rules, of the control plane of this zone.
fn rights(zone: Option<&str>, settings: Access, rules: Value) -> Rights {
    let bound = binding(json!([{ "type": "User", "name": "ann" }]), json!(["role"]));
    let index = index(&[(&ROLE, "role", json!({ "rules": rules })), (&BINDING, "ann", bound)]);
    Rights::new(settings, zone, IndexReader::new(tokio::sync::watch::channel(Arc::new(index)).1))
}

#[test]
fn each_limit_of_a_rule_holds() {
    let web = ResourceKey::new(&kinds::dataplane::KIND, "pay", "web-1");
    let other = ResourceKey::new(&kinds::dataplane::KIND, "other", "web-1");
    let mesh = ResourceKey::global(&kinds::mesh::KIND, "pay");
    let secret = ResourceKey::new(&kinds::secret::SECRET, "pay", "key");
    let everything = AskedFor::everything(None);
    let check = |rules: Value, verb: RoleVerb, asked: &AskedFor<'_>, allowed: bool| {
        let rights = rights(None, closed(), rules.clone());
        let outcome = rights.check(&user("ann", &[]), verb, asked);
        assert_eq!(outcome.is_ok(), allowed, "{rules} {verb:?} {asked:?}: {outcome:?}");
        assert!(rights.check(&user("bob", &[]), verb, asked).is_err(), "{verb:?}");
        assert!(rights.check(&User::admin(), verb, asked).is_ok(), "{verb:?}");
    };
    let stats = RoleVerb::ViewStats;
    let of_pay = json!([{ "verbs": ["config-dump", "read"], "kinds": ["Dataplane"], "meshes": ["pay"] }]);
    check(of_pay.clone(), stats, &AskedFor::one(&web, None), true);
    check(of_pay.clone(), RoleVerb::ViewConfigDump, &AskedFor::one(&web, Some("east")), true);
    check(of_pay.clone(), RoleVerb::ConfigDump, &AskedFor::one(&web, None), true);
    check(of_pay.clone(), stats, &AskedFor::one(&other, None), false);
    check(of_pay.clone(), stats, &everything, false);
    check(of_pay.clone(), RoleVerb::Read, &AskedFor::some_of(&kinds::dataplane::KIND, ""), true);
    check(of_pay.clone(), RoleVerb::Read, &AskedFor::some_of(&kinds::dataplane::KIND, "other"), false);
    check(of_pay.clone(), RoleVerb::Read, &AskedFor::all_of(&kinds::dataplane::KIND), false);
    check(of_pay, RoleVerb::Write, &AskedFor::one(&web, None), false);
    // Of zones.
    let of_east = json!([{ "verbs": ["delete"], "kinds": ["*"], "zones": ["ea*"] }]);
    check(of_east.clone(), RoleVerb::Delete, &AskedFor::one(&web, Some("east")), true);
    check(of_east.clone(), RoleVerb::Delete, &AskedFor::one(&web, Some("west")), false);
    check(of_east, RoleVerb::Delete, &AskedFor::one(&web, None), false);
    // What is in no mesh must be named by a rule that is limited to meshes.
    let any = json!([{ "verbs": ["write"], "kinds": ["*"], "meshes": ["pay"] }]);
    check(any.clone(), RoleVerb::Write, &AskedFor::one(&web, None), true);
    check(any, RoleVerb::Write, &AskedFor::one(&mesh, None), false);
    // What is kept for administrators needs a verb of its own, whatever the types say.
    for (rules, read, written) in [
        (json!([{ "verbs": ["read", "write", "delete"], "kinds": ["*", "Secret"] }]), false, false),
        (json!([{ "verbs": ["view-secrets"], "kinds": ["Secret"], "meshes": ["pay"] }]), true, false),
        (json!([{ "verbs": ["view-secrets"], "kinds": ["Secret"], "names": ["other"] }]), false, false),
        (json!([{ "verbs": ["admin"], "kinds": ["Secret"] }]), false, true),
    ] {
        let asked = AskedFor::one(&secret, None);
        check(rules.clone(), RoleVerb::Read, &asked, read);
        check(rules.clone(), RoleVerb::Write, &asked, written);
        check(rules, RoleVerb::Delete, &asked, written);
    }
    let role = ResourceKey::global(&ROLE, "role");
    check(
        json!([{ "verbs": ["view-secrets"], "kinds": ["*"] }]),
        RoleVerb::Read,
        &AskedFor::one(&role, None),
        false,
    );
    // What is about no resources.
    for verb in RoleVerb::ALL.into_iter().filter(|verb| !verb.names_kinds()) {
        check(json!([{ "verbs": [verb.as_str()] }]), verb, &everything, true);
        check(json!([{ "verbs": ["read", "write", "delete"], "kinds": ["*"] }]), verb, &everything, false);
        check(json!([{ "verbs": [verb.as_str()], "meshes": ["pay"] }]), verb, &everything, false);
    }
    let token = AskedFor { mesh: Extent::One("pay"), ..everything };
    let of_tokens = json!([{ "verbs": ["generate-dataplane-token"], "meshes": ["pay"] }]);
    check(of_tokens.clone(), RoleVerb::GenerateDataplaneToken, &token, true);
    check(of_tokens.clone(), RoleVerb::Tokens, &token, false);
    check(of_tokens, RoleVerb::GenerateUserToken, &everything, false);
    // A verb nobody knows spoils the role, and allows nothing.
    check(
        json!([{ "verbs": ["read", "fly"], "kinds": ["*"] }]),
        RoleVerb::Read,
        &AskedFor::one(&web, None),
        false,
    );
}

/// Settings that leave everything to administrators and roles.
fn closed() -> Access {
    let admins = AccessRule::admins;
    Access {
        read_resources: admins(),
        view_stats: admins(),
        view_clusters: admins(),
        control_plane_metadata: admins(),
        ..Access::default()
    }
}

#[test]
fn what_settings_allow_needs_no_role() {
    let rights = rights(Some("east"), Access::default(), json!([]));
    let bob = user("bob", &[]);
    let web = ResourceKey::new(&kinds::dataplane::KIND, "pay", "web-1");
    let one = AskedFor::one(&web, None);
    for verb in [RoleVerb::Read, RoleVerb::ViewStats, RoleVerb::ViewClusters, RoleVerb::Settings] {
        assert!(rights.check(&bob, verb, &one).is_ok(), "{verb:?}");
    }
    assert!(rights.check(&User::anonymous(), RoleVerb::Read, &one).is_ok());
    let refused = rights.check(&bob, RoleVerb::Write, &one).unwrap_err().to_string();
    assert!(
        refused.contains("cannot write Dataplane pay/web-1: an AccessRole must allow it (write)"),
        "{refused}"
    );
    assert!(refused.ends_with("this user has no role"), "{refused}");
    // Who may see secrets does not operate.
    let ann_sees = AccessRule { users: ["ann".to_owned()].into(), groups: BTreeSet::new() };
    let rights = self::rights(None, Access { admin_resources: ann_sees, ..Access::default() }, json!([]));
    let everything = AskedFor::everything(None);
    assert!(rights.check(&user("ann", &[]), RoleVerb::Backup, &everything).is_ok());
    assert!(rights.check(&user("ann", &[]), RoleVerb::Operate, &everything).is_err());
    assert!(rights.check(&User::admin(), RoleVerb::Operate, &everything).is_ok());
}

#[test]
fn what_may_be_read_is_told_one_by_one() {
    let rules = json!([
        { "verbs": ["read"], "kinds": ["MeshTimeout"], "meshes": ["pay"], "names": ["a*"] },
        { "verbs": ["view-secrets"], "kinds": ["Secret"], "meshes": ["pay"] },
    ]);
    let shown = |settings, user: &User, kind, mesh, name| {
        rights(None, settings, rules.clone()).readable(user).shows_key(&ResourceKey::new(kind, mesh, name))
    };
    let (ann, bob) = (user("ann", &[]), user("bob", &[]));
    let timeout = &policy::mesh_timeout::KIND;
    assert!(shown(closed(), &ann, timeout, "pay", "a1"));
    assert!(!shown(closed(), &ann, timeout, "pay", "b1") && !shown(closed(), &ann, timeout, "other", "a1"));
    assert!(
        !shown(closed(), &bob, timeout, "pay", "a1") && shown(Access::default(), &bob, timeout, "pay", "a1")
    );
    assert!(shown(Access::default(), &ann, &kinds::secret::SECRET, "pay", "key"));
    assert!(!shown(Access::default(), &bob, &kinds::secret::SECRET, "pay", "key"));
    assert!(shown(closed(), &User::admin(), &kinds::secret::SECRET, "pay", "key"));
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
    check(&ROLE, json!({ "rules": [{ "verbs": ["read"] }] }), "spec.rules[0].kinds");
    check(
        &ROLE,
        json!({ "rules": [{ "verbs": ["read"], "kinds": ["*"], "zones": [""] }] }),
        "spec.rules[0].zones[0]",
    );
    let audit = json!({ "rules": [{ "verbs": ["read", "audit"], "kinds": ["*"], "meshes": ["a"] }] });
    check(&ROLE, audit, "spec.rules[0].verbs[1]");
    let tokens = json!({ "rules": [{ "verbs": ["generate-dataplane-token"], "kinds": ["Dataplane"] }] });
    check(&ROLE, tokens, "spec.rules[0].verbs[0]");
    for verb in RoleVerb::ALL {
        let role = json!({ "rules": [{ "verbs": [verb.as_str()], "kinds": ["*"] }] });
        assert!(ROLE.validate_authored(role.to_string().as_bytes()).unwrap().is_empty(), "{verb:?}");
        assert_eq!(RoleVerb::parse(verb.as_str()), Some(verb));
    }
    for (older, verb) in [("put", RoleVerb::Write), ("view", RoleVerb::Read), ("view-audit", RoleVerb::Audit)]
    {
        assert_eq!(RoleVerb::parse(older), Some(verb));
    }
    let someone = json!([{ "type": "User", "name": "a" }]);
    check(&BINDING, binding(someone.clone(), json!([])), "spec.roles");
    check(&BINDING, binding(someone.clone(), json!([""])), "spec.roles[0]");
    check(&BINDING, binding(json!([{ "type": "User", "name": "" }]), json!(["a"])), "spec.subjects[0].name");
    check(&BINDING, binding(json!([{ "type": "Robot", "name": "a" }]), json!(["a"])), "type");
    let good = binding(someone, json!(["a"]));
    assert!(BINDING.validate_authored(good.to_string().as_bytes()).unwrap().is_empty());
}
