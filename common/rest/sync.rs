//! How far writes have come: which zone has acknowledged which revision.
//!
//! A zone tells with each answer how far it is, so a revision is looked up by comparing numbers; nothing is kept for
//! single writes.

mod item;
mod prefer;
mod waiting;

use std::{cell::LazyCell, collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::{HeaderName, StatusCode},
    response::Response,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout_at},
};

use super::{
    Api, ApiError, ProxyProgressSource, User, ZoneHealth, ZoneStatus, ZoneStatusSource, body::json_response,
    read::weight_of_all,
};
use crate::{
    config::Interval,
    kds::{outgoing::is_enabled, proxies::ProxyProgress},
    model::kinds::{rollout_insight::RolloutRun, zone},
    rollouts::{ActiveRun, Runs},
    runtime::http::Client,
    store::{Revision, index::Index},
};

pub(super) use self::{item::item, prefer::Preference, waiting::SyncWaits};

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
    /// Of every zone concerned, and of its proxies where they were asked about.
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
    /// How far its proxies are, where they were asked about and it tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    proxies: Option<ProxyProgress>,
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
    /// It has answered, and some of its proxies have not.
    Proxies,
    /// It has answered, and does not tell how far its proxies are.
    Untold,
    /// It may be away and has not answered.
    Unknown,
    /// It is away and will get it when it is back.
    Offline,
    /// A rollout keeps it waiting for the revision, with what was before; which one stands in the notes.
    Kept,
    /// It is away, and nothing of the revision is meant for it.
    Unconcerned,
    /// It is switched off.
    Disabled,
}

impl ReachState {
    fn is_over(self) -> bool {
        matches!(self, Self::Acknowledged | Self::Kept | Self::Unconcerned | Self::Disabled)
    }
}

#[derive(Deserialize)]
pub(super) struct RevisionQuery {
    /// How long the answer may wait for those who are asked about, at most a minute.
    timeout: Option<String>,
    /// Who is asked about: `zones`, unless it says `proxies`.
    of: Option<String>,
}

/// Who is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedAbout {
    Zones,
    /// Zones, and the proxies in them.
    Proxies,
}

impl RevisionQuery {
    fn asked(&self) -> Result<AskedAbout, ApiError> {
        match self.of.as_deref() {
            None | Some("zones") => Ok(AskedAbout::Zones),
            Some("proxies") => Ok(AskedAbout::Proxies),
            Some(_) => Err(ApiError::unsupported("of")),
        }
    }

    fn patience(&self) -> Result<Duration, ApiError> {
        let Some(text) = &self.timeout else { return Ok(Duration::ZERO) };
        let patience = Interval::parse(text).map_err(|_| ApiError::unsupported("timeout"))?;
        Ok(patience.0.min(LONGEST_WAIT))
    }
}

/// `GET /sync`.
pub(super) async fn overview(State(api): State<Arc<Api>>, client: Client) -> Result<Response, ApiError> {
    source(&api)?;
    let index = api.index.current();
    // For each zone that is away, what it has missed is counted.
    let (asked, bytes) = (Arc::clone(&api), weight_of_all(index.iter()));
    let answer = move || {
        let source = source(&asked)?;
        let zones = index.list(&zone::KIND).filter_map(|zone| {
            let status = source.zone_status(zone.name(), &index)?;
            Some(ZoneSync { zone: zone.name().to_owned(), status })
        });
        let zones = zones.collect();
        Ok(json_response(StatusCode::OK, &SyncOverview { revision: index.revision, zones }))
    };
    api.make(&client, bytes, answer).await
}

