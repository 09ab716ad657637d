//! The certificate of the server proxies connect to: given by the operator, or issued by an authority
//! of its own that lives in the work folder.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use chrono::{DateTime, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use thiserror::Error;
use x509_parser::{extensions::GeneralName, parse_x509_certificate};

const AUTHORITY_CERT: &str = "dp-server-ca.crt";
const AUTHORITY_KEY: &str = "dp-server-ca.key";
/// How long the generated authority is good for; proxies keep its certificate.
const AUTHORITY_DAYS: u64 = 3650;
/// How long one start of the server is good for.
const LEAF_DAYS: u64 = 825;
/// Clocks differ.
const BACKDATE: Duration = Duration::from_secs(600);

/// Where the certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// PEM files of the operator.
    Files {
        /// Chain, leaf first.
        certificate: PathBuf,
        /// Private key.
        key: PathBuf,
        /// What proxies are told to trust; `None` leaves it to their machines.
        authority: Option<PathBuf>,
    },
    /// Issued at start by an authority kept in this folder.
    Generated {
        /// The folder.
        folder: PathBuf,
        /// Names and addresses, besides those of the loopback interface.
        names: Vec<String>,
    },
}

/// Why there is no certificate.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file.
    #[error("{doing} {}: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To which file.
        path: PathBuf,
        /// What went wrong.
        source: io::Error,
    },
    /// The content of a file.
    #[error("{}: {reason}", path.display())]
    Content {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Issuing.
    #[error("issue the server certificate: {0}")]
    Issue(#[from] rcgen::Error),
    /// Key and certificate do not work together.
    #[error("use the server certificate: {0}")]
    Unusable(#[from] rustls::Error),
}

/// A certificate ready to serve.
#[derive(Debug)]
pub struct ServerCertificate {
    tls: Arc<rustls::ServerConfig>,
    authority_pem: Option<String>,
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl ServerCertificate {
    /// Loads or issues it.
    ///
    /// # Errors
    /// [`CertificateError`] naming the file or the cause.
    pub fn of(source: &Source, now: DateTime<Utc>) -> Result<Self, CertificateError> {
        match source {
            Source::Files { certificate, key, authority } => {
                let chain = read(certificate)?;
                let authority = authority.as_deref().map(read).transpose()?;
                Self::assemble(&chain, certificate, &read(key)?, key, authority)
            }
            Source::Generated { folder, names } => {
                let (authority_pem, authority_key) = authority(folder, now)?;
                let (chain, key) = issue(&authority_pem, &authority_key, names, now)?;
                let path = folder.join(AUTHORITY_CERT);
                Self::assemble(&format!("{chain}{authority_pem}"), &path, &key, &path, Some(authority_pem))
            }
        }
    }

    fn assemble(
        chain_pem: &str,
        chain_path: &Path,
        key_pem: &str,
        key_path: &Path,
        authority_pem: Option<String>,
    ) -> Result<Self, CertificateError> {
        let content = |path: &Path, reason: String| CertificateError::Content { path: path.into(), reason };
        let chain = CertificateDer::pem_slice_iter(chain_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| content(chain_path, e.to_string()))?;
        let leaf = chain.first().ok_or_else(|| content(chain_path, "holds no certificate".to_owned()))?;
        let (names, addresses) = subjects(leaf).map_err(|reason| content(chain_path, reason))?;
        let key = PrivateKeyDer::from_pem_slice(key_pem.as_bytes())
            .map_err(|e| content(key_path, e.to_string()))?;

        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self { tls: Arc::new(tls), authority_pem, names, addresses })
    }

    /// How to accept connections with it.
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        Arc::clone(&self.tls)
    }

    /// What proxies have to trust, when it is not a public authority.
    pub fn authority_pem(&self) -> Option<&str> {
        self.authority_pem.as_deref()
    }

    /// Whether a client that dials `host` accepts the certificate.
    pub fn covers(&self, host: &str) -> bool {
        if let Ok(address) = host.parse::<IpAddr>() {
            return self.addresses.contains(&address);
        }
        let wildcard = host.split_once('.').map(|(_, rest)| format!("*.{rest}"));
        self.names.iter().any(|n| {
            n.eq_ignore_ascii_case(host) || wildcard.as_ref().is_some_and(|w| n.eq_ignore_ascii_case(w))
        })
    }
}

/// Whether `pem` is the certificate of an authority.
///
/// # Errors
/// What is wrong with it.
pub fn check_authority(pem: &str) -> Result<(), String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
    let (_, certificate) = parse_x509_certificate(&der).map_err(|e| e.to_string())?;
    if certificate.is_ca() { Ok(()) } else { Err("it may not sign certificates".to_owned()) }
}

fn subjects(leaf: &[u8]) -> Result<(Vec<String>, Vec<IpAddr>), String> {
    let (_, certificate) = parse_x509_certificate(leaf).map_err(|e| e.to_string())?;
    let (mut names, mut addresses) = (Vec::new(), Vec::new());
    let extension = certificate.subject_alternative_name().map_err(|e| e.to_string())?;
    for name in extension.iter().flat_map(|e| &e.value.general_names) {
        match name {
            GeneralName::DNSName(name) => names.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => addresses.extend(
                <[u8; 4]>::try_from(*bytes)
                    .map(IpAddr::from)
                    .or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from)),
            ),
            _ => {}
        }
    }
    Ok((names, addresses))
}

