//! The immutable view of one mesh from which configuration is generated.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{Kind, kinds::mesh_service::Port},
    policy::rules::{Destinations, PolicySet},
    proto::kuma::mesh::v1alpha1 as proto,
};
use proto::certificate_authority_backend::Mode;

use super::{
    Authority, Dataplane, Hosts, Identity, MeshService, Topology, WorkloadCertificate, WorkloadKey,
    ZoneIngress,
};
use super::{identity, problem::Problem};
use chrono::{DateTime, Utc};
use common::ca::CaError;
use thiserror::Error;

/// One mesh, at one moment, seen from one zone.
#[derive(Debug)]
pub struct MeshContext {
    /// Its name.
    pub mesh: Arc<str>,
    /// The local zone.
    pub zone: Arc<str>,
    /// Decoded spec of the mesh.
    pub spec: proto::Mesh,
    /// Proxies of the local zone, by name.
    pub dataplanes: BTreeMap<Arc<str>, Arc<Dataplane>>,
    /// Ingresses of every zone, by name.
    pub ingresses: Vec<Arc<ZoneIngress>>,
    /// Services that are resources, by name.
    pub mesh_services: Vec<Arc<MeshService>>,
    /// Every policy of the mesh, parsed, by kind name.
    pub policies: BTreeMap<&'static str, Arc<PolicySet>>,
    /// What policies can point at.
    pub destinations: Arc<Destinations>,
    /// Present when the mesh has mutual TLS.
    pub mtls: Option<Mtls>,
    /// Who serves what.
    pub topology: Topology,
    /// Host names as they were resolved.
    pub hosts: Hosts,
    /// What could not be used.
    pub problems: Vec<Problem>,
}

/// Mutual TLS of a mesh.
#[derive(Clone, Debug)]
pub struct Mtls {
    /// Name of the enabled backend.
    pub backend: String,
    /// Whether proxies also accept plaintext.
    pub permissive: bool,
    /// Zones that sign with keys of their own, so that their workloads prove where they are.
    pub issuers: BTreeSet<String>,
    /// Who signs; absent when its certificate or key is not here (yet) or does not parse, which is also a
    /// problem of the context.
    pub authority: Option<Arc<Authority>>,
}

/// Why a proxy cannot get a certificate.
#[derive(Debug, Error)]
pub enum IdentityError {
    /// The secrets of the backend have not arrived or do not parse.
    #[error(
        "mesh {mesh}: the CA of mTLS backend {backend:?} is not usable here; \
         see that its secrets have been synced and hold a PEM certificate and key"
    )]
    NoAuthority {
        /// Which mesh.
        mesh: Arc<str>,
        /// Its enabled backend.
        backend: String,
    },
    /// Signing failed.
    #[error("sign certificate of a proxy of mesh {mesh}: {source}")]
    Sign {
        /// Which mesh.
        mesh: Arc<str>,
        /// The cause.
        #[source]
        source: CaError,
    },
}

impl MeshContext {
    /// Policies of a kind; `None` when there are none.
    pub fn policies(&self, kind: &Kind) -> Option<&PolicySet> {
        self.policies.get(kind.name).map(|set| &**set)
    }

    /// The certificate `dataplane` should present at `now`: `current` while it is good, else a new one;
    /// `None` when the mesh has no mutual TLS.
    ///
    /// # Errors
    /// [`IdentityError`]; the caller keeps serving what it has and tries again later.
    pub fn certificate(
        &self,
        dataplane: &Dataplane,
        current: Option<&Arc<WorkloadCertificate>>,
        now: DateTime<Utc>,
    ) -> Result<Option<Arc<WorkloadCertificate>>, IdentityError> {
        let Some(mtls) = &self.mtls else { return Ok(None) };
        let authority = mtls.authority.as_ref().ok_or_else(|| IdentityError::NoAuthority {
            mesh: Arc::clone(&self.mesh),
            backend: mtls.backend.clone(),
        })?;
        let identity = Identity { mesh: self.mesh.to_string(), tags: dataplane.all_tags() };
        if let Some(current) = current
            && !authority.must_replace(current, &identity, now)
        {
            return Ok(Some(Arc::clone(current)));
        }
        let signed = WorkloadKey::generate().and_then(|key| authority.issue(identity, &key, now));
        let signed = signed.map_err(|source| IdentityError::Sign { mesh: Arc::clone(&self.mesh), source })?;
        Ok(Some(Arc::new(signed)))
    }

    /// The service and port that a reference means: by labels, or by name, where one of this zone comes
    /// before those of others. The port is optional for services with only one.
    pub fn mesh_service(
        &self,
        name: Option<&str>,
        labels: Option<&BTreeMap<String, String>>,
        port: &str,
    ) -> Option<(&Arc<MeshService>, &Port)> {
        let meant = |service: &&Arc<MeshService>| match (labels, name) {
            (Some(labels), _) => labels.iter().all(|(k, v)| service.resource.label(k) == Some(v)),
            (None, Some(name)) => service.kri.name == name || service.resource.name() == name,
            (None, None) => false,
        };
        let found = self.mesh_services.iter().filter(meant);
        let service = found.min_by_key(|service| service.remote_zone.is_some())?;
        let mut ports = service.spec.ports.iter();
        let port = match (port, service.spec.ports.as_slice()) {
            ("" | "0", [only]) => Some(only),
            _ => ports.find(|p| MeshService::section(p) == port || p.port.to_string() == port),
        };
        port.map(|port| (service, port))
    }

    /// Whether endpoints of other zones are tried only after those of this one.
    pub fn locality_aware(&self) -> bool {
        self.spec.routing.as_ref().is_some_and(|r| r.locality_aware_load_balancing)
    }

    /// Whether services exist as resources only, and no longer as tags for other zones.
    pub fn services_are_exclusive(&self) -> bool {
        use proto::mesh::mesh_services::Mode;
        self.spec.mesh_services.as_ref().is_some_and(|s| s.mode() == Mode::Exclusive)
    }
}

/// The enabled backend of a mesh and how long its certificates live. One that is not among the backends
/// is taken for strict and unknown, since a name that leads nowhere must not switch encryption off.
pub(super) fn enabled_backend(
    spec: &proto::Mesh,
) -> Option<(proto::CertificateAuthorityBackend, chrono::Duration)> {
    let mtls = spec.mtls.as_ref().filter(|m| !m.enabled_backend.is_empty())?;
    let named = mtls.backends.iter().find(|b| b.name == mtls.enabled_backend);
    let backend = named.cloned().unwrap_or_else(|| proto::CertificateAuthorityBackend {
        name: mtls.enabled_backend.clone(),
        ..proto::CertificateAuthorityBackend::default()
    });
    let rotation = backend.dp_cert.as_ref().and_then(|c| c.rotation.as_ref());
    let lifetime = rotation.and_then(|r| identity::parse_lifetime(&r.expiration));
    Some((backend, lifetime.unwrap_or(identity::DEFAULT_LIFETIME)))
}

/// Whether `backend` lets plaintext in.
pub(super) fn is_permissive(backend: &proto::CertificateAuthorityBackend) -> bool {
    backend.mode() == Mode::Permissive
}
