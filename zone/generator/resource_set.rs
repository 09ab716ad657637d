//! A finished configuration: every resource encoded once, with a version that is a hash of its content.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, LazyLock},
};

use bytes::Bytes;
use common::{
    envoy_rules::{self, BrokenRule},
    proto::google::protobuf::Any,
    xds::{OwnVersion, Version},
};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage};

use super::{
    encode,
    of_type::{EncodedResources, OfType, SharedOfType},
    particulars::Particulars,
    template::Template,
};
use crate::mesh::problem::EnvoyResource;

/// Type URLs of the resource types a proxy asks for.
pub mod type_url {
    pub use common::xds::envoy::{
        CLUSTER, ENDPOINTS as ENDPOINT, LISTENER, ROUTE, RUNTIME, SECRET, VIRTUAL_HOST,
    };

    /// All of them, in the order in which a proxy should receive them: what is referred to comes first.
    pub const ALL: [&str; 7] = [CLUSTER, ENDPOINT, SECRET, LISTENER, ROUTE, VIRTUAL_HOST, RUNTIME];
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
    /// What clients are told in place of the version.
    pub own_version: Option<Arc<OwnVersion>>,
    /// It is for who asks for it, and not for who asks for all of a route configuration.
    pub on_demand: bool,
    /// Where it has markers in place of the particulars of whoever is told.
    template: Option<Box<Template>>,
}

impl Encoded {
    /// Encodes `message`.
    pub fn new<M: Message + Name>(
        name: &str,
        type_url: &'static str,
        origin: &'static str,
        message: &M,
    ) -> Self {
        Self::of_bytes(name, type_url, origin, encode::stable(type_url, message))
    }

    /// Encodes a message of which only the descriptor is known.
    pub fn dynamic(
        name: &str,
        type_url: &'static str,
        origin: &'static str,
        message: &DynamicMessage,
    ) -> Self {
        Self::of_bytes(name, type_url, origin, encode::stable_as(&message.descriptor(), message))
    }

    /// What is encoded already.
    pub(crate) fn of_bytes(name: &str, type_url: &'static str, origin: &'static str, value: Vec<u8>) -> Self {
        let (version, value) = (Version::of(&value), Bytes::from(value));
        let template = Template::of(type_url, &value).map(Box::new);
        let (own_version, on_demand) = (None, false);
        Self { name: name.into(), type_url, version, value, origin, own_version, on_demand, template }
    }

    /// What another process encoded, at the version that it had there.
    pub(crate) fn restored(
        name: &str,
        type_url: &'static str,
        origin: &'static str,
        value: Vec<u8>,
        version: Version,
    ) -> Self {
        Self { version, template: None, ..Self::of_bytes(name, type_url, origin, value) }
    }

    /// As it is told to the proxy with these particulars.
    pub(super) fn filled(self: &Arc<Self>, particulars: &Particulars) -> Arc<Self> {
        if self.template.is_none() {
            return Arc::clone(self);
        }
        let (version, value) = self.content_for(particulars);
        Arc::new(Self {
            name: Arc::clone(&self.name),
            type_url: self.type_url,
            value,
            version,
            origin: self.origin,
            own_version: self.own_version.clone(),
            on_demand: self.on_demand,
            template: None,
        })
    }

    /// Version and message of that.
    pub(super) fn content_for(&self, particulars: &Particulars) -> (Version, Bytes) {
        match &self.template {
            Some(template) => {
                (particulars.version(self.version, template.asks()), template.filled(particulars))
            }
            None => (self.version, self.value.clone()),
        }
    }

    /// The version of that.
    pub(super) fn filled_version(&self, particulars: &Particulars) -> Version {
        let asked = self.template.as_ref().map(|template| template.asks());
        asked.map_or(self.version, |asked| particulars.version(self.version, asked))
    }

    /// The same with a version that its author gave it. With another one it is another resource, whatever is in it.
    #[must_use]
    pub fn with_own_version(self, own: &Arc<OwnVersion>) -> Self {
        let version = Version::of_parts([&self.value[..], own.text.as_bytes()]);
        Self { version, own_version: Some(Arc::clone(own)), ..self }
    }

    /// The same for who asks for it, or for everybody.
    #[must_use]
    pub(crate) fn on_demand(self, on_demand: bool) -> Self {
        Self { on_demand, ..self }
    }

    /// What names it.
    pub(crate) fn place(&self) -> EnvoyResource {
        EnvoyResource { type_url: self.type_url, name: Arc::clone(&self.name) }
    }

