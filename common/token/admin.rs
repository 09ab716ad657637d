//! The token of whoever administrates one control plane: made by it, and kept in a file in its work folder.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{Claims, Purpose, TokenError, expiry, issue, validate};
use crate::{runtime::Env, store::index::Index};

/// How long one is good. It is replaced at half of that.
const VALID_FOR: Duration = Duration::from_secs(30 * 24 * 3600);

/// The bearer is the administrator, and `straitctl` may show this to those ports of its own machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct AdminClaims {
    /// Name of the user.
    pub name: String,
    /// Groups of the user.
    pub groups: Vec<String>,
    /// Where the API of the control plane that made it listens. Any other is somebody else.
    pub ports: BTreeSet<u16>,
}

impl Claims for AdminClaims {}

/// A token that says this.
///
/// # Errors
/// [`TokenError`] when it cannot be signed.
pub fn issue_admin(index: &Index, claims: &AdminClaims, env: &Env) -> Result<String, TokenError> {
    issue(index, Purpose::User, claims, VALID_FOR, env)
}

/// Why `token` is to be replaced by one that [`issue_admin`] makes now; nothing while it is as good as that.
pub fn outdated(index: &Index, token: &str, claims: &AdminClaims, now: DateTime<Utc>) -> Option<String> {
    match validate::check::<AdminClaims>(index, Purpose::User, token, now) {
        Ok(says) if says != *claims => return Some("it says something else than it should".to_owned()),
        Ok(_) => {}
        Err(error) => return Some(error.to_string()),
    }
    // A key that is no longer the newest one is about to be deleted.
    let signed_with = jsonwebtoken::decode_header(token).ok().and_then(|header| header.kid);
    let newest = Purpose::User.newest_key(index).map(|key| key.kid);
    if newest.is_ok_and(|newest| signed_with != Some(newest)) {
        return Some("there is a newer signing key".to_owned());
    }
    let left = expiry(token).and_then(|end| (end - now).to_std().ok());
    // One without an end, or with a later one, was made by somebody else.
    let is_fresh = left.is_some_and(|left| left > VALID_FOR / 2 && left <= VALID_FOR);
    (!is_fresh).then(|| "half of its time is over".to_owned())
}

/// The ports that a token of [`issue_admin`] may be shown to; none for any other token. Nothing is checked:
/// who asks trusts the file it was in.
pub fn ports_of(token: &str) -> BTreeSet<u16> {
    let claims = jsonwebtoken::dangerous::insecure_decode_claims::<AdminClaims>(token);
    claims.map(|claims| claims.ports).unwrap_or_default()
}
