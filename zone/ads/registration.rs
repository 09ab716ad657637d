//! The resource of a proxy that brings its own: stored when it comes, deleted when it stays away.

use std::sync::Arc;

use common::{
    keys::KeySupply,
    mode::Mode,
    model::{ResourceKey, SpecError, Violations, document::Document, kinds::mesh},
    proto::kuma::mesh::v1alpha1::{
        DataplaneInsight, DiscoverySubscription, ZoneEgressInsight, ZoneIngressInsight,
    },
    rest::{Admission, Put, standard_admissions},
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use prost::Message;
use thiserror::Error;
use tokio_util::sync::CancellationToken;

use super::{
    node::{ProxyId, ProxyKind},
    proxies::Proxies,
    resource,
};

/// Why a proxy cannot be registered.
#[derive(Debug, Error)]
pub(super) enum RegisterError {
    /// Its mesh is not here.
    #[error("mesh {0:?} does not exist in this zone; create it, or wait until it is synced")]
    NoMesh(Arc<str>),
    /// The zone does not let such a proxy in.
    #[error("dataplane.resource: {0}")]
    Refused(Violations),
    /// It does not decode.
    #[error("dataplane.resource: {0}")]
    Spec(#[from] SpecError),
    /// The store refused.
    #[error("store the resource of the proxy: {0}")]
    Store(#[from] StoreError),
    /// The process is about to end.
    #[error("this control plane is stopping")]
    Stopping,
}

impl From<Violations> for RegisterError {
    fn from(violations: Violations) -> Self {
        Self::Refused(violations)
    }
}

/// Stores and deletes what proxies bring along.
pub(super) struct Registrar {
    store: Arc<dyn Store>,
    index: IndexReader,
    mode: Mode,
    env: Env,
    rules: Vec<Arc<dyn Admission>>,
}

impl Registrar {
    /// For the proxies of a zone. What comes in obeys the same rules as what is written over REST.
    pub(super) fn new(store: Arc<dyn Store>, index: IndexReader, mode: Mode, env: Env) -> Self {
        Self { store, index, mode, env, rules: standard_admissions(false, None) }
    }

    fn ours(&self, proxy: &ProxyId) -> Precondition {
        Precondition::OwnedBy(self.mode.origin_of(proxy.kind.resource()))
    }

    /// Stores `document` as the resource of `proxy`, and returns once it is visible in the index.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub(super) async fn register(&self, proxy: &ProxyId, document: Document) -> Result<(), RegisterError> {
        let index = self.index.current();
        if proxy.kind == ProxyKind::Dataplane && index.find(&mesh::KIND, "", &proxy.mesh).is_none() {
            return Err(RegisterError::NoMesh(Arc::clone(&proxy.mesh)));
        }
        let existing = index.get(&proxy.key()).map(Arc::as_ref);
        let now = self.env.now();
        let mut resource = resource::adopt(document, proxy.kind, &self.mode, existing, now)?;
        let mut also = Vec::new();
        for rule in self.rules.iter().filter(|rule| rule.concerns(proxy.kind.resource())) {
            rule.put(&mut Put {
                mode: &self.mode,
                index: &index,
                env: &self.env,
                existing,
                resource: &mut resource,
                // Proxies register themselves and nothing that comes with keys.
                keys: &mut KeySupply::default(),
                also: &mut also,
            })?;
        }
        let put = Write::put_when(resource, self.ours(proxy));
        let commit = self.store.transact(Batch::of(also.into_iter().chain([put]))).await?;
        self.index.wait_for(commit.revision).await.ok_or(RegisterError::Stopping)?;
        Ok(())
    }

    /// Deletes the resources of proxies that registered themselves and stay away, until `shutdown`. A
    /// proxy that only loses this process is not one of them.
    pub(super) async fn run(&self, proxies: &Proxies, shutdown: CancellationToken) {
        loop {
            let overdue = tokio::select! {
                () = shutdown.cancelled() => return,
                overdue = proxies.overdue() => overdue,
            };
            for proxy in overdue.into_iter().filter(|p| !proxies.is_connected(p)) {
                self.deregister(&proxy).await;
            }
        }
    }

    async fn deregister(&self, proxy: &ProxyId) {
        let index = self.index.current();
        if self.is_elsewhere(proxy, &index) {
            return;
        }
        let delete = Write::delete_when(proxy.key(), self.ours(proxy));
        match self.store.transact(Batch::of([delete])).await {
            Ok(_) => tracing::info!(%proxy, "the proxy stays away, its resource is deleted"),
            Err(error) => {
                tracing::warn!(%proxy, %error, "cannot delete the resource of a proxy that stays away")
            }
        }
    }

    /// Whether the newest stream of the proxy goes to another process that shares the store.
    fn is_elsewhere(&self, proxy: &ProxyId, index: &Index) -> bool {
        let newest = newest_subscription(proxy.insight_key(), proxy.kind, index);
        newest.is_some_and(|s| {
            s.disconnect_time.is_none() && s.control_plane_instance_id != *self.env.instance_id
        })
    }
}

fn newest_subscription(key: ResourceKey, kind: ProxyKind, index: &Index) -> Option<DiscoverySubscription> {
    let spec = &index.get(&key)?.spec[..];
    let mut subscriptions = match kind {
        ProxyKind::Dataplane => DataplaneInsight::decode(spec).ok()?.subscriptions,
        ProxyKind::Ingress => ZoneIngressInsight::decode(spec).ok()?.subscriptions,
        ProxyKind::Egress => ZoneEgressInsight::decode(spec).ok()?.subscriptions,
    };
    subscriptions.pop()
}