/// `GET /sync/revisions/{revision}?timeout=30s&of=proxies`: answers when everybody concerned has acknowledged, else
/// after that time.
pub(super) async fn revision(
    State(api): State<Arc<Api>>,
    Extension(user): Extension<User>,
    Path(revision): Path<String>,
    Query(query): Query<RevisionQuery>,
    client: Client,
) -> Result<Response, ApiError> {
    let followed = Followed::of(&api)?;
    let revision = revision.parse::<Revision>().map_err(|_| {
        ApiError::bad_request(
            "the revision in the path is not a number; a write names its own in the header Strait-Revision",
        )
    })?;
    let (asked, patience) = (query.asked()?, query.patience()?);
    let wait = match patience {
        Duration::ZERO => None,
        _ => Some(api.sync_waits.begin(&user, api.trusts(&user))?),
    };
    let deadline = Instant::now() + patience;
    if timeout_at(deadline, api.index.wait_for(revision)).await.is_err()
        && api.index.current().revision < revision
    {
        let newest = api.index.current().revision;
        let detail = format!("there is no revision {revision} here yet, the newest is {newest}");
        return Err(ApiError::new(StatusCode::NOT_FOUND, "Could not look up a revision", detail));
    }
    let Some(wait) = wait else {
        // Nobody counts those who do not wait, so they take turns.
        let (asked_of, bytes) = (Arc::clone(&api), weight_of_zones(&api));
        let answer = move || {
            let zones = Followed::of(&asked_of)?.reach(&asked_of, revision, asked, &mut MissedBefore::new());
            Ok(RevisionSync::of(revision, zones).answer())
        };
        return api.make(&client, bytes, answer).await;
    };
    let mut progress = followed.progressed();
    let mut missed = MissedBefore::new();
    let mut is_last = false;
    loop {
        progress.mark_unchanged();
        let (asked_of, known) = (Arc::clone(&api), std::mem::take(&mut missed));
        let look = move || {
            let mut known = known;
            let zones = Followed::of(&asked_of)?.reach(&asked_of, revision, asked, &mut known);
            Ok::<_, ApiError>((zones, known))
        };
        let (zones, known) = api.making.run(weight_of_zones(&api), look).await?;
        missed = known;
        let found = RevisionSync::of(revision, zones);
        if found.acknowledged || is_last {
            return api.make(&client, weight_of_zones(&api), move || Ok(found.answer())).await;
        }
        // Those who wait hold nothing, so what is told at the end is looked at then.
        drop(found);
        is_last = !matches!(timeout_at(deadline, progress.changed()).await, Ok(Ok(())));
        if !is_last {
            // What many zones say at once is looked at together.
            sleep_until(deadline.min(Instant::now() + wait.pause())).await;
        }
    }
}

/// What was found about zones that are away, by zone and how far it is.
type MissedBefore = BTreeMap<(String, Revision), bool>;

/// Bytes that a look at all zones is made from.
fn weight_of_zones(api: &Api) -> usize {
    weight_of_all(api.index.current().list(&zone::KIND))
}

impl RevisionSync {
    fn of(revision: Revision, zones: Vec<ZoneReach>) -> Self {
        Self { revision, acknowledged: zones.iter().all(|zone| zone.state.is_over()), zones }
    }

    fn answer(&self) -> Response {
        json_response(StatusCode::OK, self)
    }
}

