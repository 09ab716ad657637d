//! Mutual TLS of a mesh: who signs for it here, and who else does.

use std::{collections::BTreeSet, sync::Arc};

use common::{
    ca, issuing,
    model::{
        Resource,
        kinds::{self, identity::MeshIdentity},
        labels,
    },
    proto::kuma::{mesh::v1alpha1 as proto, system::v1alpha1 as system},
    store::index::Index,
    token,
};
use proto::certificate_authority_backend::Mode;

use super::{
    Authority, AuthorityPem, TrustBundle, data_source, identity,
    problem::{Problem, Subject, decode},
    workload_identity,
};

/// Mutual TLS of a mesh.
#[derive(Clone, Debug)]
pub struct Mtls {
    /// Name of the enabled backend.
    pub backend: String,
    /// Whether proxies also accept plaintext.
    pub permissive: bool,
    /// Zones that sign with keys of their own, so that their workloads prove where they are.
    pub issuers: BTreeSet<String>,
    /// Nobody else signs for this mesh.
    pub issuers_only: bool,
    /// Who is believed about members of the mesh: the roots of all its backends, as PEM. One that is not enabled yet,
    /// or any more, is one to which, or from which, the mesh moves.
    pub roots: Arc<str>,
    /// Who signs; absent when its certificate or key is not here (yet) or does not parse, which is also a
    /// problem of the context.
    pub authority: Option<Arc<Authority>>,
}

/// Where the secrets of a mesh are found.
#[derive(Clone, Copy)]
pub(super) struct Secrets<'a> {
    pub(super) zone: &'a str,
    pub(super) mesh: &'a str,
    pub(super) index: &'a Index,
}

impl Mtls {
    /// Whether some workloads prove where they are.
    pub fn is_by_zone(&self) -> bool {
        self.issuers_only || !self.issuers.is_empty()
    }

    /// Whether workloads in `zone` have to prove that they are there. Where anybody else may sign, one of a zone
    /// that nobody certified is believed.
    pub fn proves(&self, zone: &str) -> bool {
        self.issuers_only || self.issuers.contains(zone)
    }

    /// Mutual TLS as `spec` wants it; `None` when it does not. What is the same in `known` is kept.
    pub(super) fn of(
        spec: &proto::Mesh,
        secrets: Secrets<'_>,
        known: Option<&Self>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let (backend, lifetime) = enabled_backend(spec)?;
        let known = known.and_then(|known| known.authority.as_ref());
        let authority = secrets.authority(&backend, lifetime, known).map_err(|reason| {
            let part = format!("mTLS backend {} of mesh {}", backend.name, secrets.mesh);
            problems.push(Problem { subject: Subject::Part(part), reason });
        });
        Some(Self {
            permissive: backend.mode() == Mode::Permissive,
            issuers: secrets.issuers(&backend),
            issuers_only: secrets.issuers_only(&backend),
            roots: secrets.roots(spec, authority.as_deref().ok()).into(),
            backend: backend.name,
            authority: authority.ok(),
        })
    }

    /// Whether proxies would notice a change from `other` to this.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same_authority = match (&self.authority, &other.authority) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        same_authority
            && (&self.backend, self.permissive, &self.issuers, self.issuers_only, &self.roots)
                == (&other.backend, other.permissive, &other.issuers, other.issuers_only, &other.roots)
    }
}

