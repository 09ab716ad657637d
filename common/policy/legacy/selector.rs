//! Selectors: tags that something must have.

use std::{cmp::Ordering, collections::BTreeMap};

use crate::{
    policy::{ProxyType, rules::SelectableProxy},
    proto::kuma::mesh::v1alpha1::Selector,
};

/// Tags of an inbound, a gateway or a service.
pub type Tags = BTreeMap<String, String>;

/// Stands for any value.
pub(super) const ANY: &str = "*";

/// How specific a selector is: by the number of its tags, then by how many of them ask for one value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rank {
    exact: usize,
    any: usize,
}

impl Rank {
    /// That of two selectors which both have to fit.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self { exact: self.exact + other.exact, any: self.any + other.any }
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        let total = |rank: &Self| rank.exact + rank.any;
        total(self).cmp(&total(other)).then_with(|| self.exact.cmp(&other.exact))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// How specific `selector` is.
pub fn rank(selector: &Selector) -> Rank {
    let any = selector.r#match.values().filter(|value| *value == ANY).count();
    Rank { exact: selector.r#match.len() - any, any }
}

/// Whether something with these tags is selected.
pub fn selects(selector: &Selector, tags: &Tags) -> bool {
    selector.r#match.iter().all(|(key, value)| tags.get(key).is_some_and(|own| value == ANY || value == own))
}

/// The rank of the most specific selector that fits one of several sets of tags.
pub(super) fn best(selectors: &[Selector], tag_sets: &[&Tags]) -> Option<Rank> {
    let fits = |selector: &&Selector| tag_sets.iter().any(|tags| selects(selector, tags));
    selectors.iter().filter(fits).map(rank).max()
}

/// The sets of tags a proxy has: one for each inbound, or one as a gateway.
pub fn tag_sets(proxy: &SelectableProxy) -> Vec<&Tags> {
    match proxy.kind {
        ProxyType::Gateway => vec![&proxy.gateway_tags],
        ProxyType::Sidecar => proxy.inbounds.iter().filter(|i| !i.zone_listener).map(|i| &i.tags).collect(),
    }
}
