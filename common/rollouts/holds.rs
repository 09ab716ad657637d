//! What is kept back from zones, at one revision.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    run::{Former, restored},
    runs::{ActiveRun, Runs},
};
use crate::{
    model::{Resource, ResourceKey, kinds::mesh},
    registry,
    store::{Change, index::Index},
};

/// What one run keeps back, and from whom.
#[derive(Debug)]
pub struct Hold {
    of: Arc<ActiveRun>,
    /// What the resources it changes were before, meshes first.
    before: Arc<Vec<Former>>,
}

impl Hold {
    /// The hold of a run, which may be the one of `former`; nothing when it keeps nothing back.
    fn of(active: &Arc<ActiveRun>, former: Option<&Arc<Self>>, index: &Index) -> Option<Arc<Self>> {
        if active.run.is_everywhere() {
            return None;
        }
        if let Some(former) = former.filter(|former| Arc::ptr_eq(&former.of, active)) {
            return Some(Arc::clone(former));
        }
        let before = match former.filter(|former| former.of.run.id == active.run.id) {
            Some(former) => Arc::clone(&former.before),
            None => Arc::new(before(index, active)),
        };
        Some(Arc::new(Self { of: Arc::clone(active), before }))
    }

    /// Whether it keeps this resource back from somebody.
    pub fn is_of(&self, key: &ResourceKey) -> bool {
        self.before.iter().any(|(held, _)| held == key)
    }

    /// Whether `zone` keeps what it had.
    pub fn keeps(&self, zone: &str) -> bool {
        !self.of.run.has_released(zone)
    }

    /// Why `zone`, which may be below a relay, keeps what it had, for people; nothing where it does not.
    pub fn reason(&self, zone: &str, relay: Option<&str>) -> Option<String> {
        self.of.reason(zone, relay)
    }
}

/// What was there before. What cannot be read is not kept back, and all the rest is; whoever takes runs further halts
/// this one for it.
fn before(index: &Index, active: &ActiveRun) -> Vec<Former> {
    let rollout = &*active.rollout;
    let restored = restored(index, rollout, &active.run).into_iter().filter_map(|former| {
        let seen =
            |error| tracing::error!(rollout, %error, "a rollout cannot keep back some of what it changes");
        former.map_err(seen).ok()
    });
    let mut before: Vec<Former> = restored.collect();
    // What is in a mesh goes with it.
    before.sort_by_key(|(key, _)| key.kind != &mesh::KIND);
    before
}

/// What all runs keep back.
#[derive(Clone, Debug, Default)]
pub struct Holds {
    runs: Runs,
    /// By name of the rollout.
    by: Arc<BTreeMap<Arc<str>, Arc<Hold>>>,
}

impl Holds {
    /// Those that `index` shows.
    pub fn of(index: &Index) -> Self {
        Self::default().moved_to(index)
    }

    /// The same of a later index.
    #[must_use]
    pub fn moved_to(&self, index: &Index) -> Self {
        let runs = self.runs.moved_to(index);
        if runs.is_same(&self.runs) {
            return self.clone();
        }
        let holds = runs.active().filter_map(|active| {
            let name = Arc::clone(&active.rollout);
            let hold = Hold::of(active, self.by.get(&name), index)?;
            Some((name, hold))
        });
        let by = Arc::new(holds.collect());
        Self { runs, by }
    }

    /// Whether nothing is kept back from anybody.
    pub fn is_empty(&self) -> bool {
        self.by.is_empty()
    }

