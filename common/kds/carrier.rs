//! The headers by which a relay says who it is, beside those of the zone it speaks for.

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use crate::{clip::clipped, token};

const RELAY: &str = "strait-relay";
const SESSION: &str = "strait-relay-session";
const AUTHORIZATION: &str = "strait-relay-authorization";
/// What is kept of a header that is compared or shown, in bytes.
const LONGEST_TEXT: usize = 256;

/// A relay as it says with every call.
#[derive(Clone, PartialEq, Eq)]
pub struct Carrier {
    /// Its name.
    pub relay: String,
    /// Ties the calls of one connection together.
    pub session: String,
    /// Credential, without the `Bearer` prefix.
    pub token: Option<String>,
}

impl Carrier {
    /// Reads the headers of a call; `None` when no relay makes it.
    pub fn read(headers: &MetadataMap) -> Option<Self> {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let brief = |name: &str| text(name).map(|text| clipped(text, LONGEST_TEXT));
        Some(Self {
            relay: brief(RELAY)?,
            session: brief(SESSION).unwrap_or_default(),
            token: text(AUTHORIZATION).as_deref().and_then(token::bare).map(str::to_owned),
        })
    }

    /// Writes the headers of a call. Values that cannot be a header are left out.
    pub fn write(&self, headers: &mut MetadataMap) {
        let bearer = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let all =
            [(RELAY, Some(&self.relay)), (SESSION, Some(&self.session)), (AUTHORIZATION, bearer.as_ref())];
        for (name, text) in all {
            if let Some(value) = text.and_then(|text| MetadataValue::<Ascii>::try_from(text.as_str()).ok()) {
                headers.insert(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carrier_survives_its_headers() {
        for token in [None, Some("t.o.k".to_owned())] {
            let carrier = Carrier { relay: "relay-1".to_owned(), session: "s".to_owned(), token };
            let mut headers = MetadataMap::new();
            assert!(Carrier::read(&headers).is_none(), "a call of a zone itself");
            carrier.write(&mut headers);
            assert!(Carrier::read(&headers) == Some(carrier));
        }
    }
}
