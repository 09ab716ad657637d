//! Who sends a request: the bearer of a user token, where the settings say so an administrator on this machine,
//! or anybody; and that anybody reads only.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{MatchedPath, Request, State},
    http::{HeaderMap, HeaderName, StatusCode, Version, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::{
    Api, ApiError, User,
    access::WAY_IN,
    audit::AuditedRequest,
    browser::{SESSION, SESSION_END, is_page},
    completion, routes,
};
use crate::{
    clip::clip,
    oidc::{OidcError, PageSession},
    runtime::http::Connection,
    token::{self, NODE_GROUP},
};

/// Longest reason that is logged why a token was refused.
const LONGEST_REASON: usize = 256;

/// What a program or a browser sends on its own behalf, beside names that begin with `sec-`. A list of what
/// proxies add would never be complete, so any other header counts as added by one.
#[rustfmt::skip]
const OWN_HEADERS: [&str; 32] = [
    "accept", "accept-charset", "accept-encoding", "accept-language", "authorization", "cache-control", "connection",
    "content-encoding", "content-language", "content-length", "content-type", "cookie", "dnt", "expect", "host",
    "if-match", "if-modified-since", "if-none-match", "if-range", "if-unmodified-since", "keep-alive", "origin",
    "pragma", "priority", "range", "referer", "te", "trailer", "transfer-encoding", "upgrade-insecure-requests",
    "user-agent", "x-requested-with",
];

/// Adds the [`User`] to every request, and refuses a write that nobody vouches for before its body is read.
pub(super) async fn authenticate(
    State(api): State<Arc<Api>>,
    route: Option<MatchedPath>,
    mut request: Request,
    next: Next,
) -> Response {
    let audited = AuditedRequest::of(&request, route.as_ref().map(MatchedPath::as_str));
    let (user, response) = match user(&api, &request) {
        Ok(user) => {
            let path = request.uri().path();
            let reads = |route: &MatchedPath| routes::only_reads(request.method().as_str(), route.as_str());
            let may = match request.method().is_safe() || route.as_ref().is_some_and(reads) {
                true => Ok(()),
                false if is_page(path) && !is_of_page(&request) => {
                    Err(ApiError::forbidden("this form was not sent by the page of this control plane"))
                }
                // Whoever has not said yet who he is must be able to.
                false if path == SESSION || path == SESSION_END => Ok(()),
                false => may_write(&api, &user).and_then(|()| completion::require_leave(&request)),
            };
            let response = match may {
                Ok(()) => {
                    request.extensions_mut().insert(user.clone());
                    next.run(request).await
                }
                Err(error) => error.into_response(),
            };
            (user, response)
        }
        Err(error) => (User::anonymous(), error.into_response()),
    };
    audited.answered(&api, &user, &response);
    response
}

/// 403 unless `user` may write at all. Which resources, other rules say.
pub(super) fn may_write(api: &Api, user: &User) -> Result<(), ApiError> {
    if api.trusts(user) {
        return Ok(());
    }
    Err(ApiError::forbidden(format!("anonymous callers may read and not write{WAY_IN}")))
}

impl Api {
    /// Whether `user` is known, or everyone is trusted. Others see no secrets that stand in documents.
    pub(super) fn trusts(&self, user: &User) -> bool {
        self.rights.trusts(user)
    }
}

fn user(api: &Api, request: &Request) -> Result<User, ApiError> {
    let headers = request.headers();
    if api.config.localhost_is_admin && is_local(request) {
        return Ok(User::admin());
    }
    let bearer = headers.get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let shown = bearer.and_then(|v| v.strip_prefix("Bearer "));
    let in_page = is_page(request.uri().path());
    // A browser adds the cookie by itself, whoever made it ask; so it counts for the page only, which looks who did.
    let kept = in_page.then(|| in_cookie(headers, &cookie(api))).flatten();
    if let (None, Some(sealed)) = (shown, kept.filter(|kept| token::is_sealed(kept))) {
        return Ok(session(api, sealed).map_or_else(User::anonymous, |session| session.user()));
    }
    let Some(token) = shown.or(kept) else { return Ok(User::anonymous()) };
    match self::bearer(api, token) {
        Ok(user) => Ok(user),
        // The identity document must stay readable with a token that ran out, and so must the page where one signs in.
        Err(_) if in_page || request.uri().path() == "/" => Ok(User::anonymous()),
        Err(error) => Err(error),
    }
}

/// Who logged in on the page through the provider, as his browser says.
fn session(api: &Api, sealed: &str) -> Option<PageSession> {
    let provider = api.config.open_id.as_ref()?;
    PageSession::open(&api.index.current(), sealed, provider, api.env.now())
}

/// Who shows this token, one of ours or of the provider.
pub(super) fn bearer(api: &Api, token: &str) -> Result<User, ApiError> {
    if let Some(provider) = api.config.open_id.as_ref().filter(|provider| provider.claims(token)) {
        return provider.user(token, api.env.now()).map_err(|error| {
            // Escaped, because parts of a token are in it.
            tracing::info!(reason = ?clip(&error.to_string(), LONGEST_REASON), "refused a token of the provider");
            refused(&error)
        });
    }
    match token::validate_user(&api.index.current(), token, api.env.now()) {
        // What a node shows to be served proves nobody who writes.
        Ok(claims) if claims.groups.iter().any(|group| group == NODE_GROUP) => Ok(User::anonymous()),
        Ok(claims) => Ok(User::authenticated(claims.name, claims.groups)),
        Err(error) => {
            // Escaped, because parts of a token are in it.
            tracing::info!(reason = ?clip(&error.to_string(), LONGEST_REASON), "refused a user token");
            Err(ApiError::unauthenticated())
        }
    }
}

/// What its bearer is told. Only who cannot be judged at the moment may be good.
fn refused(error: &OidcError) -> ApiError {
    let title = "Invalid authentication data";
    match error {
        OidcError::Unknown { .. } => ApiError::busy(title, error.to_string()),
        _ => ApiError::new(StatusCode::UNAUTHORIZED, title, error.to_string()),
    }
}

/// The cookie in which a browser keeps the token of its user. Browsers tell hosts apart and not ports, so each control
/// plane has a name of its own.
pub(super) fn cookie(api: &Api) -> String {
    match api.config.mode.zone() {
        None => "strait-global".to_owned(),
        Some(zone) => format!("strait-zone-{zone}"),
    }
}

pub(super) fn in_cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let cookies = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = cookies.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value).filter(|value| !value.is_empty())
}

