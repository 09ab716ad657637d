#![allow(clippy::unwrap_used)]

mod cost;
mod indexed;
mod overlap;
mod world;

use chrono::{DateTime, Utc};
use proptest::{collection::vec, prelude::*, sample::select};
use serde_json::json;

use super::{merge::Strategy as Merge, *};
use crate::{
    model::{Resource, ResourceKey, kri::Kri, labels},
    policy::{TargetRef, mesh_http_route, mesh_timeout, mesh_traffic_permission},
    registry,
};

fn resource(kind: &str, name: &str, spec: &Value) -> Arc<Resource> {
    let kind = registry::by_name(kind).unwrap();
    let key = ResourceKey::new(kind, "default", name);
    Arc::new(Resource::new(key, DateTime::<Utc>::MIN_UTC).with_spec(spec.to_string()))
}

fn policy(kind: &str, name: &str, spec: &Value) -> Arc<Policy> {
    Arc::new(Policy::parse(resource(kind, name, spec)).unwrap())
}

fn mesh() -> Arc<Resource> {
    let kind = registry::by_name("Mesh").unwrap();
    Arc::new(Resource::new(ResourceKey::global(kind, "default"), DateTime::<Utc>::MIN_UTC))
}

/// As it is here once it came from its zone: the name it has there is in a label.
fn service(name: &str, zone: &str, ports: &Value) -> Arc<Resource> {
    let service = resource("MeshService", &format!("{name}-{zone}"), &json!({"ports": ports}));
    Arc::new(Resource::clone(&service).with_label(labels::ZONE, zone).with_label(labels::DISPLAY_NAME, name))
}

/// A `MeshService` identifier.
fn kri(name: &str, zone: &str, section: &str) -> Kri {
    Kri::parse(&format!("kri_msvc_default_{zone}__{name}_{section}"), registry::by_short).unwrap()
}

#[test]
fn a_lookup_falls_back_from_port_to_service_to_mesh() {
    let timeout = |target: Value, seconds: u32| json!({"targetRef": target, "default": {"http": {"requestTimeout": format!("{seconds}s")}}});
    let policy = policy(
        "MeshTimeout",
        "a",
        &json!({"to": [
            timeout(json!({"kind": "Mesh"}), 1),
            timeout(json!({"kind": "MeshService", "labels": {labels::DISPLAY_NAME: "web"}}), 2),
            timeout(json!({"kind": "MeshService", "labels": {labels::DISPLAY_NAME: "web"}, "sectionName": "80"}), 3),
        ]}),
    );
    let ports = json!([{"port": 80}, {"port": 443, "name": "tls"}]);
    let all = [mesh(), service("web", "east", &ports), service("api", "east", &ports)];
    let rules = to_rules(&[policy], &Destinations::new(&all)).unwrap();
    let request = |kri: &Kri| {
        let conf: mesh_timeout::TimeoutConf = rules.resource(kri).unwrap().unwrap();
        conf.http.unwrap().request_timeout.unwrap().to_string()
    };
    assert_eq!(request(&kri("web", "east", "80")), "3s");
    assert_eq!(request(&kri("web", "east", "tls")), "2s");
    assert_eq!(request(&kri("api", "east", "80")), "1s");
    let by_tag: mesh_timeout::TimeoutConf = rules.service("unknown").unwrap().unwrap();
    assert_eq!(by_tag.http.unwrap().request_timeout.unwrap().to_string(), "1s");
}

