//! Which control plane this process is.

use std::sync::Arc;

use crate::model::{Kind, Origin, Resource, labels};

/// The role of a control plane, which decides what may be written through its API and who owns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Owns the policies of all zones.
    Global,
    /// Owns the proxies of one zone.
    Zone {
        /// Name of the zone.
        name: Arc<str>,
        /// Whether it follows a global; a zone on its own owns everything.
        federated: bool,
    },
}

impl Mode {
    /// A zone that follows a global.
    pub fn federated_zone(name: &str) -> Self {
        Self::Zone { name: name.into(), federated: true }
    }

    /// A zone on its own.
    pub fn standalone_zone(name: &str) -> Self {
        Self::Zone { name: name.into(), federated: false }
    }

    /// Name of the zone, `None` on global.
    pub fn zone(&self) -> Option<&str> {
        match self {
            Self::Global => None,
            Self::Zone { name, .. } => Some(name),
        }
    }

    /// Whether this is a zone that follows a global.
    pub fn is_federated_zone(&self) -> bool {
        matches!(self, Self::Zone { federated: true, .. })
    }

    /// Whether the mesh-wide truth (meshes, signing keys, certificate authorities) is made here: on
    /// global and on a zone on its own.
    pub fn owns_meshes(&self) -> bool {
        !self.is_federated_zone()
    }

    /// Whether resources of `kind` may be written through the API here.
    pub fn may_write(&self, kind: &Kind) -> bool {
        !kind.read_only
            && match self {
                Self::Global => kind.flow.written_by_global(),
                Self::Zone { federated: true, .. } => kind.flow.written_by_zone(),
                Self::Zone { federated: false, .. } => true,
            }
    }

    /// Completes the labels of a resource that was written here.
    pub fn label(&self, resource: &mut Resource) {
        let kind = resource.kind();
        if kind.is_mesh_scoped() {
            let mesh = resource.mesh().to_owned();
            resource.labels.or_insert(labels::MESH, mesh);
        }
        if let Some(zone) = self.zone().filter(|_| kind.flow.written_by_zone()) {
            let own = &mut resource.labels;
            own.or_insert(labels::ORIGIN, labels::ORIGIN_ZONE);
            if own.get(labels::ORIGIN) != Some(labels::ORIGIN_GLOBAL) {
                own.or_insert(labels::ZONE, zone);
                own.or_insert(labels::ENV, labels::ENV_UNIVERSAL);
            }
        }
        kind.label(resource);
    }

    /// Who owns a resource of `kind` that is written here.
    pub fn origin_of(&self, kind: &Kind) -> Origin {
        match self {
            Self::Zone { name, .. } if kind.flow.written_by_zone() => Origin::Zone(Arc::clone(name)),
            _ => Origin::Global,
        }
    }
}
