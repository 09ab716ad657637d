//! Tokens by which dataplanes, zones and users prove who they are.
//!
//! A token is a JWT signed RS256 with the newest signing key of its purpose. The keys are secrets, so
//! that rotating one is writing a secret with the next serial and deleting the old one later, and revoking
//! a token is naming its id in another secret.

mod admin;
mod claims;
mod file;
mod keys;
mod parsed;
mod screen;
mod sealed;
mod validate;

use std::time::Duration;

use chrono::{DateTime, Utc};
use jsonwebtoken::{Algorithm, EncodingKey, Header, errors::ErrorKind};
use thiserror::Error;

use crate::{
    runtime::{Entropy, Env},
    store::index::Index,
};

pub use admin::{AdminClaims, issue_admin, outdated, ports_of};
pub use claims::{Claims, DataplaneClaims, NODE_GROUP, UserClaims, ZoneClaims, scope};
pub use file::{AdminFileError, AdminTokenFile};
pub use keys::{
    ADMIN_USER_TOKEN, Purpose, SigningKey, ZONE_CERTIFICATE_REVOCATIONS, data_of, is_dataplane_key,
    is_dataplane_revocation, is_of_users, is_zone_key, mesh_judged_by, new_signing_key, private_half,
    public_half, secret_spec,
};
pub use screen::{is_of_a_node, screen};
pub use sealed::{is_sealed, seal, unseal};
pub use validate::{
    TokenTimes, expiry, fingerprint, listed, times, validate_dataplane, validate_node, validate_user,
    validate_zone,
};

/// Valid time of a token when its author names none, and of the first administrator's.
pub const TEN_YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
/// A token is valid from this long before it is made, for clocks that are wrong or are set back: who was let
/// in before must be let in after.
pub(crate) const CLOCK_SKEW: Duration = Duration::from_secs(15 * 60);

/// Why a token cannot be issued or is not accepted.
#[derive(Debug, Error)]
pub enum TokenError {
    /// No key has been made for this purpose.
    #[error("there is no signing key for {0} tokens; write the secret {1:?} to make one")]
    NoKey(&'static str, String),
    /// Tokens can be checked here and not made.
    #[error(
        "the key that signs {0} tokens is not here, only its public half, which checks them: make the token on \
         global, with straitctl --address <global> generate {0}-token ..."
    )]
    OnlyPublic(&'static str),
    /// The token names a key that does not exist.
    #[error("no signing key has the id {kid:?}, which the token was signed with")]
    UnknownKey {
        /// Id in the header of the token.
        kid: String,
    },
    /// A key is not what its secret should hold.
    #[error("signing key {name:?} is not a PEM RSA key: {reason}")]
    BrokenKey {
        /// Name of the secret.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Not a token, or one with a wrong signature.
    #[error("invalid token: {}", malformed(.0))]
    Invalid(#[from] jsonwebtoken::errors::Error),
    /// Its time is over or has not come.
    #[error("token is {0}")]
    Time(&'static str),
    /// It was revoked.
    #[error("token {0} is revoked")]
    Revoked(String),
    /// It is valid but for something else.
    #[error("token does not fit: {0}")]
    Mismatch(String),
}

/// The token of an `authorization` header. The scheme may be written in any case, or left out. A scheme alone is
/// no token, however often it stands there.
pub fn bare(header: &str) -> Option<&str> {
    let mut token = header.trim();
    loop {
        let (word, rest) = token.split_once(char::is_whitespace).unwrap_or((token, ""));
        if !word.eq_ignore_ascii_case("bearer") {
            return (!token.is_empty()).then_some(token);
        }
        token = rest.trim();
    }
}

/// What is wrong, without the words of the token: they are those of a stranger.
fn malformed(error: &jsonwebtoken::errors::Error) -> String {
    match error.kind() {
        ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
            "its header or claims are not the JSON of an RS256 token".to_owned()
        }
        ErrorKind::Base64(_) => "its parts are not base64".to_owned(),
        _ => error.to_string(),
    }
}

/// Issues a token with the newest key of its purpose.
///
/// # Errors
/// [`TokenError::NoKey`] when there is no key yet, [`TokenError::OnlyPublic`] when it is elsewhere,
/// [`TokenError::BrokenKey`] when it is unreadable.
pub fn issue<C: Claims>(
    index: &Index,
    purpose: Purpose<'_>,
    claims: &C,
    valid_for: Duration,
    env: &Env,
) -> Result<String, TokenError> {
    let key = purpose.newest_key(index)?;
    sign(&key, claims, valid_for, env.now(), &env.entropy)
}

/// Signs claims with this key.
///
/// # Errors
/// [`TokenError::BrokenKey`] when the key is unreadable.
pub fn sign<C: Claims>(
    key: &SigningKey,
    claims: &C,
    valid_for: Duration,
    now: DateTime<Utc>,
    entropy: &Entropy,
) -> Result<String, TokenError> {
    let signed = claims::TokenPayload {
        registered: claims::Registered::new(entropy.uuid(), now, CLOCK_SKEW, valid_for),
        claims,
    };
    let broken = |reason: String| TokenError::BrokenKey { name: key.name.clone(), reason };
    let encoding = EncodingKey::from_rsa_pem(&key.pem).map_err(|e| broken(e.to_string()))?;
    let header = Header { kid: Some(key.kid.clone()), ..Header::new(Algorithm::RS256) };
    Ok(jsonwebtoken::encode(&header, &signed, &encoding)?)
}

#[cfg(test)]
mod tests;
