//! Rules for groups of proxies by tags: clients of an inbound, or destinations that are no resources.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{
    Element, Origin, Policy, RulesError, Subset, decode_conf, distinct,
    merge::Strategy,
    partition::{Grouping, partition},
};
use crate::{
    model::{SpecError, labels},
    policy::{TargetRef, mesh_http_route::matches_hash},
};

/// One group with its configuration.
#[derive(Clone, Debug)]
pub struct TagRule {
    /// The group.
    pub subset: Subset,
    /// The merged configuration.
    pub conf: Value,
    /// Which policies it came from, each once.
    pub origins: Vec<Origin>,
    /// For HTTP routes: which policy contributed the rule with these matches, by their hash.
    pub origin_by_matches: BTreeMap<String, Origin>,
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

/// All groups that must be told apart, most specific first.
#[derive(Clone, Debug, Default)]
pub struct TagRules(pub Vec<TagRule>);

/// An item with the policy it stands in.
#[derive(Clone, Debug)]
pub(super) struct Item<'a> {
    pub(super) policy: &'a Arc<Policy>,
    pub(super) index: usize,
    pub(super) target: TargetRef,
    pub(super) conf: &'a Value,
}

impl Item<'_> {
    pub(super) fn origin(&self) -> Origin {
        Origin { policy: Arc::clone(self.policy), index: self.index }
    }
}

impl TagRules {
    /// The rule for a proxy with these tags.
    pub fn lookup(&self, element: &Element) -> Option<&TagRule> {
        self.0.iter().find(|rule| rule.subset.contains(element))
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
        Self::build(client_items(policies), Some(Grouping::Overlapping))
    }

    /// The same in groups of which none overlaps another. There are more of them.
    ///
    /// # Errors
    /// [`RulesError::TooManySubsets`] when the lists overlap in too many ways.
    pub fn of_disjoint_clients(policies: &[Arc<Policy>]) -> Result<Self, RulesError> {
        Self::build(client_items(policies), Some(Grouping::Disjoint))
    }

    /// Items whose target cannot be told by tags are passed over. Without a `grouping` negations are
    /// avoided where they can be.
    pub(super) fn build(items: Vec<Item<'_>>, grouping: Option<Grouping>) -> Result<Self, RulesError> {
        let items: Vec<(Subset, Item<'_>)> =
            items.into_iter().filter_map(|i| Subset::of(&i.target).map(|s| (s, i))).collect();
        let keys: BTreeSet<&str> = items.iter().flat_map(|(s, _)| &s.0).map(|t| t.key.as_str()).collect();
        let subsets: Vec<Subset> = items.iter().map(|(s, _)| s.clone()).collect();
        if subsets.is_empty() {
            return Ok(Self::default());
        }
        // Values of a single tag exclude each other, so without negations they need no partition.
        let parts = if grouping.is_none() && keys.len() <= 1 {
            let mut seen = BTreeSet::new();
            subsets.into_iter().filter(|s| seen.insert(s.clone())).collect()
        } else {
            partition(&subsets, grouping.unwrap_or(Grouping::Overlapping))?
        };
        let mut rules: Vec<TagRule> = parts.into_iter().flat_map(|part| rules_of(part, &items)).collect();
        rules.sort_by_key(|rule| Reverse(rule.subset.positives()));
        Ok(Self(rules))
    }
}

fn client_items(policies: &[Arc<Policy>]) -> Vec<Item<'_>> {
    let items = policies.iter().flat_map(|policy| {
        policy.from.iter().enumerate().map(move |(index, item)| Item {
            policy,
            index,
            target: item.target.clone(),
            conf: &item.conf,
        })
    });
    items.collect()
}

fn rules_of(part: Subset, items: &[(Subset, Item<'_>)]) -> Vec<TagRule> {
    let relevant: Vec<&Item<'_>> = items.iter().filter(|(s, _)| s.covers(&part)).map(|(_, i)| i).collect();
    let Some(first) = relevant.first() else { return Vec::new() };
    let strategy = first.policy.strategy();
    let confs: Vec<&Value> = relevant.iter().map(|i| i.conf).collect();
    let origins = distinct(relevant.iter().map(|i| i.origin()), false);
    let origin_by_matches = by_matches(strategy, &relevant);
    let rule = |conf| TagRule {
        subset: part.clone(),
        conf,
        origins: origins.clone(),
        origin_by_matches: origin_by_matches.clone(),
    };
    strategy.merge(&confs).into_iter().map(rule).collect()
}

/// Which item contributed the rule with which matches; later items replace earlier ones.
pub(super) fn by_matches(strategy: Strategy, items: &[&Item<'_>]) -> BTreeMap<String, Origin> {
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
