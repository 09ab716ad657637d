//! What stands against a write that belongs to no rollout.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

use super::{
    carried::why_not_carried,
    read_once::ReadOnce,
    runs::{Runs, SharedRuns},
};
use crate::{
    model::{
        Resource, ResourceKey,
        kinds::{
            mesh,
            rollout::{self, Rollout},
        },
    },
    registry,
    store::{Write, index::Index},
};

/// Why something may not be written now.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Objection {
    /// A rollout is on its way with it.
    #[error(
        "{key} is part of rollout {rollout}, which is {state} at {wave}: wait for its end, or take it back with \
         `straitctl rollout abort {rollout}`"
    )]
    Held {
        /// What.
        key: String,
        /// The rollout.
        rollout: String,
        /// How that stands.
        state: &'static str,
        /// Where.
        wave: String,
    },
    /// The rollout itself.
    #[error("rollout {0} is on its way: wait for its end, or `straitctl rollout abort {0}` first")]
    Running(String),
    /// It goes out in waves only.
    #[error(
        "{key} goes out by rollout {rollout} only: use `straitctl {command} --rollout {rollout}` (spec.requiredFor of \
         the rollout says so)"
    )]
    Required {
        /// What.
        key: String,
        /// The rollout.
        rollout: String,
        /// How to go by it.
        command: &'static str,
    },
    /// It goes out in waves only, and is deleted in none.
    #[error(
        "{key} is deleted by no rollout, and goes out by rollout {rollout} only: take Mesh out of spec.requiredFor of the \
         rollout first"
    )]
    Undeletable {
        /// What.
        key: String,
        /// The rollout.
        rollout: String,
    },
}

/// Knows what stands against writes: the runs that are not over, and what rollouts demand. Each is read when it is
/// written, not for each write that is looked at.
#[derive(Debug, Default)]
pub struct RolloutGuard {
    runs: SharedRuns,
    demands: Mutex<ReadOnce<RolloutDemands>>,
}

