//! The one replica that takes rollouts further: it looks whenever the index, a zone, the answer to a query or the time may
//! say something else. It waits for nobody in between but the store.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    kds::outgoing::is_enabled,
    model::{
        Resource,
        kinds::{
            rollout_insight::{RolloutRun, RolloutState, kept_key},
            zone,
        },
    },
    rest::{ZoneStatusSource, standing_refusals},
    rollouts::{ActiveRun, Runs, with_run},
    runtime::Env,
    store::{
        Batch, Fence, Lease, Precondition, Store, StoreError, Write,
        index::{Index, IndexReader},
    },
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::{
    PromClient,
    kept::KeptLooks,
    machine::{self, RunFacts, RunStep, ZoneFacts},
    queries::RunQueries,
};

/// Who holds it drives.
const LEASE: &str = "rollouts/driver";
const TERM: Duration = Duration::from_secs(15);
/// How often the lease is renewed, and how often those without it ask.
const RENEW: Duration = Duration::from_secs(4);
/// How long a look rests before the next: acknowledgements come in crowds.
const REST: Duration = Duration::from_millis(100);
/// No look is later than this: other replicas tell how their zones stand without waking anybody.
const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// Takes rollouts further.
pub(crate) struct RolloutDriver {
    pub(crate) zones: Arc<dyn ZoneStatusSource>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) index: IndexReader,
    pub(crate) env: Env,
    /// Who answers queries, where the settings name somebody.
    pub(crate) prometheus: Option<PromClient>,
    /// No other process can use the store, so a lease somebody left behind is nobody's.
    pub(crate) alone: bool,
}

/// What is remembered from look to look.
struct DriverMemory {
    runs: Runs,
    queries: RunQueries,
    kept: KeptLooks,
}

