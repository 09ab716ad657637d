//! Rules for groups of proxies by tags: clients of an inbound, or destinations that are no resources.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Element, Policy, PolicyItem, RuleOrigin, RulesError, Subset,
    by_service::ByService,
    decode_conf, distinct,
    merge::Strategy,
    overlap::{DistinctGroups, OverlapBudget, weight},
    partition::{Grouping, partition},
};
use crate::{
    model::{SpecError, labels},
    policy::mesh_http_route::matches_hash,
};

/// One group with its configuration.
#[derive(Clone, Debug)]
pub struct TagRule {
    /// The group.
    pub subset: Subset,
    /// The merged configuration.
    pub conf: Value,
    /// Which policies it came from, each once.
    pub origins: Vec<RuleOrigin>,
    /// For HTTP routes: which policy contributed the rule with these matches, by their hash.
    pub origin_by_matches: BTreeMap<String, RuleOrigin>,
}

impl TagRule {
    /// The configuration in the type of its kind.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn conf<C: DeserializeOwned>(&self) -> Result<C, SpecError> {
        decode_conf(&self.conf)
    }
}

/// All groups that must be told apart, most specific first. The list is not to be changed: a lookup looks
/// at those confined to a service and those confined to none, by their positions.
#[derive(Clone, Debug, Default)]
pub struct TagRules(pub Vec<TagRule>, ByService);

/// An item of a policy's list.
#[derive(Clone, Copy, Debug)]
pub(super) struct TagItem<'a> {
    pub(super) policy: &'a Arc<Policy>,
    pub(super) index: usize,
    pub(super) conf: &'a Value,
}

impl<'a> TagItem<'a> {
    /// Those of one `list` of `policy`, each with what stands in the list.
    pub(super) fn all(
        policy: &'a Arc<Policy>,
        list: &'a [PolicyItem],
    ) -> impl Iterator<Item = (Self, &'a PolicyItem)> {
        let item =
            move |(index, item): (usize, &'a PolicyItem)| (Self { policy, index, conf: &item.conf }, item);
        list.iter().enumerate().map(item)
    }

    pub(super) fn origin(&self) -> RuleOrigin {
        RuleOrigin { policy: Arc::clone(self.policy), index: self.index }
    }
}

impl TagRules {
    /// The rule for a proxy with these tags.
    pub fn lookup(&self, element: &Element) -> Option<&TagRule> {
        let service = element.get(labels::TAG_SERVICE).map(String::as_str);
        let rules = self.1.near(service).map(|position| &self.0[position]);
        rules.into_iter().find(|rule| rule.subset.contains(element))
    }

    /// The rule for the service of this name.
    pub fn service(&self, name: &str) -> Option<&TagRule> {
        self.lookup(&Element::from([(labels::TAG_SERVICE.to_owned(), name.to_owned())]))
    }

    /// The rules for the clients that `from` lists of `policies` tell apart, with negations. `policies`
    /// are in order.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways.
    pub fn of_clients(policies: &[Arc<Policy>]) -> Result<Self, RulesError> {
        Self::build(&client_items(policies), Some(Grouping::Overlapping))
    }

    /// The same in groups of which none overlaps another. There are more of them.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways.
    pub fn of_disjoint_clients(policies: &[Arc<Policy>]) -> Result<Self, RulesError> {
        Self::build(&client_items(policies), Some(Grouping::Disjoint))
    }

    /// The rules for the clients that policies with `to` lists tell apart, as who stands for one of the destinations
    /// sees them: a policy says of all its proxies what it says of `callee`. `policies` are in order.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the policies overlap in too many ways.
    pub fn of_callers(policies: &[Arc<Policy>], callee: &Element) -> Result<Self, RulesError> {
        let items = policies.iter().flat_map(|policy| TagItem::all(policy, &policy.to));
        let meant =
            items.filter(|(item, at)| item.policy.group(at).is_some_and(|subset| subset.contains(callee)));
        let grouped = meant.filter_map(|(item, _)| Some((Subset::of(&item.policy.top)?, item)));
        Self::build(&grouped.collect::<Vec<_>>(), Some(Grouping::Overlapping))
    }