    /// The rules of Envoy's that it breaks. An Envoy would refuse it for each of them.
    pub fn broken_rules(&self) -> Vec<BrokenRule> {
        envoy_rules::broken(self.type_url, &self.value)
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

/// Resources by type and name. Cloning shares, and so do versions that differ in little.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceCollection([EncodedResources; type_url::ALL.len()]);

fn position(type_url: &str) -> Option<usize> {
    type_url::ALL.iter().position(|known| *known == type_url)
}

impl ResourceCollection {
    /// Adds `resource`, replacing one of the same type and name.
    pub(crate) fn insert(&mut self, resource: Arc<Encoded>) {
        let at = position(resource.type_url).expect("resources are of the types there are");
        self.0[at].insert(Arc::clone(&resource.name), resource);
    }

    /// Takes one resource out.
    pub(crate) fn remove(&mut self, type_url: &str, name: &str) {
        if let Some(at) = position(type_url) {
            self.0[at].remove(name);
        }
    }

    /// One resource.
    pub fn get(&self, type_url: &str, name: &str) -> Option<&Arc<Encoded>> {
        self.0[position(type_url)?].get(name)
    }

    /// Resources of one type, by name.
    pub(crate) fn of_type(&self, type_url: &str) -> impl Iterator<Item = &Arc<Encoded>> {
        position(type_url).into_iter().flat_map(|at| self.0[at].values())
    }
}

/// Names whose resource appeared, changed or went, by type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceSetChanges(pub BTreeMap<&'static str, BTreeSet<Arc<str>>>);

impl ResourceSetChanges {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(BTreeSet::is_empty)
    }

    /// Those of one type.
    pub fn of(&self, type_url: &str) -> impl Iterator<Item = &str> {
        self.0.get(type_url).into_iter().flatten().map(|name| &**name)
    }
}

/// Types of which what many share may have markers: what tells who calls is in listeners and their routes.
const WITH_PARTICULARS: [&str; 3] = [type_url::LISTENER, type_url::ROUTE, type_url::VIRTUAL_HOST];

/// Resources that many proxies get beside their own.
#[derive(Clone, Debug, Default)]
pub struct SharedResources {
    /// What those have who have nothing of their own of a type.
    alone: [Arc<OfType>; type_url::ALL.len()],
}

impl SharedResources {
    /// `resources`; of those that are as they were, what `before` has.
    pub(crate) fn new(resources: ResourceCollection, before: Option<&Self>) -> Self {
        let mut known = before.map(|before| before.alone.iter());
        let alone = resources.0.map(|shared| match known.as_mut().and_then(Iterator::next) {
            Some(known) if known.shares(&shared) => Arc::clone(known),
            _ => Arc::new(OfType::new(EncodedResources::default(), SharedOfType::new(shared))),
        });
        Self { alone }
    }

    /// One resource.
    pub(crate) fn get(&self, type_url: &str, name: &str) -> Option<&Arc<Encoded>> {
        self.alone[position(type_url)?].stored_as(name)
    }

    /// Replaces a resource by a newer version of it, if it is one of these.
    pub(crate) fn renew(&mut self, resource: &Arc<Encoded>) {
        let at = position(resource.type_url).expect("resources are of the types there are");
        if let Some(renewed) = self.alone[at].renewed(std::slice::from_ref(resource)) {
            self.alone[at] = Arc::new(renewed);
        }
    }
}

/// Everything one proxy gets. Immutable; cloning shares.
#[derive(Clone, Debug, Default)]
pub struct ResourceSet([Arc<OfType>; type_url::ALL.len()]);

impl ResourceSet {
    /// `own` beside `shared`. Where nothing differs from `before` it is `before`, so that who holds on to that
    /// need not look.
    pub fn new(own: &ResourceCollection, shared: &SharedResources, before: Option<&Self>) -> Self {
        Self::for_one(own, shared, &Arc::default(), before)
    }

    /// The same for the proxy with these particulars.
    pub fn for_one(
        own: &ResourceCollection,
        shared: &SharedResources,
        particulars: &Arc<Particulars>,
        before: Option<&Self>,
    ) -> Self {
        let of_type = |at: usize| {
            let (own, alone) = (&own.0[at], &shared.alone[at]);
            let asked = !particulars.is_empty() && WITH_PARTICULARS.contains(&type_url::ALL[at]);
            let particulars = asked.then_some(particulars);
            let known = before.map(|before| &before.0[at]);
            match known {
                _ if own.is_empty() && particulars.is_none() => Arc::clone(alone),
                Some(known) if known.is_beside(own, alone, particulars) => Arc::clone(known),
                _ => Arc::new(alone.beside(own.clone(), particulars.cloned())),
            }
        };
        let new = Self(std::array::from_fn(of_type));
        match before {
            Some(before) if !new.differs_from(before) => before.clone(),
            _ => new,
        }
    }

