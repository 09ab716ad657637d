//! Who answers for what proxies bring along. Whoever has a token may make up proxies with it, so what they bring counts
//! together, and takes nothing from who has another.

use std::sync::Arc;

use common::model::{Resource, labels};

/// Characters of a fingerprint that tell one token from another.
const FINGERPRINT: usize = 16;

/// On whose account a resource is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Account {
    /// Somebody who operates the zone or the mesh applied it.
    #[default]
    Operators,
    /// A proxy brought it along, which showed a token with a fingerprint that begins so.
    Token(Arc<str>),
    /// A proxy of this name brought it along, and needed no token.
    Proxy(Arc<str>),
}

impl Account {
    /// Of a stored resource.
    pub fn of(resource: &Resource) -> Self {
        if resource.label(labels::REGISTERED) != Some(labels::REGISTERED_BY_PROXY) {
            return Self::Operators;
        }
        match resource.label(labels::REGISTERED_WITH) {
            Some(token) => Self::Token(token.into()),
            None => Self::Proxy(Arc::clone(&resource.key.name)),
        }
    }

    /// How the token with this fingerprint is noted on what comes with it.
    pub fn note(fingerprint: &str) -> &str {
        fingerprint.get(..FINGERPRINT).unwrap_or(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::model::{ResourceKey, kinds::dataplane};

    use super::*;

    #[test]
    fn who_has_a_token_answers_for_all_that_came_with_it() {
        let of = |marks: &[(&str, &str)]| {
            let key = ResourceKey::new(&dataplane::KIND, "default", "web-1");
            let fresh = Resource::new(key, DateTime::UNIX_EPOCH);
            Account::of(&marks.iter().fold(fresh, |resource, (key, value)| resource.with_label(key, value)))
        };
        let (proxy, token) = ((labels::REGISTERED, "proxy"), (labels::REGISTERED_WITH, "0123"));
        assert_eq!(of(&[]), Account::Operators);
        assert_eq!(of(&[token]), Account::Operators, "only what a proxy brought is on its account");
        assert_eq!(of(&[proxy]), Account::Proxy("web-1".into()));
        assert_eq!(of(&[proxy, token]), Account::Token("0123".into()));
        assert_eq!(Account::note(&"ab".repeat(32)).len(), FINGERPRINT);
    }
}
