//! Which services a service of several zones is made of.

use std::{collections::BTreeMap, sync::Arc};

use common::model::labels;

use super::{Names, Trait};
use crate::share::{IdentitySize, PARTS_OF_ZONE, PartsShare};

/// What a service of several zones is made of.
#[derive(Debug)]
pub(super) struct Composition {
    /// The labels of all its parts.
    wanted: Vec<Trait>,
    /// The services that have them, by the zone they say they are of.
    parts: BTreeMap<Arc<str>, Names>,
}

impl Composition {
    /// Of services that have all these labels; none is known yet.
    pub(super) fn of(wanted: Vec<Trait>) -> Self {
        Self { wanted, parts: BTreeMap::new() }
    }

    /// One of the labels, if there is any.
    pub(super) fn first(&self) -> Option<&Trait> {
        self.wanted.first()
    }

    /// All there is in `zone`, and so many of each other zone, whose identities are of these sizes by name.
    pub(super) fn told(&self, zone: &str, sizes: &BTreeMap<Arc<str>, IdentitySize>) -> ComposedOf<'_> {
        let mut composed = ComposedOf::default();
        for (of, parts) in &self.parts {
            if of.is_empty() || **of == *zone {
                composed.names.extend(parts);
                continue;
            }
            let mut share = PartsShare::default();
            let size = |name: &Arc<str>| sizes.get(name).copied().unwrap_or_default();
            let before = composed.names.len();
            composed.names.extend(parts.iter().take(PARTS_OF_ZONE).filter(|name| share.takes(size(name))));
            let is_crowded = composed.names.len() - before < parts.len();
            composed.crowded = composed.crowded.or(is_crowded.then_some(&**of));
        }
        composed
    }

    /// Follows a service with these labels, if it is one of them.
    pub(super) fn join(&mut self, name: &Arc<str>, labels: &[Trait]) {
        // Without any label none is meant.
        if !self.wanted.is_empty() && self.wanted.iter().all(|one| labels.contains(one)) {
            self.parts.entry(zone_of(labels)).or_default().insert(Arc::clone(name));
        }
    }

    /// Forgets a service that had these labels.
    pub(super) fn leave(&mut self, name: &str, labels: &[Trait]) {
        let zone = zone_of(labels);
        if let Some(names) = self.parts.get_mut(&zone) {
            names.remove(name);
            if names.is_empty() {
                self.parts.remove(&zone);
            }
        }
    }
}

fn zone_of(labels: &[Trait]) -> Arc<str> {
    let zone = labels.iter().find_map(|one| match one {
        Trait::Label(key, value) if key == labels::ZONE => Some(value.as_str()),
        _ => None,
    });
    zone.unwrap_or_default().into()
}

/// What is said of what a service of several zones is made of.
#[derive(Debug, Default)]
pub(in crate::services) struct ComposedOf<'a> {
    /// Names of services.
    pub(in crate::services) names: Vec<&'a Arc<str>>,
    /// A zone that has more of them, which do not count.
    pub(in crate::services) crowded: Option<&'a str>,
}
