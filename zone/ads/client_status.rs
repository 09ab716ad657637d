//! CSDS (`envoy.service.status.v3`): what each proxy and each node was sent and what came of it, for administrators.
//!
//! ```text
//!  request ──► matcher ──► proxies ──► the streams of those who are meant, each of which reports
//!                                                                      │
//!  answer ◄── shown, without secrets ◄─────────────────────────────────┘
//! ```
//!
//! They are asked a few at a time, and what they say is kept as far as it goes into the answer: how much an answer
//! takes does not follow how many clients there are.
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
    access::User,
    audit::{AuditEntry, AuditLog},
    clip::clip,
    model::kinds::access_role::RoleVerb,
    proto::envoy::service::status::v3::{
        ClientStatusRequest, ClientStatusResponse,
        client_status_discovery_service_server::{
            ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
        },
    },
    roles::{AskedFor, Rights},
    runtime::{Env, Offload, http::Connection},
    store::index::IndexReader,
    token,
};
use futures::{Stream, StreamExt};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, Streaming};

use self::{
    matcher::NodeFilter,
    shown::{ClientReport, StatusAnswer},
};
use super::{
    inquiry::InquiryScope,
    node::ProxyId,
    proxies::{AskedProxy, Proxies},
    service,
};

/// Where it is served.
const PATH: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/{method}";
/// Largest request, in bytes.
const REQUEST: usize = 64 << 10;
/// Largest answer, in bytes: contents that were looked through, and names beside them.
const ANSWER: usize = 64 << 20;
/// How long a token may wait for somebody who checks it.
const JUDGED_WITHIN: Duration = Duration::from_secs(10);
/// How long streams may take to say what they told their proxies, all together and, once that is used up, a few of
/// them.
const REPORTED_WITHIN: Duration = Duration::from_secs(5);
const A_FEW_WITHIN: Duration = Duration::from_millis(50);
/// So many clients are asked at a time.
const AT_A_TIME: usize = 16;
/// Bytes of the reason in the log why a token was refused.
const REASON: usize = 256;

/// Where clients are asked for.
#[derive(Clone)]
pub(super) struct StatusDesk {
    /// Proxies of meshes, and nodes that are of none.
    pub(super) clients: [Arc<Proxies>; 2],
    pub(super) index: IndexReader,
    pub(super) env: Env,
    /// Who may ask.
    pub(super) rights: Rights,
    /// Where it is taken down who asked.
    pub(super) audit: Arc<AuditLog>,
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

/// Who asks, and for which call; an extension of the request.
#[derive(Clone)]
struct StatusCaller {
    token: Option<String>,
    from: String,
    path: String,
}

/// Refuses who may not ask before anything is read.
async fn first(State(desk): State<StatusDesk>, mut request: Request, next: Next) -> Response {
    let (peer, knock) = match service::admit(&request) {
        Ok(admitted) => admitted,
        Err(refused) => return refused.into_http::<axum::body::Body>().into_response(),
    };
    let from = request.extensions().get::<Connection>();
    let from = from.map(|connection| connection.peer.ip().to_canonical().to_string()).unwrap_or_default();
    let caller = StatusCaller { token: peer.token, from, path: request.uri().path().to_owned() };
    if let Err(refused) = desk.admit(&caller).await {
        return refused.into_http::<axum::body::Body>().into_response();
    }
    request.extensions_mut().insert(caller);
    let response = next.run(request).await;
    drop(knock);
    response
}

/// Why somebody may not ask, and who that is, where it is known.
struct RefusedCaller(Option<User>, Status);

impl StatusDesk {
    /// Who asks, if he may. Who may not is taken down.
    async fn admit(&self, caller: &StatusCaller) -> Result<User, Status> {
        self.judge(caller.token.clone()).await.map_err(|RefusedCaller(user, refused)| {
            self.take_down(caller, user.as_ref(), refused.code());
            refused
        })
    }

