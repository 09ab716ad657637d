//! What pages are shown with, out of the binary.

use std::sync::LazyLock;

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

const CSS: &str = include_str!("assets/page.css");
const JS: &str = include_str!("assets/page.js");

/// Changes with the files, so that browsers may keep them.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{:08x}", crc32fast::hash(CSS.as_bytes()) ^ crc32fast::hash(JS.as_bytes()).rotate_left(1))
});

/// What an address of a file ends with.
pub(super) fn version() -> &'static str {
    &VERSION
}

pub(super) async fn css() -> Response {
    file(CSS, "text/css; charset=utf-8")
}

pub(super) async fn js() -> Response {
    file(JS, "text/javascript; charset=utf-8")
}

fn file(text: &'static str, form: &'static str) -> Response {
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"));
    response
}
