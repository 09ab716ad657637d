//! How a relay treats its global.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use common::kds::MAX_MESSAGE;
use thiserror::Error;

/// All knobs of the link to global.
#[derive(Clone, Debug)]
pub struct RelaySettings {
    /// Name of this relay.
    pub name: Arc<str>,
    /// Credential shown to global.
    pub token: RelayToken,
    /// Largest message, in bytes.
    pub max_message: usize,
    /// Compress what goes over the wire, both ways.
    pub gzip: bool,
    /// Shortest and longest pause before the next attempt to connect.
    pub backoff: (Duration, Duration),
    /// A connection that lived this long was healthy.
    pub healthy_after: Duration,
    /// How long an attempt to connect may take.
    pub connect_timeout: Duration,
    /// How often global hears of zones that do nothing.
    pub beat: Duration,
    /// Version of this program.
    pub version: String,
}

impl RelaySettings {
    /// The defaults for a relay of this name.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            token: RelayToken::None,
            max_message: MAX_MESSAGE,
            gzip: true,
            backoff: (Duration::from_millis(500), Duration::from_secs(30)),
            healthy_after: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            beat: Duration::from_secs(5),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }
}

/// Where the credential of a relay comes from. A file is read at every connect, so that it can be replaced.
#[derive(Clone, PartialEq, Eq)]
pub enum RelayToken {
    /// There is none.
    None,
    /// It is this.
    Inline(String),
    /// It is in this file.
    File(PathBuf),
}

/// The file of the credential cannot be read.
#[derive(Debug, Error)]
#[error("read the token of the relay from {} (setting multizone.relay.kds.tokenFile): {source}", path.display())]
pub(super) struct RelayTokenError {
    path: PathBuf,
    source: io::Error,
}

impl RelayToken {
    /// From the usual pair of settings; empty means not set.
    pub fn from_settings(token: &str, file: &str) -> Self {
        match (token, file) {
            ("", "") => Self::None,
            ("", file) => {
                common::runtime::warn_if_open(file.as_ref(), "the token of the relay in it");
                Self::File(file.into())
            }
            (token, _) => Self::Inline(token.to_owned()),
        }
    }

    pub(super) fn read(&self) -> Result<Option<String>, RelayTokenError> {
        match self {
            Self::None => Ok(None),
            Self::Inline(token) => Ok(Some(token.trim().to_owned())),
            Self::File(path) => match std::fs::read_to_string(path) {
                // An empty file is none: nobody has put the token there yet.
                Ok(token) => Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty())),
                Err(source) => Err(RelayTokenError { path: path.clone(), source }),
            },
        }
    }
}

impl std::fmt::Debug for RelayToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Inline(_) => f.write_str("Inline"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}
