//! Whether a caller is the zone it says it is.

use std::{ops::Deref, sync::Arc};

use common::{
    kds::headers::KdsCaller,
    model::{ResourceKey, kinds::secret::GLOBAL_SECRET},
    rest::{ZoneCredential, ZoneProof},
    runtime::{Env, http::PeerCertificate},
    store::index::IndexReader,
    token::{self, Purpose, TokenError, scope, validate_zone},
};
use thiserror::Error;
use tonic::Status;

use super::relay_auth::{CarriedZones, RelayAuthError};

/// Longest name of a zone.
const MAX_ZONE_NAME: usize = 63;
/// How a SPIFFE id begins.
const SPIFFE: &str = "spiffe://";

/// What a caller shows to prove who it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct ShownCredentials<'a> {
    /// A token, with its call.
    pub token: Option<&'a str>,
    /// A certificate, in the TLS handshake of its connection.
    pub certificate: Option<&'a PeerCertificate>,
}

/// Checks the credential of a zone. Without an answer nobody gets in.
pub trait ZoneAuthenticator: Send + Sync + 'static {
    /// Whether what is `shown` proves that the caller may act as `zone`.
    ///
    /// # Errors
    /// [`ZoneAuthError`] saying what is wrong with it.
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError>;

    /// What it was that proved it, with the times in which it is good by itself: beside those nothing but a change
    /// of the keys or revocations can end it.
    fn credential(&self, shown: ShownCredentials<'_>) -> Option<ZoneCredential> {
        let _ = shown;
        None
    }

    /// Which zones the relay `relay` may carry, if `token` proves that its holder is that.
    ///
    /// # Errors
    /// [`RelayAuthError`] saying what is wrong with it.
    fn authenticate_relay(&self, relay: &str, token: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        let _ = token;
        let reason = "relays are not let in here".to_owned();
        Err(RelayAuthError::Invalid { relay: relay.to_owned(), reason })
    }

    /// Whether a change of this resource may change the answer: then those who are in are asked again.
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
    fn authenticate(&self, _zone: &str, _shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        Ok(())
    }

    fn authenticate_relay(&self, _relay: &str, _token: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        Ok(CarriedZones::Any)
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
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        let token = shown.token.ok_or_else(|| ZoneAuthError::Missing { zone: zone.to_owned() })?;
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

    fn credential(&self, shown: ShownCredentials<'_>) -> Option<ZoneCredential> {
        let times = token::times(shown.token?)?;
        let (kind, since) = (ZoneProof::Token, Some(times.made));
        Some(ZoneCredential { kind, id: times.id, since, until: times.until })
    }

    fn authenticate_relay(&self, relay: &str, token: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        let token = token.ok_or_else(|| RelayAuthError::Missing { relay: relay.to_owned() })?;
        let invalid = |reason: String| RelayAuthError::Invalid { relay: relay.to_owned(), reason };
        match validate_zone(&self.index.current(), token, scope::RELAY, relay, self.env.now()) {
            Ok(claims) if claims.zone.is_empty() => Err(invalid("it names no relay".to_owned())),
            Ok(claims) => Ok(CarriedZones::Of(claims)),
            Err(error) => Err(invalid(error.to_string())),
        }
    }

    fn depends_on(&self, key: &ResourceKey) -> bool {
        Purpose::Zone.depends_on(key)
    }
}

/// Wants a certificate made for the zone that shows it. That it is signed by the right authority was found out in the
/// handshake, which fails otherwise.
pub struct CertificateOfZone {
    /// Where revocations are.
    pub index: IndexReader,
    /// Clock.
    pub env: Env,
}

/// Where the serial numbers of revoked certificates are.
fn revocations() -> ResourceKey {
    ResourceKey::global(&GLOBAL_SECRET, token::ZONE_CERTIFICATE_REVOCATIONS)
}

/// Tools write a serial number with or without separators, zeros or a word before it, in letters of either case.
fn serial(text: &str) -> String {
    let digits = text.trim().chars().filter(|c| *c != ':').collect::<String>().to_ascii_lowercase();
    let digits = digits.strip_prefix("serial=").unwrap_or(&digits);
    digits.strip_prefix("0x").unwrap_or(digits).trim_start_matches('0').to_owned()
}

impl CertificateOfZone {
    fn is_revoked(&self, certificate: &PeerCertificate) -> bool {
        let index = self.index.current();
        let listed = index.get(&revocations()).and_then(|secret| token::data_of(secret)).unwrap_or_default();
        let own = serial(&certificate.serial);
        token::listed(&String::from_utf8_lossy(&listed)).any(|revoked| serial(revoked) == own)
    }
}

