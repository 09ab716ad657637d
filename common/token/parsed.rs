//! Public keys that were read before. Reading one from a private key checks the whole of that, which takes
//! longer than checking a signature, and every caller, good or not, makes us want it.

use std::{
    collections::HashMap,
    sync::{LazyLock, Mutex, PoisonError},
};

use aws_lc_rs::digest::{SHA256, digest};

use crate::keys::{self, KeyError};

/// Keys kept; far more than a control plane has.
const KEPT: usize = 1024;

type KeyReading = Result<Vec<u8>, KeyError>;

/// By the digest of their text, so that what was read stays right whichever secret of whichever store holds
/// it, and no private key is kept.
static READ: LazyLock<Mutex<HashMap<[u8; 32], KeyReading>>> = LazyLock::new(Mutex::default);

/// As [`keys::rsa_public_der`], read once.
pub(super) fn rsa_public_der(pem: &[u8]) -> KeyReading {
    let digest = digest(&SHA256, pem);
    let place: [u8; 32] = digest.as_ref().try_into().expect("SHA-256 has 32 bytes");
    let read = || READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = read().get(&place) {
        return known.clone();
    }
    let key = keys::rsa_public_der(pem);
    let mut read = read();
    if read.len() >= KEPT {
        read.clear();
    }
    read.insert(place, key.clone());
    key
}