    /// By name of the rollout.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Hold>> {
        self.by.values()
    }

    /// Rollouts by which `zone` keeps what it had.
    pub fn on(&self, zone: &str) -> HoldSet {
        self.by.iter().filter(|(_, hold)| hold.keeps(zone)).map(|(name, _)| Arc::clone(name)).collect()
    }

    /// All of them: what somebody is kept waiting by who is no zone.
    pub fn all(&self) -> HoldSet {
        self.by.keys().cloned().collect()
    }

    /// Those named.
    pub fn named<'a>(&'a self, names: &'a HoldSet) -> impl Iterator<Item = &'a Arc<Hold>> {
        names.iter().filter_map(|name| self.by.get(name))
    }

    /// Whether the named rollouts keep back the same, from whomever, as in `other`.
    pub fn keep_the_same(&self, other: &Self, names: &HoldSet) -> bool {
        names.iter().all(|name| match (self.by.get(name), other.by.get(name)) {
            (Some(one), Some(other)) => Arc::ptr_eq(&one.before, &other.before),
            _ => false,
        })
    }

    /// `index` as it would be had the named rollouts changed nothing.
    pub fn without(&self, index: &Index, names: &HoldSet) -> Index {
        let mut shown = index.clone();
        let revision = index.revision;
        let put = |shown: &mut Index, key: &ResourceKey, resource: Option<Arc<Resource>>| {
            shown.apply(&Change { revision, key: key.clone(), resource });
        };
        for (key, before) in self.named(names).flat_map(|hold| hold.before.iter()) {
            if key.kind == &mesh::KIND && before.is_none() {
                for inside in contents(&shown, &key.name) {
                    put(&mut shown, &inside, None);
                }
            }
            // Nobody has what is in a mesh that is gone.
            let has_place = !key.kind.is_mesh_scoped() || shown.find(&mesh::KIND, "", &key.mesh).is_some();
            put(&mut shown, key, before.clone().filter(|_| has_place));
        }
        shown
    }
}

/// What is kept back at the index somebody last asked about, so that runs are read once and not for each zone.
#[derive(Debug, Default)]
pub struct SharedHolds(Mutex<Holds>);

impl SharedHolds {
    /// Those that `index` shows.
    pub fn at(&self, index: &Index) -> Holds {
        // Replaced whole, so a panic while holding the lock leaves the last ones intact.
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.moved_to(index);
        last.clone()
    }
}

/// Names of rollouts.
pub type HoldSet = BTreeSet<Arc<str>>;