    fn differs_from(&self, previous: &Self) -> bool {
        let mut pairs = self.0.iter().zip(&previous.0);
        pairs.any(|(new, old)| !Arc::ptr_eq(new, old) && new.differs_from(old))
    }

    /// Resources of one type, to be kept.
    pub fn collection(&self, type_url: &str) -> Arc<OfType> {
        static NONE: LazyLock<Arc<OfType>> = LazyLock::new(Arc::default);
        Arc::clone(position(type_url).map_or(&NONE, |at| &self.0[at]))
    }

    /// The same, to be looked at.
    pub fn kept(&self, type_url: &str) -> Option<&OfType> {
        Some(&self.0[position(type_url)?])
    }

    /// Resources of one type, by name.
    pub fn of_type(&self, type_url: &str) -> impl Iterator<Item = (&str, Arc<Encoded>)> {
        let at = position(type_url);
        at.into_iter().flat_map(|at| self.0[at].iter()).map(|(name, resource)| (&**name, resource))
    }

    /// How many resources of one type there are.
    pub fn count(&self, type_url: &str) -> usize {
        position(type_url).map_or(0, |at| self.0[at].len())
    }

    /// One resource.
    pub fn get(&self, type_url: &str, name: &str) -> Option<Arc<Encoded>> {
        self.0[position(type_url)?].get(name)
    }

    /// All resources, by type, then name.
    pub fn iter(&self) -> impl Iterator<Item = Arc<Encoded>> {
        self.0.iter().flat_map(|of_type| of_type.iter()).map(|(_, resource)| resource)
    }

    /// Whether it shares everything with `previous`, as one made [from it](Self::new) does in which nothing
    /// differs.
    pub fn is_same(&self, previous: &Self) -> bool {
        self.0.iter().zip(&previous.0).all(|(new, old)| Arc::ptr_eq(new, old))
    }

    /// What differs from `previous`, by name where it is not more than `most` names of a type.
    pub fn few_changes_since(&self, previous: &Self, most: usize) -> FewChanges {
        let mut changes = FewChanges::default();
        for (at, type_url) in type_url::ALL.into_iter().enumerate() {
            let (new, old) = (&self.0[at], &previous.0[at]);
            if Arc::ptr_eq(new, old) {
                continue;
            }
            match new.few_changes_since(old, most) {
                Some(names) if names.is_empty() => {}
                Some(names) => {
                    changes.few.0.insert(type_url, names);
                }
                None => changes.many.push((type_url, Arc::clone(old))),
            }
        }
        changes
    }

    /// What differs from `previous`.
    pub fn changes_since(&self, previous: &Self) -> ResourceSetChanges {
        let mut changes = ResourceSetChanges::default();
        for (at, type_url) in type_url::ALL.into_iter().enumerate() {
            if Arc::ptr_eq(&self.0[at], &previous.0[at]) {
                continue;
            }
            let names: BTreeSet<_> = self.0[at].changes_since(&previous.0[at]).collect();
            if !names.is_empty() {
                changes.0.insert(type_url, names);
            }
        }
        changes
    }
}

/// How one configuration differs from another, as far as that is little.
#[derive(Debug, Default)]
pub struct FewChanges {
    /// Names, by type.
    pub few: ResourceSetChanges,
    /// Types of which more differs, with what there was.
    pub many: Vec<(&'static str, Arc<OfType>)>,
}

/// Endpoints that are newer than those in configurations which are otherwise to stay as they are.
pub struct RenewedEndpoints {
    endpoints: Vec<Arc<Encoded>>,
    /// What became of the endpoints of configurations that share them, by where those are kept, so that
    /// they go on sharing them.
    made: HashMap<*const OfType, (Arc<OfType>, Arc<OfType>)>,
}

impl RenewedEndpoints {
    /// These.
    pub fn new(endpoints: Vec<Arc<Encoded>>) -> Self {
        Self { endpoints, made: HashMap::new() }
    }

    /// `told` with those of the endpoints it has older ones of.
    pub fn brought_to(&mut self, told: &ResourceSet) -> ResourceSet {
        let at = position(type_url::ENDPOINT).expect("it is one of the types there are");
        let known = &told.0[at];
        // The old one is kept with the new one, so that nothing else comes to be where it is.
        let (_, renewed) = self.made.entry(Arc::as_ptr(known)).or_insert_with(|| {
            let renewed = known.renewed(&self.endpoints);
            (Arc::clone(known), renewed.map_or_else(|| Arc::clone(known), Arc::new))
        });
        let mut set = told.clone();
        set.0[at] = Arc::clone(renewed);
        set
    }
}
