//! Rules for outbound traffic, one destination at a time.
//!
//! The rules of all destinations ([`super::ToRules`]) cost what all policies say. Here the items of the
//! policies are filed by what they point at, so that the rule of one destination is merged from the items
//! that apply to it, and a policy that changes costs its own items.

mod concern;
mod items;

use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;

pub use concern::{Concern, PointedAt};
use items::{Filed, Ranked, ResourceItems, TagItems};

use super::{
    Destinations, Element, Policy, PolicyChange, ResourceRule, RulesError, TagRule, memo::Parsed,
    resource::mesh_of,
};
use crate::model::{kri::Kri, labels};

/// What policies of one kind that select the same proxy say about its destinations, merged on demand. The
/// policies apply in their whole order, whatever the order in which they come. Cloning is cheap.
#[derive(Clone, Debug, Default)]
pub struct OutboundRules {
    policies: OrdMap<Ranked, Parsed>,
    tags: TagItems,
    resources: ResourceItems,
    /// Policies for routes that do not exist, or have too many rules for them, with what is wrong.
    unusable: OrdMap<Ranked, RulesError>,
}

impl OutboundRules {
    /// Of `policies`, which are of one kind and select the same proxy.
    pub fn new<'a>(policies: impl IntoIterator<Item = &'a Arc<Policy>>, destinations: &Destinations) -> Self {
        let mut rules = Self::default();
        for policy in policies {
            rules.insert(policy, destinations);
        }
        rules
    }

    /// Takes in what a policy says. `destinations` are asked for the route it is for, if it is for one: when
    /// routes change, see [`OutboundRules::follow_routes`].
    pub fn insert(&mut self, policy: &Arc<Policy>, destinations: &Destinations) {
        self.remove(policy);
        let ranked = Ranked(Arc::clone(policy));
        self.policies.insert(ranked.clone(), Parsed(Arc::clone(policy)));
        match Filed::of(policy, destinations) {
            Ok(filed) => self.tags.insert(&filed, policy),
            Err(error) => drop(self.unusable.insert(ranked, error)),
        }
        self.resources.insert(policy);
    }

    /// Forgets what a policy says.
    pub fn remove(&mut self, policy: &Arc<Policy>) {
        let ranked = Ranked(Arc::clone(policy));
        // Of a policy with the same key and rank, as an edit of its items leaves them, all goes.
        let Some(Parsed(known)) = self.policies.remove(&ranked) else { return };
        self.unusable.remove(&ranked);
        self.tags.remove(&known);
        self.resources.remove(&known);
    }

    /// Takes over what a change of one policy means for a proxy that both versions select.
    pub fn apply(&mut self, change: &PolicyChange, destinations: &Destinations) {
        if let Some(before) = &change.before {
            self.remove(before);
        }
        if let Some(after) = &change.after {
            self.insert(after, destinations);
        }
    }

    /// Looks up the routes that policies are for again. Without such policies this costs nothing.
    pub fn follow_routes(&mut self, destinations: &Destinations) {
        let for_routes: Vec<Arc<Policy>> = self.for_routes().cloned().collect();
        for policy in for_routes {
            self.insert(&policy, destinations);
        }
    }

    /// The policies, from least to most specific.
    pub fn policies(&self) -> impl Iterator<Item = &Arc<Policy>> {
        self.policies.values().map(|Parsed(policy)| policy)
    }

    /// The merged configuration of policies without lists.
    pub fn single(&self) -> Option<Value> {
        let confs: Vec<&Value> = self.policies().filter_map(|policy| policy.default.as_ref()).collect();
        self.policies().next()?.strategy().merge(&confs).into_iter().next()
    }

    /// The policies that are for a route.
    pub fn for_routes(&self) -> impl Iterator<Item = &Arc<Policy>> {
        // They are more specific than all others.
        self.policies
            .iter()
            .rev()
            .map(|(_, Parsed(policy))| policy)
            .take_while(|policy| policy.is_for_route())
    }

    /// The rule for a service known by its tag only.
    ///
    /// # Errors
    /// [`RulesError`] when targets overlap in too many ways or a policy is for a route that does not exist.
    pub fn service(&self, name: &str) -> Result<Option<TagRule>, RulesError> {
        self.lookup(&Element::from([(labels::TAG_SERVICE.to_owned(), name.to_owned())]))
    }

    /// The rule for destinations with these tags: a service, and the hash of the matches of a route
    /// ([`super::MATCHES_HASH_TAG`]).
    ///
    /// # Errors
    /// As [`OutboundRules::service`].
    pub fn lookup(&self, element: &Element) -> Result<Option<TagRule>, RulesError> {
        self.check()?;
        self.tags.lookup(element)
    }

    /// The rule for a destination that is a resource, or one port of it: that of its section, else of the
    /// whole, else of its mesh.
    ///
    /// # Errors
    /// As [`OutboundRules::service`].
    pub fn resource(
        &self,
        kri: &Kri,
        destinations: &Destinations,
    ) -> Result<Option<ResourceRule>, RulesError> {
        if let Some(rule) = self.own(kri, destinations)? {
            return Ok(Some(rule));
        }
        if !kri.section.is_empty()
            && let Some(rule) = self.own(&kri.clone().with_section(""), destinations)?
        {
            return Ok(Some(rule));
        }
        self.own(&mesh_of(kri), destinations)
    }

    /// The rule for exactly this destination and section: only what some item points at has one.
    ///
    /// # Errors
    /// As [`OutboundRules::service`].
    pub fn own(&self, kri: &Kri, destinations: &Destinations) -> Result<Option<ResourceRule>, RulesError> {
        self.check()?;
        let destination = destinations.get(kri);
        Ok(destination.and_then(|d| self.resources.rule(d, &kri.section, destinations)))
    }

    /// For which destinations the answer may be another than that of `other`, among `destinations` as they
    /// are. What is not the same there any more has to be asked for anyway.
    pub fn differences(&self, other: &Self, destinations: &Destinations) -> Concern {
        let mut concern = Concern::default();
        for changed in self.policies.diff(&other.policies) {
            use imbl::ordmap::DiffItem::{Add, Remove, Update};
            let policies = match changed {
                Add(_, Parsed(policy)) | Remove(_, Parsed(policy)) => vec![policy],
                Update { old: (_, Parsed(old)), new: (_, Parsed(new)) } => vec![old, new],
            };
            for policy in policies {
                concern.extend(policy.concern(destinations));
            }
        }
        let routes_differ =
            !self.unusable.ptr_eq(&other.unusable) && !self.unusable.iter().eq(other.unusable.iter());
        let overlap = self.tags.overlap() || other.tags.overlap();
        if routes_differ || (overlap && !concern.is_empty()) { Concern::All } else { concern }
    }

    /// # Errors
    /// What is wrong with the first policy whose route does not exist or has too many rules: rules without it would not
    /// be what somebody asked for.
    fn check(&self) -> Result<(), RulesError> {
        match self.unusable.values().next() {
            None => Ok(()),
            Some(error) => Err(error.clone()),
        }
    }
}
