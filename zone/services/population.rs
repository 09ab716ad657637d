//! The proxies and services of one mesh by what they are looked up by.

mod composition;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{
        Resource,
        kinds::{
            dataplane_networking::networking,
            destinations::MESH_IDENTITY,
            mesh_multi_zone_service::MeshMultiZoneService,
            mesh_service::{MeshService, Selector},
        },
        kri::Kri,
        labels,
    },
    proto::kuma::mesh::v1alpha1 as proto,
};
use proto::dataplane::networking::inbound::State;
use serde_json::Value;

use self::composition::{ComposedOf, Composition};
use crate::{mesh::Protocol, share::IdentitySize};

/// Names of resources of one kind.
pub(super) type Names = BTreeSet<Arc<str>>;

/// Something that proxies and services have, and by which others look for them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trait {
    /// Everybody has it.
    Exists,
    /// This name.
    Name(String),
    /// This label.
    Label(String, String),
    /// This tag on an inbound.
    Tag(String, String),
}

/// Names by trait.
#[derive(Debug, Default)]
pub(super) struct ByTrait(BTreeMap<Trait, Names>);

impl ByTrait {
    fn join(&mut self, name: &Arc<str>, of: impl IntoIterator<Item = Trait>) {
        for one in of {
            self.0.entry(one).or_default().insert(Arc::clone(name));
        }
    }

    fn leave(&mut self, name: &str, of: impl IntoIterator<Item = Trait>) {
        for one in of {
            if let Some(names) = self.0.get_mut(&one) {
                names.remove(name);
                if names.is_empty() {
                    self.0.remove(&one);
                }
            }
        }
    }

    fn having(&self, one: &Trait) -> impl Iterator<Item = &Arc<str>> {
        self.0.get(one).into_iter().flatten()
    }

    /// Those that have the rarest of `all`, and perhaps not the others.
    fn rarest(&self, all: &[Trait]) -> impl Iterator<Item = &Arc<str>> + use<'_> {
        let sets = all.iter().map(|one| self.0.get(one));
        // Where nobody has one of them, nobody has all.
        let sets: Option<Vec<&Names>> = sets.collect();
        sets.and_then(|sets| sets.into_iter().min_by_key(|names| names.len())).into_iter().flatten()
    }
}

/// A proxy of the zone, as far as services follow from it.
#[derive(Debug)]
pub(super) struct ServingProxy {
    /// Its resource.
    pub(super) resource: Arc<Resource>,
    /// What it serves.
    pub(super) inbounds: Vec<WorkloadPort>,
    gateway_tags: BTreeMap<String, String>,
}

/// A port of a workload.
#[derive(Debug)]
pub(super) struct WorkloadPort {
    /// Its number.
    pub(super) port: u32,
    /// Its name; often empty.
    pub(super) name: String,
    /// Its tags.
    pub(super) tags: BTreeMap<String, String>,
    /// What it speaks.
    pub(super) protocol: Protocol,
    /// Whether the workload can serve.
    pub(super) ready: bool,
}

/// What the zone has seen of a proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ProxyStatus {
    /// It has a stream.
    pub(super) connected: bool,
    /// It holds a certificate.
    pub(super) certified: bool,
    /// The identifier of the `MeshIdentity` that gave it its certificate.
    pub(super) given_by: Option<Arc<str>>,
}

impl ProxyStatus {
    /// What an insight says. One that does not decode says nothing.
    pub(super) fn of(insight: &Resource) -> Self {
        let spec: proto::DataplaneInsight = prost::Message::decode(&insight.spec[..]).unwrap_or_default();
        let is_open =
            |s: &proto::DiscoverySubscription| s.connect_time.is_some() && s.disconnect_time.is_none();
        let backend = spec.m_tls.map(|mtls| mtls.issued_backend).filter(|backend| !backend.is_empty());
        // A backend of a mesh is called by its name.
        let of_identity = |short: &str| (short == MESH_IDENTITY.short).then_some(&MESH_IDENTITY);
        let given = backend.as_deref().filter(|by| Kri::parse(by, of_identity).is_ok());
        Self {
            connected: spec.subscriptions.iter().any(is_open),
            certified: backend.is_some(),
            given_by: given.map(Arc::from),
        }
    }
}

