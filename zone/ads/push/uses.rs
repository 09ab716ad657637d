//! Whose endpoints a proxy depends on.

use std::collections::BTreeSet;

use common::model::labels;

use crate::{
    generator::{ResourceSet, type_url},
    mesh::Dataplane,
};

/// The services a proxy was last configured for: those it may call and those its routes lead to.
#[derive(Debug, Default)]
pub(super) struct Uses(BTreeSet<String>);

impl Uses {
    /// Of this proxy with this configuration.
    pub(super) fn of(dataplane: &Dataplane, set: &ResourceSet) -> Self {
        let outbounds = dataplane.networking().outbound.iter();
        let called = outbounds.filter_map(|o| o.tags.get(labels::TAG_SERVICE).cloned());
        // Every cluster has endpoints, be it none, and is named after its service.
        let clusters = set.of_type(type_url::ENDPOINT).map(|(name, _)| name.to_owned());
        Self(called.chain(clusters).collect())
    }

    /// Whether a change of one of these services can be seen.
    pub(super) fn any(&self, services: &BTreeSet<String>) -> bool {
        services.iter().any(|service| {
            // A subset of the endpoints has a cluster of its own, named after the service and a digest.
            let subset = format!("{service}-");
            let next = self.0.range(subset.clone()..).next();
            self.0.contains(service) || next.is_some_and(|name| name.starts_with(&subset))
        })
    }
}
