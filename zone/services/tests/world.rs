//! A zone without a store: an index, what writes make of it, and a reconciler that may die.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    document::Document,
    mode::Mode,
    model::{
        Kind, Resource, ResourceKey,
        kinds::{
            mesh_service::{self, MeshService},
            service_status::ServiceStatus,
        },
    },
    store::{Change, Precondition, StoreIdentity, Write, index::Index},
};

use crate::services::{Ranges, ServiceSettings, reconciler::Reconciler};

pub(super) struct World {
    pub(super) index: Index,
    pub(super) now: DateTime<Utc>,
    known: Index,
    reconciler: Reconciler,
}

pub(super) fn settings() -> ServiceSettings {
    let range = |text: &str| text.parse().unwrap();
    ServiceSettings {
        zone: "east".into(),
        grace: Duration::from_secs(3600),
        ranges: Ranges {
            mesh_service: range("241.0.0.0/8"),
            mesh_external_service: range("242.0.0.0/8"),
            // So small that names come to the same address.
            mesh_multi_zone_service: range("243.0.0.0/28"),
        },
    }
}

impl World {
    pub(super) fn new() -> Self {
        let index = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 0 });
        let now = DateTime::UNIX_EPOCH;
        Self { known: index.clone(), index, now, reconciler: Reconciler::new(settings()) }
    }

    /// With a mesh in which services are made of tags.
    pub(super) fn generating() -> Self {
        let mut world = Self::new();
        world.put("{type: Mesh, name: default, meshServices: {mode: Everywhere}}");
        world
    }

    /// Another leader, who knows nothing but what is stored.
    pub(super) fn die(&mut self) {
        self.reconciler = Reconciler::new(settings());
        self.known = Index::empty(self.index.store);
    }

    /// What somebody writes in this zone, or what came from global when it says so.
    pub(super) fn put(&mut self, yaml: &str) {
        let document = Document::parse(&serde_norway::from_str(yaml).unwrap()).unwrap();
        let mut resource = document.into_resource(self.now);
        let mode = Mode::federated_zone("east");
        mode.label(&mut resource);
        resource.origin = mode.origin_of(resource.kind());
        if let Some(existing) = self.index.get(&resource.key) {
            resource.created = existing.created;
            resource.status = existing.status.clone().or(resource.status);
        }
        self.store(resource.key.clone(), Some(resource));
    }

    pub(super) fn delete(&mut self, kind: &'static Kind, name: &str) {
        self.store(ResourceKey::new(kind, "default", name), None);
    }

    pub(super) fn store(&mut self, key: ResourceKey, resource: Option<Resource>) {
        let revision = self.index.revision + 1;
        let resource = resource.map(|mut resource| {
            resource.revision = revision;
            Arc::new(resource)
        });
        self.index.apply(&Change { revision, key, resource });
    }

    /// What is to be written now.
    pub(super) fn step(&mut self) -> Vec<Write> {
        let changed = self.index.changed_since(&self.known);
        self.known = self.index.clone();
        self.reconciler.step(&self.index, &changed, self.now)
    }

    /// Writes it, as far as its preconditions hold.
    pub(super) fn commit(&mut self, write: Write) {
        let stored = self.index.get(write.key()).map(|stored| stored.revision);
        let holds = |when: &Precondition| match when {
            Precondition::Absent => stored.is_none(),
            Precondition::At(revision) => stored == Some(*revision),
            other => panic!("nothing is written {other:?}"),
        };
        match write {
            Write::Put { resource, when } if holds(&when) => {
                self.store(resource.key.clone(), Some(*resource));
            }
            Write::Delete { key, when } if holds(&when) => self.store(key, None),
            refused => self.reconciler.undone([refused.key()].into_iter()),
        }
    }

    /// Goes on until nothing has to be written any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let writes = self.step();
            if writes.is_empty() && self.index.changed_since(&self.known).is_empty() {
                return;
            }
            writes.into_iter().for_each(|write| self.commit(write));
        }
        panic!("it writes for ever");
    }

    pub(super) fn service(&self, name: &str) -> Option<&Arc<Resource>> {
        self.index.find(&mesh_service::KIND, "default", name)
    }

    pub(super) fn spec(&self, name: &str) -> MeshService {
        self.service(name).expect("it exists").spec().unwrap()
    }

    pub(super) fn status(&self, kind: &'static Kind, name: &str) -> ServiceStatus {
        ServiceStatus::of(self.index.find(kind, "default", name).expect("it exists"))
    }

    /// What is stored of services, but for their addresses: whoever leads anew does not know which rest.
    pub(super) fn said(&self) -> BTreeMap<ResourceKey, (String, ServiceStatus)> {
        let all = super::super::vips::KINDS.into_iter().flat_map(|kind| self.index.list(kind));
        let said = |service: &Arc<Resource>| {
            let spec = String::from_utf8_lossy(&service.spec);
            let text = format!("{spec} {:?}", service.labels);
            let status = ServiceStatus { vips: Vec::new(), vip: None, ..ServiceStatus::of(service) };
            (service.key.clone(), (text, status))
        };
        all.map(said).collect()
    }

    /// The address of every service that has one.
    pub(super) fn addresses(&self) -> BTreeMap<ResourceKey, IpAddr> {
        let all = super::super::vips::KINDS.into_iter().flat_map(|kind| self.index.list(kind));
        all.filter_map(|service| Some((service.key.clone(), ServiceStatus::of(service).ips().next()?)))
            .collect()
    }
}

/// A proxy with one inbound.
pub(super) fn proxy(name: &str, service: &str, port: u32, state: &str, labels: &str) -> String {
    format!(
        "{{type: Dataplane, mesh: default, name: {name}, labels: {{{labels}}}, networking: {{address: 127.0.0.1, \
         inbound: [{{port: {port}, servicePort: 8080, state: {state}, tags: {{kuma.io/service: {service}, \
         kuma.io/protocol: http}}}}]}}}}"
    )
}
