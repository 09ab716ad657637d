//! What was refused on either side of the sync, and offering it again.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::{Method, StatusCode},
    response::{IntoResponse, Redirect, Response},
};
use maud::{Markup, html};

use super::{
    Gui,
    form::{FormFields, SHORT},
    layout::PageFrame,
    parts::table,
    visit::{Unanswered, Visit, address, encode},
};

/// What is refused of one type.
pub(super) struct RefusedRow<'a> {
    /// Who refused it.
    pub(super) by: &'a str,
    pub(super) kind: &'a str,
    pub(super) reason: &'a str,
    /// This control plane is who offers it.
    pub(super) is_ours: bool,
}

/// All of it, with buttons for who may use them.
pub(super) fn list(visit: &Visit, zone: &str, rows: &[RefusedRow<'_>], nothing: &str) -> Markup {
    let cells: Vec<_> = rows
        .iter()
        .map(|row| {
            let button = (row.is_ours && !visit.asker.user.is_anonymous()).then_some(row.kind);
            vec![
                html! { (row.kind) },
                html! { (row.by) },
                html! { (row.reason) },
                html! { @if let Some(kind) = button { (offering(zone, kind, "Offer again")) } },
            ]
        })
        .collect();
    let offered = rows.iter().filter(|row| row.is_ours).count();
    html! {
        (table(&["Type", "Refused by", "Why", ""], &cells, nothing))
        @if offered > 1 && !visit.asker.user.is_anonymous() { (offering(zone, "", "Offer all of it again")) }
        @if offered > 0 && visit.asker.user.is_anonymous() { p.quiet { "Sign in to offer it again." } }
    }
}

fn offering(zone: &str, kind: &str, words: &str) -> Markup {
    html! {
        form.inline method="post" action={ "/gui/zones/" (encode(zone)) "/offer" } {
            input type="hidden" name="kind" value=(kind);
            button { (words) }
        }
    }
}

/// An operator wants it to be tried once more.
pub(super) async fn offer(
    State(gui): State<Arc<Gui>>,
    Path(zone): Path<String>,
    visit: Visit,
    request: Request,
) -> Response {
    let frame = PageFrame { title: &zone, section: "Zones", trail: &[("/gui/zones", "Zones")], watches: "" };
    let fields = match FormFields::read(&gui, request, SHORT, &["kind", "mesh", "name"]).await {
        Ok(fields) => fields,
        Err(error) => {
            let why = Unanswered { status: error.status(), reason: error.to_string() };
            return frame.fail(&gui, &visit, &why);
        }
    };
    let path = match gui.desk.mode().zone() {
        Some(own) if own != zone => {
            let reason = "what another zone refused is offered again by global".to_owned();
            return frame.fail(&gui, &visit, &Unanswered { status: StatusCode::NOT_FOUND, reason });
        }
        Some(_) => "/strait/link/offer".to_owned(),
        None => format!("/strait/zones/{}/offer", encode(&zone)),
    };
    let meant = ["kind", "mesh", "name"].map(|field| (field, fields.get(field)));
    let answer = gui.send(&visit, Method::POST, &address(&path, &meant), None).await;
    if answer.status.is_success() {
        return Redirect::to(&format!("/gui/zones/{}", encode(&zone))).into_response();
    }
    frame.fail(&gui, &visit, &Unanswered::from(&answer))
}
