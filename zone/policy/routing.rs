//! What a route comes to.

use crate::generator::{RouteDraft, envoy::http::Share};

/// How a listener passes on what comes in.
pub(crate) enum Routing {
    /// Request by request.
    Requests(Vec<RouteDraft>),
    /// As bytes.
    Bytes(Vec<Share>),
    /// Not at all.
    Nowhere,
}
