//! Who looks: signing in with a user token, which the browser keeps and no script can read.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
};
use maud::html;

use super::{Gui, form::FormFields, layout::PageFrame, visit::Visit};
use crate::rest::{PAGE, SESSION, SESSION_END};

const SIGN_IN: PageFrame<'static> = PageFrame { title: "Who you are", section: "", trail: &[], watches: "" };

/// The form, or who one is.
pub(super) async fn form(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    respond(&gui, &visit, StatusCode::OK, "")
}

fn respond(gui: &Gui, visit: &Visit, status: StatusCode, problem: &str) -> Response {
    let user = &visit.asker.user;
    let content = html! {
        @if !problem.is_empty() { p.note.bad role="alert" { (problem) } }
        @if user.is_anonymous() {
            p { "You have not said who you are. You see what everybody may see, and change nothing." }
        } @else {
            p { "You are " strong { (user.name) } ", of " (user.groups.join(", ")) "." }
            form method="post" action=(SESSION_END) { button { "Sign out" } }
        }
        form.stacked method="post" action=(SESSION) {
            label for="token" { "User token" }
            input #token name="token" type="password" autocomplete="off" required spellcheck="false" autofocus;
            button.primary { "Sign in" }
        }
        p.quiet {
            "An administrator makes one with " code { "straitctl generate user-token --name ANN --valid-for 24h" }
            ". The administrator's own is the file " code { "admin-user-token" } " in the work folder of this control plane. "
            "The token is kept in a cookie for this page only, until the browser is closed."
        }
        @if !visit.asker.is_encrypted() {
            p.quiet { "This connection is not encrypted: sign in on the same machine, or use the address with TLS." }
        }
    };
    SIGN_IN.respond_with(status, gui, visit, &content)
}

/// Takes a token.
pub(super) async fn begin(State(gui): State<Arc<Gui>>, visit: Visit, request: Request) -> Response {
    let fields = match FormFields::read(&gui, request).await {
        Ok(fields) => fields,
        Err(error) => return respond(&gui, &visit, error.status(), &error.to_string()),
    };
    let token = fields.get("token").trim().to_owned();
    // A token is of three parts in base64url, so nothing else can be in the cookie.
    let is_one = token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
    match gui.desk.bearer(&token) {
        Ok(user) if is_one && !user.is_anonymous() => keep(&gui, &visit, &token),
        _ => respond(
            &gui,
            &visit,
            StatusCode::UNAUTHORIZED,
            "This token is not good here: it may have run out, or be of another control plane.",
        ),
    }
}

/// Forgets it.
pub(super) async fn end(State(gui): State<Arc<Gui>>, visit: Visit) -> Response {
    keep(&gui, &visit, "")
}

/// Goes to the overview with this token in the cookie.
fn keep(gui: &Gui, visit: &Visit, token: &str) -> Response {
    let secure = if visit.asker.is_encrypted() { "; Secure" } else { "" };
    let life = if token.is_empty() { "; Max-Age=0" } else { "" };
    let cookie =
        format!("{}={token}; Path={PAGE}; HttpOnly; SameSite=Strict{secure}{life}", gui.desk.cookie());
    let mut response = Redirect::to(PAGE).into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    response
}
