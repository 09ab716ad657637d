//! How a zone treats its global.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use common::{
    kds::{
        MAX_MESSAGE,
        dial::ClientCertificateFiles,
        fuse::Fuse,
        reverse::ANSWER_WITHIN,
        signature::{ResourceKeyError, TrustedFile},
    },
    runtime::warn_if_open,
};
use thiserror::Error;
use uuid::Uuid;

/// All knobs of [`super::Connector`].
#[derive(Clone, Debug)]
pub struct ZoneKdsSettings {
    /// Name of this zone.
    pub zone: Arc<str>,
    /// Where global is, as an operator wrote it.
    pub address: String,
    /// Credential shown to global.
    pub token: TokenSource,
    /// The certificate shown to global, if there is one: to tell when it runs out.
    pub certificate: Option<ClientCertificateFiles>,
    /// File with the keys of which one must have signed what global sends.
    pub trusted_keys: Option<PathBuf>,
    /// Sync by KDS v1.
    pub v1: bool,
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
    /// How long global may owe an answer.
    pub stall_after: Duration,
    /// How long an answer to global about an Envoy may take.
    pub answer_within: Duration,
    /// Period of pings until global asks for another.
    pub ping_interval: Duration,
    /// How often acknowledgements are repeated to a global of another make.
    pub remind_every: Duration,
    /// Labels with these prefixes are not sent.
    pub skip_label_prefixes: Vec<String>,
    /// Brake on mass deletion.
    pub fuse: Fuse,
    /// The store of global an operator accepted in place of the one known before.
    pub accept_store: Option<Uuid>,
    /// Effective configuration as JSON with secrets masked, shown on global.
    pub config: String,
    /// Version of this program.
    pub version: String,
    /// Other replicas of this zone may take over from this one.
    pub shares_store: bool,
    /// A global that asks for what this zone holds gets its secrets too: somebody vouches for who is at the other end.
    pub gives_secrets: bool,
    /// What global is asked to certify, so that this zone signs its workloads with a key of its own.
    pub issuing_request: Option<String>,
}

impl ZoneKdsSettings {
    /// The defaults for a zone of this name.
    pub fn new(zone: &str) -> Self {
        Self {
            zone: zone.into(),
            address: String::new(),
            token: TokenSource::None,
            certificate: None,
            trusted_keys: None,
            v1: false,
            max_message: MAX_MESSAGE,
            gzip: true,
            backoff: (Duration::from_millis(500), Duration::from_secs(30)),
            healthy_after: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            stall_after: Duration::from_secs(20),
            answer_within: ANSWER_WITHIN,
            // Each ping is a write on a global of Kuma; one that watches its zones says how often it wants them.
            ping_interval: Duration::from_secs(60),
            remind_every: Duration::from_secs(30),
            skip_label_prefixes: Vec::new(),
            fuse: Fuse::default(),
            accept_store: None,
            // Peers read the type of the store from here and expect to find one.
            config: r#"{"store":{"type":"memory"}}"#.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            shares_store: false,
            gives_secrets: false,
            issuing_request: None,
        }
    }

    /// The keys of which one must have signed what global sends, as the file says now.
    ///
    /// # Errors
    /// [`ResourceKeyError`] when nobody can say which these are: then nothing is taken.
    pub(super) fn trusted(&self) -> Result<Option<Arc<TrustedFile>>, ResourceKeyError> {
        let open = |path| TrustedFile::open(path, "multizone.zone.kds.trustedKeysFile").map(Arc::new);
        self.trusted_keys.as_deref().map(open).transpose()
    }

    /// What connects, and in which version, as global is told.
    pub(super) fn agent(&self) -> String {
        format!("strait-zone/{}", self.version)
    }
}

/// Where the credential comes from. A file is read at every connect, so that it can be replaced.
#[derive(Clone, PartialEq, Eq)]
pub enum TokenSource {
    /// There is none.
    None,
    /// It is this.
    Inline(String),
    /// It is in this file.
    File(PathBuf),
}

/// The file of the credential cannot be read.
#[derive(Debug, Error)]
#[error("read the zone token from {} (setting multizone.zone.kds.tokenFile): {source}", path.display())]
pub(super) struct TokenFileError {
    path: PathBuf,
    source: io::Error,
}

impl TokenSource {
    /// From the usual pair of settings; empty means not set.
    pub fn from_settings(token: &str, file: &str) -> Self {
        match (token, file) {
            ("", "") => Self::None,
            ("", file) => {
                warn_if_open(file.as_ref(), "the zone token in it");
                Self::File(file.into())
            }
            (token, _) => Self::Inline(token.to_owned()),
        }
    }

    pub(super) fn read(&self) -> Result<Option<String>, TokenFileError> {
        match self {
            Self::None => Ok(None),
            Self::Inline(token) => Ok(Some(token.trim().to_owned())),
            Self::File(path) => match std::fs::read_to_string(path) {
                // An empty file is none: nobody has put the token there yet.
                Ok(token) => Ok(Some(token.trim().to_owned()).filter(|token| !token.is_empty())),
                Err(source) => Err(TokenFileError { path: path.clone(), source }),
            },
        }
    }
}

impl std::fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Inline(_) => f.write_str("Inline"),
            Self::File(path) => write!(f, "File({})", path.display()),
        }
    }
}
