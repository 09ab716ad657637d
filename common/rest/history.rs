//! What became of resources, who changed them, and how they were.
//!
//! Only for those who proved who they are: the history names people. What a resource held is shown to whoever may
//! see the resource.

mod past;
mod undo;

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query as QueryOf, State},
    http::StatusCode,
    response::Response,
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

pub(super) use self::undo::is_as_it_is;
use super::{
    Api, ApiError, KindApi, Mounted, User,
    body::json_response,
    page::{self, Query},
    read::ResourcePath,
    routes,
};
use crate::{
    config::Interval,
    document, registry,
    runtime::http::Client,
    store::{
        Revision, StoreError,
        history::{HistoryOp, HistoryQuery, PastChange},
    },
};

const TITLE: &str = "Could not look into the history";
const UNDO: &str = "Could not undo";
const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1_000;
/// Changes of one revision that are shown.
const OF_REVISION: usize = 10_000;

/// The routes about all resources.
pub(super) fn routes(api: &Arc<Api>) -> Mounted {
    Mounted::new()
        .on(const { routes::get("/history") }, all, api)
        .on(const { routes::get("/history/{revision}") }, of_revision, api)
        .on(const { routes::post("/history/undo") }, undo::undo, api)
}

/// The routes about one resource of a kind.
pub(super) fn kind_routes(at: &KindApi) -> Mounted {
    Mounted::new().on_kind(at.kind, const { routes::get("<list>/{name}/_history") }, of_resource, at).on_kind(
        at.kind,
        const { routes::get("<list>/{name}/_history/{revision}") },
        past::past,
        at,
    )
}

fn failed(error: &StoreError) -> ApiError {
    ApiError::store(TITLE, error)
}

/// A change as it is shown.
pub(super) fn shown(change: &PastChange) -> Value {
    let mut item = Map::new();
    item.insert("revision".to_owned(), change.revision.into());
    item.insert("at".to_owned(), document::time(change.at).into());
    item.insert("author".to_owned(), change.author.to_string().into());
    item.insert("op".to_owned(), change.op.as_str().into());
    item.insert("type".to_owned(), change.key.kind.name.into());
    if change.key.kind.is_mesh_scoped() {
        item.insert("mesh".to_owned(), change.key.mesh.as_ref().into());
    }
    item.insert("name".to_owned(), change.key.name.as_ref().into());
    Value::Object(item)
}

/// `GET /history`: the newest changes first.
async fn all(
    State(api): State<Arc<Api>>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let mut asked = asked(&query, &api)?;
    if let Some(kind) = page::value(&query, "kind") {
        let kind = registry::by_name(kind).or_else(|| registry::by_argument(kind));
        asked.kind = Some(kind.ok_or_else(|| ApiError::unsupported("kind"))?);
    }
    asked.mesh = page::value(&query, "mesh").map(str::to_owned);
    asked.author = page::value(&query, "author").map(str::to_owned);
    changes(&api, &user, &client, asked).await
}

/// `GET …/{name}/_history`.
async fn of_resource(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    QueryOf(query): QueryOf<Query>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let asked = HistoryQuery { key: Some(at.key(&target)), ..asked(&query, &at.api)? };
    changes(&at.api, &user, &client, asked).await
}

/// `GET /history/{revision}`: everything that changed with it.
async fn of_revision(
    State(api): State<Arc<Api>>,
    Path(revision): Path<String>,
    Extension(user): Extension<User>,
    client: Client,
) -> Result<Response, ApiError> {
    let revision = number(&revision)?;
    let asked = HistoryQuery {
        after: revision.saturating_sub(1),
        until: revision,
        limit: OF_REVISION,
        ..HistoryQuery::default()
    };
    changes(&api, &user, &client, asked).await
}

