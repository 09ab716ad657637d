//! What can be called, by one identity from the topology to the cluster and back.

use std::{collections::BTreeMap, sync::Arc};

use common::model::labels;

/// Something a proxy can send traffic to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Destination {
    /// Every endpoint with this service tag.
    Service(Arc<str>),
    /// The endpoints of a service that have more tags than that.
    Subset(Arc<ServiceSubset>),
    /// A port of a `MeshService`, by the name of the resource.
    Port(Arc<str>, u32),
    /// The same of a `MeshMultiZoneService`.
    MultiZone(Arc<str>, u32),
    /// A `MeshExternalService`, by the name of the resource.
    External(Arc<str>),
    /// Any of these for what comes in by a listener of a builtin gateway.
    Through(Arc<Through>),
    /// Those of a port who are in this zone, for an ingress that passes on what comes from others.
    Here(Arc<Destination>),
    /// A gateway of another mesh.
    Abroad(Arc<Abroad>),
}

/// Those who let in the proxies of other meshes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Abroad {
    /// The mesh they are in.
    pub mesh: Arc<str>,
    /// The service.
    pub service: Arc<str>,
    /// All tags they must have there, that of the service included.
    pub tags: BTreeMap<String, String>,
}

impl Abroad {
    /// All of a service.
    pub fn service(mesh: &Arc<str>, service: &Arc<str>) -> Destination {
        let tags = [(labels::TAG_SERVICE.to_owned(), service.to_string())].into();
        Destination::Abroad(Arc::new(Self { mesh: Arc::clone(mesh), service: Arc::clone(service), tags }))
    }
}

/// What a listener of a builtin gateway reaches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Through {
    /// The tags of the listener, by which policies select it.
    pub listener: Arc<BTreeMap<String, String>>,
    /// What is reached.
    pub destination: Destination,
}

/// Tags that tell some endpoints of a service from the others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceSubset {
    /// The service.
    pub service: Arc<str>,
    /// All tags the endpoints must have, that of the service included.
    pub tags: BTreeMap<String, String>,
}

impl Destination {
    /// The endpoints with these tags, in another mesh if one of them names it; `None` without a service tag.
    pub fn tagged(tags: &BTreeMap<String, String>) -> Option<Self> {
        let service: Arc<str> = tags.get(labels::TAG_SERVICE)?.as_str().into();
        if let Some(mesh) = tags.get(labels::MESH) {
            let mut tags = tags.clone();
            tags.remove(labels::MESH);
            return Some(Self::Abroad(Arc::new(Abroad { mesh: mesh.as_str().into(), service, tags })));
        }
        Some(match tags.len() {
            1 => Self::Service(service),
            _ => Self::Subset(Arc::new(ServiceSubset { service, tags: tags.clone() })),
        })
    }

    /// Of whose endpoints it is all or a part.
    pub fn whole(&self) -> Self {
        match self {
            Self::Subset(subset) => Self::Service(Arc::clone(&subset.service)),
            Self::Through(through) => through.destination.whole(),
            Self::Here(destination) => destination.whole(),
            Self::Abroad(abroad) => Abroad::service(&abroad.mesh, &abroad.service),
            Self::Service(_) | Self::Port(..) | Self::MultiZone(..) | Self::External(_) => self.clone(),
        }
    }

    /// What is called, by whatever listener that comes in.
    pub fn itself(&self) -> &Self {
        match self {
            Self::Through(through) => through.destination.itself(),
            other => other,
        }
    }

    /// Whether it is a port of a service that is a resource.
    pub fn is_of_resource(&self) -> bool {
        matches!(self, Self::Port(..) | Self::MultiZone(..))
    }

    /// Which endpoints of the [whole](Self::whole) are meant; `None` for all.
    pub fn filter(&self) -> Option<&BTreeMap<String, String>> {
        match self {
            Self::Subset(subset) => Some(&subset.tags),
            Self::Through(through) => through.destination.filter(),
            Self::Abroad(abroad) => Some(&abroad.tags),
            Self::Service(_) | Self::Port(..) | Self::MultiZone(..) | Self::External(_) | Self::Here(_) => {
                None
            }
        }
    }

    /// The same for what comes in by a listener with these tags.
    pub fn through(self, listener: &Arc<BTreeMap<String, String>>) -> Self {
        Self::Through(Arc::new(Through { listener: Arc::clone(listener), destination: self }))
    }
}
