//! The floor of the push side: a bare tonic server, in a process of its own, that sends prepared messages to
//! every stream. It knows no proxies, compares nothing and generates nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    pin::Pin,
    process::{Child, ChildStdin, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use common::proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
    aggregated_discovery_service_server::{AggregatedDiscoveryService, AggregatedDiscoveryServiceServer},
};
use futures::{Stream, StreamExt};
use load::ResourceType;
use prost::Message;
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::{broadcast, mpsc},
};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{
    Request, Response, Status, Streaming,
    transport::{Identity, ServerTlsConfig},
};

/// The argument that makes this program such a server.
pub const ROLE: &str = "bare-ads-server";

/// Messages as a proxy got them.
pub type Messages = Vec<(ResourceType, Bytes)>;

/// A running server; it ends with this value.
pub struct BareAds {
    child: Child,
    orders: ChildStdin,
    folder: TempDir,
    port: u16,
}

impl BareAds {
    /// Starts it with what it answers first requests with, and what it sends on order.
    pub fn start(first: &Messages, changes: &[&Messages]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]);
        let certified = certified.expect("a certificate for this machine");
        write(folder.path().join("certificate"), certified.cert.pem().as_bytes());
        write(folder.path().join("key"), certified.signing_key.serialize_pem().as_bytes());
        store(folder.path(), "first", first);
        for (number, messages) in changes.iter().enumerate() {
            store(folder.path(), &number.to_string(), messages);
        }
        let program = std::env::current_exe().expect("a program knows where it is");
        let mut child = Command::new(program)
            .args([ROLE, &folder.path().display().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the floor starts");
        let orders = child.stdin.take().expect("its input is piped");
        let mut said = String::new();
        let output = child.stdout.take().expect("its output is piped");
        BufReader::new(output).read_line(&mut said).expect("it says where it listens");
        let port = said.trim().parse().expect("a port");
        Self { child, orders, folder, port }
    }

    /// Where proxies connect to.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// What it shows them.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate")
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a change to every stream.
    pub fn send(&mut self, change: usize) {
        writeln!(self.orders, "{change}").expect("the floor runs");
    }
}

impl Drop for BareAds {
    fn drop(&mut self) {
        let _already_gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn write(path: PathBuf, bytes: &[u8]) {
    fs::write(path, bytes).expect("the folder can be written");
}

fn store(folder: &Path, what: &str, messages: &Messages) {
    for (number, (kind, message)) in messages.iter().enumerate() {
        write(folder.join(format!("{what}.{number:06}.{}", kind.short())), message);
    }
}

fn read<M: Message + Default>(folder: &Path, what: &str) -> Vec<(String, M)> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .expect("the folder is there")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.split('.').next() == Some(what))
        .collect();
    names.sort();
    let message = |name: String| {
        let short = name.rsplit('.').next().unwrap_or_default();
        let kind = ResourceType::ALL.into_iter().find(|kind| kind.short() == short);
        let bytes = fs::read(folder.join(&name)).expect("the file is there");
        let message = M::decode(&bytes[..]).expect("a message as it was received");
        (kind.expect("a type").url().to_owned(), message)
    };
    names.into_iter().map(message).collect()
}

/// Is such a server until it is ended.
pub async fn serve(folder: &Path) {
    let (orders, _) = broadcast::channel(64);
    let service = AdsFloorService { folder: folder.to_owned(), orders: orders.clone() };
    let identity = Identity::from_pem(
        fs::read(folder.join("certificate")).expect("a certificate"),
        fs::read(folder.join("key")).expect("its key"),
    );
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
    println!("{}", listener.local_addr().expect("a bound listener has an address").port());
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            let _nobody_listens = orders.send(line);
        }
        std::process::exit(0);
    });
    tonic::transport::Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))
        .expect("a certificate with its key")
        .add_service(AggregatedDiscoveryServiceServer::new(service))
        .serve_with_incoming(TcpListenerStream::new(listener))
        .await
        .expect("the floor serves");
}

struct AdsFloorService {
    folder: PathBuf,
    orders: broadcast::Sender<String>,
}

type AdsFloorResponses<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl AdsFloorService {
    /// Answers the first request of each type, and sends what is ordered.
    fn respond<Q: Send + 'static, M: Message + Default + Clone + 'static>(
        &self,
        mut requests: Streaming<Q>,
        type_of: fn(&Q) -> &str,
    ) -> Response<AdsFloorResponses<M>> {
        let (sender, receiver) = mpsc::channel(16);
        let mut orders = self.orders.subscribe();
        let prepared = PreparedMessages::<M>::of(&self.folder);
        tokio::spawn(async move {
            let mut answered = BTreeSet::new();
            loop {
                let messages: Vec<M> = tokio::select! {
                    request = requests.next() => {
                        let Some(Ok(request)) = request else { return };
                        let kind = type_of(&request);
                        if !answered.insert(kind.to_owned()) {
                            continue;
                        }
                        prepared.first.iter().filter(|(k, _)| k == kind).map(|(_, m)| m.clone()).collect()
                    }
                    order = orders.recv() => {
                        let Ok(order) = order else { return };
                        prepared.change(&order)
                    }
                };
                for message in messages {
                    if sender.send(Ok(message)).await.is_err() {
                        return;
                    }
                }
            }
        });
        Response::new(Box::pin(ReceiverStream::new(receiver)))
    }
}

/// Decoded messages, shared by all streams.
struct PreparedMessages<M> {
    first: Vec<(String, M)>,
    changes: BTreeMap<String, Vec<M>>,
}

impl<M: Message + Default + Clone + 'static> PreparedMessages<M> {
    /// Read once, whatever asks first.
    fn of(folder: &Path) -> Arc<Self> {
        use std::{any::Any, sync::OnceLock};
        static READ: OnceLock<Arc<dyn Any + Send + Sync>> = OnceLock::new();
        let read = READ.get_or_init(|| {
            let changes = (0..16).map(|number| number.to_string());
            let changes = changes.map(|number| {
                let messages = read::<M>(folder, &number).into_iter().map(|(_, message)| message);
                (number, messages.collect())
            });
            Arc::new(Self { first: read(folder, "first"), changes: changes.collect() })
        });
        Arc::clone(read).downcast().expect("all streams of a run speak one protocol")
    }

    fn change(&self, number: &str) -> Vec<M> {
        self.changes.get(number).cloned().unwrap_or_default()
    }
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for AdsFloorService {
    type StreamAggregatedResourcesStream = AdsFloorResponses<DiscoveryResponse>;
    type DeltaAggregatedResourcesStream = AdsFloorResponses<DeltaDiscoveryResponse>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        Ok(self.respond(request.into_inner(), |request| &request.type_url))
    }

    async fn delta_aggregated_resources(
        &self,
        request: Request<Streaming<DeltaDiscoveryRequest>>,
    ) -> Result<Response<Self::DeltaAggregatedResourcesStream>, Status> {
        Ok(self.respond(request.into_inner(), |request| &request.type_url))
    }
}
