//! What a proxy is to have, whether or not it was sent that: also of one that is not connected, and with the policies
//! that are only being tried out.

use std::sync::Arc;

use common::{
    envoy_admin::ConfigOptions,
    model::{
        Resource, ResourceKey,
        kinds::{self, dataplane_insight},
        labels,
    },
    proto::kuma::mesh::v1alpha1::DataplaneInsight,
    redact,
    runtime::{Env, Offload},
    store::{
        Snapshot,
        index::{Index, IndexReader},
    },
    xds::Want,
};
use prost::Message;
use serde_json::{Value, json};
use thiserror::Error;
use tokio::sync::watch;

use super::{
    node::{ProxyId, ProxyKind},
    proxies::{Proxies, ProxyView},
};
use crate::{
    compile::scratch,
    generator::{Encoded, ProxyMetadata, ResourceSet, Shown, Sidecar, type_url},
    json_patch,
    mesh::{
        AgentSocket, Dataplane, Hosts, MeshContext, MeshError, MeshState, Naming, Surroundings, WorkloadKey,
    },
};

/// What makes such configurations.
#[derive(Clone)]
pub struct Previews {
    zone: Arc<str>,
    naming: Naming,
    agent_socket: AgentSocket,
    proxies: Arc<Proxies>,
    /// Where they are made: all of a mesh is read for one.
    making: Arc<Offload>,
    reader: IndexReader,
    hosts: watch::Receiver<Hosts>,
    env: Env,
}

/// Why there is none.
#[derive(Debug, Error)]
pub(super) enum PreviewError {
    /// Nobody knows what the proxy can do.
    #[error("the proxy was never connected to a control plane")]
    NeverConnected,
    /// There is no such proxy here.
    #[error("Dataplane {0} does not exist in this zone")]
    Unknown(String),
    /// It is no proxy here, or not connected.
    #[error("{0} is not connected to this control plane")]
    NotConnected(ProxyId),
    /// It cannot be made.
    #[error("{0}")]
    Failed(String),
}

impl Previews {
    /// Of the proxies of `zone`, from what `reader` shows.
    pub fn new(
        zone: Arc<str>,
        proxies: Arc<Proxies>,
        reader: IndexReader,
        hosts: watch::Receiver<Hosts>,
        env: Env,
    ) -> Self {
        let (naming, agent_socket) = (Naming::default(), AgentSocket::default());
        Self { zone, naming, agent_socket, proxies, making: Arc::default(), reader, hosts, env }
    }

    /// Where services that are known by their tags are called like this.
    #[must_use]
    pub fn with_naming(self, naming: Naming) -> Self {
        Self { naming, ..self }
    }

    /// Where agents who hand out identities listen there, unless a proxy says otherwise.
    #[must_use]
    pub fn with_agent_socket(self, agent_socket: AgentSocket) -> Self {
        Self { agent_socket, ..self }
    }

    /// What there is of every mesh at this moment, or of `one` of them, and why one cannot be read. All of the store is
    /// looked at for it.
    pub(super) async fn meshes(&self, one: Option<&str>) -> Vec<(Arc<str>, Result<MeshState, MeshError>)> {
        let (previews, one) = (self.clone(), one.map(str::to_owned));
        let all = move || {
            let index = previews.reader.current();
            let keys: Vec<ResourceKey> = index.iter().map(|resource| resource.key.clone()).collect();
            let mut around = previews.surroundings();
            around.update(&keys, &index);
            let state =
                |mesh: &Arc<Resource>| (Arc::from(mesh.name()), MeshState::new(mesh.name(), &index, &around));
            let is_meant = |mesh: &&Arc<Resource>| one.as_ref().is_none_or(|one| one == mesh.name());
            index.list(&kinds::mesh::KIND).filter(is_meant).map(state).collect()
        };
        self.making.long(all).await
    }

    /// What is known before anything is read.
    fn surroundings(&self) -> Surroundings {
        Surroundings {
            zone: Arc::clone(&self.zone),
            naming: self.naming.clone(),
            agent_socket: self.agent_socket.clone(),
            hosts: self.hosts.borrow().clone(),
            ..Surroundings::default()
        }
    }

    /// What any proxy is to have. That of a zone is not made for this: it is what it was sent.
    pub(super) async fn of_proxy(&self, id: &ProxyId, plan: ConfigOptions) -> Result<Value, PreviewError> {
        if id.kind == ProxyKind::Dataplane {
            return self.show(&id.mesh, &id.name, plan).await;
        }
        if plan != ConfigOptions::default() {
            let reason = "what policies that are only being tried out change is shown of dataplanes";
            return Err(PreviewError::Failed(reason.to_owned()));
        }
        let view = self.proxies.get(id).filter(|view| view.config.is_some());
        view.map(|view| sent(&view)).ok_or_else(|| PreviewError::NotConnected(id.clone()))
    }

    /// What a dataplane is to have, in the form Kuma's clients know. It is what it was sent where that is asked for.
    pub(super) async fn show(
        &self,
        mesh: &str,
        name: &str,
        plan: ConfigOptions,
    ) -> Result<Value, PreviewError> {
        let id = ProxyId::new(ProxyKind::Dataplane, mesh, name);
        let view = self.proxies.get(&id);
        if plan == ConfigOptions::default()
            && let Some(view) = view.as_ref().filter(|view| view.config.is_some())
        {
            return Ok(sent(view));
        }
        let said = view.map(|view| ProxyMetadata::of_node(&view.proxy.metadata));
        let (previews, mesh, name) = (self.clone(), mesh.to_owned(), name.to_owned());
        self.making.long(move || previews.of(&mesh, &name, said)?.planned(plan)).await
    }

