//! Services that are resources, by the names and labels references have for them.

use std::{collections::BTreeMap, sync::Arc};

use common::model::{Resource, kinds::mesh_service::Port};
use imbl::{OrdMap, OrdSet};

use super::{Reference, ZoneService};

/// A service that references can mean.
pub trait Referable {
    /// The resource it was read from.
    fn resource(&self) -> &Arc<Resource>;
    /// The name its author gave it.
    fn authored_name(&self) -> &str;
    /// Whether it is one of another zone, which comes after those of this one.
    fn is_elsewhere(&self) -> bool;
    /// By which it is called.
    fn ports(&self) -> &[Port];

    /// The port a reference means; it may be left out where there is only one.
    fn port(&self, port: &str) -> Option<&Port> {
        match (port, self.ports()) {
            ("" | "0", [only]) => Some(only),
            (_, ports) => {
                ports.iter().find(|p| ZoneService::section(p) == port || p.port.to_string() == port)
            }
        }
    }
}

/// All services of a kind in a mesh. Cloning shares.
#[derive(Clone, Debug)]
pub struct Referables<S> {
    by_name: OrdMap<Arc<str>, Arc<S>>,
    /// By the name their author gave them, which those of several zones may share: in the order in which they are meant.
    by_authored: OrdMap<String, OrdSet<(bool, Arc<str>)>>,
    by_label: OrdMap<(String, String), OrdSet<Arc<str>>>,
}

impl<S> Default for Referables<S> {
    fn default() -> Self {
        Self { by_name: OrdMap::new(), by_authored: OrdMap::new(), by_label: OrdMap::new() }
    }
}

impl<S: Referable> Referables<S> {
    /// The one with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<S>> {
        self.by_name.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<S>> {
        self.by_name.values()
    }

    /// The service and port that a reference means, where one of this zone comes before those of others.
    pub fn find(&self, reference: &Reference) -> Option<(&Arc<S>, &Port)> {
        let service = match &reference.name {
            _ if !reference.labels.is_empty() => {
                self.labelled(&reference.labels).min_by_key(|service| service.is_elsewhere())
            }
            Some(name) => self.named(name),
            None => None,
        };
        let service = service?;
        service.port(&reference.port).map(|port| (service, port))
    }

    /// The service that a name means, whoever gave it. A zone may give one name to all of its services, so the others are not
    /// looked at.
    fn named(&self, name: &str) -> Option<&Arc<S>> {
        let first = self.by_authored.get(name).and_then(OrdSet::get_min);
        let authored = first.and_then(|(_, name)| self.by_name.get(name));
        let found = authored.into_iter().chain(self.by_name.get(name));
        // A label calls something what it likes: what has the name itself goes before what has it by that.
        found.min_by_key(|service| {
            let own = service.resource().name();
            (service.is_elsewhere(), own != name, own)
        })
    }

    /// All services that a reference may mean, with the ports it may mean: all of them where it names none.
    pub fn meant<'a>(&'a self, reference: &'a Reference) -> Vec<(&'a Arc<S>, &'a Port)> {
        let services: Vec<&Arc<S>> = match reference.name.as_deref().filter(|_| reference.labels.is_empty()) {
            Some(name) => self.named(name).into_iter().collect(),
            None => self.labelled(&reference.labels).collect(),
        };
        let wanted = |port: &&Port| {
            reference.port.is_empty()
                || ZoneService::section(port) == reference.port
                || port.port.to_string() == reference.port
        };
        let ports =
            |service: &'a Arc<S>| service.ports().iter().filter(wanted).map(move |port| (service, port));
        services.into_iter().flat_map(ports).collect()
    }

    /// Those that have all these labels, by name; none when there are no labels.
    pub fn labelled<'a, 'w>(
        &'a self,
        wanted: &'w BTreeMap<String, String>,
    ) -> impl Iterator<Item = &'a Arc<S>> + use<'a, 'w, S> {
        let sets = wanted.iter().map(|(key, value)| self.by_label.get(&(key.clone(), value.clone())));
        // Where nobody has one of them, nobody has all; the rarest leaves least to look at.
        let sets: Option<Vec<_>> = sets.collect();
        let rarest = sets.and_then(|sets| sets.into_iter().min_by_key(|set| set.len()));
        let found = rarest.into_iter().flatten().filter_map(|name| self.by_name.get(name));
        found.filter(move |service| {
            wanted.iter().all(|(key, value)| service.resource().label(key) == Some(value))
        })
    }

    /// Takes in what is known under `name` now; gives what was.
    pub(super) fn set(&mut self, name: &Arc<str>, service: Option<Arc<S>>) -> Option<Arc<S>> {
        let before = match &service {
            Some(service) => self.by_name.insert(Arc::clone(name), Arc::clone(service)),
            None => self.by_name.remove(name),
        };
        if let Some(before) = &before {
            let place = (before.is_elsewhere(), Arc::clone(name));
            leave(&mut self.by_authored, &before.authored_name().to_owned(), &place);
            for (key, value) in &before.resource().labels {
                leave(&mut self.by_label, &(key.to_owned(), value.to_owned()), name);
            }
        }
        if let Some(service) = &service {
            let authored = service.authored_name().to_owned();
            let place = (service.is_elsewhere(), Arc::clone(name));
            self.by_authored.entry(authored).or_default().insert(place);
            for (key, value) in &service.resource().labels {
                self.by_label.entry((key.to_owned(), value.to_owned())).or_default().insert(Arc::clone(name));
            }
        }
        before
    }
}

fn leave<K: Ord + Clone, V: Ord + Clone>(index: &mut OrdMap<K, OrdSet<V>>, key: &K, name: &V) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::model::{ResourceKey, kinds::mesh_service, labels};

    use super::*;

    #[test]
    fn a_name_means_what_has_it_and_not_what_a_label_calls_so() {
        let mut services = Referables::<ZoneService>::default();
        let mut put = |name: &str, zone: &str| {
            let key = ResourceKey::new(&mesh_service::KIND, "default", name);
            let service =
                Resource::new(key, DateTime::UNIX_EPOCH).with_spec(&br#"{"ports":[{"port":80}]}"#[..]);
            let service = service.with_label(labels::DISPLAY_NAME, "bank").with_label(labels::ZONE, zone);
            let service = ZoneService::read(&Arc::new(service), "east").unwrap();
            services.set(&name.into(), Some(Arc::new(service)));
            let reference = Reference {
                kind: mesh_service::KIND.name.to_owned(),
                name: Some("bank".to_owned()),
                labels: BTreeMap::new(),
                port: String::new(),
            };
            let found = services.find(&reference).map(|(service, _)| service.resource.name().to_owned());
            found.unwrap()
        };
        assert_eq!(put("aaa-of-stolen", "stolen"), "aaa-of-stolen");
        assert_eq!(put("aaa", "east"), "aaa", "what is here goes before");
        assert_eq!(put("bank", "east"), "bank");
        assert_eq!(put("aa", "east"), "bank");
    }
}
