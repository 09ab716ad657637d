//! What has to be written so that changes never were.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    model::{Resource, ResourceKey, kinds::access_role::RoleVerb, labels},
    rest::ApiError,
    store::{
        Revision,
        history::{HistoryOp, PastChange, keeps_contents},
        index::Index,
    },
};

/// What is done to which resources, in this order, and what is left alone.
pub(super) struct UndoPlan {
    /// The revision of the index before the history was read.
    pub(super) known: Revision,
    /// Whether all changes were there, rather than those of users alone.
    pub(super) is_whole: bool,
    pub(super) steps: Vec<UndoStep>,
    /// With why.
    pub(super) left: Vec<(PastChange, String)>,
}

/// What is done to one resource.
pub(super) struct UndoStep {
    pub(super) key: ResourceKey,
    /// The change that is taken back down to.
    pub(super) oldest: PastChange,
    /// The changes that are taken back, oldest first.
    pub(super) changes: Vec<Revision>,
    /// What the newest of them did.
    pub(super) newest: HistoryOp,
    /// Whether something is to be there.
    pub(super) restores: bool,
    /// What that is, once it was read.
    pub(super) before: Option<Arc<Resource>>,
}

impl UndoPlan {
    /// The way back over `changes`, oldest first, as far as the user `may` go it. What was there before is read after
    /// that, and of the steps alone.
    pub(super) fn of(
        known: Revision,
        is_whole: bool,
        changes: &[PastChange],
        may: impl Fn(RoleVerb, &ResourceKey) -> Result<(), ApiError>,
    ) -> Self {
        let mut by_key: BTreeMap<&ResourceKey, Vec<&PastChange>> = BTreeMap::new();
        for change in changes {
            by_key.entry(&change.key).or_default().push(change);
        }
        let (mut steps, mut left) = (Vec::new(), Vec::new());
        for (key, changes) in by_key {
            match UndoStep::of(key, &changes, &may) {
                Ok(step) => steps.push(step),
                Err(why) => left.extend(changes.first().map(|change| ((*change).clone(), why))),
            }
        }
        // A mesh is there before what is in it, and goes after it.
        steps.sort_by_key(|step| match (step.restores, step.key.kind.is_mesh_scoped()) {
            (true, false) => 0,
            (true, true) => 1,
            (false, true) => 2,
            (false, false) => 3,
        });
        Self { known, is_whole, steps, left }
    }
}

impl UndoStep {
    fn of(
        key: &ResourceKey,
        changes: &[&PastChange],
        may: impl Fn(RoleVerb, &ResourceKey) -> Result<(), ApiError>,
    ) -> Result<Self, String> {
        let oldest = *changes.first().ok_or("nothing changed")?;
        if let Some(other) = changes.iter().find(|change| !change.author.is_operator()) {
            return Err(format!("changed by {}, which would do so again", other.author));
        }
        let restores = oldest.op != HistoryOp::Create;
        if restores && !keeps_contents(key.kind) {
            return Err("what it held is not kept".to_owned());
        }
        let verb = if restores { RoleVerb::Write } else { RoleVerb::Delete };
        may(verb, key).map_err(|error| error.to_string())?;
        Ok(Self {
            key: key.clone(),
            oldest: oldest.clone(),
            changes: changes.iter().map(|change| change.revision).collect(),
            newest: changes.last().map_or(oldest.op, |change| change.op),
            restores,
            before: None,
        })
    }

    /// Takes what the change that is taken back replaced; says why it is left alone, where it is.
    pub(super) fn restore(&mut self, before: Arc<Resource>) -> Result<(), String> {
        if before.label(labels::PROVIDED_BY).is_some() {
            return Err("it was in a file: change it there".to_owned());
        }
        self.before = Some(before);
        Ok(())
    }

    /// The revision of the newest change that is taken back.
    pub(super) fn last(&self) -> Revision {
        self.changes.last().copied().unwrap_or(0)
    }

    /// 409 when the resource was changed after the plan was made.
    pub(super) fn require_unchanged(&self, index: &Index, known: Revision) -> Result<(), ApiError> {
        let seen = self.last().max(known);
        match index.get(&self.key) {
            Some(resource) if resource.revision > seen => {
                Err(ApiError::conflict(format!("{} was changed meanwhile: look at it again", self.key)))
            }
            _ => Ok(()),
        }
    }

    /// What becomes of the resource, which is there or not.
    pub(super) fn op(&self, is_there: bool) -> &'static str {
        match (self.restores, is_there) {
            (true, true) => "update",
            (true, false) => "create",
            (false, _) => "delete",
        }
    }
}
