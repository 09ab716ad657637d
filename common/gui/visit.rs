//! One look at the page: who looks, with which address, and what the API says to that.

use std::{convert::Infallible, fmt::Display};

use axum::{
    extract::FromRequestParts,
    http::{Method, StatusCode, request::Parts},
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

use super::Gui;
use crate::{
    rest::{Asker, DeskAnswer, LOGIN, PAGE, SESSION},
    runtime::http::Crowded,
};

/// Longest address that is come back to.
const LONGEST_WAY: usize = 1024;

/// What stays as it is in a part of an address.
const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// One part of an address.
pub(super) fn encode(part: &str) -> String {
    utf8_percent_encode(part, KEPT).to_string()
}

/// An address with these parameters, without those that are empty.
pub(super) fn address(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(key, value)| format!("{key}={}", encode(value))).collect();
    if pairs.is_empty() { path.to_owned() } else { format!("{path}?{}", pairs.join("&")) }
}

/// `to`, where it is an address of the page to come back to, and the overview else: nobody is led to somewhere else.
pub(super) fn within(to: &str) -> &str {
    let path = to.split(['?', '#']).next().unwrap_or_default();
    let is_of_page = path == PAGE || path.strip_prefix(PAGE).is_some_and(|rest| rest.starts_with('/'));
    let is_plain = to.len() <= LONGEST_WAY && to.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let leads_on = [SESSION, LOGIN].iter().any(|begin| path.starts_with(begin));
    let is_straight = !path.contains("//") && !path.contains("..");
    if is_of_page && is_plain && is_straight && !leads_on { to } else { PAGE }
}

/// Names and values that are looked at in a form or an address: each takes more room than the two bytes it may have there.
pub(super) const PAIRS: usize = 32;

/// Names and values, as an address has them.
fn pairs(encoded: &str) -> Vec<(String, String)> {
    let decoded = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
    };
    let pairs = encoded.split('&').filter(|pair| !pair.is_empty()).take(PAIRS);
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(k, v)| (decoded(k), decoded(v)))
        .collect()
}

/// Who looks, at which address.
pub(super) struct Visit {
    pub(super) asker: Asker,
    pub(super) path: String,
    query: Vec<(String, String)>,
}

impl<S: Sync> FromRequestParts<S> for Visit {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Infallible> {
        let query = pairs(parts.uri.query().unwrap_or_default());
        Ok(Self { asker: Asker::of(parts), path: parts.uri.path().to_owned(), query })
    }
}

impl Visit {
    /// A parameter, empty where there is none.
    pub(super) fn parameter(&self, name: &str) -> &str {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.trim()).unwrap_or_default()
    }

    /// Where one signs in and comes back to here.
    pub(super) fn sign_in(&self) -> String {
        let given = self.query.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let here = address(&self.path, &given.collect::<Vec<_>>());
        let to = within(&here);
        address(SESSION, &[("to", if to == PAGE { "" } else { to })])
    }

    /// The same address with another value of one parameter.
    pub(super) fn with(&self, name: &str, value: &str) -> String {
        let others = self.query.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let others = others.filter(|(key, _)| *key != name);
        address(&self.path, &others.chain([(name, value)]).collect::<Vec<_>>())
    }
}

/// The API did not give what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Unanswered {
    pub(super) status: StatusCode,
    pub(super) reason: String,
}

impl Display for Unanswered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)
    }
}

impl From<&DeskAnswer> for Unanswered {
    fn from(answer: &DeskAnswer) -> Self {
        Self { status: answer.status, reason: answer.reason() }
    }
}

impl From<Crowded> for Unanswered {
    fn from(crowded: Crowded) -> Self {
        Self { status: StatusCode::SERVICE_UNAVAILABLE, reason: crowded.to_string() }
    }
}

impl Gui {
    /// What `GET` answers to who looks, of what is short. Of what may be long a page takes [`Self::part`].
    pub(super) async fn get(&self, visit: &Visit, path: &str) -> Result<Value, Unanswered> {
        self.part(visit, path, |answer| answer).await
    }

    /// What `part` makes of what `GET` answers to who looks. A long answer is read off the threads that serve
    /// everybody, and a page keeps no more of it than it shows.
    pub(super) async fn part<T: Send + 'static>(
        &self,
        visit: &Visit,
        path: &str,
        part: impl FnOnce(Value) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let answer = self.desk.get(&visit.asker, path).await;
        if answer.status.is_success() {
            Ok(self.desk.read(answer, part).await)
        } else {
            Err(Unanswered::from(&answer))
        }
    }

    /// The same of what is not JSON.
    pub(super) async fn text_part<T: Send + 'static>(
        &self,
        visit: &Visit,
        path: &str,
        part: impl FnOnce(&str) -> T + Send + 'static,
    ) -> Result<T, Unanswered> {
        let answer = self.desk.get(&visit.asker, path).await;
        if answer.status.is_success() {
            Ok(self.desk.work(answer.bytes(), move || part(&answer.text())).await)
        } else {
            Err(Unanswered::from(&answer))
        }
    }

    /// What `part` makes of the items of a list, of up to a thousand; of none where they may not be seen.
    pub(super) async fn list<T: Send + 'static>(
        &self,
        visit: &Visit,
        path: &str,
        part: impl FnOnce(&[Value]) -> T + Send + 'static,
    ) -> T {
        let answer = self.desk.get(&visit.asker, &address(path, &[("size", "1000")])).await;
        let is_seen = answer.status.is_success();
        let read = move |list: Value| {
            let items = list["items"].as_array().filter(|_| is_seen);
            part(items.map(Vec::as_slice).unwrap_or_default())
        };
        self.desk.read(answer, read).await
    }

    /// Changes something for who looks, with a `body` of JSON.
    pub(super) async fn send(
        &self,
        visit: &Visit,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> DeskAnswer {
        self.desk.ask(&visit.asker, method, path, body).await
    }
}
