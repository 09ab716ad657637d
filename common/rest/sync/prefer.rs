//! The revision of a write in the body of its answer, for who asks for it there.
//!
//! Clients of Kuma get the body that they know; only a request with `Prefer: revision` gets one with a member more.

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use serde_json::{Value, json};

use super::REVISION;
use crate::{rest::body::json_response, store::Revision};

const PREFER: HeaderName = HeaderName::from_static("prefer");
const APPLIED: HeaderName = HeaderName::from_static("preference-applied");
/// The preference, and the member it adds.
const NAME: &str = "revision";

/// What the client of a write likes to read in the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rest) enum Preference {
    /// What clients of Kuma read.
    Usual,
    /// The revision as well.
    Revision,
}

impl Preference {
    /// What the headers of a request say.
    pub(in crate::rest) fn of(headers: &HeaderMap) -> Self {
        let all = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
        let mut names = all.flat_map(|value| value.split(',')).map(|one| one.trim());
        match names.any(|name| name.eq_ignore_ascii_case(NAME)) {
            true => Self::Revision,
            false => Self::Usual,
        }
    }

    /// The answer to a write that was stored at `revision`.
    pub(in crate::rest) fn answer(
        self,
        status: StatusCode,
        mut body: Value,
        revision: Revision,
    ) -> axum::response::Response {
        if let (Self::Revision, Some(members)) = (self, body.as_object_mut()) {
            members.insert(NAME.to_owned(), json!(revision));
        }
        let mut answer = json_response(status, &body);
        answer.headers_mut().insert(REVISION, HeaderValue::from(revision));
        if self == Self::Revision {
            answer.headers_mut().insert(APPLIED, HeaderValue::from_static(NAME));
        }
        answer
    }
}
