//! What is looked up equals what looking at everything finds, and what is kept up to date equals what is
//! made anew.

use proptest::{collection::vec, prelude::*};

use super::{
    world::{KIND, destination, policy_resource, proxy},
    *,
};
use crate::{
    model::ResourceKey,
    policy::{
        TargetKind,
        rules::{
            by_service::ByService,
            overlap::{DistinctGroups, OverlapBudget},
            tag::TagItem,
        },
    },
};

/// What is known of one kind of policy and of the destinations.
#[derive(Clone)]
struct Scene {
    set: PolicySet,
    destinations: Destinations,
}

/// A change: something is written, or what has its key goes.
#[derive(Clone, Debug)]
struct Edit(Arc<Resource>, bool);

fn edit(resource: impl Strategy<Value = Arc<Resource>>) -> impl Strategy<Value = Edit> {
    (resource, proptest::bool::weighted(0.8)).prop_map(|(resource, written)| Edit(resource, written))
}

impl Scene {
    fn new() -> Self {
        Self { set: PolicySet::new(registry::by_name(KIND).unwrap()), destinations: Destinations::default() }
    }

    fn of(policies: &[Arc<Resource>], destinations: &[Arc<Resource>]) -> Self {
        let kind = registry::by_name(KIND).unwrap();
        Self { set: PolicySet::parse(kind, policies), destinations: Destinations::new(destinations) }
    }

    fn apply(&mut self, Edit(resource, written): &Edit) -> PolicyChange {
        if resource.kind().name != KIND {
            let _ = if *written {
                self.destinations.insert(resource)
            } else {
                self.destinations.remove(&resource.key)
            };
            return PolicyChange::default();
        }
        if *written { self.set.insert(resource) } else { self.set.remove(&resource.key) }
    }

    fn select(&self, proxy: &SelectableProxy) -> Selection {
        Selection::of(&self.set, proxy, &self.destinations, false)
    }

    /// Everything that may be asked for, and what nobody wrote about.
    fn targets(&self) -> (Vec<&'static str>, Vec<Kri>) {
        let services = vec!["web", "api", "other", "web_shop_svc_80", ""];
        let resources = self
            .destinations
            .all()
            .flat_map(|d| ["", "80", "http", "81"].map(|section| d.kri.clone().with_section(section)));
        (services, resources.chain([kri("nobody", "east", "80")]).collect())
    }
}

fn key(policy: &Arc<Policy>) -> (ResourceKey, usize) {
    (policy.resource.key.clone(), Arc::as_ptr(policy).addr())
}

fn shown(selection: &Selection) -> impl PartialEq + std::fmt::Debug + use<> {
    let keys = |policies: &[Arc<Policy>]| policies.iter().map(key).collect::<Vec<_>>();
    let inbounds: Vec<_> = selection.inbounds.iter().map(|(k, p)| (k.clone(), keys(p))).collect();
    let listeners: Vec<_> = selection.listeners.iter().map(|(k, p)| (k.clone(), keys(p))).collect();
    (keys(&selection.policies), inbounds, listeners, selection.warnings.clone())
}

fn origins<'a>(origins: impl IntoIterator<Item = &'a RuleOrigin>) -> Vec<(ResourceKey, usize)> {
    origins.into_iter().map(|o| (o.policy.resource.key.clone(), o.index)).collect()
}

fn tag_rule(rule: &TagRule) -> impl PartialEq + std::fmt::Debug + use<> {
    let by_matches: Vec<_> = rule.origin_by_matches.keys().cloned().collect();
    (rule.subset.clone(), rule.conf.clone(), origins(&rule.origins), by_matches)
}

fn resource_rule(rule: &ResourceRule) -> impl PartialEq + std::fmt::Debug + use<> {
    let resource = rule.resource.key.clone();
    (resource, rule.section.clone(), rule.confs.clone(), origins(&rule.origins))
}

