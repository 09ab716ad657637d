//! Who looks: signing in with a user token, which the browser keeps and no script can read, or through a provider.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::html;

use super::{
    Gui,
    form::{FormFields, SHORT},
    login, sign_in,
    visit::{Visit, within},
};
use crate::{access::User, rest::PAGE};

/// The form, or who one is.
pub(super) async fn form(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    sign_in::respond(&gui, &visit, StatusCode::OK, "")
}

/// Takes a token.
pub(super) async fn begin(State(gui): State<Arc<Gui>>, visit: Visit, request: Request) -> Response {
    let fields = match FormFields::read(&gui, request, SHORT, &["token", "to"]).await {
        Ok(fields) => fields,
        Err(error) => return sign_in::respond(&gui, &visit, error.status(), &error.to_string()),
    };
    let token = fields.get("token").trim().to_owned();
    // A token is of three parts in base64url, so nothing else can be in the cookie.
    let is_one = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match gui.desk.bearer(&token) {
        Ok(user) if is_one && !user.is_anonymous() => {
            keep(&gui, &visit, &token, Redirect::to(within(fields.get("to"))).into_response())
        }
        _ => sign_in::respond(
            &gui,
            &visit,
            StatusCode::UNAUTHORIZED,
            "This token is not good here: it may have run out, or be of another control plane.",
        ),
    }
}

/// Forgets it. Who logged in through a provider is shown where to log out there: a form may lead nowhere else.
pub(super) async fn end(State(gui): State<Arc<Gui>>, mut visit: Visit, request: Request) -> Response {
    let response = match login::way_out(&gui, &request) {
        None => Redirect::to(PAGE).into_response(),
        Some(way) => {
            visit.asker.user = User::anonymous();
            let content = html! {
                p { "You are signed out here. Who sits at this browser next can sign in again as long as you are logged in at the provider." }
                p { a.button href=(way) { "Log out there too" } " " a href=(PAGE) { "Overview" } }
            };
            sign_in::FRAME.respond_with(StatusCode::OK, &gui, &visit, &content)
        }
    };
    keep(&gui, &visit, "", response)
}

/// The answer with this token in the cookie.
fn keep(gui: &Gui, visit: &Visit, token: &str, mut response: Response) -> Response {
    let secure = if gui.desk.is_encrypted(&visit.asker) { "; Secure" } else { "" };
    let life = if token.is_empty() { "; Max-Age=0" } else { "" };
    let cookie =
        format!("{}={token}; Path={PAGE}; HttpOnly; SameSite=Strict{secure}{life}", gui.desk.cookie());
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
