//! Answers that show what is for a few.

use axum::response::Response;

/// On an answer that shows what is for a few, so that who asked for it is taken down.
#[derive(Clone, Copy, Debug)]
pub(super) struct Confidential;

impl Confidential {
    /// Says so of `response`.
    pub(super) fn mark(response: &mut Response) {
        response.extensions_mut().insert(Self);
    }

    /// Whether somebody said so of `response`.
    pub(super) fn is_on(response: &Response) -> bool {
        response.extensions().get::<Self>().is_some()
    }
}
