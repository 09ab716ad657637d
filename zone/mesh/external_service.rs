//! A service outside the mesh, as the generator sees it.

mod read;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::model::{
    Resource, ResourceKey, kinds::mesh_external_service::SubjectName, kri::Kri, labels,
    tls_version::TlsVersionRange,
};
use imbl::{OrdMap, OrdSet};

use super::{Destination, Problem, Protocol, Reference};

/// A service outside the mesh.
#[derive(Clone, Debug)]
pub struct ExternalService {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its identifier, with its only port as section, when it is called as a resource and not by its tag.
    pub kri: Option<Kri>,
    /// What is called to reach it.
    pub destination: Destination,
    /// The service it is known as: its tag, or the name of its cluster.
    pub service: Arc<str>,
    /// On which port it is called, when it is called as a resource.
    pub port: u32,
    /// Tags of its endpoints.
    pub tags: BTreeMap<String, String>,
    /// What is spoken to it.
    pub protocol: Protocol,
    /// The only zone from which it is reached, when there is one.
    pub zone: Option<String>,
    /// Where it is; empty when it cannot be used.
    pub endpoints: Vec<Outpost>,
    /// How TLS is spoken to it, when it is.
    pub tls: Option<Origination>,
    /// What was left out.
    pub problems: Vec<Problem>,
    /// Names of the secrets it was read with.
    secrets: BTreeSet<String>,
}

/// One place where a service outside the mesh is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outpost {
    /// IP address, host name or path of a socket.
    pub at: Whereabouts,
    /// 0 is tried first.
    pub priority: u32,
}

/// An address outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// IP address or host name, and a port.
    Host(String, u32),
    /// Path of a socket on the machine of the proxy.
    Socket(String),
}

/// How TLS is spoken to a service outside the mesh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origination {
    /// The name it is asked for.
    pub server_name: Option<String>,
    /// Names of which its certificate must have one; none for any.
    pub names: Vec<SubjectName>,
    /// Who may have signed it.
    pub trust: UpstreamTrust,
    /// Certificate and key shown to it.
    pub client: Option<(String, String)>,
    /// Whether it may ask to negotiate again.
    pub renegotiates: bool,
    /// Between these versions.
    pub versions: Option<TlsVersionRange>,
}

/// Who is believed about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpstreamTrust {
    /// Anybody.
    Anybody,
    /// Those the machine of the proxy believes.
    Machine,
    /// These, as PEM.
    These(String),
}

impl Whereabouts {
    /// Its name, when it has one.
    pub fn host_name(&self) -> Option<&str> {
        match self {
            Self::Host(host, _) => host.parse::<std::net::IpAddr>().is_err().then_some(host),
            Self::Socket(_) => None,
        }
    }

    /// Its port, when it has one.
    pub fn port(&self) -> Option<u32> {
        match self {
            Self::Host(_, port) => Some(*port),
            Self::Socket(_) => None,
        }
    }

    /// As people write it.
    pub fn text(&self) -> &str {
        match self {
            Self::Host(host, _) => host,
            Self::Socket(path) => path,
        }
    }
}

impl ExternalService {
    /// Whether the egresses of `zone` may reach it.
    pub fn is_reached_from(&self, zone: &str) -> bool {
        self.zone.as_ref().is_none_or(|own| own == zone)
    }

    /// Whether it is called as a resource.
    pub fn is_resource(&self) -> bool {
        self.kri.is_some()
    }
}

/// All services of a mesh that are outside of it, by what they are looked up by. Cloning shares.
#[derive(Clone, Debug, Default)]
pub struct ExternalServices {
    tagged: OrdMap<Arc<str>, Arc<ExternalService>>,
    /// By the service they are known as, which several may share.
    by_service: OrdMap<Arc<str>, OrdSet<Arc<str>>>,
    resources: OrdMap<Arc<str>, Arc<ExternalService>>,
    /// By the name their author gave them.
    by_authored: OrdMap<String, OrdSet<Arc<str>>>,
    /// By the secrets they were read with.
    by_secret: OrdMap<String, OrdSet<ResourceKey>>,
}

