//! The two ways to ask.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Query, Request, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use common::{
    config::Interval,
    model::text,
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    rest::{ApiError, Intake, Mounted, json_document, routes},
    runtime::{Offload, http::Client},
};
use prost::Message;
use serde::{Deserialize, Serialize, Serializer};
use tokio::time::timeout;

use super::{
    Monitoring,
    assignments::{ClientAssignments, ToldAssignments},
    target::{ASSIGNMENT, ClientId, MonitoringAssignment},
};
use crate::generator::from_json;

const REQUEST: &str = "type.googleapis.com/envoy.service.discovery.v3.DiscoveryRequest";
/// Bytes of a request. It names who asks, and what it has.
const LARGEST: usize = 64 << 10;
/// What an assignment is written in, in bytes, about.
const ASSIGNMENT_BYTES: usize = 512;
/// Longest that an answer waits for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(300);
const TITLE: &str = "Could not fetch MonitoringAssignments";

/// What the handlers share.
#[derive(Clone)]
struct MonitoringApi {
    monitoring: Arc<Monitoring>,
    intake: Intake,
    /// Where long answers are made.
    making: Offload,
    /// How long an answer waits where the client does not say it.
    wait: Duration,
}

/// Both routes. An answer waits for `wait` for a change where its client says nothing else.
pub(crate) fn routes(monitoring: &Arc<Monitoring>, wait: Duration) -> Mounted {
    let (intake, making) = (Intake::default(), Offload::default());
    let api = MonitoringApi { monitoring: Arc::clone(monitoring), intake, making, wait };
    Mounted::new().on(const { routes::post("/v3/discovery:monitoringassignments") }, assignments, &api).on(
        const { routes::get("/monitoring/targets") },
        targets,
        &api,
    )
}

impl MonitoringApi {
    /// Makes an answer for `client` about so many assignments. Anybody may ask for all there are, so a long one waits for
    /// its turn, and is made off the threads that serve everybody.
    async fn make(
        &self,
        client: &Client,
        assignments: usize,
        answer: impl FnOnce() -> serde_json::Result<Bytes> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let made = |text: serde_json::Result<Bytes>| {
            let text = text.map_err(|error| ApiError::internal(TITLE, error))?;
            Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(text)).into_response())
        };
        if !Offload::is_worth(assignments.saturating_mul(ASSIGNMENT_BYTES)) {
            return made(answer());
        }
        let turn = client.turn().await?;
        made(self.making.long(answer).await).map(|answer| turn.made(answer))
    }
}

#[derive(Deserialize)]
struct FetchQuery {
    #[serde(rename = "fetch-timeout")]
    timeout: Option<String>,
}

/// `DiscoveryResponse`, with the names that `kuma_sd_configs` knows.
#[derive(Serialize)]
struct AssignmentsAnswer<'a> {
    version_info: String,
    resources: Vec<&'a MonitoringAssignment>,
    type_url: &'static str,
}

async fn assignments(
    State(api): State<MonitoringApi>,
    query: Query<FetchQuery>,
    client: Client,
    request: Request,
) -> Result<Response, ApiError> {
    let wait = match &query.timeout {
        None => api.wait,
        Some(text) => patience(text)?,
    };
    let wrong =
        |reason: String| ApiError::new(StatusCode::BAD_REQUEST, "Could not parse request body", reason);
    let body = api.intake.read(request, LARGEST).await;
    let body = body.map_err(|error| ApiError::new(error.status(), TITLE, error.to_string()))?;
    let asked = api.intake.work(body, read).await.map_err(wrong)?;
    let id = asked.node.map(|node| node.id).unwrap_or_default();
    let told = api.monitoring.differing(&id, &asked.version_info, wait.min(LONGEST_WAIT), &client).await?;
    let Some(told) = told else { return Ok(StatusCode::NOT_MODIFIED.into_response()) };
    api.make(&client, told.len(), move || {
        told.answers.assignments.get(|| {
            let (version_info, resources) = (told.version(), told.iter().collect());
            json_document(&AssignmentsAnswer { version_info, resources, type_url: ASSIGNMENT })
        })
    })
    .await
}

/// How long a client wants to wait, as Go writes it; what is below zero is no time.
fn patience(text: &str) -> Result<Duration, ApiError> {
    if text.starts_with('-') && Interval::parse(&text[1..]).is_ok() {
        return Ok(Duration::ZERO);
    }
    let wrong =
        |reason: String| ApiError::new(StatusCode::BAD_REQUEST, "Could not parse fetch-timeout", reason);
    Interval::parse(text).map(|interval| interval.0).map_err(wrong)
}

