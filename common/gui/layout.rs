//! The frame of every page, and the headers of every answer.

use axum::{
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::{
    Gui, assets,
    visit::{Unanswered, Visit},
};
use crate::rest::SESSION;

/// Nothing comes from elsewhere, nothing stands in the page that runs, and nobody frames it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// A mark in the tab, so that browsers ask for none.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E%3Crect \
     width='16' height='16' rx='3' fill='%23205ea8'/%3E%3Cpath d='M3 5h10M3 11h10M6 5l4 6' stroke='white' \
     stroke-width='1.6' fill='none'/%3E%3C/svg%3E";

/// Closes an answer against everything that is not ours.
pub(super) fn seal(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    response
}

/// One page.
pub(super) struct PageFrame<'a> {
    /// In the tab and over the content.
    pub(super) title: &'a str,
    /// The entry of the navigation it belongs to.
    pub(super) section: &'a str,
    /// What leads to it: addresses with their names.
    pub(super) trail: &'a [(&'a str, &'a str)],
    /// What it is looked at again for: types of resources, `zones` for how they do.
    pub(super) watches: &'a str,
}

const SECTIONS: [(&str, &str); 9] = [
    ("/gui", "Overview"),
    ("/gui/zones", "Zones"),
    ("/gui/meshes", "Meshes"),
    ("/gui/services", "Services"),
    ("/gui/dataplanes", "Dataplanes"),
    ("/gui/policies", "Policies"),
    ("/gui/history", "History"),
    ("/gui/change", "Change"),
    ("/gui/rollouts", "Rollouts"),
];

impl PageFrame<'_> {
    /// The whole page.
    pub(super) fn respond(&self, gui: &Gui, visit: &Visit, content: &Markup) -> Response {
        self.respond_with(StatusCode::OK, gui, visit, content)
    }

    /// The same with another status.
    pub(super) fn respond_with(
        &self,
        status: StatusCode,
        gui: &Gui,
        visit: &Visit,
        content: &Markup,
    ) -> Response {
        let place = match gui.desk.mode().zone() {
            None => "global".to_owned(),
            Some(zone) => format!("zone {zone}"),
        };
        let version = assets::version();
        let page = html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · " (place) " · Strait" }
                    link rel="icon" href=(PreEscaped(ICON));
                    link rel="stylesheet" href={ "/gui/page.css?v=" (version) };
                    script src={ "/gui/page.js?v=" (version) } defer {}
                }
                body data-watches=(self.watches) {
                    a.skip href="#main" { "Skip to content" }
                    header.top {
                        a.brand href="/gui" { "Strait" span.place { (place) } }
                        nav aria-label="Pages" {
                            @let is_global = gui.desk.mode().zone().is_none();
                            @for (address, name) in SECTIONS.into_iter().filter(|(_, name)| is_global || *name != "Rollouts") {
                                a href=(address) aria-current=[(name == self.section).then_some("page")] { (name) }
                            }
                        }
                        (who(visit))
                    }
                    main #main tabindex="-1" {
                        @if !self.trail.is_empty() {
                            p.trail {
                                @for (address, name) in self.trail { a href=(address) { (name) } " / " }
                            }
                        }
                        h1 { (self.title) }
                        (content)
                    }
                    footer {
                        span { "strait " (env!("CARGO_PKG_VERSION")) }
                        span #live role="status" { "as it was when it was loaded" }
                    }
                }
            }
        };
        let mut response = (status, page.into_string()).into_response();
        let form = HeaderValue::from_static("text/html; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, form);
        response
    }

    /// The page where there is nothing to show.
    pub(super) fn fail(&self, gui: &Gui, visit: &Visit, why: &Unanswered) -> Response {
        let content = html! {
            p.note.bad { (why) }
            @if why.status == StatusCode::FORBIDDEN || why.status == StatusCode::UNAUTHORIZED {
                p { a href=(visit.sign_in()) { "Sign in" } " as somebody who may see it." }
            }
        };
        self.respond_with(why.status, gui, visit, &content)
    }
}

fn who(visit: &Visit) -> Markup {
    let user = &visit.asker.user;
    html! {
        div.who {
            @if user.is_anonymous() {
                a href=(visit.sign_in()) { "Sign in" }
            } @else {
                a href=(SESSION) title=(user.groups.join(", ")) { (user.name) }
            }
        }
    }
}