/// All groups, by looking at every item for each.
fn naive_rules(items: &[(Subset, TagItem<'_>)], grouping: Option<partition::Grouping>) -> Vec<TagRule> {
    let subsets: Vec<&Subset> = items.iter().map(|(subset, _)| subset).collect();
    let keys: std::collections::BTreeSet<&str> =
        subsets.iter().flat_map(|s| &s.0).map(|t| t.key.as_str()).collect();
    let parts: Vec<Subset> = if grouping.is_none() && keys.len() <= 1 {
        let mut seen = HashSet::new();
        subsets.iter().filter(|s| seen.insert(**s)).map(|s| Subset::clone(s)).collect()
    } else {
        // An index of groups that are all confined to nothing has them all near each other.
        let blind = ByService::of(vec![&Subset::default(); subsets.len()]);
        // Equal ones are not taken together either.
        let positions = (0..subsets.len()).map(|i| vec![i]).collect();
        let groups = DistinctGroups { subsets, positions };
        let grouping = grouping.unwrap_or(partition::Grouping::Overlapping);
        partition::partition(&groups, &blind, grouping, &mut OverlapBudget::default()).unwrap()
    };
    let rules = parts.iter().flat_map(|part| {
        let relevant = items.iter().filter(|(subset, _)| subset.covers(part));
        tag::rules_of(part, &relevant.map(|(_, item)| *item).collect::<Vec<_>>(), Merge::merge)
    });
    let mut rules: Vec<TagRule> = rules.collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(rule.subset.positives()));
    rules
}

/// What an item points at, by looking at every destination.
fn naive_resolve<'a>(
    all: &'a Destinations,
    policy: &Resource,
    target: &TargetRef,
) -> Vec<(&'a TargetResource, String)> {
    // Of several with one identifier the last is meant.
    let meant = all.all().filter(|d| !all.all().any(|e| e.kri == d.kri && e.resource.key > d.resource.key));
    let parts: Vec<&str> = target.name().split('_').collect();
    let tag = match parts[..] {
        _ if target.kind != TargetKind::MeshService || !target.section().is_empty() => None,
        [name, namespace, _] => Some((name, namespace, None)),
        [name, namespace, _, port] => port.parse::<u32>().ok().map(|port| (name, namespace, Some(port))),
        _ => None,
    };
    let is_meant = |d: &&TargetResource| {
        let r = &d.resource;
        if target.kind.name() != r.kind().name {
            return false;
        }
        if target.kind == TargetKind::Mesh {
            return r.name() == policy.mesh();
        }
        let came = policy.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL);
        let speaks = came && policy.label(labels::POLICY_ROLE) == Some("producer");
        if speaks && policy.label(labels::ZONE).is_some_and(|zone| r.label(labels::ZONE) != Some(zone)) {
            return false;
        }
        if let Some((name, namespace, _)) = tag {
            return r.label(labels::DISPLAY_NAME) == Some(name)
                && r.label(labels::NAMESPACE) == Some(namespace);
        }
        if let Some(wanted) = target.labels() {
            return wanted.iter().all(|(key, value)| r.labels.get(key) == Some(value));
        }
        let namespace = target.namespace().or_else(|| policy.label(labels::NAMESPACE)).unwrap_or_default();
        let zone = policy.label(labels::ZONE).unwrap_or_default();
        let same = d.kri.name == target.name() && d.kri.mesh == policy.mesh();
        same && d.kri.zone == zone && d.kri.namespace == namespace
    };
    let port = tag.and_then(|(_, _, port)| port);
    let section = |d: &TargetResource| {
        if target.section().is_empty() && port.is_none() {
            return Some(String::new());
        }
        let Some(ports) = &d.ports else { return Some(String::new()) };
        let by_name = |p: &ServicePort| {
            p.name == target.section() || (p.name.is_empty() && target.section() == p.port.to_string())
        };
        let found = ports.iter().find(|p| port.map_or_else(|| by_name(p), |number| p.port == number));
        found.map(ServicePort::section)
    };
    meant.filter(is_meant).filter_map(|d| section(d).map(|s| (d, s))).collect()
}

/// The rules for destinations, all and one by one, agree.
fn assert_same_rules(lazy: &OutboundRules, eager: &Result<ToRules, RulesError>, world: &Scene) {
    let (services, resources) = world.targets();
    for name in services {
        let found = lazy.service(name);
        match (&found, eager) {
            (Ok(found), Ok(eager)) => {
                assert_eq!(found.as_ref().map(tag_rule), eager.tags.service(name).map(tag_rule), "{name}");
            }
            (found, eager) => assert_eq!(found.is_err(), eager.is_err(), "{name}"),
        }
    }
    for kri in resources {
        match (&lazy.resource(&kri, &world.destinations), eager) {
            (Ok(found), Ok(eager)) => {
                let expected = eager.resources.lookup(&kri);
                assert_eq!(found.as_ref().map(resource_rule), expected.map(resource_rule), "{kri}");
                let own = lazy.own(&kri, &world.destinations).unwrap();
                assert_eq!(own.is_some(), eager.resources.0.contains_key(&kri), "{kri}");
            }
            (found, eager) => assert_eq!(found.is_err(), eager.is_err(), "{kri}"),
        }
    }
}

