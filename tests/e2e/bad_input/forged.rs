//! Tokens that must not open anything: made with the real keys where that is what makes them bad.

use aws_lc_rs::{
    hmac,
    rand::SystemRandom,
    rsa::PublicKeyComponents,
    signature::{KeyPair, RSA_PKCS1_SHA256, RSA_PKCS1_SHA384, RSA_PSS_SHA256, RsaEncoding, RsaKeyPair},
};
use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use common::runtime::Env;
use rustls::pki_types::{PrivatePkcs1KeyDer, pem::PemObject};
use serde_json::{Value, json};

use crate::harness::control_plane::ControlPlane;

/// What a forger works with: the signing key of a sort of token, and claims that would be let in.
pub struct Forge {
    key: RsaKeyPair,
    /// A key of the same control plane that signs tokens of another sort.
    other: RsaKeyPair,
    pem: String,
    good: Value,
}

/// A forged token, by name.
pub type Forged = (&'static str, fn(&Forge) -> String);

/// The id in every token that a test revokes.
pub const REVOKED: &str = "00000000-0000-4000-8000-00000000dead";

impl Forge {
    /// With the keys that two secrets hold; `good` is what a token must claim here.
    pub async fn steal(cp: &ControlPlane, secret: &str, other: &str, good: Value) -> Self {
        let (pem, other) = (key_of(cp, secret).await, key_of(cp, other).await);
        Self { key: pair(&pem), other: pair(&other), pem, good }
    }

    /// A token with these claims instead, signed as it should be.
    pub fn claiming(&self, change: &Value) -> String {
        self.signed(USUAL, &self.claims(change))
    }

    /// A token that is right: what is forged must not fail for another reason than its fault.
    pub fn right(&self) -> String {
        self.signed(r#"{"alg":"RS256","kid":"1","typ":"JWT"}"#, &self.claims(&json!({})))
    }

    fn claims(&self, change: &Value) -> String {
        let now = now();
        let mut claims = json!({"jti": "a", "iat": now - 60, "nbf": now - 60, "exp": now + 3600});
        for more in [&self.good, change] {
            claims.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        }
        claims.to_string()
    }

    fn signed(&self, header: &str, claims: &str) -> String {
        with(&self.key, &RSA_PKCS1_SHA256, header, claims)
    }

    fn usual(&self, change: Value) -> String {
        self.claiming(&change)
    }

    fn under(&self, header: &str) -> String {
        self.signed(header, &self.claims(&json!({})))
    }

    fn hmac(&self, algorithm: hmac::Algorithm, name: &str, secret: &[u8]) -> String {
        let unsigned = joined(&format!(r#"{{"alg":"{name}","kid":"1"}}"#), &self.claims(&json!({})));
        let tag = hmac::sign(&hmac::Key::new(algorithm, secret), unsigned.as_bytes());
        format!("{unsigned}.{}", encode(tag.as_ref()))
    }

    fn parts(&self) -> [String; 3] {
        let right = self.right();
        let mut parts = right.split('.').map(str::to_owned);
        std::array::from_fn(|_| parts.next().unwrap())
    }
}

const USUAL: &str = r#"{"alg":"RS256","kid":"1"}"#;

/// What works against every sort of token.
#[rustfmt::skip]
pub const FORGED: &[Forged] = &[
    ("alg none", |f| joined(r#"{"alg":"none","kid":"1"}"#, &f.claims(&json!({}))) + "."),
    ("alg None", |f| joined(r#"{"alg":"None","kid":"1"}"#, &f.claims(&json!({}))) + "."),
    ("alg empty", |f| f.under(r#"{"alg":"","kid":"1"}"#)),
    ("no alg", |f| f.under(r#"{"kid":"1"}"#)),
    ("alg with a newline", |f| f.under("{\"alg\":\"RS256\\nforged line\",\"kid\":\"1\"}")),
    ("alg of 64 KiB", |f| f.under(&format!(r#"{{"alg":"{}","kid":"1"}}"#, "R".repeat(48 << 10)))),
    ("HS256 with the public key", |f| f.hmac(hmac::HMAC_SHA256, "HS256", f.pem.as_bytes())),
    ("HS256 with nothing", |f| f.hmac(hmac::HMAC_SHA256, "HS256", b"")),
    ("HS512 that says RS256", |f| f.hmac(hmac::HMAC_SHA512, "RS256", f.pem.as_bytes())),
    ("RS384 with the right key", |f| with(&f.key, &RSA_PKCS1_SHA384, r#"{"alg":"RS384","kid":"1"}"#, &f.claims(&json!({})))),
    ("PS256 with the right key", |f| with(&f.key, &RSA_PSS_SHA256, r#"{"alg":"PS256","kid":"1"}"#, &f.claims(&json!({})))),
    ("kid of no key", |f| f.under(r#"{"alg":"RS256","kid":"99"}"#)),
    ("no kid", |f| f.under(r#"{"alg":"RS256"}"#)),
    ("kid that is a number", |f| f.under(r#"{"alg":"RS256","kid":1}"#)),
    ("kid with a path", |f| f.under(r#"{"alg":"RS256","kid":"../1"}"#)),
    ("kid with a zero before it", |f| f.under(r#"{"alg":"RS256","kid":"01"}"#)),
    ("kid with a NUL", |f| f.under("{\"alg\":\"RS256\",\"kid\":\"1\\u0000\"}")),
    ("key of another sort of token", |f| with(&f.other, &RSA_PKCS1_SHA256, USUAL, &f.claims(&json!({})))),
    ("key brought along", |f| {
        let header = json!({"alg": "RS256", "kid": "1", "jwk": public(&f.other), "jku": "http://127.0.0.1:1/keys"});
        with(&f.other, &RSA_PKCS1_SHA256, &header.to_string(), &f.claims(&json!({})))
    }),
    ("key from elsewhere", |f| {
        let header = r#"{"alg":"RS256","kid":"9","x5u":"http://127.0.0.1:1/crt","jku":"file:///etc/passwd"}"#;
        with(&f.other, &RSA_PKCS1_SHA256, header, &f.claims(&json!({})))
    }),
    ("no signature", |f| { let [header, claims, _] = f.parts(); format!("{header}.{claims}.") }),
    ("half a signature", |f| { let right = f.right(); right[..right.len() - 100].to_owned() }),
    ("signature of something else", |f| {
        let ([header, claims, _], other) = (f.parts(), f.usual(json!({"jti": "b"})));
        format!("{header}.{claims}.{}", other.rsplit('.').next().unwrap())
    }),
    ("claims changed afterwards", |f| {
        let [header, _, signature] = f.parts();
        format!("{header}.{}.{signature}", encode(f.claims(&json!({"exp": 9_999_999_999_u64})).as_bytes()))
    }),
    ("expired", |f| f.usual(json!({"exp": 1_000_000_000}))),
    ("expired a minute ago", |f| f.usual(json!({"exp": now() - 60}))),
    ("expired before time began", |f| f.usual(json!({"exp": -1}))),
    ("not valid yet", |f| f.usual(json!({"nbf": now() + 600}))),
    ("expiry that is text", |f| f.usual(json!({"exp": "never"}))),
    ("expiry beyond numbers", |f| f.signed(USUAL, &f.claims(&json!({})).replacen("\"exp\":", "\"exp\":1e400,\"x\":", 1))),
    ("expiry that is infinite", |f| f.usual(json!({"exp": 1e300}))),
    ("revoked", |f| f.usual(json!({"jti": REVOKED}))),
    ("claims that are a list", |f| f.signed(USUAL, "[]")),
    ("claims that are no JSON", |f| f.signed(USUAL, "{")),
    ("claims 10,000 deep", |f| f.signed(USUAL, &format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)))),
    ("header 10,000 deep", |f| f.under(&format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)))),
    ("two parts", |f| { let [header, claims, _] = f.parts(); format!("{header}.{claims}") }),
    ("four parts", |f| f.right() + ".x"),
    ("five parts", |f| f.right() + ".x.y"),
    ("only dots", |_| "...".to_owned()),
    ("letters outside the alphabet", |f| f.right().replacen("ey", "e!", 1)),
    ("words before it", |f| format!("Basic {}", f.right())),
    ("another one before it", |f| format!("{},{}", f.right(), f.right())),
    ("200 KiB of garbage", |_| "x".repeat(200 << 10)),
];

/// Seconds since 1970.
pub fn now() -> i64 {
    Env::system("test").now().timestamp()
}

fn joined(header: &str, claims: &str) -> String {
    format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()))
}

fn encode(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

fn with(key: &RsaKeyPair, encoding: &'static dyn RsaEncoding, header: &str, claims: &str) -> String {
    let unsigned = joined(header, claims);
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(encoding, &SystemRandom::new(), unsigned.as_bytes(), &mut signature).unwrap();
    format!("{unsigned}.{}", encode(&signature))
}

fn public(key: &RsaKeyPair) -> Value {
    let parts: PublicKeyComponents<Vec<u8>> = key.public_key().into();
    json!({"kty": "RSA", "n": encode(&parts.n), "e": encode(&parts.e)})
}

fn pair(pem: &str) -> RsaKeyPair {
    let der = PrivatePkcs1KeyDer::from_pem_slice(pem.as_bytes()).unwrap();
    RsaKeyPair::from_der(der.secret_pkcs1_der()).unwrap()
}

/// The PEM text that a secret with a signing key holds.
async fn key_of(cp: &ControlPlane, secret: &str) -> String {
    let data = cp.get(secret).await["data"].as_str().unwrap().to_owned();
    String::from_utf8(BASE64_STANDARD.decode(data).unwrap()).unwrap()
}
