//! Builtin gateways: which proxy runs which, and the secrets they show.

use std::sync::Arc;

use common::model::Resource;

use super::{MeshState, MeshUpdate};
use crate::mesh::Dataplane;

impl MeshState {
    /// A proxy with the gateway it runs.
    pub(super) fn with_gateway(&self, dataplane: Dataplane) -> Dataplane {
        match dataplane.gateway_service() {
            Some(service) => {
                let gateways = self.context.gateways.for_service(service);
                dataplane.running(&gateways)
            }
            None => dataplane,
        }
    }

    /// Proxies may run another gateway, or another version of theirs.
    pub(super) fn gateway(
        &mut self,
        name: &Arc<str>,
        resource: Option<&Arc<Resource>>,
        update: &mut MeshUpdate,
    ) {
        for proxy in self.context.gateways.set(name, resource) {
            let Some(known) = self.context.dataplanes.get(&proxy) else { continue };
            let dataplane = self.with_gateway(Dataplane::clone(known));
            self.context.dataplanes.insert(Arc::clone(&proxy), Arc::new(dataplane));
            update.change.dataplanes.insert(proxy);
        }
    }

    /// Takes in a secret of the mesh.
    pub(super) fn secret(
        &mut self,
        name: &Arc<str>,
        resource: Option<&Arc<Resource>>,
        update: &mut MeshUpdate,
    ) {
        match resource {
            Some(resource) => self.context.secrets.insert(Arc::clone(name), Arc::clone(resource)),
            None => self.context.secrets.remove(name),
        };
        update.secrets = true;
        update.change.secrets.insert(Arc::clone(name));
    }
}
