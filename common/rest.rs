//! The REST API that global and zone share: generic over kinds, in Kuma's paths and bodies.
//!
//! One request goes: [`auth`] says who asks, [`read`] and [`mod@write`] check in the order a Kuma client
//! expects, a write becomes one store batch, and the answer waits until the index shows it.

mod absent;
mod admission;
mod asking;
mod audit;
mod auth;
mod backup;
mod body;
mod browser;
mod commit;
mod completion;
mod condition;
mod confidential;
mod desk;
mod envoy;
mod error;
mod files;
mod filter;
mod global_insight;
mod guard;
mod history;
mod insight;
mod inspect;
mod kubernetes;
mod logging;
mod meta;
mod metadata;
mod namesakes;
mod openapi;
mod overview;
mod page;
mod parameters;
mod paths;
mod precondition;
mod preview;
mod read;
mod rights;
mod rollouts;
pub mod routes;
mod rules;
mod sync;
mod tokens;
mod traced;
mod warnings;
mod write;
mod zone_status;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tower::ServiceExt;

use crate::{
    access::{self, Access, User},
    audit::AuditLog,
    config::{AccessSection, ApiServer},
    envoy_admin::EnvoyAdmin,
    keys::KeyMaker,
    metering::requests::{self, MeasuredServer},
    mode::Mode,
    model::{Kind, kinds::summaries},
    oidc::OpenIdProvider,
    registry,
    roles::Rights,
    rollouts::RolloutGuard,
    runtime::{Env, Offload},
    store::{Revision, Store, index::IndexReader},
    traces::Traces,
};

pub use admission::{Admission, Deletion, Put};
pub use body::{BodyError, Intake, ReceivedBody, json_document, json_response};
pub use browser::{LOGIN, LOGIN_DONE, PAGE, SESSION, SESSION_END};
pub use desk::{Asker, Desk, DeskAnswer};
pub use error::ApiError;
pub use files::{FileDocument, ResourceFiles};
pub use kubernetes::render as kubernetes_object;
pub(crate) use metadata::{ANONYMOUS_MAY_WRITE, LOCALHOST_IS_ADMIN};
pub use metadata::{API_VERSION, cluster_id};
pub use rollouts::standing_refusals;
pub use routes::Mounted;
pub use rules::standard as standard_admissions;
pub use sync::REVISION;
pub use zone_status::{
    ProxyProgressSource, RefusedType, RefusingSide, Sending, SyncProgress, ZoneCredential, ZoneHealth,
    ZoneProof, ZoneStatus, ZoneStatusSource,
};

use self::asking::AskingTurns;

/// Longest wait for the index to show a committed write.
const READ_YOUR_WRITES: Duration = Duration::from_secs(5);

/// What the API of one control plane is made of.
pub struct ApiConfig {
    /// Role of the control plane.
    pub mode: Mode,
    /// Refuse every write.
    pub read_only: bool,
    /// Requests from this machine come from an administrator.
    pub localhost_is_admin: bool,
    /// Callers who show nothing may write.
    pub anonymous_may_write: bool,
    /// Who vouches for people besides this control plane.
    pub open_id: Option<Arc<OpenIdProvider>>,
    /// Address for browsers; empty where they say it.
    pub root_url: String,
    /// User tokens are made on request.
    pub issues_user_tokens: bool,
    /// Who may do what.
    pub access: Access,
    /// Longest request body in bytes.
    pub body_limit: usize,
    /// Ask the author of a JSON kind on a federated zone for `kuma.io/origin: zone`.
    pub require_origin_label: bool,
    /// What `GET /config` shows: the configuration with its secrets masked.
    pub shown_config: Value,
    /// Host name in `GET /`.
    pub hostname: String,
    /// Address of the page for operators in `GET /`, empty when there is none.
    pub gui: String,
    /// Rules and side effects of writes, in order; see [`standard_admissions`].
    pub admissions: Vec<Arc<dyn Admission>>,
    /// Live state of the zones, on global.
    pub zone_status: Option<Arc<dyn ZoneStatusSource>>,
    /// How far the proxies are, on a zone.
    pub proxies: Option<Arc<dyn ProxyProgressSource>>,
    /// Other replicas have proxies of this zone as well, of which this one knows nothing.
    pub shares_proxies: bool,
    /// Present where resources come from files too, which clients may not write then.
    pub files: Option<Arc<dyn ResourceFiles>>,
    /// Who can ask the Envoys of proxies.
    pub envoys: Option<Arc<dyn EnvoyAdmin>>,
    /// Where requests are taken down.
    pub audit: Arc<AuditLog>,
    /// Where writes are told of.
    pub traces: Traces,
    /// Told of each write that this API made, while somebody hears of writes.
    pub written: Option<Arc<dyn Fn(Revision) + Send + Sync>>,
}

