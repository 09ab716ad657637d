//! The public keys of a provider.

use jsonwebtoken::{
    Algorithm, AlgorithmFamily, DecodingKey,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;

use super::OidcError;

/// Keys of one provider that are looked at; providers have a handful.
const MOST: usize = 64;
/// Longest name of a key.
const LONGEST_NAME: usize = 512;

/// The keys with which a provider may have signed.
#[derive(Clone, Debug, Default)]
pub struct ProviderKeys {
    keys: Vec<ProviderKey>,
}

#[derive(Clone, Debug)]
struct ProviderKey {
    id: Option<String>,
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeyDocument {
    keys: Vec<Value>,
}

impl ProviderKeys {
    /// Reads a JWK set. Keys that are no public keys for signatures are left out.
    ///
    /// # Errors
    /// [`OidcError::Document`] when it is none, or nothing is left.
    pub fn parse(document: &[u8]) -> Result<Self, OidcError> {
        let unusable = |reason: String| OidcError::Document { what: "the key set", reason };
        let document: KeyDocument =
            serde_json::from_slice(document).map_err(|error| unusable(error.to_string()))?;
        let keys = document.keys.into_iter().take(MOST).filter_map(ProviderKey::of);
        let keys: Vec<ProviderKey> = keys.collect();
        if keys.is_empty() {
            return Err(unusable("there is no public key for signatures in it".to_owned()));
        }
        Ok(Self { keys })
    }

    /// The key of this name for signatures of this kind; without a name, the only one there is.
    pub fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Option<&DecodingKey> {
        let mut fitting = self.keys.iter().filter(|key| key.algorithms.contains(&algorithm));
        match id {
            Some(id) => fitting.find(|key| key.id.as_deref() == Some(id)).map(|key| &key.key),
            None => {
                let only = fitting.next()?;
                fitting.next().is_none().then_some(&only.key)
            }
        }
    }
}

impl ProviderKey {
    fn of(document: Value) -> Option<Self> {
        let key: Jwk = serde_json::from_value(document).ok()?;
        let common = &key.common;
        if common.public_key_use.as_ref().is_some_and(|of| *of != PublicKeyUse::Signature) {
            return None;
        }
        let of_family = match &key.algorithm {
            AlgorithmParameters::RSA(_) => AlgorithmFamily::Rsa.algorithms().to_vec(),
            AlgorithmParameters::EllipticCurve(of) => match of.curve {
                EllipticCurve::P256 => vec![Algorithm::ES256],
                EllipticCurve::P384 => vec![Algorithm::ES384],
                _ => return None,
            },
            AlgorithmParameters::OctetKeyPair(_) => vec![Algorithm::EdDSA],
            // A shared secret in a public document proves nothing.
            _ => return None,
        };
        let algorithms = match common.key_algorithm {
            None => of_family,
            Some(named) => {
                let named = Algorithm::try_from(named).ok()?;
                of_family.contains(&named).then(|| vec![named])?
            }
        };
        let id = common.key_id.clone();
        if id.as_ref().is_some_and(|id| id.len() > LONGEST_NAME) {
            return None;
        }
        Some(Self { id, algorithms, key: DecodingKey::from_jwk(&key).ok()? })
    }
}
