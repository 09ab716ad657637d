//! What a listener sends traffic to and what decided that, which is when it has to be made again.

use std::collections::{BTreeMap, BTreeSet};

use common::{
    model::labels,
    policy::{BackendRef, TargetKind},
};

use super::Reporter;
use crate::{
    generator::Backend,
    mesh::{Destination, Lookup, MeshContext, Reference},
};

/// What a listener follows from, collected while it is made.
pub(crate) struct Uses<'a> {
    mesh: &'a MeshContext,
    /// What it sends traffic to, by the name of the cluster.
    pub(crate) backends: BTreeMap<String, Destination>,
    /// What decided something.
    pub(crate) consulted: BTreeSet<Destination>,
    /// References that were looked up; they may lead elsewhere when a service comes or goes.
    pub(crate) lookups: BTreeSet<Lookup>,
}

impl<'a> Uses<'a> {
    /// Nothing yet.
    pub(crate) fn new(mesh: &'a MeshContext) -> Self {
        Self { mesh, backends: BTreeMap::new(), consulted: BTreeSet::new(), lookups: BTreeSet::new() }
    }

    /// Looks at a destination; `None` when nothing can be sent there.
    pub(crate) fn backend(&mut self, destination: &Destination) -> Option<Backend> {
        self.consulted.insert(destination.whole());
        Backend::of(self.mesh, destination)
    }

    /// Sends traffic to `backend`; gives the name of its cluster.
    pub(crate) fn cluster_of(&mut self, backend: &Backend) -> String {
        self.backends.insert(backend.cluster.clone(), backend.destination.clone());
        backend.cluster.clone()
    }

    /// What a reference of a route leads to; `None`, reported, when that is nothing this control plane can
    /// reach.
    pub(super) fn referenced(
        &mut self,
        reference: &BackendRef,
        reporter: &mut Reporter<'_>,
    ) -> Option<Backend> {
        let of_resource =
            [TargetKind::MeshService, TargetKind::MeshMultiZoneService, TargetKind::MeshExternalService];
        let destination = if reference.is_resource() && of_resource.contains(&reference.kind) {
            let port = reference.port.map(|port| port.to_string()).or_else(|| reference.section_name.clone());
            let meant = reference.kind;
            let reference = Reference {
                kind: reference.kind.name().to_owned(),
                name: reference.name.clone(),
                labels: reference.labels.clone().unwrap_or_default(),
                port: port.unwrap_or_default(),
            };
            self.lookups.insert(reference.lookup());
            if meant == TargetKind::MeshMultiZoneService {
                let found = self.mesh.multi_zone_services.find(&reference);
                found.map(|(service, port)| service.callee(port))
            } else if meant == TargetKind::MeshExternalService {
                self.mesh.external.find(&reference).map(|service| service.destination.clone())
            } else {
                self.mesh.mesh_services.find(&reference).map(|(service, port)| service.callee(port))
            }
        } else {
            tagged(reference)
        };
        let found = destination.and_then(|destination| self.backend(&destination));
        if found.is_none() {
            let name = reference.name.as_deref().unwrap_or_default();
            let kind = reference.kind.name();
            reporter.report(format!(
                "the backend {kind} {name:?} is left out: it does not exist, or is of a kind not supported"
            ));
        }
        found
    }
}

/// The destination a reference to a tagged service means.
pub(super) fn tagged(reference: &BackendRef) -> Option<Destination> {
    let tagged = matches!(reference.kind, TargetKind::MeshService | TargetKind::MeshServiceSubset);
    let name = reference.name.clone().filter(|_| tagged)?;
    let mut tags = reference.tags.clone().unwrap_or_default();
    tags.insert(labels::TAG_SERVICE.to_owned(), name);
    Destination::tagged(&tags)
}
