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
    extract::State,
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use common::{
    rest::{Mounted, routes},
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

/// Where it is looked from.
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
}

/// The same with the threads that make answers.
struct Room {
    seen: Introspection,
    making: Offload,
}

/// The routes below `/debug`.
pub fn routes(seen: Introspection) -> Mounted {
    let room = Arc::new(Room { seen, making: Offload::default() });
    Mounted::new()
        .on(const { routes::get("/debug") }, index, &room)
        .on(const { routes::get("/debug/") }, index, &room)
        .on(const { routes::get("/debug/list") }, list, &room)
        .on(const { routes::get("/debug/syncz") }, clients::syncz, &room)
        .on(const { routes::get("/debug/adsz") }, clients::adsz, &room)
        .on(const { routes::get("/debug/connections") }, clients::connections, &room)
        .on(const { routes::post("/debug/force_disconnect") }, clients::force_disconnect, &room)
        .on(const { routes::get("/debug/config_dump") }, dump::config_dump, &room)
        .on(const { routes::get("/debug/cdsz") }, dump::cdsz, &room)
        .on(const { routes::get("/debug/edsz") }, dump::edsz, &room)
        .on(const { routes::get("/debug/ecdsz") }, dump::ecdsz, &room)
        .on(const { routes::get("/debug/cachez") }, cache::cachez, &room)
        .on(const { routes::get("/debug/registryz") }, services::registryz, &room)
        .on(const { routes::get("/debug/endpointShardz") }, services::endpoint_shardz, &room)
        .on(const { routes::get("/debug/endpointz") }, services::endpoint_shardz, &room)
        .on(const { routes::get("/debug/instancesz") }, services::instancesz, &room)
        .on(const { routes::get("/debug/networkz") }, services::networkz, &room)
        .on(const { routes::get("/debug/configz") }, stored::configz, &room)
        .on(const { routes::get("/debug/mesh") }, stored::mesh, &room)
        .on(const { routes::get("/debug/push_status") }, withheld::push_status, &room)
}

/// A page for people.
async fn index(State(room): State<Arc<Room>>) -> Response {
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
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

async fn list() -> Response {
    let names: Vec<String> = ENDPOINTS.iter().map(|(name, _)| format!("/debug/{name}")).collect();
    axum::Json(names).into_response()
}
