//! How far a rollout is.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

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
    model::{
        Resource, ResourceKey,
        kinds::{
            rollout_insight::{self, RolloutRun},
            zone,
        },
    },
    registry,
    rest::{
        ApiError, KindApi, User,
        body::json_response,
        read::{ResourcePath, weight},
    },
    rollouts::run_of,
    runtime::http::Client,
    store::{Revision, index::Index},
};

/// Zones that are listed.
const MOST_ZONES: usize = 10_000;
/// Bytes that the state of each counts for.
const EACH_ZONE: usize = 256;
/// Longest time an answer waits.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
pub(in crate::rest) struct StatusQuery {
    /// How long the answer may wait for something new.
    timeout: Option<String>,
    /// What the asker knows: the `revision` of an answer. Something newer is news.
    after: Option<Revision>,
}

#[derive(Hash, Serialize)]
struct ZoneShown {
    zone: Arc<str>,
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
    client: Client,
) -> Result<Response, ApiError> {
    require_global(&at)?;
    let api = &at.api;
    let patience = match &query.timeout {
        None => Duration::ZERO,
        Some(text) => {
            Interval::parse(text).map_err(|_| ApiError::unsupported("timeout"))?.0.min(LONGEST_WAIT)
        }
    };
    let asked = Arc::new(StatusAsked { at: at.clone(), user, rollout: target.name });
    let mut index = api.index.clone();
    let first = asked.look(index.latest()).await?;
    let source = api.config.zone_status.as_deref();
    let (Some(after), false, Some(source)) = (query.after, patience.is_zero(), source) else {
        return asked.answer(&client, first).await;
    };
    let wait = api.sync_waits.begin(&asked.user, api.trusts(&asked.user))?;
    let deadline = Instant::now() + patience;
    let mut progress = source.progressed();
    // Those who wait hold nothing of what they saw.
    let seen = first.reached();
    drop(first);
    let mut is_last = false;
    loop {
        progress.mark_unchanged();
        let now = asked.look(index.latest()).await?;
        if now.stored.revision > after || now.reached() != seen || is_last {
            return asked.answer(&client, now).await;
        }
        drop(now);
        let news = async {
            tokio::select! {
                is_there = index.changed() => is_there,
                told = progress.changed() => told.is_ok(),
            }
        };
        is_last = !matches!(timeout_at(deadline, news).await, Ok(true));
        if !is_last {
            sleep_until(deadline.min(Instant::now() + wait.pause())).await;
        }
    }
}

/// Who asks about which rollout.
struct StatusAsked {
    at: KindApi,
    user: User,
    rollout: String,
}

/// What there is to be told.
struct StatusSeen {
    stored: Arc<Resource>,
    run: RolloutRun,
    zones: Vec<ZoneShown>,
}

impl StatusSeen {
    /// How far the zones are, in short.
    fn reached(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.zones.hash(&mut hasher);
        hasher.finish()
    }
}

impl StatusAsked {
    /// Looks at the zones, off the threads that serve everybody when they are many.
    async fn look(self: &Arc<Self>, index: Arc<Index>) -> Result<StatusSeen, ApiError> {
        let (asked, bytes) = (Arc::clone(self), index.count(&zone::KIND).saturating_mul(EACH_ZONE));
        self.at.api.making.run(bytes, move || asked.seen(&index)).await
    }

    fn seen(&self, index: &Index) -> Result<StatusSeen, ApiError> {
        let rollout = &self.rollout;
        let (stored, run) = run_of(index, rollout).ok_or_else(|| {
            let detail =
                format!("rollout {rollout:?} was never begun: `straitctl apply --rollout {rollout}` does");
            ApiError::new(StatusCode::NOT_FOUND, TITLE, detail)
        })?;
        let api = &self.at.api;
        let (source, readable) = (api.config.zone_status.as_deref(), api.rights.readable(&self.user));
        let last = run.waves.len().saturating_sub(1);
        let zones =
            index.list(&zone::KIND).filter(|zone| readable.shows(zone)).take(MOST_ZONES).map(|zone| {
                let status = source.map(|source| source.zone_progress(zone.name())).unwrap_or_default();
                let wave = if status.relay.is_some() { last } else { run.wave_of(zone.name()) };
                let state = ZoneReached::of(&run, &stored, zone, &status);
                ZoneShown { zone: Arc::clone(&zone.key.name), wave: wave + 1, state, relay: status.relay }
            });
        let zones = zones.collect();
        Ok(StatusSeen { stored, run, zones })
    }

    async fn answer(self: &Arc<Self>, client: &Client, seen: StatusSeen) -> Result<Response, ApiError> {
        let bytes = weight(&seen.stored) + seen.zones.len().saturating_mul(EACH_ZONE);
        let asked = Arc::clone(self);
        let answer = move || Ok(json_response(StatusCode::OK, &asked.shown(seen)));
        self.at.api.make(client, bytes, answer).await
    }

    /// As the user may see it: without zones and resources that he may not read, and without what names them in passing
    /// unless he may read the run itself.
    fn shown(&self, seen: StatusSeen) -> Value {
        let StatusSeen { stored, mut run, zones } = seen;
        let api = &self.at.api;
        let readable = api.rights.readable(&self.user);
        let shows_zone = |zone: &String| readable.shows_key(&ResourceKey::global(&zone::KIND, zone));
        for wave in &mut run.waves {
            wave.zones.retain(shows_zone);
            wave.away.retain(shows_zone);
        }
        run.changes.retain(|change| {
            let kind = registry::by_name(&change.kind);
            kind.is_some_and(|kind| readable.shows_key(&ResourceKey::new(kind, &change.mesh, &change.name)))
        });
        let change_revision = run.revision.unwrap_or(stored.revision);
        let mut shown = json!(run);
        if !readable.shows(&stored)
            && let Some(members) = shown.as_object_mut()
        {
            for member in ["reasons", "excused", "log", "haltOn", "by"] {
                members.remove(member);
            }
        }
        shown["rollout"] = self.rollout.as_str().into();
        shown["zones"] = json!(zones);
        // That of the change is in the run; this one says which run was looked at.
        shown["changeRevision"] = change_revision.into();
        shown["revision"] = stored.revision.into();
        api.sight(&self.user).on(&rollout_insight::KIND).of(shown)
    }
}
