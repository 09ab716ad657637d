//! What an operator sees inside a zone, in the shapes that scripts for Istio's Pilot know: `/debug/syncz` and its kin.
//!
//! ```text
//!  connections ──► what their streams say ──┐
//!  index ──► meshes, read for the answer ───┼──► a bounded document ──► without secrets ──► operator
//!  index ──► objects ───────────────────────┘
//! ```
//!
//! Nothing is kept for any of this: an answer is made when somebody asks, off the threads that serve, in turn between
//! those who ask, and holds no lock that pushing needs for longer than it takes to list a few hundred connections.

mod answer;
mod cache;
mod clients;
mod connection;
mod dump;
mod query;
mod request;
mod services;
mod stored;
mod withheld;

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use common::{
    access::{AccessRule, User},
    rest::ApiError,
    runtime::Offload,
    store::index::IndexReader,
};

use super::{preview::Previews, proxies::Proxies, push_status::PushStatus};

/// What there is, each with what it shows.
pub const ENDPOINTS: [(&str, &str); 17] = [
    ("adsz", "connections, with what each asked for: ?proxyID=PART"),
    ("cachez", "names of the resources that are kept encoded, by type: ?sizes for their bytes"),
    ("cdsz", "clusters of one connection: ?proxyID=PART"),
    (
        "config_dump",
        "all that one connection is to have, as Envoy would dump it: ?proxyID=PART&types=cds,lds&include_eds",
    ),
    ("configz", "objects an operator wrote, in the form of Kubernetes: ?kind=KIND&mesh=MESH"),
    ("connections", "connections: ?proxyID=PART"),
    ("ecdsz", "extensions of one connection: ?proxyID=PART"),
    ("edsz", "endpoints of one connection: ?proxyID=PART"),
    ("endpointShardz", "endpoints by service, mesh and zone: ?mesh=MESH"),
    ("endpointz", "the same under its older name"),
    ("instancesz", "what the connected proxies serve: ?proxyID=PART"),
    ("list", "names of what is listed here"),
    ("mesh", "one mesh: ?mesh=MESH"),
    ("networkz", "where other zones are entered"),
    ("push_status", "what is not sent, or stands in the way of something else, and why"),
    ("registryz", "services: ?mesh=MESH"),
    ("syncz", "how far each connection is with each type: ?proxyID=PART"),
];

/// Where it is looked from, and who may look.
pub struct Introspection {
    /// The proxies of meshes.
    pub proxies: Arc<Proxies>,
    /// Nodes that belong to none.
    pub nodes: Arc<Proxies>,
    /// What reads meshes for those who look.
    pub previews: Previews,
    /// What is wrong with what they are sent.
    pub status: Arc<PushStatus>,
    /// What is stored.
    pub index: IndexReader,
    /// The local zone.
    pub zone: Arc<str>,
    /// Name of this process.
    pub instance: Arc<str>,
    /// Who may look.
    pub rule: AccessRule,
}

/// The same with the threads that make answers.
struct Room {
    seen: Introspection,
    making: Offload,
}

/// The routes below `/debug`, for those whom the rule names; `POST /debug/force_disconnect` is for administrators.
pub fn router(seen: Introspection) -> Router {
    Router::new()
        .route("/debug", get(index))
        .route("/debug/", get(index))
        .route("/debug/list", get(list))
        .route("/debug/syncz", get(clients::syncz))
        .route("/debug/adsz", get(clients::adsz))
        .route("/debug/connections", get(clients::connections))
        .route("/debug/force_disconnect", post(clients::force_disconnect))
        .route("/debug/config_dump", get(dump::config_dump))
        .route("/debug/cdsz", get(dump::cdsz))
        .route("/debug/edsz", get(dump::edsz))
        .route("/debug/ecdsz", get(dump::ecdsz))
        .route("/debug/cachez", get(cache::cachez))
        .route("/debug/registryz", get(services::registryz))
        .route("/debug/endpointShardz", get(services::endpoint_shardz))
        .route("/debug/endpointz", get(services::endpoint_shardz))
        .route("/debug/instancesz", get(services::instancesz))
        .route("/debug/networkz", get(services::networkz))
        .route("/debug/configz", get(stored::configz))
        .route("/debug/mesh", get(stored::mesh))
        .route("/debug/push_status", get(withheld::push_status))
        .with_state(Arc::new(Room { seen, making: Offload::default() }))
}

impl Room {
    fn admit(&self, user: &User) -> Result<(), ApiError> {
        Ok(self.seen.rule.check(user, "look inside this control plane")?)
    }
}

/// A page for people.
async fn index(
    State(room): State<Arc<Room>>,
    Extension(user): Extension<User>,
) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let row = |(name, shows): &(&str, &str)| {
        format!("<tr><td><a href=\"/debug/{name}\">/debug/{name}</a></td><td>{shows}</td></tr>\n")
    };
    let rows: String = ENDPOINTS.iter().map(row).collect();
    let page = format!(
        "<!DOCTYPE html>\n<html><head><title>{zone}</title></head><body>\n<table>\n{rows}</table>\n\
         <p>POST /debug/force_disconnect?proxyID=PART ends connections.</p>\n</body></html>\n",
        zone = escaped(&room.seen.zone)
    );
    let mut response = page.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    Ok(response)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn list(State(room): State<Arc<Room>>, Extension(user): Extension<User>) -> Result<Response, ApiError> {
    room.admit(&user)?;
    let names: Vec<String> = ENDPOINTS.iter().map(|(name, _)| format!("/debug/{name}")).collect();
    Ok(axum::Json(names).into_response())
}
