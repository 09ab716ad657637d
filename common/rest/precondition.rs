//! `If-Match` and `If-None-Match`: a write on the condition that the resource is, or is not, as the client
//! knows it.
//!
//! The entity tag of a resource is the revision of its last change. A condition is judged on the index the
//! write is decided on, and the write is committed only while the resource is at the revision it has
//! there, so nothing comes between.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};

use super::ApiError;
use crate::{
    model::Resource,
    store::{Revision, index::IndexReader},
};

/// What may stand around the members of a list.
const BLANK: [char; 2] = [' ', '\t'];

/// What a client says about the resource it writes.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    matches: Option<EntityTags>,
    none_matches: Option<EntityTags>,
}

/// A list of entity tags.
#[derive(Debug)]
enum EntityTags {
    /// `*`: whatever exists.
    Any,
    Listed(Vec<EntityTag>),
}

#[derive(Debug)]
struct EntityTag {
    weak: bool,
    text: String,
}

impl Conditions {
    /// From the headers of a request.
    ///
    /// # Errors
    /// 400 for a header that is no list of entity tags.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, ApiError> {
        Ok(Self {
            matches: EntityTags::of(headers, &header::IF_MATCH)?,
            none_matches: EntityTags::of(headers, &header::IF_NONE_MATCH)?,
        })
    }

    /// Whether a write may go on over what exists now.
    ///
    /// # Errors
    /// 412 that says what is there.
    pub(super) fn check(&self, title: &'static str, existing: Option<&Resource>) -> Result<(), ApiError> {
        let has =
            |tags: &EntityTags, strong: bool| existing.is_some_and(|resource| tags.name(resource, strong));
        let is_missed = self.matches.as_ref().is_some_and(|tags| !has(tags, true));
        let is_hit = self.none_matches.as_ref().is_some_and(|tags| has(tags, false));
        if !is_missed && !is_hit {
            return Ok(());
        }
        let now = match existing {
            Some(resource) => format!("its entity tag is {}: read it again", tag(resource)),
            None => "it does not exist".to_owned(),
        };
        let condition = if is_missed { "If-Match" } else { "If-None-Match" };
        let detail = format!("the resource is not as {condition} says: {now}");
        Err(ApiError::new(StatusCode::PRECONDITION_FAILED, title, detail))
    }

    /// Whether a reader has this already.
    pub(super) fn has_already(&self, resource: &Resource) -> bool {
        self.none_matches.as_ref().is_some_and(|tags| tags.name(resource, false))
    }

    /// The newest revision the client knows of. It may have read it from another replica.
    pub(super) fn newest(&self) -> Option<Revision> {
        let lists = [&self.matches, &self.none_matches].into_iter().flatten();
        let tags = lists.filter_map(|tags| match tags {
            EntityTags::Listed(tags) => Some(tags),
            EntityTags::Any => None,
        });
        tags.flatten().filter_map(|tag| tag.text.parse().ok()).max()
    }
}

impl EntityTags {
    fn of(headers: &HeaderMap, name: &HeaderName) -> Result<Option<Self>, ApiError> {
        let mut listed = Vec::new();
        let mut any = false;
        for value in headers.get_all(name) {
            let wrong = || ApiError::bad_request(format!("{name} is neither * nor a list of entity tags"));
            let rest = value.to_str().map_err(|_| wrong())?.trim_matches(BLANK);
            if rest == "*" {
                any = true;
                continue;
            }
            EntityTag::read_list(rest, &mut listed).ok_or_else(wrong)?;
        }
        Ok(match headers.contains_key(name) {
            false => None,
            true if any => Some(Self::Any),
            true => Some(Self::Listed(listed)),
        })
    }

    /// A weak tag never stands for exactly what is there.
    fn name(&self, resource: &Resource, strong: bool) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(tags) => {
                let revision = resource.revision.to_string();
                tags.iter().any(|tag| tag.text == revision && !(strong && tag.weak))
            }
        }
    }
}

