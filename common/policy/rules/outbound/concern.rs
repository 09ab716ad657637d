//! Which destinations a policy is about.

use std::collections::BTreeSet;

use crate::{
    model::kri::Kri,
    policy::{
        TargetKind,
        rules::{Destinations, Policy, Subset, subset::Confined},
    },
};

/// Destinations for which something may have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Concern {
    /// All of them.
    All,
    /// These.
    Some(BTreeSet<PointedAt>),
}

/// A destination as an item of a policy may mean it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PointedAt {
    /// A service known by its tag only.
    Service(String),
    /// A resource, whichever port. A route stands for the requests that match its rules, whatever the
    /// destination.
    Resource(Kri),
}

impl Default for Concern {
    fn default() -> Self {
        Self::Some(BTreeSet::new())
    }
}

impl Concern {
    /// Whether there is no such destination.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Some(targets) if targets.is_empty())
    }

    /// Takes in those of another.
    pub fn extend(&mut self, other: Self) {
        match (&mut *self, other) {
            (Self::Some(targets), Self::Some(more)) => targets.extend(more),
            _ => *self = Self::All,
        }
    }
}

impl Policy {
    /// The destinations this policy says something about in `to`, among `destinations` as they are.
    pub fn concern(&self, destinations: &Destinations) -> Concern {
        if self.is_for_route() && !self.to.is_empty() {
            return Concern::All;
        }
        if self.default.is_some() {
            return Concern::All;
        }
        let mut targets = BTreeSet::new();
        for item in &self.to {
            match self.group(item).as_ref().map(Subset::confined) {
                Some(Confined::Nothing | Confined::Otherwise) => return Concern::All,
                Some(Confined::Service(name)) => drop(targets.insert(PointedAt::Service(name.to_owned()))),
                None => {}
            }
            let found = destinations.resolve(&self.resource, &item.target);
            targets.extend(found.into_iter().map(|(d, _)| PointedAt::Resource(d.kri.clone())));
        }
        Concern::Some(targets)
    }

    /// Whether it is for a route rather than for proxies.
    pub(in crate::policy::rules) fn is_for_route(&self) -> bool {
        self.top.kind == TargetKind::MeshHttpRoute
    }
}
