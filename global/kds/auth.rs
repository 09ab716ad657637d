//! Whether a caller is the zone it says it is.

use chrono::{DateTime, Utc};
use common::{
    kds::headers::KdsCaller,
    model::ResourceKey,
    runtime::Env,
    store::index::IndexReader,
    token::{self, Purpose, TokenError, scope, validate_zone},
};
use thiserror::Error;
use tonic::Status;

use super::relay_auth::RelayAuthError;

/// Longest name of a zone.
const MAX_ZONE_NAME: usize = 63;

/// Checks the credential of a zone. Without an answer nobody gets in.
pub trait ZoneAuthenticator: Send + Sync + 'static {
    /// Whether `token` proves that its holder may act as `zone`.
    ///
    /// # Errors
    /// [`ZoneAuthError`] saying what is wrong with it.
    fn authenticate(&self, zone: &str, token: Option<&str>) -> Result<(), ZoneAuthError>;

    /// Whether `token` proves that its holder is the relay `relay`, which may carry zones.
    ///
    /// # Errors
    /// [`RelayAuthError`] saying what is wrong with it.
    fn authenticate_relay(&self, relay: &str, token: Option<&str>) -> Result<(), RelayAuthError> {
        let _ = token;
        let reason = "relays are not let in here".to_owned();
        Err(RelayAuthError::Invalid { relay: relay.to_owned(), reason })
    }

    /// Until when an accepted `token` is good by itself; `None` when nothing but a change of the keys or
    /// revocations can end it.
    fn good_until(&self, token: Option<&str>) -> Option<DateTime<Utc>> {
        let _ = token;
        None
    }

    /// Whether a change of this resource may change the answer to a token: then those who are in are
    /// asked again.
    fn depends_on(&self, key: &ResourceKey) -> bool {
        let _ = key;
        false
    }

    /// Whether it lets anyone in under any name; shown in the status of every zone.
    fn is_open(&self) -> bool {
        false
    }
}

/// Lets anyone in under any name: for zones of Kuma, which have no credential to show.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnyZone;

impl ZoneAuthenticator for AnyZone {
    fn authenticate(&self, _zone: &str, _token: Option<&str>) -> Result<(), ZoneAuthError> {
        Ok(())
    }

    fn authenticate_relay(&self, _relay: &str, _token: Option<&str>) -> Result<(), RelayAuthError> {
        Ok(())
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// Wants a zone token of scope `cp`, made for the zone that shows it.
pub struct TokenOfZone {
    /// Where signing keys and revocations are.
    pub index: IndexReader,
    /// Clock.
    pub env: Env,
}

impl ZoneAuthenticator for TokenOfZone {
    fn authenticate(&self, zone: &str, token: Option<&str>) -> Result<(), ZoneAuthError> {
        let token = token.ok_or_else(|| ZoneAuthError::Missing { zone: zone.to_owned() })?;
        let invalid = |reason: String| ZoneAuthError::Invalid { zone: zone.to_owned(), reason };
        match validate_zone(&self.index.current(), token, scope::CP, zone, self.env.now()) {
            // A token for no zone in particular is good for proxies; a control plane must be someone.
            Ok(claims) if claims.zone.is_empty() => Err(invalid("it names no zone".to_owned())),
            Ok(_) => Ok(()),
            Err(TokenError::Mismatch(reason)) => {
                Err(ZoneAuthError::Foreign { claimed: zone.to_owned(), reason })
            }
            Err(error) => Err(invalid(error.to_string())),
        }
    }

    fn authenticate_relay(&self, relay: &str, token: Option<&str>) -> Result<(), RelayAuthError> {
        let token = token.ok_or_else(|| RelayAuthError::Missing { relay: relay.to_owned() })?;
        let invalid = |reason: String| RelayAuthError::Invalid { relay: relay.to_owned(), reason };
        match validate_zone(&self.index.current(), token, scope::RELAY, relay, self.env.now()) {
            Ok(claims) if claims.zone.is_empty() => Err(invalid("it names no relay".to_owned())),
            Ok(_) => Ok(()),
            Err(error) => Err(invalid(error.to_string())),
        }
    }

    fn good_until(&self, token: Option<&str>) -> Option<DateTime<Utc>> {
        token::expiry(token?)
    }

    fn depends_on(&self, key: &ResourceKey) -> bool {
        Purpose::Zone.depends_on(key)
    }
}

/// Why a caller is not let in.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ZoneAuthError {
    /// It does not say who it is.
    #[error("the call carries no client-id; a zone sends its name there")]
    NoName,
    /// No zone can have this name.
    #[error("{0:?} cannot be the name of a zone: use lower-case letters, digits and dashes, at most 63")]
    BadName(String),
    /// It shows no credential.
    #[error("zone {zone} shows no token; {}", remedy(zone))]
    Missing {
        /// The zone it claims to be.
        zone: String,
    },
    /// Its credential is not valid.
    #[error("the token of zone {zone} was refused: {reason}; {}", remedy(zone))]
    Invalid {
        /// The zone it claims to be.
        zone: String,
        /// Why.
        reason: String,
    },
    /// Its credential is good, but for something else.
    #[error(
        "the token does not make its holder the control plane of zone {claimed}: {reason}; {}",
        remedy(claimed)
    )]
    Foreign {
        /// The zone it claims to be.
        claimed: String,
        /// What it is good for.
        reason: String,
    },
}

