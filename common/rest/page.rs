//! Pages of a list: of so many items, and of fewer where they are long.

use std::{
    cell::{Cell, RefCell},
    io,
    num::IntErrorKind,
};

use axum::{
    extract::Request,
    http::{StatusCode, header},
    response::Response,
};
use serde::{
    Serialize, Serializer,
    ser::{Error, SerializeSeq},
};
use serde_json::{Value, json};

use super::{
    ApiError,
    body::{json_text, pretty},
};
use crate::runtime::http::Connection;

const DEFAULT_SIZE: usize = 100;
const MAX_SIZE: usize = 1000;
/// A page that has become so long is over: the rest of it is on the next.
const LONG: usize = 4 << 20;

/// The query of a request, decoded, in its order.
pub(super) type Query = Vec<(String, String)>;

/// Which part of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    size: usize,
    offset: usize,
}

impl Page {
    /// From the parameters `size` and `offset`.
    pub(super) fn parse(query: &Query, title: &'static str) -> Result<Self, ApiError> {
        let size = value(query, "size").map_or(Ok(DEFAULT_SIZE), |text| {
            let invalid = |reason: String| {
                ApiError::new(StatusCode::BAD_REQUEST, title, "Invalid page size")
                    .with_parameter("size", reason)
            };
            match text.parse::<i64>() {
                Err(_) => Err(invalid("invalid format".to_owned())),
                Ok(size) if size <= 0 => Err(invalid("must be greater than 0".to_owned())),
                Ok(size) => match usize::try_from(size) {
                    Ok(size) if size <= MAX_SIZE => Ok(size),
                    _ => {
                        Err(invalid(format!("invalid page size of {size}. Maximum page size is {MAX_SIZE}")))
                    }
                },
            }
        })?;
        let offset = value(query, "offset").map_or(Ok(0), |text| {
            let invalid = |reason: String| {
                ApiError::new(StatusCode::BAD_REQUEST, title, format!("invalid: invalid offset: {reason}"))
            };
            // Clients compare these texts, down to the function they name.
            let number = text.parse::<i64>().map_err(|error| {
                let reason = match error.kind() {
                    IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                invalid(format!("strconv.Atoi: parsing {text:?}: {reason}"))
            })?;
            usize::try_from(number).map_err(|_| invalid("it must not be negative".to_owned()))
        })?;
        Ok(Self { size, offset })
    }

    /// The part of `items` on this page.
    pub(super) fn cut<T>(self, items: Vec<T>) -> Vec<T> {
        items.into_iter().skip(self.offset).take(self.size).collect()
    }

    /// The answer to a request for this page of a list of `total`. Its items are taken one by one, until there
    /// are none left or the page is [`LONG`].
    pub(super) fn respond(
        self,
        link: PageLink,
        total: usize,
        items: impl Iterator<Item = Result<Value, ApiError>>,
    ) -> Result<Response, ApiError> {
        let (written, failed) = (Cell::new(0), Cell::new(None));
        let (items, shown) = (RefCell::new(items), Cell::new(0));
        let listing = Listing {
            total,
            items: Items { items: &items, written: &written, shown: &shown, failed: &failed },
            next: Next { link: &link, page: self, total, shown: &shown },
        };
        let mut text = Vec::with_capacity(1024);
        let encoded = pretty(&listing, MeasuredWriter { text: &mut text, written: &written });
        if let Some(error) = failed.take() {
            return Err(error);
        }
        encoded.map_err(|error| ApiError::internal("Could not encode a list", error))?;
        Ok(json_text(StatusCode::OK, text))
    }

    /// This page of short items, which says what is next only when there is more.
    pub(super) fn brief(self, link: &PageLink, all: Vec<Value>) -> Value {
        let total = all.len();
        let items = self.cut(all);
        let end = self.offset.saturating_add(items.len());
        let mut list = json!({"total": total, "items": items});
        if end < total {
            list["next"] = link.to(end).into();
        }
        list
    }
}

/// A page as it is written: how long its items are decides what is next.
#[derive(Serialize)]
struct Listing<'a, I> {
    total: usize,
    #[serde(bound(serialize = "I: Iterator<Item = Result<Value, ApiError>>"))]
    items: Items<'a, I>,
    next: Next<'a>,
}

struct Items<'a, I> {
    items: &'a RefCell<I>,
    written: &'a Cell<usize>,
    shown: &'a Cell<usize>,
    failed: &'a Cell<Option<ApiError>>,
}

impl<I: Iterator<Item = Result<Value, ApiError>>> Serialize for Items<'_, I> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut items = serializer.serialize_seq(None)?;
        while self.written.get() < LONG {
            let Some(item) = self.items.borrow_mut().next() else { break };
            let item = item.map_err(|error| {
                self.failed.set(Some(error));
                S::Error::custom("an item cannot be shown")
            })?;
            items.serialize_element(&item)?;
            self.shown.set(self.shown.get() + 1);
        }
        items.end()
    }
}

struct Next<'a> {
    link: &'a PageLink,
    page: Page,
    total: usize,
    shown: &'a Cell<usize>,
}

impl Serialize for Next<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let end = self.page.offset.saturating_add(self.shown.get());
        (end < self.total).then(|| self.link.to(end)).serialize(serializer)
    }
}

/// Says how much was written.
struct MeasuredWriter<'a> {
    text: &'a mut Vec<u8>,
    written: &'a Cell<usize>,
}

impl io::Write for MeasuredWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        self.written.set(self.text.len());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One query parameter; an empty one counts as absent.
pub(super) fn value<'a>(query: &'a Query, name: &str) -> Option<&'a str> {
    query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str()).filter(|v| !v.is_empty())
}

/// Where the pages of a list are: the address the client used, with another offset.
pub(super) struct PageLink {
    /// Up to the query.
    address: String,
    query: Query,
}

impl PageLink {
    /// Lets go of the request: whoever waits for a long answer holds no more than this.
    pub(super) fn of(request: Request, mut query: Query) -> Self {
        let tls = request.extensions().get::<Connection>().is_some_and(|c| c.tls);
        let scheme = if tls { "https" } else { "http" };
        let (headers, uri) = (request.headers(), request.uri());
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        let host = host.or_else(|| uri.authority().map(|a| a.as_str())).unwrap_or_default();
        query.retain(|(key, _)| key != "offset");
        Self { address: format!("{scheme}://{host}{}", uri.path()), query }
    }

    fn to(&self, offset: usize) -> String {
        let offset = ("offset".to_owned(), offset.to_string());
        let mut pairs: Vec<_> = self.query.iter().chain([&offset]).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        let encoded: Vec<String> =
            pairs.iter().map(|(k, v)| format!("{}={}", encode(k), encode(v))).collect();
        format!("{}?{}", self.address, encoded.join("&"))
    }
}

fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' | b'-' | b'_' | b'.' | b'~' => {
                encoded.push(char::from(byte));
            }
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}
