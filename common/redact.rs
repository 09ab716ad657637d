//! Takes credentials, keys and secrets out of what is shown: dumps of Envoys, settings, insights, and
//! documents for those who may not write them.
//!
//! Two passes. [`names`] knows members that hold something secret whatever it looks like; [`patterns`] knows
//! secrets by their looks, wherever they stand and however they are encoded, in the names of members too
//! ([`members`]). Between them [`places`] knows where anything may stand. What cannot be looked through is withheld, and
//! what is no secret but looks like one is lost: a dump is for people.

mod effort;
mod members;
mod names;
mod patches;
mod patterns;
mod places;
mod structure;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Serialize, de::IgnoredAny};
use serde_json::{Map, Serializer, Value, ser::PrettyFormatter};
use thiserror::Error;
use tokio::{sync::Semaphore, task::spawn_blocking};

use self::effort::{Effort, Nesting};
use crate::{
    clip::{BoundedText, clip, clipped},
    model::{
        self,
        text::{TextError, TextLimits},
    },
};

/// Stands where something was taken out.
pub const REDACTED: &str = "[redacted]";

/// Stands where a control plane masked a setting itself, as Kuma does.
pub const MASKED: &str = "*****";

/// How often something packed is opened to look inside: base64, percent signs, JSON in a string.
const DEPTH: usize = 3;

/// Values of dumps that are looked through at once: as many as one may have.
static AT_ONCE: Semaphore = Semaphore::const_new(TextLimits::DUMP.values);

/// Why a dump is not shown.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Withheld {
    /// Its members cannot be told apart, so neither can its secrets.
    #[error("the answer is withheld, because it is not the JSON it should be")]
    NotJson,
    /// There is more in it than is looked through.
    #[error(
        "the answer is withheld, because there is more in it than is looked through for secrets: ask for less of it, or \
         ask the Envoy itself"
    )]
    TooMuch,
    /// The process stops, or looking through it failed.
    #[error("the answer is withheld, because it could not be searched for secrets: ask again")]
    Unsearched,
}

/// Whether a member of this name holds something that nobody may see.
pub fn is_secret(name: &str) -> bool {
    names::is_secret(name)
}

/// Takes secrets out of a document.
pub fn json(value: &mut Value) {
    walk(value, None);
}

pub use patches::patches;
pub use structure::structure;

/// Takes secrets out of a text; one that holds JSON is looked through as such. A text on which the search would
/// take far longer than its length explains is withheld.
pub fn text(text: &str) -> Cow<'_, str> {
    let effort = Effort::of(text.len());
    text_at(text, effort.start())
}

/// Bytes that are looked through of the words of a peer, for each that is shown and beyond that: what is taken out makes
/// room for what stands behind it.
const SEARCHED: usize = 8;
const SEARCHED_ANYWAY: usize = 4 << 10;

/// What is kept and shown of the words of a peer: without secrets, and so many bytes at most. However much he says, no more
/// is looked through than it takes to show that.
pub fn words(words: &str, longest: usize) -> String {
    let shown = searched(words, longest).map_or(Cow::Borrowed(REDACTED), text);
    clipped(shown.into_owned(), longest)
}

/// What is looked through of them; `None` where that would be half of a document, which has no members to tell secrets by.
fn searched(words: &str, longest: usize) -> Option<&str> {
    let part = clip(words, longest.saturating_mul(SEARCHED).saturating_add(SEARCHED_ANYWAY));
    if part.len() == words.len() {
        return Some(words);
    }
    if part.trim_start().starts_with(['{', '[']) {
        return None;
    }
    // Half of a line may be no document any more, and half of a word no secret that is known by its looks. Where a line is
    // so long that there would be little left to show, it is cut: its end is far behind what is shown.
    let lines = part.rfind('\n').filter(|end| *end >= longest);
    let end = lines.or_else(|| part.rfind(char::is_whitespace));
    Some(end.map_or(part, |end| &part[..end]))
}

fn text_at<'a>(text: &'a str, at: Nesting<'_>) -> Cow<'a, str> {
    document_in(text, at).map_or_else(|| patterns::clean(text, at), Cow::Owned)
}