/// Where something goes out by a rollout only, by type: one of these sets of meshes for each demand, of which an empty
/// one stands for all.
#[derive(Debug, Default)]
struct RolloutDemands(BTreeMap<&'static str, Vec<Arc<BTreeSet<String>>>>);

impl RolloutDemands {
    fn of(stored: &Resource) -> Self {
        let mut demands = Self::default();
        for demand in stored.spec::<Rollout>().unwrap_or_default().required_for {
            let meshes = Arc::new(BTreeSet::from_iter(demand.meshes));
            // Of a type nobody knows there are no resources. What goes out by no rollout could not be written at all any
            // more, the rollout itself among it; older versions took such demands.
            let kinds = demand.kinds.iter().filter_map(|kind| registry::by_name(kind));
            let carried = kinds.filter(|kind| why_not_carried(kind).is_none());
            for kind in carried.map(|kind| kind.name).collect::<BTreeSet<_>>() {
                demands.0.entry(kind).or_default().push(Arc::clone(&meshes));
            }
        }
        demands
    }

    fn is_for(&self, key: &ResourceKey) -> bool {
        let mesh = if key.kind == &mesh::KIND { &key.name } else { &key.mesh };
        let mut demanded = self.0.get(key.kind.name).into_iter().flatten();
        demanded.any(|meshes| meshes.is_empty() || meshes.contains(&**mesh))
    }
}

impl RolloutGuard {
    /// The runs that `index` shows.
    pub fn runs(&self, index: &Index) -> Runs {
        self.runs.at(index)
    }

    /// What stands against `writes` on `index`, which go out by the rollout of this name, if by any; nothing, mostly.
    pub fn objection(&self, index: &Index, writes: &[Write], by: Option<&str>) -> Option<Objection> {
        self.held(index, writes, by).or_else(|| self.required(index, writes, by))
    }

    /// What of `writes` a run is on its way with, other than the one of the rollout `by`.
    pub fn held(&self, index: &Index, writes: &[Write], by: Option<&str>) -> Option<Objection> {
        let runs = self.runs(index);
        let others = runs.active().filter(|active| by != Some(&*active.rollout));
        let others: Vec<_> = others.collect();
        if others.is_empty() {
            return None;
        }
        let changing = writes.iter().filter(|write| changes(index, write));
        changing.flat_map(|write| others.iter().map(move |active| (active, write))).find_map(
            |(active, write)| {
                let key = write.key();
                let is_delete = matches!(write, Write::Delete { .. });
                if key.kind == &rollout::KIND && key.name == active.rollout && is_delete {
                    return Some(Objection::Running(active.rollout.to_string()));
                }
                let inside = || active.first_in(&key.name).filter(|_| key.kind == &mesh::KIND && is_delete);
                let held = if active.is_of(key) { Some(key) } else { inside() }?;
                let (rollout, run) = (active.rollout.to_string(), &active.run);
                let (state, wave) = (run.state.as_str(), run.wave_name(run.wave));
                Some(Objection::Held { key: title(held), rollout, state, wave })
            },
        )
    }

    fn required(&self, index: &Index, writes: &[Write], by: Option<&str>) -> Option<Objection> {
        let demands = {
            // Replaced whole, so a panic while holding the lock leaves the last ones intact.
            let mut last = self.demands.lock().unwrap_or_else(PoisonError::into_inner);
            *last = last.moved_to(index, &rollout::KIND, |stored, _| RolloutDemands::of(stored));
            last.clone()
        };
        let demanding: Vec<_> = demands.iter().filter(|(_, demands)| !demands.0.is_empty()).collect();
        writes.iter().find_map(|write| {
            let key = write.key();
            let mut names =
                demanding.iter().filter(|(_, demands)| demands.is_for(key)).map(|(name, _)| &***name);
            let rollout = names.next()?;
            // Where several are good, one is enough.
            let is_good = by.is_some_and(|by| by == rollout || names.any(|name| name == by));
            // In a mesh that is just being made nobody can be hurt, and it comes with policies of its own.
            let has_mesh = !key.kind.is_mesh_scoped() || index.find(&mesh::KIND, "", &key.mesh).is_some();
            if is_good || !has_mesh || !changes(index, write) {
                return None;
            }
            let is_delete = matches!(write, Write::Delete { .. });
            let (rollout, command) = (rollout.to_owned(), if is_delete { "delete" } else { "apply" });
            Some(match is_delete && key.kind == &mesh::KIND {
                true => Objection::Undeletable { key: title(key), rollout },
                false => Objection::Required { key: title(key), rollout, command },
            })
        })
    }
}

/// Whether `write` is more than a condition.
fn changes(index: &Index, write: &Write) -> bool {
    let is_same =
        |is: &Resource, resource: &Resource| is.spec == resource.spec && is.labels == resource.labels;
    match write {
        Write::Put { resource, .. } => index.get(&resource.key).is_none_or(|is| !is_same(is, resource)),
        Write::PutStatus { .. } => false,
        Write::Delete { key, .. } => index.get(key).is_some(),
    }
}

fn title(key: &ResourceKey) -> String {
    let (kind, mesh, name) = (key.kind.name, &key.mesh, &key.name);
    if mesh.is_empty() { format!("{kind} {name}") } else { format!("{kind} {mesh}/{name}") }
}

impl Objection {
    /// Whether it passes by itself, rather than being a rule.
    pub fn passes(&self) -> bool {
        !matches!(self, Self::Required { .. } | Self::Undeletable { .. })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::{
            Spec,
            kinds::rollout_insight::{self, RolloutChange, RolloutRun, RolloutState, WaveRun},
        },
        policy::mesh_timeout,
        store::{Precondition, Snapshot, StoreIdentity},
    };

    fn resource(kind: &'static crate::model::Kind, mesh: &str, name: &str) -> Resource {
        Resource::new(ResourceKey::new(kind, mesh, name), DateTime::UNIX_EPOCH)
    }

    fn index(run: RolloutState, demand: serde_json::Value) -> Index {
        let change = RolloutChange {
            kind: "MeshTimeout".to_owned(),
            mesh: "default".to_owned(),
            name: "held".to_owned(),
            ..RolloutChange::default()
        };
        let run = RolloutRun {
            state: run,
            waves: vec![WaveRun::default(), WaveRun::default()],
            changes: vec![change],
            ..RolloutRun::default()
        };
        let rollout = json!({ "requiredFor": demand }).to_string().into_bytes();
        let resources = vec![
            resource(&mesh::KIND, "", "default"),
            resource(&mesh_timeout::KIND, "default", "held"),
            resource(&mesh_timeout::KIND, "default", "free"),
            resource(&rollout::KIND, "", "canary").with_spec(rollout),
            resource(&rollout_insight::KIND, "", "canary").with_spec(run.encode()),
        ];
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        Index::of(
            store,
            Snapshot { revision: 1, commit: None, resources: resources.into_iter().map(Arc::new).collect() },
        )
    }

    fn put(mesh: &str, name: &str) -> Write {
        Write::put(resource(&mesh_timeout::KIND, mesh, name).with_label("x", "y"))
    }

    fn delete(kind: &'static crate::model::Kind, mesh: &str, name: &str) -> Write {
        Write::delete_when(ResourceKey::new(kind, mesh, name), Precondition::None)
    }

    fn found(index: &Index, write: Write, by: Option<&str>) -> String {
        let guard = RolloutGuard::default();
        guard.objection(index, &[write], by).map(|objection| objection.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_a_rollout_changes_nobody_else_changes() {
        let running = index(RolloutState::Halted, json!([]));
        for write in [
            put("default", "held"),
            delete(&mesh_timeout::KIND, "default", "held"),
            delete(&mesh::KIND, "", "default"),
        ] {
            let why = found(&running, write, None);
            assert!(
                why.contains("MeshTimeout default/held is part of rollout canary, which is halted"),
                "{why}"
            );
        }
        let why = found(&running, delete(&rollout::KIND, "", "canary"), None);
        assert!(why.contains("rollout canary is on its way"), "{why}");
        assert_eq!(found(&running, put("default", "free"), None), "");
        assert_eq!(found(&running, put("default", "held"), Some("canary")), "", "it is its own");
        assert_ne!(found(&running, put("default", "held"), Some("other")), "");
        // Who only makes sure that nothing changed changes nothing.
        let same = Write::put(resource(&mesh_timeout::KIND, "default", "held"));
        assert_eq!(found(&running, same, None), "");
        let over = index(RolloutState::Finished, json!([]));
        assert_eq!(found(&over, put("default", "held"), None), "");
    }

    #[test]
    fn what_has_to_go_in_waves_goes_no_other_way() {
        let index =
            index(RolloutState::Aborted, json!([{ "kinds": ["MeshTimeout"], "meshes": ["default"] }]));
        let why = found(&index, put("default", "free"), None);
        assert!(why.contains("`straitctl apply --rollout canary`"), "{why}");
        let why = found(&index, delete(&mesh_timeout::KIND, "default", "free"), Some("other"));
        assert!(why.contains("`straitctl delete --rollout canary`"), "{why}");
        assert_eq!(found(&index, put("default", "free"), Some("canary")), "");
        assert_eq!(found(&index, put("new", "free"), None), "", "that mesh is not there yet");
        assert_eq!(found(&index, delete(&mesh_timeout::KIND, "default", "absent"), None), "");
    }

    #[test]
    fn what_goes_in_no_waves_is_locked_by_no_demand() {
        let all: Vec<&str> = registry::ALL.iter().map(|kind| kind.name).collect();
        let mut index = index(RolloutState::Finished, json!([{ "kinds": all }]));
        for kind in registry::ALL.iter().copied() {
            let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
            let key = ResourceKey::new(kind, mesh, &format!("of-{}", kind.name));
            let write = Write::put(Resource::new(key.clone(), DateTime::UNIX_EPOCH));
            assert_eq!(found(&index, write, None).is_empty(), why_not_carried(kind).is_some(), "{key}");
            let resource = Some(Arc::new(Resource::new(key.clone(), DateTime::UNIX_EPOCH)));
            index.apply(&crate::store::Change { revision: index.revision + 1, key: key.clone(), resource });
            let why = found(&index, Write::delete_when(key.clone(), Precondition::None), None);
            assert_eq!(why.is_empty(), why_not_carried(kind).is_some(), "{key}: {why}");
        }
        assert_eq!(found(&index, delete(&rollout::KIND, "", "canary"), None), "");
        let why = found(&index, delete(&mesh::KIND, "", "default"), Some("other"));
        assert!(why.ends_with("take Mesh out of spec.requiredFor of the rollout first"), "{why}");
    }
}