/// What the parameters say that all lists have.
fn asked(query: &Query, api: &Api) -> Result<HistoryQuery, ApiError> {
    let size = match page::value(query, "size").map(str::parse::<usize>) {
        None => DEFAULT_SIZE,
        Some(Ok(size)) if (1..=MAX_SIZE).contains(&size) => size,
        Some(_) => {
            return Err(ApiError::bad_request(format!("size: must be a number from 1 to {MAX_SIZE}")));
        }
    };
    let before = page::value(query, "before").map(number).transpose()?;
    let after = page::value(query, "after").map(number).transpose()?;
    let since = page::value(query, "since").map(|text| time(text, api.env.now())).transpose()?;
    Ok(HistoryQuery {
        after: after.unwrap_or(0),
        until: before.map_or(Revision::MAX, |before| before.saturating_sub(1)),
        since,
        limit: size,
        ..HistoryQuery::default()
    })
}

/// The answer to `asked`, without what `user` may not know of. A page ends with a whole revision.
async fn changes(
    api: &Arc<Api>,
    user: &User,
    client: &Client,
    asked: HistoryQuery,
) -> Result<Response, ApiError> {
    let size = asked.limit;
    // Before anything is read, which those in line do not hold. The turn of those who read long answers comes after what
    // is waited for.
    let _past = api.past.take(client).await?;
    let readable = api.rights.readable(user);
    // Where the next page begins would tell that there is something.
    let may_go_on = asked.kind.is_none_or(|kind| !readable.shows_none(kind));
    let query = HistoryQuery { limit: size + 1, ..asked.clone() };
    let mut found = api.store.history(&query).await.map_err(|error| failed(&error))?;
    let mut next = None;
    if found.changes.len() > size {
        let last = found.changes[size].revision;
        let whole = found.changes.iter().position(|change| change.revision == last).unwrap_or(0);
        found.changes.truncate(whole);
        if found.changes.is_empty() {
            let one =
                HistoryQuery { after: last.saturating_sub(1), until: last, limit: OF_REVISION, ..asked };
            found.changes = api.store.history(&one).await.map_err(|error| failed(&error))?.changes;
        }
        next = found.changes.last().map(|change| change.revision).filter(|_| may_go_on);
    }
    let turn = client.turn().await?;
    let answer = move || {
        let seen = found.changes.iter().filter(|change| readable.shows_key(&change.key));
        let items: Vec<Value> = seen.map(shown).collect();
        let body = json!({ "items": items, "next": next, "knownAfter": found.floor });
        Ok(json_response(StatusCode::OK, &body))
    };
    api.make_in(turn, answer).await
}

/// A revision in a path or parameter.
fn number(text: &str) -> Result<Revision, ApiError> {
    text.parse()
        .ok()
        .filter(|number| *number <= i64::MAX.unsigned_abs())
        .ok_or_else(|| ApiError::bad_request(format!("{:?} is not a revision", crate::clip::clip(text, 64))))
}

/// A time, or how long ago it is.
pub(super) fn time(text: &str, now: DateTime<Utc>) -> Result<DateTime<Utc>, ApiError> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Ok(time.to_utc());
    }
    Interval::parse(text)
        .ok()
        .and_then(|ago| now.checked_sub_signed(chrono::TimeDelta::from_std(ago.0).ok()?))
        .ok_or_else(|| {
            ApiError::bad_request(
                "since: must be a time like 2026-01-31T12:00:00Z, or how long ago, like 90m",
            )
        })
}

/// 404 for what happened before anything is known.
fn require_known_since(revision: Revision, floor: Revision) -> Result<(), ApiError> {
    if revision >= floor {
        return Ok(());
    }
    let detail = format!("the history reaches back to revision {floor} and not to {revision}");
    Err(ApiError::new(StatusCode::NOT_FOUND, TITLE, detail))
}

/// What there was before the oldest of these changes; the inner `None` when nothing was.
fn replaced(change: &PastChange) -> Option<Option<&Arc<crate::model::Resource>>> {
    match (&change.before, change.op) {
        (Some(before), _) => Some(Some(before)),
        (None, HistoryOp::Create) => Some(None),
        (None, _) => None,
    }
}
