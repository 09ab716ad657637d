//! Groups that overlap: what comes of them is what always came of them, and costs no more than it may.

use proptest::prelude::*;

use super::*;
use crate::policy::rules::{
    access_rules,
    by_service::ByService,
    partition::Grouping,
    tag::{TagItem, rules_of},
    too_much_alone,
};

fn permission(items: &[Value]) -> Arc<Policy> {
    policy("MeshTrafficPermission", "a", &json!({ "from": items }))
}

fn allow(target: Value) -> Value {
    json!({"targetRef": target, "default": {"action": "Allow"}})
}

/// As it was before equal groups were taken together, without limits: with all subsets in one graph.
mod before {
    use std::{cmp::Reverse, collections::BTreeMap};

    use super::*;

    fn cliques(neighbours: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let (n, mut found) = (neighbours.len(), Vec::new());
        let joined = |a: usize, b: usize| neighbours[a].contains(&b);
        for set in 1_usize..1 << n {
            let members: Vec<usize> = (0..n).filter(|i| set & (1 << i) != 0).collect();
            let is_clique = members.iter().all(|a| members.iter().all(|b| a == b || joined(*a, *b)));
            let grows = |v: usize| !members.contains(&v) && members.iter().all(|m| joined(v, *m));
            if is_clique && !(0..n).any(grows) {
                found.push(members);
            }
        }
        found
    }

    fn components(neighbours: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let mut of: Vec<usize> = (0..neighbours.len()).collect();
        for _ in 0..neighbours.len() {
            for (a, near) in neighbours.iter().enumerate() {
                of[a] = near.iter().map(|b| of[*b]).chain([of[a]]).min().unwrap();
            }
        }
        let roots: Vec<usize> = (0..of.len()).filter(|i| of[*i] == *i).collect();
        roots.iter().map(|root| (0..of.len()).filter(|i| of[*i] == *root).collect()).collect()
    }

    fn combinations(values: &BTreeMap<String, Vec<String>>) -> Vec<Subset> {
        let count: usize = values.values().map(|v| v.len() + 1).product();
        let part = |number: usize| {
            let (mut number, mut tags) = (number, Vec::new());
            for (key, values) in values {
                let choice = number % (values.len() + 1);
                number /= values.len() + 1;
                match values.len().checked_sub(choice + 1) {
                    Some(i) => tags.push(Tag::is(key, &values[i])),
                    None => tags.extend(values.iter().map(|value| Tag::is_not(key, value))),
                }
            }
            Subset(tags)
        };
        (1..=count).map(|number| part(number % count)).collect()
    }

    fn partition(subsets: &[&Subset], grouping: Grouping) -> Vec<Subset> {
        let near = |a: usize| {
            (0..subsets.len()).filter(move |b| a != *b && subsets[a].intersects(subsets[*b])).collect()
        };
        let neighbours: Vec<Vec<usize>> = (0..subsets.len()).map(near).collect();
        let mut together = match grouping {
            Grouping::Overlapping => cliques(&neighbours),
            Grouping::Disjoint => components(&neighbours),
        };
        let text = |set: &Vec<usize>| set.iter().map(usize::to_string).collect::<Vec<_>>().join(":");
        together.sort_by_cached_key(|set| Reverse(text(set)));
        let mut parts = Vec::new();
        for members in together {
            let mut values: BTreeMap<String, Vec<String>> = BTreeMap::new();
            let mut tags: Vec<&Tag> = members.iter().flat_map(|i| &subsets[*i].0).collect();
            tags.sort();
            tags.dedup();
            for tag in tags {
                values.entry(tag.key.clone()).or_default().push(tag.value.clone());
            }
            parts.extend(combinations(&values));
        }
        parts
    }

