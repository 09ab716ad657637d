//! The REST API in a test: in memory, without a socket.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{Request, response::Parts},
};
use http_body_util::BodyExt;
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::ServiceExt;
use uuid::Uuid;

use crate::{
    document::Document,
    events::EventBus,
    gui::{self, PageParts, PageSource},
    rest::{Api, ApiConfig, Mounted},
    runtime::{Env, http::Connection},
    store::{Batch, Store, Write, feed::Feed, index::IndexReader, memory::MemoryStore},
};

/// Host header of every request.
pub const HOST: &str = "localhost:5681";

/// The API over a memory store.
pub struct TestApi {
    /// The store behind it.
    pub store: Arc<dyn Store>,
    /// What it reads.
    pub index: IndexReader,
    /// Its clock and randomness.
    pub env: Env,
    router: Router,
    _stop: DropGuard,
}

impl TestApi {
    /// An API whose store holds exactly `documents`, written past every check. Callers on this machine are
    /// administrators.
    pub async fn start(config: ApiConfig, documents: &[Value]) -> Result<Self, String> {
        Self::start_with(config, documents, |_, _| Mounted::new()).await
    }

    /// The same with routes of the caller beside those of the API.
    pub async fn start_with(
        config: ApiConfig,
        documents: &[Value],
        extra: impl FnOnce(&IndexReader, &Env) -> Mounted,
    ) -> Result<Self, String> {
        let router =
            |api: &Arc<Api>, index: &IndexReader, env: &Env, _: EventBus| api.router(extra(index, env));
        Self::start_by(config, documents, router).await
    }

    /// The same with the page.
    pub async fn start_with_page(
        config: ApiConfig,
        documents: &[Value],
        source: Arc<dyn PageSource>,
    ) -> Result<Self, String> {
        let router = |api: &Arc<Api>, _: &IndexReader, _: &Env, bus: EventBus| {
            let parts = PageParts { bus, source, shutdown: CancellationToken::new() };
            gui::router(api, Mounted::new(), parts).0
        };
        Self::start_by(config, documents, router).await
    }

    async fn start_by(
        config: ApiConfig,
        documents: &[Value],
        router: impl FnOnce(&Arc<Api>, &IndexReader, &Env, EventBus) -> Router,
    ) -> Result<Self, String> {
        let config = ApiConfig { localhost_is_admin: true, ..config };
        let env = Env::system("test");
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
        let mut writes = Vec::new();
        for document in documents {
            let document = Document::parse(document).map_err(|e| e.to_string())?;
            writes.push(Write::put(document.into_resource(env.now())));
        }
        store.transact(Batch::of(writes)).await.map_err(|e| e.to_string())?;
        let bus = EventBus::new(64);
        let feed = Feed::load(Arc::clone(&store)).await.map_err(|e| e.to_string())?.telling(bus.clone());
        let index = feed.reader();
        let api = Api::new(Arc::clone(&store), index.clone(), env.clone(), config);
        let stop = CancellationToken::new();
        tokio::spawn(feed.run(stop.clone()));
        let router = router(&api, &index, &env, bus);
        Ok(Self { store, index, env, router, _stop: stop.drop_guard() })
    }

    /// All its routes, to be served on a socket.
    pub fn router(&self) -> Router {
        self.router.clone()
    }

    /// Sends a request from this machine, a body as JSON; returns status and body.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<String>,
    ) -> Result<(u16, String), String> {
        let request = Request::builder().method(method).uri(path).header("host", HOST);
        let request = match body {
            Some(body) => request.header("content-type", "application/json").body(Body::from(body)),
            None => request.body(Body::empty()),
        };
        self.send_from([127, 0, 0, 1], request.map_err(|e| e.to_string())?).await
    }

    /// Sends any request from the machine with this address.
    pub async fn send_from(&self, peer: [u8; 4], request: Request<Body>) -> Result<(u16, String), String> {
        let (parts, body) = self.answer_from(peer, request).await?;
        Ok((parts.status.as_u16(), body))
    }

    /// The same with the headers of the answer.
    pub async fn answer_from(
        &self,
        peer: [u8; 4],
        mut request: Request<Body>,
    ) -> Result<(Parts, String), String> {
        let peer = SocketAddr::from((peer, 1));
        request.extensions_mut().insert(Connection { peer, tls: false });
        let response = self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map_err(|e| e.to_string())?.to_bytes();
        Ok((parts, String::from_utf8_lossy(&body).into_owned()))
    }
}
