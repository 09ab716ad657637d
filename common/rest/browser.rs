//! Where people with a browser are: the page, which is no part of the API and goes through the same door.

/// Where the page is.
pub const PAGE: &str = "/gui";
/// Where its readers say who they are.
pub const SESSION: &str = "/gui/session";
/// Where they take it back.
pub const SESSION_END: &str = "/gui/session/end";

/// Where they are sent on to the provider that vouches for them.
pub const LOGIN: &str = "/gui/login";
/// Where they come back from there.
pub const LOGIN_DONE: &str = "/gui/login/done";

/// Whether `path` is one of the page.
pub(super) fn is_page(path: &str) -> bool {
    path.strip_prefix(PAGE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