/// The authority of the folder, made when there is none or when it has expired.
fn authority(folder: &Path, now: DateTime<Utc>) -> Result<(String, KeyPair), CertificateError> {
    let (cert_path, key_path) = (folder.join(AUTHORITY_CERT), folder.join(AUTHORITY_KEY));
    if cert_path.exists() && key_path.exists() {
        let pem = read(&cert_path)?;
        if is_current(&pem, now)
            .map_err(|r| CertificateError::Content { path: cert_path.clone(), reason: r })?
        {
            return Ok((pem, KeyPair::from_pem(&read(&key_path)?)?));
        }
    }
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "strait dataplane server authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    lifetime(&mut params, now, AUTHORITY_DAYS);
    let pem = params.self_signed(&key)?.pem();
    write(folder, &key_path, &key.serialize_pem(), 0o600)?;
    write(folder, &cert_path, &pem, 0o644)?;
    tracing::info!(file = %cert_path.display(), "made an authority for the server of the proxies");
    Ok((pem, key))
}

fn issue(
    authority_pem: &str,
    authority_key: &KeyPair,
    names: &[String],
    now: DateTime<Utc>,
) -> Result<(String, String), CertificateError> {
    let loopback = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut all: Vec<String> = loopback.into_iter().chain(names.iter().cloned()).collect();
    all.sort();
    all.dedup();
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(all)?;
    params.distinguished_name.push(DnType::CommonName, "strait dataplane server");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    lifetime(&mut params, now, LEAF_DAYS);
    let issuer = Issuer::from_ca_cert_pem(authority_pem, authority_key)?;
    Ok((params.signed_by(&key, &issuer)?.pem(), key.serialize_pem()))
}

fn lifetime(params: &mut CertificateParams, now: DateTime<Utc>, days: u64) {
    let since_epoch = Duration::from_secs(u64::try_from(now.timestamp()).unwrap_or(0));
    let now = rcgen::date_time_ymd(1970, 1, 1) + since_epoch;
    params.not_before = now - BACKDATE;
    params.not_after = now + Duration::from_secs(days * 86_400);
}

/// Whether the certificate is good for at least as long as a leaf it would sign today.
fn is_current(pem: &str, now: DateTime<Utc>) -> Result<bool, String> {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|e| e.to_string())?;
    let (_, certificate) = parse_x509_certificate(&der).map_err(|e| e.to_string())?;
    let end = certificate.validity().not_after.timestamp();
    Ok(end > now.timestamp() + i64::try_from(LEAF_DAYS * 86_400).unwrap_or(i64::MAX))
}

fn read(path: impl AsRef<Path>) -> Result<String, CertificateError> {
    let path = path.as_ref();
    fs::read_to_string(path).map_err(|source| CertificateError::File {
        doing: "read",
        path: path.to_owned(),
        source,
    })
}

/// Writes a file whole or not at all.
fn write(folder: &Path, path: &Path, content: &str, mode: u32) -> Result<(), CertificateError> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let aside = path.with_extension("new");
    let attempt = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        let mut file =
            fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&aside)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    attempt().map_err(|source| CertificateError::File { doing: "write", path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_restart_keeps_the_authority_and_may_add_names() {
        let folder = tempfile::tempdir().unwrap();
        let now = Utc::now();
        let of = |names: &[&str]| {
            let names = names.iter().map(|n| (*n).to_owned()).collect();
            ServerCertificate::of(&Source::Generated { folder: folder.path().into(), names }, now).unwrap()
        };
        let first = of(&[]);
        let second = of(&["zone-1.example", "10.0.0.7", "*.mesh.example"]);
        assert_eq!(first.authority_pem(), second.authority_pem());
        check_authority(first.authority_pem().unwrap()).unwrap();

        let covered = |host| (first.covers(host), second.covers(host));
        assert_eq!(covered("localhost"), (true, true));
        assert_eq!(covered("127.0.0.1"), (true, true));
        assert_eq!(covered("::1"), (true, true));
        assert_eq!(covered("zone-1.example"), (false, true));
        assert_eq!(covered("10.0.0.7"), (false, true));
        assert_eq!(covered("a.mesh.example"), (false, true));
        assert_eq!(covered("mesh.example"), (false, false));
    }

    #[test]
    fn an_authority_that_would_end_before_its_leaf_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let source = Source::Generated { folder: folder.path().into(), names: Vec::new() };
        let now = Utc::now();
        let long_ago = now - chrono::TimeDelta::days(9 * 365);
        let old = ServerCertificate::of(&source, long_ago).unwrap();
        let new = ServerCertificate::of(&source, now).unwrap();
        assert_ne!(old.authority_pem(), new.authority_pem());
    }

    #[test]
    fn files_that_cannot_work_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("a.crt"), folder.path().join("a.key"));
        let of = || {
            let source = Source::Files { certificate: cert.clone(), key: key.clone(), authority: None };
            ServerCertificate::of(&source, Utc::now()).unwrap_err().to_string()
        };
        assert!(of().contains("a.crt"), "{}", of());
        fs::write(&cert, "nonsense").unwrap();
        fs::write(&key, "nonsense").unwrap();
        assert!(of().contains("holds no certificate"), "{}", of());
    }
}