proptest! {
    #[test]
    fn groups_are_those_that_looking_at_every_item_gives(
        targets in vec((target(), conf()), 0..7),
        grouping in proptest::option::of(select(vec![partition::Grouping::Overlapping, partition::Grouping::Disjoint])),
        tags in (select(vec!["x", "y"]), select(vec!["web", "api", "db"])),
    ) {
        let from: Vec<Value> = targets.iter().map(|(target, conf)| json!({"targetRef": target, "default": conf})).collect();
        let policy = policy("MeshFaultInjection", "a", &json!({"from": from}));
        let items: Vec<(Subset, TagItem<'_>)> = TagItem::all(&policy, &policy.from)
            .filter_map(|(item, at)| Subset::of(&at.target).map(|subset| (subset, item)))
            .collect();
        let rules = TagRules::build(&items, grouping).unwrap();
        let naive = naive_rules(&items, grouping);
        prop_assert_eq!(rules.0.iter().map(tag_rule).collect::<Vec<_>>(), naive.iter().map(tag_rule).collect::<Vec<_>>());
        let element = |service: bool| {
            let mut element = Element::from([("env".to_owned(), tags.0.to_owned())]);
            if service {
                element.insert(labels::TAG_SERVICE.to_owned(), tags.1.to_owned());
            }
            element
        };
        for element in [Element::new(), element(false), element(true)] {
            let expected = naive.iter().find(|rule| rule.subset.contains(&element));
            prop_assert_eq!(rules.lookup(&element).map(tag_rule), expected.map(tag_rule));
        }
    }

    #[test]
    fn a_proxy_finds_all_policies_that_select_it(
        policies in vec(policy_resource(false), 0..8),
        destinations in vec(destination(), 0..4),
        proxy in proxy(),
    ) {
        let world = Scene::of(&policies, &destinations);
        let found = world.select(&proxy);
        let naive = Selection::among(&world.set.policies, &proxy, &world.destinations, false);
        prop_assert_eq!(shown(&found), shown(&naive));
        let reaches = proxy.reaches();
        for policy in &world.set.policies {
            let reached = reaches.contains(&policy.reach());
            prop_assert!(!policy.may_select(&proxy) || reached);
            let selected = naive.policies.iter().any(|p| Arc::ptr_eq(p, policy));
            prop_assert!(!selected || policy.may_select(&proxy), "{:?}", policy.top);
        }
    }

    #[test]
    fn a_selection_kept_up_to_date_is_that_made_anew(
        edits in vec(edit(policy_resource(false)), 1..12),
        destinations in vec(destination(), 0..4),
        proxy in proxy(),
    ) {
        let mut world = Scene::of(&[], &destinations);
        let mut kept = world.select(&proxy);
        for edit in &edits {
            let change = world.apply(edit);
            kept.apply(&change, &world.set, &proxy, &world.destinations, false);
            prop_assert_eq!(shown(&kept), shown(&world.select(&proxy)));
        }
    }

    #[test]
    fn what_an_item_points_at_is_found(
        edits in vec(edit(destination()), 0..12),
        policies in vec(policy_resource(false), 1..4),
    ) {
        let mut world = Scene::new();
        for edit in &edits {
            world.apply(edit);
        }
        let resources: Vec<Arc<Resource>> = world.destinations.all().map(|d| Arc::clone(&d.resource)).collect();
        let anew = Destinations::new(&resources);
        prop_assert!(world.destinations.are_of(&resources));
        for policy in &Scene::of(&policies, &[]).set.policies {
            for item in &policy.to {
                let shown = |found: Vec<(&TargetResource, String)>| {
                    found.into_iter().map(|(d, s)| (d.resource.key.clone(), s)).collect::<Vec<_>>()
                };
                let found = shown(world.destinations.resolve(&policy.resource, &item.target));
                prop_assert_eq!(&found, &shown(naive_resolve(&anew, &policy.resource, &item.target)));
                prop_assert_eq!(&found, &shown(anew.resolve(&policy.resource, &item.target)));
            }
            for name in ["r1", "r2", "web"] {
                let found = world.destinations.route(&policy.resource, name).map(|d| &d.resource.key);
                let routes = || resources.iter().filter(|r| r.kind().name == "MeshHTTPRoute");
                let foreign = |r: &Resource| {
                    let own = r.label(labels::ZONE) == policy.resource.label(labels::ZONE);
                    r.label(labels::ZONE).is_some() && !own
                        && r.label(labels::ORIGIN) == Some(labels::ORIGIN_GLOBAL)
                        && r.label(labels::POLICY_ROLE) == Some("producer")
                };
                let expected = routes()
                    .find(|r| destinations::is_referenced(&policy.resource, name, r) && !foreign(r));
                prop_assert_eq!(found, expected.map(|r| &r.key));
            }
        }
    }

    /// Edits of policies and destinations in any order; in the end, and on the way, each destination gets
    /// what the rules of all of them have for it, and who was not named in the differences gets the same.
    #[test]
    fn rules_on_demand_are_the_rules_of_all(
        plain in proptest::bool::ANY,
        edits in (vec(edit(policy_resource(true)), 1..8), vec(edit(policy_resource(false)), 1..8)),
        destinations in vec(destination(), 0..5),
        late in vec(edit(destination()), 0..3),
        proxy in proxy(),
    ) {
        let mut world = Scene::of(&[], &destinations);
        let edits = if plain { edits.0 } else { edits.1 };
        let mut kept = OutboundRules::default();
        for edit in edits.iter().chain(&late) {
            let before = (kept.clone(), world.clone());
            let change = world.apply(edit);
            let selection = world.select(&proxy);
            let selected = |policy: &Arc<Policy>| selection.policies.iter().any(|p| Arc::ptr_eq(p, policy));
            kept.apply(&PolicyChange { after: change.after.filter(selected), ..change }, &world.destinations);
            if edit.0.kind().name != KIND {
                // A route may be what makes a policy select the proxy.
                kept.follow_routes(&world.destinations);
                let gone: Vec<_> = kept.policies().filter(|p| !selected(p)).cloned().collect();
                gone.iter().for_each(|policy| kept.remove(policy));
                selection.policies.iter().for_each(|policy| kept.insert(policy, &world.destinations));
            }
            prop_assert!(kept.policies().map(key).eq(selection.policies.iter().map(key)));
            assert_same_rules(&kept, &to_rules(&selection.policies, &world.destinations), &world);
            if edit.0.kind().name == KIND {
                assert_no_others_differ(&before.0, &kept, &world);
            }
        }
    }
}

/// Whoever is not among the differences gets the same answer from both.
fn assert_no_others_differ(before: &OutboundRules, after: &OutboundRules, world: &Scene) {
    let Concern::Some(concerned) = before.differences(after, &world.destinations) else { return };
    let (services, resources) = world.targets();
    for name in
        services.into_iter().filter(|name| !concerned.contains(&PointedAt::Service((*name).to_owned())))
    {
        let answer = |rules: &OutboundRules| rules.service(name).map(|r| r.as_ref().map(tag_rule)).ok();
        assert_eq!(answer(before), answer(after), "{name}");
    }
    let whole = |kri: &Kri| PointedAt::Resource(kri.clone().with_section(""));
    for kri in resources.iter().filter(|kri| !concerned.contains(&whole(kri))) {
        let answer = |rules: &OutboundRules| {
            rules.resource(kri, &world.destinations).map(|r| r.as_ref().map(resource_rule)).ok()
        };
        assert_eq!(answer(before), answer(after), "{kri}");
    }
}

#[test]
fn edits_leave_nothing_behind() {
    let kind = registry::by_name(KIND).unwrap();
    let written = |i: u32| {
        let to = json!([{"targetRef": {"kind": "MeshService", "name": "web"}, "default": {"healthyThreshold": i}}]);
        resource(KIND, "edited", &json!({"to": to}))
    };
    let others: Vec<Arc<Resource>> =
        (0..3).map(|i| resource(KIND, &format!("other-{i}"), &json!({"to": []}))).collect();
    let mut set = PolicySet::parse(kind, &others);
    let destinations = Destinations::new(&[mesh()]);
    let document = json!({"type": "Dataplane", "mesh": "default", "name": "web", "networking": {
        "address": "10.0.0.1", "inbound": [{"port": 80, "tags": {labels::TAG_SERVICE: "web"}}]}});
    let dataplane =
        crate::document::Document::parse(&document).unwrap().into_resource(DateTime::<Utc>::MIN_UTC);
    let proxy = SelectableProxy::of(&dataplane).unwrap().unwrap();
    let mut rules = OutboundRules::new(&set.policies, &destinations);
    let mut parsed = Vec::new();
    let mut computed = Vec::new();
    for i in 0..10_000 {
        let change = set.insert(&written(i));
        rules.apply(&change, &destinations);
        parsed.extend(change.after.iter().map(Arc::downgrade));
        let selection = Selection::of(&set, &proxy, &destinations, false);
        let all = selection.to_rules(&destinations).unwrap();
        assert_eq!(all.tags.service("web").unwrap().conf, rules.service("web").unwrap().unwrap().conf);
        computed.push(Arc::downgrade(&all));
    }
    assert_eq!(parsed.len(), 10_000);
    assert_eq!(parsed.iter().filter(|policy| policy.strong_count() > 0).count(), 1);
    assert_eq!(computed.iter().filter(|rules| rules.strong_count() > 0).count(), 1);
    set.remove(&written(0).key);
    rules.remove(&parsed.last().unwrap().upgrade().unwrap());
    assert_eq!(parsed.iter().filter(|policy| policy.strong_count() > 0).count(), 0);
    assert_eq!(computed.iter().filter(|rules| rules.strong_count() > 0).count(), 0);
}
