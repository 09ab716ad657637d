//! How far a rollout is.

use std::time::Duration;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::Response,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{TITLE, ZoneReached, require_global};
use crate::{
    config::Interval,
    model::kinds::zone,
    rest::{ApiError, KindApi, User, ZoneStatusSource, body::json_response, read::ResourcePath},
    rollouts::run_of,
    store::{Revision, index::Index},
};

/// Zones that are listed.
const MOST_ZONES: usize = 10_000;
/// Longest time an answer waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(in crate::rest) struct StatusQuery {
    /// How long the answer may wait for something new.
    timeout: Option<String>,
    /// What the asker knows: the `revision` of an answer. Something newer is news.
    after: Option<Revision>,
}

#[derive(Serialize)]
struct ZoneShown<'a> {
    zone: &'a str,
    /// Counted from one.
    wave: usize,
    state: ZoneReached,
    #[serde(skip_serializing_if = "Option::is_none")]
    relay: Option<String>,
}

/// `GET /rollouts/{name}/status?timeout=30s&after=12`: at once, or when the run went on after that revision or a zone
/// came further, and after that time in any case.
pub(in crate::rest) async fn status(
    State(at): State<KindApi>,
    Path(target): Path<ResourcePath>,
    Query(query): Query<StatusQuery>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    require_global(&at)?;
    let api = &at.api;
    let patience = match &query.timeout {
        None => Duration::ZERO,
        Some(text) => {
            Interval::parse(text).map_err(|_| ApiError::unsupported("timeout"))?.0.min(LONGEST_WAIT)
        }
    };
    let source = api.config.zone_status.as_deref();
    let mut index = api.index.clone();
    let first = shown(&index.latest(), source, &target.name)?;
    let (Some(after), false, Some(source)) = (query.after, patience.is_zero(), source) else {
        return Ok(json_response(StatusCode::OK, &first));
    };
    let wait = api.sync_waits.begin(api.trusts(&user))?;
    let deadline = Instant::now() + patience;
    let mut progress = source.progressed();
    loop {
        progress.mark_unchanged();
        let now = shown(&index.latest(), Some(source), &target.name)?;
        if now["revision"].as_u64() > Some(after)
            || now["waves"] != first["waves"]
            || now["zones"] != first["zones"]
        {
            return Ok(json_response(StatusCode::OK, &now));
        }
        let news = async {
            tokio::select! {
                is_there = index.changed() => is_there,
                told = progress.changed() => told.is_ok(),
            }
        };
        if !matches!(timeout_at(deadline, news).await, Ok(true)) {
            return Ok(json_response(StatusCode::OK, &now));
        }
        sleep_until(deadline.min(Instant::now() + wait.pause())).await;
    }
}

fn shown(index: &Index, source: Option<&dyn ZoneStatusSource>, rollout: &str) -> Result<Value, ApiError> {
    let (stored, run) = run_of(index, rollout).ok_or_else(|| {
        let detail =
            format!("rollout {rollout:?} was never begun: `straitctl apply --rollout {rollout}` does");
        ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
    })?;
    let last = run.waves.len().saturating_sub(1);
    let zones = index.list(&zone::KIND).take(MOST_ZONES).map(|zone| {
        let status = source.map(|source| source.zone_progress(zone.name())).unwrap_or_default();
        let wave = if status.relay.is_some() { last } else { run.wave_of(zone.name()) };
        let state = ZoneReached::of(&run, &stored, zone, &status);
        ZoneShown { zone: zone.name(), wave: wave + 1, state, relay: status.relay }
    });
    let zones: Vec<ZoneShown<'_>> = zones.collect();
    let mut shown = json!(run);
    shown["rollout"] = rollout.into();
    shown["zones"] = json!(zones);
    // That of the change is in the run; this one says which run was looked at.
    shown["changeRevision"] = run.revision.unwrap_or(stored.revision).into();
    shown["revision"] = stored.revision.into();
    Ok(shown)
}