impl ServingProxy {
    /// Reads a `Dataplane`; `None` when it does not decode.
    pub(super) fn read(resource: &Arc<Resource>) -> Option<Self> {
        let networking = networking(&resource.spec).ok()?;
        let inbounds = networking.inbound.into_iter().map(|inbound| WorkloadPort {
            port: inbound.port,
            protocol: match inbound.protocol.as_str() {
                "" => Protocol::of_tags(&inbound.tags),
                name => Protocol::parse(name),
            },
            ready: inbound.state() == State::Ready && inbound.health.is_none_or(|health| health.ready),
            name: inbound.name,
            tags: inbound.tags,
        });
        Some(Self {
            resource: Arc::clone(resource),
            inbounds: inbounds.collect(),
            gateway_tags: networking.gateway.map(|gateway| gateway.tags).unwrap_or_default(),
        })
    }

    /// The services its tags name.
    pub(super) fn services(&self) -> BTreeSet<&str> {
        let of_inbounds = self.inbounds.iter().map(|inbound| &inbound.tags);
        let tags = of_inbounds.chain([&self.gateway_tags]);
        tags.filter_map(|tags| tags.get(labels::TAG_SERVICE)).map(String::as_str).collect()
    }

    fn traits(&self) -> Vec<Trait> {
        let tags = self.inbounds.iter().flat_map(|inbound| &inbound.tags);
        let tags = tags.map(|(key, value)| Trait::Tag(key.clone(), value.clone()));
        let name = Trait::Name(self.resource.name().to_owned());
        tags.chain(labels_of(&self.resource)).chain([name, Trait::Exists]).collect()
    }

    fn is_selected(&self, selector: &Selector) -> bool {
        match SelectorTarget::of(selector) {
            // Who serves nothing is behind no service.
            _ if self.inbounds.is_empty() => false,
            SelectorTarget::Nobody => false,
            SelectorTarget::Named(name) => self.resource.name() == name,
            SelectorTarget::Labelled(wanted) => {
                wanted.iter().all(|(key, value)| self.resource.labels.get(key) == Some(value))
            }
            SelectorTarget::Tagged(wanted) => {
                let all = |own: &BTreeMap<String, String>| {
                    wanted.iter().all(|(key, value)| own.get(key) == Some(value))
                };
                self.inbounds.iter().any(|inbound| all(&inbound.tags))
            }
        }
    }
}

fn labels_of(resource: &Resource) -> impl Iterator<Item = Trait> {
    resource.labels.iter().map(|(key, value)| Trait::Label(key.to_owned(), value.to_owned()))
}

