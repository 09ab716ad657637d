//! The runs of an index: which are over, and what the others change.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use super::read_once::ReadOnce;
use crate::{
    model::{
        Resource, ResourceKey,
        kinds::rollout_insight::{KIND, RolloutRun, RolloutState},
    },
    registry,
    store::{Revision, index::Index},
};

/// A run that is not over.
#[derive(Debug)]
pub struct ActiveRun {
    /// Name of the rollout.
    pub rollout: Arc<str>,
    /// The run itself.
    pub run: Arc<RolloutRun>,
    /// Where that stands.
    pub stored: Arc<Resource>,
    /// What it changes.
    keys: Arc<BTreeSet<ResourceKey>>,
}

impl ActiveRun {
    /// Whether it changes this resource.
    pub fn is_of(&self, key: &ResourceKey) -> bool {
        self.keys.contains(key)
    }

    /// The first of what it changes in a mesh.
    pub fn first_in(&self, mesh: &str) -> Option<&ResourceKey> {
        self.keys.iter().find(|key| &*key.mesh == mesh)
    }

    /// Why `zone`, which may be below a relay, keeps what it had, for people; nothing where it does not.
    pub fn reason(&self, zone: &str, relay: Option<&str>) -> Option<String> {
        let run = &self.run;
        let last = run.waves.len().saturating_sub(1);
        let wave = match relay {
            // What a relay has all of its zones have.
            Some(_) => last,
            None => run.wave_of(zone),
        };
        if wave <= run.wave {
            return None;
        }
        let below = relay.map(|relay| format!(" with relay {relay}, which it is below")).unwrap_or_default();
        Some(format!(
            "it keeps the version from before by rollout {}: it is in {}{below}, and the rollout is {} at wave {}",
            self.rollout,
            run.wave_name(wave),
            run.state.as_str(),
            run.wave + 1
        ))
    }
}

/// What was read of one run.
#[derive(Debug)]
struct SeenRun {
    stored: Arc<Resource>,
    /// The revision of what it changed, unless that was taken back.
    changed: Option<Revision>,
    /// The run, unless it is over.
    active: Option<Arc<ActiveRun>>,
}

impl SeenRun {
    fn of(stored: &Arc<Resource>, former: Option<&Self>) -> Self {
        let nothing = Self { stored: Arc::clone(stored), changed: None, active: None };
        let Ok(run) = stored.spec::<RolloutRun>() else { return nothing };
        let is_aborted = run.state == RolloutState::Aborted;
        let changed = (!is_aborted).then(|| run.revision.unwrap_or(stored.revision));
        if run.state.is_over() {
            return Self { changed, ..nothing };
        }
        let former = former.and_then(|former| former.active.as_ref()).filter(|is| is.run.id == run.id);
        let keys = former.map_or_else(|| Arc::new(keys(&run)), |former| Arc::clone(&former.keys));
        let active = ActiveRun {
            rollout: Arc::clone(&stored.key.name),
            run: Arc::new(run),
            stored: Arc::clone(stored),
            keys,
        };
        Self { changed, active: Some(Arc::new(active)), ..nothing }
    }
}

fn keys(run: &RolloutRun) -> BTreeSet<ResourceKey> {
    let changes = run.changes.iter();
    // Of a type nobody knows there are no resources.
    let keys = changes.filter_map(|change| {
        Some(ResourceKey::new(registry::by_name(&change.kind)?, &change.mesh, &change.name))
    });
    keys.collect()
}

/// All runs.
#[derive(Clone, Debug, Default)]
pub struct Runs(ReadOnce<SeenRun>);

impl Runs {
    /// Those that `index` shows.
    pub fn of(index: &Index) -> Self {
        Self::default().moved_to(index)
    }

    /// The same of another index. What it costs follows what was written since, and no run that is over is read again.
    #[must_use]
    pub fn moved_to(&self, index: &Index) -> Self {
        Self(self.0.moved_to(index, &KIND, SeenRun::of))
    }

    /// Whether no run was written in between.
    pub fn is_same(&self, other: &Self) -> bool {
        self.0.is_same(&other.0)
    }

    /// Those that are not over.
    pub fn active(&self) -> impl Iterator<Item = &Arc<ActiveRun>> {
        self.0.iter().filter_map(|(_, seen)| seen.active.as_ref())
    }

    /// The run that changed something with this revision, unless it was taken back; and whether it is on its way.
    pub fn of_revision(&self, revision: Revision) -> Option<(Arc<Resource>, Option<Arc<ActiveRun>>)> {
        let (_, seen) = self.0.iter().find(|(_, seen)| seen.changed == Some(revision))?;
        Some((Arc::clone(&seen.stored), seen.active.clone()))
    }
}

/// The runs at the index somebody last asked about.
#[derive(Debug, Default)]
pub struct SharedRuns(Mutex<Runs>);

impl SharedRuns {
    /// Those that `index` shows.
    pub fn at(&self, index: &Index) -> Runs {
        // Replaced whole, so a panic while holding the lock leaves the last ones intact.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.moved_to(index);
        last.clone()
    }
}
