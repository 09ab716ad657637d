//! How far writes have come: which zone has acknowledged which revision.
//!
//! A zone tells with each answer how far it is, so a revision is looked up by comparing numbers; nothing is kept for
//! single writes.

mod item;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    extract::{Path, Query, State},
    http::{HeaderName, HeaderValue, StatusCode},
    response::Response,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout_at};

use super::{Api, ApiError, ZoneHealth, ZoneStatus, ZoneStatusSource, body::json_response};
use crate::{
    config::Interval,
    kds::outgoing::is_enabled,
    model::kinds::zone,
    registry,
    store::{Revision, index::Index},
};

pub(super) use self::item::item;

/// Names the revision of a write, in its answer.
pub const REVISION: HeaderName = HeaderName::from_static("strait-revision");

/// Longest time an answer waits for zones.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// What `GET /sync` answers.
#[derive(Serialize)]
struct SyncOverview {
    /// Of this control plane.
    revision: Revision,
    zones: Vec<ZoneSync>,
}

#[derive(Serialize)]
struct ZoneSync {
    zone: String,
    #[serde(flatten)]
    status: ZoneStatus,
}

/// What `GET /sync/revisions/{revision}` answers.
#[derive(Debug, PartialEq, Serialize)]
struct RevisionSync {
    revision: Revision,
    /// Of every zone concerned.
    acknowledged: bool,
    zones: Vec<ZoneReach>,
}

/// How one zone stands with a revision.
#[derive(Debug, PartialEq, Serialize)]
struct ZoneReach {
    zone: String,
    state: ReachState,
    /// How far it is.
    acked: Revision,
    /// Changes it has not answered for.
    lag: u64,
    /// Since when it has been online, or away.
    #[serde(skip_serializing_if = "Option::is_none")]
    since: Option<DateTime<Utc>>,
    /// What it refused or cannot get, among others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ReachState {
    /// It has answered for the revision; what it refused stands in the notes.
    Acknowledged,
    /// It is online and has not answered yet.
    Waiting,
    /// It may be away and has not answered.
    Unknown,
    /// It is away and will get it when it is back.
    Offline,
    /// It is away, and nothing of the revision is meant for it.
    Unconcerned,
    /// It is switched off.
    Disabled,
}

impl ReachState {
    fn is_over(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Unconcerned | Self::Disabled)
    }
}

#[derive(Deserialize)]
pub(super) struct RevisionQuery {
    /// How long the answer may wait for zones, at most a minute.
    timeout: Option<String>,
}

/// `GET /sync`.
pub(super) async fn overview(State(api): State<Arc<Api>>) -> Result<Response, ApiError> {
    let source = source(&api)?;
    let index = api.index.current();
    let zones = index.list(&zone::KIND).filter_map(|zone| {
        let status = source.zone_status(zone.name(), &index)?;
        Some(ZoneSync { zone: zone.name().to_owned(), status })
    });
    Ok(json_response(StatusCode::OK, &SyncOverview { revision: index.revision, zones: zones.collect() }))
}

/// `GET /sync/revisions/{revision}?timeout=30s`: answers when every zone concerned has acknowledged, else after that
/// time.
pub(super) async fn revision(
    State(api): State<Arc<Api>>,
    Path(revision): Path<String>,
    Query(waiting): Query<RevisionQuery>,
) -> Result<Response, ApiError> {
    let source = source(&api)?;
    let revision = revision.parse::<Revision>().map_err(|_| {
        ApiError::bad_request(
            "the revision in the path is not a number; a write names its own in the header Strait-Revision",
        )
    })?;
    let patience = match &waiting.timeout {
        None => Duration::ZERO,
        Some(text) => {
            Interval::parse(text).map_err(|_| ApiError::unsupported("timeout"))?.0.min(LONGEST_WAIT)
        }
    };
    let deadline = Instant::now() + patience;
    if timeout_at(deadline, api.index.wait_for(revision)).await.is_err()
        && api.index.current().revision < revision
    {
        let newest = api.index.current().revision;
        let detail = format!("there is no revision {revision} here yet, the newest is {newest}");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "Could not look up a revision", detail));
    }
    let mut progress = source.progressed();
    let mut missed = BTreeMap::new();
    loop {
        progress.mark_unchanged();
        let reached = reach(source, &api.index.current(), revision, &mut missed);
        if reached.acknowledged || !matches!(timeout_at(deadline, progress.changed()).await, Ok(Ok(()))) {
            return Ok(json_response(StatusCode::OK, &reached));
        }
    }
}

fn source(api: &Api) -> Result<&dyn ZoneStatusSource, ApiError> {
    api.config.zone_status.as_deref().ok_or_else(|| {
        let detail = "this control plane has no zones: ask global";
        ApiError::new(StatusCode::NOT_FOUND, "Could not look up zones", detail)
    })
}

/// How all zones stand with `revision`. `missed` remembers what was found about zones that are away, by zone and how far
/// it is.
fn reach(
    source: &dyn ZoneStatusSource,
    index: &Index,
    revision: Revision,
    missed: &mut BTreeMap<(String, Revision), bool>,
) -> RevisionSync {
    let zones = index.list(&zone::KIND).map(|resource| {
        let zone = resource.name();
        let status = source.zone_progress(zone);
        let acked = status.down.acked;
        let mut concerns = || {
            *missed.entry((zone.to_owned(), acked)).or_insert_with(|| {
                is_gone(index, revision) || source.has_missed(zone, acked, revision, index)
            })
        };
        let state = match status.status {
            _ if !is_enabled(resource) => ReachState::Disabled,
            _ if acked >= revision => ReachState::Acknowledged,
            ZoneHealth::Online => ReachState::Waiting,
            _ if !concerns() => ReachState::Unconcerned,
            ZoneHealth::Unknown => ReachState::Unknown,
            ZoneHealth::Offline => ReachState::Offline,
        };
        let (lag, since, notes) = (status.down.lag, status.since, status.notes);
        ZoneReach { zone: zone.to_owned(), state, acked, lag, since, notes }
    });
    let zones: Vec<ZoneReach> = zones.collect();
    RevisionSync { revision, acknowledged: zones.iter().all(|zone| zone.state.is_over()), zones }
}

/// Whether nothing shows any more what `revision` changed: it was a delete, or what it wrote was written again. Whom it
/// concerned cannot be told then, so it counts as everybody.
fn is_gone(index: &Index, revision: Revision) -> bool {
    !registry::ALL.iter().any(|kind| index.list(kind).any(|resource| resource.revision == revision))
}

/// An answer about what was written at `revision`.
pub(super) fn stamped(mut answer: Response, revision: Revision) -> Response {
    answer.headers_mut().insert(REVISION, HeaderValue::from(revision));
    answer
}

#[cfg(test)]
mod tests;
