//! A finished configuration: every resource encoded once, with a version that is a hash of its content.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use common::{proto::google::protobuf::Any, xds::Version};
use prost::{Message, Name};

use super::encode;

/// Type URLs of the resource types a proxy asks for.
pub mod type_url {
    /// Clusters.
    pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    /// Endpoints of clusters.
    pub const ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    /// Listeners.
    pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    /// Routes of listeners.
    pub const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    /// Certificates, keys and trusted CAs.
    pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    /// All of them, in the order in which a proxy should receive them: what is referred to comes first.
    pub const ALL: [&str; 5] = [CLUSTER, ENDPOINT, SECRET, LISTENER, ROUTE];
}

/// One resource, ready to be sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Encoded {
    /// Name within its type.
    pub name: Arc<str>,
    /// Which type.
    pub type_url: &'static str,
    /// Encoded message.
    pub value: Bytes,
    /// Hash of the content: equal content has an equal version, in every process.
    pub version: Version,
    /// Which part of the generator made it.
    pub origin: &'static str,
}

impl Encoded {
    /// Encodes `message`.
    pub fn new<M: Message + Name>(
        name: &str,
        type_url: &'static str,
        origin: &'static str,
        message: &M,
    ) -> Self {
        let value = encode::stable(type_url, message);
        Self { name: name.into(), type_url, version: Version::of(&value), value: value.into(), origin }
    }

    /// The packed form.
    pub fn any(&self) -> Any {
        Any { type_url: self.type_url.to_owned(), value: self.value.to_vec() }
    }

    /// The JSON form, for people.
    ///
    /// # Errors
    /// [`encode::JsonError`] for a type without descriptor.
    pub fn to_json(&self) -> Result<serde_json::Value, encode::JsonError> {
        encode::to_json(self.type_url, &self.value)
    }
}

type ByName = BTreeMap<Arc<str>, Arc<Encoded>>;

/// Names whose resource appeared, changed or went, by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes(pub BTreeMap<&'static str, BTreeSet<Arc<str>>>);

impl Changes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(BTreeSet::is_empty)
    }

    /// Those of one type.
    pub fn of(&self, type_url: &str) -> impl Iterator<Item = &str> {
        self.0.get(type_url).into_iter().flatten().map(|name| &**name)
    }
}

/// Everything one proxy gets. Immutable; cloning shares the encoded bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSet {
    /// Those of one type are shared between versions of a configuration that differ in others.
    types: BTreeMap<&'static str, Arc<ByName>>,
}

impl ResourceSet {
    /// Adds `resource`, replacing one of the same type and name.
    pub(super) fn insert(&mut self, resource: Arc<Encoded>) {
        let by_name = self.types.entry(resource.type_url).or_default();
        Arc::make_mut(by_name).insert(Arc::clone(&resource.name), resource);
    }

    /// Resources of one type, by name.
    pub fn of_type(&self, type_url: &str) -> impl ExactSizeIterator<Item = (&str, &Arc<Encoded>)> {
        static NONE: ByName = ByName::new();
        self.types
            .get(type_url)
            .map_or(&NONE, |all| &**all)
            .iter()
            .map(|(name, resource)| (&**name, resource))
    }

    /// One resource.
    pub fn get(&self, type_url: &str, name: &str) -> Option<&Arc<Encoded>> {
        self.types.get(type_url)?.get(name)
    }

    /// All resources, by type, then name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Encoded>> {
        self.types.values().flat_map(|all| all.values())
    }

    /// What differs from `previous`.
    pub fn changes_since(&self, previous: &Self) -> Changes {
        let mut changes = Changes::default();
        let none = Arc::default();
        let types: BTreeSet<&'static str> = self.types.keys().chain(previous.types.keys()).copied().collect();
        for type_url in types {
            let new = self.types.get(type_url).unwrap_or(&none);
            let old = previous.types.get(type_url).unwrap_or(&none);
            if Arc::ptr_eq(new, old) {
                continue;
            }
            let gone = old.keys().filter(|name| !new.contains_key(*name));
            let differs = |(name, resource): &(&Arc<str>, &Arc<Encoded>)| {
                old.get(*name)
                    .is_none_or(|known| !Arc::ptr_eq(known, resource) && known.version != resource.version)
            };
            let changed = new.iter().filter(differs).map(|(name, _)| name);
            let names: BTreeSet<Arc<str>> = gone.chain(changed).cloned().collect();
            if !names.is_empty() {
                changes.0.insert(type_url, names);
            }
        }
        changes
    }
}
