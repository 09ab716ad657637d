//! Whether the store takes writes, as the process tells it: readiness, metrics, one log line an episode.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use super::StoreError;

/// The beginning of an episode is logged at most this often; a store that comes and goes is not worth a
/// line each time.
const QUIET: Duration = Duration::from_secs(60);
/// Pause before the first try while writing fails; doubled up to [`LONGEST`].
const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(5);
/// How often it is looked whether damage is gone, which means to read everything.
const DAMAGE_LOOK: Duration = Duration::from_secs(15);

/// What is wrong with a store. What it holds can be read all the same, from the index if not from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    /// Why writes are refused; `None` while they go through.
    pub writing: Option<Arc<str>>,
    /// Why the next write may not find room, where it is known before it is tried.
    pub room: Option<Arc<str>>,
    /// What was found damaged. Stays until it is gone from a database that others reach as well, or the
    /// process is started on something sound.
    pub damage: Option<Arc<str>>,
}

impl StoreHealth {
    /// What an operator has to know, the worst first.
    pub fn trouble(&self) -> Option<&Arc<str>> {
        self.damage.as_ref().or(self.writing.as_ref()).or(self.room.as_ref())
    }
}

/// Keeps the health of one store and tells it.
pub(super) struct Vitals {
    health: watch::Sender<StoreHealth>,
    episode: Mutex<Episode>,
}

#[derive(Default)]
struct Episode {
    /// When writing began to fail, and how often it was tried since.
    since: Option<(Instant, u64)>,
    pause: Duration,
    told: Option<Instant>,
    /// When damage was found, or last looked for.
    damage_seen: Option<Instant>,
}

impl Vitals {
    pub(super) fn new() -> Arc<Self> {
        metrics::gauge!("store_writable").set(1.0);
        metrics::gauge!("store_damaged").set(0.0);
        metrics::counter!("store_write_failures_total").absolute(0);
        Arc::new(Self { health: watch::Sender::new(StoreHealth::default()), episode: Mutex::default() })
    }

    pub(super) fn watch(&self) -> watch::Receiver<StoreHealth> {
        self.health.subscribe()
    }

    /// What was found damaged, if anything.
    pub(super) fn damage(&self) -> Option<Arc<str>> {
        self.health.borrow().damage.clone()
    }

    /// When writing fails: how long to wait before it is tried without anybody asking for it.
    pub(super) fn pause(&self) -> Option<Duration> {
        let episode = self.episode();
        episode.since.map(|_| episode.pause)
    }

    /// Takes in an error of the database, whichever it is.
    pub(super) fn note(&self, error: &StoreError) {
        match error {
            StoreError::Damaged(_) => self.damaged(error),
            error => self.failed(error),
        }
    }

    /// A write, or an attempt to, failed for a reason that will meet the next one too.
    pub(super) fn failed(&self, error: &StoreError) {
        let reason: Arc<str> = error.to_string().into();
        metrics::counter!("store_write_failures_total").increment(1);
        metrics::gauge!("store_writable").set(0.0);
        let mut episode = self.episode();
        match &mut episode.since {
            Some((_, tries)) => *tries += 1,
            None => episode.since = Some((Instant::now(), 1)),
        }
        episode.pause = (episode.pause * 2).clamp(SHORTEST, LONGEST);
        let first = self.health.borrow().writing.is_none();
        if first && episode.told.is_none_or(|told| told.elapsed() >= QUIET) {
            episode.told = Some(Instant::now());
            tracing::error!(
                %reason,
                "the store cannot be written: writes are refused, everything else goes on, and writing is tried \
                 again and again"
            );
        }
        drop(episode);
        self.health.send_if_modified(|health| {
            let same = health.writing.as_ref() == Some(&reason);
            health.writing = Some(reason);
            !same
        });
    }