fn read(body: &[u8]) -> Result<DiscoveryRequest, String> {
    let json = text::json(body, text::TextLimits::BODY).map_err(|error| error.to_string())?;
    let bytes = from_json(REQUEST, json).map_err(|error| error.to_string())?;
    DiscoveryRequest::decode(&bytes[..]).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct TargetsQuery {
    client: Option<String>,
    mesh: Option<String>,
}

/// One of those `http_sd_configs` reads.
#[derive(Serialize)]
struct TargetGroup<'a> {
    targets: [&'a str; 1],
    labels: std::collections::BTreeMap<String, &'a str>,
}

impl<'a> TargetGroup<'a> {
    /// With the labels that `kuma_sd_configs` gives, so that rules for one fit the other.
    fn all_of(assignment: &'a MonitoringAssignment) -> impl Iterator<Item = Self> {
        assignment.targets.iter().map(|target| {
            let known = [
                ("instance", &*target.name),
                ("__scheme__", target.scheme),
                ("__metrics_path__", &*target.metrics_path),
                ("__meta_kuma_mesh", &*assignment.mesh),
                ("__meta_kuma_service", &*assignment.service),
                ("__meta_kuma_dataplane", &*target.name),
            ];
            let known = known.into_iter().map(|(name, value)| (name.to_owned(), value));
            let tags = target.labels.iter();
            let tags = tags.map(|(name, value)| (format!("__meta_kuma_label_{name}"), &**value));
            Self { targets: [&target.address], labels: known.chain(tags).collect() }
        })
    }
}

async fn targets(
    State(api): State<MonitoringApi>,
    Query(query): Query<TargetsQuery>,
    client: Client,
) -> Result<Response, ApiError> {
    let (told, _) = api.monitoring.told().await.ok_or_else(stopping)?;
    let told = of_client(&told, query.client.as_deref().unwrap_or_default());
    let assignments = told.len();
    // This form has no place for a version, and Prometheus asks in intervals of its own.
    let answer = move || match &query.mesh {
        None => told.answers.targets.get(|| written(told.iter())),
        Some(mesh) => written(told.iter_in(mesh)).map(Bytes::from),
    };
    api.make(&client, assignments, answer).await
}

/// The targets of these, one after the other: together they are many times what is written of them.
fn written<'a>(assignments: impl Iterator<Item = &'a MonitoringAssignment>) -> serde_json::Result<Vec<u8>> {
    let mut text = Vec::new();
    serde_json::Serializer::new(&mut text).collect_seq(assignments.flat_map(TargetGroup::all_of))?;
    Ok(text)
}

/// What somebody who calls himself `id` is told: what is for him alone where a policy names him, else what is for
/// everybody.
fn of_client(told: &ToldAssignments, id: &str) -> ClientAssignments {
    let named: ClientId = Some(id).filter(|id| !id.is_empty()).map(std::sync::Arc::from);
    told.get(&named).or_else(|| told.get(&None)).cloned().unwrap_or_default()
}

fn stopping() -> ApiError {
    ApiError::busy(TITLE, "this control plane is stopping")
}

impl Monitoring {
    /// What a client is told that has `version`, at once where it has none, else as soon as it differs; `None` when
    /// nothing does for as long as it waits where it is, or until others have its place.
    async fn differing(
        &self,
        client: &str,
        version: &str,
        wait: Duration,
        at: &Client,
    ) -> Result<Option<ClientAssignments>, ApiError> {
        let (told, mut changes) = self.told().await.ok_or_else(stopping)?;
        let now = of_client(&told, client);
        if now.version() != version {
            return Ok(Some(now));
        }
        if wait.is_zero() {
            return Ok(None);
        }
        let (place, _parked) = (self.waits.begin(at.network()), at.park());
        let differs = |told: &Option<ToldAssignments>| {
            told.as_ref().is_some_and(|told| of_client(told, client).version() != version)
        };
        tokio::select! {
            changed = timeout(wait, changes.wait_for(differs)) => match changed {
                Ok(Ok(told)) => Ok(told.as_ref().map(|told| of_client(told, client))),
                Ok(Err(_)) => Err(stopping()),
                Err(_) => Ok(None),
            },
            () = place.makes_way() => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests;
