//! Whether a caller is the relay it says it is.

use common::kds::carrier::Carrier;

use crate::kds::{
    auth::{ZoneAuthenticator, check_name},
    relay_auth::{CarriedZones, RelayAuthError},
};

/// Lets a caller in, or counts and logs why not.
pub(super) fn admit(
    carrier: Option<Carrier>,
    authenticator: &dyn ZoneAuthenticator,
) -> Result<(Carrier, CarriedZones), RelayAuthError> {
    let admitted = carrier.ok_or(RelayAuthError::NoName).and_then(|carrier| {
        check_name(&carrier.relay).map_err(|_| RelayAuthError::BadName(shown(&carrier.relay)))?;
        let zones = authenticator.authenticate_relay(&carrier.relay, carrier.token.as_deref())?;
        Ok((carrier, zones))
    });
    admitted.inspect_err(note)
}

/// Counts and logs what a relay may not.
pub(super) fn note(error: &RelayAuthError) {
    metrics::counter!("kds_relay_rejected_total", "reason" => error.reason()).increment(1);
    tracing::warn!(%error, "a caller was not let in as a relay");
}

fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kds::{AnyZone, ShownCredentials, ZoneAuthError};

    /// Knows zones and no relays.
    struct ZonesOnly;

    impl ZoneAuthenticator for ZonesOnly {
        fn authenticate(&self, _zone: &str, _shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
            Ok(())
        }
    }

    #[test]
    fn only_who_is_let_in_as_a_relay_is_one() {
        let carrier = |relay: &str| {
            let (relay, session) = (relay.to_owned(), "s".to_owned());
            Some(Carrier { relay, session, token: None })
        };
        let check = |carrier, authenticator: &dyn ZoneAuthenticator, expected: Result<(), &str>| {
            assert_eq!(admit(carrier, authenticator).map(drop).map_err(|error| error.reason()), expected);
        };
        check(carrier("relay-1"), &AnyZone, Ok(()));
        check(carrier("Relay"), &AnyZone, Err("bad_name"));
        check(None, &AnyZone, Err("no_name"));
        check(carrier("relay-1"), &ZonesOnly, Err("bad_token"));
    }
}
