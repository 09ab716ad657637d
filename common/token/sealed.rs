//! What a browser keeps for us and neither reads nor changes, sealed with a key made of the one that signs user tokens:
//! all replicas have it, and with it goes what it sealed.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf::{HKDF_SHA256, Salt},
    rand,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};

use super::{Purpose, TokenError, keys::data_of, parsed};
use crate::{keys, store::index::Index};

/// Begins what is sealed. No token begins so.
const MARK: char = '~';
/// Longest text that is opened.
const LONGEST: usize = 8192;
const SALT: &[u8] = b"strait sealed 1";

/// Seals `content`, which is `what`, in characters that a cookie takes.
///
/// # Errors
/// [`TokenError`] when there is no key that signs user tokens.
pub fn seal(index: &Index, what: &str, content: &[u8]) -> Result<String, TokenError> {
    let key = Purpose::User.newest_key(index)?;
    let failed = |_| TokenError::Mismatch("it could not be sealed".to_owned());
    let cipher = cipher(&key.pem, what).ok_or_else(|| failed(aws_lc_rs::error::Unspecified))?;
    let mut nonce = [0; NONCE_LEN];
    rand::fill(&mut nonce).map_err(failed)?;
    let mut sealed = content.to_vec();
    let aad = Aad::from(key.kid.as_bytes());
    cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut sealed).map_err(failed)?;
    let sealed = BASE64_URL_SAFE_NO_PAD.encode([&nonce[..], &sealed].concat());
    Ok(format!("{MARK}{}.{sealed}", key.kid))
}

/// What was sealed as `what`; nothing when it was not sealed here, was changed, or its key is gone.
pub fn unseal(index: &Index, what: &str, text: &str) -> Option<Vec<u8>> {
    let (kid, sealed) = text.strip_prefix(MARK).filter(|_| text.len() <= LONGEST)?.split_once('.')?;
    let pem = data_of(Purpose::User.key_of(index, kid)?)?;
    let sealed = BASE64_URL_SAFE_NO_PAD.decode(sealed).ok()?;
    let (nonce, content) = sealed.split_at_checked(NONCE_LEN)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
    let mut content = content.to_vec();
    let aad = Aad::from(kid.as_bytes());
    let opened = cipher(&pem, what)?.open_in_place(nonce, aad, &mut content).ok()?;
    Some(opened.to_vec())
}

/// Whether `text` can only be something sealed.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(MARK)
}

/// Of a private key alone: whatever else somebody wrote into the secret can be known to others, or guessed.
fn cipher(pem: &[u8], what: &str) -> Option<LessSafeKey> {
    if !keys::is_rsa_private(pem) || parsed::rsa_public_der(pem).is_err() {
        return None;
    }
    let info = [what.as_bytes()];
    let derived = Salt::new(HKDF_SHA256, SALT).extract(pem);
    let derived = derived.expand(&info, &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(derived)))
}