    /// Whether the bearer of this token may ask.
    async fn judge(&self, token: Option<String>) -> Result<User, RefusedCaller> {
        let stranger = |refused| RefusedCaller(None, refused);
        let token = token.ok_or_else(|| {
            let reason = "show a user token in `authorization`: `straitctl generate user-token`";
            stranger(Status::unauthenticated(reason))
        })?;
        let (index, now) = (self.index.current(), self.env.now());
        let judging = move || token::validate_user(&index, &token, now).map_err(|error| error.to_string());
        let judged = self.judges.soon(JUDGED_WITHIN, judging).await;
        let busy =
            || stranger(Status::unavailable("too many tokens are being checked at the moment; try again"));
        let claims = judged.ok_or_else(busy)?.map_err(|reason| {
            // Escaped, because parts of a token are in it.
            tracing::info!(reason = ?clip(&reason, REASON), "refused a user token");
            stranger(Status::unauthenticated("the user token is not accepted here"))
        })?;
        // What a node shows says which node it is, and nothing about a person of that name.
        if claims.groups.iter().any(|group| group == token::NODE_GROUP) {
            return Err(stranger(Status::unauthenticated("the token of a node is no user token")));
        }
        let user = User::authenticated(claims.name, claims.groups);
        let everything = AskedFor::everything(self.rights.zone());
        match self.rights.check(&user, RoleVerb::ViewConfigDump, &everything) {
            Ok(()) => Ok(user),
            Err(denied) => Err(RefusedCaller(Some(user), Status::permission_denied(denied.to_string()))),
        }
    }

    /// Takes down that `user` asked, nobody if it is not known who that is, and what came of it.
    fn take_down(&self, caller: &StatusCaller, user: Option<&User>, came: Code) {
        let status = match came {
            Code::Ok => 200,
            Code::InvalidArgument => 400,
            Code::Unauthenticated => 401,
            Code::PermissionDenied => 403,
            _ => 503,
        };
        let nobody = User::anonymous();
        let (from, asked) = (caller.from.clone(), ("POST", caller.path.as_str()));
        let entry = AuditEntry::new(self.env.now(), user.unwrap_or(&nobody), from, asked, status);
        self.audit.record(entry, user.is_some());
    }

    /// Answers one request of `caller`, who is judged with each: his token may have been revoked meanwhile.
    async fn answer_to(
        &self,
        caller: &StatusCaller,
        asked: ClientStatusRequest,
    ) -> Result<ClientStatusResponse, Status> {
        let user = self.admit(caller).await?;
        let answer = self.answer(asked).await;
        self.take_down(caller, Some(&user), answer.as_ref().map_or_else(Status::code, |_| Code::Ok));
        answer
    }