/// Whom the selector of a service means.
enum SelectorTarget<'a> {
    Nobody,
    Named(&'a str),
    Labelled(BTreeMap<String, String>),
    Tagged(&'a BTreeMap<String, String>),
}

impl<'a> SelectorTarget<'a> {
    fn of(selector: &'a Selector) -> Self {
        if let Some(reference) = &selector.dataplane_ref {
            return Self::Named(&reference.name);
        }
        if let Some(labels) = &selector.dataplane_labels {
            let wanted = labels.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
            let texts = wanted.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
            return Self::Labelled(texts.collect());
        }
        if selector.dataplane_tags.is_empty() { Self::Nobody } else { Self::Tagged(&selector.dataplane_tags) }
    }

    /// Traits all of whom it means have.
    fn traits(self) -> Vec<Trait> {
        match self {
            Self::Nobody => Vec::new(),
            Self::Named(name) => vec![Trait::Name(name.to_owned())],
            Self::Labelled(labels) if labels.is_empty() => vec![Trait::Exists],
            Self::Labelled(labels) => labels.into_iter().map(|(k, v)| Trait::Label(k, v)).collect(),
            Self::Tagged(tags) => tags.iter().map(|(k, v)| Trait::Tag(k.clone(), v.clone())).collect(),
        }
    }
}

/// A mesh.
#[derive(Debug, Default)]
pub(super) struct Population {
    proxies: BTreeMap<Arc<str>, ServingProxy>,
    seen: BTreeMap<Arc<str>, ProxyStatus>,
    by_trait: ByTrait,
    /// Services of this zone, under one trait that all they select have.
    selecting: ByTrait,
    /// The selector of each.
    selectors: BTreeMap<Arc<str>, Selector>,
    /// Services of all zones, by their labels.
    services: ByTrait,
    labels: BTreeMap<Arc<str>, Vec<Trait>>,
    /// Services of several zones, under one label that all they are made of have.
    composing: ByTrait,
    composed: BTreeMap<Arc<str>, Composition>,
    /// How much the identities of services are, where they have some.
    sizes: BTreeMap<Arc<str>, IdentitySize>,
}

impl Population {
    /// Follows the change of a proxy; says what services of this zone it is, or was, selected by.
    pub(super) fn proxy(&mut self, name: &Arc<str>, after: Option<ServingProxy>) -> Names {
        let mut concerned = Names::new();
        if let Some(before) = self.proxies.remove(name) {
            concerned.extend(self.selecting(&before));
            self.by_trait.leave(name, before.traits());
        }
        if let Some(after) = after {
            concerned.extend(self.selecting(&after));
            self.by_trait.join(name, after.traits());
            self.proxies.insert(Arc::clone(name), after);
        }
        concerned
    }

    /// Follows what is seen of a proxy; says what services of this zone that concerns.
    pub(super) fn seen(&mut self, name: &Arc<str>, after: ProxyStatus) -> Names {
        let before = match &after {
            nothing if *nothing == ProxyStatus::default() => self.seen.remove(name),
            after => self.seen.insert(Arc::clone(name), after.clone()),
        };
        match self.proxies.get(name).filter(|_| before.unwrap_or_default() != after) {
            Some(proxy) => self.selecting(proxy),
            None => Names::new(),
        }
    }

    fn selecting(&self, proxy: &ServingProxy) -> Names {
        let may = proxy
            .traits()
            .into_iter()
            .flat_map(|one| self.selecting.having(&one).cloned().collect::<Vec<_>>());
        let may: Names = may.collect();
        let selects = |name: &Arc<str>| self.selectors.get(name).is_some_and(|s| proxy.is_selected(s));
        may.into_iter().filter(selects).collect()
    }

    /// Follows the change of a service: its selector when it is of this zone, and its labels. Says which
    /// services of several zones it is, or was, a part of.
    pub(super) fn service(
        &mut self,
        name: &Arc<str>,
        selector: Option<Selector>,
        resource: Option<&Resource>,
    ) -> Names {
        if let Some(before) = self.selectors.remove(name) {
            self.selecting.leave(name, SelectorTarget::of(&before).traits().into_iter().take(1));
        }
        if let Some(after) = selector {
            self.selecting.join(name, SelectorTarget::of(&after).traits().into_iter().take(1));
            self.selectors.insert(Arc::clone(name), after);
        }
        let before = self.labels.remove(name).unwrap_or_default();
        let after: Vec<Trait> = resource.into_iter().flat_map(labels_of).collect();
        let concerned = before.iter().chain(&after).flat_map(|one| self.composing.having(one)).cloned();
        let concerned: Names = concerned.collect();
        for composed in &concerned {
            if let Some(composition) = self.composed.get_mut(composed) {
                composition.leave(name, &before);
                composition.join(name, &after);
            }
        }
        self.services.leave(name, before);
        self.services.join(name, after.clone());
        if resource.is_some() {
            self.labels.insert(Arc::clone(name), after);
        }
        let spec = resource.and_then(|resource| resource.spec::<MeshService>().ok());
        match spec.map(|spec| IdentitySize::of(&spec)).filter(|size| *size != IdentitySize::default()) {
            Some(size) => self.sizes.insert(Arc::clone(name), size),
            None => self.sizes.remove(name),
        };
        concerned
    }

    /// Follows the change of a service of several zones.
    pub(super) fn multi_zone(&mut self, name: &Arc<str>, after: Option<&MeshMultiZoneService>) {
        if let Some(before) = self.composed.remove(name) {
            self.composing.leave(name, before.first().cloned());
        }
        if let Some(after) = after {
            let wanted = after.wanted().iter();
            let wanted: Vec<Trait> =
                wanted.map(|(key, value)| Trait::Label(key.to_owned(), value.to_owned())).collect();
            self.composing.join(name, wanted.first().cloned());
            let may: Vec<&Arc<str>> = self.services.rarest(&wanted).collect();
            let mut composition = Composition::of(wanted);
            for service in may {
                composition.join(service, self.labels.get(service).map_or(&[], Vec::as_slice));
            }
            self.composed.insert(Arc::clone(name), composition);
        }
    }

    /// Who is selected, by name, with what is seen of each.
    pub(super) fn selected(&self, selector: &Selector) -> Vec<(&ServingProxy, ProxyStatus)> {
        let wanted = SelectorTarget::of(selector).traits();
        let may = self.by_trait.rarest(&wanted).filter_map(|name| self.known(name));
        may.filter(|(proxy, _)| proxy.is_selected(selector)).collect()
    }

    /// Who stands beside this program, with what is seen of each.
    pub(super) fn beside(&self, workload: &str) -> Vec<(&ServingProxy, ProxyStatus)> {
        let label = Trait::Label(labels::WORKLOAD.to_owned(), workload.to_owned());
        self.by_trait.having(&label).filter_map(|name| self.known(name)).collect()
    }

    /// The program one proxy stands beside.
    pub(super) fn workload_of(&self, proxy: &str) -> Option<Arc<str>> {
        let label = self.proxies.get(proxy)?.resource.label(labels::WORKLOAD)?;
        (!label.is_empty()).then(|| label.into())
    }

    /// Who has an inbound of `service`, the oldest first.
    pub(super) fn serving(&self, service: &str) -> Vec<&ServingProxy> {
        let tag = Trait::Tag(labels::TAG_SERVICE.to_owned(), service.to_owned());
        let named = self.by_trait.having(&tag).filter_map(|name| self.proxies.get(name));
        let serves = |proxy: &&ServingProxy| {
            proxy.inbounds.iter().any(|i| i.tags.get(labels::TAG_SERVICE).is_some_and(|s| s == service))
        };
        let mut serving: Vec<&ServingProxy> = named.filter(serves).collect();
        serving.sort_by_key(|proxy| (proxy.resource.created, Arc::clone(&proxy.resource.key.name)));
        serving
    }

    fn known(&self, name: &Arc<str>) -> Option<(&ServingProxy, ProxyStatus)> {
        Some((self.proxies.get(name)?, self.seen.get(name).cloned().unwrap_or_default()))
    }

    /// Every service that the tags of a proxy name.
    pub(super) fn tagged(&self) -> Names {
        let names = self.proxies.values().flat_map(ServingProxy::services);
        names.map(Arc::from).collect()
    }

    /// The services the tags of one proxy name.
    pub(super) fn tags_of(&self, proxy: &str) -> Names {
        self.proxies.get(proxy).into_iter().flat_map(ServingProxy::services).map(Arc::from).collect()
    }

    /// Services of this zone.
    pub(super) fn of_zone(&self) -> impl Iterator<Item = &Arc<str>> {
        self.selectors.keys()
    }

    /// What a service of several zones is made of: all there is in `zone`, and so many of each other zone. `None` when nobody
    /// can read what it asks for.
    pub(super) fn parts_of(&self, service: &str, zone: &str) -> Option<ComposedOf<'_>> {
        self.composed.get(service).map(|composition| composition.told(zone, &self.sizes))
    }
}
