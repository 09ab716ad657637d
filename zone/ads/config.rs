//! What one proxy should have, in the form the engine reads.

use std::{collections::BTreeMap, sync::Arc};

use common::xds::{Name, Version, Want, Wanted};

use crate::generator::ResourceSet;

/// A finished configuration and the revision of the store it was made from.
#[derive(Clone, Debug)]
pub struct Config {
    revision: u64,
    set: ResourceSet,
}

impl Config {
    /// The configuration `set`, made from the store at `revision`.
    pub fn new(revision: u64, set: ResourceSet) -> Self {
        Self { revision, set }
    }

    /// Its resources.
    pub fn resources(&self) -> &ResourceSet {
        &self.set
    }

    /// The names whose content differs between `older` and this, by type.
    pub fn changed_since(&self, older: &Self) -> BTreeMap<&'static str, Vec<Name>> {
        let changes = self.set.changes_since(&older.set);
        changes.0.into_iter().map(|(type_url, names)| (type_url, names.into_iter().collect())).collect()
    }
}

impl Want for Config {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        for (_, resource) in self.set.of_type(type_url) {
            visit(&resource.name, resource.version);
        }
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        let resource = self.set.get(type_url, name)?;
        Some(Wanted {
            name: Arc::clone(&resource.name),
            version: resource.version,
            type_url: resource.type_url,
            value: resource.value.clone(),
        })
    }
}
