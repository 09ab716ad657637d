//! Asks the zones, commits what they had to say, and lets the history go on.

use std::sync::Arc;

use common::{
    kds::{features::Features, mapper::DownForm},
    model::kinds,
    rest::{ZoneHealth, ZoneStatusSource},
    runtime::Env,
    store::{Batch, Store, StoreError, StoreIdentity, index::IndexReader},
};
use futures::{StreamExt, stream};
use thiserror::Error;
use tokio::{sync::Mutex, task::spawn_blocking};

use super::{
    plan::{GlobalStanding, RecoveryOptions, RecoveryPlan, epoch_after, plan},
    report::{AskedZone, HistoryStanding, RecoveryReport, ShownHistory},
};
use crate::kds::{Kds, UnaskedZone, ZoneHoldings};

/// Zones asked at once.
const AT_ONCE: usize = 8;

/// Rebuilds global from its zones, one at a time.
pub struct Recovery {
    kds: Arc<Kds>,
    store: Arc<dyn Store>,
    index: IndexReader,
    env: Env,
    skip_label_prefixes: Vec<String>,
    /// What zones hold may be much, and two recoveries at once would not see what the other does.
    alone: Mutex<()>,
}

/// Why nothing was recovered.
#[derive(Debug, Error)]
pub enum RecoveryError {
    /// Another one runs.
    #[error("another recovery runs: wait until it is over")]
    Busy,
    /// Zones that are there were not heard.
    #[error(
        "not every zone that is online could be asked: {0}; what only they hold would be lost when they follow again. \
         Bring them back, or go on without them with partial"
    )]
    Unheard(String),
    /// What one zone says decides against several.
    #[error(
        "of {resources} resources one zone says something else than several others, and is further than they are or alone \
         has them: {zones}. Look at what is marked as alone; if it was taken over, revoke what it shows and leave it out, \
         else go on with believeOne"
    )]
    Alone {
        /// How many.
        resources: usize,
        /// Who says so.
        zones: String,
    },
    /// The process stops, or deciding failed.
    #[error("what zones hold could not be looked through: ask again")]
    Unplanned,
    /// The store refused or failed.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The process stops.
    #[error("the process is stopping")]
    Stopping,
}

impl Recovery {
    /// A recovery of what is in `store`, from the zones of `kds`.
    pub fn new(
        kds: Arc<Kds>,
        store: Arc<dyn Store>,
        index: IndexReader,
        env: Env,
        skip_label_prefixes: Vec<String>,
    ) -> Self {
        Self { kds, store, index, env, skip_label_prefixes, alone: Mutex::new(()) }
    }

    /// The history zones are shown, and zones that do not follow it.
    pub fn standing(&self) -> HistoryStanding {
        let held_back = |zone: String| {
            let reason = self.kds.zone_progress(&zone).held_back?;
            Some((zone, reason))
        };
        HistoryStanding {
            shown: self.kds.shown().into(),
            revision: self.index.current().revision,
            held_back: self.kds.known_zones().into_iter().filter_map(held_back).collect(),
        }
    }

    /// What a recovery would do now.
    ///
    /// # Errors
    /// [`RecoveryError::Busy`] and [`RecoveryError::Unplanned`].
    pub async fn dry_run(&self, options: RecoveryOptions) -> Result<RecoveryReport, RecoveryError> {
        let _alone = self.alone.try_lock().map_err(|_| RecoveryError::Busy)?;
        let (zones, unasked) = self.ask().await;
        Ok(self.report(self.plan(zones, options).await?, unasked))
    }

