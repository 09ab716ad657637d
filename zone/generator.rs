//! From a proxy and its mesh to Envoy configuration. Pure: the same values give the same bytes.
//!
//! ```text
//!  Proxy + MeshContext ──► Draft (typed, still open) ──► policies, in order ──► ResourceSet (encoded once)
//! ```
//!
//! A [`Draft`] keeps what Envoy wants packed (filters, TLS contexts, protocol options) unpacked, so that
//! policies edit typed messages; [`ResourceSet`] packs and encodes everything exactly once.

mod admin;
mod assignment;
pub(crate) mod backend;
mod draft;
mod encode;
pub mod envoy;
mod inbound;
mod ingress;
mod interner;
mod names;
pub(crate) mod outbound;
mod proxy;
mod resource_set;
mod secrets;
pub mod sni;

#[cfg(test)]
mod tests;

pub use admin::{AdminEndpoint, AdminIdentity, CONTROL_PLANE_NAME};
pub use assignment::Assignments;
pub use backend::{Backend, ResourceBackend};
pub use draft::{
    Chain, ClusterDraft, Draft, EndpointsDraft, HttpChain, ListenerDraft, Role, RouteDraft, Terminal,
};
pub use encode::to_json;
pub use interner::Interner;
pub(crate) use names::{ADMIN, metric as metric_name};
pub use outbound::Outbound;
pub use proxy::{Proxy, ProxyMetadata, Sidecar, ZoneIngressProxy};
pub use resource_set::{Changes, Encoded, ResourceSet, type_url};

use std::sync::Arc;

use common::model::Resource;
use thiserror::Error;

use crate::{
    mesh::{MeshContext, Problem, problem::Subject},
    policy,
};

/// A finished configuration.
#[derive(Clone, Debug)]
pub struct Generated {
    /// What Envoy gets.
    pub set: ResourceSet,
    /// Where the endpoints in it come from, as far as they are those of a service.
    pub assignments: Assignments,
    /// What was left out of it, and why. The rest stands.
    pub problems: Vec<Problem>,
}

/// Why there is no configuration; the proxy keeps the last one.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum GenerateError {
    /// The mesh has mutual TLS; without a certificate the proxy would have to serve plaintext.
    #[error("mesh {mesh} has mutual TLS, but there is no certificate for {proxy} yet")]
    NoCertificate {
        /// Which mesh.
        mesh: Arc<str>,
        /// Which proxy.
        proxy: String,
    },
}

/// The configuration of a sidecar.
///
/// # Errors
/// [`GenerateError`] when a configuration would be less safe than none.
pub fn sidecar(proxy: &Sidecar, mesh: &MeshContext, interner: &Interner) -> Result<Generated, GenerateError> {
    if mesh.mtls.is_some() && proxy.certificate.is_none() {
        let proxy = proxy.dataplane.name().to_owned();
        return Err(GenerateError::NoCertificate { mesh: Arc::clone(&mesh.mesh), proxy });
    }
    let mut draft = Draft::default();
    let mut problems = Vec::new();
    inbound::generate(proxy, mesh, &mut draft);
    policy::apply_all(proxy, mesh, &mut draft, &mut problems);
    secrets::generate(proxy, mesh, &mut draft);
    // Nothing that users say about traffic is said about this.
    if !admin::generate(&proxy.metadata, proxy.admin.as_ref(), &mut draft) {
        problems.push(admin_port_taken(&proxy.dataplane.resource));
    }
    let (set, assignments) = draft.finish(interner);
    Ok(Generated { set, assignments, problems })
}

/// The configuration of a zone ingress, which serves every mesh of the zone.
pub fn zone_ingress(proxy: &ZoneIngressProxy, meshes: &[Arc<MeshContext>], interner: &Interner) -> Generated {
    let mut draft = Draft::default();
    let mut problems = Vec::new();
    ingress::generate(proxy, meshes, &mut draft, &mut problems);
    if !admin::generate(&proxy.metadata, proxy.admin.as_ref(), &mut draft) {
        problems.push(admin_port_taken(&proxy.ingress.resource));
    }
    let (set, assignments) = draft.finish(interner);
    Generated { set, assignments, problems }
}

fn admin_port_taken(resource: &Resource) -> Problem {
    let reason =
        "nobody elsewhere can ask its Envoy, because networking.admin.port is one of its own listeners";
    Problem { subject: Subject::of(resource), reason: reason.to_owned() }
}
