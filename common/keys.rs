//! Private keys: the forms in which they are made and read, and the turns that making them takes.
//!
//! RSA is what peers of the field expect of token keys; it is dear to make, so nobody makes one while holding
//! a lock or on a worker of the runtime: what decides asks a [`KeySupply`], and a [`KeyMaker`] fills it.

mod maker;
mod supply;

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa,
    signature::KeyPair as _,
};
use thiserror::Error;
use x509_parser::der_parser::{asn1_rs::FromDer, asn1_rs::Sequence};

pub use maker::KeyMaker;
pub use supply::KeySupply;

const RSA_PRIVATE_KEY: &str = "RSA PRIVATE KEY";
const RSA_PUBLIC_KEY: &str = "RSA PUBLIC KEY";

/// Why a key cannot be made or read.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum KeyError {
    /// Too many wait for keys already.
    #[error("too many keys are being made at the moment; try again in a few seconds")]
    Busy,
    /// The library could not make one.
    #[error("make a {0:?} key: the system gave no randomness")]
    Make(KeyForm),
    /// The text is no RSA key.
    #[error("{0}")]
    Rsa(String),
}

/// A kind of key that can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyForm {
    /// RSA of 2048 bits.
    Rsa2048,
    /// RSA of 3072 bits.
    Rsa3072,
    /// RSA of 4096 bits.
    Rsa4096,
    /// ECDSA on P-256.
    P256,
}

impl KeyForm {
    /// What tokens are signed with; fixed by who reads them.
    pub const TOKEN: Self = Self::Rsa2048;

    /// RSA of this length; `None` when nobody should ask for it.
    pub fn rsa(bits: u64) -> Option<Self> {
        match bits {
            2048 => Some(Self::Rsa2048),
            3072 => Some(Self::Rsa3072),
            4096 => Some(Self::Rsa4096),
            _ => None,
        }
    }
}

/// A private key as PEM: `RSA PRIVATE KEY` (PKCS#1) or, on P-256, `PRIVATE KEY` (PKCS#8).
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKey(String);

impl std::fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PrivateKey")
    }
}

impl PrivateKey {
    /// Makes one. Takes a second and more for long RSA keys: a server asks its [`KeyMaker`] instead.
    ///
    /// # Errors
    /// [`KeyError::Make`] when the system has no randomness to give.
    pub fn generate(form: KeyForm) -> Result<Self, KeyError> {
        let failed = || KeyError::Make(form);
        let size = match form {
            KeyForm::Rsa2048 => rsa::KeySize::Rsa2048,
            KeyForm::Rsa3072 => rsa::KeySize::Rsa3072,
            KeyForm::Rsa4096 => rsa::KeySize::Rsa4096,
            KeyForm::P256 => {
                let key = rcgen::KeyPair::generate().map_err(|_| failed())?;
                return Ok(Self(key.serialize_pem()));
            }
        };
        let key = rsa::KeyPair::generate(size).map_err(|_| failed())?;
        let pkcs8: Pkcs8V1Der<'_> = key.as_der().map_err(|_| failed())?;
        let pkcs1 = inner_key(pkcs8.as_ref()).ok_or_else(failed)?;
        Ok(Self(to_pem(RSA_PRIVATE_KEY, pkcs1)))
    }

    /// The PEM text.
    pub fn pem(&self) -> &str {
        &self.0
    }
}

/// The key inside `PrivateKeyInfo`: version, algorithm, and the octets that hold it.
fn inner_key(pkcs8: &[u8]) -> Option<&[u8]> {
    use x509_parser::der_parser::asn1_rs::{Any, OctetString};
    let (_, info) = Sequence::from_der(pkcs8).ok()?;
    let std::borrow::Cow::Borrowed(content) = info.content else { return None };
    let (rest, _version) = Any::from_der(content).ok()?;
    let (rest, _algorithm) = Any::from_der(rest).ok()?;
    let (_, octets) = OctetString::from_der(rest).ok()?;
    match octets.into_cow() {
        std::borrow::Cow::Borrowed(key) => Some(key),
        std::borrow::Cow::Owned(_) => None,
    }
}

/// The public half, as PKCS#1 DER, of the RSA key in a PEM text, which may be the private or the public one.
///
/// # Errors
/// [`KeyError::Rsa`] when it is neither.
pub fn rsa_public_der(pem: &[u8]) -> Result<Vec<u8>, KeyError> {
    let block = pem::parse(pem).map_err(|e| KeyError::Rsa(e.to_string()))?;
    let rejected = |e: aws_lc_rs::error::KeyRejected| KeyError::Rsa(e.to_string());
    match block.tag() {
        RSA_PRIVATE_KEY => {
            let key = rsa::KeyPair::from_der(block.contents()).map_err(rejected)?;
            Ok(key.public_key().as_ref().to_vec())
        }
        RSA_PUBLIC_KEY => {
            let key = rsa::PublicKey::from_der(block.contents()).map_err(rejected)?;
            Ok(key.as_ref().to_vec())
        }
        other => {
            Err(KeyError::Rsa(format!("expected {RSA_PRIVATE_KEY} or {RSA_PUBLIC_KEY}, found {other:?}")))
        }
    }
}

/// Whether this says of itself that it is a private RSA key, of which [`rsa_public_der`] finds out whether it is.
pub fn is_rsa_private(pem: &[u8]) -> bool {
    pem::parse(pem).is_ok_and(|block| block.tag() == RSA_PRIVATE_KEY)
}

/// The public half of an RSA key as PEM.
///
/// # Errors
/// As [`rsa_public_der`].
pub fn rsa_public_pem(pem: &[u8]) -> Result<String, KeyError> {
    Ok(to_pem(RSA_PUBLIC_KEY, &rsa_public_der(pem)?))
}

fn to_pem(tag: &str, der: &[u8]) -> String {
    let lines = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_config(&pem::Pem::new(tag, der), lines)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_rsa_key_is_written_as_peers_read_it() {
        let key = PrivateKey::generate(KeyForm::Rsa2048).unwrap();
        assert!(key.pem().starts_with("-----BEGIN RSA PRIVATE KEY-----\n"));
        let public = rsa_public_pem(key.pem().as_bytes()).unwrap();
        assert!(public.starts_with("-----BEGIN RSA PUBLIC KEY-----\n"));
        let again = rsa_public_der(public.as_bytes()).unwrap();
        assert_eq!(again, rsa_public_der(key.pem().as_bytes()).unwrap());
        assert!(format!("{key:?}").len() < 20, "a key is never printed");
    }

    #[test]
    fn what_is_no_rsa_key_is_named() {
        let key = PrivateKey::generate(KeyForm::P256).unwrap();
        let error = rsa_public_der(key.pem().as_bytes()).unwrap_err().to_string();
        assert!(error.contains("\"PRIVATE KEY\""), "{error}");
        rsa_public_der(b"no PEM").unwrap_err();
        rsa_public_der(b"-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
            .unwrap_err();
    }

    #[test]
    fn only_lengths_worth_having_are_made() {
        for bits in [0, 1024, 2049, 8192, 16384, u64::MAX] {
            assert_eq!(KeyForm::rsa(bits), None, "{bits}");
        }
        assert_eq!(KeyForm::rsa(4096), Some(KeyForm::Rsa4096));
    }
}
