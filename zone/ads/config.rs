//! What one proxy should have, in the form the engine reads.

use std::sync::Arc;

use common::xds::{Collection, Name, Version, Want, Wanted};

use crate::generator::{Encoded, FewChanges, OfType, ResourceSet};

/// A finished configuration and the revision of the store it was made from.
#[derive(Clone, Debug)]
pub struct ProxyConfig {
    revision: u64,
    /// By which the answers of proxies are counted; 0 where nobody does.
    number: u64,
    set: ResourceSet,
}

impl ProxyConfig {
    /// The configuration `set`, made from the store at `revision`.
    pub fn new(revision: u64, set: ResourceSet) -> Self {
        Self { revision, number: 0, set }
    }

    /// The same under the number it is published with.
    pub fn numbered(self, number: u64) -> Self {
        Self { number, ..self }
    }

    /// The number it was published with; 0 when it has none.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Its resources.
    pub fn resources(&self) -> &ResourceSet {
        &self.set
    }

    /// How this differs from `older`, by name where it is not more than `most` names of a type.
    pub fn few_changes_since(&self, older: &Self, most: usize) -> FewChanges {
        self.set.few_changes_since(&older.set, most)
    }

    /// The names of a type whose content differs from `older`.
    pub fn changed_since(&self, type_url: &str, older: &OfType) -> Vec<Name> {
        self.set.collection(type_url).changes_since(older).collect()
    }
}

impl Want for ProxyConfig {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.set.collection(type_url).versions().for_each(|(name, version)| visit(name, version));
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        Collection::get(self.set.kept(type_url)?, name)
    }

    fn collection(&self, type_url: &str) -> Option<Arc<dyn Collection>> {
        Some(self.set.collection(type_url))
    }
}

impl Collection for OfType {
    fn get(&self, name: &str) -> Option<Wanted> {
        self.stored_as(name).map(|stored| told(self, stored))
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.version(name)
    }

    fn each(&self, visit: &mut dyn FnMut(Wanted)) {
        self.stored().for_each(|(_, stored)| visit(told(self, stored)));
    }

    fn under(&self, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        Self::under(self, prefix).for_each(|resource| visit(wanted(&resource)));
    }

    fn len(&self) -> usize {
        self.len()
    }
}

/// One that is kept in `resources`, as it is told to their proxy.
fn told(resources: &OfType, stored: &Encoded) -> Wanted {
    let (version, value) = resources.content(stored);
    Wanted {
        name: Arc::clone(&stored.name),
        version,
        type_url: stored.type_url,
        value,
        own_version: stored.own_version.clone(),
        on_demand: stored.on_demand,
    }
}

/// A resource as a stream tells it.
pub(super) fn wanted(resource: &Encoded) -> Wanted {
    Wanted {
        name: Arc::clone(&resource.name),
        version: resource.version,
        type_url: resource.type_url,
        value: resource.value.clone(),
        own_version: resource.own_version.clone(),
        on_demand: resource.on_demand,
    }
}
