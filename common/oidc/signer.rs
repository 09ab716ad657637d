//! A provider in a test, as far as it signs.

#![allow(clippy::unwrap_used)]

use jsonwebtoken::{Algorithm, EncodingKey, Header, jwk::Jwk};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::{Value, json};

use super::{OpenIdProvider, ProviderKeys, ProviderMetadata};
use crate::config::OpenIdConnectSection;

pub(crate) const ISSUER: &str = "https://login.example";

/// One key of a provider.
pub(crate) struct Signer {
    key: EncodingKey,
    algorithm: Algorithm,
    pub(crate) id: String,
}

impl Signer {
    pub(crate) fn new(id: &str) -> Self {
        let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
        let key = EncodingKey::from_ec_pem(pair.serialize_pem().as_bytes()).unwrap();
        Self { key, algorithm: Algorithm::ES256, id: id.to_owned() }
    }

    /// One with an RSA key, of which this is the PEM text.
    pub(crate) fn of_rsa(id: &str, pem: &str) -> Self {
        let key = EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap();
        Self { key, algorithm: Algorithm::RS256, id: id.to_owned() }
    }

    pub(crate) fn jwk(&self) -> Value {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap()).unwrap();
        jwk["kid"] = self.id.clone().into();
        jwk
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        let header = Header { kid: Some(self.id.clone()), ..Header::new(self.algorithm) };
        self.sign_with(&header, claims)
    }

    pub(crate) fn sign_with(&self, header: &Header, claims: &Value) -> String {
        jsonwebtoken::encode(header, claims, &self.key).unwrap()
    }
}

/// The keys of these signers.
pub(crate) fn key_set(signers: &[&Signer]) -> ProviderKeys {
    let keys: Vec<Value> = signers.iter().map(|signer| signer.jwk()).collect();
    ProviderKeys::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

/// What is good for an hour from `now` on, for the client of the page.
pub(crate) fn claims(now: i64, user: &str, groups: &[&str]) -> Value {
    json!({ "iss": ISSUER, "sub": user, "aud": "page", "iat": now, "exp": now + 3600, "groups": groups })
}

pub(crate) fn settings() -> OpenIdConnectSection {
    OpenIdConnectSection {
        issuer: ISSUER.to_owned(),
        client_id: "page".to_owned(),
        cli_client_id: "cli".to_owned(),
        ..OpenIdConnectSection::default()
    }
}

/// A provider with these keys, which nobody has to ask.
pub(crate) fn provider(signers: &[&Signer]) -> OpenIdProvider {
    let metadata = ProviderMetadata {
        issuer: ISSUER.to_owned(),
        authorization_endpoint: Some(format!("{ISSUER}/auth")),
        token_endpoint: format!("{ISSUER}/token"),
        jwks_uri: format!("{ISSUER}/keys"),
        end_session_endpoint: Some(format!("{ISSUER}/out?a=b")),
        ..ProviderMetadata::default()
    };
    let provider = OpenIdProvider::new(&settings()).unwrap();
    provider.learn(metadata, key_set(signers));
    provider
}