impl ExternalServices {
    /// Those known as `service` by their tag, by name.
    pub fn tagged(&self, service: &str) -> impl Iterator<Item = &Arc<ExternalService>> {
        let names = self.by_service.get(service).into_iter().flatten();
        names.filter_map(|name| self.tagged.get(name))
    }

    /// The one that is called as the resource of this name.
    pub fn resource(&self, name: &str) -> Option<&Arc<ExternalService>> {
        self.resources.get(name)
    }

    /// Those that are called as resources.
    pub fn resources(&self) -> impl Iterator<Item = &Arc<ExternalService>> {
        self.resources.values()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ExternalService>> {
        self.tagged.values().chain(self.resources.values())
    }

    /// The one that a reference means.
    pub fn find(&self, reference: &Reference) -> Option<&Arc<ExternalService>> {
        let meant = |service: &&Arc<ExternalService>| {
            reference.port.is_empty() || reference.port == "0" || reference.port == service.port.to_string()
        };
        let found = match &reference.name {
            _ if !reference.labels.is_empty() => {
                let has = |service: &&Arc<ExternalService>| {
                    reference.labels.iter().all(|(key, value)| service.resource.label(key) == Some(value))
                };
                self.resources.values().find(has)
            }
            Some(name) => self
                .resources
                .get(name.as_str())
                .or_else(|| self.by_authored.get(name)?.iter().find_map(|name| self.resources.get(name))),
            None => None,
        };
        found.filter(meant)
    }

    /// Those that were read with a secret.
    pub(super) fn with_secrets(&self) -> BTreeSet<ResourceKey> {
        self.by_secret.values().flatten().cloned().collect()
    }

    /// Takes in `service` in place of what has its name, which it gives.
    pub(super) fn put(&mut self, service: &Arc<ExternalService>) -> Option<Arc<ExternalService>> {
        let name = &service.resource.key.name;
        let before = self.remove(name, service.is_resource());
        match &service.kri {
            Some(kri) => {
                self.resources.insert(Arc::clone(name), Arc::clone(service));
                self.by_authored.entry(kri.name.clone()).or_default().insert(Arc::clone(name));
            }
            None => {
                self.tagged.insert(Arc::clone(name), Arc::clone(service));
                self.by_service.entry(Arc::clone(&service.service)).or_default().insert(Arc::clone(name));
            }
        }
        for secret in &service.secrets {
            self.by_secret.entry(secret.clone()).or_default().insert(service.resource.key.clone());
        }
        before
    }

    /// Takes out the one of this name.
    pub(super) fn remove(&mut self, name: &Arc<str>, resource: bool) -> Option<Arc<ExternalService>> {
        let before = if resource { self.resources.remove(name) } else { self.tagged.remove(name) }?;
        match &before.kri {
            Some(kri) => leave(&mut self.by_authored, &kri.name, name),
            None => leave(&mut self.by_service, &before.service, name),
        }
        for secret in &before.secrets {
            leave(&mut self.by_secret, secret, &before.resource.key);
        }
        Some(before)
    }
}

fn leave<K: Ord + Clone, V: Ord + Clone>(index: &mut OrdMap<K, OrdSet<V>>, key: &K, value: &V) {
    if let Some(values) = index.get_mut(key) {
        values.remove(value);
        if values.is_empty() {
            index.remove(key);
        }
    }
}

/// The tag by which endpoints of several services outside the mesh are told apart.
pub(crate) const NAME_TAG: &str = "kuma.io/external-service-name";

/// The service that the certificates of egresses name.
pub(crate) const EGRESS_SERVICE: &str = "zone-egress";

/// The identity of the egresses of a mesh.
pub(crate) fn egress_identity(mesh: &str) -> String {
    format!("spiffe://{mesh}/{EGRESS_SERVICE}")
}

/// The zone a set of tags confines to.
fn zone_of(tags: &BTreeMap<String, String>) -> Option<String> {
    tags.get(labels::ZONE).filter(|zone| !zone.is_empty()).cloned()
}
