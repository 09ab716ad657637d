//! Services outside the mesh, and the egresses they are reached through.

use std::{collections::BTreeMap, sync::Arc};

use common::model::labels;

use super::{EndpointIndex, OwnExits, edges::at};
use crate::mesh::{
    ExternalService, MeshContext, Protocol,
    topology::{Endpoint, Exit, Service},
};

impl EndpointIndex {
    /// Looks for the service outside the mesh; says whether it is known there. What leaves through an egress needs
    /// mutual TLS on its way there. What it speaks is known also while there is no way out.
    pub(super) fn tagged_outside(&self, name: &str, mesh: &MeshContext, service: &mut Service) -> bool {
        let through = mesh.leaves_through_egress();
        let known = mesh.external.tagged(name).filter(|e| !through || e.is_reached_from(&mesh.zone));
        let known: Vec<&Arc<ExternalService>> = known.collect();
        if known.is_empty() {
            return false;
        }
        service.protocol = Protocol::common(known.iter().map(|external| external.protocol));
        if !through {
            service.exit = Some(Exit::Direct(known.into_iter().cloned().collect()));
            return true;
        }
        service.exit = Some(Exit::Egress);
        for external in known {
            service.endpoints.extend(self.at_exits(&external.tags, mesh));
        }
        true
    }

    /// A service outside the mesh that is a resource, which only egresses reach.
    pub(super) fn outside(&self, external: &ExternalService, mesh: &MeshContext) -> Service {
        let mut service =
            Service { exit: Some(Exit::Egress), protocol: external.protocol, ..Service::ready() };
        if !external.is_reached_from(&mesh.zone) {
            return service;
        }
        let mut tags = external.tags.clone();
        tags.insert(labels::TAG_SERVICE.to_owned(), external.service.to_string());
        let own: Vec<&OwnExits> = self.own_exits.values().filter(|_| mesh.services_are_exclusive()).collect();
        if own.is_empty() {
            service.endpoints.extend(self.at_exits(&tags, mesh));
            return service;
        }
        let identities = own.iter().flat_map(|exits| exits.identities.iter().cloned()).collect();
        service.exit = Some(Exit::OwnEgress(Arc::new(identities)));
        service.endpoints.extend(at(own.iter().flat_map(|exits| &exits.doors), &tags, mesh));
        service
    }

    /// The egresses of this zone, as endpoints with these tags. They are members of meshes that have an authority.
    fn at_exits(&self, tags: &BTreeMap<String, String>, mesh: &MeshContext) -> Vec<Endpoint> {
        at(self.exits.iter().filter(|_| mesh.mtls.is_some()), tags, mesh)
    }
}
