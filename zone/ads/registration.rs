//! The resource of a proxy that brings its own: stored when it comes, deleted when it stays away.

use std::{sync::Arc, time::Duration};

use common::{
    document::Document,
    keys::KeySupply,
    mode::Mode,
    model::{ResourceKey, SpecError, Violations, kinds::mesh, labels},
    proto::kuma::mesh::v1alpha1::{Dataplane, DiscoverySubscription},
    rest::{Admission, Put, standard_admissions},
    runtime::Env,
    store::{
        Batch, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use thiserror::Error;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::{
    allowance::{AllowanceSpent, Allowances},
    insight,
    node::{ProxyId, ProxyKind},
    pace::{WritePace, WriteRate},
    proxies::Proxies,
    resource, size,
};
use crate::account::Account;

/// How often a write that lost a race against another is tried again.
const ATTEMPTS: usize = 8;
/// Longest wait for the write of another to arrive.
const NEXT_INDEX: Duration = Duration::from_millis(250);
/// When it is looked again after a proxy that stays away, of which something was left.
const AGAIN: Duration = Duration::from_secs(30);
/// How often a proxy brings along something else than before. Who starts again with what it had waits for nothing.
const CHANGES: WriteRate = WriteRate { at_once: 8, every: Duration::from_secs(5) };

/// Why a proxy cannot be registered.
#[derive(Debug, Error)]
pub enum RegisterError {
    /// Its mesh is not here.
    #[error("mesh {0:?} does not exist in this zone; create it, or wait until it is synced")]
    NoMesh(Arc<str>),
    /// The zone does not let such a proxy in.
    #[error("dataplane.resource: {0}")]
    Refused(Violations),
    /// It does not decode.
    #[error("dataplane.resource: {0}")]
    Spec(#[from] SpecError),
    /// Somebody applied something else.
    #[error(
        "{0} was applied by somebody and says something else than what the proxy brings along: apply the same, \
         delete it, or start the proxy without a resource of its own"
    )]
    Applied(ResourceKey),
    /// Others with its token brought along all that one token may.
    #[error("{0}")]
    Spent(#[from] AllowanceSpent),
    /// It brought along something else too often.
    #[error("the proxy brings along something else too often: try again in {} s", .0.as_secs() + 1)]
    TooOften(Duration),
    /// It belongs to another control plane.
    #[error("{0} belongs to another control plane")]
    Foreign(ResourceKey),
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

/// Says what proxies may bring along. It obeys the same rules as what is written over REST.
#[derive(Clone)]
pub(super) struct RegistrationRules {
    mode: Mode,
    env: Env,
    admissions: Vec<Arc<dyn Admission>>,
}

/// What is to be written so that a proxy has the resource it brings along.
pub(super) struct RegistrationPlan {
    batch: Batch,
    /// Whether it had another one, or none.
    is_change: bool,
    /// How many inbounds it counts as.
    weight: usize,
}

impl RegistrationRules {
    /// For the proxies of a zone.
    pub(super) fn new(mode: Mode, env: Env) -> Self {
        Self { mode, env, admissions: standard_admissions(false, None) }
    }

    /// What is to be written so that `document` is the resource of `proxy`, on the account of the token with this
    /// fingerprint; `None` where somebody applied the same.
    ///
    /// # Errors
    /// [`RegisterError`] where it may not be that.
    pub(super) fn decide(
        &self,
        proxy: &ProxyId,
        document: Document,
        token: Option<&str>,
        index: &Index,
    ) -> Result<Option<RegistrationPlan>, RegisterError> {
        if proxy.kind == ProxyKind::Dataplane && index.find(&mesh::KIND, "", &proxy.mesh).is_none() {
            return Err(RegisterError::NoMesh(Arc::clone(&proxy.mesh)));
        }
        let key = proxy.key();
        let existing = index.get(&key).map(Arc::as_ref);
        let now = self.env.now();
        let mut resource = resource::adopt(document, proxy.kind, &self.mode, existing, now)?;
        let mut also = Vec::new();
        for rule in self.admissions.iter().filter(|rule| rule.concerns(proxy.kind.resource())) {
            rule.put(&mut Put {
                mode: &self.mode,
                index,
                env: &self.env,
                existing,
                resource: &mut resource,
                // Proxies register themselves and nothing that comes with keys.
                keys: &mut KeySupply::default(),
                also: &mut also,
            })?;
        }
        // What was decided holds for what was seen.
        let when = match existing {
            None => Precondition::Absent,
            Some(existing) if existing.origin != resource.origin => return Err(RegisterError::Foreign(key)),
            Some(existing) if resource::is_registered(existing) => Precondition::At(existing.revision),
            Some(applied) if resource::agrees(&resource, applied) => return Ok(None),
            Some(_) => return Err(RegisterError::Applied(key)),
        };
        let is_dataplane = proxy.kind == ProxyKind::Dataplane;
        let dataplane = is_dataplane.then(|| resource.spec::<Dataplane>()).transpose()?;
        let violations = size::check(dataplane.as_ref(), &resource.labels);
        if !violations.is_empty() {
            return Err(RegisterError::Refused(violations));
        }
        let weight = dataplane.map_or(0, |dataplane| size::weight(&dataplane, &resource.labels));
        if let Some(token) = token {
            resource.labels.insert(labels::REGISTERED_WITH, Account::note(token));
        }
        let is_change = existing.is_none_or(|existing| !existing.same_content(&resource));
        let put = Write::put_when(resource, when);
        let batch = Batch::of(also.into_iter().chain([put]));
        Ok(Some(RegistrationPlan { batch, is_change, weight }))
    }
}

/// Stores and deletes what proxies bring along.
pub(super) struct Registrar {
    store: Arc<dyn Store>,
    index: IndexReader,
    rules: RegistrationRules,
    allowances: Allowances,
    pace: WritePace,
}

impl Registrar {
    /// Where it is stored, and by which rules; with one token so many inbounds at a time.
    pub(super) fn new(
        store: Arc<dyn Store>,
        index: IndexReader,
        rules: RegistrationRules,
        inbounds: usize,
    ) -> Self {
        let (allowances, pace) = (Allowances::new(inbounds), WritePace::new(CHANGES, inbounds));
        Self { store, index, rules, allowances, pace }
    }

    /// Stores `document` as the resource of `proxy`, which showed the token with this fingerprint, and returns once it
    /// is visible in the index. Says whether it is the proxy's own: what somebody applied stays as it is. Whoever it is
    /// has to join then, however the caller fares: what nobody leaves is not cleared away.
    ///
    /// # Errors
    /// [`RegisterError`].
    pub(super) async fn register(
        &self,
        proxy: &ProxyId,
        document: Document,
        token: Option<&str>,
    ) -> Result<bool, RegisterError> {
        let mut attempt = 1;
        loop {
            let index = self.index.current();
            match self.try_register(proxy, document.clone(), token, &index).await {
                Err(RegisterError::Store(error)) if attempt < ATTEMPTS && lost_race(&error) => {
                    attempt += 1;
                    self.see_the_winner(&index).await;
                }
                decided => return decided,
            }
        }
    }

    async fn try_register(
        &self,
        proxy: &ProxyId,
        document: Document,
        token: Option<&str>,
        index: &Index,
    ) -> Result<bool, RegisterError> {
        let Some(plan) = self.rules.decide(proxy, document, token, index)? else { return Ok(false) };
        let is_there = |proxy: &ProxyId| index.get(&proxy.key()).is_some_and(|r| resource::is_registered(r));
        let pending = token.map(|token| self.allowances.take(proxy, token, plan.weight, is_there));
        let pending = pending.transpose()?;
        let stored = match plan.is_change.then(|| self.pace.take(proxy, token, Instant::now())) {
            Some(Err(wait)) => Err(RegisterError::TooOften(wait)),
            Some(Ok(())) | None => self.store.transact(plan.batch).await.map_err(RegisterError::from),
        };
        if let Some(pending) = pending {
            self.allowances.settle(proxy, pending, stored.is_ok());
        }
        self.index.wait_long_for(stored?.revision).await.ok_or(RegisterError::Stopping)?;
        Ok(true)
    }

    /// Waits for the index to show what another writer has just stored.
    async fn see_the_winner(&self, seen: &Index) {
        let mut index = self.index.clone();
        if index.latest().revision == seen.revision {
            let _changed = timeout(NEXT_INDEX, index.changed()).await;
        }
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
                let share = self.allowances.share_of(&proxy);
                if self.deregister(&proxy).await {
                    self.allowances.release(&proxy, share);
                } else {
                    proxies.due_again(&proxy, AGAIN);
                }
            }
        }
    }

    /// Says whether nothing is left of what the proxy brought along.
    async fn deregister(&self, proxy: &ProxyId) -> bool {
        for _ in 0..ATTEMPTS {
            let index = self.index.current();
            // Somebody may have applied another one meanwhile, and that stays.
            let Some(resource) = index.get(&proxy.key()).filter(|r| resource::is_registered(r)) else {
                return true;
            };
            if self.is_elsewhere(proxy, &index) {
                return false;
            }
            let delete = Write::delete_when(proxy.key(), Precondition::At(resource.revision));
            match self.store.transact(Batch::of([delete])).await {
                Ok(_) => {
                    tracing::info!(%proxy, "the proxy stays away, its resource is deleted");
                    return true;
                }
                Err(error) if lost_race(&error) => self.see_the_winner(&index).await,
                Err(error) => {
                    tracing::warn!(%proxy, %error, "cannot delete the resource of a proxy that stays away");
                    return false;
                }
            }
        }
        tracing::warn!(%proxy, "the resource of a proxy that stays away keeps changing, so it is left for now");
        false
    }

    /// Whether another process that shares the store had the newest stream of the proxy, and sees to it.
    fn is_elsewhere(&self, proxy: &ProxyId, index: &Index) -> bool {
        let newest = newest_subscription(proxy.insight_key(), index);
        newest.is_some_and(|newest| newest.control_plane_instance_id != *self.rules.env.instance_id)
    }
}

fn lost_race(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Conflict { .. } | StoreError::AlreadyExists { .. } | StoreError::NotFound { .. }
    )
}

fn newest_subscription(key: ResourceKey, index: &Index) -> Option<DiscoverySubscription> {
    insight::subscriptions(index.get(&key)?).pop()
}
