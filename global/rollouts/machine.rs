//! What comes next in a run. No clock, no store, no network: a time and facts go in, a step comes out.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use common::{
    model::{
        Revision,
        kinds::{
            rollout::WavePause,
            rollout_insight::{HaltReason, RolloutRun, RolloutState},
        },
    },
    rest::ZoneHealth,
};

/// So long a query may have no answer before the run is halted for that.
const UNHEARD: Duration = Duration::from_secs(300);
/// One without an answer is asked again after this time at the latest.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// How a zone stands.
#[derive(Clone, Debug, Default)]
pub(super) struct ZoneFacts {
    pub(super) zone: Arc<str>,
    /// Whether it is switched on.
    pub(super) is_enabled: bool,
    /// What it gets, it gets with its relay, and that is the last.
    pub(super) is_relayed: bool,
    pub(super) health: ZoneHealth,
    /// It has answered for everything up to this revision.
    pub(super) acked: Revision,
    /// And so have its proxies, where it tells that.
    pub(super) proxies: Option<Revision>,
    /// What it refuses of the types of the run, each by what is the same as long as it is that.
    pub(super) zone_refusals: Vec<HaltReason>,
    /// What its proxies refuse.
    pub(super) proxy_refusals: Vec<HaltReason>,
}

/// What came of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum QueryFinding {
    /// Nothing it should halt for.
    Good,
    /// It should halt for this.
    Bad(String),
    /// There was no answer.
    Unheard(String),
}

/// The newest answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryFacts {
    pub(super) asked: DateTime<Utc>,
    pub(super) finding: QueryFinding,
    /// When it was asked first of all those times in a row to which there was no answer.
    pub(super) unheard: Option<DateTime<Utc>>,
}

impl QueryFacts {
    /// What came of a query that was `asked` then, after `former`.
    pub(super) fn after(former: Option<&Self>, asked: DateTime<Utc>, finding: QueryFinding) -> Self {
        let unheard = match finding {
            QueryFinding::Unheard(_) => {
                let since = former.and_then(|former| former.unheard).filter(|since| *since <= asked);
                Some(since.unwrap_or(asked))
            }
            QueryFinding::Good | QueryFinding::Bad(_) => None,
        };
        Self { asked, finding, unheard }
    }
}

/// What is known when somebody looks.
#[derive(Clone, Debug, Default)]
pub(super) struct RunFacts {
    /// At least all zones of the waves up to the next one.
    pub(super) zones: Vec<ZoneFacts>,
    /// One for each query.
    pub(super) queries: Vec<Option<QueryFacts>>,
    /// Queries that wait for their answer, by number; when they have it, somebody looks.
    pub(super) asking: BTreeSet<usize>,
    /// What of the run cannot be kept back.
    pub(super) lost: Vec<HaltReason>,
}

impl RunFacts {
    /// The newest answer to the n-th query. One from the future was given before the clock was put back: it says nothing
    /// about how it is now.
    fn answer(&self, n: usize, now: DateTime<Utc>) -> Option<&QueryFacts> {
        self.queries.get(n)?.as_ref().filter(|answer| answer.asked <= now)
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunStep {
    Halt(Vec<HaltReason>),
    /// Its wave has the change.
    Converge,
    /// The next wave gets the change.
    Release {
        wave: usize,
        away: BTreeSet<String>,
        standing: Vec<String>,
    },
    Finish,
}

/// What a look came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Outlook {
    pub(super) step: Option<RunStep>,
    /// When time alone may say something else.
    pub(super) wake: Option<DateTime<Utc>>,
}

impl Outlook {
    fn wait(wake: Option<DateTime<Utc>>) -> Self {
        Self { step: None, wake }
    }

