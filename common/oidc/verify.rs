//! Whether a token is one of the provider, for us, and in its time. No IO: keys and clock are passed in.

use chrono::{DateTime, Utc};
use jsonwebtoken::{AlgorithmFamily, Validation, errors::ErrorKind};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{OidcError, ProviderKeys, SHOWN};
use crate::{clip::clip, token::CLOCK_SKEW};

/// Longest token in bytes that is looked at.
pub const LONGEST_TOKEN: usize = 16 << 10;
/// What a token says it is. Tokens that say something else are for something else: to end sessions, to renew.
const TYPES: [&str; 4] = ["jwt", "at+jwt", "application/at+jwt", "application/jwt"];

/// What a token says about its bearer.
pub type ProviderClaims = Map<String, Value>;

/// What a token must be.
#[derive(Clone, Copy, Debug)]
pub struct ExpectedToken<'a> {
    /// Made by this provider.
    pub issuer: &'a str,
    /// For one of these clients of it.
    pub clients: &'a [&'a str],
    /// Or for this audience, whichever client it was given to.
    pub audience: &'a str,
    /// Of this login.
    pub nonce: Option<&'a str>,
}

#[derive(Deserialize)]
struct Unverified {
    #[serde(default)]
    iss: Option<String>,
}

/// Who the token says made it, which is not checked; nobody where it is longer than any that is looked at.
pub fn issuer_of(token: &str) -> Option<String> {
    if token.len() > LONGEST_TOKEN {
        return None;
    }
    jsonwebtoken::dangerous::insecure_decode_claims::<Unverified>(token).ok()?.iss
}

/// The claims of a token that is as expected.
///
/// # Errors
/// [`OidcError`] saying what is wrong with it.
pub fn verify(
    token: &str,
    keys: &ProviderKeys,
    expected: &ExpectedToken<'_>,
    now: DateTime<Utc>,
) -> Result<ProviderClaims, OidcError> {
    if token.len() > LONGEST_TOKEN {
        return Err(OidcError::Long);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|error| malformed(&error))?;
    let is_symmetric = AlgorithmFamily::Hmac.algorithms().contains(&header.alg);
    if is_symmetric {
        return Err(OidcError::Header(format!("the algorithm {:?}", header.alg)));
    }
    if header.typ.as_ref().is_some_and(|kind| !TYPES.contains(&kind.to_ascii_lowercase().as_str())) {
        return Err(OidcError::Header(format!(
            "the type {:?}",
            clip(&header.typ.unwrap_or_default(), SHOWN)
        )));
    }
    let name = header.kid.as_deref();
    let unknown = || OidcError::Key(clip(name.unwrap_or("none"), SHOWN).to_owned());
    let key = keys.find(name, header.alg).ok_or_else(unknown)?;
    let mut validation = Validation::new(header.alg);
    // Times are compared with the clock of the process below, not with one the library reads; the rest is looked at
    // there as well, to say what is wrong.
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    let decoded = jsonwebtoken::decode::<ProviderClaims>(token, key, &validation);
    let claims = decoded.map_err(|error| malformed(&error))?.claims;
    check_issuer(&claims, expected)?;
    check_audience(&claims, expected)?;
    check_times(&claims, now)?;
    // What tells that sessions end has this, and is signed with the same keys for the same clients.
    if claims.contains_key("events") {
        return Err(OidcError::Header("a token about events".to_owned()));
    }
    let nonce = claims.get("nonce").and_then(Value::as_str);
    if expected.nonce.is_some() && expected.nonce != nonce {
        return Err(OidcError::Nonce);
    }
    Ok(claims)
}

fn check_issuer(claims: &ProviderClaims, expected: &ExpectedToken<'_>) -> Result<(), OidcError> {
    let issuer = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
    if issuer == expected.issuer { Ok(()) } else { Err(OidcError::Issuer(clip(issuer, SHOWN).to_owned())) }
}

fn check_audience(claims: &ProviderClaims, expected: &ExpectedToken<'_>) -> Result<(), OidcError> {
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if !expected.audience.is_empty() && audiences.contains(&expected.audience) {
        return Ok(());
    }
    let is_ours = |name: &str| !name.is_empty() && expected.clients.contains(&name);
    // Whoever got it must be one of our clients, too, and not somebody who has us among its audiences; where that is not
    // said, nobody else may be among them (OpenID Connect Core 3.1.3.7).
    let party = claims.get("azp").map(|party| party.as_str().unwrap_or_default());
    let is_for_us = match party {
        Some(party) => audiences.iter().any(|one| is_ours(one)) && is_ours(party),
        None => !audiences.is_empty() && audiences.iter().all(|one| is_ours(one)),
    };
    match is_for_us {
        true => Ok(()),
        false => Err(OidcError::Audience(clip(&format!("{audiences:?}"), SHOWN).to_owned())),
    }
}

fn check_times(claims: &ProviderClaims, now: DateTime<Utc>) -> Result<(), OidcError> {
    let time = |name: &str| claims.get(name).and_then(Value::as_f64);
    let skew = CLOCK_SKEW.as_secs_f64();
    #[allow(clippy::cast_precision_loss, reason = "seconds of this epoch are exact")]
    let now = now.timestamp() as f64;
    match time("exp") {
        Some(end) if end > now => {}
        Some(_) => return Err(OidcError::Time("expired")),
        None => return Err(OidcError::Time("without an end")),
    }
    // Its clock may be ahead of ours.
    if ["nbf", "iat"].into_iter().filter_map(time).any(|start| start > now + skew) {
        return Err(OidcError::Time("not valid yet"));
    }
    Ok(())
}

/// When it runs out, of claims that were found good.
pub(super) fn end_of(claims: &ProviderClaims) -> Option<DateTime<Utc>> {
    let end = claims.get("exp")?.as_f64()?;
    #[allow(clippy::cast_possible_truncation, reason = "a later end than any there can be is cut")]
    DateTime::from_timestamp(end as i64, 0)
}

/// What is wrong, without the words of the token: they are those of a stranger.
fn malformed(error: &jsonwebtoken::errors::Error) -> OidcError {
    OidcError::Invalid(match error.kind() {
        ErrorKind::Json(_) | ErrorKind::Utf8(_) => {
            "its header or claims are not the JSON of a signed token".to_owned()
        }
        ErrorKind::Base64(_) => "its parts are not base64".to_owned(),
        _ => error.to_string(),
    })
}