/// How a zone gets in.
fn remedy(zone: &str) -> String {
    format!(
        "make one on global with `straitctl generate zone-token --zone {zone} --scope cp` and name it in the \
         zone's setting multizone.zone.kds.tokenFile"
    )
}

impl ZoneAuthError {
    /// One word for counting.
    fn reason(&self) -> &'static str {
        match self {
            Self::NoName => "no_name",
            Self::BadName(_) => "bad_name",
            Self::Missing { .. } => "no_token",
            Self::Invalid { .. } => "bad_token",
            Self::Foreign { .. } => "foreign_zone",
        }
    }
}

impl From<ZoneAuthError> for Status {
    fn from(error: ZoneAuthError) -> Self {
        let text = error.to_string();
        match error {
            ZoneAuthError::NoName | ZoneAuthError::BadName(_) => Self::invalid_argument(text),
            ZoneAuthError::Missing { .. } | ZoneAuthError::Invalid { .. } => Self::unauthenticated(text),
            ZoneAuthError::Foreign { .. } => Self::permission_denied(text),
        }
    }
}

/// Lets a caller in, or counts and logs why not.
pub(crate) fn admit(
    caller: Option<KdsCaller>,
    authenticator: &dyn ZoneAuthenticator,
) -> Result<KdsCaller, ZoneAuthError> {
    let admitted = caller.ok_or(ZoneAuthError::NoName).and_then(|caller| {
        check_name(&caller.zone)?;
        authenticator.authenticate(&caller.zone, caller.token.as_deref())?;
        Ok(caller)
    });
    admitted.inspect_err(|error| {
        metrics::counter!("kds_zone_rejected_total", "reason" => error.reason()).increment(1);
        tracing::warn!(%error, "a caller was not let in as a zone");
    })
}

/// A zone name is a DNS name, because it becomes part of host names.
pub(super) fn check_name(zone: &str) -> Result<(), ZoneAuthError> {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(is_alphanumeric)
            && label.ends_with(is_alphanumeric)
            && label.chars().all(|c| is_alphanumeric(c) || c == '-')
    };
    if zone.len() <= MAX_ZONE_NAME && zone.split('.').all(is_label) {
        return Ok(());
    }
    Err(ZoneAuthError::BadName(zone.chars().take(80).collect()))
}

#[cfg(test)]
mod tests {
    use common::kds::features::Features;
    use tonic::metadata::{MetadataMap, MetadataValue};

    use super::*;

    /// Holds one token per zone: `token-of-<zone>`.
    struct Tokens;

    impl ZoneAuthenticator for Tokens {
        fn authenticate(&self, zone: &str, token: Option<&str>) -> Result<(), ZoneAuthError> {
            let token = token.ok_or_else(|| ZoneAuthError::Missing { zone: zone.to_owned() })?;
            match token.strip_prefix("token-of-") {
                Some(owner) if owner == zone => Ok(()),
                Some(owner) => {
                    Err(ZoneAuthError::Foreign { claimed: zone.to_owned(), reason: owner.to_owned() })
                }
                None => {
                    Err(ZoneAuthError::Invalid { zone: zone.to_owned(), reason: "not signed".to_owned() })
                }
            }
        }
    }

    #[test]
    fn only_the_zone_itself_gets_in() {
        let caller = |zone: &str, token: Option<&str>| KdsCaller {
            zone: zone.to_owned(),
            features: Features::default(),
            session: None,
            token: token.map(str::to_owned),
            version: String::new(),
            issuing_request: None,
        };
        let check = |caller: Option<KdsCaller>, expected: Result<(), &str>| {
            let got = admit(caller, &Tokens).map(drop);
            assert_eq!(got.map_err(|e| e.reason()), expected);
        };
        check(Some(caller("zone-1", Some("token-of-zone-1"))), Ok(()));
        check(Some(caller("zone-1", Some("token-of-zone-2"))), Err("foreign_zone"));
        check(Some(caller("zone-1", Some("garbage"))), Err("bad_token"));
        check(Some(caller("zone-1", None)), Err("no_token"));
        let mut headers = MetadataMap::new();
        headers.insert("client-id", MetadataValue::from_static("zone-1"));
        headers.insert("authorization", MetadataValue::from_static("Bearer "));
        check(KdsCaller::read(&headers), Err("no_token"));
        check(None, Err("no_name"));
        for name in ["Zone", "-a", "a-", "a..b", "a b", &"a".repeat(64)] {
            check(Some(caller(name, None)), Err("bad_name"));
        }
    }
}
