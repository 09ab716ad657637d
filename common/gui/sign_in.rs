//! The page on which one says who one is.

use axum::{http::StatusCode, response::Response};
use maud::{Markup, html};
use reqwest::Url;

use super::{
    Gui,
    layout::PageFrame,
    visit::{Visit, address, within},
};
use crate::{
    oidc::OpenIdProvider,
    rest::{LOGIN, SESSION, SESSION_END},
};

/// The frame around it.
pub(super) const FRAME: PageFrame<'static> =
    PageFrame { title: "Who you are", section: "", trail: &[], watches: "" };

/// The provider, where people can log in through it on the page.
pub(super) fn provider(gui: &Gui) -> Option<&OpenIdProvider> {
    gui.desk.provider().filter(|provider| !provider.settings().client_id.is_empty())
}

/// A link to log in, where there is a provider.
fn link(gui: &Gui, to: &str) -> Markup {
    let host = provider(gui).map(|provider| {
        let issuer = &provider.settings().issuer;
        let url = Url::parse(issuer).ok();
        url.and_then(|url| Some(url.host_str()?.to_owned())).unwrap_or_else(|| issuer.clone())
    });
    let to = within(to);
    html! {
        @if let Some(host) = host {
            p { a.button.primary #provider href=(address(LOGIN, &[("to", to)])) { "Log in with " (host) } }
        }
    }
}

/// The form, or who one is, with what is wrong.
pub(super) fn respond(gui: &Gui, visit: &Visit, status: StatusCode, problem: &str) -> Response {
    let user = &visit.asker.user;
    let to = within(visit.parameter("to"));
    let content = html! {
        @if !problem.is_empty() { p.note.bad role="alert" { (problem) } }
        @if user.is_anonymous() {
            p { "You have not said who you are. You see what everybody may see, and change nothing." }
        } @else {
            p { "You are " strong { (user.name) } ", of " (user.groups.join(", ")) "." }
            form method="post" action=(SESSION_END) { button { "Sign out" } }
        }
        (link(gui, to))
        form.stacked method="post" action=(SESSION) {
            label for="token" { "User token" }
            input #token name="token" type="password" autocomplete="off" required spellcheck="false" autofocus;
            input name="to" type="hidden" value=(to);
            button.primary { "Sign in" }
        }
        p.quiet {
            "An administrator makes one with " code { "straitctl generate user-token --name ANN --valid-for 24h" }
            ". The administrator's own is the file " code { "admin-user-token" } " in the work folder of this control plane. "
            "The token is kept in a cookie for this page only, until the browser is closed."
        }
        @if !gui.desk.is_encrypted(&visit.asker) {
            p.quiet { "This connection is not encrypted: sign in on the same machine, or use the address with TLS." }
        }
    };
    FRAME.respond_with(status, gui, visit, &content)
}
