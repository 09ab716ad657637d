//! Lets one replica of a zone at a time do what only one may: follow global, take over another name.
//!
//! Whose store it is, is decided under the same lease: a zone takes one that is nobody's, or that of a zone of another
//! name, only while no other zone runs on it.
//!
//! The leader holds a lease of the store and renews it well before it runs out. A leader that cannot renew
//! gives up before anyone else can begin; what it might still write carries the epoch of its lease and is
//! refused in the store.

use std::{sync::Arc, time::Duration};

use common::{
    control_plane::role::{self, RoleError, StoreOwner},
    mode::Mode,
    runtime::{Entropy, Env},
    store::{Fence, Lease, Store, StoreError},
};
use rand::Rng;
use thiserror::Error;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

/// Name of the lease.
const LEASE: &str = "zone/leader";
/// How long a leader that fell silent keeps others waiting.
const TERM: Duration = Duration::from_secs(10);
/// How often the lease is renewed, and how often those who wait for it ask.
const RENEW: Duration = Duration::from_secs(3);
/// When a leader that could not renew gives up: before its term is over, with time to stop.
const GIVE_UP: Duration = Duration::from_secs(8);
/// How often a zone that starts looks whether the one that starts beside it has taken the store.
const LOOK: Duration = Duration::from_millis(250);

/// Why this process may not lead.
#[derive(Debug, Error)]
pub(crate) enum LeadError {
    /// The former owner still runs.
    #[error(
        "zone {former} runs on this store: give zone {zone} a store of its own (setting \
         store.postgres.dbName), or, to rename the zone, stop {former} first and try again in {TERM:?}"
    )]
    Running {
        /// Name of the zone that runs.
        former: String,
        /// Name of this zone.
        zone: String,
    },
    /// The store belongs to another one, or does not say to whom.
    #[error(transparent)]
    Role(#[from] RoleError),
    /// The store did not answer.
    #[error("ask who leads this zone: {0}")]
    Store(#[from] StoreError),
}

/// What only the leader does.
pub(crate) trait Work: Send {
    /// Works until `stop`. Writes carry `fence`.
    fn lead(&self, fence: Fence, stop: CancellationToken) -> impl Future<Output = ()> + Send;

    /// Another replica leads.
    fn stand_by(&self);
}

/// Two pieces of work that the same replica does.
pub(crate) struct Both<A, B>(pub(crate) A, pub(crate) B);

impl<A: Work + Sync, B: Work + Sync> Work for Both<A, B> {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        tokio::join!(self.0.lead(fence.clone(), stop.clone()), self.1.lead(fence, stop));
    }

    fn stand_by(&self) {
        self.0.stand_by();
        self.1.stand_by();
    }
}

/// What there is to do only where somebody wants it.
impl<W: Work + Sync> Work for Option<W> {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        match self {
            Some(work) => work.lead(fence, stop).await,
            None => stop.cancelled().await,
        }
    }

    fn stand_by(&self) {
        if let Some(work) = self {
            work.stand_by();
        }
    }
}

/// This replica, as a candidate.
pub(crate) struct Candidate {
    store: Arc<dyn Store>,
    /// Which zone it is.
    mode: Mode,
    holder: String,
    entropy: Entropy,
    /// No other process can use the store, so a lease somebody left behind is nobody's.
    alone: bool,
}

impl Candidate {
    pub(crate) fn new(store: Arc<dyn Store>, mode: Mode, env: &Env, alone: bool) -> Self {
        let holder = format!("{}/{}", env.instance_id, env.entropy.uuid());
        Self { store, mode, holder, entropy: env.entropy.clone(), alone }
    }

    /// Makes sure, before this process writes anything, that the store is its zone's; says whose it was if it was taken
    /// over from a zone of another name. If nobody leads, this process has the lease afterwards, so that no other zone
    /// takes the store before it leads.
    ///
    /// # Errors
    /// [`LeadError::Running`] while a replica of another zone leads; [`LeadError::Role`] when the store is no zone's.
    pub(crate) async fn enter(&self) -> Result<Option<String>, LeadError> {
        loop {
            let leads = self.ask(self.alone).await?.is_some();
            match role::owner(&self.store, &self.mode).await? {
                StoreOwner::This => return Ok(None),
                StoreOwner::Nobody if leads => {
                    role::take(&self.store, &self.mode).await?;
                    return Ok(None);
                }
                StoreOwner::Zone(former) if leads => {
                    role::succeed(&self.store, &self.mode, &former).await?;
                    return Ok(Some(former));
                }
                StoreOwner::Zone(former) => {
                    let zone = self.mode.zone().unwrap_or_default().to_owned();
                    return Err(LeadError::Running { former, zone });
                }
                // Who has the lease takes it at this moment; one that died has it for a term.
                StoreOwner::Nobody => sleep(LOOK).await,
            }
        }
    }

