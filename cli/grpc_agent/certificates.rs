//! The files that a gRPC library watches, written as the zone says what the application shows and whom it believes.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use common::{
    proto::envoy::{
        config::core::v3::{DataSource, Node, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{Secret, secret::Type},
        service::{
            discovery::v3::{DiscoveryRequest, DiscoveryResponse},
            secret::v3::secret_discovery_service_client::SecretDiscoveryServiceClient,
        },
    },
    runtime::Entropy,
    structure,
    xds::{Backoff, envoy::SECRET},
};
use prost::Message;
use serde_json::json;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use zone::generator::{
    FEATURE_GRPC,
    grpc::{IDENTITY_SECRET, TRUST_SECRET},
};

/// First pause after a stream ended.
const PAUSE: Duration = Duration::from_secs(1);
/// Longest pause, and how long a stream lives that was a good one.
const LONGEST: Duration = Duration::from_secs(30);

/// Where they are.
pub(crate) struct CertificateFiles {
    /// What the application shows, leaf first, and the key of that. Both in one file, so that whoever reads it never
    /// has a key beside the certificate of another.
    pub(crate) identity: PathBuf,
    /// Whom it believes.
    pub(crate) authorities: PathBuf,
}

impl CertificateFiles {
    /// Those of a folder.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        Self { identity: folder.join("identity.pem"), authorities: folder.join("authorities.pem") }
    }

    /// Writes what a secret says.
    fn write(&self, content: &SecretContent) -> anyhow::Result<()> {
        match content {
            SecretContent::Identity { key, certificate } => {
                replace(&self.identity, &[certificate.trim_ascii_end(), b"\n", key].concat())
            }
            SecretContent::Authorities(pem) => replace(&self.authorities, pem),
        }
    }
}

/// What a secret of the zone says.
enum SecretContent {
    Identity { key: Vec<u8>, certificate: Vec<u8> },
    Authorities(Vec<u8>),
}

fn content(secret: &[u8]) -> anyhow::Result<SecretContent> {
    let secret = Secret::decode(secret).context("the zone sent a secret that does not decode")?;
    match secret.r#type {
        Some(Type::TlsCertificate(pair)) => {
            let (key, certificate) = (bytes(pair.private_key)?, bytes(pair.certificate_chain)?);
            Ok(SecretContent::Identity { key, certificate })
        }
        Some(Type::ValidationContext(context)) => Ok(SecretContent::Authorities(bytes(context.trusted_ca)?)),
        _ => bail!("the zone sent the secret {:?} in a form nobody asked for", secret.name),
    }
}

fn bytes(source: Option<DataSource>) -> anyhow::Result<Vec<u8>> {
    match source.and_then(|source| source.specifier) {
        Some(Specifier::InlineBytes(bytes)) => Ok(bytes),
        Some(Specifier::InlineString(text)) => Ok(text.into_bytes()),
        _ => bail!("the zone sent a secret without its content"),
    }
}

/// Puts a file with this content in the place of another. Whoever reads there sees all of the old or all of the new.
fn replace(place: &Path, content: &[u8]) -> anyhow::Result<()> {
    let doing = || format!("write {}", place.display());
    let new = place.with_extension("new");
    // What an interrupted one left may be readable for others.
    let _not_there = fs::remove_file(&new);
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new).with_context(doing)?;
    file.write_all(content).and_then(|()| file.sync_all()).with_context(doing)?;
    fs::rename(&new, place).with_context(doing)
}

/// Keeps the files in `folder` up to date, by way of the agent at `agent`. Ends only when they cannot be written.
pub(super) async fn keep(agent: SocketAddr, node: &str, folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("make the folder {}", folder.display()))?;
    let files = CertificateFiles::in_folder(folder);
    let (mut backoff, entropy) = (Backoff::new(PAUSE, LONGEST, LONGEST), Entropy::from_os());
    loop {
        let before = tokio::time::Instant::now();
        match follow(agent, node, &files).await? {
            Some(reason) => crate::output::note!("the zone gives no certificate: {reason}"),
            None => crate::output::note!("the zone ended the stream of certificates"),
        }
        backoff.ended(before.elapsed());
        // Agents that lost the same zone do not come back to it at once.
        tokio::time::sleep(entropy.with(|rng| backoff.next(rng))).await;
    }
}

/// One stream. Gives why it ended, unless that is because files cannot be written.
async fn follow(
    agent: SocketAddr,
    node: &str,
    files: &CertificateFiles,
) -> anyhow::Result<Option<tonic::Status>> {
    let mut client = match SecretDiscoveryServiceClient::connect(format!("http://{agent}")).await {
        Ok(client) => client,
        Err(error) => return Ok(Some(tonic::Status::unavailable(error.to_string()))),
    };
    let (said, requests) = mpsc::channel(1);
    let first = DiscoveryRequest { node: Some(described(node)), ..asking(&DiscoveryResponse::default()) };
    said.send(first).await.context("ask for certificates")?;
    let mut answers = match client.stream_secrets(ReceiverStream::new(requests)).await {
        Ok(answers) => answers.into_inner(),
        Err(status) => return Ok(Some(status)),
    };
    loop {
        let answer = match answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(None),
            Err(status) => return Ok(Some(status)),
        };
        for resource in &answer.resources {
            match content(&resource.value) {
                Ok(content) => files.write(&content)?,
                Err(error) => return Ok(Some(tonic::Status::invalid_argument(format!("{error:#}")))),
            }
        }
        if said.send(asking(&answer)).await.is_err() {
            return Ok(None);
        }
    }
}

/// The request that acknowledges `answer`.
fn asking(answer: &DiscoveryResponse) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: SECRET.to_owned(),
        resource_names: [IDENTITY_SECRET, TRUST_SECRET].map(str::to_owned).into(),
        version_info: answer.version_info.clone(),
        response_nonce: answer.nonce.clone(),
        ..DiscoveryRequest::default()
    }
}

fn described(node: &str) -> Node {
    let metadata = json!({ "features": [FEATURE_GRPC] });
    Node {
        id: node.to_owned(),
        metadata: metadata.as_object().cloned().map(structure::from_json),
        ..Node::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::{
        os::unix::fs::PermissionsExt,
        sync::atomic::{AtomicBool, Ordering},
    };

    use super::*;

    #[test]
    fn whoever_reads_has_the_key_of_the_certificate() {
        let folder = tempfile::tempdir().unwrap();
        let files = CertificateFiles::in_folder(folder.path());
        let identity = |which: u8| SecretContent::Identity {
            key: vec![which; 3000],
            certificate: [vec![which; 5000], b"\n\n".to_vec()].concat(),
        };
        files.write(&identity(b'a')).unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut seen = 0;
                while !is_done.load(Ordering::Relaxed) || seen == 0 {
                    let text = fs::read(&files.identity).unwrap();
                    let (certificate, key) = text.split_at(5000);
                    assert!(certificate.iter().all(|byte| *byte == certificate[0]));
                    assert_eq!(key, [b"\n", &[certificate[0]; 3000][..]].concat());
                    seen += 1;
                }
            });
            for round in 0..50 {
                files.write(&identity(b'a' + round % 2)).unwrap();
            }
            is_done.store(true, Ordering::Relaxed);
            reader.join().unwrap();
        });
        let mode = fs::metadata(&files.identity).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "there is a key in it");
    }
}
