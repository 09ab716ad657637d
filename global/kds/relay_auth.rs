//! Why a caller is not the relay it says it is.

use common::{kds::carrier::Carrier, token::ZoneClaims};
use thiserror::Error;
use tonic::Status;

/// Why a caller is not let in as a relay.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RelayAuthError {
    /// It does not say who it is.
    #[error("the call carries no strait-relay; a relay sends its name there")]
    NoName,
    /// No relay can have this name.
    #[error("{0:?} cannot be the name of a relay: use lower-case letters, digits and dashes, at most 63")]
    BadName(String),
    /// It shows no credential.
    #[error("relay {relay} shows no token; {}", remedy(relay))]
    Missing {
        /// The relay it claims to be.
        relay: String,
    },
    /// Its credential is not valid, or good for something else.
    #[error("the token of relay {relay} was refused: {reason}; {}", remedy(relay))]
    Invalid {
        /// The relay it claims to be.
        relay: String,
        /// Why.
        reason: String,
    },
    /// It speaks for a zone its token does not name.
    #[error(
        "the token of relay {relay} does not let it carry zone {zone}: make one with --carries {zone} among others, or \
         give the zone the address of another relay"
    )]
    Beyond {
        /// The relay.
        relay: String,
        /// The zone.
        zone: String,
    },
}

/// Which zones a relay may speak for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarriedZones {
    /// Any.
    Any,
    /// Those its token says.
    Of(ZoneClaims),
}

impl CarriedZones {
    /// Whether `relay` may speak for `zone`.
    ///
    /// # Errors
    /// When its token says otherwise.
    pub(super) fn check(&self, relay: &str, zone: &str) -> Result<(), RelayAuthError> {
        match self {
            Self::Of(claims) if !claims.may_carry(zone) => {
                Err(RelayAuthError::Beyond { relay: relay.to_owned(), zone: zone.to_owned() })
            }
            Self::Any | Self::Of(_) => Ok(()),
        }
    }
}

/// A relay that was let in.
pub(crate) struct KnownRelay {
    /// What it says about itself.
    pub(crate) carrier: Carrier,
    /// For whom it may speak.
    pub(crate) zones: CarriedZones,
}

/// How a relay gets in.
fn remedy(relay: &str) -> String {
    format!(
        "make one on global with `straitctl generate zone-token --zone {relay} --scope relay` and name it in the \
         relay's setting multizone.relay.kds.tokenFile"
    )
}

impl RelayAuthError {
    /// One word for counting.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NoName => "no_name",
            Self::BadName(_) => "bad_name",
            Self::Missing { .. } => "no_token",
            Self::Invalid { .. } => "bad_token",
            Self::Beyond { .. } => "other_zone",
        }
    }
}

impl From<RelayAuthError> for Status {
    fn from(error: RelayAuthError) -> Self {
        let text = error.to_string();
        match error {
            RelayAuthError::NoName | RelayAuthError::BadName(_) => Self::invalid_argument(text),
            RelayAuthError::Missing { .. } | RelayAuthError::Invalid { .. } => Self::unauthenticated(text),
            RelayAuthError::Beyond { .. } => Self::permission_denied(text),
        }
    }
}
