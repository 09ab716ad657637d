//! What stands against a write that belongs to no rollout.

use thiserror::Error;

use crate::{
    model::{
        Resource,
        kinds::{
            mesh,
            rollout::{self, Rollout},
            rollout_insight::{self, RolloutRun},
        },
    },
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
}

/// What stands against `writes` on `index`, which go out by the rollout of this name, if by any; nothing, mostly.
pub fn objection(index: &Index, writes: &[Write], by: Option<&str>) -> Option<Objection> {
    held(index, writes).or_else(|| required(index, writes, by))
}

fn held(index: &Index, writes: &[Write]) -> Option<Objection> {
    let runs = index.list(&rollout_insight::KIND).filter_map(|stored| {
        let run = stored.spec::<RolloutRun>().ok().filter(|run| !run.state.is_over())?;
        Some((stored.name(), run))
    });
    for (rollout, run) in runs {
        for write in writes.iter().filter(|write| changes(index, write)) {
            let key = write.key();
            if key.kind == &rollout::KIND && &*key.name == rollout && matches!(write, Write::Delete { .. }) {
                return Some(Objection::Running(rollout.to_owned()));
            }
            let is_whole_mesh = key.kind == &mesh::KIND && matches!(write, Write::Delete { .. });
            let held = run.changes.iter().find(|change| {
                let is_it =
                    change.kind == key.kind.name && *change.mesh == *key.mesh && *change.name == *key.name;
                is_it || (is_whole_mesh && *change.mesh == *key.name)
            });
            if let Some(change) = held {
                let (state, wave) = (run.state.as_str(), run.wave_name(run.wave));
                let key = title(&change.kind, &change.mesh, &change.name);
                return Some(Objection::Held { key, rollout: rollout.to_owned(), state, wave });
            }
        }
    }
    None
}

fn required(index: &Index, writes: &[Write], by: Option<&str>) -> Option<Objection> {
    let rollouts = index.list(&rollout::KIND).filter_map(|stored| {
        let rollout = stored.spec::<Rollout>().ok().filter(|rollout| !rollout.required_for.is_empty())?;
        Some((stored.name(), rollout))
    });
    let rollouts: Vec<(&str, Rollout)> = rollouts.collect();
    writes.iter().find_map(|write| {
        let demanding = rollouts.iter().filter(|(_, rollout)| is_demanded(index, rollout, write));
        // Where several are good, one is enough.
        let names: Vec<&str> = demanding.map(|(name, _)| *name).collect();
        let rollout = names.first().filter(|_| by.is_none_or(|by| !names.contains(&by)))?;
        let (key, is_delete) = (write.key(), matches!(write, Write::Delete { .. }));
        let command = if is_delete { "delete" } else { "apply" };
        let key = title(key.kind.name, &key.mesh, &key.name);
        Some(Objection::Required { key, rollout: (*rollout).to_owned(), command })
    })
}

fn is_demanded(index: &Index, rollout: &Rollout, write: &Write) -> bool {
    let key = write.key();
    let mesh = if key.kind == &mesh::KIND { &key.name } else { &key.mesh };
    let is_it = rollout.required_for.iter().any(|demand| {
        let is_there = demand.meshes.is_empty() || demand.meshes.iter().any(|name| **name == **mesh);
        is_there && demand.kinds.iter().any(|kind| kind == key.kind.name)
    });
    // In a mesh that is just being made nobody can be hurt, and it comes with policies of its own.
    let has_mesh = !key.kind.is_mesh_scoped() || index.find(&mesh::KIND, "", &key.mesh).is_some();
    is_it && has_mesh && changes(index, write)
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

fn title(kind: &str, mesh: &str, name: &str) -> String {
    if mesh.is_empty() { format!("{kind} {name}") } else { format!("{kind} {mesh}/{name}") }
}

impl Objection {
    /// Whether it passes by itself, rather than being a rule.
    pub fn passes(&self) -> bool {
        !matches!(self, Self::Required { .. })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use chrono::DateTime;
    use serde_json::json;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::{
            ResourceKey, Spec,
            kinds::rollout_insight::{RolloutChange, RolloutState, WaveRun},
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
        Index::of(store, Snapshot { revision: 1, resources: resources.into_iter().map(Arc::new).collect() })
    }

    fn put(mesh: &str, name: &str) -> Write {
        Write::put(resource(&mesh_timeout::KIND, mesh, name).with_label("x", "y"))
    }

    fn delete(kind: &'static crate::model::Kind, mesh: &str, name: &str) -> Write {
        Write::delete_when(ResourceKey::new(kind, mesh, name), Precondition::None)
    }

    fn found(index: &Index, write: Write, by: Option<&str>) -> String {
        objection(index, &[write], by).map(|objection| objection.to_string()).unwrap_or_default()
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
}