/// Whether the page itself sent what changes something, and not a page from elsewhere: a browser says so in one of two
/// ways, and what is no browser has the API.
fn is_of_page(request: &Request) -> bool {
    let headers = request.headers();
    let once = |name: &str| headers.get_all(name).iter().nth(1).is_none();
    if !["host", "origin", "sec-fetch-site"].into_iter().all(once) {
        return false;
    }
    match (text(headers, "sec-fetch-site"), text(headers, header::ORIGIN.as_str())) {
        (Some(site), _) => site == "same-origin",
        (None, Some(origin)) => {
            let authority = origin.split_once("://").map(|(_, authority)| authority);
            authority.is_some() && authority == host(request)
        }
        (None, None) => false,
    }
}

/// Whether a program on this machine sent the request on its own behalf, as far as it shows: not a proxy for
/// someone else that says so, and not a browser acting for a page from elsewhere. A proxy that adds nothing and
/// speaks HTTP/1.1, as newer versions of nginx, HAProxy and whatever copies bytes do by default, cannot be told
/// from such a program; that is why `apiServer.authn.localhostIsAdmin` is off unless somebody turns it on.
fn is_local(request: &Request) -> bool {
    let headers = request.headers();
    let Some(connection) = request.extensions().get::<Connection>() else { return false };
    if !is_loopback(connection.peer.ip()) {
        return false;
    }
    // Older versions of nginx add no header and speak the old version of HTTP to what is behind them.
    if request.version() < Version::HTTP_11 || !headers.keys().all(is_own) {
        return false;
    }
    // Of two answers to one question, whoever stands between may have read the other one.
    let once = |name: &str| headers.get_all(name).iter().nth(1).is_none();
    if !["host", "origin", "sec-fetch-site"].into_iter().all(once) {
        return false;
    }
    let Some(host) = host(request) else { return false };
    let same_site = text(headers, "sec-fetch-site").is_none_or(|v| v == "same-origin" || v == "none");
    let same_origin = text(headers, header::ORIGIN.as_str())
        .is_none_or(|origin| origin.split_once("://").is_some_and(|(_, authority)| authority == host));
    is_local_name(host) && same_site && same_origin
}

