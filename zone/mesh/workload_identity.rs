//! `MeshIdentity`: who gives identities to which proxies, seen from one zone.

use std::sync::Arc;

use chrono::Duration;
use common::{
    config,
    model::{
        Resource, Spec,
        kinds::{
            data_source::{DataSource, DataSourceType},
            identity::{BundledProvider, MeshIdentity, Switch},
            mesh_identity,
        },
        kri::Kri,
    },
};
use imbl::OrdMap;

use super::{
    Authority, AuthorityPem, Dataplane, GivenIdentity, TrustBundle, identity,
    problem::{Problem, Subject},
};

/// Bytes of a file with a certificate or a key.
const LARGEST_FILE: u64 = 256 * 1024;

/// A `MeshIdentity`.
#[derive(Debug)]
pub struct WorkloadIdentity {
    /// The resource this was read from.
    pub resource: Arc<Resource>,
    /// Its decoded spec.
    pub spec: MeshIdentity,
    /// Its identifier.
    pub kri: Arc<str>,
    /// The trust domain of those it names, or why there is none.
    pub trust_domain: Result<String, String>,
    /// Whether proxies show what they have by it.
    pub ready: bool,
    /// Who signs, or why nobody here can.
    pub authority: Result<Arc<Authority>, String>,
}

impl WorkloadIdentity {
    /// Reads `resource`, seen from `zone`. `secret` knows the secrets of its mesh, and `known` is what it was before,
    /// of which the authority is kept as long as it is the same.
    ///
    /// # Errors
    /// The problem, when the spec does not decode.
    pub fn read(
        resource: &Arc<Resource>,
        zone: &str,
        secret: impl Fn(&str) -> Result<String, String>,
        known: Option<&Self>,
    ) -> Result<Self, Problem> {
        let problem = |reason: String| Problem { subject: Subject::of(resource), reason };
        let spec = MeshIdentity::decode(&resource.spec).map_err(|error| problem(error.to_string()))?;
        let kri = Kri::of(resource).ok_or_else(|| problem("the kind has no identifier".to_owned()))?;
        let kri: Arc<str> = kri.to_string().into();
        let known = known.and_then(|known| known.authority.as_ref().ok());
        let authority = authority_pem(resource, &spec, secret).and_then(|material| {
            let lifetime = lifetime(&spec);
            let same = |known: &&Arc<Authority>| known.is_of(&material) && known.lifetime == lifetime;
            if let Some(known) = known.filter(same) {
                return Ok(Arc::clone(known));
            }
            Authority::from_pem(&kri, material, lifetime).map(Arc::new).map_err(|error| error.to_string())
        });
        let trust_domain = spec.trust_domain(resource, zone).map_err(|error| error.to_string());
        let is_served = spec.is_bundled() || spec.agent_timeout().is_some();
        let ready = is_served && mesh_identity::is_ready(resource);
        Ok(Self { resource: Arc::clone(resource), spec, kri, trust_domain, ready, authority })
    }

    /// What it calls `dataplane`.
    ///
    /// # Errors
    /// Why that is no name, in words.
    pub fn name(&self, dataplane: &Resource) -> Result<GivenIdentity, String> {
        let domain = self.trust_domain.as_ref().map_err(Clone::clone)?;
        let id = self.spec.name_of(domain, dataplane).map_err(|error| error.to_string())?;
        Ok(GivenIdentity { id, by: Arc::clone(&self.kri) })
    }

    /// Whether proxies would notice a change from `other` to this.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        let same_authority = match (&self.authority, &other.authority) {
            (Ok(a), Ok(b)) => Arc::ptr_eq(a, b),
            (Err(a), Err(b)) => a == b,
            _ => false,
        };
        same_authority
            && (&self.spec, &self.kri, &self.trust_domain, self.ready)
                == (&other.spec, &other.kri, &other.trust_domain, other.ready)
    }
}

/// The identities of a mesh, by name.
#[derive(Clone, Debug, Default)]
pub struct WorkloadIdentities(OrdMap<Arc<str>, Arc<WorkloadIdentity>>);

