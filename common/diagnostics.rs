//! Health, readiness and metrics, on a port of their own.

mod scrape;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use self::scrape::Scrapes;
use crate::{document::time, rest::routes, runtime::Clock, telemetry::Metrics};

/// What still has to happen before the process is ready, or what keeps it from being so again. Each part
/// takes a [`Pending`] guard while the process is built and drops it when it is up.
#[derive(Clone)]
pub struct Readiness {
    parts: Arc<Mutex<BTreeMap<&'static str, ReadinessProbe>>>,
    clock: Arc<dyn Clock>,
}

/// One part, by its name.
#[derive(Clone, Debug)]
struct ReadinessProbe {
    /// Since when it is as it is.
    since: DateTime<Utc>,
    state: ProbeState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ProbeState {
    Ready,
    /// With the reason where there is one.
    Unready(Option<Arc<str>>),
}

/// Parts that are not ready, each with the reason where there is one.
pub type UnreadyParts = BTreeMap<&'static str, Option<Arc<str>>>;

/// Not ready for as long as this lives.
pub struct Pending {
    readiness: Readiness,
    part: &'static str,
}

impl Readiness {
    /// Ready. Since when parts are as they are is told by `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { parts: Arc::default(), clock }
    }

    /// Names a part that is ready until somebody says otherwise.
    pub fn name(&self, part: &'static str) {
        self.set(part, ProbeState::Ready);
    }

    /// Not ready until the guard is dropped.
    #[must_use = "the part counts as ready once this is dropped"]
    pub fn pending(&self, part: &'static str) -> Pending {
        self.set(part, ProbeState::Unready(None));
        Pending { readiness: self.clone(), part }
    }

    /// Not ready until the guard is dropped, for this reason.
    #[must_use = "the part counts as ready once this is dropped"]
    pub fn failing(&self, part: &'static str, reason: Arc<str>) -> Pending {
        self.set(part, ProbeState::Unready(Some(reason)));
        Pending { readiness: self.clone(), part }
    }

    /// The parts that are not ready, each with the reason where there is one.
    pub fn missing(&self) -> UnreadyParts {
        let unready = |(part, probe): (&&'static str, &ReadinessProbe)| match &probe.state {
            ProbeState::Ready => None,
            ProbeState::Unready(reason) => Some((*part, reason.clone())),
        };
        self.parts().iter().filter_map(unready).collect()
    }

    /// Every part: whether it is ready, since when, and why not.
    fn probes(&self) -> Map<String, Value> {
        let shown = |(part, probe): (&&'static str, &ReadinessProbe)| {
            let mut shown = json!({ "ready": probe.state == ProbeState::Ready, "since": time(probe.since) });
            if let ProbeState::Unready(Some(reason)) = &probe.state {
                shown["reason"] = (**reason).into();
            }
            ((*part).to_owned(), shown)
        };
        self.parts().iter().map(shown).collect()
    }

    /// Another reason is no other state.
    fn set(&self, part: &'static str, state: ProbeState) {
        let now = self.clock.now();
        let mut parts = self.parts();
        let known = parts
            .get(part)
            .filter(|known| (known.state == ProbeState::Ready) == (state == ProbeState::Ready));
        let since = known.map_or(now, |known| known.since);
        parts.insert(part, ReadinessProbe { since, state });
    }

    fn parts(&self) -> MutexGuard<'_, BTreeMap<&'static str, ReadinessProbe>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// The same part with another reason.
    pub fn because(&self, reason: Arc<str>) {
        self.readiness.set(self.part, ProbeState::Unready(Some(reason)));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.set(self.part, ProbeState::Ready);
    }
}

#[derive(Clone)]
struct DiagnosticsState {
    readiness: Readiness,
    scrapes: Arc<Scrapes>,
}

/// `/healthy` (the process runs), `/ready` (it serves; 503 with what is missing otherwise, and each part by name with
/// since when it is as it is) and `/metrics`
/// in Prometheus text form.
pub fn router(readiness: Readiness, metrics: Option<Metrics>) -> Router {
    Router::new()
        .route(const { routes::get("/healthy") }.path(), get(|| async { "OK" }))
        .route(const { routes::get("/ready") }.path(), get(ready))
        .route(const { routes::get("/metrics") }.path(), get(scrape))
        .with_state(DiagnosticsState { readiness, scrapes: Arc::new(Scrapes::of(metrics)) })
}