impl ApiConfig {
    /// What the settings that both control planes have say about `mode`.
    pub fn from_settings(mode: Mode, api: &ApiServer, access: &AccessSection) -> Self {
        Self {
            read_only: api.read_only,
            localhost_is_admin: api.authn.localhost_is_admin,
            anonymous_may_write: api.authn.anonymous_may_write,
            root_url: api.root_url.trim_end_matches('/').to_owned(),
            issues_user_tokens: api.authn.tokens.enable_issuer,
            access: access.rules.clone(),
            gui: if api.gui.enabled { PAGE.to_owned() } else { String::new() },
            ..Self::new(mode)
        }
    }

    /// The defaults for `mode`, without any admission.
    pub fn new(mode: Mode) -> Self {
        Self {
            mode,
            read_only: false,
            localhost_is_admin: false,
            anonymous_may_write: false,
            open_id: None,
            root_url: String::new(),
            issues_user_tokens: true,
            access: Access::default(),
            body_limit: 4 << 20,
            require_origin_label: true,
            shown_config: Value::Object(serde_json::Map::new()),
            hostname: String::new(),
            gui: String::new(),
            admissions: Vec::new(),
            zone_status: None,
            proxies: None,
            shares_proxies: false,
            files: None,
            envoys: None,
            audit: Arc::default(),
            traces: Traces::default(),
            written: None,
        }
    }
}

/// The API of one control plane.
pub struct Api {
    store: Arc<dyn Store>,
    index: IndexReader,
    env: Env,
    keys: KeyMaker,
    /// Who may do what.
    rights: Arc<Rights>,
    config: ApiConfig,
    intake: Intake,
    /// Where long answers are made, and searched for secrets.
    making: Offload,
    /// Those who ask Envoys.
    asking: AskingTurns,
    /// Those who look at pages about what Envoys say.
    paging: AskingTurns,
    /// Those who ask about what was, or have much written at once.
    past: AskingTurns,
    /// Those who wait for zones.
    sync_waits: sync::SyncWaits,
    /// What stands against writes.
    rollouts: RolloutGuard,
}

/// The API seen from the routes of one kind.
#[derive(Clone)]
struct KindApi {
    api: Arc<Api>,
    kind: &'static Kind,
}

impl Api {
    /// An API on this store, reading from this index.
    pub fn new(store: Arc<dyn Store>, index: IndexReader, env: Env, config: ApiConfig) -> Arc<Self> {
        let (keys, intake, making) = (KeyMaker::default(), Intake::default(), Offload::default());
        let (sync_waits, rollouts) = (sync::SyncWaits::default(), RolloutGuard::default());
        let [asking, paging, past] =
            [asking::ASKED_AT_ONCE, asking::SHOWN_AT_ONCE, asking::PAST_AT_ONCE].map(AskingTurns::new);
        let rights = Rights::new(config.access.clone(), config.mode.zone(), index.clone())
            .with_anonymous_writers(config.anonymous_may_write);
        let rights = Arc::new(rights);
        Arc::new(Self {
            store,
            index,
            env,
            keys,
            rights,
            config,
            intake,
            making,
            asking,
            paging,
            past,
            sync_waits,
            rollouts,
        })
    }

    /// All routes, together with `extra` ones of the caller, behind authentication and each behind its guard.
    /// Handlers of `extra` find the caller as an `Extension<User>`.
    pub fn router(self: &Arc<Self>, extra: Mounted) -> Router {
        let guarded = self.described(extra).guarded(&self.rights);
        self.served(guarded)
    }

    /// Whether there are pages for people.
    pub fn has_pages(&self) -> bool {
        !self.config.gui.is_empty()
    }

    /// The same with pages for people, which are made of what is asked at the [`Desk`]. Each of their answers goes
    /// through `seal`, those of their guards included.
    pub fn router_with_pages(
        self: &Arc<Self>,
        extra: Mounted,
        pages: impl FnOnce(Desk) -> Mounted,
        seal: fn(Response) -> Response,
    ) -> Router {
        let described = self.described(extra);
        let desk = Desk::new(self, described.clone());
        let pages = pages(desk)
            .guarded(&self.rights)
            .layer(middleware::from_fn(desk::in_one_turn))
            .layer(middleware::map_response(move |response: Response| async move { seal(response) }));
        self.served(described.guarded(&self.rights).merge(pages))
    }

