//! A service that is a resource, as the generator sees it.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    model::{
        Resource,
        kinds::mesh_service::{self as kind, Port},
        kri::Kri,
        labels,
    },
    policy::rules,
};
use serde_json::Value;

use super::{
    Dataplane, Destination, Inbound, Protocol,
    problem::{Problem, Subject},
    referable::{Referable, Referables},
};
use crate::share::PORTS_OF_SERVICE;

/// A service of this or another zone.
#[derive(Clone, Debug)]
pub struct ZoneService {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: kind::MeshService,
    /// Its identifier, without section.
    pub kri: Kri,
    /// The zone that serves it, when it is another one.
    pub remote_zone: Option<String>,
    /// Whether all its proxies are known to accept mesh TLS.
    pub tls_ready: bool,
}

impl ZoneService {
    /// Reads `resource`, seen from `zone`.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(resource: &Arc<Resource>, zone: &str) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let mut spec = resource.spec::<kind::MeshService>().map_err(|error| problem(error.to_string()))?;
        let kri = Kri::of(resource).ok_or_else(|| problem("the kind has no identifier".to_owned()))?;
        let owner = resource.label(labels::ZONE).filter(|owner| *owner != zone);
        if owner.is_some() && spec.ports.len() > PORTS_OF_SERVICE {
            let (service, ports) = (resource.name(), spec.ports.len());
            tracing::warn!(
                service,
                ports,
                most = PORTS_OF_SERVICE,
                "a service of another zone has more ports than are called"
            );
            spec.ports.truncate(PORTS_OF_SERVICE);
        }
        let status: Option<Value> = resource.status.as_ref().and_then(|s| serde_json::from_slice(s).ok());
        let tls = status.as_ref().and_then(|s| s.pointer("/tls/status"));
        Ok(Self {
            resource: Arc::clone(resource),
            spec,
            kri,
            remote_zone: owner.map(str::to_owned),
            tls_ready: owner.is_some() || tls == Some(&Value::from("Ready")),
        })
    }

    /// What a port is called in references: its name, or its number when it has none.
    pub fn section(port: &Port) -> String {
        port.name.clone().filter(|name| !name.is_empty()).unwrap_or_else(|| port.port.to_string())
    }

    /// Whether `other`, a later version of it, differs in nothing but who is ready.
    pub(super) fn means_the_same(&self, other: &Self) -> bool {
        let meaning =
            |s: &Self| (s.kri.clone(), s.spec.clone(), s.remote_zone.clone(), s.resource.labels.clone());
        meaning(self) == meaning(other)
    }

    /// What is called by one port.
    pub fn callee(&self, port: &Port) -> Destination {
        Destination::Port(Arc::clone(&self.resource.key.name), port.port)
    }

    /// The name of the cluster of one port.
    pub fn destination(&self, port: &Port) -> String {
        let Kri { mesh, zone, namespace, name, short, .. } = &self.kri;
        format!("{mesh}_{name}_{namespace}_{zone}_{short}_{}", port.port)
    }

    /// The name under which an ingress knows it: the zone that serves it calls it by its own name, and so
    /// must everybody else.
    pub fn sni_name(&self) -> String {
        match (&self.remote_zone, self.kri.namespace.as_str()) {
            (None, _) => self.resource.name().to_owned(),
            (Some(_), "") => self.resource.display_name().to_owned(),
            (Some(_), namespace) => format!("{}.{namespace}", self.resource.display_name()),
        }
    }

    /// What is spoken on a port.
    pub fn protocol(port: &Port) -> Protocol {
        Protocol::parse(&port.app_protocol)
    }

    /// The port of this number.
    pub fn numbered(&self, number: u32) -> Option<&Port> {
        self.spec.ports.iter().find(|port| port.port == number)
    }

    /// Where the proxies it selects are to be looked for.
    pub(super) fn selector(&self) -> Option<SelectionKey<'_>> {
        let selector = self.spec.selector.as_ref()?;
        if let Some(reference) = &selector.dataplane_ref {
            return Some(SelectionKey::Name(&reference.name));
        }
        if let Some(labels) = &selector.dataplane_labels {
            let wanted = labels.get("matchLabels").and_then(Value::as_object)?;
            let texts = wanted.iter().filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)));
            // Without any it is every proxy that is meant.
            let label = rules::most_telling(texts);
            return Some(
                label.map_or(SelectionKey::Everything, |(key, value)| SelectionKey::Label(key, value)),
            );
        }
        let tags = &selector.dataplane_tags;
        // The service says most about who is meant.
        let first = tags.get_key_value(labels::TAG_SERVICE).or_else(|| tags.first_key_value());
        first.map(|(key, value)| SelectionKey::Tag(key, value))
    }

    /// The inbounds of `dataplane` behind a port.
    pub fn inbounds<'a>(
        &'a self,
        dataplane: &'a Dataplane,
        port: &'a Port,
    ) -> impl Iterator<Item = &'a Inbound> {
        dataplane.inbounds.iter().filter(move |i| self.selects(dataplane, i) && is_behind(i, port))
    }

    fn selects(&self, dataplane: &Dataplane, inbound: &Inbound) -> bool {
        let Some(selector) = &self.spec.selector else { return false };
        if let Some(reference) = &selector.dataplane_ref {
            return reference.name == dataplane.name();
        }
        if let Some(labels) = &selector.dataplane_labels {
            let wanted = labels.get("matchLabels").and_then(Value::as_object);
            let has = |(key, value): (&String, &Value)| {
                dataplane.resource.label(key).is_some_and(|own| value.as_str() == Some(own))
            };
            return wanted.is_some_and(|wanted| wanted.iter().all(has));
        }
        has_all(&inbound.tags, &selector.dataplane_tags)
    }
}

/// What everything that a service selects has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum SelectionKey<'a> {
    /// Nothing in particular.
    Everything,
    /// This name.
    Name(&'a str),
    /// This label.
    Label(&'a str, &'a str),
    /// This tag on an inbound.
    Tag(&'a str, &'a str),
}

impl Referable for ZoneService {
    fn resource(&self) -> &Arc<Resource> {
        &self.resource
    }

    fn authored_name(&self) -> &str {
        &self.kri.name
    }

    fn is_elsewhere(&self) -> bool {
        self.remote_zone.is_some()
    }

    fn ports(&self) -> &[Port] {
        &self.spec.ports
    }
}

/// The services of a mesh that are resources.
pub type MeshServices = Referables<ZoneService>;

fn has_all(tags: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>) -> bool {
    !wanted.is_empty() && wanted.iter().all(|(key, value)| tags.get(key) == Some(value))
}

/// A target port is the number or the name of the inbound, never the port of the workload.
fn is_behind(inbound: &Inbound, port: &Port) -> bool {
    match &port.target_port {
        Some(Value::String(name)) => inbound.section == *name,
        Some(number) => number.as_u64() == Some(u64::from(inbound.port)),
        None => inbound.port == port.port,
    }
}
