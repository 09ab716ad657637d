//! A resource as it was.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde::Deserialize;

use super::{TITLE, failed, number, replaced, require_known_since};
use crate::{
    model::{Resource, ResourceKey, kinds::access_role::RoleVerb},
    rest::{
        Api, ApiError, KindApi, User,
        read::{ResourcePath, render, weight},
        sync::Preference,
    },
    runtime::http::Client,
    store::{
        Revision,
        history::{HistoryQuery, keeps_contents},
    },
};

/// Mesh, name and revision in the URL.
#[derive(Deserialize)]
pub(super) struct PastPath {
    #[serde(default)]
    mesh: String,
    name: String,
    revision: String,
}

/// `GET …/{name}/_history/{revision}`: the resource as it was then, without its status.
pub(super) async fn past(
    State(at): State<KindApi>,
    Path(path): Path<PastPath>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let revision = number(&path.revision)?;
    let key = at.key(&ResourcePath { mesh: path.mesh, name: path.name });
    let resource = at.api.at(&key, revision).await?.ok_or_else(|| {
        let detail = format!("{key} did not exist at revision {revision}");
        ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
    })?;
    // It may have been of another zone than what is called so now, by which the path is judged.
    at.api.rights.of(&at.api.index.current(), &user).check_version(RoleVerb::Read, &resource)?;
    let sight = at.api.sight(&user).on(at.kind);
    at.api
        .make(&client, weight(&resource), move || {
            let mut document = render(TITLE, &resource)?;
            if let Some(members) = document.as_object_mut() {
                members.remove("status");
            }
            Ok(Preference::Usual.answer(StatusCode::OK, sight.of(document), resource.revision))
        })
        .await
}

impl Api {
    /// The resource `key` as revision `revision` left it.
    ///
    /// # Errors
    /// When that is not known.
    pub(super) async fn at(
        &self,
        key: &ResourceKey,
        revision: Revision,
    ) -> Result<Option<Arc<Resource>>, ApiError> {
        if !keeps_contents(key.kind) {
            let detail = format!("what resources of type {} held is not kept", key.kind.name);
            return Err(ApiError::new(StatusCode::NOT_FOUND, TITLE, detail));
        }
        let head = *self.store.watch_head().borrow();
        let newest = head.max(self.index.current().revision);
        if revision > newest {
            let detail = format!("there is no revision {revision} here yet, the newest is {newest}");
            return Err(ApiError::new(StatusCode::NOT_FOUND, TITLE, detail));
        }
        self.catch_up(revision).await;
        // The index first: whatever changes between the two reads is in the history then.
        let index = self.index.current();
        let next = HistoryQuery {
            key: Some(key.clone()),
            after: revision,
            oldest_first: true,
            limit: 1,
            contents: true,
            ..HistoryQuery::default()
        };
        let found = self.store.history(&next).await.map_err(|error| failed(&error))?;
        // What was written no later, and replaced after, was there in between, whatever is not known any more.
        let there = match found.changes.first() {
            None => index.get(key),
            Some(change) => change.before.as_ref(),
        };
        if there.is_none_or(|there| there.revision > revision) {
            require_known_since(revision, found.floor)?;
        }
        match found.changes.first() {
            None => Ok(index.get(key).cloned()),
            Some(change) => replaced(change).map(Option::<&Arc<Resource>>::cloned).ok_or_else(|| {
                ApiError::internal(TITLE, format!("{key} at revision {revision} has no contents"))
            }),
        }
    }
}