#[test]
fn a_policy_of_global_means_nothing_of_a_zone_by_name() {
    let spec = json!({"to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "default": {"idleTimeout": "1s"}}]});
    let all = [mesh(), service("web", "east", &json!([])), service("web", "west", &json!([]))];
    let of = |key: &str, value: &str| {
        let labelled =
            Resource::clone(&resource("MeshTimeout", "a", &spec)).with_label(labels::ORIGIN, value);
        let labelled = if key.is_empty() { labelled } else { labelled.with_label(labels::ZONE, key) };
        let policy = Arc::new(Policy::parse(Arc::new(labelled)).unwrap());
        ResourceRules::build(&[policy], &Destinations::new(&all)).0.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(of("", "global"), []);
    assert_eq!(of("west", "zone"), [kri("web", "west", "")]);
}

#[test]
fn routes_merge_by_matches_and_keep_the_order_of_the_winner() {
    let rule = |path: &str, to: &str| {
        json!({"matches": [{"path": {"type": "Exact", "value": path}}],
               "default": {"backendRefs": [{"kind": "MeshService", "name": to}]}})
    };
    let route = |name: &str, rules: Value| {
        policy(
            "MeshHTTPRoute",
            name,
            &json!({"to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": rules}]}),
        )
    };
    let loser = route("b", json!([rule("/1", "b"), rule("/2", "b"), rule("/3", "b")]));
    let winner = route("a", json!([rule("/3", "a"), rule("/1", "a")]));
    let rules = to_rules(&[loser, winner], &Destinations::default()).unwrap();
    let conf: mesh_http_route::HttpRouteConf = rules.service("web").unwrap().unwrap();
    let merged: Vec<_> = conf
        .rules
        .iter()
        .map(|r| {
            let backend = r.default.backend_refs.as_ref().unwrap()[0].name.clone().unwrap();
            (r.matches[0].path.as_ref().unwrap().value.clone(), backend)
        })
        .collect();
    let expected = [("/3", "a"), ("/1", "a"), ("/2", "b")];
    assert_eq!(merged, expected.map(|(path, to)| (path.to_owned(), to.to_owned())));
}

#[test]
fn lists_to_append_are_concatenated() {
    let confs = [json!({"a": [1], "x": {"appendB": [1]}}), json!({"a": [2], "x": {"appendB": [2, 3]}})];
    let merged = Merge::Patch.merge(&confs.iter().collect::<Vec<_>>());
    assert_eq!(merged, [json!({"a": [2], "x": {"appendB": [1, 2, 3]}})]);
}

#[test]
fn too_many_tags_are_refused_rather_than_multiplied() {
    let items: Vec<Value> = (0..20)
        .map(|i| json!({"targetRef": {"kind": "MeshSubset", "tags": {format!("k{i}"): "v"}}, "default": {"action": "Allow"}}))
        .collect();
    let policy = policy("MeshTrafficPermission", "a", &json!({"from": items}));
    assert!(matches!(TagRules::of_clients(&[policy]), Err(RulesError::TooManySubsets { .. })));
}

#[test]
fn shadow_policies_are_left_out_unless_asked_for() {
    let spec = json!({"from": [{"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}}]});
    let shadow =
        Resource::clone(&resource("MeshTrafficPermission", "a", &spec)).with_label(labels::EFFECT, "shadow");
    let set = PolicySet::parse(registry::by_name("MeshTrafficPermission").unwrap(), &[Arc::new(shadow)]);
    let key = InboundKey { address: "127.0.0.1".to_owned(), port: 80 };
    let proxy = SelectableProxy {
        kri: Kri::parse("kri_dp_default___web_", registry::by_short).unwrap(),
        labels: Default::default(),
        kind: crate::policy::ProxyType::Sidecar,
        gateway_tags: Default::default(),
        delegated_gateway: false,
        gateway: None,
        address: "127.0.0.1".to_owned(),
        inbounds: vec![SelectableInbound {
            key: key.clone(),
            section: "80".to_owned(),
            tags: Default::default(),
            zone_listener: false,
        }],
    };
    let select = |shadow| Selection::of(&set, &proxy, &Destinations::default(), shadow);
    assert!(select(false).policies.is_empty());
    let rules = select(true).client_rules(&key).unwrap();
    let conf: mesh_traffic_permission::TrafficPermissionConf = rules.0[0].conf().unwrap();
    assert_eq!(conf.action, Some(mesh_traffic_permission::Action::Allow));
}

#[test]
fn nobody_is_let_in_by_a_group_that_overlaps_a_denied_one() {
    let item = |name: &str, action: &str| json!({"targetRef": {"kind": "MeshService", "name": name}, "default": {"action": action}});
    let all = json!({"targetRef": {"kind": "Mesh"}, "default": {"action": "Allow"}});
    let from = json!({"from": [all, item("a", "Deny"), item("b", "Deny"), item("c", "Allow")]});
    let rules = access_rules(&[policy("MeshTrafficPermission", "a", &from)]).unwrap();
    let allowed = |name: &str| {
        let element = Element::from([(labels::TAG_SERVICE.to_owned(), name.to_owned())]);
        rules.0.iter().any(|rule| rule.conf["action"] == "Allow" && rule.subset.contains(&element))
    };
    assert_eq!(["a", "b", "c", "d"].map(allowed), [false, false, true, true]);
}

/// A small JSON object of a few members, nested at most twice.
fn conf() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![(0..3).prop_map(Value::from), vec(0..3, 0..3).prop_map(Value::from)];
    leaf.prop_recursive(2, 8, 3, |inner| {
        vec((select(vec!["a", "b", "c"]), inner), 0..3)
            .prop_map(|members| members.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())
    })
    .prop_map(|value| if value.is_object() { value } else { json!({"a": value}) })
}

/// A group of clients of a mesh with three tags of two values.
fn target() -> impl Strategy<Value = Value> {
    let tag = (select(vec!["env", "team", "zone"]), select(vec!["x", "y"]));
    prop_oneof![
        Just(json!({"kind": "Mesh"})),
        vec(tag, 1..3).prop_map(|tags| {
            let tags: serde_json::Map<_, _> =
                tags.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect();
            json!({"kind": "MeshSubset", "tags": tags})
        }),
        select(vec!["web", "api"]).prop_map(|name| json!({"kind": "MeshService", "name": name})),
    ]
}

proptest! {
    #[test]
    fn merging_twice_changes_nothing(confs in vec(conf(), 1..5)) {
        let confs: Vec<&Value> = confs.iter().collect();
        let once = Merge::Patch.merge(&confs);
        let twice: Vec<&Value> = confs.iter().chain(&confs).copied().collect();
        prop_assert_eq!(&Merge::Patch.merge(&twice), &once);
        prop_assert_eq!(&Merge::Patch.merge(&once.iter().collect::<Vec<_>>()), &once);
    }

    #[test]
    fn merging_in_steps_is_merging_at_once(confs in vec(conf(), 2..5), cut in 1..4_usize) {
        let confs: Vec<&Value> = confs.iter().collect();
        let cut = cut.min(confs.len() - 1);
        let first = Merge::Patch.merge(&confs[..cut]);
        let rest: Vec<&Value> = first.iter().chain(confs[cut..].iter().copied()).collect();
        prop_assert_eq!(Merge::Patch.merge(&rest), Merge::Patch.merge(&confs));
    }

    #[test]
    fn disjoint_configurations_merge_in_any_order(a in conf(), b in conf()) {
        let (a, b) = (json!({"x": a}), json!({"y": b}));
        prop_assert_eq!(Merge::Patch.merge(&[&a, &b]), Merge::Patch.merge(&[&b, &a]));
    }

    /// For a client of which every tag is known, the groups give what filtering and merging gives.
    #[test]
    fn groups_equal_filter_and_merge(
        items in vec((target(), conf()), 1..6),
        tags in (select(vec!["x", "y", "z"]), select(vec!["x", "y", "z"]), select(vec!["x", "y", "z"]), select(vec!["web", "api", "db"])),
    ) {
        let from: Vec<Value> =
            items.iter().map(|(target, conf)| json!({"targetRef": target, "default": conf})).collect();
        let policy = policy("MeshFaultInjection", "a", &json!({"from": from}));
        let rules = TagRules::of_clients(&[Arc::clone(&policy)]).unwrap();
        let element = Element::from([
            ("env".to_owned(), tags.0.to_owned()),
            ("team".to_owned(), tags.1.to_owned()),
            ("zone".to_owned(), tags.2.to_owned()),
            (labels::TAG_SERVICE.to_owned(), tags.3.to_owned()),
        ]);
        let holds = |target: &TargetRef| Subset::of(target).is_some_and(|s| s.contains(&element));
        let confs: Vec<&Value> = policy.from.iter().filter(|i| holds(&i.target)).map(|i| &i.conf).collect();
        // A group is looked up by the first that has the client; groups of other cliques may overlap it,
        // so the answer is the whole merge only among groups with the most tags.
        let matching: Vec<&TagRule> = rules.0.iter().filter(|r| r.subset.contains(&element)).collect();
        let expected = Merge::Patch.merge(&confs);
        match expected.first() {
            Some(expected) => prop_assert!(matching.iter().any(|r| r.conf == *expected)),
            None => prop_assert!(matching.is_empty()),
        }
    }

    /// Whatever the policies, a proxy lets in exactly whom filtering and merging lets in.
    #[test]
    fn access_equals_filter_and_merge(
        items in vec((target(), select(vec!["Allow", "Deny", "AllowWithShadowDeny"])), 1..6),
        tags in (select(vec!["x", "y", "z"]), select(vec!["x", "y", "z"]), select(vec!["x", "y", "z"]), select(vec!["web", "api", "db"])),
    ) {
        let item = |(target, action)| json!({"targetRef": target, "default": {"action": action}});
        let from: Vec<Value> = items.into_iter().map(item).collect();
        let policy = policy("MeshTrafficPermission", "a", &json!({"from": from}));
        let rules = access_rules(&[Arc::clone(&policy)]).unwrap();
        let element = Element::from([
            ("env".to_owned(), tags.0.to_owned()),
            ("team".to_owned(), tags.1.to_owned()),
            ("zone".to_owned(), tags.2.to_owned()),
            (labels::TAG_SERVICE.to_owned(), tags.3.to_owned()),
        ]);
        let holds = |target: &TargetRef| Subset::of(target).is_some_and(|s| s.contains(&element));
        let last = policy.from.iter().rfind(|i| holds(&i.target));
        let expected = last.is_some_and(|i| i.conf["action"] != "Deny");
        let actual = rules.0.iter().any(|r| r.conf["action"] != "Deny" && r.subset.contains(&element));
        prop_assert_eq!(actual, expected);
    }

    /// With targets that only differ in one tag, as `to` lists have them, the first group is the answer.
    #[test]
    fn the_first_group_is_the_answer_for_one_tag(
        items in vec((prop_oneof![Just("*"), Just("web"), Just("api")], conf()), 1..6),
        name in select(vec!["web", "api", "db"]),
    ) {
        let target = |name: &str| if name == "*" { json!({"kind": "Mesh"}) } else { json!({"kind": "MeshService", "name": name}) };
        let to: Vec<Value> =
            items.iter().map(|(name, conf)| json!({"targetRef": target(name), "default": conf})).collect();
        let policy = policy("MeshHealthCheck", "a", &json!({"to": to}));
        let rules = to_rules(&[Arc::clone(&policy)], &Destinations::default()).unwrap();
        let relevant = policy.to.iter().zip(&items).filter(|(_, (n, _))| *n == "*" || *n == name);
        let confs: Vec<&Value> = relevant.map(|(item, _)| &item.conf).collect();
        let found = rules.tags.service(name).map(|r| r.conf.clone());
        prop_assert_eq!(found, Merge::Patch.merge(&confs).into_iter().next());
    }
}

#[test]
fn who_meets_several_conditions_gets_what_the_narrowest_says() {
    let id = |kind: &str, value: &str| json!({"spiffeID": {"type": kind, "value": value}});
    let timeout = |seconds: u32| json!({"http": {"requestTimeout": format!("{seconds}s")}});
    let policy = |name: &str, rules: Value| policy("MeshTimeout", name, &json!({"rules": rules}));
    let loser = policy(
        "b",
        json!([
            {"default": {"idleTimeout": "1s"}},
            {"matches": [id("Exact", "spiffe://m/a"), id("Prefix", "spiffe://m/team")], "default": timeout(2)},
        ]),
    );
    let winner = policy(
        "a",
        json!([
            {"matches": [id("Prefix", "spiffe://m"), {"sni": {"type": "Exact", "value": "x"}}], "default": timeout(3)},
            {"matches": [id("Exact", "spiffe://m/a")], "default": timeout(4)},
            {"matches": [id("Exact", "spiffe://m/b")], "default": timeout(5)},
        ]),
    );
    let rules = InboundRules::build(&[winner, loser]);
    let found = rules.conditional::<mesh_timeout::TimeoutConf>().unwrap();
    let shown: Vec<String> = found
        .iter()
        .map(|(condition, conf)| {
            assert_eq!(conf.idle_timeout.unwrap().to_string(), "1s", "what holds for all holds for each");
            let name = condition.spiffe_id.as_ref().map_or("sni", |id| &id.value);
            format!("{name} {}", conf.http.as_ref().unwrap().request_timeout.unwrap())
        })
        .collect();
    let expected = ["spiffe://m/b 5s", "spiffe://m/a 4s", "spiffe://m/team 2s", "spiffe://m 3s", "sni 3s"];
    assert_eq!(shown, expected);
    assert!(rules.unconditional::<mesh_timeout::TimeoutConf>().unwrap().unwrap().http.is_none());
}
