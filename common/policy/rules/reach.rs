//! Whom a policy may be for, as one key: what a proxy must have at least for the policy to select it. With
//! it policies are found by proxy, and proxies by policy, without asking each of them.

use std::collections::{BTreeMap, BTreeSet};

use imbl::OrdMap;
use serde_json::Value;

use super::{
    Policy, SelectableProxy,
    select::{in_namespace, in_zone},
};
use crate::{
    model::{Resource, labels, names},
    policy::{PolicyRole, ProxyType, TargetKind, TargetRef},
};

/// The one thing a proxy must have to be selected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Nothing at all: wherever it is and whatever it is, it is told the same.
    Alike,
    /// Nothing in particular, though where it is may count, or what it is.
    Everybody,
    /// Whatever the `MeshHTTPRoute` asks for that the policy is for; of a route that does not exist
    /// everybody has to be told.
    Route,
    /// This name.
    Named(String),
    /// This label.
    Labelled(String, String),
    /// This tag on an inbound, a listener of its gateway or as a gateway; `*` stands for any value.
    Tagged(String, String),
    /// A builtin gateway of this name, hashed.
    Gateway(String),
}

const ANY: &str = "*";

impl Policy {
    /// What a proxy must have for this policy to select it.
    pub fn reach(&self) -> Reach {
        if self.selects_alike() { Reach::Alike } else { reach(&self.resource, &self.top) }
    }

    /// Whether it is for everybody who can be selected, or for nobody.
    pub fn selects_alike(&self) -> bool {
        let top = &self.top;
        let everybody = match top.kind {
            TargetKind::Mesh => {
                top.includes(ProxyType::Sidecar)
                    && top.includes(ProxyType::Gateway)
                    && top.tags().next().is_none()
            }
            TargetKind::Dataplane => {
                top.name().is_empty()
                    && top.namespace().is_none()
                    && top.labels.is_none()
                    && top.section().is_empty()
            }
            _ => false,
        };
        let everywhere = match PolicyRole::of(&self.resource) {
            PolicyRole::Producer => !self.is_guest() || self.speaks_for_services(),
            PolicyRole::System => self.resource.label(labels::ORIGIN) != Some(labels::ORIGIN_ZONE),
            PolicyRole::Consumer | PolicyRole::WorkloadOwner => false,
        };
        everybody && everywhere
    }

    /// Whether it says something of inbounds, or of the proxy as a whole: a collector, wherever it is named,
    /// is reached by one cluster of the proxy, and what leaves the mesh passes one listener of it.
    pub fn speaks_of_inbounds(&self) -> bool {
        let logs = || self.to.iter().any(|item| logs(&item.conf));
        !self.from.is_empty() || !self.rules.is_empty() || self.default.is_some() || logs()
    }

    /// Whether it is for `proxy` as far as the policy and the proxy alone say. When it is not, it is not;
    /// when it is, the rest of what it asks for decides.
    pub fn may_select(&self, proxy: &SelectableProxy) -> bool {
        !self.overreaches(proxy)
            && in_zone(&self.resource, proxy)
            && in_namespace(&self.resource, proxy)
            && proxy.is_in(&self.reach())
    }
}

/// Whether what is merged for an item says where something is logged, or that it is not.
fn logs(conf: &Value) -> bool {
    conf.get("backends").is_some_and(Value::is_array)
}

impl SelectableProxy {
    /// Every reach it is in, so that a policy that selects it has one of these.
    pub fn reaches(&self) -> BTreeSet<Reach> {
        let owned = |key: &String, value: &String| (key.clone(), value.clone());
        let mut reaches = BTreeSet::from([
            Reach::Alike,
            Reach::Everybody,
            Reach::Route,
            Reach::Named(self.kri.name.clone()),
        ]);
        for (key, value) in &self.labels {
            reaches.insert(Reach::Labelled(key.to_owned(), value.to_owned()));
        }
        for (key, value) in self.tag_sets().flatten() {
            let (key, value) = owned(key, value);
            reaches.insert(Reach::Tagged(key.clone(), ANY.to_owned()));
            reaches.insert(Reach::Tagged(key, value));
        }
        reaches.extend(self.gateway_names().map(Reach::Gateway));
        reaches
    }

    /// Whether `reach` is one of [`SelectableProxy::reaches`].
    fn is_in(&self, reach: &Reach) -> bool {
        match reach {
            Reach::Alike | Reach::Everybody | Reach::Route => true,
            Reach::Named(name) => self.kri.name == *name,
            Reach::Labelled(key, value) => self.labels.get(key) == Some(value),
            Reach::Tagged(key, value) => {
                let has = |tags: &BTreeMap<String, String>| {
                    tags.get(key).is_some_and(|v| value == ANY || v == value)
                };
                self.tag_sets().any(has)
            }
            Reach::Gateway(name) => self.gateway_names().any(|known| known == *name),
        }
    }

