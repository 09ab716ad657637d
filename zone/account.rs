//! Who answers for what proxies bring along. Whoever has a token may make up proxies with it, so what they bring counts
//! together, and takes nothing from who has another.

use std::sync::Arc;

use common::model::{Resource, ResourceKey, labels};

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
    /// What one proxy brought along is on its own, too: only on that where it needed no token.
    Proxy {
        /// How the fingerprint of its token begins, if it needed one. Others may bear its name in their own.
        token: Option<Arc<str>>,
        /// Its mesh: another proxy of another has its name.
        mesh: Arc<str>,
        /// Its name.
        name: Arc<str>,
    },
}

impl Account {
    /// Of a stored resource.
    pub fn of(resource: &Resource) -> Self {
        if resource.label(labels::REGISTERED) != Some(labels::REGISTERED_BY_PROXY) {
            return Self::Operators;
        }
        match resource.label(labels::REGISTERED_WITH) {
            Some(token) => Self::Token(token.into()),
            None => Self::proxy(None, &resource.key),
        }
    }

    /// Of the proxy with the resource of this key, alone, which showed the token whose fingerprint begins so.
    pub fn proxy(token: Option<&Arc<str>>, key: &ResourceKey) -> Self {
        let (mesh, name) = (Arc::clone(&key.mesh), Arc::clone(&key.name));
        Self::Proxy { token: token.cloned(), mesh, name }
    }

    /// How the token with this fingerprint is noted on what comes with it.
    pub fn note(fingerprint: &str) -> &str {
        fingerprint.get(..FINGERPRINT).unwrap_or(fingerprint)
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::model::kinds::dataplane;

    use super::*;

    #[test]
    fn who_has_a_token_answers_for_all_that_came_with_it() {
        let key = |mesh: &str| ResourceKey::new(&dataplane::KIND, mesh, "web-1");
        let in_mesh = |mesh: &str, marks: &[(&str, &str)]| {
            let fresh = Resource::new(key(mesh), DateTime::UNIX_EPOCH);
            Account::of(&marks.iter().fold(fresh, |resource, (key, value)| resource.with_label(key, value)))
        };
        let of = |marks: &[(&str, &str)]| in_mesh("default", marks);
        let (proxy, token) = ((labels::REGISTERED, "proxy"), (labels::REGISTERED_WITH, "0123"));
        assert_eq!(of(&[]), Account::Operators);
        assert_eq!(of(&[token]), Account::Operators, "only what a proxy brought is on its account");
        assert_eq!(of(&[proxy]), Account::proxy(None, &key("default")));
        assert_ne!(of(&[proxy]), in_mesh("dev", &[proxy]), "it is another with its name");
        let alone = Account::proxy(Some(&"0123".into()), &key("default"));
        assert!(alone != of(&[proxy]) && alone != Account::proxy(Some(&"4567".into()), &key("default")));
        assert_eq!(of(&[proxy, token]), Account::Token("0123".into()));
        assert_eq!(Account::note(&"ab".repeat(32)).len(), FINGERPRINT);
    }
}
