//! Forms that were sent.

use axum::extract::Request;
use percent_encoding::percent_decode_str;

use super::{Gui, visit::PAIRS};
use crate::rest::{BodyError, ReceivedBody};

/// Longest form in bytes that has no documents in it: a token, an address, names.
pub(super) const SHORT: usize = 16 << 10;

/// The fields of a form.
pub(super) struct FormFields {
    fields: Vec<(&'static str, String)>,
    /// Keeps the room that the body was given: the fields together are no longer than that.
    _body: ReceivedBody,
}

impl FormFields {
    /// Those of these names out of the body of a request, of at most `limit` bytes. Nothing is made of any other, of which
    /// there may be one in every two bytes.
    pub(super) async fn read(
        gui: &Gui,
        request: Request,
        limit: usize,
        names: &'static [&'static str],
    ) -> Result<Self, BodyError> {
        let body = gui.desk.body(request, limit).await?;
        let length = body.len();
        let decode = move || {
            let fields = fields(&body, names);
            Self { fields, _body: body }
        };
        Ok(gui.desk.work(length, decode).await)
    }

    /// One of them, empty where there is none.
    pub(super) fn get(&self, name: &str) -> &str {
        self.fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

/// The first of each name. What is no text is left out: with signs in place of its bytes it would be longer than it is.
fn fields(body: &[u8], names: &[&'static str]) -> Vec<(&'static str, String)> {
    let Ok(body) = std::str::from_utf8(body) else { return Vec::new() };
    let mut fields: Vec<(&'static str, String)> = Vec::new();
    for pair in body.split('&').take(PAIRS) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = names.iter().find(|name| **name == key) else { continue };
        if fields.iter().any(|(seen, _)| seen == name) {
            continue;
        }
        let spaced = value.replace('+', " ");
        if let Ok(value) = percent_decode_str(&spaced).decode_utf8() {
            fields.push((*name, value.into_owned()));
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_fields_that_are_asked_for_are_kept() {
        let read = |body: &str| fields(body.as_bytes(), &["token", "to"]);
        let of = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        assert_eq!(read("to=%2Fgui%2Fzones&token=a+b"), of(&[("to", "/gui/zones"), ("token", "a b")]));
        assert_eq!(read("token=first&token=second&other=x&to"), of(&[("token", "first"), ("to", "")]));
        assert_eq!(read(&"a&".repeat(100_000)), of(&[]));
        assert_eq!(read(&format!("{}token=late", "a&".repeat(PAIRS))), of(&[]), "no form has so many");
        assert_eq!(read("token=%FF&to=x"), of(&[("to", "x")]));
        assert_eq!(fields(b"token=\xff", &["token"]), of(&[]));
    }
}
