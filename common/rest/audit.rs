//! What of the requests goes into the audit log, and looking for it.

use std::sync::Arc;

use axum::{
    extract::{Query as QueryOf, Request, State},
    http::{Method, StatusCode},
    response::Response,
};
use serde_json::json;

use super::{
    Api, ApiError, REVISION, User,
    body::json_response,
    browser::{LOGIN_DONE, SESSION, is_page},
    commit::Committed,
    confidential::Confidential,
    page::{self, Query},
    routes,
};
use crate::{
    audit::{AuditEntry, AuditOutcome, AuditQuery},
    clip::clip,
    registry,
    runtime::http::Connection,
};

/// Longest path that is kept.
const LONGEST: usize = 512;
const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 10_000;

/// A request that will be in the audit log, while it is answered.
pub(super) struct AuditedRequest {
    method: Method,
    path: String,
    from: String,
    is_taken_down: bool,
    /// Whether it does something that is no write of resources.
    acts: bool,
}

/// Whether the request itself is taken down, and not what a page asks for because of it.
fn is_taken_down(request: &Request, route: Option<&str>) -> bool {
    let (method, path) = (request.method(), request.uri().path());
    let reads = method.is_safe() || route.is_some_and(|route| routes::only_reads(method.as_str(), route));
    path == LOGIN_DONE || (!reads && (!is_page(path) || path.starts_with(SESSION)))
}

impl AuditedRequest {
    pub(super) fn of(request: &Request, route: Option<&str>) -> Self {
        let from = request.extensions().get::<Connection>();
        Self {
            method: request.method().clone(),
            path: clip(request.uri().path(), LONGEST).to_owned(),
            from: from.map(|connection| connection.peer.ip().to_canonical().to_string()).unwrap_or_default(),
            is_taken_down: is_taken_down(request, route),
            acts: route.is_some_and(|route| routes::acts(request.method().as_str(), route)),
        }
    }

    fn is_sensitive(&self, response: &Response) -> bool {
        self.is_taken_down || Confidential::is_on(response)
    }

    /// The same of what a page asked for, which is not told when it may not be seen.
    pub(super) fn answered_to_page(self, api: &Api, user: &User, response: &Response) {
        if self.is_sensitive(response) {
            self.answered(api, user, response);
        }
    }

    /// Takes it down, when it changed something, or showed or tried to see what only some may.
    pub(super) fn answered(self, api: &Api, user: &User, response: &Response) {
        let status = response.status().as_u16();
        let outcome = AuditOutcome::of(status);
        if !self.is_sensitive(response) && outcome != AuditOutcome::Refused {
            return;
        }
        // Who logs in was nobody until now.
        let user = response.extensions().get::<User>().unwrap_or(user);
        let revision = response.headers().get(REVISION).and_then(|value| value.to_str().ok()?.parse().ok());
        let asked = (self.method.as_str(), self.path.as_str());
        let entry = AuditEntry {
            kind: kind(&self.path).map(str::to_owned),
            revision,
            changed: outcome == AuditOutcome::Done
                && Committed::of(response).map_or(self.acts, |committed| committed.changed),
            ..AuditEntry::new(api.env.now(), user, self.from, asked, status)
        };
        api.config.audit.record(entry, !user.is_anonymous());
    }
}

/// The type of resource that `path` is about.
fn kind(path: &str) -> Option<&'static str> {
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let segment = match parts.as_slice() {
        ["meshes", _, path, ..] => path,
        [path, ..] => path,
        [] => return None,
    };
    let known = registry::ALL.iter().filter(|kind| !kind.path.is_empty());
    known.copied().find(|kind| kind.path == *segment || kind.alias == *segment).map(|kind| kind.name)
}

/// `GET /audit`: the newest entries first.
pub(super) async fn search(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<Query>,
) -> Result<Response, ApiError> {
    let size = match page::value(&query, "size").map(str::parse::<usize>) {
        None => DEFAULT_SIZE,
        Some(Ok(size)) if (1..=MAX_SIZE).contains(&size) => size,
        Some(_) => {
            return Err(ApiError::bad_request(format!("size: must be a number from 1 to {MAX_SIZE}")));
        }
    };
    let outcome = page::value(&query, "outcome").map(|text| match text {
        "done" => Ok(AuditOutcome::Done),
        "refused" => Ok(AuditOutcome::Refused),
        "failed" => Ok(AuditOutcome::Failed),
        _ => Err(ApiError::bad_request("outcome: must be done, refused or failed")),
    });
    let kind = page::value(&query, "kind").map(|text| {
        let kind = registry::by_name(text).or_else(|| registry::by_argument(text));
        kind.map(|kind| kind.name.to_owned()).ok_or_else(|| ApiError::unsupported("kind"))
    });
    let since = page::value(&query, "since").map(|text| super::history::time(text, api.env.now()));
    let asked = AuditQuery {
        user: page::value(&query, "user").map(str::to_owned),
        kind: kind.transpose()?,
        outcome: outcome.transpose()?,
        since: since.transpose()?,
    };
    let items = api.config.audit.search(&asked, size);
    Ok(json_response(StatusCode::OK, &json!({ "items": items, "next": null })))
}