impl EntityTag {
    /// Adds the tags of one header; members of a list may be empty. `None` for what is no list of them.
    fn read_list(mut rest: &str, listed: &mut Vec<Self>) -> Option<()> {
        loop {
            rest = rest.trim_start_matches(BLANK);
            if !rest.is_empty() && !rest.starts_with(',') {
                let (tag, after) = Self::read(rest)?;
                listed.push(tag);
                rest = after.trim_start_matches(BLANK);
            }
            match rest.strip_prefix(',') {
                Some(next) => rest = next,
                None => return rest.is_empty().then_some(()),
            }
        }
    }

    /// RFC 9110, section 8.8.3: `W/`, once and with a capital, or nothing, then what stands between quotes and
    /// has neither blanks nor control characters in it.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (weak, opaque) = match text.strip_prefix("W/") {
            Some(opaque) => (true, opaque),
            None => (false, text),
        };
        let (text, after) = opaque.strip_prefix('"')?.split_once('"')?;
        text.bytes()
            .all(|b| b == b'!' || b > b'"' && b != 0x7f)
            .then(|| (Self { weak, text: text.to_owned() }, after))
    }
}

fn tag(resource: &Resource) -> String {
    format!("\"{}\"", resource.revision)
}

/// The answer, with the entity tag of the resource it shows.
pub(super) fn tagged(mut response: Response, resource: &Resource) -> Response {
    if let Ok(value) = HeaderValue::try_from(tag(resource)) {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

/// Waits, if need be, until the index shows what the client has read elsewhere. Not longer than for what the
/// store is known to have: the revision may be made up.
pub(super) fn awaited(conditions: &Conditions, index: &IndexReader, head: Revision) -> Option<Revision> {
    conditions.newest().map(|known| known.min(head)).filter(|known| *known > index.current().revision)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;

    use super::*;
    use crate::model::{ResourceKey, kinds};

    #[test]
    fn conditions_are_judged_as_http_says() {
        let mut resource =
            Resource::new(ResourceKey::global(&kinds::mesh::KIND, "default"), DateTime::UNIX_EPOCH);
        resource.revision = 7;
        let check = |name: HeaderName, value: &str, there: bool, good: bool| {
            let headers = HeaderMap::from_iter([(name.clone(), HeaderValue::from_str(value).unwrap())]);
            let conditions = Conditions::of(&headers).unwrap();
            let checked = conditions.check("Could not", there.then_some(&resource));
            assert_eq!(checked.is_ok(), good, "{name}: {value} {there}");
        };
        for (value, matches) in [
            ("*", true),
            ("\"7\"", true),
            ("\"6\", \"7\"", true),
            ("\"6\"", false),
            ("\"6\",", false),
            (" , ,\"6\"\t,\"7\", ", true),
            ("\"!7\"", false),
            ("\"\"", false),
            (",", false),
            ("\"70\"", false),
            ("", false),
        ] {
            check(header::IF_MATCH, value, true, matches);
            check(header::IF_MATCH, value, false, false);
            check(header::IF_NONE_MATCH, value, true, !matches);
            check(header::IF_NONE_MATCH, value, false, true);
        }
        check(header::IF_MATCH, "W/\"7\"", true, false);
        check(header::IF_NONE_MATCH, "W/\"7\"", true, false);
        for wrong in [
            "7",
            "\"7",
            "\"7\" \"8\"",
            "x\"7\"",
            "*, \"7\"",
            "W/W/\"7\"",
            "w/\"7\"",
            "W/ \"7\"",
            "W/7",
            "W/",
            "\"7\"W/",
            "\"7 8\"",
            "\"7\t\"",
            "\"7\", 8",
            "/\"7\"",
            "\"7\"\"8\"",
            "\"7\",*",
        ] {
            let headers = HeaderMap::from_iter([(header::IF_MATCH, HeaderValue::from_str(wrong).unwrap())]);
            assert!(Conditions::of(&headers).is_err(), "{wrong}");
        }
    }
}
