//! An agent beside proxies that hands out identities, as that of SPIRE does: by SDS, over a Unix socket, with authorities
//! that no control plane has.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use common::proto::{
    envoy::{
        config::core::v3::{DataSource, TypedExtensionConfig, data_source::Specifier},
        extensions::transport_sockets::tls::v3::{
            CertificateValidationContext, Secret, SpiffeCertValidatorConfig, TlsCertificate, secret,
            spiffe_cert_validator_config::TrustDomain,
        },
        service::{
            discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
            },
            secret::v3::secret_discovery_service_server::{
                SecretDiscoveryService, SecretDiscoveryServiceServer,
            },
        },
    },
    google::protobuf::Any,
};
use prost::{Message, Name};
use tempfile::TempDir;
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Request, Response, Status, Streaming, transport::Server};

use super::root::Root;

/// By this name an agent tells whom it believes: its own trust domain, and those it is federated with.
const ALL: &str = "ALL";

fn inline(text: &str) -> Option<DataSource> {
    let specifier = Some(Specifier::InlineBytes(text.as_bytes().to_vec()));
    Some(DataSource { specifier, ..DataSource::default() })
}

/// What the agent has at the moment, by name.
type Held = BTreeMap<String, Secret>;

/// The agent of a machine. It ends with the test.
pub struct Agent {
    _folder: TempDir,
    socket: PathBuf,
    held: watch::Sender<Arc<Held>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Agent {
    /// Starts one that knows nobody.
    pub fn start() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = folder.path().join("api.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let held = watch::Sender::new(Arc::default());
        let service = SecretDiscoveryServiceServer::new(Sds(held.subscribe()));
        let serving =
            Server::builder().add_service(service).serve_with_incoming(UnixListenerStream::new(listener));
        let task = tokio::spawn(async move { serving.await.expect("the agent serves") });
        Self { _folder: folder, socket, held, task }
    }

    /// Its socket, as proxies say it.
    pub fn metadata(&self) -> [(&'static str, String); 1] {
        [("spireAgent.socketPath", self.socket.display().to_string())]
    }

    /// Gives each of these a new certificate of this authority, and tells it at once.
    pub fn give(&self, root: &Root, ids: &[&str]) {
        self.change(|held| {
            for id in ids {
                let (chain, key) = root.sign(id);
                let certificate = TlsCertificate {
                    certificate_chain: inline(&chain),
                    private_key: inline(&key),
                    ..TlsCertificate::default()
                };
                let kind = Some(secret::Type::TlsCertificate(certificate));
                held.insert((*id).to_owned(), Secret { name: (*id).to_owned(), r#type: kind });
            }
        });
    }

    /// Believes these roots, each about its trust domain, and nobody else.
    pub fn believe(&self, domains: &[(&str, &[&str])]) {
        let domain = |(name, roots): &(&str, &[&str])| TrustDomain {
            name: (*name).to_owned(),
            trust_bundle: inline(&roots.concat()),
            ..TrustDomain::default()
        };
        let validator = SpiffeCertValidatorConfig {
            trust_domains: domains.iter().map(domain).collect(),
            ..SpiffeCertValidatorConfig::default()
        };
        let typed = Any { type_url: SpiffeCertValidatorConfig::type_url(), value: validator.encode_to_vec() };
        let context = CertificateValidationContext {
            custom_validator_config: Some(TypedExtensionConfig {
                name: "envoy.tls.cert_validator.spiffe".to_owned(),
                typed_config: Some(typed),
            }),
            ..CertificateValidationContext::default()
        };
        self.change(|held| {
            let kind = Some(secret::Type::ValidationContext(context));
            held.insert(ALL.to_owned(), Secret { name: ALL.to_owned(), r#type: kind });
        });
    }

    fn change(&self, change: impl FnOnce(&mut Held)) {
        self.held.send_modify(|held| change(Arc::make_mut(held)));
    }
}

struct Sds(watch::Receiver<Arc<Held>>);

#[async_trait::async_trait]
impl SecretDiscoveryService for Sds {
    type StreamSecretsStream = ReceiverStream<Result<DiscoveryResponse, Status>>;
    type DeltaSecretsStream = ReceiverStream<Result<DeltaDiscoveryResponse, Status>>;

    async fn stream_secrets(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamSecretsStream>, Status> {
        let (answers, stream) = mpsc::channel(4);
        tokio::spawn(told(request.into_inner(), self.0.clone(), answers));
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn delta_secrets(
        &self,
        _request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaSecretsStream>, Status> {
        Err(Status::unimplemented("agents of SPIRE do not speak it"))
    }

    async fn fetch_secrets(
        &self,
        _request: Request<DiscoveryRequest>,
    ) -> Result<Response<DiscoveryResponse>, Status> {
        Err(Status::unimplemented("nobody asks so"))
    }
}

/// Answers what is asked for, and again whenever that is something else.
async fn told(
    mut requests: Streaming<DiscoveryRequest>,
    mut held: watch::Receiver<Arc<Held>>,
    answers: mpsc::Sender<Result<DiscoveryResponse, Status>>,
) {
    let (mut wanted, mut sent, mut version) = (Vec::new(), Vec::new(), 0_u64);
    loop {
        tokio::select! {
            request = requests.message() => match request {
                Ok(Some(request)) => wanted = request.resource_names,
                Ok(None) | Err(_) => return,
            },
            changed = held.changed() => if changed.is_err() {
                return;
            },
        }
        let known = Arc::clone(&held.borrow());
        let all: Vec<Secret> = wanted.iter().filter_map(|name| known.get(name)).cloned().collect();
        if all.is_empty() || all == sent {
            continue;
        }
        version += 1;
        let pack = |secret: &Secret| Any { type_url: Secret::type_url(), value: secret.encode_to_vec() };
        let answer = DiscoveryResponse {
            version_info: version.to_string(),
            nonce: version.to_string(),
            type_url: Secret::type_url(),
            resources: all.iter().map(pack).collect(),
            ..DiscoveryResponse::default()
        };
        sent = all;
        if answers.send(Ok(answer)).await.is_err() {
            return;
        }
    }
}
