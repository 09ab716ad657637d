//! Which resources, in which form, this zone sends to global. Pure.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    kds::{
        filter::{self, Audience},
        headers::Upstream,
        mapper::{self, MapError},
        serve::View,
        shelf::{self, ChangedNames, Form, Shelf},
    },
    model::Resource,
    store::index::Index,
    xds::{Name, Version, Want, Wanted},
};

/// The form of everything this zone owns.
pub(super) struct Upward {
    pub(super) zone: Arc<str>,
    pub(super) skip_prefixes: Vec<String>,
    /// The largest resource that can be sent, in bytes.
    pub(super) largest: usize,
}

impl Form for Upward {
    fn audiences(&self, resource: &Resource) -> Vec<Audience> {
        filter::goes_up(resource, &self.zone).then(Audience::default).into_iter().collect()
    }

    fn map(&self, resource: &Resource, _: &Audience) -> Result<Resource, MapError> {
        mapper::up(resource, &self.zone, &self.skip_prefixes)
    }

    fn largest(&self) -> usize {
        self.largest
    }
}

/// What global should hold of this zone.
pub(super) struct OwnView {
    form: Upward,
    shelf: Shelf,
    /// Says in each response where this zone stands; only for a global that expects it.
    stamped: bool,
}

impl OwnView {
    pub(super) fn new(form: Upward, stamped: bool, index: &Arc<Index>) -> Self {
        let shelf = Shelf::of(index, &form);
        Self { form, shelf, stamped }
    }
}

impl View for OwnView {
    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        let next = self.shelf.moved_to(index, &self.form);
        let changed = next.changed_since(&self.shelf);
        self.shelf = next;
        changed
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        shelf::reasons(self.shelf.withheld())
    }
}

impl Want for OwnView {
    fn revision(&self) -> u64 {
        self.shelf.index.revision
    }

    fn stamp(&self) -> String {
        if !self.stamped {
            return String::new();
        }
        Upstream::new(self.shelf.index.store, self.revision()).to_text()
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.shelf.list(type_url).for_each(|shelved| visit(&shelved.wanted.name, shelved.wanted.version));
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        Some(self.shelf.get(type_url, name)?.wanted.clone())
    }
}