impl WorkloadIdentities {
    /// The one for `dataplane`: that with the narrowest selector, ready or not.
    pub fn of(&self, dataplane: &Dataplane) -> Option<&Arc<WorkloadIdentity>> {
        if self.0.is_empty() {
            return None;
        }
        mesh_identity::narrowest(self.0.values(), &dataplane.resource.labels, |one| {
            (&one.resource, &one.spec)
        })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<WorkloadIdentity>> {
        self.0.values()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The one of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<WorkloadIdentity>> {
        self.0.get(name)
    }

    /// Replaces the one of this name; gives what it was.
    pub(super) fn set(
        &mut self,
        name: &Arc<str>,
        identity: Option<Arc<WorkloadIdentity>>,
    ) -> Option<Arc<WorkloadIdentity>> {
        match identity {
            Some(identity) => self.0.insert(Arc::clone(name), identity),
            None => self.0.remove(name),
        }
    }
}

/// Name of the secret with the root that a zone makes for an identity.
pub(crate) fn root_secret(identity: &Resource) -> String {
    format!("{}-root-ca", identity.display_name())
}

/// Name of the secret with the key of that root.
pub(crate) fn key_secret(identity: &Resource) -> String {
    format!("{}-private-key", identity.display_name())
}

/// The member of the provider that is this control plane.
pub(crate) fn bundled(spec: &MeshIdentity) -> Option<&BundledProvider> {
    spec.provider.as_ref().filter(|_| spec.is_bundled())?.bundled.as_ref()
}

/// Whether the zone makes the root itself.
pub(crate) fn is_autogenerated(bundled: &BundledProvider) -> bool {
    bundled.autogenerate.as_ref().and_then(|it| it.enabled).unwrap_or_default()
}

/// Whether a `MeshTrust` is made of it.
pub(crate) fn creates_trust(bundled: &BundledProvider) -> bool {
    bundled.mesh_trust_creation != Some(Switch::Disabled)
}

/// The PEM texts of the authority of an identity, or what is missing.
pub(crate) fn authority_pem(
    identity: &Resource,
    spec: &MeshIdentity,
    secret: impl Fn(&str) -> Result<String, String>,
) -> Result<AuthorityPem, String> {
    let bundled = bundled(spec).ok_or("certificates of it are not made by control planes of this kind")?;
    let (root, key) = if is_autogenerated(bundled) {
        (secret(&root_secret(identity))?, secret(&key_secret(identity))?)
    } else {
        let own = bundled.ca.as_ref().ok_or("spec.provider.bundled.ca is missing")?;
        let read = |member: &str, source: &Option<DataSource>| {
            let at = |reason: String| format!("spec.provider.bundled.ca.{member}: {reason}");
            let source = source.as_ref().ok_or_else(|| at("it is missing".to_owned()))?;
            read_source(source, &secret).map_err(at)
        };
        (read("certificate", &own.certificate)?, read("privateKey", &own.private_key)?)
    };
    // What else stands there, a key perhaps, is nobody's business: this text is shown to everybody.
    let root = TrustBundle::parse(&root)?.pem;
    Ok(AuthorityPem { root, key, zone: None })
}

fn read_source(
    source: &DataSource,
    secret: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    const MISSING: &str = "it does not say where to look";
    match source.kind {
        DataSourceType::Secret => secret(&source.secret_ref.as_ref().ok_or(MISSING)?.name),
        DataSourceType::InsecureInline => Ok(source.insecure_inline.as_ref().ok_or(MISSING)?.value.clone()),
        DataSourceType::File => read_file(&source.file.as_ref().ok_or(MISSING)?.path),
        DataSourceType::EnvVar => {
            let name = &source.env_var.as_ref().ok_or(MISSING)?.name;
            config::variable(name).ok_or_else(|| format!("the zone has no environment variable {name:?}"))
        }
    }
}

/// What is in a file of the machine of the zone. Nothing that could keep who reads it waiting is opened.
fn read_file(path: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("cannot read {path}: {error}");
    let about = std::fs::metadata(path).map_err(failed)?;
    if !about.is_file() || about.len() > LARGEST_FILE {
        return Err(format!("{path} is no file of at most {LARGEST_FILE} bytes"));
    }
    std::fs::read_to_string(path).map_err(failed)
}

/// How long certificates live.
fn lifetime(spec: &MeshIdentity) -> Duration {
    let parameters = bundled(spec).and_then(|bundled| bundled.certificate_parameters.as_ref());
    let wanted = parameters.and_then(|parameters| parameters.expiry).map(common::model::Duration::to_std);
    let wanted = wanted.and_then(|wanted| Duration::from_std(wanted).ok());
    wanted.filter(|wanted| *wanted > Duration::zero()).unwrap_or(identity::DEFAULT_LIFETIME)
}