/// Takes secrets out of an answer of an Envoy, off the threads that serve requests. Whoever answers decides how long and
/// of what that is, so what it takes to look through it has a limit, for one and for all together.
///
/// # Errors
/// [`Withheld`] when it cannot be looked through.
pub async fn dump(body: Bytes, is_json: bool) -> Result<Bytes, Withheld> {
    let limits = TextLimits::DUMP;
    if body.len() > limits.bytes {
        return Err(Withheld::TooMuch);
    }
    // As many values as that has at most.
    let values = body.len() / 2 + 1;
    off_thread(
        values,
        move || if is_json { dumped_json(&body, limits) } else { dumped_text(&body, limits.bytes) },
    )
    .await?
}

fn dumped_json(body: &[u8], limits: TextLimits) -> Result<Bytes, Withheld> {
    let refused = |error: TextError| if error.is_of_amount() { Withheld::TooMuch } else { Withheld::NotJson };
    let mut document = model::text::json(body, limits).map_err(refused)?;
    json(&mut document);
    // It is indented now, which may be most of it.
    pretty(&document, limits.bytes).map(Bytes::from).ok_or(Withheld::TooMuch)
}

fn dumped_text(body: &Bytes, longest: usize) -> Result<Bytes, Withheld> {
    let shown = match text(&String::from_utf8_lossy(body)) {
        Cow::Owned(text) => text.into(),
        Cow::Borrowed(same) if same.len() == body.len() => body.clone(),
        Cow::Borrowed(lossy) => lossy.to_owned().into(),
    };
    if shown.len() > longest { Err(Withheld::TooMuch) } else { Ok(shown) }
}

/// Takes secrets out of a large document, off the threads that serve requests.
///
/// # Errors
/// [`Withheld::Unsearched`].
pub async fn document(mut document: Value) -> Result<Value, Withheld> {
    // Two of them at a time: they are made here, and there already.
    off_thread(TextLimits::DUMP.values / 2, move || {
        json(&mut document);
        document
    })
    .await
}

/// Does `work` on so many values when there is room for that.
async fn off_thread<T: Send + 'static>(
    values: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Withheld> {
    let values = u32::try_from(values.min(TextLimits::DUMP.values)).unwrap_or(u32::MAX);
    let turn = AT_ONCE.acquire_many(values).await.map_err(|_| Withheld::Unsearched)?;
    let working = spawn_blocking(move || {
        let done = work();
        // What nobody waits for any more is done all the same, and takes its room until then.
        drop(turn);
        done
    });
    working.await.map_err(|_| Withheld::Unsearched)
}

/// Indented as Envoy does it; `None` when that is longer than it may be.
fn pretty(document: &Value, longest: usize) -> Option<Vec<u8>> {
    let mut text = BoundedText::new(longest);
    let mut serializer = Serializer::with_formatter(&mut text, PrettyFormatter::with_indent(b" "));
    document.serialize(&mut serializer).ok()?;
    let mut text = text.into_bytes();
    text.push(b'\n');
    text.shrink_to_fit();
    Some(text)
}