    pub(super) fn build(items: &[(Subset, TagItem<'_>)], grouping: Option<Grouping>) -> Vec<TagRule> {
        let subsets: Vec<&Subset> = items.iter().map(|(subset, _)| subset).collect();
        let keys: std::collections::BTreeSet<&String> =
            subsets.iter().flat_map(|s| &s.0).map(|t| &t.key).collect();
        let near = ByService::of(subsets.iter().copied());
        let parts = if grouping.is_none() && keys.len() <= 1 {
            let mut seen = std::collections::BTreeSet::new();
            subsets.iter().copied().filter(|s| seen.insert(*s)).cloned().collect()
        } else {
            partition(&subsets, grouping.unwrap_or(Grouping::Overlapping))
        };
        let mut rules = Vec::new();
        for part in parts {
            let candidates = near.near(part.service()).map(|position| &items[position]);
            let relevant: Vec<TagItem<'_>> =
                candidates.filter(|(subset, _)| subset.covers(&part)).map(|(_, item)| *item).collect();
            rules.extend(rules_of(&part, &relevant, merge::Strategy::merge));
        }
        rules.sort_by_key(|rule: &TagRule| Reverse(rule.subset.positives()));
        rules
    }
}

/// Groups of few tags, so that many overlap and many are the same; some that nobody can be in.
fn targets() -> impl Strategy<Value = Value> {
    let tags = || prop::collection::btree_map("[ab]", "[xy]", 1..3);
    prop_oneof![
        2 => Just(json!({"kind": "Mesh"})),
        4 => tags().prop_map(|tags| json!({"kind": "MeshSubset", "tags": tags})),
        2 => "[st]".prop_map(|name| json!({"kind": "MeshService", "name": name})),
        2 => ("[st]", tags()).prop_map(|(name, tags)| json!({"kind": "MeshServiceSubset", "name": name, "tags": tags})),
        1 => ("[st]", "[st]").prop_map(|(name, other)| json!({"kind": "MeshServiceSubset", "name": name,
            "tags": {"kuma.io/service": other}})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn equal_groups_taken_together_come_to_the_same(
        targets in prop::collection::vec((targets(), 0..3_usize), 1..8),
        grouping in prop::sample::select(&[None, Some(Grouping::Overlapping), Some(Grouping::Disjoint)][..]),
    ) {
        let actions = ["Allow", "Deny", "AllowWithShadowDeny"];
        let items: Vec<Value> = targets
            .iter()
            .map(|(target, action)| json!({"targetRef": target, "default": {"action": actions[*action]}}))
            .collect();
        let policy = permission(&items);
        let items: Vec<_> = TagItem::all(&policy, &policy.from)
            .filter_map(|(item, at)| Some((Subset::of(&at.target)?, item)))
            .collect();
        let said = |rules: &[TagRule]| -> Vec<_> {
            let origin = |rule: &TagRule| rule.origins.iter().map(|o| o.index).collect::<Vec<_>>();
            rules.iter().map(|rule| (rule.subset.clone(), rule.conf.clone(), origin(rule))).collect()
        };
        let now = TagRules::build(&items, grouping).unwrap();
        prop_assert_eq!(said(&now.0), said(&before::build(&items, grouping)));
    }
}

/// Runs on a small stack, as threads that serve have.
fn on_a_small_stack<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::Builder::new().stack_size(256 << 10).spawn(work).unwrap().join().unwrap()
}

#[test]
fn what_says_the_same_again_and_again_costs_its_length() {
    let rules = on_a_small_stack(|| {
        let everybody = allow(json!({"kind": "Mesh"}));
        access_rules(&[permission(&vec![everybody; 25_000])]).unwrap()
    });
    assert_eq!(rules.0.len(), 1);
    assert_eq!(rules.0[0].conf, json!({"action": "Allow"}));
}

#[test]
fn more_services_than_a_mesh_has_are_told_apart() {
    let services = (0..5000).map(|i| allow(json!({"kind": "MeshService", "name": format!("s-{i}")})));
    let nobody = json!({"targetRef": {"kind": "Mesh"}, "default": {"action": "Deny"}});
    let all: Vec<Value> = [nobody].into_iter().chain(services).collect();
    let rules = access_rules(&[permission(&all)]).unwrap();
    let of = |name: &str| rules.service(name).unwrap().conf["action"].clone();
    assert_eq!((of("s-17"), of("other")), (json!("Allow"), json!("Deny")));
}

/// Subsets that all overlap each other, none like another.
fn overlapping(count: usize) -> Vec<Value> {
    let tags = |i: usize| -> Value {
        (0..13).filter(|bit| i & (1 << bit) != 0).map(|bit| (format!("k{bit}"), json!("v"))).collect()
    };
    (1..=count).map(|i| allow(json!({"kind": "MeshSubset", "tags": tags(i)}))).collect()
}

#[test]
fn what_would_take_too_long_is_refused() {
    let one_of_many = |i: usize| allow(json!({"kind": "MeshSubset", "tags": {"k": i.to_string()}}));
    let pairs = |i: usize| allow(json!({"kind": "MeshSubset", "tags": {format!("k{i}"): "v"}}));
    for items in [
        overlapping(8000),
        (0..20_000)
            .map(one_of_many)
            .chain([allow(json!({"kind": "MeshSubset", "tags": {"other": "v"}}))])
            .collect(),
        (0..5000).map(pairs).collect(),
    ] {
        let error = on_a_small_stack(move || access_rules(&[permission(&items)]).unwrap_err());
        assert!(matches!(error, RulesError::TooManySubsets { .. }), "{error}");
    }
    // A large configuration for every one of many groups.
    let many: Vec<Value> = (0..10)
        .map(|i| json!({"targetRef": {"kind": "MeshSubset", "tags": {format!("k{i}"): "v"}}, "default": {"http": [
            {"abort": {"httpStatus": 500, "percentage": 1}}]}}))
        .chain([json!({"targetRef": {"kind": "Mesh"}, "default": {"http": vec![json!({"abort": {"httpStatus": 500, "percentage": 1}}); 20_000]}})])
        .collect();
    let policy = policy("MeshFaultInjection", "a", &json!({ "from": many }));
    assert!(TagRules::of_clients(&[policy]).is_err());
}

#[test]
fn a_few_hundred_groups_that_all_overlap_are_told_apart() {
    let items = overlapping(511);
    let rules = TagRules::of_clients(&[permission(&items)]).unwrap();
    // Nine tags, each there or not; who has none is in no group.
    assert_eq!(rules.0.len(), 511);
}

#[test]
fn a_policy_for_a_route_has_no_more_items_than_can_be_told_apart() {
    let rule =
        |i: usize| json!({"matches": [{"path": {"type": "Exact", "value": format!("/{i}")}}], "default": {}});
    let rules: Vec<Value> = (0..1000).map(rule).collect();
    let route = resource(
        "MeshHTTPRoute",
        "r",
        &json!({"to": [{"targetRef": {"kind": "MeshService", "name": "web"}, "rules": rules}]}),
    );
    let destinations = Destinations::new(&[mesh(), route]);
    let timeouts = |count: usize| {
        let item = json!({"targetRef": {"kind": "Mesh"}, "default": {"http": {"requestTimeout": "1s"}}});
        policy(
            "MeshTimeout",
            "t",
            &json!({"targetRef": {"kind": "MeshHTTPRoute", "name": "r"}, "to": vec![item; count]}),
        )
    };
    assert!(to_rules(&[timeouts(2)], &destinations).is_ok());
    assert!(OutboundRules::new(&[timeouts(2)], &destinations).service("web").is_ok());
    let too_many = timeouts(1000);
    let error = to_rules(&[Arc::clone(&too_many)], &destinations).unwrap_err();
    assert!(matches!(error, RulesError::TooManySubsets { .. }), "{error}");
    let error = OutboundRules::new(&[too_many], &destinations).service("web").unwrap_err();
    assert!(matches!(error, RulesError::TooManySubsets { .. }), "{error}");
}

#[test]
fn what_alone_is_too_much_is_named_by_its_list() {
    let check = |kind: &str, spec: Value| {
        let kind = registry::by_name(kind).unwrap();
        let violations = too_much_alone(kind, spec.to_string().as_bytes());
        violations.iter().map(|v| v.field.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(check("MeshTrafficPermission", json!({"from": overlapping(100)})), [""; 0]);
    assert_eq!(check("MeshTrafficPermission", json!({"from": overlapping(8000)})), ["spec.from"]);
    let to: Vec<Value> = overlapping(8000)
        .into_iter()
        .map(|item| json!({"targetRef": item["targetRef"], "default": {"http": {"requestTimeout": "1s"}}}))
        .collect();
    assert_eq!(check("MeshTimeout", json!({"to": to})), ["spec.to"]);
    assert_eq!(check("Mesh", json!({})), [""; 0]);
}

#[test]
fn rules_with_many_conditions_cost_their_number() {
    let rule = |i: usize| {
        json!({"matches": [{"spiffeID": {"type": "Exact", "value": format!("spiffe://a/{}", i % 5000)}}],
            "default": {"http": [{"abort": {"httpStatus": 500, "percentage": i % 100}}]}})
    };
    let general = json!({"default": {"http": [{"delay": {"value": "1s", "percentage": 1}}]}});
    let rules: Vec<Value> = (0..10_000).map(rule).chain(vec![general; 10_000]).collect();
    let policy = policy("MeshFaultInjection", "a", &json!({"targetRef": {"kind": "Mesh"}, "rules": rules}));
    let rules = InboundRules::build(&[policy]);
    let conditional: Vec<(crate::policy::PeerMatch, Value)> = rules.conditional().unwrap();
    assert_eq!(conditional.len(), 5000);
}

#[test]
fn rules_for_clients_are_computed_once_for_all_who_have_the_same_policies() {
    let spec = json!({"from": [allow(json!({"kind": "Mesh"}))]});
    let kind = registry::by_name("MeshTrafficPermission").unwrap();
    let mut set = PolicySet::parse(kind, &[resource("MeshTrafficPermission", "a", &spec)]);
    let policies: Vec<Arc<Policy>> = set.policies.iter().cloned().collect();
    let key = InboundKey { address: "127.0.0.1".to_owned(), port: 80 };
    let selection = |set: &PolicySet, policies: &[Arc<Policy>]| Selection {
        clients: Arc::clone(&set.clients),
        ..Selection::of_inbound(key.clone(), policies.to_vec())
    };
    let first = selection(&set, &policies).access_rules(&key).unwrap();
    let again = selection(&set, &policies).access_rules(&key).unwrap();
    assert!(Arc::ptr_eq(&first, &again));
    assert!(!Arc::ptr_eq(&first, &selection(&set, &policies).client_rules(&key).unwrap()));
    drop((first, again));
    // What is gone is not kept.
    let held = Arc::downgrade(&policies[0]);
    set.remove(&policies[0].resource.key.clone());
    drop(policies);
    assert!(held.upgrade().is_none());
}
