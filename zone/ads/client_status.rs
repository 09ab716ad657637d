//! CSDS (`envoy.service.status.v3`): what each proxy was sent and what came of it, for administrators.
//!
//! ```text
//!  request ──► matcher ──► proxies ──► the streams of those who are meant, each of which reports
//!                                                                      │
//!  answer ◄── shown, without secrets ◄─────────────────────────────────┘
//! ```
//!
//! One answer per request: a stream of these is no watch. Who asks shows a user token, which is judged before anything
//! of the request is read, and again with each request.

mod matcher;
mod shown;

use std::{pin::Pin, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use common::{
    access::{AccessRule, User},
    clip::clip,
    proto::envoy::service::status::v3::{
        ClientStatusRequest, ClientStatusResponse,
        client_status_discovery_service_server::{
            ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
        },
    },
    runtime::{Env, Offload},
    store::index::IndexReader,
    token,
};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use self::{matcher::NodeFilter, shown::ClientReport};
use super::{inquiry::InquiryScope, proxies::Proxies, service};

/// Where it is served.
const PATH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/{method}";
/// Largest request, in bytes.
const REQUEST: usize = 64 << 10;
/// Largest answer, in bytes: contents that were looked through, and names beside them.
const ANSWER: usize = 64 << 20;
/// How long a token may wait for somebody who checks it.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// How long streams may take to say what they told their proxies.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of the reason in the log why a token was refused.
const REASON: usize = 256;

/// Where clients are asked for.
#[derive(Clone)]
pub(super) struct StatusDesk {
    pub(super) proxies: Arc<Proxies>,
    pub(super) index: IndexReader,
    pub(super) env: Env,
    /// Who may ask.
    pub(super) rule: AccessRule,
    /// Threads that check tokens.
    pub(super) judges: Offload,
    /// Threads that make answers.
    pub(super) making: Offload,
    pub(super) shutdown: CancellationToken,
}

/// The calls.
pub(super) fn router(desk: StatusDesk) -> Router {
    let service = ClientStatusDiscoveryServiceServer::new(desk.clone())
        .max_decoding_message_size(REQUEST)
        .max_encoding_message_size(ANSWER);
    let first = middleware::from_fn_with_state(desk, first);
    Router::new().route_service(PATH, service).route_layer(first)
}

/// Refuses who may not ask before anything is read.
async fn first(State(desk): State<StatusDesk>, request: Request, next: Next) -> Response {
    let (peer, knock) = match service::admit(&request) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.into_http::<axum::body::Body>().into_response(),
    };
    if let Err(refused) = desk.admit(peer.token.as_deref()).await {
        return refused.into_http::<axum::body::Body>().into_response();
    }
    let response = next.run(request).await;
    drop(knock);
    response
}

impl StatusDesk {
    /// Whether the bearer of this token may ask.
    async fn admit(&self, token: Option<&str>) -> Result<(), Status> {
        let token = token.map(str::to_owned);
        let token = token.ok_or_else(|| {
            Status::unauthenticated("show a user token in `authorization`: `straitctl generate user-token`")
        })?;
        let (index, now) = (self.index.current(), self.env.now());
        let judging = move || token::validate_user(&index, &token, now).map_err(|error| error.to_string());
        let judged = self.judges.soon(JUDGED_WITHIN, judging).await;
        let busy = || Status::unavailable("too many tokens are being checked at the moment; try again");
        let claims = judged.ok_or_else(busy)?.map_err(|reason| {
            // Escaped, because parts of a token are in it.
            tracing::info!(reason = ?clip(&reason, REASON), "refused a user token");
            Status::unauthenticated("the user token is not accepted here")
        })?;
        // What a node shows says which node it is, and nothing about a person of that name.
        if claims.groups.iter().any(|group| group == token::NODE_GROUP) {
            return Err(Status::unauthenticated("the token of a node is no user token"));
        }
        let user = User::authenticated(claims.name, claims.groups);
        let allowed = self.rule.check(&user, "view the status of proxies");
        allowed.map_err(|denied| Status::permission_denied(denied.to_string()))
    }

    async fn answer(&self, asked: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let filter = NodeFilter::read(&asked.node_matchers)
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let meant = self.proxies.ask(InquiryScope::Resources, |proxy, _| filter.admits(proxy));
        let until = Instant::now() + REPORTED_WITHIN;
        let mut clients = Vec::with_capacity(meant.len());
        for proxy in meant {
            let mut client = ClientReport { proxy: proxy.proxy, config: proxy.config, streams: Vec::new() };
            for stream in proxy.streams.into_iter().filter_map(|(_, stream)| stream) {
                // One that ended meanwhile says nothing.
                client.streams.extend(timeout_at(until, stream).await.ok().and_then(Result::ok));
            }
            clients.push(client);
        }
        let with_contents = !asked.exclude_resource_contents;
        let made = self.making.long(move || shown::response(&clients, with_contents)).await;
        made.map_err(|error| Status::resource_exhausted(error.to_string()))
    }
}

fn token_of<T>(request: &tonic::Request<T>) -> Option<String> {
    let header = request.metadata().get("authorization")?.to_str().ok()?;
    token::bare(header).map(str::to_owned)
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for StatusDesk {
    type StreamClientStatusStream = Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: tonic::Request<Streaming<ClientStatusRequest>>,
    ) -> Result<tonic::Response<Self::StreamClientStatusStream>, Status> {
        let (desk, token) = (self.clone(), token_of(&request));
        let answers = request.into_inner().then(move |asked| {
            let (desk, token) = (desk.clone(), token.clone());
            async move {
                let asked = asked?;
                // It may have been revoked meanwhile.
                desk.admit(token.as_deref()).await?;
                desk.answer(asked).await
            }
        });
        let stopping = self.shutdown.clone().cancelled_owned();
        Ok(tonic::Response::new(Box::pin(answers.take_until(stopping))))
    }

    async fn fetch_client_status(
        &self,
        request: tonic::Request<ClientStatusRequest>,
    ) -> Result<tonic::Response<ClientStatusResponse>, Status> {
        self.answer(request.into_inner()).await.map(tonic::Response::new)
    }
}
