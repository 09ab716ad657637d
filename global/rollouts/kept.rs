//! Whether what a run keeps for going back can be read. It is looked at when a run is seen for the first time, and when
//! something of it is another.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    model::{
        Resource,
        kinds::rollout_insight::{HaltReason, RolloutRun, kept_key},
    },
    rollouts::restored,
    store::index::Index,
};

/// What was found, by id of the run.
#[derive(Default)]
pub(super) struct KeptLooks(BTreeMap<String, KeptLook>);

struct KeptLook {
    /// What was looked at.
    kept: Vec<Option<Arc<Resource>>>,
    lost: Vec<HaltReason>,
}

impl KeptLooks {
    /// Forgets all but these runs.
    pub(super) fn keep<'a>(&mut self, runs: impl Iterator<Item = &'a str>) {
        let runs: BTreeSet<&str> = runs.collect();
        self.0.retain(|id, _| runs.contains(id.as_str()));
    }

    /// What of `run` cannot be kept back, as reasons to halt it.
    pub(super) fn lost(&mut self, index: &Index, rollout: &str, run: &RolloutRun) -> Vec<HaltReason> {
        let changes = run.changes.iter().enumerate().filter(|(_, change)| change.kept);
        let kept = changes.map(|(n, _)| index.get(&kept_key(rollout, n)).cloned());
        let kept: Vec<Option<Arc<Resource>>> = kept.collect();
        let is_same = |look: &&KeptLook| {
            let mut pairs = look.kept.iter().zip(&kept);
            look.kept.len() == kept.len()
                && pairs.all(|(was, is)| match (was, is) {
                    (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                    (was, is) => was.is_none() && is.is_none(),
                })
        };
        if let Some(look) = self.0.get(&run.id).filter(is_same) {
            return look.lost.clone();
        }
        let lost = restored(index, rollout, run).into_iter().filter_map(|former| {
            let error = former.err()?;
            let text = format!("{} reaches every zone, and no abort takes it back: {error}", error.of);
            Some(HaltReason { about: format!("lost {}", error.of), text })
        });
        let lost: Vec<HaltReason> = lost.collect();
        self.0.insert(run.id.clone(), KeptLook { kept, lost: lost.clone() });
        lost
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{ResourceKey, kinds::rollout_insight::RolloutChange},
        policy::mesh_timeout,
        rollouts::kept_write,
        store::{Change, StoreIdentity, Write},
    };

    use super::*;

    #[test]
    fn what_is_lost_is_told_and_looked_for_when_something_is_another() {
        let mut index = Index::empty(StoreIdentity { store_id: uuid::Uuid::nil(), epoch: 1 });
        let change = RolloutChange {
            kind: "MeshTimeout".to_owned(),
            mesh: "default".to_owned(),
            name: "a".to_owned(),
            op: "update".to_owned(),
            kept: true,
        };
        let run = RolloutRun { id: "1".to_owned(), changes: vec![change], ..RolloutRun::default() };
        let mut looks = KeptLooks::default();
        let about = |lost: Vec<HaltReason>| lost.into_iter().map(|it| it.about).collect::<Vec<_>>();
        let lost = about(looks.lost(&index, "canary", &run));
        assert_eq!(lost, ["lost MeshTimeout default/a"]);
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", "a");
        let before = Resource::new(key, DateTime::UNIX_EPOCH).with_spec("{}");
        let Write::Put { resource, .. } = kept_write("canary", 0, &before, DateTime::UNIX_EPOCH).unwrap()
        else {
            panic!("it is kept by a put");
        };
        let (revision, key) = (index.revision + 1, resource.key.clone());
        index.apply(&Change { revision, key, resource: Some(Arc::new(*resource)) });
        assert!(looks.lost(&index, "canary", &run).is_empty());
        looks.keep(["2"].into_iter());
        assert!(looks.0.is_empty());
    }
}