    /// Recovers, also without zones that are online and were not heard if that is `partial`ly enough.
    ///
    /// # Errors
    /// [`RecoveryError`]; nothing was changed then, but for the history when the store fails in between, which another
    /// recovery mends.
    pub async fn run(
        &self,
        options: RecoveryOptions,
        partial: bool,
    ) -> Result<RecoveryReport, RecoveryError> {
        let _alone = self.alone.try_lock().map_err(|_| RecoveryError::Busy)?;
        let (zones, unasked) = self.ask().await;
        let unheard = unasked.iter().filter(|zone| self.is_online(&zone.zone));
        let unheard: Vec<_> = unheard.map(|zone| zone.zone.as_str()).collect();
        if !unheard.is_empty() && !partial {
            return Err(RecoveryError::Unheard(unheard.join(", ")));
        }
        let RecoveryPlan { writes, next, report } = self.plan(zones, options).await?;
        if report.alone > 0 && !options.believe_one {
            let loners: Vec<_> = report.loners.iter().map(AsRef::as_ref).collect();
            return Err(RecoveryError::Alone { resources: report.alone, zones: loners.join(", ") });
        }
        let mut report = self.report(RecoveryPlan { writes: Vec::new(), next, report }, unasked);
        let commit = self.store.transact(Batch::of(writes)).await?;
        self.index.wait_long_for(commit.revision).await.ok_or(RecoveryError::Stopping)?;
        // Only now: a zone that followed before would be told that everything is gone.
        if let Some(next) = next {
            self.kds.go_on_as(next, commit.revision).await?;
        }
        (report.done, report.revision) = (true, Some(commit.revision));
        Ok(report)
    }

    /// Shows zones the next epoch of the history they are shown: the store was restored by other means.
    ///
    /// # Errors
    /// [`RecoveryError`].
    pub async fn raise_epoch(&self) -> Result<StoreIdentity, RecoveryError> {
        let _alone = self.alone.try_lock().map_err(|_| RecoveryError::Busy)?;
        let shown = self.kds.shown();
        // Higher than what any zone that can be asked has seen.
        let zones = self.kds.known_zones();
        let seen = zones.iter().filter_map(|zone| self.kds.taken_by(zone));
        let seen = seen.filter(|taken| taken.store_id == shown.store_id);
        let next = StoreIdentity { epoch: epoch_after(shown.epoch, seen), ..shown };
        self.kds.go_on_as(next, self.index.current().revision).await?;
        Ok(next)
    }

    /// How much zones hold is up to them, so that is not looked through on a thread that serves others.
    async fn plan(
        &self,
        zones: Vec<ZoneHoldings>,
        options: RecoveryOptions,
    ) -> Result<RecoveryPlan, RecoveryError> {
        let index = self.index.current();
        let form = DownForm::of(&Features::ours(), &self.skip_label_prefixes);
        let (shown, now) = (self.kds.shown(), self.env.now());
        let planned = spawn_blocking(move || {
            plan(GlobalStanding { index: &index, shown, form: &form, now }, &zones, options)
        });
        planned.await.map_err(|_| RecoveryError::Unplanned)
    }

    fn report(&self, plan: RecoveryPlan, unasked: Vec<AskedZone>) -> RecoveryReport {
        let mut report = plan.report;
        report.shown = self.kds.shown().into();
        report.next = plan.next.map(ShownHistory::from);
        report.zones.extend(unasked);
        report.zones.sort_by(|a, b| a.zone.cmp(&b.zone));
        report
    }

    /// What all zones hold, and those that did not say.
    async fn ask(&self) -> (Vec<ZoneHoldings>, Vec<AskedZone>) {
        let asked = stream::iter(self.kds.known_zones()).map(|zone| async move {
            let answer = self.kds.holdings_of(&zone).await;
            (zone, answer)
        });
        let answers: Vec<_> = asked.buffer_unordered(AT_ONCE).collect().await;
        let (mut zones, mut unasked) = (Vec::new(), Vec::new());
        for (zone, answer) in answers {
            match answer {
                Ok(holdings) => zones.push(holdings),
                Err(error) => unasked.push(self.unasked(&zone, &error)),
            }
        }
        zones.sort_by(|a, b| a.zone.cmp(&b.zone));
        (zones, unasked)
    }

    fn unasked(&self, zone: &str, error: &UnaskedZone) -> AskedZone {
        let status = self.kds.zone_progress(zone);
        AskedZone {
            zone: zone.to_owned(),
            unasked: Some(error.to_string()),
            held_back: status.held_back,
            ..AskedZone::default()
        }
    }

    fn is_online(&self, zone: &str) -> bool {
        let index = self.index.current();
        index.find(&kinds::zone::KIND, "", zone).is_some()
            && self.kds.zone_progress(zone).status == ZoneHealth::Online
    }
}