    fn make(step: RunStep) -> Self {
        Self { step: Some(step), wake: None }
    }
}

/// The wave of a zone: nobody gets anything earlier than the relay it is below.
fn wave_of(run: &RolloutRun, zone: &ZoneFacts) -> usize {
    match zone.is_relayed {
        true => run.waves.len().saturating_sub(1),
        false => run.wave_of(&zone.zone),
    }
}

/// What comes next in `run`, which was last stored at `stored`.
pub(super) fn step(now: DateTime<Utc>, run: &RolloutRun, stored: Revision, facts: &RunFacts) -> Outlook {
    if !matches!(run.state, RolloutState::Running | RolloutState::Paused) {
        return Outlook::default();
    }
    let reasons = objections(now, run, facts);
    if !reasons.is_empty() {
        return Outlook::make(RunStep::Halt(reasons));
    }
    let Some(wave) = run.waves.get(run.wave) else { return Outlook::default() };
    let Some(converged) = wave.converged else {
        return match converges(run, stored, facts) {
            true => Outlook::make(RunStep::Converge),
            false => Outlook::wait(earliest(deadline(run), queries_due(now, run, facts))),
        };
    };
    let is_last = run.wave + 1 >= run.waves.len();
    let rested = match wave.pause.filter(|_| !wave.advanced && !is_last) {
        None => Some(converged),
        Some(WavePause::For(pause)) => converged.checked_add_signed(length(pause.to_std())),
        Some(WavePause::Manual) => None,
    };
    match rested {
        Some(rested) if now >= rested => {}
        wake => return Outlook::wait(earliest(wake, queries_due(now, run, facts))),
    }
    // What a query said before the wave had the change says nothing about the change.
    let is_good = |n: usize| {
        facts.answer(n, now).is_some_and(|it| it.finding == QueryFinding::Good && it.asked >= converged)
    };
    if !(0..run.halt_on.queries.len()).all(is_good) {
        return Outlook::wait(queries_due(now, run, facts));
    }
    if is_last {
        return Outlook::make(RunStep::Finish);
    }
    let next = run.wave + 1;
    let of_next = || facts.zones.iter().filter(|zone| wave_of(run, zone) == next);
    let away = of_next().filter(|zone| zone.health == ZoneHealth::Offline);
    let standing = of_next().flat_map(|zone| zone.zone_refusals.iter().chain(&zone.proxy_refusals));
    Outlook::make(RunStep::Release {
        wave: next,
        away: away.map(|zone| zone.zone.to_string()).collect(),
        standing: standing.map(|reason| reason.about.clone()).collect(),
    })
}

/// Whether everybody who can be waited for has the newest wave's change.
fn converges(run: &RolloutRun, stored: Revision, facts: &RunFacts) -> bool {
    let needed = run.waves[run.wave].revision.unwrap_or(stored);
    let mut all =
        facts.zones.iter().filter(|zone| zone.is_enabled && wave_of(run, zone) == run.wave).peekable();
    if all.peek().is_none() {
        return true;
    }
    let has_it =
        |zone: &ZoneFacts| zone.acked >= needed && zone.proxies.is_none_or(|proxies| proxies >= needed);
    let mut anybody = false;
    for zone in all {
        if has_it(zone) {
            anybody = true;
        } else if zone.health != ZoneHealth::Offline {
            return false;
        }
    }
    // A wave in which nobody is proves nothing about the next.
    anybody || run.wave + 1 >= run.waves.len()
}

/// Why the run should not go on.
fn objections(now: DateTime<Utc>, run: &RolloutRun, facts: &RunFacts) -> Vec<HaltReason> {
    let mut reasons = Vec::new();
    let halt_on = &run.halt_on;
    for zone in facts.zones.iter().filter(|zone| zone.is_enabled && wave_of(run, zone) <= run.wave) {
        if halt_on.zone_refuses {
            reasons.extend(zone.zone_refusals.iter().cloned());
        }
        if halt_on.proxy_refuses {
            reasons.extend(zone.proxy_refusals.iter().cloned());
        }
        let is_away = run.waves[wave_of(run, zone)].away.contains(&*zone.zone);
        if halt_on.zone_lost && zone.health == ZoneHealth::Offline && !is_away {
            let text = format!("{} is lost", zone.zone);
            reasons.push(HaltReason { about: format!("zone {} is lost", zone.zone), text });
        }
    }
    if deadline(run).is_some_and(|deadline| now >= deadline) {
        let (name, limit) = (run.wave_name(run.wave), halt_on.converge.unwrap_or_default());
        let needed = run.waves[run.wave].revision.unwrap_or_default();
        let late = facts.zones.iter().filter(|zone| {
            let has_it = zone.acked >= needed && zone.proxies.is_none_or(|proxies| proxies >= needed);
            zone.is_enabled && wave_of(run, zone) == run.wave && !has_it
        });
        let late: Vec<&str> = late.take(5).map(|zone| &*zone.zone).collect();
        let text = format!("{name} has not got the change within {limit}: {}", late.join(", "));
        reasons.push(HaltReason { about: late_about(run), text });
    }
    if !run.is_everywhere() {
        reasons.extend(facts.lost.iter().cloned());
    }
    reasons.retain(|reason| !run.excused.contains(&reason.about));
    // What a query says is asked again, so nothing of it is excused.
    for (n, query) in run.halt_on.queries.iter().enumerate() {
        let Some(found) = facts.answer(n, now) else { continue };
        let text = match &found.finding {
            QueryFinding::Bad(why) => format!("query {:?}: {why}", query.promql),
            QueryFinding::Unheard(why)
                if found.unheard.is_some_and(|since| now - since >= length(UNHEARD)) =>
            {
                format!("query {:?} has no answer: {why}", query.promql)
            }
            _ => continue,
        };
        reasons.push(HaltReason { about: String::new(), text });
    }
    reasons
}

fn late_about(run: &RolloutRun) -> String {
    format!("{} is late", run.wave_name(run.wave))
}

/// When the newest wave is too late, if somebody said so and nobody excused it.
fn deadline(run: &RolloutRun) -> Option<DateTime<Utc>> {
    let wave = run.waves.get(run.wave).filter(|wave| wave.converged.is_none())?;
    let limit = run.halt_on.converge.filter(|_| !run.excused.contains(&late_about(run)))?;
    wave.released?.checked_add_signed(length(limit.to_std()))
}

/// When the n-th query of a run is to be asked, after `newest`; never before somebody looked is at once.
pub(super) fn query_due(
    now: DateTime<Utc>,
    run: &RolloutRun,
    n: usize,
    newest: Option<&QueryFacts>,
) -> DateTime<Utc> {
    let newest = newest.filter(|newest| newest.asked <= now);
    let (Some(query), Some(newest)) = (run.halt_on.queries.get(n), newest) else { return now };
    let rest = match newest.finding {
        QueryFinding::Unheard(_) => query.every().min(ASK_AGAIN),
        QueryFinding::Good | QueryFinding::Bad(_) => query.every(),
    };
    let due = newest.asked.checked_add_signed(length(rest)).unwrap_or(newest.asked);
    let converged = run.waves.get(run.wave).and_then(|wave| wave.converged);
    // Earlier once the wave has the change; which may be in the future when the clock was put back.
    converged.filter(|converged| newest.asked < *converged).map_or(due, |converged| converged.min(due))
}

/// When the next query is to be asked that waits for no answer.
fn queries_due(now: DateTime<Utc>, run: &RolloutRun, facts: &RunFacts) -> Option<DateTime<Utc>> {
    let idle = (0..run.halt_on.queries.len()).filter(|n| !facts.asking.contains(n));
    idle.map(|n| query_due(now, run, n, facts.answer(n, now))).min()
}

fn earliest(a: Option<DateTime<Utc>>, b: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    a.into_iter().chain(b).min()
}

fn length(duration: Duration) -> chrono::TimeDelta {
    chrono::TimeDelta::from_std(duration).unwrap_or(chrono::TimeDelta::MAX)
}

#[cfg(test)]
mod tests;
