//! The API for the pages of this process: the same routes behind the same guards, asked without a socket in between.
//! So a page shows what its reader may read, and writes what he may write, because nobody but the guard decides it.

use std::sync::Arc;

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, Method, StatusCode, header, request::Parts},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use tower::ServiceExt;

use super::{Api, ApiError, BodyError, Mounted, REVISION, ReceivedBody, User, audit::AuditedRequest, auth};
use crate::{
    mode::Mode,
    oidc::OpenIdProvider,
    roles::Readable,
    runtime::http::{Client, Connection, Crowded, FairTurn, SharedTurn},
    store::{
        Revision,
        index::{Index, IndexReader},
    },
};

/// Longest answer a page is made of.
const LONGEST: usize = 64 << 20;

/// Where pages ask. Cheap to clone.
#[derive(Clone)]
pub struct Desk {
    api: Arc<Api>,
    router: Router,
}

/// Who asks, and over which connection.
#[derive(Clone)]
pub struct Asker {
    /// Who.
    pub user: User,
    client: Client,
    connection: Option<Connection>,
}

impl Asker {
    /// The sender of a request; nobody where it did not come through the API.
    pub fn of(parts: &Parts) -> Self {
        let extensions = &parts.extensions;
        Self {
            user: extensions.get::<User>().cloned().unwrap_or_else(User::anonymous),
            client: extensions.get::<Client>().cloned().unwrap_or_default(),
            connection: extensions.get::<Connection>().copied(),
        }
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.connection.is_some_and(|connection| connection.tls)
    }
}

/// What the API answered.
pub struct DeskAnswer {
    /// With which status.
    pub status: StatusCode,
    /// The revision of a write.
    pub revision: Option<Revision>,
    body: Bytes,
}

impl DeskAnswer {
    /// As JSON; null when it is none.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Its length in bytes.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// As text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// What stands in an error, with the fields it is about.
    pub fn reason(&self) -> String {
        let error = self.json();
        let detail = error["detail"].as_str().map_or_else(|| self.text(), str::to_owned);
        let fields = error["invalid_parameters"].as_array().into_iter().flatten();
        let fields =
            fields.filter_map(|one| Some(format!("{}: {}", one["field"].as_str()?, one["reason"].as_str()?)));
        let fields: Vec<String> = fields.collect();
        if fields.is_empty() { detail } else { format!("{detail}: {}", fields.join("; ")) }
    }
}

impl Desk {
    /// Over everything that is mounted.
    pub(super) fn new(api: &Arc<Api>, mounted: Mounted) -> Self {
        let router =
            mounted.guarded(&api.rights).layer(middleware::from_fn_with_state(Arc::clone(api), take_down));
        Self { api: Arc::clone(api), router }
    }

    /// Asks for `asker`, with a `body` of JSON.
    pub async fn ask(&self, asker: &Asker, method: Method, path: &str, body: Option<String>) -> DeskAnswer {
        let request = Request::builder().method(method).uri(path).header(header::HOST, "localhost");
        let request = match body {
            Some(body) => request.header(header::CONTENT_TYPE, "application/json").body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        let Ok(mut request) = request else {
            let error = ApiError::bad_request("this is no path").into_response();
            return DeskAnswer::of(error).await;
        };
        let extensions = request.extensions_mut();
        extensions.insert(asker.user.clone());
        extensions.insert(asker.client.clone());
        if let Some(connection) = asker.connection {
            extensions.insert(connection);
        }
        let answer = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        DeskAnswer::of(answer).await
    }

    /// Reads with `GET`.
    pub async fn get(&self, asker: &Asker, path: &str) -> DeskAnswer {
        self.ask(asker, Method::GET, path, None).await
    }

    /// What `part` makes of an answer as JSON, null when it is none. A long one is read off the threads that serve
    /// everybody, and what was read of it stays there.
    pub async fn read<T: Send + 'static>(
        &self,
        answer: DeskAnswer,
        part: impl FnOnce(Value) -> T + Send + 'static,
    ) -> T {
        self.work(answer.body.len(), move || part(answer.json())).await
    }