impl RolloutDriver {
    /// Works until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut progress = self.zones.progressed();
        let queries = RunQueries::new(self.prometheus.take());
        let mut memory = DriverMemory { runs: Runs::default(), queries, kept: KeptLooks::default() };
        let mut lead: Option<(Lease, Instant)> = None;
        loop {
            progress.mark_unchanged();
            let index = self.index.latest();
            memory.runs = memory.runs.moved_to(&index);
            let runs: Vec<Arc<ActiveRun>> = memory.runs.active().cloned().collect();
            measure(&runs);
            memory.queries.keep(runs.iter().map(|active| active.run.id.as_str()));
            memory.kept.keep(runs.iter().map(|active| active.run.id.as_str()));
            let mut wake = None;
            if runs.is_empty() {
                self.give_up(&mut lead).await;
            }
            for active in &runs {
                // Of many runs the last is looked at long after the first, and nobody may have taken over by then.
                let Some(fence) = self.lead(&mut lead).await else { break };
                let due = self.look(&index, active, &fence, &mut memory).await;
                wake = due.into_iter().chain(wake).min();
            }
            let idle = runs.is_empty();
            let look_again = Instant::now() + LOOK_AGAIN.min(wake.unwrap_or(LOOK_AGAIN));
            tokio::select! {
                () = shutdown.cancelled() => break,
                is_there = self.index.changed() => if !is_there { break },
                Ok(()) = progress.changed(), if !idle => {}
                () = memory.queries.answered(), if !idle => {}
                () = sleep_until(look_again), if !idle => continue,
            }
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = sleep(REST) => {}
            }
        }
        self.give_up(&mut lead).await;
        Ok(())
    }

    /// The fence of this replica while it leads.
    async fn lead(&self, lead: &mut Option<(Lease, Instant)>) -> Option<Fence> {
        let is_fresh = |since: Instant| since.elapsed() < RENEW;
        if !lead.as_ref().is_some_and(|(_, since)| is_fresh(*since)) {
            let asked = Instant::now();
            let holder = &self.env.instance_id;
            *lead = match self.store.acquire(LEASE, holder, TERM, self.alone).await {
                Ok(lease) => lease.map(|lease| (lease, asked)),
                Err(error) => {
                    tracing::warn!(%error, "cannot ask who takes rollouts further");
                    None
                }
            };
        }
        let (lease, _) = lead.as_ref()?;
        Some(Fence { name: lease.name.clone(), epoch: lease.epoch })
    }

    async fn give_up(&self, lead: &mut Option<(Lease, Instant)>) {
        if let Some((lease, _)) = lead.take()
            && let Err(error) = self.store.release(&lease).await
        {
            tracing::debug!(%error, "cannot give back the lease of rollouts; it runs out by itself");
        }
    }

    /// Looks at one run; how soon to look again.
    async fn look(
        &self,
        index: &Index,
        active: &ActiveRun,
        fence: &Fence,
        memory: &mut DriverMemory,
    ) -> Option<Duration> {
        let (stored, run) = (&active.stored, &active.run);
        if run.state == RolloutState::Halted {
            // Whoever goes on wants to know how it is then.
            memory.queries.forget(&run.id);
            return None;
        }
        let now = self.env.now();
        let (queries, asking) = memory.queries.ask(now, run);
        let lost = memory.kept.lost(index, &active.rollout, run);
        let facts = RunFacts { zones: self.zones_of(index, run), queries, asking, lost };
        let outlook = machine::step(now, run, stored.revision, &facts);
        match outlook.step {
            None => outlook.wake.map(|wake| (wake - now).to_std().unwrap_or_default()),
            Some(step) => {
                self.make(stored, RolloutRun::clone(run), step, fence, now).await;
                None
            }
        }
    }

    /// How the zones stand that the run is at, or comes to next.
    fn zones_of(&self, index: &Index, run: &RolloutRun) -> Vec<ZoneFacts> {
        let last = run.waves.len().saturating_sub(1);
        let is_near =
            |zone: &&Arc<Resource>| run.wave_of(zone.name()) <= run.wave + 1 || run.wave + 1 >= last;
        let zones = index.list(&zone::KIND).filter(is_near).map(|resource| {
            let name = resource.name();
            let status = self.zones.zone_progress(name);
            let (of_zone, of_proxies) = standing_refusals(run, name, &status)
                .into_iter()
                .partition(|it| it.about.starts_with("zone "));
            ZoneFacts {
                zone: name.into(),
                is_enabled: is_enabled(resource),
                is_relayed: status.relay.is_some(),
                health: status.status,
                acked: status.down.acked,
                proxies: status.proxies.as_ref().map(|told| told.acked),
                zone_refusals: of_zone,
                proxy_refusals: of_proxies,
            }
        });
        zones.collect()
    }

    /// Writes a step, unless somebody wrote one meanwhile.
    async fn make(
        &self,
        stored: &Arc<Resource>,
        mut run: RolloutRun,
        step: RunStep,
        fence: &Fence,
        now: DateTime<Utc>,
    ) {
        let rollout = stored.name();
        run.stored_at(stored.revision);
        let mut writes = Vec::new();
        let name = match step {
            RunStep::Halt(reasons) => {
                for reason in &reasons {
                    tracing::warn!(rollout, reason = reason.text, "a rollout is halted");
                }
                if run.halt(now, "", reasons).is_err() {
                    return;
                }
                "halted"
            }
            RunStep::Converge => {
                run.converge(now);
                "converged"
            }
            RunStep::Release { wave, away, standing } => {
                run.release(wave, now, away, standing);
                "released"
            }
            RunStep::Finish => {
                run.finish(now);
                let kept = run.changes.iter().enumerate().filter(|(_, change)| change.kept);
                writes
                    .extend(kept.map(|(n, _)| Write::delete_when(kept_key(rollout, n), Precondition::None)));
                "finished"
            }
        };
        writes.push(with_run(stored, &run, now));
        match self.store.transact(Batch::of(writes).fenced(fence.clone())).await {
            Ok(commit) => {
                tracing::info!(rollout, step = name, wave = run.wave + 1, "a rollout goes on");
                metrics::counter!("rollout_steps_total", "step" => name).increment(1);
                self.index.wait_long_for(commit.revision).await;
            }
            // Somebody else wrote it at this moment; it is looked at again.
            Err(StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::Fenced { .. }) => {}
            Err(error) => tracing::warn!(rollout, %error, "cannot write how a rollout goes on"),
        }
    }
}

/// How many runs stand how.
fn measure(runs: &[Arc<ActiveRun>]) {
    for state in [RolloutState::Running, RolloutState::Paused, RolloutState::Halted] {
        let count = runs.iter().filter(|active| active.run.state == state).count();
        // Exact up to 2^53 runs.
        metrics::gauge!("rollouts_active", "state" => state.as_str()).set(count as f64);
    }
}