    /// Whether a client may be in two of the groups, as far as can be told: where there are too many to be held against
    /// each other it is taken for granted.
    pub fn may_overlap(&self) -> bool {
        let subsets: Vec<&Subset> = self.0.iter().map(|rule| &rule.subset).collect();
        let mut pairs =
            subsets.iter().enumerate().flat_map(|(i, a)| subsets[i + 1..].iter().map(move |b| (a, b)));
        let mut effort = OverlapBudget::default();
        pairs.any(|(a, b)| effort.compare(a, b).is_err() || a.overlaps(b))
    }

    /// The rules that come of `items`, each with the group it is for. Without a `grouping` negations are
    /// avoided where they can be.
    pub(super) fn build(
        items: &[(Subset, TagItem<'_>)],
        grouping: Option<Grouping>,
    ) -> Result<Self, RulesError> {
        if items.is_empty() {
            return Ok(Self::default());
        }
        let mut effort = OverlapBudget::default();
        let groups = DistinctGroups::of(items.iter().map(|(subset, _)| subset));
        let keys: BTreeSet<&str> = groups.subsets.iter().flat_map(|s| &s.0).map(|t| t.key.as_str()).collect();
        let near = ByService::of(groups.subsets.iter().copied());
        // Values of a single tag exclude each other, so without negations they need no partition.
        let parts = if grouping.is_none() && keys.len() <= 1 {
            let mut seen = BTreeSet::new();
            groups.subsets.iter().copied().filter(|s| seen.insert(*s)).cloned().collect()
        } else {
            partition(&groups, &near, grouping.unwrap_or(Grouping::Overlapping), &mut effort)?
        };
        let weights: Vec<usize> = items.iter().map(|(_, item)| weight(item.conf)).collect();
        let mut rules = Vec::new();
        for part in parts {
            let mut positions: Vec<usize> = Vec::new();
            for group in near.near(part.service()) {
                effort.compare(groups.subsets[group], &part)?;
                if groups.subsets[group].covers(&part) {
                    positions.extend(&groups.positions[group]);
                }
            }
            effort.spend(positions.iter().map(|position| weights[*position]).sum())?;
            positions.sort_unstable();
            let relevant: Vec<TagItem<'_>> = positions.iter().map(|position| items[*position].1).collect();
            rules.extend(rules_of(&part, &relevant, Strategy::merge));
        }
        rules.sort_by_key(|rule: &TagRule| Reverse(rule.subset.positives()));
        let index = ByService::of(rules.iter().map(|rule| &rule.subset));
        Ok(Self(rules, index))
    }
}

fn client_items(policies: &[Arc<Policy>]) -> Vec<(Subset, TagItem<'_>)> {
    let items = policies.iter().flat_map(|policy| TagItem::all(policy, &policy.from));
    items.filter_map(|(item, at)| Subset::of(&at.target).map(|subset| (subset, item))).collect()
}

/// The rule for a group from all items that apply to it: one, or one per host name for HTTP routes of
/// gateways.
pub(super) fn rules_of(
    part: &Subset,
    relevant: &[TagItem<'_>],
    merge: impl FnOnce(Strategy, &[&Value]) -> Vec<Value>,
) -> Vec<TagRule> {
    let Some(first) = relevant.first() else { return Vec::new() };
    let strategy = first.policy.strategy();
    let confs: Vec<&Value> = relevant.iter().map(|i| i.conf).collect();
    let origins = distinct(relevant.iter().map(TagItem::origin), false);
    let origin_by_matches = by_matches(strategy, relevant);
    let rule = |conf| TagRule {
        subset: part.clone(),
        conf,
        origins: origins.clone(),
        origin_by_matches: origin_by_matches.clone(),
    };
    merge(strategy, &confs).into_iter().map(rule).collect()
}

/// Which item contributed the rule with which matches; later items replace earlier ones.
pub(super) fn by_matches(strategy: Strategy, items: &[TagItem<'_>]) -> BTreeMap<String, RuleOrigin> {
    let mut origins = BTreeMap::new();
    if strategy != Strategy::HttpRoute {
        return origins;
    }
    for item in items {
        for rule in item.conf.get("rules").and_then(Value::as_array).into_iter().flatten() {
            let matches = rule.get("matches").cloned().unwrap_or_default();
            // Policies are decoded before they get here, so their matches decode too.
            if let Ok(matches) = serde_json::from_value::<Vec<_>>(matches) {
                origins.insert(matches_hash(&matches), item.origin());
            }
        }
    }
    origins
}