fn walk(value: &mut Value, at: Option<Nesting<'_>>) {
    match value {
        Value::Object(members) => object(members, at),
        Value::Array(items) => items.iter_mut().for_each(|item| walk(item, at)),
        Value::String(text) => clean(text, at),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn object(members: &mut Map<String, Value>, at: Option<Nesting<'_>>) {
    // `{"key": "authorization", "value": …}` and its kin.
    let pair = names::PAIR_NAMES
        .iter()
        .any(|name| members.get(*name).and_then(Value::as_str).is_some_and(names::is_secret_header));
    let typed = names::secret_members(members);
    for (name, member) in members.iter_mut() {
        places::withhold(name, member, pair, at);
        let is_value = names::PAIR_VALUES.contains(&name.as_str()) || places::is_otherwise(name, member);
        let by_pair = pair && is_value;
        if by_pair || typed.contains(&name.as_str()) {
            conceal(member, at);
        } else if names::is_secret(name) && !names::is_envelope(member) && !names::is_report(name, member) {
            conceal_as(name, member, at);
        } else {
            walk(member, at);
        }
    }
    members::rename(members, |name| text_within(name, at));
}

/// Takes out the value of a member whose name says that it is secret.
fn conceal_as(name: &str, value: &mut Value, at: Option<Nesting<'_>>) {
    match value {
        // Buckets hold tokens, too.
        Value::Number(_) if names::counts(name) => {}
        Value::Number(_) => *value = REDACTED.into(),
        Value::Object(resources) if names::is_type_url(name) => {
            // What there is of a type, by name: the names are not the secrets.
            resources.values_mut().for_each(|resource| conceal(resource, at));
            members::rename(resources, |name| text_within(name, at));
        }
        _ => conceal(value, at),
    }
}

/// Takes out every text in `value`, but for what says where the secret is kept.
fn conceal(value: &mut Value, at: Option<Nesting<'_>>) {
    match value {
        Value::String(text) if text.is_empty() || text == MASKED => {}
        Value::String(text) => REDACTED.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| conceal(item, at)),
        Value::Object(members) => {
            let is_pair = names::PAIR_VALUES.iter().any(|name| members.contains_key(*name));
            let by_reference = members.contains_key("sdsConfig");
            for (name, member) in members.iter_mut() {
                match name.as_str() {
                    "@type" | "filename" | "environmentVariable" => walk(member, at),
                    "key" if is_pair => walk(member, at),
                    "name" | "sdsConfig" if by_reference => walk(member, at),
                    _ => conceal(member, at),
                }
            }
            members::rename(members, |name| match names::is_field(name) {
                true => Cow::Borrowed(name),
                false => Cow::Borrowed(REDACTED),
            });
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Each text of a document is searched for its own, one inside another for the outer one.
fn clean(text: &mut String, at: Option<Nesting<'_>>) {
    let cleaned = text_within(text, at);
    if *cleaned != **text {
        *text = cleaned.into_owned();
    }
}

fn text_within<'a>(text: &'a str, at: Option<Nesting<'_>>) -> Cow<'a, str> {
    match at {
        Some(at) => text_at(text, at),
        None => self::text(text),
    }
}

/// What a text becomes that is a document with secrets in it, in JSON or YAML.
fn document_in(text: &str, at: Nesting<'_>) -> Option<String> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    if !at.opens() || !(is_json || may_be_yaml(text)) {
        return None;
    }
    if !at.spend(text.len()) {
        return Some(REDACTED.to_owned());
    }
    // What is YAML is shown as JSON then, which is YAML as well.
    let mut document = match read(text, is_json) {
        Reading::Document(document) => document,
        Reading::Ambiguous => return Some(REDACTED.to_owned()),
        Reading::Words => return None,
    };
    if !document.is_object() && !document.is_array() {
        return None;
    }
    let before = document.clone();
    walk(&mut document, Some(at.deeper()));
    if document == before {
        return None;
    }
    // An alias repeats under another name what an anchor marks.
    let repeats = !is_json && text.contains('&');
    Some(if repeats { REDACTED.to_owned() } else { document.to_string() })
}

/// What a text is that looks like a document.
enum Reading {
    Document(Value),
    /// Others may read something else in it than is seen here, or there is more of it than is read.
    Ambiguous,
    /// No document.
    Words,
}

fn read(text: &str, is_json: bool) -> Reading {
    if is_json {
        match model::text::json(text.as_bytes(), TextLimits::BODY) {
            Ok(document) => return Reading::Document(document),
            // What others take for JSON and is not read here, such as a member that stands twice.
            Err(_) if serde_json::from_str::<IgnoredAny>(text).is_ok() => return Reading::Ambiguous,
            Err(_) => {}
        }
    }
    match model::text::yaml(text, TextLimits::BODY) {
        Ok(document) => Reading::Document(document),
        Err(error) if error.is_of_repetition() => Reading::Ambiguous,
        Err(_) => Reading::Words,
    }
}

/// Whether lines of `text` begin like members or items: everything that people write into a document as a document has
/// some, and few other texts have two. What stands in one line is left to patterns.
fn may_be_yaml(text: &str) -> bool {
    let is_one = |line: &str| {
        let line = line.trim_start();
        let member = line.split_once(':').is_some_and(|(name, value)| {
            !name.is_empty() && (value.is_empty() || value.starts_with([' ', '\t', '\r']))
        });
        member || line.starts_with("- ")
    };
    text.lines().filter(|line| is_one(line)).nth(1).is_some()
}

#[cfg(test)]
mod tests;
