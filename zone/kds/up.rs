//! Which resources, in which form, this zone sends to global. Pure.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    kds::{
        filter::{self, Audience},
        headers::Upstream,
        mapper::{self, MapError},
        outgoing::{ChangedNames, Everything, OutgoingForm, OutgoingResources, SelectedTypes},
        serve::View,
    },
    model::{Resource, ResourceKey},
    store::index::Index,
    xds::{Collection, Name, Version, Want, Wanted},
};

/// The form of everything this zone owns.
pub(super) struct Upward {
    pub(super) zone: Arc<str>,
    pub(super) skip_prefixes: Vec<String>,
    /// The largest resource that can be sent, in bytes.
    pub(super) largest: usize,
}

impl OutgoingForm for Upward {
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
    outgoing: OutgoingResources,
    selected: SelectedTypes<Everything>,
    /// Says in each response where this zone stands; only for a global that expects it.
    stamped: bool,
}

impl OwnView {
    pub(super) fn new(form: Upward, stamped: bool, index: &Arc<Index>) -> Self {
        let outgoing = OutgoingResources::of(index, &form);
        let selected = SelectedTypes::of(&outgoing, &Everything);
        Self { form, outgoing, selected, stamped }
    }
}

impl View for OwnView {
    fn key_of(&self, type_name: &str, name: &str) -> Option<ResourceKey> {
        self.outgoing.get(type_name, name).map(|item| item.resource.key.clone())
    }

    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        let next = self.outgoing.moved_to(index, &self.form);
        let changed = next.changed_since(&self.outgoing);
        self.selected.advance(&next, &changed, &Everything);
        self.outgoing = next;
        changed
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        self.outgoing.withheld_from(&Everything)
    }
}

impl Want for OwnView {
    fn revision(&self) -> u64 {
        self.outgoing.index.revision
    }

    fn stamp(&self) -> String {
        if !self.stamped {
            return String::new();
        }
        Upstream::new(self.outgoing.index.store, self.revision()).to_text()
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.selected.of_type(type_url).each_version(visit);
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.selected.of_type(type_url).get(name)
    }

    fn collection(&self, type_url: &str) -> Option<Arc<dyn Collection>> {
        Some(Arc::clone(self.selected.of_type(type_url)) as Arc<dyn Collection>)
    }
}