    /// What a look at the disk says about the next write.
    pub(super) fn has_room(&self, shortage: Option<Arc<str>>) {
        let told = shortage.clone();
        let mut before = None;
        self.health.send_if_modified(|health| {
            before = std::mem::replace(&mut health.room, shortage);
            before != health.room
        });
        if let Some(reason) = told.filter(|_| before.is_none()) {
            tracing::warn!(%reason, "the store is running out of room");
        }
    }

    /// A write, or an attempt to, went through.
    pub(super) fn works(&self) {
        if self.health.borrow().writing.is_none() {
            return;
        }
        let mut episode = self.episode();
        if let Some((since, failures)) = episode.since.take()
            && episode.told.is_some_and(|told| told >= since)
        {
            let after = since.elapsed();
            tracing::info!(?after, failures, "the store can be written again");
        }
        episode.pause = Duration::ZERO;
        drop(episode);
        metrics::gauge!("store_writable").set(1.0);
        self.health.send_modify(|health| health.writing = None);
    }

    /// Something that is stored is not what was written.
    pub(super) fn damaged(&self, error: &StoreError) {
        let what: Arc<str> = error.to_string().into();
        let new = self.health.send_if_modified(|health| {
            let new = health.damage.is_none();
            health.damage.get_or_insert(what);
            new
        });
        if new {
            self.episode().damage_seen = Some(Instant::now());
            metrics::gauge!("store_damaged").set(1.0);
            tracing::error!(%error, "the store is damaged: writes are refused, what is in memory is served on");
        }
    }

    /// Whether it is time to look whether the damage is gone.
    pub(super) fn may_be_sound(&self) -> bool {
        let mut episode = self.episode();
        let due = episode.damage_seen.is_some_and(|seen| seen.elapsed() >= DAMAGE_LOOK);
        if due {
            episode.damage_seen = Some(Instant::now());
        }
        due
    }

    /// What was found damaged is gone.
    pub(super) fn healed(&self) {
        self.episode().damage_seen = None;
        if self.health.send_if_modified(|health| health.damage.take().is_some()) {
            metrics::gauge!("store_damaged").set(0.0);
            tracing::info!("what was damaged in the store is gone: writes are taken again");
        }
    }

    fn episode(&self) -> std::sync::MutexGuard<'_, Episode> {
        // Plain values: nothing in between can panic.
        self.episode.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> StoreError {
        StoreError::backend("commit", "disk full")
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_tried_again_ever_more_slowly_and_from_the_start_in_the_next_episode() {
        let vitals = Vitals::new();
        assert_eq!(vitals.pause(), None);
        let mut pauses = Vec::new();
        for _ in 0..7 {
            vitals.failed(&full());
            pauses.extend(vitals.pause().map(|pause| pause.as_millis()));
        }
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        assert_eq!(vitals.watch().borrow().trouble().map(|t| &**t), Some("commit: disk full"));
        vitals.works();
        assert_eq!((vitals.pause(), vitals.watch().borrow().trouble()), (None, None));
        vitals.failed(&full());
        assert_eq!(vitals.pause(), Some(SHORTEST));
    }

    #[tokio::test(start_paused = true)]
    async fn damage_stays() {
        let vitals = Vitals::new();
        vitals.damaged(&StoreError::Damaged("page 3".into()));
        vitals.works();
        assert_eq!(vitals.watch().borrow().trouble().map(|t| &**t), Some("page 3"));
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_looked_now_and_then_whether_damage_is_gone() {
        let vitals = Vitals::new();
        assert!(!vitals.may_be_sound());
        vitals.damaged(&StoreError::Damaged("page 3".into()));
        assert!(!vitals.may_be_sound(), "it was only just found");
        tokio::time::advance(DAMAGE_LOOK).await;
        assert!(vitals.may_be_sound());
        assert!(!vitals.may_be_sound(), "it was only just looked");
        vitals.healed();
        assert_eq!(vitals.watch().borrow().trouble(), None);
        tokio::time::advance(DAMAGE_LOOK).await;
        assert!(!vitals.may_be_sound());
    }
}
