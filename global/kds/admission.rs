//! Who calls is judged by the headers, for every call there is, before a byte of its body is looked at.
//!
//! What a stream brings is kept for whoever serves it. The one message of any other call is read here: nobody needs more of
//! it than a few bytes.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use common::{
    incoming::RoomShare,
    proto::{DECLARED_CALLS, DeclaredCall},
};
use http::Extensions;
use tokio::time::Instant;
use tonic::{Status, metadata::MetadataMap};

use super::{INCOMING, Kds, auth::ZoneCaller, inbound, relay_auth::KnownRelay};

/// Who may make a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CallerRole {
    Zone,
    Relay,
    /// A relay for one of its zones, which both show who they are.
    ZoneOfRelay,
}

impl CallerRole {
    /// Of whom a call is. One of nobody is not served.
    fn of(path: &str) -> Option<Self> {
        let (service, method) = path.strip_prefix('/')?.split_once('/')?;
        match service {
            "kuma.mesh.v1alpha1.KDSSyncService"
            | "kuma.mesh.v1alpha1.GlobalKDSService"
            | "kuma.mesh.v1alpha1.MultiplexService"
            | "strait.federation.v1.FederationService" => Some(Self::Zone),
            "strait.relay.v1alpha1.RelayService" if method == "Introduce" => Some(Self::ZoneOfRelay),
            "strait.relay.v1alpha1.RelayService" => Some(Self::Relay),
            _ => None,
        }
    }
}

/// Stands before all calls.
pub(super) async fn first(State(kds): State<Kds>, mut request: Request, next: Next) -> Response {
    let body = std::mem::take(request.body_mut());
    let Some((call, role)) = served(&kds, request.uri().path()) else {
        // There is no such call here, whoever asks.
        return next.run(request).await;
    };
    let headers = MetadataMap::from_headers(std::mem::take(request.headers_mut()));
    let judged = judge(&kds, role, &headers, request.extensions_mut());
    *request.headers_mut() = headers.into_headers();
    let share = match judged {
        Ok(owner) => share(&kds, owner),
        Err(refused) => return refused.into_http(),
    };
    if call.is_stream {
        inbound::keep(body, share, request.extensions_mut());
        return next.run(request).await;
    }
    // Calls that are on their way take up as much as those that are answered.
    if let Err(refused) = require_pace(&kds, request.extensions()) {
        return refused.into_http();
    }
    if let Some(is_gzipped) = inbound::is_gzipped(request.headers()) {
        match inbound::only(body, is_gzipped, kds.inner.incoming.clone().of(share)).await {
            Ok(only) => *request.body_mut() = only,
            Err(refused) => return refused.into_http(),
        }
    }
    next.run(request).await
}

/// The call of this path, if it is served here.
fn served(kds: &Kds, path: &str) -> Option<(&'static DeclaredCall, CallerRole)> {
    let call = DECLARED_CALLS.iter().find(|call| call.path == path)?;
    let role = CallerRole::of(call.path)?;
    // One relay behind another has no global, and nobody asks a relay to bring back what was lost.
    let is_of_global = role != CallerRole::Zone || path.starts_with("/strait.federation.");
    (kds.inner.onward.is_none() || !is_of_global).then_some((call, role))
}

/// Whether the caller is who may make the call, and who that is; whoever serves it finds him in the request.
fn judge(
    kds: &Kds,
    role: CallerRole,
    headers: &MetadataMap,
    extensions: &mut Extensions,
) -> Result<String, Status> {
    let mut owner = None;
    if role != CallerRole::Zone {
        let relay = kds.judge_relay(headers, extensions)?;
        owner = Some(format!("relay {}", relay.carrier.relay));
        extensions.insert(Arc::new(relay));
    }
    if role != CallerRole::Relay {
        let zone = kds.judge_zone(headers, extensions)?;
        owner = owner.or_else(|| Some(format!("zone {}", zone.zone)));
        extensions.insert(Arc::new(zone));
    }
    Ok(owner.unwrap_or_default())
}

/// Refuses a call of its own of a zone that makes far more of them than it needs.
fn require_pace(kds: &Kds, extensions: &Extensions) -> Result<(), Status> {
    let Some(caller) = extensions.get::<Arc<ZoneCaller>>() else { return Ok(()) };
    let zone = &caller.zone;
    kds.inner.calls.begin(zone, Instant::now()).map_err(|wait| {
        Status::resource_exhausted(format!("zone {zone} calls too often: try again in {wait:?}"))
    })
}

/// What somebody may have on its way at once: several of the largest messages, and a small part of the room.
fn share(kds: &Kds, owner: String) -> RoomShare {
    let bytes = (INCOMING / 8).max(kds.inner.settings.max_message.saturating_mul(4));
    RoomShare { owner, bytes }
}

/// The zone that makes a call.
pub(super) fn zone<T>(request: &tonic::Request<T>) -> Result<Arc<ZoneCaller>, Status> {
    known(request)
}

/// The relay that makes a call.
pub(super) fn relay<T>(request: &tonic::Request<T>) -> Result<Arc<KnownRelay>, Status> {
    known(request)
}

fn known<T, C: Send + Sync + 'static>(request: &tonic::Request<T>) -> Result<Arc<C>, Status> {
    let known = request.extensions().get::<Arc<C>>().cloned();
    known.ok_or_else(|| Status::internal("nobody has looked who calls"))
}

#[cfg(test)]
mod tests;