    /// What there is, and the description of that.
    fn described(self: &Arc<Self>, extra: Mounted) -> Mounted {
        let mounted = self.mounted().merge(extra);
        let described = Arc::new(openapi::ServedRoutes::of(self, &mounted));
        mounted.on(openapi::OWN, openapi::document, &described)
    }

    /// Some routes alone, for a port where nothing else is served, behind authentication and each behind its guard.
    pub fn router_of(self: &Arc<Self>, routes: Mounted) -> Router {
        self.served(routes.guarded(&self.rights))
    }

    fn served(self: &Arc<Self>, guarded: Router) -> Router {
        let router = guarded
            .fallback(async || plain(StatusCode::NOT_FOUND, "404: Page Not Found"))
            .method_not_allowed_fallback(async || {
                plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
            })
            .layer(middleware::from_fn(parameters::few))
            .layer(middleware::from_fn(body::negotiate))
            .layer(middleware::from_fn_with_state(Arc::clone(self), auth::authenticate))
            .layer(middleware::from_fn_with_state(Arc::clone(self), traced::trace))
            .layer(middleware::from_fn_with_state(MeasuredServer::Api, requests::measure))
            .layer(middleware::from_fn(completion::complete));
        // Routes are chosen before the layers of a router run, so what changes the path stands around it.
        Router::new().fallback_service(router.map_request(paths::trimmed))
    }

    /// What both control planes serve.
    fn mounted(self: &Arc<Self>) -> Mounted {
        let general = Mounted::new()
            .on(const { routes::get("/") }, metadata::index, self)
            .on(const { routes::get("/config") }, metadata::config, self)
            .on(const { routes::get("/who-am-i") }, metadata::who_am_i, self)
            .on(const { routes::get("/authn") }, metadata::authn, self)
            .on(const { routes::get("/policies") }, metadata::policies, self)
            .on(const { routes::get("/_resources") }, metadata::resources, self)
            .on(const { routes::get("/global-insight") }, global_insight::global_insight, self)
            .on(const { routes::get("/global-insights") }, global_insight::legacy, self)
            .on(const { routes::get("/access/can-i") }, rights::can_i, self)
            .on(const { routes::get("/audit") }, audit::search, self)
            .on(const { routes::get("/strait/backup") }, backup::take, self)
            .on(const { routes::get("/_kri/{kri}") }, read::by_kri, self)
            .on(const { routes::get("/sync") }, sync::overview, self)
            .on(const { routes::get("/sync/revisions/{revision}") }, sync::revision, self)
            .on(const { routes::get("/sync/zones/{zone}/{kind}/{name}") }, sync::item, self)
            .merge(history::routes(self))
            .merge(logging::routes(self))
            .merge(tokens::routes(self));
        registry::ALL.iter().fold(general, |mounted, &kind| {
            mounted.merge(kind_routes(&KindApi { api: Arc::clone(self), kind }))
        })
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

/// What there is for one kind; the table says which of it.
fn kind_routes(at: &KindApi) -> Mounted {
    let kind = at.kind;
    let (list, all, item) =
        const { (routes::get("<list>"), routes::get("<all>"), routes::get("<list>/{name}")) };
    let read = Mounted::new();
    // Nobody stores these two: they are counted when they are asked for.
    let read = if kind == &summaries::MESH_INSIGHT {
        read.on_kind(kind, list, insight::meshes, at).on_kind(kind, item, insight::mesh, at)
    } else if kind == &summaries::SERVICE_INSIGHT {
        read.on_kind(kind, list, insight::services, at).on_kind(kind, all, insight::services, at).on_kind(
            kind,
            item,
            insight::service,
            at,
        )
    } else {
        read.on_kind(kind, list, read::list, at).on_kind(kind, all, read::list, at).on_kind(
            kind,
            item,
            read::item,
            at,
        )
    };
    read.on_kind(kind, const { routes::put("<list>/{name}") }, write::put, at)
        .on_kind(kind, const { routes::delete("<list>/{name}") }, write::delete, at)
        .on_kind(kind, const { routes::get("<list>/_overview") }, overview::list, at)
        .on_kind(kind, const { routes::get("<all>/_overview") }, overview::list, at)
        .on_kind(kind, const { routes::get("<list>/{name}/_overview") }, overview::item, at)
        .on_kind(kind, const { routes::get("<overviews>") }, overview::list, at)
        .on_kind(kind, const { routes::get("<all overviews>") }, overview::list, at)
        .on_kind(kind, const { routes::get("<overviews>/{name}") }, overview::item, at)
        .merge(envoy::routes(at))
        .merge(inspect::routes(at))
        .merge(history::kind_routes(at))
        .merge(rollouts::kind_routes(at))
}

#[cfg(test)]
mod tests;