/// Whom the request is for, which its line and a header may both say. Where they say different things, nobody
/// can tell which of them was looked at on the way here.
pub(super) fn host(request: &Request) -> Option<&str> {
    let authority = request.uri().authority().map(|authority| authority.as_str());
    match (authority, request.headers().get(header::HOST)) {
        (Some(line), Some(header)) => (header.as_bytes() == line.as_bytes()).then_some(line),
        (Some(line), None) => Some(line),
        (None, header) => header?.to_str().ok(),
    }
}

fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with("sec-") || OWN_HEADERS.contains(&name.as_str())
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
        let usual = [("user-agent", "kumactl"), ("accept", "*/*"), ("content-type", "application/json")];
        check("127.0.0.1:1", &[&usual[..], &[("host", "localhost")]].concat(), true);
        #[rustfmt::skip]
        let of_proxies = [
            "Via", "Forwarded", "X-Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
            "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Forwarded-User", "X-Real-Ip",
            "X-Client-Ip", "X-Cluster-Client-Ip", "Client-Ip", "True-Client-Ip", "CF-Connecting-IP", "CF-Ray",
            "Fastly-Client-Ip", "Fly-Client-Ip", "X-Azure-ClientIp", "X-Amzn-Trace-Id", "X-Amz-Cf-Id",
            "X-Appengine-User-Ip", "X-Original-Forwarded-For", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url",
            "X-Host", "X-Remote-Addr", "X-Remote-Ip", "X-Originating-Ip", "X-ProxyUser-Ip", "WL-Proxy-Client-IP",
            "Proxy-Client-IP", "X-Envoy-External-Address", "X-Request-Id", "X-Varnish", "CDN-Loop", "X-Scheme",
            "X-Http-Host-Override", "X-Forwarder-For", "X-Nginx-Proxy", "X-Made-Up-Tomorrow", "Max-Forwards",
        ];
        for name in of_proxies {
            check("127.0.0.1:1", &[("host", "localhost"), (name, "10.0.0.1")], false);
            check("127.0.0.1:1", &[("host", "localhost"), (name, "")], false);
        }
        for (line, host, local) in [
            ("http://localhost:5681/secrets", None, true),
            ("http://localhost:5681/secrets", Some("localhost:5681"), true),
            ("http://localhost:5681/secrets", Some("global.example"), false),
            ("http://global.example/secrets", Some("localhost:5681"), false),
            ("http://localhost:5681/secrets", Some("127.0.0.1:5681"), false),
            ("http://localhost:5681/secrets", Some("localhost:1"), false),
            ("http://localhost:5681/secrets", Some(""), false),
            ("http://me@localhost:5681/secrets", None, false),
            ("http://global.example@localhost:5681/secrets", None, false),
        ] {
            let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
            let mut asked = request("127.0.0.1:1", &headers);
            *asked.uri_mut() = line.parse().unwrap();
            assert_eq!(is_local(&asked), local, "{line} {host:?}");
        }
        let mut old = request("127.0.0.1:1", &[("host", "localhost")]);
        *old.version_mut() = Version::HTTP_10;
        assert!(!is_local(&old));
    }

    #[test]
    fn own_headers_are_sorted_and_told_once() {
        assert!(OWN_HEADERS.is_sorted_by(|a, b| a < b), "{OWN_HEADERS:?}");
    }
}