    /// All tags by which policies select it, or a part of it.
    fn tag_sets(&self) -> impl Iterator<Item = &BTreeMap<String, String>> {
        let inbounds = self.inbounds.iter().filter(|i| !i.zone_listener).map(|i| &i.tags);
        let listeners = self.gateway.iter().flat_map(|g| &g.listeners).map(|(_, tags)| tags);
        let delegated = self.delegated_gateway.then_some(&self.gateway_tags);
        inbounds.chain(listeners).chain(delegated)
    }

    /// What hashing a name of its gateway that a policy may use gives. Policy and gateway may have travelled
    /// apart, so that one knows the name and the other its hash, which is why hashes are compared.
    fn gateway_names(&self) -> impl Iterator<Item = String> {
        self.gateway.iter().flat_map(|gateway| {
            let (core, display) = (gateway.resource.name(), gateway.resource.display_name());
            let hash = |name: &str| hashed(&gateway.resource, name);
            [core.to_owned(), hash(core), hash(&hash(core)), hash(display)]
        })
    }
}

fn reach(policy: &Resource, top: &TargetRef) -> Reach {
    let label = |(key, value): (&str, &str)| Reach::Labelled(key.to_owned(), value.to_owned());
    let tag = |(key, value): (&str, &str)| Reach::Tagged(key.to_owned(), value.to_owned());
    let service = (labels::TAG_SERVICE, top.name());
    match top.kind {
        TargetKind::MeshHttpRoute => Reach::Route,
        TargetKind::Dataplane => match &top.labels {
            Some(wanted) => most_telling(wanted.iter().map(|(k, v)| (k.as_str(), v.as_str()))).map(label),
            None if top.name().is_empty() => None,
            None => Some(Reach::Named(top.name().to_owned())),
        }
        .unwrap_or(Reach::Everybody),
        TargetKind::MeshGateway => Reach::Gateway(hashed(policy, top.name())),
        TargetKind::Mesh | TargetKind::MeshSubset => most_telling(top.tags()).map_or(Reach::Everybody, tag),
        TargetKind::MeshService => tag(service),
        TargetKind::MeshServiceSubset => {
            most_telling(std::iter::once(service).chain(top.tags())).map_or_else(|| tag(service), tag)
        }
        // Of these there is nothing to select, which everybody is told.
        TargetKind::MeshExternalService | TargetKind::MeshMultiZoneService => Reach::Everybody,
    }
}

fn hashed(resource: &Resource, name: &str) -> String {
    names::hashed(resource.mesh(), name, None, None)
}

/// Of some requirements, all of which must be met, the one that probably fewest meet.
pub fn most_telling<'a>(
    requirements: impl Iterator<Item = (&'a str, &'a str)>,
) -> Option<(&'a str, &'a str)> {
    // Names are unlike each other and long; what the control plane says of everybody is neither.
    let names = [labels::TAG_SERVICE, labels::DISPLAY_NAME, labels::WORKLOAD];
    let telling = |(key, value): &(&str, &str)| {
        let subject = match key {
            _ if names.contains(key) => 2,
            _ if key.contains("kuma.io/") => 0,
            _ => 1,
        };
        (*value != ANY, subject, value.len())
    };
    requirements.max_by_key(telling)
}

/// Values found by a [`Reach`], each under an identity of its own. Cloning is cheap.
#[derive(Clone, Debug)]
pub struct ReachIndex<K: Clone + Ord, V: Clone>(OrdMap<(Reach, Option<K>), V>);

impl<K: Clone + Ord, V: Clone> Default for ReachIndex<K, V> {
    fn default() -> Self {
        Self(OrdMap::new())
    }
}

impl<K: Clone + Ord, V: Clone> ReachIndex<K, V> {
    /// Files `value` under `reach`, in place of what has the same identity there.
    pub fn insert(&mut self, reach: Reach, id: K, value: V) -> Option<V> {
        self.0.insert((reach, Some(id)), value)
    }

    /// Takes out what is filed under `reach` with this identity.
    pub fn remove(&mut self, reach: Reach, id: K) -> Option<V> {
        self.0.remove(&(reach, Some(id)))
    }

    /// What is filed under `reach`, in order of identity.
    pub fn at(&self, reach: &Reach) -> impl Iterator<Item = &V> {
        // No identity comes before all others.
        let filed = self.0.range((reach.clone(), None)..);
        filed.take_while(move |((filed, _), _)| filed == reach).map(|(_, value)| value)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
