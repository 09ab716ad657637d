//! The keys of signatures: the one that signs, and those that are trusted. Files of people, and none of the store.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use aws_lc_rs::{
    digest::{SHA256, digest},
    signature::{ED25519_PUBLIC_KEY_LEN, Ed25519KeyPair, KeyPair},
};
use thiserror::Error;

use crate::runtime::warn_if_open;

const PRIVATE: &str = "PRIVATE KEY";
const PUBLIC: &str = "PUBLIC KEY";
/// What a public Ed25519 key begins with as `SubjectPublicKeyInfo`; the key itself follows.
const INFO: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// Bytes of the digest of a public key that name it.
const ID: usize = 8;

/// Why a file holds no key to sign resources or to check their signatures.
#[derive(Debug, Error)]
pub enum ResourceKeyError {
    /// It cannot be read.
    #[error("read the key of resources from {path} (setting {setting}): {source}")]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{path} (setting {setting}) holds no {expected}: {reason}")]
    Content {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What was to be in there.
        expected: &'static str,
        /// Why.
        reason: String,
    },
}

/// The key that signs what global sends.
pub struct KeyOfResources {
    pair: Ed25519KeyPair,
    id: String,
}

impl std::fmt::Debug for KeyOfResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeyOfResources({})", self.id)
    }
}

impl PartialEq for KeyOfResources {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for KeyOfResources {}

impl KeyOfResources {
    /// The key in a file; `setting` names it in errors.
    ///
    /// # Errors
    /// [`ResourceKeyError`] when there is none.
    pub fn read(path: &Path, setting: &'static str) -> Result<Self, ResourceKeyError> {
        warn_if_open(path, "the key that signs resources in it");
        let text = read(path, setting)?;
        let expected = "Ed25519 private key as PEM";
        Self::from_pem(&text).map_err(|reason| content(path, setting, expected, reason))
    }

    /// The key in a PEM text (PKCS#8).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let blocks = pem::parse_many(text).map_err(|error| error.to_string())?;
        let block = blocks.iter().find(|block| block.tag() == PRIVATE);
        let block = block.ok_or_else(|| format!("there is no {PRIVATE} in it"))?;
        let pair = Ed25519KeyPair::from_pkcs8(block.contents()).map_err(|error| error.to_string())?;
        let id = id_of(pair.public_key().as_ref());
        Ok(Self { pair, id })
    }

    /// What names it, in signatures and in the status of zones.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The public half as PEM, as zones trust it.
    pub fn public_pem(&self) -> String {
        let info = [&INFO[..], self.pair.public_key().as_ref()].concat();
        pem::encode(&pem::Pem::new(PUBLIC, info))
    }

    pub(super) fn sign(&self, text: &[u8]) -> impl AsRef<[u8]> + use<> {
        self.pair.sign(text)
    }
}

/// The public halves of keys whose signatures count, by their ids.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedKeys(BTreeMap<String, [u8; ED25519_PUBLIC_KEY_LEN]>);

impl TrustedKeys {
    /// The keys in a PEM text, one after the other.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn from_pem(text: &str) -> Result<Self, String> {
        let blocks = pem::parse_many(text).map_err(|error| error.to_string())?;
        let keys = blocks.iter().map(public).collect::<Result<BTreeMap<_, _>, _>>()?;
        // Nothing could be taken, and nobody means that.
        if keys.is_empty() { Err(format!("there is no {PUBLIC} in it")) } else { Ok(Self(keys)) }
    }

    /// What names them.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn get(&self, id: &str) -> Option<&[u8]> {
        self.0.get(id).map(|key| &key[..])
    }
}

/// The file with the keys a zone trusts, so that they can be replaced while it runs.
#[derive(Debug)]
pub struct TrustedFile {
    path: PathBuf,
    setting: &'static str,
    keys: Mutex<Arc<TrustedKeys>>,
}

impl TrustedFile {
    /// The keys in a file; `setting` names it in errors.
    ///
    /// # Errors
    /// [`ResourceKeyError`] when there are none.
    pub fn open(path: &Path, setting: &'static str) -> Result<Self, ResourceKeyError> {
        let keys = Mutex::new(Arc::new(trusted(path, setting)?));
        Ok(Self { path: path.to_owned(), setting, keys })
    }

    /// The keys as they were read last.
    pub fn current(&self) -> Arc<TrustedKeys> {
        // They are replaced whole, so a panic while holding the lock leaves the last ones intact.
        Arc::clone(&self.keys.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The keys as they are in the file now. When that cannot be read, those of before count.
    pub fn read_again(&self) -> Arc<TrustedKeys> {
        match trusted(&self.path, self.setting) {
            Ok(keys) => *self.keys.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys),
            Err(error) => tracing::warn!(%error, "the keys this zone trusts are those it read before"),
        }
        self.current()
    }
}

/// The public key in a block, with its id.
fn public(block: &pem::Pem) -> Result<(String, [u8; ED25519_PUBLIC_KEY_LEN]), String> {
    match block.tag() {
        PUBLIC => {
            let key = block.contents().strip_prefix(&INFO).and_then(|key| key.try_into().ok());
            let key: [u8; ED25519_PUBLIC_KEY_LEN] = key.ok_or("a key in it is none of Ed25519")?;
            Ok((id_of(&key), key))
        }
        PRIVATE => Err("there is a private key in it, which belongs on global only".to_owned()),
        other => Err(format!("there is a {other} in it")),
    }
}

fn trusted(path: &Path, setting: &'static str) -> Result<TrustedKeys, ResourceKeyError> {
    let text = read(path, setting)?;
    let expected = "Ed25519 public keys as PEM";
    TrustedKeys::from_pem(&text).map_err(|reason| content(path, setting, expected, reason))
}

fn read(path: &Path, setting: &'static str) -> Result<String, ResourceKeyError> {
    let failed = |source| ResourceKeyError::File { setting, path: path.to_owned(), source };
    std::fs::read_to_string(path).map_err(failed)
}

fn content(path: &Path, setting: &'static str, expected: &'static str, reason: String) -> ResourceKeyError {
    ResourceKeyError::Content { setting, path: path.to_owned(), expected, reason }
}

fn id_of(public: &[u8]) -> String {
    digest(&SHA256, public).as_ref().iter().take(ID).map(|byte| format!("{byte:02x}")).collect()
}
