//! Who is logged in on the page through the provider, as his browser keeps it: sealed, so that it says nothing to
//! others and cannot be made up, and good in every replica, since they share the key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::OidcError;
use crate::{access::User, store::index::Index, token};

/// Longest sealed session: browsers keep cookies of 4096 bytes, name and all.
const LONGEST: usize = 3600;
/// What is sealed here, so that nothing else can be taken for it.
const WHAT: &str = "page session";

/// Somebody who logged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageSession {
    #[serde(rename = "n")]
    name: String,
    #[serde(rename = "g")]
    groups: Vec<String>,
    #[serde(rename = "i")]
    issuer: String,
    #[serde(rename = "u")]
    until: i64,
}

impl PageSession {
    /// One of `user`, for whom `issuer` vouches until then.
    pub(crate) fn new(user: User, issuer: &str, until: DateTime<Utc>) -> Self {
        Self { name: user.name, groups: user.groups, issuer: issuer.to_owned(), until: until.timestamp() }
    }

    /// Who that is.
    pub fn user(&self) -> User {
        User { name: self.name.clone(), groups: self.groups.clone() }
    }

    /// When it ends, in seconds of this epoch.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// What the browser gets to keep.
    ///
    /// # Errors
    /// [`OidcError::Claim`] when it is too long for that, [`OidcError::Unknown`] when there is no key to seal with.
    pub fn seal(&self, index: &Index) -> Result<String, OidcError> {
        let content = serde_json::to_vec(self).unwrap_or_default();
        let no_key = |error: token::TokenError| OidcError::Unknown {
            issuer: self.issuer.clone(),
            reason: format!("a session cannot be sealed: {error}"),
        };
        let sealed = token::seal(index, WHAT, &content).map_err(no_key)?;
        if sealed.len() > LONGEST {
            let reason = "lists more groups than a browser keeps: let the provider send fewer".to_owned();
            return Err(OidcError::Claim { claim: "groups".to_owned(), reason });
        }
        Ok(sealed)
    }

    /// The session that a browser shows; none when we did not seal it, it is over, or another provider vouched.
    pub fn open(index: &Index, sealed: &str, issuer: &str, now: DateTime<Utc>) -> Option<Self> {
        let opened: Self = serde_json::from_slice(&token::unseal(index, WHAT, sealed)?).ok()?;
        (opened.issuer == issuer && now.timestamp() < opened.until).then_some(opened)
    }
}