/// Who is followed from here: all zones, or the proxies of this one.
enum Followed<'a> {
    Zones(&'a dyn ZoneStatusSource),
    Proxies(&'a dyn ProxyProgressSource),
}

impl<'a> Followed<'a> {
    fn of(api: &'a Api) -> Result<Self, ApiError> {
        match &api.config.proxies {
            Some(proxies) => Ok(Self::Proxies(&**proxies)),
            None => Ok(Self::Zones(source(api)?)),
        }
    }

    fn progressed(&self) -> watch::Receiver<()> {
        match self {
            Self::Zones(zones) => zones.progressed(),
            Self::Proxies(proxies) => proxies.progressed(),
        }
    }

    /// How they stand with `revision`. `missed` remembers what was found before.
    fn reach(
        &self,
        api: &Api,
        revision: Revision,
        asked: AskedAbout,
        missed: &mut MissedBefore,
    ) -> Vec<ZoneReach> {
        let index = api.index.current();
        match self {
            Self::Zones(zones) => reach(*zones, &index, &api.rollouts.runs(&index), revision, asked, missed),
            Self::Proxies(proxies) => {
                let zone = api.config.mode.zone().unwrap_or_default().to_owned();
                let proxies = (asked == AskedAbout::Proxies).then(|| proxies.proxy_progress());
                let is_delivered = proxies.as_ref().is_none_or(|told| told.acked >= revision);
                let state = match &proxies {
                    Some(_) if api.config.shares_proxies => ReachState::Untold,
                    _ if is_delivered => ReachState::Acknowledged,
                    _ => ReachState::Proxies,
                };
                let (acked, since, notes) = (index.revision, None, Vec::new());
                vec![ZoneReach { zone, state, acked, lag: 0, since, proxies, notes }]
            }
        }
    }
}

fn source(api: &Api) -> Result<&dyn ZoneStatusSource, ApiError> {
    api.config.zone_status.as_deref().ok_or_else(|| {
        let detail = "this control plane has no zones: ask global";
        ApiError::new(StatusCode::NOT_FOUND, "Could not look up zones", detail)
    })
}

/// How all zones stand with `revision`.
fn reach(
    source: &dyn ZoneStatusSource,
    index: &Index,
    runs: &Runs,
    revision: Revision,
    asked: AskedAbout,
    missed: &mut MissedBefore,
) -> Vec<ZoneReach> {
    // Whether nothing shows any more what was changed: it was a delete, or what it wrote was written again. Whom it
    // concerned cannot be told then, so it counts as everybody.
    let is_gone = LazyCell::new(|| !source.shows(revision, index));
    let rollout = RolloutReach::of(runs, revision);
    let zones = index.list(&zone::KIND).map(|resource| {
        let zone = resource.name();
        let mut status = source.zone_progress(zone);
        let kept = rollout.as_ref().and_then(|rollout| rollout.kept(zone, &status));
        // By a rollout a zone gets with a later revision what was written with this one.
        let revision = rollout.as_ref().map_or(revision, |rollout| rollout.needed(zone, &status));
        let acked = status.down.acked;
        let mut concerns = || {
            *missed
                .entry((zone.to_owned(), acked))
                .or_insert_with(|| *is_gone || source.has_missed(zone, acked, revision, index))
        };
        let told = status.proxies.as_ref().filter(|_| asked == AskedAbout::Proxies);
        let is_delivered = asked == AskedAbout::Zones || told.is_some_and(|told| told.acked >= revision);
        let state = match status.status {
            _ if !is_enabled(resource) => ReachState::Disabled,
            _ if kept.is_some() => ReachState::Kept,
            _ if acked >= revision && is_delivered => ReachState::Acknowledged,
            ZoneHealth::Online if acked < revision => ReachState::Waiting,
            ZoneHealth::Online => told.map_or(ReachState::Untold, |_| ReachState::Proxies),
            _ if acked < revision && !concerns() => ReachState::Unconcerned,
            ZoneHealth::Unknown => ReachState::Unknown,
            ZoneHealth::Offline => ReachState::Offline,
        };
        status.notes.extend(kept);
        let (lag, since, notes) = (status.down.lag, status.since, status.notes);
        let proxies = status.proxies.filter(|_| asked == AskedAbout::Proxies);
        ZoneReach { zone: zone.to_owned(), state, acked, lag, since, proxies, notes }
    });
    zones.collect()
}

/// A rollout that began with a revision.
struct RolloutReach {
    /// While it is on its way.
    active: Option<Arc<ActiveRun>>,
    /// The revision at which each wave was given the change; none yet for those that wait.
    waves: Vec<Option<Revision>>,
    run: Arc<RolloutRun>,
}

impl RolloutReach {
    fn of(runs: &Runs, revision: Revision) -> Option<Self> {
        let (stored, active) = runs.of_revision(revision)?;
        let run = match &active {
            Some(active) => Arc::clone(&active.run),
            None => Arc::new(stored.spec::<RolloutRun>().ok()?),
        };
        let waves = run.waves.iter().map(|wave| wave.released.and(wave.revision.or(Some(stored.revision))));
        Some(Self { active, waves: waves.collect(), run })
    }

    fn kept(&self, zone: &str, status: &ZoneStatus) -> Option<String> {
        self.active.as_ref()?.reason(zone, status.relay.as_deref())
    }

    fn needed(&self, zone: &str, status: &ZoneStatus) -> Revision {
        let last = self.waves.len().saturating_sub(1);
        let wave = if status.relay.is_some() { last } else { self.run.wave_of(zone) };
        self.waves.get(wave).copied().flatten().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