    /// A zone of another name may have taken the store while nobody led.
    async fn must_be_ours(&self) -> Result<(), RoleError> {
        match role::owner(&self.store, &self.mode).await? {
            StoreOwner::This | StoreOwner::Nobody => Ok(()),
            // Refused, with the name of who has it.
            StoreOwner::Zone(_) => role::take(&self.store, &self.mode).await,
        }
    }

    /// The lease, if this replica has it now, of a store that still belongs to its zone.
    async fn ask_as_owner(&self) -> Result<Option<Lease>, LeadError> {
        let lease = self.ask(self.alone).await?;
        self.must_be_ours().await?;
        Ok(lease)
    }

    /// Does the work whenever this replica leads, until `shutdown`; then makes room for the next one.
    ///
    /// # Errors
    /// [`LeadError::Role`] when the store belongs to another zone by now: nothing here may go on.
    pub(crate) async fn run(self, work: impl Work, shutdown: CancellationToken) -> Result<(), LeadError> {
        let mut waiting = false;
        while !shutdown.is_cancelled() {
            let asked = Instant::now();
            match timeout(TERM, self.ask_as_owner()).await {
                Ok(Ok(Some(lease))) => {
                    waiting = false;
                    self.term(&work, lease, asked, &shutdown).await;
                    continue;
                }
                Ok(Ok(None)) => {
                    metrics::gauge!("leader").set(0.0);
                    if !std::mem::replace(&mut waiting, true) {
                        tracing::info!("another replica of this zone leads; this one stands by");
                    }
                    work.stand_by();
                }
                Ok(Err(error @ LeadError::Role(RoleError::Taken { .. }))) => return Err(error),
                Ok(Err(error)) => tracing::warn!(%error, "cannot ask who leads this zone"),
                Err(_) => tracing::warn!("the store does not say who leads this zone"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = sleep(self.pause()) => {}
            }
        }
        Ok(())
    }

    /// Never longer than [`RENEW`], on which the time for a takeover rests.
    fn pause(&self) -> Duration {
        RENEW.mul_f64(self.entropy.with(|rng| rng.random_range(0.75..=1.0)))
    }

    async fn ask(&self, steal: bool) -> Result<Option<Lease>, StoreError> {
        self.store.acquire(LEASE, &self.holder, TERM, steal).await
    }

    /// Leads until the lease is lost or the process stops.
    async fn term(&self, work: &impl Work, lease: Lease, since: Instant, shutdown: &CancellationToken) {
        tracing::info!(epoch = lease.epoch, "this replica leads its zone");
        metrics::gauge!("leader").set(1.0);
        let stop = shutdown.child_token();
        let fence = Fence { name: LEASE.to_owned(), epoch: lease.epoch };
        let mut working = std::pin::pin!(work.lead(fence, stop.clone()));
        tokio::select! {
            () = &mut working => {}
            () = self.keep(&lease, since) => {
                tracing::warn!(epoch = lease.epoch, "this replica no longer leads its zone");
                metrics::gauge!("leader").set(0.0);
                stop.cancel();
                working.await;
                return work.stand_by();
            }
        }
        if let Err(error) = self.store.release(&lease).await {
            tracing::debug!(%error, "the next leader has to wait until the lease runs out");
        }
    }

    /// Renews the lease; returns when that failed for so long that another replica might soon have it.
    async fn keep(&self, lease: &Lease, mut renewed: Instant) {
        if self.alone {
            return std::future::pending().await;
        }
        loop {
            sleep_until((Instant::now() + self.pause()).min(renewed + GIVE_UP)).await;
            let asked = Instant::now();
            match timeout_at(renewed + GIVE_UP, self.ask(false)).await {
                Ok(Ok(Some(kept))) if kept.epoch == lease.epoch => renewed = asked,
                Ok(Ok(_)) => return,
                Ok(Err(error)) if asked < renewed + GIVE_UP => {
                    tracing::warn!(%error, "cannot renew the lead of this zone, trying again");
                }
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
