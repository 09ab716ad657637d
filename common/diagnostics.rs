//! Health, readiness and metrics, on a port of their own.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{Json, Router, extract::State, http::StatusCode, response::IntoResponse, routing::get};
use serde_json::json;

use crate::telemetry::Metrics;

/// What still has to happen before the process is ready. Each part takes a [`Pending`] guard while the
/// process is built and drops it when it is up.
#[derive(Clone, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(part);
        Pending { readiness: self.clone(), part }
    }

    /// The parts that are not ready yet.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.readiness.0.lock().unwrap_or_else(PoisonError::into_inner).remove(self.part);
    }
}

#[derive(Clone)]
struct Diagnostics {
    readiness: Readiness,
    metrics: Option<Metrics>,
}

/// `/healthy` (the process runs), `/ready` (it serves; 503 with what is missing otherwise) and `/metrics`
/// in Prometheus text form.
pub fn router(readiness: Readiness, metrics: Option<Metrics>) -> Router {
    Router::new()
        .route("/healthy", get(|| async { "OK" }))
        .route("/ready", get(ready))
        .route("/metrics", get(scrape))
        .with_state(Diagnostics { readiness, metrics })
}

async fn ready(State(diagnostics): State<Diagnostics>) -> impl IntoResponse {
    let missing = diagnostics.readiness.missing();
    let status = if missing.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(json!({ "ready": missing.is_empty(), "waitingFor": missing })))
}

async fn scrape(State(diagnostics): State<Diagnostics>) -> impl IntoResponse {
    let text = diagnostics.metrics.map(|m| m.render()).unwrap_or_default();
    ([("content-type", "text/plain; version=0.0.4")], text)
}

#[cfg(test)]
mod tests {
    use super::Readiness;

    #[test]
    fn ready_once_every_guard_is_dropped() {
        let readiness = Readiness::new();
        let (index, kds) = (readiness.pending("index"), readiness.pending("kds"));
        assert_eq!(readiness.missing(), ["index", "kds"]);
        drop(index);
        assert_eq!(readiness.missing(), ["kds"]);
        drop(kds);
        assert!(readiness.missing().is_empty());
    }
}