    async fn answer(&self, asked: ClientStatusRequest) -> Result<ClientStatusResponse, Status> {
        let ClientStatusRequest { node_matchers, exclude_resource_contents, .. } = asked;
        let filter = self.making.long(move || NodeFilter::read(&node_matchers)).await;
        let filter = Arc::new(filter.map_err(|error| Status::invalid_argument(error.to_string()))?);
        let mut patience = REPORTED_WITHIN;
        let mut answer = StatusAnswer::new(!exclude_resource_contents);
        for among in &self.clients {
            let (filter, all) = (Arc::clone(&filter), Arc::clone(among));
            let meant = self.making.long(move || all.meant(|proxy| filter.admits(proxy))).await;
            for few in meant.chunks(AT_A_TIME) {
                let reports = reports(among, few, &mut patience).await;
                let made = self.making.long(move || answer.with(&reports)).await;
                answer = made.map_err(|error| Status::resource_exhausted(error.to_string()))?;
            }
        }
        Ok(answer.into_response())
    }
}

/// What the streams of `few` say, as far as they do before `patience` is used up.
async fn reports(among: &Proxies, few: &[ProxyId], patience: &mut Duration) -> Vec<ClientReport> {
    let begun = Instant::now();
    let until = begun + (*patience).max(A_FEW_WITHIN);
    let asked: Vec<_> =
        few.iter().filter_map(|proxy| among.ask_one(InquiryScope::Resources, proxy)).collect();
    let mut clients = Vec::with_capacity(asked.len());
    let mut is_late = false;
    for AskedProxy { proxy, config, streams, .. } in asked {
        let mut client = ClientReport { proxy, config, streams: Vec::new(), is_silent: false };
        for stream in streams.into_iter().filter_map(|(_, stream)| stream) {
            match timeout_at(until, stream).await {
                Ok(Ok(report)) => client.streams.push(report),
                // It ended meanwhile, and with it what it told.
                Ok(Err(_)) => {}
                Err(_) => client.is_silent = true,
            }
        }
        is_late |= client.is_silent;
        clients.push(client);
    }
    if is_late {
        *patience = patience.saturating_sub(begun.elapsed());
    }
    clients
}

fn caller<T>(request: &tonic::Request<T>) -> Result<StatusCaller, Status> {
    let caller = request.extensions().get::<StatusCaller>().cloned();
    caller.ok_or_else(|| Status::internal("nobody has looked who asks"))
}

#[tonic::async_trait]
impl ClientStatusDiscoveryService for StatusDesk {
    type StreamClientStatusStream = Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: tonic::Request<Streaming<ClientStatusRequest>>,
    ) -> Result<tonic::Response<Self::StreamClientStatusStream>, Status> {
        let (desk, caller) = (self.clone(), Arc::new(caller(&request)?));
        let answers = request.into_inner().then(move |asked| {
            let (desk, caller) = (desk.clone(), Arc::clone(&caller));
            async move { desk.answer_to(&caller, asked?).await }
        });
        let stopping = self.shutdown.clone().cancelled_owned();
        Ok(tonic::Response::new(Box::pin(answers.take_until(stopping))))
    }

    async fn fetch_client_status(
        &self,
        request: tonic::Request<ClientStatusRequest>,
    ) -> Result<tonic::Response<ClientStatusResponse>, Status> {
        let caller = caller(&request)?;
        self.answer_to(&caller, request.into_inner()).await.map(tonic::Response::new)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use common::proto::envoy::service::status::v3::ConfigStatus;

    use super::*;
    use crate::{
        ads::{config::ProxyConfig, node::Proxy, proxies::StreamView},
        generator::{Encoded, ResourceCollection, ResourceSet, SharedResources, type_url},
    };

    #[tokio::test(start_paused = true)]
    async fn what_a_silent_stream_told_is_not_known_and_patience_has_an_end() {
        let proxies = Arc::new(Proxies::default());
        let id = ProxyId::of_no_mesh("edge".into());
        let (cluster, metadata) = (Arc::default(), Arc::default());
        let proxy = Arc::new(Proxy { id: id.clone(), cluster, metadata, user_agent: String::new() });
        let session = proxies.join(proxy, None, StreamView::default(), Arc::default());
        let mut own = ResourceCollection::default();
        let message = common::proto::envoy::config::cluster::v3::Cluster::default();
        own.insert(Arc::new(Encoded::new("a", type_url::CLUSTER, "test", &message)));
        let set = ResourceSet::new(&own, &SharedResources::default(), None);
        proxies.publish(&id, Some(Arc::new(ProxyConfig::new(1, set))), Arc::default(), None);
        let shown = async |patience: &mut Duration| {
            let reports = reports(&proxies, std::slice::from_ref(&id), patience).await;
            let answer = StatusAnswer::new(true).with(&reports).unwrap().into_response();
            answer.config[0].generic_xds_configs[0].config_status()
        };
        let mut patience = REPORTED_WITHIN;
        assert_eq!(shown(&mut patience).await, ConfigStatus::NotSent, "it has no stream that could tell");
        session.seat.inquiries.open();
        assert_eq!((shown(&mut patience).await, patience), (ConfigStatus::Unknown, Duration::ZERO));
        let begun = Instant::now();
        assert_eq!(shown(&mut patience).await, ConfigStatus::Unknown);
        assert_eq!(begun.elapsed(), A_FEW_WITHIN);
    }
}