    /// Does `work` on `bytes` of text, off the threads that serve everybody when they are many.
    pub async fn work<T: Send + 'static>(
        &self,
        bytes: usize,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.api.making.run(bytes, work).await
    }

    /// Waits for leave to make a page of what an Envoy says, which may be long: the page takes several times of it until
    /// it is made.
    ///
    /// # Errors
    /// When too many look at such.
    pub async fn turn_of_envoys(&self, asker: &Asker) -> Result<FairTurn, Crowded> {
        self.api.paging.take(&asker.client).await
    }

    /// Does `work` that is long off the threads that serve everybody.
    pub async fn long<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        self.api.making.long(work).await
    }

    /// Who shows this user token.
    ///
    /// # Errors
    /// When it is not good.
    pub fn bearer(&self, token: &str) -> Result<User, ApiError> {
        auth::bearer(&self.api, token)
    }

    /// The body of a request to a page, of at most `limit` bytes, and no more than any body may have.
    ///
    /// # Errors
    /// As [`super::Intake::read`].
    pub async fn body(&self, request: Request, limit: usize) -> Result<ReceivedBody, BodyError> {
        self.api.intake.read(request, limit.min(self.api.config.body_limit)).await
    }

    /// The name of the cookie in which a browser keeps the token of its user.
    pub fn cookie(&self) -> String {
        auth::cookie(&self.api)
    }

    /// Who vouches for people besides this control plane.
    pub fn provider(&self) -> Option<&OpenIdProvider> {
        self.api.config.open_id.as_deref()
    }

    /// What the browser keeps in the cookie of this name.
    pub fn kept<'a>(&self, headers: &'a HeaderMap, cookie: &str) -> Option<&'a str> {
        auth::in_cookie(headers, cookie)
    }

    /// The address of this API, without a slash at its end, as the settings or else the browser say it.
    pub fn root_url(&self, request: &Request) -> Option<String> {
        if !self.api.config.root_url.is_empty() {
            return Some(self.api.config.root_url.clone());
        }
        let is_encrypted = request.extensions().get::<Connection>().is_some_and(|connection| connection.tls);
        let scheme = if is_encrypted { "https" } else { "http" };
        auth::host(request).map(|host| format!("{scheme}://{host}"))
    }

    /// Whether browsers reach this API encrypted, also where something in front of it ends that.
    pub fn is_encrypted(&self, asker: &Asker) -> bool {
        asker.is_encrypted() || self.api.config.root_url.starts_with("https://")
    }

    /// What `user` may read.
    pub fn readable(&self, user: &User) -> Readable {
        self.api.rights.readable(user)
    }

    /// Whether `user` is known, or everyone is trusted.
    pub fn trusts(&self, user: &User) -> bool {
        self.api.trusts(user)
    }

    /// The role of this control plane.
    pub fn mode(&self) -> &Mode {
        &self.api.config.mode
    }

    /// The index as it is.
    pub fn index(&self) -> Arc<Index> {
        self.api.index.current()
    }

    /// Where the index can be followed.
    pub fn reader(&self) -> IndexReader {
        self.api.index.clone()
    }

    /// Now.
    pub fn now(&self) -> DateTime<Utc> {
        self.api.env.now()
    }
}

impl DeskAnswer {
    async fn of(response: Response) -> Self {
        let (parts, body) = response.into_parts();
        match to_bytes(body, LONGEST).await {
            Ok(body) => Self { status: parts.status, revision: revision(&parts.headers), body },
            Err(error) => Self {
                status: StatusCode::INTERNAL_SERVER_ERROR,
                revision: None,
                body: format!("an answer could not be read: {error}").into(),
            },
        }
    }
}

fn revision(headers: &HeaderMap) -> Option<Revision> {
    headers.get(REVISION)?.to_str().ok()?.parse().ok()
}

/// Everything a page asks for is made in one turn, which goes along with the page: what it holds between two answers has
/// the same bound as an answer.
pub(super) async fn in_one_turn(mut request: Request, next: Next) -> Response {
    let turn = SharedTurn::default();
    if let Some(client) = request.extensions_mut().get_mut::<Client>() {
        client.share(turn.clone());
    }
    let is_safe = request.method().is_safe();
    let page = turn.made(next.run(request).await);
    // One that lacks a part of what there is would say that it is not there.
    if is_safe && turn.is_refused() { ApiError::from(Crowded).into_response() } else { page }
}

/// What a page asks for is in the audit log as what its reader asks for himself would be, but for what he may not read:
/// a page tries things that nobody asked it for.
async fn take_down(
    State(api): State<Arc<Api>>,
    route: Option<MatchedPath>,
    request: Request,
    next: Next,
) -> Response {
    let audited = AuditedRequest::of(&request, route.as_ref().map(MatchedPath::as_str));
    let user = request.extensions().get::<User>().cloned().unwrap_or_else(User::anonymous);
    let may = if request.method().is_safe() { Ok(()) } else { auth::may_write(&api, &user) };
    let response = match may {
        Ok(()) => next.run(request).await,
        Err(error) => error.into_response(),
    };
    audited.answered_to_page(&api, &user, &response);
    response
}
