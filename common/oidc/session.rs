//! Who is logged in on the page through the provider, as his browser keeps it: sealed, so that it says nothing to
//! others and cannot be made up, and good in every replica, since they share the key.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{OidcError, OpenIdProvider};
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
    /// Who vouched, by which settings.
    #[serde(rename = "v")]
    vouched: String,
    #[serde(rename = "u")]
    until: i64,
}

impl PageSession {
    /// One of `user`, for whom `provider` vouches until then.
    pub(crate) fn new(user: User, provider: &OpenIdProvider, until: DateTime<Utc>) -> Self {
        let vouched = provider.seal_of_settings();
        Self { name: user.name, groups: user.groups, vouched, until: until.timestamp() }
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
    /// [`OidcError::Claim`] when it is too long for that, [`OidcError::Unsealed`] when there is no key to seal with.
    pub fn seal(&self, index: &Index) -> Result<String, OidcError> {
        let content = serde_json::to_vec(self).unwrap_or_default();
        let sealed =
            token::seal(index, WHAT, &content).map_err(|error| OidcError::Unsealed(error.to_string()))?;
        if sealed.len() > LONGEST {
            let reason = "lists more groups than a browser keeps: let the provider send fewer".to_owned();
            return Err(OidcError::Claim { claim: "groups".to_owned(), reason });
        }
        Ok(sealed)
    }

    /// The session that a browser shows; none when we did not seal it, it is over, or another provider vouched, or the
    /// same by other settings, which may have named somebody else.
    pub fn open(index: &Index, sealed: &str, provider: &OpenIdProvider, now: DateTime<Utc>) -> Option<Self> {
        let opened: Self = serde_json::from_slice(&token::unseal(index, WHAT, sealed)?).ok()?;
        let is_good = opened.vouched == provider.seal_of_settings() && now.timestamp() < opened.until;
        is_good.then_some(opened)
    }
}
