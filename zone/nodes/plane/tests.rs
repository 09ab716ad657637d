#![allow(clippy::unwrap_used)]

use chrono::DateTime;
use common::{
    envoy_config::KIND,
    model::{Resource, ResourceKey},
};
use proptest::{collection::vec, prelude::*};
use serde_json::{Value, json};

use super::*;
use crate::generator::type_url;

fn config(name: &str, spec: &Value) -> (Arc<str>, Arc<RawConfig>) {
    let resource = Resource::new(ResourceKey::global(&KIND, name), DateTime::UNIX_EPOCH);
    let resource = Arc::new(resource.with_spec(spec.to_string().into_bytes()));
    (name.into(), Arc::new(RawConfig::new(&resource)))
}

/// A configuration with these clusters, each with a number that tells it from others of the name.
fn clusters(name: &str, id: &str, clusters: &[(&str, u8)]) -> (Arc<str>, Arc<RawConfig>) {
    let cluster =
        |(name, number): &(&str, u8)| json!({"name": name, "connect_timeout": format!("{number}s")});
    let clusters: Vec<Value> = clusters.iter().map(cluster).collect();
    config(name, &json!({"nodes": [{"id": id}], "clusters": clusters}))
}

fn node(id: &str) -> NodeTraits {
    NodeTraits { id: id.into(), cluster: "".into(), metadata: serde_json::Map::new() }
}

