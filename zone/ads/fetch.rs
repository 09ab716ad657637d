//! `POST /v3/discovery:<type>`: what there is of one type at the moment, as JSON, for who asks now and then instead of
//! holding a stream.
//!
//! Who names the version it has gets 304 while that is current. With `Prefer: wait=<seconds>` the answer waits for a
//! change for so long. What comes with the request is judged as on a stream, and while it waits it has the place of one.

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::Request,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
    routing::post,
};
use common::{
    clip::clip,
    model::text,
    proto::envoy::service::discovery::v3::DiscoveryRequest,
    rest::{BodyError, Intake},
    xds::{Dialect, Sotw, envoy},
};
use prost::Message;
use tokio::task::JoinError;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::{Code, Status};

use super::{
    places::StreamPlace,
    service,
    stream::{EnvoyPeer, Streams, stopping},
};
use crate::generator::{from_json, to_json};

/// How paths end, and which type that is. Others have no form of the state of the world.
const TYPES: [(&str, &str); 8] = [
    ("listeners", envoy::LISTENER),
    ("routes", envoy::ROUTE),
    ("scoped-routes", envoy::SCOPED_ROUTE),
    ("clusters", envoy::CLUSTER),
    ("endpoints", envoy::ENDPOINTS),
    ("secrets", envoy::SECRET),
    ("runtime", envoy::RUNTIME),
    ("extension_configs", envoy::EXTENSION_CONFIG),
];
const REQUEST: &str = "type.googleapis.com/envoy.service.discovery.v3.DiscoveryRequest";
const RESPONSE: &str = "type.googleapis.com/envoy.service.discovery.v3.DiscoveryResponse";
/// Longest that an answer waits for a change.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Bytes of a reason; it may repeat what was sent.
const REASON: usize = 1024;

/// What answers.
struct Fetch {
    streams: Arc<Streams>,
    intake: Intake,
    /// Largest request, in bytes.
    limit: usize,
    /// What is done for clients, whether they are still there or not.
    tasks: TaskTracker,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error("{0}")]
    Body(#[from] BodyError),
    #[error("the request is no DiscoveryRequest: {0}")]
    Request(String),
    #[error("{}", .0.message())]
    Refused(#[from] Status),
    #[error("the answer was not made")]
    Abandoned(#[from] JoinError),
}

/// The routes, for requests of at most `limit` bytes.
pub(super) fn router(streams: &Arc<Streams>, limit: usize, tasks: &TaskTracker) -> Router {
    let (streams, tasks) = (Arc::clone(streams), tasks.clone());
    let fetch = Arc::new(Fetch { streams, intake: Intake::default(), limit, tasks });
    TYPES.into_iter().fold(Router::new(), |router, (rest, type_url)| {
        let fetch = Arc::clone(&fetch);
        let answer = async move |request: Request| Arc::clone(&fetch).answer(type_url, request).await;
        router.route(&format!("/v3/discovery:{rest}"), post(answer))
    })
}

impl Fetch {
    /// A client that leaves takes its request with it, and nothing that was begun: who stored what it brought along has to
    /// see it leave.
    async fn answer(self: Arc<Self>, type_url: &'static str, request: Request) -> Response {
        let left = CancellationToken::new();
        let _leaves_with_this = left.clone().drop_guard();
        let fetch = Arc::clone(&self);
        let work = self.tasks.spawn(async move {
            tokio::select! {
                () = fetch.streams.shutdown.cancelled() => Err(stopping().into()),
                answer = fetch.fetch(type_url, request, &left) => answer,
            }
        });
        match work.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(Some(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
            Ok(None) => StatusCode::NOT_MODIFIED.into_response(),
            Err(error) => {
                let (status, reason) = (error.status(), error.to_string());
                let reason = clip(&reason, REASON);
                tracing::info!(
                    type_url,
                    status = status.as_u16(),
                    reason,
                    "refused to answer an xDS request"
                );
                (status, reason.to_owned()).into_response()
            }
        }
    }

    /// The answer as JSON; `None` when it is the one the client has.
    async fn fetch(
        &self,
        type_url: &'static str,
        request: Request,
        left: &CancellationToken,
    ) -> Result<Option<String>, FetchError> {
        let (peer, _knock) = service::admit(&request)?;
        let wait = wait(request.headers());
        // Before anything is read of who shows nothing.
        self.streams.screen(&peer).await?;
        let mut place = self.streams.place(&peer)?;
        let body = place.hear(self.intake.read(request, self.limit)).await.map_err(Status::from)??;
        let asked = self.intake.work(body, read).await.map_err(FetchError::Request)?;
        if left.is_cancelled() {
            return Err(Status::cancelled("the client left").into());
        }
        let response = self.answer_to(type_url, (&peer, &mut place), asked, (wait, left)).await?;
        let Some(response) = response else { return Ok(None) };
        let written = self.streams.readers.run(response.len(), move || to_json(RESPONSE, &response)).await;
        let written = written.map_err(|error| {
            tracing::error!(type_url, %error, "cannot write a response as JSON");
            Status::internal("the answer has no form in JSON")
        })?;
        Ok(Some(written.to_string()))
    }

    async fn answer_to(
        &self,
        type_url: &'static str,
        of: (&EnvoyPeer, &mut StreamPlace),
        asked: DiscoveryRequest,
        wait: (Duration, &CancellationToken),
    ) -> Result<Option<Vec<u8>>, Status> {
        let parts = self.streams.fetch(type_url, of, asked, "rest", wait).await?;
        Ok(parts.map(|parts| Sotw::message(&parts).encode_to_vec()))
    }
}

/// Reads a request as Envoys write it; members that nobody knows are none of its business.
fn read(body: &[u8]) -> Result<DiscoveryRequest, String> {
    let json = text::json(body, text::TextLimits::BODY).map_err(|error| error.to_string())?;
    let bytes = from_json(REQUEST, json).map_err(|error| error.to_string())?;
    DiscoveryRequest::decode(&bytes[..]).map_err(|error| error.to_string())
}

/// How long the client would wait for a change: RFC 7240.
fn wait(headers: &HeaderMap) -> Duration {
    let texts = headers.get_all("prefer").iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    let mut preferences = texts.flat_map(|text| text.split([',', ';'])).map(str::trim);
    let seconds = preferences.find_map(|preference| preference.strip_prefix("wait=")?.trim().parse().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST_WAIT)
}

impl FetchError {
    fn status(&self) -> StatusCode {
        match self {
            Self::Body(error) => error.status(),
            Self::Request(_) => StatusCode::BAD_REQUEST,
            Self::Abandoned(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Refused(status) => match status.code() {
                Code::Unauthenticated => StatusCode::UNAUTHORIZED,
                Code::PermissionDenied => StatusCode::FORBIDDEN,
                Code::InvalidArgument => StatusCode::BAD_REQUEST,
                Code::FailedPrecondition => StatusCode::CONFLICT,
                Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
                Code::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
                Code::Unimplemented => StatusCode::NOT_IMPLEMENTED,
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
        }
    }
}
