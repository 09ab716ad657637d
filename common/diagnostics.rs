//! Health, readiness and metrics, on a port of their own.

mod scrape;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use serde_json::json;

use self::scrape::Scrapes;
use crate::telemetry::Metrics;

/// What still has to happen before the process is ready, or what keeps it from being so again. Each part
/// takes a [`Pending`] guard while the process is built and drops it when it is up.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<UnreadyParts>>);

/// Parts that are not ready, each with the reason where there is one.
pub type UnreadyParts = BTreeMap<&'static str, Option<Arc<str>>>;

/// Not ready for as long as this lives.
pub struct Pending {
    readiness: Readiness,
    part: &'static str,
}

impl Readiness {
    /// Ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Not ready until the guard is dropped.
    #[must_use = "the part counts as ready once this is dropped"]
    pub fn pending(&self, part: &'static str) -> Pending {
        self.parts().insert(part, None);
        Pending { readiness: self.clone(), part }
    }

    /// Not ready until the guard is dropped, for this reason.
    #[must_use = "the part counts as ready once this is dropped"]
    pub fn failing(&self, part: &'static str, reason: Arc<str>) -> Pending {
        self.parts().insert(part, Some(reason));
        Pending { readiness: self.clone(), part }
    }

    /// The parts that are not ready, each with the reason where there is one.
    pub fn missing(&self) -> UnreadyParts {
        self.parts().clone()
    }

    fn parts(&self) -> MutexGuard<'_, UnreadyParts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pending {
    /// The same part with another reason.
    pub fn because(&self, reason: Arc<str>) {
        self.readiness.parts().insert(self.part, Some(reason));
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.parts().remove(self.part);
    }
}

#[derive(Clone)]
struct DiagnosticsState {
    readiness: Readiness,
    scrapes: Arc<Scrapes>,
}

/// `/healthy` (the process runs), `/ready` (it serves; 503 with what is missing otherwise) and `/metrics`
/// in Prometheus text form.
pub fn router(readiness: Readiness, metrics: Option<Metrics>) -> Router {
    Router::new()
        .route("/healthy", get(|| async { "OK" }))
        .route("/ready", get(ready))
        .route("/metrics", get(scrape))
        .with_state(DiagnosticsState { readiness, scrapes: Arc::new(Scrapes::of(metrics)) })
}

async fn ready(State(diagnostics): State<DiagnosticsState>) -> impl IntoResponse {
    let missing = diagnostics.readiness.missing();
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let waiting_for: Vec<&str> = missing.keys().copied().collect();
    let reasons: BTreeMap<_, _> =
        missing.iter().filter_map(|(part, why)| Some((part, why.as_ref()?))).collect();
    (status, Json(json!({ "ready": missing.is_empty(), "waitingFor": waiting_for, "reasons": reasons })))
}

async fn scrape(State(diagnostics): State<DiagnosticsState>) -> impl IntoResponse {
    let text = diagnostics.scrapes.text().await;
    ([("content-type", "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn ready_once_every_guard_is_dropped() {
        let readiness = Readiness::new();
        let (index, kds) = (readiness.pending("index"), readiness.pending("kds"));
        assert!(readiness.missing().into_keys().eq(["index", "kds"]));
        drop(index);
        assert!(readiness.missing().into_keys().eq(["kds"]));
        drop(kds);
        assert!(readiness.missing().is_empty());
    }

    #[test]
    fn a_part_that_fails_says_why() {
        let readiness = Readiness::new();
        let store = readiness.failing("store", "no room".into());
        store.because("no disk".into());
        assert_eq!(readiness.missing()["store"].as_deref(), Some("no disk"));
        drop(store);
        assert!(readiness.missing().is_empty());
    }
}
