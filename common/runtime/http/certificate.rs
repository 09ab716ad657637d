//! The certificate of a client, as the handshake has verified it.

use chrono::{DateTime, Utc};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::clip::clip;

/// Names of a certificate that are kept, and bytes of each: a certificate of a control plane has one or two.
const NAMES: usize = 16;
const LONGEST_NAME: usize = 256;

/// What a verified certificate says about its holder; an extension of every request of a client that showed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// The common name of its subject, where it has one and no other.
    pub common_name: Option<String>,
    /// Its names that are URIs.
    pub uris: Vec<String>,
    /// Its serial number, in lower-case hexadecimal digits without separators.
    pub serial: String,
    /// From when it is valid.
    pub valid_from: DateTime<Utc>,
    /// Until when it is valid.
    pub valid_until: DateTime<Utc>,
}

impl PeerCertificate {
    /// Reads the leaf of a chain; `None` when it cannot be read, which who verified it would have found.
    pub fn read(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let time = |at: i64| DateTime::from_timestamp(at, 0);
        let mut called = certificate.subject().iter_common_name();
        let common_name =
            called.next().filter(|_| called.next().is_none()).and_then(|name| name.as_str().ok());
        let names = certificate.subject_alternative_name().ok()?;
        let uris = names.iter().flat_map(|names| &names.value.general_names).filter_map(|name| match name {
            GeneralName::URI(uri) => Some(clip(uri, LONGEST_NAME).to_owned()),
            _ => None,
        });
        Some(Self {
            common_name: common_name.map(|name| clip(name, LONGEST_NAME).to_owned()),
            uris: uris.take(NAMES).collect(),
            serial: certificate.raw_serial().iter().map(|byte| format!("{byte:02x}")).collect(),
            valid_from: time(certificate.validity().not_before.timestamp())?,
            valid_until: time(certificate.validity().not_after.timestamp())?,
        })
    }
}
