//! Rules for outbound traffic.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;

use super::{
    Destinations, Policy, PolicyItem, ResourceRules, RulesError, Subset, TagRules, overlap::OverlapBudget,
    tag::TagItem,
};
use crate::{
    model::{SpecError, kri::Kri},
    policy::{
        TargetKind, TargetRef,
        mesh_http_route::{HttpRouteTo, matches_hash},
    },
};

/// The tag by which rules for a single HTTP route are told apart, its value the hash of the matches.
pub const MATCHES_HASH_TAG: &str = "__rule-matches-hash__";

/// What an item for one rule of a route costs, in steps: there is one for each rule and each item of the policy.
const ITEM: usize = 512;

/// What policies of one kind say about the destinations of a proxy.
#[derive(Clone, Debug, Default)]
pub struct ToRules {
    /// For services known by their tag only.
    pub tags: TagRules,
    /// For destinations that are resources.
    pub resources: ResourceRules,
}

impl ToRules {
    /// The configuration for a service known by its tag only.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn service<C: DeserializeOwned>(&self, name: &str) -> Result<Option<C>, SpecError> {
        self.tags.service(name).map(|rule| rule.conf()).transpose()
    }

    /// The configuration for a destination that is a resource, or one port of it.
    ///
    /// # Errors
    /// [`SpecError`] when the merged configuration does not decode.
    pub fn resource<C: DeserializeOwned>(&self, kri: &Kri) -> Result<Option<C>, SpecError> {
        self.resources.lookup(kri).map_or(Ok(None), |rule| rule.conf())
    }
}

/// The rules of `policies`, which are of one kind, select the same proxy and are in order.
///
/// # Errors
/// [`RulesError`] when targets overlap in too many ways or a policy is for a route that does not exist.
pub fn to_rules(policies: &[Arc<Policy>], destinations: &Destinations) -> Result<ToRules, RulesError> {
    let mut items = Vec::new();
    let mut effort = OverlapBudget::default();
    for policy in policies {
        let of_policy = tag_items(policy, destinations)?;
        if policy.is_for_route() {
            effort.spend(ITEM * of_policy.len())?;
        }
        items.extend(of_policy);
    }
    let others: Vec<Arc<Policy>> = policies.iter().filter(|p| !p.is_for_route()).cloned().collect();
    Ok(ToRules {
        tags: TagRules::build(&items, None)?,
        resources: ResourceRules::build(&others, destinations),
    })
}

/// The items of `policy` for groups of destinations by tags, each with the group.
pub(super) fn tag_items<'a>(
    policy: &'a Arc<Policy>,
    all: &Destinations,
) -> Result<Vec<(Subset, TagItem<'a>)>, RulesError> {
    // Items for single routes have no meaning among tags, and their neighbours go with them.
    if policy.is_guest() || policy.to.iter().any(|item| item.target.kind == TargetKind::MeshHttpRoute) {
        return Ok(Vec::new());
    }
    let own = || TagItem::all(policy, &policy.to);
    if !policy.is_for_route() {
        let group = |(item, at): (TagItem<'a>, &PolicyItem)| policy.group(at).map(|subset| (subset, item));
        return Ok(own().filter_map(group).collect());
    }
    let missing = || RulesError::MissingRoute {
        route: policy.top.name().to_owned(),
        policy: policy.resource.key.to_string(),
    };
    let route = all.route(&policy.resource, policy.top.name()).and_then(|d| d.route.as_ref());
    let mut items = Vec::new();
    let mut effort = OverlapBudget::default();
    for to in &route.ok_or_else(missing)?.to {
        for rule in &to.rules {
            effort.spend(ITEM * (1 + policy.to.len()))?;
            if let Some(subset) = Subset::of(&route_target(to, &matches_hash(&rule.matches))) {
                items.extend(own().map(|(item, _)| (subset.clone(), item)));
            }
        }
    }
    Ok(items)
}

/// One rule of a route as a group of destinations.
fn route_target(to: &HttpRouteTo, hash: &str) -> TargetRef {
    let tags = Some(BTreeMap::from([(MATCHES_HASH_TAG.to_owned(), hash.to_owned())]));
    match to.target_ref.kind {
        TargetKind::Mesh | TargetKind::MeshSubset => {
            TargetRef { tags, ..TargetRef::of(TargetKind::MeshSubset) }
        }
        _ => TargetRef {
            name: to.target_ref.name.clone(),
            tags,
            ..TargetRef::of(TargetKind::MeshServiceSubset)
        },
    }
}
