//! The REST API that global and zone share: generic over kinds, in Kuma's paths and bodies.
//!
//! One request goes: [`auth`] says who asks, [`read`] and [`mod@write`] check in the order a Kuma client
//! expects, a write becomes one store batch, and the answer waits until the index shows it.

mod absent;
mod admission;
mod audit;
mod auth;
mod backup;
mod body;
mod commit;
mod condition;
mod envoy;
mod error;
mod files;
mod filter;
mod global_insight;
mod history;
mod insight;
mod inspect;
mod kubernetes;
mod meta;
mod metadata;
mod overview;
mod page;
mod precondition;
mod read;
mod rights;
mod rules;
mod sync;
mod tokens;
mod warnings;
mod write;
mod zone_status;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    http::StatusCode,
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use serde_json::Value;

use crate::{
    access::{self, Access, AccessRule, User},
    audit::AuditLog,
    config::{AccessSection, ApiServer},
    envoy_admin::EnvoyAdmin,
    keys::KeyMaker,
    metering::requests::{self, MeasuredServer},
    mode::Mode,
    model::{Kind, kinds::summaries},
    registry,
    runtime::{Env, Offload},
    store::{Store, index::IndexReader},
};

pub use admission::{Admission, Deletion, Put};
pub use body::{BodyError, Intake, ReceivedBody, json_response};
pub use error::ApiError;
pub use files::{FileDocument, ResourceFiles};
pub use kubernetes::render as kubernetes_object;
pub(crate) use metadata::{ANONYMOUS_MAY_WRITE, LOCALHOST_IS_ADMIN};
pub use metadata::{API_VERSION, cluster_id};
pub use rules::standard as standard_admissions;
pub use sync::REVISION;
pub use zone_status::{
    ProxyProgressSource, Sending, SyncProgress, ZoneCredential, ZoneHealth, ZoneProof, ZoneStatus,
    ZoneStatusSource,
};

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
}

impl ApiConfig {
    /// What the settings that both control planes have say about `mode`.
    pub fn from_settings(mode: Mode, api: &ApiServer, access: &AccessSection) -> Self {
        Self {
            read_only: api.read_only,
            localhost_is_admin: api.authn.localhost_is_admin,
            anonymous_may_write: api.authn.anonymous_may_write,
            issues_user_tokens: api.authn.tokens.enable_issuer,
            access: access.rules.clone(),
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
        }
    }
}

/// The API of one control plane.
pub struct Api {
    store: Arc<dyn Store>,
    index: IndexReader,
    env: Env,
    keys: KeyMaker,
    config: ApiConfig,
    intake: Intake,
    /// Where long answers are made, and searched for secrets.
    making: Offload,
    /// Those who wait for zones.
    sync_waits: sync::SyncWaits,
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
        let sync_waits = sync::SyncWaits::default();
        Arc::new(Self { store, index, env, keys, config, intake, making, sync_waits })
    }

    /// All routes, together with `extra` ones of the caller, behind authentication. Handlers of `extra`
    /// find the caller as an `Extension<User>`.
    pub fn router(self: &Arc<Self>, extra: Router) -> Router {
        let general = Router::new()
            .route("/", get(metadata::index))
            .route("/config", get(metadata::config))
            .route("/who-am-i", get(metadata::who_am_i))
            .route("/policies", get(metadata::policies))
            .route("/_resources", get(metadata::resources))
            .route("/global-insight", get(global_insight::global_insight))
            .route("/global-insights", get(global_insight::legacy))
            .route("/access/can-i", get(rights::can_i))
            .route("/audit", get(audit::search))
            .route("/strait/backup", get(backup::take))
            .route("/_kri/{kri}", get(read::by_kri))
            .route("/sync", get(sync::overview))
            .route("/sync/revisions/{revision}", get(sync::revision))
            .route("/sync/zones/{zone}/{kind}/{name}", get(sync::item))
            .merge(history::routes())
            .merge(tokens::routes())
            .with_state(Arc::clone(self));
        let kinds = registry::ALL.iter().filter(|kind| !kind.path.is_empty());
        let router = kinds.fold(general, |router, &kind| {
            let endpoint = KindApi { api: Arc::clone(self), kind };
            router.merge(kind_routes(kind).with_state(endpoint))
        });
        router
            .merge(extra)
            .fallback(async || plain(StatusCode::NOT_FOUND, "404: Page Not Found"))
            .method_not_allowed_fallback(async || {
                plain(StatusCode::METHOD_NOT_ALLOWED, "405: Method Not Allowed")
            })
            .layer(middleware::from_fn(body::negotiate))
            .layer(middleware::from_fn_with_state(Arc::clone(self), auth::authenticate))
            .layer(middleware::from_fn_with_state(MeasuredServer::Api, requests::measure))
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response {
    (status, text).into_response()
}

fn kind_routes(kind: &'static Kind) -> Router<KindApi> {
    let paths = [kind.path, kind.alias].into_iter().filter(|path| !path.is_empty());
    let mut routes = paths.fold(Router::new(), |routes, path| {
        let list = list_path(kind, path);
        // Nobody stores these two: they are counted when they are asked for.
        let (all, one) = match kind {
            kind if kind == &summaries::MESH_INSIGHT => (get(insight::meshes), get(insight::mesh)),
            kind if kind == &summaries::SERVICE_INSIGHT => (get(insight::services), get(insight::service)),
            _ => (get(read::list), get(read::item)),
        };
        let item = one.put(write::put).delete(write::delete);
        let routes = routes.route(&list, all.clone()).route(&format!("{list}/{{name}}"), item);
        let routes = if kind.is_mesh_scoped() { routes.route(&format!("/{path}"), all) } else { routes };
        let routes = match kind.is_proxy {
            true => routes.route(&format!("{list}/{{name}}/{{what}}"), get(envoy::ask)),
            false => routes,
        };
        let routes = routes.merge(inspect::routes(kind, path)).merge(history::kind_routes(kind, path));
        if overview::of(kind).is_none() {
            return routes;
        }
        let routes = routes
            .route(&format!("{list}/_overview"), get(overview::list))
            .route(&format!("{list}/{{name}}/_overview"), get(overview::item));
        if kind.is_mesh_scoped() {
            routes.route(&format!("/{path}/_overview"), get(overview::list))
        } else {
            routes
        }
    });
    if let Some(overview) = overview::of(kind) {
        let list = list_path(kind, overview.legacy_path);
        routes =
            routes.route(&list, get(overview::list)).route(&format!("{list}/{{name}}"), get(overview::item));
        if kind.is_mesh_scoped() {
            routes = routes.route(&format!("/{}", overview.legacy_path), get(overview::list));
        }
    }
    routes
}

fn list_path(kind: &Kind, path: &str) -> String {
    if kind.is_mesh_scoped() { format!("/meshes/{{mesh}}/{path}") } else { format!("/{path}") }
}

#[cfg(test)]
mod tests;
