//! The page for operators, at `/gui` of global and of each zone: HTML that is made here and works without scripts, and
//! that a small script of its own keeps up to date.
//!
//! ```text
//!  browser ──► guard ──► page ──► Desk: the API, as its reader may use it ──► HTML
//!     ▲                                                                         │
//!     └── live: something changed ◄── event bus, signals of a PageSource        └──► browser
//! ```
//!
//! A page knows nothing that the API does not say to the same reader. What only global or only a zone can tell beyond
//! that, when to look again, comes from a [`PageSource`].

mod assets;
mod change;
mod dataplane;
mod dump;
mod explanation;
mod federation;
mod form;
mod history;
mod lag;
mod layout;
mod link;
mod live;
mod login;
mod map;
mod meshes;
mod overview;
mod parts;
mod refused;
mod resource;
mod rollout;
mod rows;
mod service_map;
mod session;
mod sessions;
mod sign_in;
mod source;
mod tables;
mod visit;
mod zone;
mod zones;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::{
    events::EventBus,
    rest::{Api, Desk, Mounted, PAGE, routes},
};

pub use self::source::{Lag, PageSource, ZonesSeen};
use self::{lag::LagRecord, live::LiveStreams};

/// What the pages are made with.
pub struct Gui {
    desk: Desk,
    bus: EventBus,
    source: Arc<dyn PageSource>,
    lags: LagRecord,
    streams: LiveStreams,
    shutdown: CancellationToken,
}

/// What the pages need besides the API.
pub struct PageParts {
    /// Where it is told that resources changed and what happened to zones.
    pub bus: EventBus,
    /// What only this kind of control plane can tell.
    pub source: Arc<dyn PageSource>,
    /// Ends what is live.
    pub shutdown: CancellationToken,
}

/// The API with the page, unless its settings say that there is none, and what runs along with it as long as the
/// process does.
pub fn router(
    api: &Arc<Api>,
    extra: Mounted,
    parts: PageParts,
) -> (axum::Router, impl Future<Output = anyhow::Result<()>> + Send + use<>) {
    let shutdown = parts.shutdown.clone();
    let mut made = None;
    let pages = |desk: Desk| {
        let PageParts { bus, source, shutdown } = parts;
        let (lags, streams) = (LagRecord::default(), LiveStreams::default());
        let gui = Arc::new(Gui { desk, bus, source, lags, streams, shutdown });
        made = Some(Arc::clone(&gui));
        mounted(&gui)
    };
    let router = match api.has_pages() {
        true => api.router_with_pages(extra, pages, layout::seal),
        false => api.router(extra),
    };
    let recording = async move {
        match made {
            Some(gui) => lag::record(&gui).await,
            None => {
                shutdown.cancelled().await;
                Ok(())
            }
        }
    };
    (router, recording)
}

fn mounted(gui: &Arc<Gui>) -> Mounted {
    debug_assert_eq!(PAGE, "/gui", "the routes below say so too");
    Mounted::new()
        .on(const { routes::get("/gui") }, overview::show, gui)
        .on(const { routes::get("/gui/zones") }, zones::show, gui)
        .on(const { routes::get("/gui/zones/{zone}") }, zone::show, gui)
        .on(const { routes::post("/gui/zones/{zone}/approve") }, link::approve, gui)
        .on(const { routes::post("/gui/zones/{zone}/offer") }, refused::offer, gui)
        .on(const { routes::get("/gui/meshes") }, meshes::list, gui)
        .on(const { routes::get("/gui/meshes/{mesh}") }, meshes::show, gui)
        .on(const { routes::get("/gui/services") }, tables::services, gui)
        .on(const { routes::get("/gui/dataplanes") }, tables::dataplanes, gui)
        .on(const { routes::get("/gui/dataplanes/{mesh}/{name}") }, dataplane::show, gui)
        .on(const { routes::get("/gui/policies") }, tables::policies, gui)
        .on(const { routes::get("/gui/resources/{kind}/{name}") }, resource::show, gui)
        .on(const { routes::get("/gui/history") }, history::show, gui)
        .on(const { routes::get("/gui/change") }, change::form, gui)
        .on(const { routes::post("/gui/change") }, change::send, gui)
        .on(const { routes::get("/gui/changes/{revision}") }, change::progress, gui)
        .on(const { routes::get("/gui/rollouts") }, rollout::list, gui)
        .on(const { routes::get("/gui/rollouts/{name}") }, rollout::show, gui)
        .on(const { routes::post("/gui/rollouts/{name}/{action}") }, rollout::steer, gui)
        .on(const { routes::get("/gui/session") }, session::form, gui)
        .on(const { routes::post("/gui/session") }, session::begin, gui)
        .on(const { routes::post("/gui/session/end") }, session::end, gui)
        .on(const { routes::get("/gui/login") }, login::begin, gui)
        .on(const { routes::get("/gui/login/done") }, login::done, gui)
        .on(const { routes::get("/gui/live") }, live::live, gui)
        .on(const { routes::get("/gui/page.css") }, assets::css, gui)
        .on(const { routes::get("/gui/page.js") }, assets::js, gui)
}

#[cfg(test)]
mod tests;
