//! Answers: of a bounded length, without secrets, made off the threads that serve.

use std::collections::BTreeMap;

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use common::{clip::BoundedText, redact, rest::ApiError};
use serde_json::{Map, Value};

/// Bytes of an answer. What it is made of has as many by estimate, and what is written has not one more.
const LONGEST: usize = 64 << 20;

/// How much more fits into an answer.
pub(super) struct AnswerRoom(usize);

impl Default for AnswerRoom {
    fn default() -> Self {
        Self(LONGEST)
    }
}

impl AnswerRoom {
    /// Takes as many bytes of it as this has, by estimate.
    ///
    /// # Errors
    /// 400, which says how to ask for less.
    pub(super) fn admit(&mut self, value: &Value) -> Result<(), ApiError> {
        self.take(weight(value))
    }

    /// The same of so many bytes.
    ///
    /// # Errors
    /// As [`Self::admit`].
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), ApiError> {
        self.0 = self.0.checked_sub(bytes).ok_or_else(too_much)?;
        Ok(())
    }
}

fn too_much() -> ApiError {
    ApiError::bad_request(format!(
        "the answer is longer than {LONGEST} bytes: ask for less with proxyID, mesh, kind or types"
    ))
}

/// What may be shown.
pub(super) struct RedactedDocument(Value);

impl RedactedDocument {
    /// A document without its secrets.
    pub(super) fn of(mut document: Value) -> Self {
        redact::json(&mut document);
        Self(document)
    }

    /// As a part of another one.
    pub(super) fn part(self) -> Value {
        self.0
    }

    /// Several of them as a list.
    pub(super) fn list(all: Vec<Self>) -> Value {
        all.into_iter().map(|one| one.0).collect()
    }

    /// One that is put together of such.
    pub(super) fn assembled(document: Value) -> Self {
        Self(document)
    }

    /// What is told about each type, by type. What stands below the name of the type of secrets is no secret for that:
    /// it is the name of one, or how far somebody is with them.
    pub(super) fn by_type<T: Into<Value>>(types: BTreeMap<String, T>) -> Value {
        let told = types.into_iter().map(|(type_url, told)| {
            let Self(told) = Self::of(told.into());
            (redact::text(&type_url).into_owned(), told)
        });
        Value::Object(Map::from_iter(told))
    }

    /// The same with one more member, which may be shown as well.
    pub(super) fn with(mut self, name: &str, value: Value) -> Self {
        if let Value::Object(members) = &mut self.0 {
            members.insert(name.to_owned(), value);
        }
        self
    }

    /// As it is answered.
    ///
    /// # Errors
    /// 400 when it is too long.
    pub(super) fn written(&self, pretty: bool) -> Result<Vec<u8>, ApiError> {
        written(&self.0, pretty, LONGEST)
    }
}

fn written(document: &Value, pretty: bool, longest: usize) -> Result<Vec<u8>, ApiError> {
    let mut text = BoundedText::new(longest);
    let done = match pretty {
        true => serde_json::to_writer_pretty(&mut text, document),
        false => serde_json::to_writer(&mut text, document),
    };
    done.map_err(|error| match error.is_io() {
        true => too_much(),
        false => ApiError::internal("Could not show an answer", error),
    })?;
    let mut text = text.into_bytes();
    text.push(b'\n');
    text.shrink_to_fit();
    Ok(text)
}

/// An answer of this text.
pub(super) fn response(text: Vec<u8>) -> Response {
    let mut response = Response::new(Body::from(text));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// About how many bytes `value` has when it is written.
fn weight(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) => 5,
        Value::Number(_) => 8,
        Value::String(text) => text.len() + 3,
        Value::Array(items) => 2 + items.iter().map(weight).sum::<usize>(),
        Value::Object(members) => {
            2 + members.iter().map(|(name, value)| name.len() + 4 + weight(value)).sum::<usize>()
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told_of_the_type_of_secrets_is_shown_and_secrets_in_it_are_not() {
        let secret = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret".to_owned();
        let names =
            RedactedDocument::by_type([(secret.clone(), vec!["identity_cert:secret:default"])].into());
        assert_eq!(names[&secret], json!(["identity_cert:secret:default"]));
        let said = json!({"sent": "4", "acked": "3", "lastError": "no", "password": "x"});
        let told = RedactedDocument::by_type([(secret.clone(), said)].into());
        assert_eq!(
            told[&secret],
            json!({"sent": "4", "acked": "3", "lastError": "no", "password": "[redacted]"})
        );
    }

    #[test]
    fn an_answer_has_an_end() {
        let mut room = AnswerRoom(20);
        room.admit(&json!({"name": "web-1"})).unwrap();
        assert_eq!(room.admit(&json!({"name": "web-1"})).unwrap_err().status(), 400);
        // What is written is counted as it is written: a quote takes two bytes.
        let document = json!({"name": "\"\"\"\""});
        let text = "{\"name\":\"\\\"\\\"\\\"\\\"\"}";
        assert_eq!(written(&document, false, text.len()).unwrap(), format!("{text}\n").as_bytes());
        assert_eq!(written(&document, false, text.len() - 1).unwrap_err().status(), 400);
        assert_eq!(written(&document, true, text.len()).unwrap_err().status(), 400);
    }
}
