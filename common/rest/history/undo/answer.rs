//! What is told of an undo. It is written step by step: all documents at once would take many times their length.

use std::sync::Arc;

use axum::{http::StatusCode, response::Response};
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::plan::{UndoPlan, UndoStep};
use crate::{
    model::{Kind, Resource},
    rest::{
        body::json_response,
        history::{UNDO, shown},
        read::{Sight, render},
    },
    roles::Readable,
    store::{Revision, index::Index},
};

/// A plan, as somebody may see it.
pub(super) struct UndoView<'a> {
    pub(super) plan: &'a UndoPlan,
    /// What there is before.
    pub(super) index: &'a Index,
    pub(super) sight: Sight,
    pub(super) readable: Readable,
}

#[derive(Serialize)]
struct UndoAnswer<'a> {
    steps: ShownSteps<'a>,
    left: Vec<Value>,
    /// Of what was done.
    revision: Option<Revision>,
}

struct ShownSteps<'a>(&'a UndoView<'a>);

impl Serialize for ShownSteps<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.plan.steps.iter().map(|step| self.0.step(step)))
    }
}

impl UndoView<'_> {
    /// The answer about what was done with `revision`, or would be.
    pub(super) fn answer(&self, revision: Option<Revision>) -> Response {
        let left = self.plan.left.iter().map(|(change, why)| {
            let mut item = shown(change);
            item["reason"] = why.as_str().into();
            item
        });
        json_response(StatusCode::OK, &UndoAnswer { steps: ShownSteps(self), left: left.collect(), revision })
    }

    /// Who may write a resource need not be one who may read it, nor who changed it.
    fn step(&self, step: &UndoStep) -> Value {
        let is = self.index.get(&step.key);
        let is_seen = self.readable.shows_key(&step.key);
        let mut item = shown(&step.oldest);
        if let Some(members) = item.as_object_mut().filter(|_| !is_seen) {
            members.remove("author");
            members.remove("at");
        }
        let document =
            |resource: Option<&Arc<Resource>>| self.document(resource.filter(|_| is_seen)?, step.key.kind);
        item["op"] = step.op(is.is_some()).into();
        item["undoes"] = step.changes.clone().into();
        item["now"] = document(is).into();
        item["then"] = document(step.before.as_ref()).into();
        item
    }

    fn document(&self, resource: &Resource, kind: &Kind) -> Option<Value> {
        if kind.admin_only || !self.readable.shows(resource) {
            return None;
        }
        let mut document = render(UNDO, resource).ok()?;
        document.as_object_mut()?.remove("status");
        Some(self.sight.on(kind).of(document))
    }
}
