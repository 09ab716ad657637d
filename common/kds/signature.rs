//! Signatures of what global sends: who carries it, and who has a copy of global's store, cannot make any.
//!
//! ```text
//! global: form that leaves ─ sign ─► envelope with a signature ══► relays ══► zone: keys it trusts ─ verify ─► store
//! ```
//!
//! What is signed is the form in which a zone gets a resource: its type, mesh and name, so that nothing can be put in
//! the place of something else, its labels, its spec and its status. The key is none of those in the store. The same
//! form has the same signature, whichever replica makes it, so zones resume as they do without signatures.
//!
//! A signature says that global said so once. It does not say that global still does: who carries resources can hold
//! back what changes or is deleted. What was signed with a key that nobody trusts any more is worth nothing.

mod keys;

use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use thiserror::Error;

use super::codec::Item;
use crate::{
    clip::clip,
    model::{Labels, Resource, labels},
};

pub use self::keys::{KeyOfResources, ResourceKeyError, TrustedFile, TrustedKeys};

/// What every signed text begins with, so that a signature of this key is good for nothing else.
const PURPOSE: &[u8] = b"strait signed resource 1";
/// How much of the id of a key an error shows, in bytes.
const SHOWN: usize = 32;

/// Why an item is not taken where signatures are asked for.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SignatureRefusal {
    /// It bears none.
    #[error(
        "it is not signed, and this zone takes only what is (multizone.zone.kds.trustedKeysFile): set \
         multizone.global.kds.signingKeyFile on global"
    )]
    Missing,
    /// What it bears is none.
    #[error("what stands in the place of its signature is none")]
    Unreadable,
    /// It is one of a key nobody here trusts.
    #[error(
        "it is signed with the key {0:?}, which is none of those in multizone.zone.kds.trustedKeysFile of this zone"
    )]
    UnknownKey(String),
    /// It is not the one of this content under this name.
    #[error(
        "its signature does not fit: it is not what global signed with the key {0}, or not under this name; somebody \
         between global and this zone changed it"
    )]
    Wrong(String),
}

/// The bytes that are signed: each part with its length before it, so that no two resources have the same.
fn statement(
    (kind, mesh, name): (&str, &str, &str),
    labels: &Labels,
    spec: &[u8],
    status: Option<&[u8]>,
) -> Vec<u8> {
    let mut text = PURPOSE.to_vec();
    let mut part = |bytes: &[u8]| {
        text.extend((bytes.len() as u64).to_be_bytes());
        text.extend(bytes);
    };
    part(kind.as_bytes());
    part(mesh.as_bytes());
    part(name.as_bytes());
    let signed = labels.iter().filter(|(label, _)| *label != labels::SIGNATURE);
    part(&(signed.clone().count() as u64).to_be_bytes());
    for (label, value) in signed {
        part(label.as_bytes());
        part(value.as_bytes());
    }
    part(spec);
    // What is absent reads like what is empty.
    part(status.unwrap_or_default());
    text
}

impl KeyOfResources {
    /// The signature of `form`, which is what a zone gets.
    pub fn signature_of(&self, form: &Resource) -> String {
        let place = (form.kind().name, form.mesh(), form.name());
        let status = form.status.as_deref().filter(|_| form.kind().has_status());
        let signature = self.sign(&statement(place, &form.labels, &form.spec, status));
        format!("{}.{}", self.id(), URL_SAFE_NO_PAD.encode(signature))
    }
}

impl TrustedKeys {
    /// Whether `item` bears the signature of one of these keys.
    ///
    /// # Errors
    /// [`SignatureRefusal`] saying what is wrong.
    pub fn verify(&self, item: &Item) -> Result<(), SignatureRefusal> {
        let text = item.labels.get(labels::SIGNATURE).ok_or(SignatureRefusal::Missing)?;
        let (id, signature) = text.split_once('.').ok_or(SignatureRefusal::Unreadable)?;
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| SignatureRefusal::Unreadable)?;
        let key = self.get(id).ok_or_else(|| SignatureRefusal::UnknownKey(clip(id, SHOWN).to_owned()))?;
        let place = (item.key.kind.name, &*item.key.mesh, &*item.key.name);
        let signed = statement(place, &item.labels, &item.spec, item.status.as_deref());
        let verified = UnparsedPublicKey::new(&ED25519, key).verify(&signed, &signature);
        verified.map_err(|_| SignatureRefusal::Wrong(id.to_owned()))
    }
}

#[cfg(test)]
mod tests;