async fn ready(State(diagnostics): State<DiagnosticsState>) -> impl IntoResponse {
    let missing = diagnostics.readiness.missing();
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let waiting_for: Vec<&str> = missing.keys().copied().collect();
    let reasons: BTreeMap<_, _> =
        missing.iter().filter_map(|(part, why)| Some((part, why.as_ref()?))).collect();
    let probes = diagnostics.readiness.probes();
    let body = json!({
        "ready": missing.is_empty(), "waitingFor": waiting_for, "reasons": reasons, "probes": probes,
    });
    (status, Json(body))
}

async fn scrape(State(diagnostics): State<DiagnosticsState>) -> impl IntoResponse {
    let text = diagnostics.scrapes.text().await;
    ([("content-type", "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::{Arc, Mutex};

    use axum::{body::to_bytes, extract::State, response::IntoResponse};
    use chrono::{DateTime, TimeDelta, Utc};
    use serde_json::{Value, json};

    use super::{DiagnosticsState, Readiness, Scrapes, ready};
    use crate::runtime::{Clock, SystemClock};

    /// A clock that stands until somebody moves it.
    #[derive(Default)]
    struct StandingClock(Mutex<DateTime<Utc>>);

    impl Clock for StandingClock {
        fn now(&self) -> DateTime<Utc> {
            *self.0.lock().unwrap()
        }
    }

    impl StandingClock {
        fn pass(&self, seconds: i64) {
            *self.0.lock().unwrap() += TimeDelta::seconds(seconds);
        }
    }

    async fn told(readiness: &Readiness) -> (u16, Value) {
        let state = DiagnosticsState { readiness: readiness.clone(), scrapes: Arc::new(Scrapes::of(None)) };
        let answer = ready(State(state)).await.into_response();
        let status = answer.status().as_u16();
        let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[test]
    fn ready_once_every_guard_is_dropped() {
        let readiness = Readiness::new(Arc::new(SystemClock));
        let (index, kds) = (readiness.pending("index"), readiness.pending("kds"));
        assert!(readiness.missing().into_keys().eq(["index", "kds"]));
        drop(index);
        assert!(readiness.missing().into_keys().eq(["kds"]));
        drop(kds);
        assert!(readiness.missing().is_empty());
    }

    #[test]
    fn a_part_that_fails_says_why() {
        let readiness = Readiness::new(Arc::new(SystemClock));
        let store = readiness.failing("store", "no room".into());
        store.because("no disk".into());
        assert_eq!(readiness.missing()["store"].as_deref(), Some("no disk"));
        drop(store);
        assert!(readiness.missing().is_empty());
    }

    #[tokio::test]
    async fn each_part_is_told_with_since_when_it_is_as_it_is() {
        let clock = Arc::new(StandingClock::default());
        let readiness = Readiness::new(Arc::clone(&clock) as Arc<dyn Clock>);
        readiness.name("store");
        let start = readiness.pending("start");
        clock.pass(5);
        drop(start);
        clock.pass(5);
        let (status, body) = told(&readiness).await;
        let (first, fifth) = ("1970-01-01T00:00:00Z", "1970-01-01T00:00:05Z");
        let start = json!({ "ready": true, "since": fifth });
        let probes = json!({ "start": &start, "store": { "ready": true, "since": first } });
        let expected = json!({ "ready": true, "waitingFor": [], "reasons": {}, "probes": probes });
        assert_eq!((status, body), (200, expected));

        let store = readiness.failing("store", "no room".into());
        clock.pass(5);
        store.because("no disk".into());
        let (status, body) = told(&readiness).await;
        let store = json!({ "ready": false, "since": "1970-01-01T00:00:10Z", "reason": "no disk" });
        let expected = json!({
            "ready": false, "waitingFor": ["store"], "reasons": { "store": "no disk" },
            "probes": { "start": start, "store": store },
        });
        assert_eq!((status, body), (503, expected));
    }
}
