//! Changes that go out in waves: beginning one, steering it, and how far it is.

mod begin;
mod rules;
mod standing;
mod status;
mod steer;

pub(super) use rules::RolloutRules;
pub use standing::standing_refusals;
pub(super) use standing::{WaveSeen, ZoneReached};

use axum::http::StatusCode;

use super::{ApiError, KindApi, Mounted, routes};
use crate::mode::Mode;

const TITLE: &str = "Could not roll out";

/// The routes of rollouts; none for other kinds.
pub(super) fn kind_routes(at: &KindApi) -> Mounted {
    let kind = at.kind;
    Mounted::new()
        .on_kind(kind, const { routes::post("<list>/{name}/begin") }, begin::begin, at)
        .on_kind(kind, const { routes::post("<list>/{name}/halt") }, steer::halt, at)
        .on_kind(kind, const { routes::post("<list>/{name}/resume") }, steer::resume, at)
        .on_kind(kind, const { routes::post("<list>/{name}/advance") }, steer::advance, at)
        .on_kind(kind, const { routes::post("<list>/{name}/abort") }, steer::abort, at)
        .on_kind(kind, const { routes::get("<list>/{name}/status") }, status::status, at)
}

/// Refuses where there are no zones.
fn require_global(at: &KindApi) -> Result<(), ApiError> {
    match at.api.config.mode {
        Mode::Global => Ok(()),
        Mode::Zone { .. } => {
            let detail = "this control plane has no zones: ask global";
            Err(ApiError::new(StatusCode::NOT_FOUND, TITLE, detail))
        }
    }
}