fn names(set: &ResourceSet) -> Vec<String> {
    set.of_type(type_url::CLUSTER).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn nodes_are_told_what_concerns_them_and_share_it() {
    let mut plane = Plane::default();
    let mut configs: RawConfigSet = [clusters("all", "*", &[("a", 1)])].into_iter().collect();
    assert!(plane.follow(&configs).is_empty());
    let (edge, other) = (plane.arrive(node("edge-1")), plane.arrive(node("core-1")));
    assert_eq!([names(&edge.set), names(&other.set)], [["a"], ["a"]]);
    assert!(edge.set.is_same(&other.set));

    configs.extend([clusters("edges", "edge-*", &[("b", 1)])]);
    plane.arrive(node("edge-2"));
    let told = plane.follow(&configs);
    let ids: Vec<&str> = told.iter().map(|one| &*one.id).collect();
    assert_eq!(ids, ["edge-1", "edge-2"]);
    assert_eq!(names(&told[0].set), ["a", "b"]);
    assert!(told[0].set.is_same(&told[1].set));

    plane.leave("edge-2");
    configs.remove("all");
    let told = plane.follow(&configs);
    assert_eq!(told.iter().map(|one| names(&one.set)).collect::<Vec<_>>(), [vec![], vec!["b".to_owned()]]);
    assert!(plane.follow(&configs).is_empty(), "nothing changed");
}

#[test]
fn who_comes_to_the_same_shares_it_and_what_nobody_has_is_forgotten() {
    let mut plane = Plane::default();
    let named = |names: &[&str]| -> RawConfigSet {
        names
            .iter()
            .map(|name| clusters(name, if *name == "all" { "*" } else { name }, &[(name, 1)]))
            .collect()
    };
    let mut configs = named(&["all", "one"]);
    plane.follow(&configs);
    let (one, two) = (plane.arrive(node("one")), plane.arrive(node("two")));
    assert!(!one.set.is_same(&two.set));
    configs.remove("one");
    let told = plane.follow(&configs);
    assert_eq!((told.len(), names(&told[0].set)), (1, vec!["all".to_owned()]));
    assert!(Arc::ptr_eq(&plane.nodes["one"].selection, &plane.nodes["two"].selection));

    // Each node has one of its own; others come and go.
    for round in 0..50 {
        let ids: Vec<String> = (0..20).map(|id| format!("{round}-{id}")).collect();
        let own: Vec<&str> = ids.iter().map(String::as_str).chain(["all"]).collect();
        plane.follow(&named(&own));
        ids.iter().for_each(|id| drop(plane.arrive(node(id))));
        assert_eq!(names(&plane.nodes[ids[0].as_str()].selection.set), [&ids[0][..], "all"]);
        ids.iter().for_each(|id| plane.leave(id));
    }
    assert!(plane.selections.known.len() <= 45, "{}", plane.selections.known.len());
}

#[test]
fn of_two_resources_with_one_name_the_first_is_served_and_the_other_told() {
    let mut plane = Plane::default();
    let both = [clusters("a", "*", &[("x", 1)]), clusters("b", "*", &[("x", 2), ("y", 1)])];
    let mut configs: RawConfigSet = both.into_iter().collect();
    plane.follow(&configs);
    let first = plane.arrive(node("n"));
    assert_eq!(names(&first.set), ["x", "y"]);
    let problem = "Cluster \"x\" of EnvoyConfig b is left out: EnvoyConfig a has one of this name";
    assert_eq!(*first.problems, [problem]);
    configs.remove("a");
    let [second] = &plane.follow(&configs)[..] else { panic!("one node is told") };
    assert_eq!(names(&second.set), ["x", "y"]);
    assert!(second.problems.is_empty());
    let version = |served: &ServedNode| served.set.get(type_url::CLUSTER, "x").map(|x| x.version);
    assert_ne!(version(&first), version(second));
}

#[test]
fn variants_of_a_resource_are_there_beside_each_other() {
    let of = |parameters: Value, seconds: u8| {
        let cluster = json!({"name": "a", "connect_timeout": format!("{seconds}s")});
        json!({"nodes": [{"id": "*"}], "parameters": parameters, "clusters": [cluster]})
    };
    let (prod, other) = (json!({"env": "prod"}), json!({"env": "test"}));
    let all =
        [("all", json!({}), 1), ("one", prod.clone(), 2), ("other", other, 3), ("twice", prod.clone(), 4)];
    let configs = all.map(|(name, parameters, seconds)| config(name, &of(parameters, seconds)));
    let mut plane = Plane::default();
    plane.follow(&configs.into_iter().collect());
    let served = plane.arrive(node("n"));
    assert_eq!(names(&served.set).len(), 3);
    let variant = common::xds::variant_name("a", &serde_json::from_value(prod).unwrap()).into_owned();
    let content = served.set.get(type_url::CLUSTER, &variant).unwrap().to_json().unwrap();
    assert_eq!((&content["name"], &content["connectTimeout"]), (&json!("a"), &json!("2s")));
    assert!(served.problems.len() == 1 && served.problems[0].contains("twice"), "{:?}", served.problems);
}

#[test]
fn what_cannot_be_read_is_left_out_and_told() {
    let spec = json!({"nodes": [{"id": "*"}], "clusters": [{"name": "a", "of": "tomorrow"}, {"name": "b"}]});
    let configs: RawConfigSet = [config("new", &spec)].into_iter().collect();
    let mut plane = Plane::default();
    plane.follow(&configs);
    let served = plane.arrive(node("n"));
    assert_eq!(names(&served.set), ["b"]);
    assert!(
        served.problems[0].starts_with("EnvoyConfig new: clusters[0] is left out: "),
        "{:?}",
        served.problems
    );
}

/// What changes: a configuration by number, whom it is for, and which clusters it has; none takes it away.
type Step = (u8, Option<(u8, Vec<(u8, u8)>)>);

proptest! {
    #[test]
    fn following_comes_to_what_looking_at_everything_does(
        steps in vec(vec((0..4_u8, proptest::option::of((0..3_u8, vec((0..4_u8, 0..3_u8), 0..4)))), 1..3), 1..12)
    ) {
        let ids = ["edge-1", "edge-2", "core"];
        let mut plane = Plane::default();
        let mut served: BTreeMap<Arc<str>, ServedNode> =
            ids.iter().map(|id| plane.arrive(node(id))).map(|one| (Arc::clone(&one.id), one)).collect();
        let mut configs = RawConfigSet::new();
        for step in steps {
            let step: Vec<Step> = step;
            for (number, content) in step {
                let name = format!("config-{number}");
                match content {
                    None => { configs.remove(name.as_str()); }
                    Some((for_whom, content)) => {
                        let mut content = content;
                        content.dedup_by_key(|(name, _)| *name);
                        let content: Vec<(String, u8)> = content.iter().map(|(n, v)| (format!("c{n}"), *v)).collect();
                        let content: Vec<(&str, u8)> = content.iter().map(|(n, v)| (n.as_str(), *v)).collect();
                        let id = ["*", "edge-*", "core"][usize::from(for_whom)];
                        configs.extend([clusters(&name, id, &content)]);
                    }
                }
            }
            for one in plane.follow(&configs) {
                served.insert(Arc::clone(&one.id), one);
            }
            for id in ids {
                let mut fresh = Plane::default();
                fresh.follow(&configs);
                let expected = fresh.arrive(node(id));
                let versions = |set: &ResourceSet| -> Vec<_> {
                    set.of_type(type_url::CLUSTER).map(|(name, one)| (name.to_owned(), one.version)).collect()
                };
                prop_assert_eq!(versions(&served[id].set), versions(&expected.set));
                prop_assert_eq!(&served[id].problems, &expected.problems);
            }
        }
    }
}