    /// All that is known of one proxy at this moment, and what its configurations have in common. `said` is what
    /// it says about itself where it is connected.
    fn of(&self, mesh: &str, name: &str, said: Option<ProxyMetadata>) -> Result<Preview, PreviewError> {
        let index = self.reader.current();
        let stored = || {
            let insight = index.get(&ResourceKey::new(&dataplane_insight::KIND, mesh, name))?;
            let metadata = DataplaneInsight::decode(&*insight.spec).ok()?.metadata.unwrap_or_default();
            Some(ProxyMetadata::of_node(&metadata))
        };
        let metadata = said.or_else(stored).ok_or(PreviewError::NeverConnected)?;
        let mut preview = Preview {
            mesh: mesh.to_owned(),
            name: name.to_owned(),
            metadata,
            shown: None,
            around: self.surroundings(),
            resources: index.iter().filter(|one| [mesh, ""].contains(&one.mesh())).cloned().collect(),
            index,
        };
        preview.shown = preview.identity(&self.env)?;
        Ok(preview)
    }
}

/// One proxy whose configurations are made.
struct Preview {
    mesh: String,
    name: String,
    metadata: ProxyMetadata,
    /// Made for this and shown to nobody; a proxy with mutual TLS has no configuration without one.
    shown: Option<Shown>,
    around: Surroundings,
    index: Arc<Index>,
    /// Those of its mesh, and those of no mesh.
    resources: Vec<Arc<Resource>>,
}

impl Preview {
    fn planned(&self, plan: ConfigOptions) -> Result<Value, PreviewError> {
        let made = by_type(&self.configuration(plan.shadow)?);
        if !plan.diff {
            return Ok(json!({ "xds": made }));
        }
        let real = if plan.shadow { by_type(&self.configuration(false)?) } else { made.clone() };
        Ok(json!({ "diff": json_patch::diff(&real, &made), "xds": made }))
    }

    /// The configuration, with or without the policies that are only being tried out.
    fn configuration(&self, shadow: bool) -> Result<ResourceSet, PreviewError> {
        let mesh = self.context(shadow)?;
        let sidecar = Sidecar {
            dataplane: self.dataplane(&mesh)?,
            metadata: self.metadata.clone(),
            shown: self.shown.clone(),
            admin: None,
        };
        let made =
            scratch::sidecar(&sidecar, &mesh).map_err(|error| PreviewError::Failed(error.to_string()))?;
        Ok(made.set)
    }

    fn context(&self, shadow: bool) -> Result<MeshContext, PreviewError> {
        let resources = match shadow {
            true => self.resources.iter().map(real).collect(),
            false => self.resources.clone(),
        };
        let snapshot = Snapshot { revision: self.index.revision, commit: None, resources };
        let index = Index::of(self.index.store, snapshot);
        let keys: Vec<ResourceKey> = index.iter().map(|resource| resource.key.clone()).collect();
        let mut around = self.around.clone();
        around.update(&keys, &index);
        let state = MeshState::new(&self.mesh, &index, &around);
        Ok(state.map_err(|error| PreviewError::Failed(error.to_string()))?.context().clone())
    }

    fn dataplane(&self, mesh: &MeshContext) -> Result<Arc<Dataplane>, PreviewError> {
        let known = mesh.dataplanes.get(self.name.as_str()).cloned();
        known.ok_or_else(|| PreviewError::Unknown(format!("{}/{}", self.mesh, self.name)))
    }

    fn identity(&self, env: &Env) -> Result<Option<Shown>, PreviewError> {
        let failed = |error: &dyn std::error::Error| PreviewError::Failed(error.to_string());
        let (mesh, now) = (self.context(false)?, env.now());
        let dataplane = self.dataplane(&mesh)?;
        if let Some(identity) = mesh.agent_identity(&dataplane) {
            return Ok(Some(Shown::FromAgent(Arc::new(identity))));
        }
        let lacking = mesh.lacks_certificate(&dataplane, None, now).map_err(|error| failed(&error))?;
        let Some((authority, identity)) = lacking else { return Ok(None) };
        let key = WorkloadKey::generate().map_err(|error| failed(&error))?;
        let certificate = authority.issue(identity, &key, now).map_err(|error| failed(&error))?;
        Ok(Some(Shown::Certificate(Arc::new(certificate))))
    }
}

/// A policy that is only being tried out as if it were not.
fn real(resource: &Arc<Resource>) -> Arc<Resource> {
    if resource.label(labels::EFFECT) != Some("shadow") {
        return Arc::clone(resource);
    }
    let mut real = Resource::clone(resource);
    real.labels.remove(labels::EFFECT);
    Arc::new(real)
}

/// What a proxy was sent, or is about to be.
pub(super) fn sent(view: &ProxyView) -> Value {
    let types = view.config.as_ref().map_or_else(|| json!({}), |config| by_type(config.resources()));
    json!({"revision": view.config.as_ref().map(|c| c.revision()), "xds": types})
}

/// Resources by type and name.
fn by_type(set: &ResourceSet) -> Value {
    let mut types = serde_json::Map::new();
    for resource in set.iter() {
        types.entry(resource.type_url).or_insert_with(|| json!({}))[&*resource.name] = decoded(&resource);
    }
    types.into()
}

fn decoded(resource: &Encoded) -> Value {
    if resource.type_url == type_url::SECRET {
        return json!({"name": &*resource.name, "version": resource.version.to_string(), "content": redact::REDACTED});
    }
    resource.to_json().unwrap_or_else(|error| json!({"error": error.to_string()}))
}
