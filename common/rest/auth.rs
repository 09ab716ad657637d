//! Who sends a request: an administrator on this machine, the bearer of a user token, or anybody.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{Api, ApiError, User};
use crate::{clip::clip, runtime::http::Connection, token};

/// What is logged of the reason why a token is refused, in bytes.
const REASON: usize = 256;

/// Adds the [`User`] to every request.
pub(super) async fn authenticate(State(api): State<Arc<Api>>, mut request: Request, next: Next) -> Response {
    match user(&api, &request) {
        Ok(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        Err(error) => error.into_response(),
    }
}

fn user(api: &Api, request: &Request) -> Result<User, ApiError> {
    let headers = request.headers();
    if api.config.localhost_is_admin && is_local(request) {
        return Ok(User::admin());
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let Some(token) = bearer.and_then(|v| v.strip_prefix("Bearer ")) else { return Ok(User::anonymous()) };
    match token::validate_user(&api.index.current(), token, api.env.now()) {
        Ok(claims) => Ok(User::authenticated(claims.name, claims.groups)),
        // The identity document must stay readable with a token that ran out.
        Err(_) if request.uri().path() == "/" => Ok(User::anonymous()),
        Err(error) => {
            tracing::info!(reason = clip(&error.to_string(), REASON), "refused a user token");
            Err(ApiError::unauthenticated())
        }
    }
}

/// Whether a program on this machine sent the request on its own behalf: not a proxy for someone else,
/// and not a browser acting for a page from elsewhere.
fn is_local(request: &Request) -> bool {
    let headers = request.headers();
    let Some(connection) = request.extensions().get::<Connection>() else { return false };
    if !is_loopback(connection.peer.ip()) {
        return false;
    }
    if ["forwarded", "x-forwarded-for", "x-real-ip"].iter().any(|name| headers.contains_key(*name)) {
        return false;
    }
    let authority = request.uri().authority().map(|a| a.as_str());
    let Some(host) = text(headers, header::HOST.as_str()).or(authority) else { return false };
    let same_site = text(headers, "sec-fetch-site").is_none_or(|v| v == "same-origin" || v == "none");
    let same_origin = text(headers, header::ORIGIN.as_str())
        .is_none_or(|origin| origin.split_once("://").is_some_and(|(_, authority)| authority == host));
    is_local_name(host) && same_site && same_origin
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}

/// A host with or without a port: `localhost:5681`, `127.0.0.1`, `[::1]:5681`.
fn is_local_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::body::Body;

    use super::*;

    fn request(peer: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = axum::http::Request::builder().uri("/secrets");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::empty()).unwrap();
        request.extensions_mut().insert(Connection { peer: peer.parse().unwrap(), tls: false });
        request
    }

    #[test]
    fn only_programs_on_this_machine_are_local() {
        let check = |peer, headers: &[(&str, &str)], local| {
            assert_eq!(is_local(&request(peer, headers)), local, "{peer} {headers:?}");
        };
        check("127.0.0.1:1", &[("host", "localhost:5681")], true);
        check("[::1]:1", &[("host", "[::1]:5681")], true);
        check("[::ffff:127.0.0.1]:1", &[("host", "127.0.0.1")], true);
        check("10.0.0.1:1", &[("host", "localhost")], false);
        check("127.0.0.1:1", &[("host", "global.example")], false);
        check("127.0.0.1:1", &[("host", "localhost"), ("x-forwarded-for", "10.0.0.1")], false);
        check("127.0.0.1:1", &[("host", "localhost:5681"), ("origin", "http://evil.example")], false);
        check("127.0.0.1:1", &[("host", "localhost:5681"), ("origin", "http://localhost:5681")], true);
        check("127.0.0.1:1", &[("host", "localhost"), ("sec-fetch-site", "cross-site")], false);
    }
}
