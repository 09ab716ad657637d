//! Logging in through the provider of OpenID Connect: there and back again.
//!
//! ```text
//!  /gui/login ──► the provider ──► /gui/login/done ──► where one was
//!      └── a sealed cookie: state, nonce, PKCE ──┘  └── a sealed cookie: who one is
//! ```
//!
//! Whoever comes back must be the browser that was sent there, so nobody can be logged in as somebody else by a link.

use std::{net::Ipv4Addr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use reqwest::Url;

use super::{
    Gui,
    sign_in::{self, provider},
    visit::{Visit, within},
};
use crate::{
    oidc::{CodeFlow, OidcError, PageSession},
    rest::{LOGIN, LOGIN_DONE, PAGE},
    runtime::http::Connection,
};

/// How long a browser keeps what a login begins with, in seconds; that says itself how long it is good.
const KEPT: i64 = 600;

/// Sends on to the provider.
pub(super) async fn begin(State(gui): State<Arc<Gui>>, visit: Visit, request: Request) -> Response {
    let Some(provider) = provider(&gui) else { return no_provider(&gui, &visit) };
    let Some(root) = gui.desk.root_url(&request) else {
        return sign_in::respond(
            &gui,
            &visit,
            StatusCode::BAD_REQUEST,
            "The request does not say whom it is for.",
        );
    };
    let begun = CodeFlow::begin(
        provider,
        &format!("{root}{LOGIN_DONE}"),
        within(visit.parameter("to")),
        gui.desk.now(),
    );
    match begun.and_then(|(url, flow)| Ok((url, flow.seal(&gui.desk.index())?))) {
        Ok((url, sealed)) => {
            let mut response = Redirect::to(&url).into_response();
            keep(&gui, &visit, &mut response, &flow_cookie(&gui), &sealed, LOGIN, KEPT);
            response
        }
        Err(error) => failed(&gui, &visit, &error),
    }
}

/// Takes who comes back from there.
pub(super) async fn done(State(gui): State<Arc<Gui>>, visit: Visit, request: Request) -> Response {
    let Some(provider) = provider(&gui) else { return no_provider(&gui, &visit) };
    let (index, now) = (gui.desk.index(), gui.desk.now());
    let kept = gui.desk.kept(request.headers(), &flow_cookie(&gui));
    let flow = kept.and_then(|kept| CodeFlow::open(&index, kept));
    let Some(flow) = flow.filter(|flow| flow.is_of(visit.parameter("state"), now)) else {
        let problem = "This login was not begun in this browser, or took too long. Begin again.";
        return sign_in::respond(&gui, &visit, StatusCode::BAD_REQUEST, problem);
    };
    let (issuer, error) = (visit.parameter("iss"), visit.parameter("error"));
    if !issuer.is_empty() && issuer != provider.settings().issuer {
        let error = OidcError::Issuer(issuer.chars().take(100).collect());
        return failed(&gui, &visit, &error);
    }
    if !error.is_empty() {
        let said: String =
            format!("{error}: {}", visit.parameter("error_description")).chars().take(300).collect();
        return failed(&gui, &visit, &OidcError::Refused(said));
    }
    let from = request.extensions().get::<Connection>().map(|connection| connection.peer.ip());
    let from = from.unwrap_or(Ipv4Addr::UNSPECIFIED.into());
    let finished = flow.finish(provider, visit.parameter("code"), from, now).await;
    match finished.and_then(|session| Ok((session.seal(&index)?, session))) {
        Ok((sealed, session)) => {
            tracing::info!(user = session.user().name, "somebody logged in on the page through the provider");
            let mut response = Redirect::to(within(&flow.to)).into_response();
            response.extensions_mut().insert(session.user());
            let life = session.until() - now.timestamp();
            keep(&gui, &visit, &mut response, &gui.desk.cookie(), &sealed, PAGE, life);
            keep(&gui, &visit, &mut response, &flow_cookie(&gui), "", LOGIN, 0);
            response
        }
        Err(error) => failed(&gui, &visit, &error),
    }
}

/// Where to log out at the provider too, for who logged in through it.
pub(super) fn way_out(gui: &Gui, request: &Request) -> Option<String> {
    let provider = provider(gui)?;
    let kept = gui.desk.kept(request.headers(), &gui.desk.cookie())?;
    PageSession::open(&gui.desk.index(), kept, provider, gui.desk.now())?;
    let mut url = Url::parse(&provider.end_session_endpoint()?).ok()?;
    let back = format!("{}{PAGE}", gui.desk.root_url(request)?);
    url.query_pairs_mut()
        .append_pair("client_id", &provider.settings().client_id)
        .append_pair("post_logout_redirect_uri", &back);
    Some(url.to_string())
}

fn flow_cookie(gui: &Gui) -> String {
    format!("{}-login", gui.desk.cookie())
}

/// Lax: the browser comes from the provider, and what changes something is not let in by a cookie alone.
fn keep(gui: &Gui, visit: &Visit, response: &mut Response, name: &str, value: &str, path: &str, life: i64) {
    let secure = if gui.desk.is_encrypted(&visit.asker) { "; Secure" } else { "" };
    let cookie = format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax; Max-Age={life}{secure}");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

fn no_provider(gui: &Gui, visit: &Visit) -> Response {
    let problem = "This control plane knows no provider to log in with (apiServer.authn.openIdConnect).";
    sign_in::respond(gui, visit, StatusCode::NOT_FOUND, problem)
}

fn failed(gui: &Gui, visit: &Visit, error: &OidcError) -> Response {
    let status = match error {
        OidcError::Unknown { .. } | OidcError::Unsealed(_) | OidcError::Busy => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        OidcError::Web(_) | OidcError::Document { .. } => StatusCode::BAD_GATEWAY,
        _ => StatusCode::FORBIDDEN,
    };
    tracing::info!(reason = ?error.to_string(), "a login through the provider came to nothing");
    sign_in::respond(gui, visit, status, &format!("You could not be logged in: {error}."))
}
