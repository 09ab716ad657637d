//! The runs that the index shows, and what they keep.

use std::sync::Arc;

use thiserror::Error;

use crate::{
    model::{
        Resource, ResourceKey,
        kinds::rollout_insight::{self, RolloutRun, kept_key},
    },
    registry,
    store::{
        Precondition, Write,
        backup::{resource_from_json, resource_to_json},
        index::Index,
    },
};

/// Why what a run keeps cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("what {of} was before the rollout cannot be read: {reason}")]
pub struct KeptError {
    /// Type and name of what it is about.
    pub of: String,
    reason: String,
}

/// The newest run of a rollout, with the resource it stands in.
pub fn run_of(index: &Index, rollout: &str) -> Option<(Arc<Resource>, RolloutRun)> {
    let resource = index.find(&rollout_insight::KIND, "", rollout)?;
    Some((Arc::clone(resource), resource.spec::<RolloutRun>().ok()?))
}

/// The same of one that is not over.
pub fn active_run(index: &Index, rollout: &str) -> Option<(Arc<Resource>, RolloutRun)> {
    run_of(index, rollout).filter(|(_, run)| !run.state.is_over())
}

/// The write that puts `run` in the place of what stands in `resource`, unless somebody was faster.
pub fn with_run(resource: &Resource, run: &RolloutRun, now: chrono::DateTime<chrono::Utc>) -> Write {
    let next = Resource { modified: now, ..resource.clone() };
    let next = next.with_spec(crate::model::Spec::encode(run));
    Write::put_when(next, Precondition::At(resource.revision))
}

/// The write that keeps `before` for the n-th change of a run.
///
/// # Errors
/// Never, as long as names are text.
pub fn kept_write(
    rollout: &str,
    change: usize,
    before: &Resource,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Write, serde_json::Error> {
    let mut kept = Resource::new(kept_key(rollout, change), now).with_spec(resource_to_json(before)?);
    kept.owner = Some(ResourceKey::global(&rollout_insight::KIND, rollout));
    Ok(Write::put(kept))
}

/// A resource by key as it was; nothing where there was none.
pub type Former = (ResourceKey, Option<Arc<Resource>>);

/// What each resource that `run` changes was before, in the order of its changes; and why not, where that cannot be read.
pub fn restored(index: &Index, rollout: &str, run: &RolloutRun) -> Vec<Result<Former, KeptError>> {
    let changes = run.changes.iter().enumerate();
    let restored = changes.map(|(n, change)| {
        let wrong = |reason: String| KeptError { of: change.to_string(), reason };
        let kind = registry::by_name(&change.kind).ok_or_else(|| wrong("its type is unknown".to_owned()))?;
        let key = ResourceKey::new(kind, &change.mesh, &change.name);
        if !change.kept {
            return Ok((key, None));
        }
        let kept = index.get(&kept_key(rollout, n)).ok_or_else(|| wrong("it is not there".to_owned()))?;
        let before = resource_from_json(&kept.spec).map_err(wrong)?;
        match before.key == key {
            true => Ok((key, Some(Arc::new(before)))),
            false => Err(wrong(format!("it is that of {}", before.key))),
        }
    });
    restored.collect()
}