/// Everything in a mesh.
fn contents(index: &Index, mesh: &str) -> Vec<ResourceKey> {
    let kinds = registry::ALL.iter().filter(|kind| kind.is_mesh_scoped());
    kinds.flat_map(|kind| index.list_in_mesh(kind, mesh).map(|inside| inside.key.clone())).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::{
            Spec,
            kinds::rollout_insight::{self, RolloutChange, RolloutRun, RolloutState, WaveRun, kept_key},
            labels,
        },
        policy::mesh_timeout,
        rollouts::kept_write,
        store::{StoreIdentity, Write},
    };

    fn timeout(name: &str, label: &str) -> Resource {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
        Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::DISPLAY_NAME, label)
    }

    fn change(name: &str, op: &str, kept: bool) -> RolloutChange {
        let (kind, mesh) = ("MeshTimeout".to_owned(), "default".to_owned());
        RolloutChange { kind, mesh, name: name.to_owned(), op: op.to_owned(), kept }
    }

    /// A run of `canary` that changed `a`, deleted `b` and made `c`.
    fn run(wave: usize, state: RolloutState) -> RolloutRun {
        let first = WaveRun { zones: ["zone-1".to_owned()].into(), ..WaveRun::default() };
        RolloutRun {
            id: "1".to_owned(),
            state,
            wave,
            waves: vec![first, WaveRun { everybody: true, ..WaveRun::default() }],
            changes: vec![
                change("a", "update", true),
                change("b", "delete", true),
                change("c", "create", false),
            ],
            ..RolloutRun::default()
        }
    }

    fn index(run: &RolloutRun) -> Index {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let mut put = |resource: Resource| {
            let (revision, key) = (index.revision + 1, resource.key.clone());
            index.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
        };
        put(Resource::new(ResourceKey::global(&mesh::KIND, "default"), DateTime::UNIX_EPOCH));
        put(timeout("a", "new"));
        put(timeout("c", "new"));
        put(timeout("d", "other"));
        for (n, before) in [(0, timeout("a", "old")), (1, timeout("b", "old"))] {
            match kept_write("canary", n, &before, DateTime::UNIX_EPOCH).unwrap() {
                Write::Put { resource, .. } => put(*resource),
                other => panic!("{other:?}"),
            }
        }
        let insight = ResourceKey::global(&rollout_insight::KIND, "canary");
        put(Resource::new(insight, DateTime::UNIX_EPOCH).with_spec(run.encode()));
        index
    }

    fn shown(index: &Index) -> Vec<(String, String)> {
        let list = index.list(&mesh_timeout::KIND);
        list.map(|t| (t.name().to_owned(), t.label(labels::DISPLAY_NAME).unwrap().to_owned())).collect()
    }

    fn texts(items: &[(&str, &str)]) -> Vec<(String, String)> {
        items.iter().map(|(name, label)| ((*name).to_owned(), (*label).to_owned())).collect()
    }

    #[test]
    fn who_waits_is_shown_what_was_there_before() {
        let index = index(&run(0, RolloutState::Running));
        let holds = Holds::of(&index);
        assert!(holds.on("zone-1").is_empty());
        let names = holds.on("zone-2");
        assert_eq!(names, holds.all());
        let before = holds.without(&index, &names);
        assert_eq!(shown(&before), texts(&[("a", "old"), ("b", "old"), ("d", "other")]));
        assert_eq!(before.revision, index.revision);
        assert_eq!(shown(&holds.without(&index, &holds.on("zone-1"))), shown(&index));
        let reason = |zone, relay| holds.iter().next().unwrap().reason(zone, relay);
        let why = reason("zone-2", None).unwrap();
        assert!(why.contains("rollout canary: it is in wave 2 of 2, and the rollout is running"), "{why}");
        assert_eq!(reason("zone-1", None), None);
        assert!(reason("zone-1", Some("relay-1")).unwrap().contains("wave 2 of 2 with relay relay-1"));
    }

    #[test]
    fn nothing_is_kept_once_everybody_may_have_it() {
        for (wave, state) in [
            (1, RolloutState::Running),
            (1, RolloutState::Halted),
            (0, RolloutState::Finished),
            (0, RolloutState::Aborted),
        ] {
            assert!(Holds::of(&index(&run(wave, state))).is_empty(), "{wave} {state:?}");
        }
        for state in [RolloutState::Halted, RolloutState::Paused] {
            assert!(!Holds::of(&index(&run(0, state))).is_empty(), "{state:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_not_kept_back_and_the_rest_is() {
        let run = run(0, RolloutState::Running);
        let mut index = index(&run);
        let key = kept_key("canary", 0);
        let broken = Resource::new(key.clone(), DateTime::UNIX_EPOCH).with_spec("{}");
        let revision = index.revision + 1;
        for (resource, reason) in [(Some(Arc::new(broken)), ""), (None, "it is not there")] {
            index.apply(&Change { revision, key: key.clone(), resource });
            let lost: Vec<String> = restored(&index, "canary", &run)
                .into_iter()
                .filter_map(|former| former.err().map(|error| error.to_string()))
                .collect();
            assert!(lost.len() == 1 && lost[0].contains("MeshTimeout default/a") && lost[0].contains(reason));
            let holds = Holds::of(&index);
            let before = holds.without(&index, &holds.all());
            assert_eq!(shown(&before), texts(&[("a", "new"), ("b", "old"), ("d", "other")]));
        }
    }

    #[test]
    fn what_a_run_keeps_is_read_once() {
        let run = run(0, RolloutState::Running);
        let mut index = index(&run);
        let holds = Holds::of(&index);
        // It goes on, and what it keeps is the same.
        let insight = ResourceKey::global(&rollout_insight::KIND, "canary");
        let halted = RolloutRun { state: RolloutState::Halted, ..run };
        let resource = Resource::new(insight.clone(), DateTime::UNIX_EPOCH).with_spec(halted.encode());
        index.apply(&Change {
            revision: index.revision + 1,
            key: insight,
            resource: Some(Arc::new(resource)),
        });
        let later = holds.moved_to(&index);
        assert!(later.keep_the_same(&holds, &holds.all()));
        assert!(later.iter().next().unwrap().reason("zone-2", None).unwrap().contains("halted"));
        assert!(Arc::ptr_eq(&later.by, &later.moved_to(&index).by));
    }

    #[test]
    fn what_is_in_a_mesh_that_is_kept_back_is_kept_back_too() {
        let created = RolloutChange {
            kind: "Mesh".to_owned(),
            mesh: String::new(),
            name: "default".to_owned(),
            op: "create".to_owned(),
            kept: false,
        };
        let run = RolloutRun { changes: vec![created], ..run(0, RolloutState::Running) };
        let index = index(&run);
        let holds = Holds::of(&index);
        let before = holds.without(&index, &holds.all());
        assert!(shown(&before).is_empty() && before.count(&mesh::KIND) == 0);
    }
}