impl ZoneAuthenticator for CertificateOfZone {
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        let missing = || ZoneAuthError::NoCertificate { zone: zone.to_owned() };
        let certificate = shown.certificate.ok_or_else(missing)?;
        let refused = |reason: String| ZoneAuthError::BadCertificate { zone: zone.to_owned(), reason };
        let now = self.env.now();
        match zone_of(certificate) {
            None => return Err(refused("it names no zone".to_owned())),
            Some(named) if named != zone => {
                return Err(refused(format!("it was made for zone {named:?}")));
            }
            Some(_) => {}
        }
        if now >= certificate.valid_until {
            return Err(refused(format!("it ran out at {}", certificate.valid_until.to_rfc3339())));
        }
        if self.is_revoked(certificate) {
            return Err(refused(format!("{} is revoked", certificate.serial)));
        }
        Ok(())
    }

    fn credential(&self, shown: ShownCredentials<'_>) -> Option<ZoneCredential> {
        let certificate = shown.certificate?;
        Some(ZoneCredential {
            kind: ZoneProof::Certificate,
            id: certificate.serial.clone(),
            since: Some(certificate.valid_from),
            until: Some(certificate.valid_until),
        })
    }

    fn authenticate_relay(&self, relay: &str, _token: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        let reason = "no token is taken here (multizone.global.kds.auth of global is certificate)".to_owned();
        Err(RelayAuthError::Invalid { relay: relay.to_owned(), reason })
    }

    fn depends_on(&self, key: &ResourceKey) -> bool {
        *key == revocations()
    }
}

/// The zone a certificate was made for: what comes after `/zone/` in its SPIFFE id, or else its common name. Who has
/// several such ids is nobody in particular.
fn zone_of(certificate: &PeerCertificate) -> Option<&str> {
    // Schemes are the same in letters of either case.
    let is_id =
        |uri: &&String| uri.get(..SPIFFE.len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case(SPIFFE));
    let mut ids = certificate.uris.iter().filter(is_id);
    match (ids.next(), ids.next()) {
        (None, _) => certificate.common_name.as_deref(),
        (Some(id), None) => id.split_once("/zone/").map(|(_, zone)| zone),
        (Some(_), Some(_)) => None,
    }
}

/// Takes a certificate where one is shown, and a token where none is. Who shows both must be right in both.
pub struct EitherOfZone {
    /// Checks tokens.
    pub token: TokenOfZone,
    /// Checks certificates.
    pub certificate: CertificateOfZone,
}

impl ZoneAuthenticator for EitherOfZone {
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        if shown.certificate.is_some() {
            self.certificate.authenticate(zone, shown)?;
        }
        match shown.token.is_some() || shown.certificate.is_none() {
            true => self.token.authenticate(zone, shown),
            false => Ok(()),
        }
    }

    fn credential(&self, shown: ShownCredentials<'_>) -> Option<ZoneCredential> {
        let both = [self.certificate.credential(shown), self.token.credential(shown)];
        // What ends first ends the session. What never ends comes last.
        let end = |credential: &ZoneCredential| (credential.until.is_none(), credential.until);
        both.into_iter().flatten().min_by_key(end)
    }

    fn authenticate_relay(&self, relay: &str, token: Option<&str>) -> Result<CarriedZones, RelayAuthError> {
        self.token.authenticate_relay(relay, token)
    }

    fn depends_on(&self, key: &ResourceKey) -> bool {
        self.token.depends_on(key) || self.certificate.depends_on(key)
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
    /// It shows no certificate.
    #[error(
        "zone {zone} shows no certificate; name one, and its key, in the zone's settings \
         multizone.zone.kds.clientCertFile and clientKeyFile"
    )]
    NoCertificate {
        /// The zone it claims to be.
        zone: String,
    },
    /// Its certificate is not good, or not for that zone.
    #[error("the certificate of zone {zone} was refused: {reason}; have one made for it (docs/trust.md)")]
    BadCertificate {
        /// The zone it claims to be.
        zone: String,
        /// Why.
        reason: String,
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
            Self::NoCertificate { .. } => "no_certificate",
            Self::BadCertificate { .. } => "bad_certificate",
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
            ZoneAuthError::Missing { .. }
            | ZoneAuthError::NoCertificate { .. }
            | ZoneAuthError::BadCertificate { .. }
            | ZoneAuthError::Invalid { .. } => Self::unauthenticated(text),
            ZoneAuthError::Foreign { .. } => Self::permission_denied(text),
        }
    }
}

/// A caller that was let in, or is about to be.
#[derive(Clone, Debug)]
pub(crate) struct ZoneCaller {
    /// What it says about itself.
    pub(crate) says: KdsCaller,
    /// What it showed in the handshake.
    pub(crate) certificate: Option<Arc<PeerCertificate>>,
    /// What proved that it is who it says it is.
    pub(crate) credential: Option<ZoneCredential>,
}

impl From<KdsCaller> for ZoneCaller {
    /// One that shows no certificate.
    fn from(says: KdsCaller) -> Self {
        Self { says, certificate: None, credential: None }
    }
}

impl Deref for ZoneCaller {
    type Target = KdsCaller;

    fn deref(&self) -> &KdsCaller {
        &self.says
    }
}

impl ZoneCaller {
    fn shown(&self) -> ShownCredentials<'_> {
        ShownCredentials { token: self.says.token.as_deref(), certificate: self.certificate.as_deref() }
    }
}

/// Lets a caller in, or counts and logs why not.
pub(crate) fn admit(
    caller: Option<KdsCaller>,
    certificate: Option<Arc<PeerCertificate>>,
    authenticator: &dyn ZoneAuthenticator,
) -> Result<ZoneCaller, ZoneAuthError> {
    let admitted = caller.ok_or(ZoneAuthError::NoName).and_then(|says| {
        check_name(&says.zone)?;
        let caller = ZoneCaller { certificate, ..says.into() };
        authenticator.authenticate(&caller.zone, caller.shown())?;
        Ok(ZoneCaller { credential: authenticator.credential(caller.shown()), ..caller })
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
mod tests;