impl Secrets<'_> {
    /// The zones that sign with keys of their own for `backend`: those global certified.
    fn issuers(self, backend: &proto::CertificateAuthorityBackend) -> BTreeSet<String> {
        let secrets = self.index.list_in_mesh(&kinds::secret::SECRET, self.mesh);
        let zones = secrets.filter_map(|secret| {
            let zone = secret.label(labels::ISSUER)?;
            (secret.name() == issuing::certificate_secret(self.mesh, &backend.name, zone)).then_some(zone)
        });
        zones.map(str::to_owned).collect()
    }

    /// Whether nobody else signs. An authority of its owner's making signs everywhere as it is.
    fn issuers_only(self, backend: &proto::CertificateAuthorityBackend) -> bool {
        let mesh = self.index.find(&kinds::mesh::KIND, "", self.mesh);
        backend.r#type == kinds::mesh::CA_BUILTIN && mesh.is_some_and(|mesh| issuing::is_by_zone_only(mesh))
    }

    /// The roots of all backends of a mesh that are here, that of the enabled one first.
    fn roots(self, mesh: &proto::Mesh, enabled: Option<&Authority>) -> String {
        let mut roots = enabled.map(|enabled| enabled.certificate.clone()).unwrap_or_default();
        let known = enabled.map(|enabled| enabled.backend.as_str());
        let backends = mesh.mtls.iter().flat_map(|mtls| &mtls.backends);
        for backend in backends.filter(|backend| Some(backend.name.as_str()) != known) {
            // What is no certificate would spoil the others.
            let root = self.root(backend).ok().and_then(|root| TrustBundle::parse(&root).ok());
            let Some(root) = root else { continue };
            if !roots.is_empty() && !roots.ends_with('\n') {
                roots.push('\n');
            }
            roots.push_str(&root.pem);
        }
        roots
    }

    /// The certificate of the root of `backend`, or why it is not here.
    fn root(self, backend: &proto::CertificateAuthorityBackend) -> Result<String, String> {
        match backend.r#type.as_str() {
            "provided" => {
                let conf = backend.conf.as_ref().ok_or("a provided backend needs conf.cert and conf.key")?;
                data_source::read(conf, "cert", |s| self.secret(s))
            }
            _ => self.secret(&ca::certificate_secret(self.mesh, &backend.name)),
        }
    }

    /// PEM texts of the authority of `backend`, or what is missing.
    fn authority_pem(self, backend: &proto::CertificateAuthorityBackend) -> Result<AuthorityPem, String> {
        match backend.r#type.as_str() {
            "builtin" => {
                let root = self.root(backend)?;
                let own = issuing::certificate_secret(self.mesh, &backend.name, self.zone);
                if let (Ok(own), Some(key)) = (self.secret(&own), self.issuing_key()) {
                    return Ok(AuthorityPem { root, key, zone: Some((self.zone.to_owned(), own)) });
                }
                let key = self.secret(&ca::key_secret(self.mesh, &backend.name)).map_err(|reason| {
                    format!("{reason}, nor is a certificate of global for the issuing key of this zone (yet)")
                })?;
                Ok(AuthorityPem { root, key, zone: None })
            }
            "provided" => {
                let conf = backend.conf.as_ref().ok_or("a provided backend needs conf.cert and conf.key")?;
                Ok(AuthorityPem {
                    root: self.root(backend)?,
                    key: data_source::read(conf, "key", |s| self.secret(s))?,
                    zone: None,
                })
            }
            "" => Err("it is enabled, but not among the backends of the mesh".to_owned()),
            other => Err(format!("backends of type {other:?} are not supported; use builtin or provided")),
        }
    }

    /// The authority of `backend`: `known` as long as its certificate, key and settings are the same.
    fn authority(
        self,
        backend: &proto::CertificateAuthorityBackend,
        lifetime: chrono::Duration,
        known: Option<&Arc<Authority>>,
    ) -> Result<Arc<Authority>, String> {
        let material = self.authority_pem(backend)?;
        let same = |known: &&Arc<Authority>| {
            known.backend == backend.name && known.lifetime == lifetime && known.is_of(&material)
        };
        if let Some(known) = known.filter(same) {
            return Ok(Arc::clone(known));
        }
        let made = Authority::from_pem(&backend.name, material, lifetime).map_err(|e| e.to_string())?;
        Ok(Arc::new(made))
    }

    /// The text of a secret of the mesh.
    pub(super) fn secret(self, name: &str) -> Result<String, String> {
        let secret = self.index.find(&kinds::secret::SECRET, self.mesh, name);
        text(secret.ok_or_else(|| format!("the secret {name:?} is not here"))?)
    }

    /// The text of a secret that is for proxies because somebody named it, who need not be one who may see it.
    pub(super) fn named(self, name: &str) -> Result<String, String> {
        if self.is_for_signing(name) {
            return Err(format!(
                "the secret {name:?} is a key by which control planes sign, and for no proxy"
            ));
        }
        self.secret(name)
    }

    /// Whether it is a key by which certificates or tokens of the mesh are signed.
    fn is_for_signing(self, name: &str) -> bool {
        ca::is_key_secret(self.mesh, name)
            || token::is_dataplane_key(name)
            || self.is_of_backend(name)
            || self.is_of_identity(name)
    }

    /// Whether a backend of the mesh is provided with this key.
    fn is_of_backend(self, name: &str) -> bool {
        let mesh = self.index.find(&kinds::mesh::KIND, "", self.mesh);
        let mtls = mesh.and_then(|mesh| mesh.spec::<proto::Mesh>().ok()).and_then(|spec| spec.mtls);
        let backends = mtls.map(|mtls| mtls.backends).unwrap_or_default();
        let key = |conf| data_source::read(conf, "key", |named| Ok(named.to_owned()));
        backends
            .iter()
            .filter_map(|backend| backend.conf.as_ref())
            .any(|conf| key(conf).is_ok_and(|k| k == name))
    }

    /// Whether a `MeshIdentity` signs with this key.
    fn is_of_identity(self, name: &str) -> bool {
        self.index.list_in_mesh(&kinds::identity::KIND, self.mesh).any(|identity| {
            // There may be many, and as many who ask.
            let is_mentioned = String::from_utf8_lossy(&identity.spec).contains(name);
            let spec = is_mentioned.then(|| identity.spec::<MeshIdentity>().ok()).flatten();
            let bundled = spec.and_then(|spec| spec.provider).and_then(|provider| provider.bundled);
            let own = bundled.and_then(|bundled| bundled.ca).and_then(|ca| ca.private_key);
            let named = own.and_then(|key| key.secret_ref).map(|secret| secret.name);
            named.as_deref() == Some(name) || workload_identity::key_secret(identity) == name
        })
    }

    /// The key this zone signs with, where it may.
    fn issuing_key(self) -> Option<String> {
        text(self.index.find(&kinds::secret::GLOBAL_SECRET, "", issuing::KEY_SECRET)?).ok()
    }
}

/// The text a secret holds.
pub(super) fn text(secret: &Arc<Resource>) -> Result<String, String> {
    let name = secret.name();
    let data = decode::<system::Secret>(secret).map_err(|problem| problem.to_string())?.data;
    let data = data.ok_or_else(|| format!("the secret {name:?} holds no data"))?;
    String::from_utf8(data.value.to_vec()).map_err(|_| format!("the secret {name:?} is not text"))
}

/// The enabled backend of a mesh and how long its certificates live. One that is not among the backends
/// is taken for strict and unknown, since a name that leads nowhere must not switch encryption off.
fn enabled_backend(spec: &proto::Mesh) -> Option<(proto::CertificateAuthorityBackend, chrono::Duration)> {
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
