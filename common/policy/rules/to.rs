//! Rules for outbound traffic.

use std::{collections::BTreeMap, sync::Arc};

use serde::de::DeserializeOwned;

use super::{Destinations, Policy, ResourceRules, RulesError, TagRules, tag::Item};
use crate::{
    model::{SpecError, kri::Kri},
    policy::{
        TargetKind, TargetRef,
        mesh_http_route::{To, matches_hash},
    },
};

/// The tag by which rules for a single HTTP route are told apart, its value the hash of the matches.
pub const MATCHES_HASH_TAG: &str = "__rule-matches-hash__";

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
    for policy in policies {
        // Items for single routes have no meaning among tags, and their neighbours go with them.
        if policy.to.iter().all(|item| item.target.kind != TargetKind::MeshHttpRoute) {
            items.extend(tag_items(policy, destinations)?);
        }
    }
    let for_routes = |policy: &&Arc<Policy>| policy.top.kind == TargetKind::MeshHttpRoute;
    let others: Vec<Arc<Policy>> = policies.iter().filter(|p| !for_routes(p)).cloned().collect();
    Ok(ToRules {
        tags: TagRules::build(items, None)?,
        resources: ResourceRules::build(&others, destinations),
    })
}

fn tag_items<'a>(policy: &'a Arc<Policy>, all: &Destinations) -> Result<Vec<Item<'a>>, RulesError> {
    let item = |index: usize, target| Item { policy, index, target, conf: &policy.to[index].conf };
    if policy.top.kind != TargetKind::MeshHttpRoute {
        let targets = policy.to.iter().map(|i| i.target.clone()).enumerate();
        return Ok(targets.map(|(index, target)| item(index, target)).collect());
    }
    let missing = || RulesError::MissingRoute {
        route: policy.top.name().to_owned(),
        policy: policy.resource.key.to_string(),
    };
    let route = all.route(&policy.resource, policy.top.name()).and_then(|d| d.route.as_ref());
    let mut items = Vec::new();
    for to in &route.ok_or_else(missing)?.to {
        for rule in &to.rules {
            let target = route_target(to, &matches_hash(&rule.matches));
            items.extend((0..policy.to.len()).map(|index| item(index, target.clone())));
        }
    }
    Ok(items)
}

/// One rule of a route as a group of destinations.
fn route_target(to: &To, hash: &str) -> TargetRef {
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
