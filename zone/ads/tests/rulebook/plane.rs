//! A control plane whose resources a test sets one by one, and a peer that speaks to it in any way there is.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::proto::{
    envoy::{
        config::{
            cluster::v3::Cluster,
            core::v3::{DataSource, Locality, Node, data_source::Specifier},
            endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints},
            listener::v3::Listener,
            route::v3::{RouteConfiguration, VirtualHost},
        },
        extensions::transport_sockets::tls::v3::{GenericSecret, Secret, secret},
        service::{
            discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse, Resource,
                ResourceError, ResourceLocator,
                dynamic_parameter_constraints::{Type as Constraint, single_constraint::ConstraintType},
            },
            runtime::v3::Runtime,
        },
    },
    google::{protobuf::Any, rpc},
};
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{sync::mpsc, time::timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Request, Status, Streaming, client::Grpc, transport::Channel};
use tonic_prost::ProstCodec;

use super::super::{
    client::{BOTH, Protocol, channel},
    harness::{PATIENCE, Zone},
};
use crate::{
    ads::{
        config::ProxyConfig,
        node::{Proxy, ProxyId, ProxyKind},
        proxies::{ProxySession, StreamView},
    },
    generator::{Encoded, ResourceCollection, ResourceSet, SharedResources, type_url},
};

pub(super) use super::super::client::{CDS, EDS, LDS, SDS};
pub(super) const RDS: &str = type_url::ROUTE;
pub(super) const RTDS: &str = type_url::RUNTIME;
pub(super) const VHDS: &str = type_url::VIRTUAL_HOST;

/// Where a type is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Door {
    /// All types on one stream.
    Aggregated,
    /// Each on a stream of its own service.
    Alone,
}

/// Each variant through each door.
pub(super) fn everywhere() -> impl Iterator<Item = (Protocol, Door)> {
    BOTH.into_iter().flat_map(|protocol| [Door::Aggregated, Door::Alone].map(|door| (protocol, door)))
}

/// What one node should have, as a test says.
pub(super) struct Plane<'a> {
    zone: &'a Zone,
    id: ProxyId,
    resources: BTreeMap<(&'static str, String), String>,
    revision: u64,
    /// Keeps what was published while no stream of the node is open.
    _kept: ProxySession,
}

impl<'a> Plane<'a> {
    /// For the node `default.<name>`, of which the zone knows nothing.
    pub(super) fn new(zone: &'a Zone, name: &str) -> Self {
        let id = ProxyId::new(ProxyKind::Dataplane, "default", name);
        let proxy = Proxy {
            id: id.clone(),
            cluster: Arc::default(),
            metadata: Arc::default(),
            user_agent: String::new(),
        };
        let kept = zone.proxies.join(Arc::new(proxy), None, StreamView::default(), Arc::default());
        Self { zone, id, resources: BTreeMap::new(), revision: 1, _kept: kept }
    }

    /// With these resources, each a type, a name and a content.
    pub(super) fn having(zone: &'a Zone, name: &str, resources: &[(&'static str, &str, &str)]) -> Self {
        let mut plane = Self::new(zone, name);
        plane.set(resources, &[]);
        plane
    }

    /// Sets and takes away resources, all at once.
    pub(super) fn set(&mut self, put: &[(&'static str, &str, &str)], remove: &[(&'static str, &str)]) {
        for (type_url, name, content) in put {
            self.resources.insert((type_url, (*name).to_owned()), (*content).to_owned());
        }
        for (type_url, name) in remove {
            self.resources.remove(&(*type_url, (*name).to_owned()));
        }
        let mut set = ResourceCollection::default();
        for ((type_url, name), content) in &self.resources {
            set.insert(Arc::new(encoded(type_url, name, content)));
        }
        self.revision += 1;
        let set = ResourceSet::new(&ResourceCollection::default(), &SharedResources::new(set, None), None);
        let config = Arc::new(ProxyConfig::new(self.revision, set));
        self.zone.proxies.publish(&self.id, Some(config), Arc::default(), None);
    }

    pub(super) async fn peer(&self, protocol: Protocol, door: Door) -> Peer {
        self.peer_with(protocol, door, Some(&self.zone.token_for(&self.id.name))).await
    }

    pub(super) async fn peer_with(&self, protocol: Protocol, door: Door, token: Option<&str>) -> Peer {
        Peer::of(self.zone, &self.id.name, protocol, door, token).await
    }

    /// Waits until everything `peer` said was heard: what it does not answer then, it never will.
    pub(super) async fn heard(&self, peer: &Peer) {
        self.until(|streams| streams.iter().map(|view| view.heard).sum::<u64>() == peer.said).await;
    }

    /// Waits until `count` streams of the node are open.
    pub(super) async fn streams(&self, count: usize) {
        // One of them is ours.
        self.until(|streams| streams.len() == count + 1).await;
    }

    /// Whether `peer` has read everything that was sent to it, as far as anybody knows at the moment.
    pub(super) fn is_read_by(&self, peer: &Peer) -> bool {
        let view = self.zone.proxies.find(|id| *id == self.id);
        let sent = view.iter().flat_map(|view| &view.streams).flat_map(|stream| &stream.types);
        sent.filter(|(_, seen)| seen.sent > 0).all(|(type_url, seen)| {
            peer.newest.get(type_url).is_some_and(|told| told.nonce == seen.nonce.to_string())
        })
    }

    async fn until(&self, is: impl Fn(&[StreamView]) -> bool) {
        let seen = async {
            while !self.zone.proxies.find(|id| *id == self.id).is_some_and(|view| is(&view.streams)) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, seen).await.expect("it gets there");
    }
}

/// A resource with a content that tells it from others of its name.
fn encoded(type_url: &'static str, name: &str, content: &str) -> Encoded {
    let (title, content) = (name.to_owned(), content.to_owned());
    match type_url {
        CDS => {
            let cluster = Cluster { name: title, alt_stat_name: content, ..Cluster::default() };
            Encoded::new(name, CDS, "test", &cluster)
        }
        EDS => {
            let locality = Some(Locality { region: content, ..Locality::default() });
            let endpoints = vec![LocalityLbEndpoints { locality, ..LocalityLbEndpoints::default() }];
            let endpoints =
                ClusterLoadAssignment { cluster_name: title, endpoints, ..ClusterLoadAssignment::default() };
            Encoded::new(name, EDS, "test", &endpoints)
        }
        LDS => {
            let listener = Listener { name: title, stat_prefix: content, ..Listener::default() };
            Encoded::new(name, LDS, "test", &listener)
        }
        RDS => {
            let internal_only_headers = vec![content];
            let routes = RouteConfiguration { name: title, internal_only_headers, ..Default::default() };
            Encoded::new(name, RDS, "test", &routes)
        }
        SDS => {
            let source =
                DataSource { specifier: Some(Specifier::InlineString(content)), ..Default::default() };
            let generic = GenericSecret { secret: Some(source), ..GenericSecret::default() };
            let secret = Secret { name: title, r#type: Some(secret::Type::GenericSecret(generic)) };
            Encoded::new(name, SDS, "test", &secret)
        }
        VHDS => {
            let host = VirtualHost { name: title, domains: vec![content], ..VirtualHost::default() };
            Encoded::new(name, VHDS, "test", &host)
        }
        _ => Encoded::new(name, RTDS, "test", &Runtime { name: title, layer: None }),
    }
}

/// What is in an envelope, for how long, and for whom; where there is nothing in it, the name and `!`.
fn enveloped(resource: &Resource) -> String {
    let content = resource.resource.as_ref().map_or_else(|| format!("{}!", resource.name), shown);
    if let Some(Constraint::Constraint(one)) = constraints(resource)
        && let Some(ConstraintType::Value(value)) = &one.constraint_type
    {
        return format!("{content} for {{{}={value}}}", one.key);
    }
    match &resource.ttl {
        Some(ttl) => format!("{content} for {}ms", ttl.seconds * 1000 + i64::from(ttl.nanos / 1_000_000)),
        None => content,
    }
}

fn constraints(resource: &Resource) -> Option<&Constraint> {
    resource.resource_name.as_ref()?.dynamic_parameter_constraints.as_ref()?.r#type.as_ref()
}

/// `name@content`; without content when there is none.
fn shown(any: &Any) -> String {
    fn decoded<M: Message + Default>(any: &Any) -> M {
        M::decode(&any.value[..]).unwrap()
    }
    let (name, content) = match any.type_url.as_str() {
        "type.googleapis.com/envoy.service.discovery.v3.Resource" => return enveloped(&decoded(any)),
        CDS => {
            let cluster = decoded::<Cluster>(any);
            (cluster.name, cluster.alt_stat_name)
        }
        EDS => {
            let endpoints = decoded::<ClusterLoadAssignment>(any);
            let region = endpoints.endpoints.first().and_then(|of| of.locality.clone());
            (endpoints.cluster_name, region.map(|locality| locality.region).unwrap_or_default())
        }
        LDS => {
            let listener = decoded::<Listener>(any);
            (listener.name, listener.stat_prefix)
        }
        RDS => {
            let routes = decoded::<RouteConfiguration>(any);
            (routes.name, routes.internal_only_headers.concat())
        }
        SDS => {
            let secret = decoded::<Secret>(any);
            let content = match secret.r#type {
                Some(secret::Type::GenericSecret(generic)) => generic.secret.and_then(|of| of.specifier),
                _ => None,
            };
            (
                secret.name,
                if let Some(Specifier::InlineString(text)) = content { text } else { String::new() },
            )
        }
        VHDS => {
            let host = decoded::<VirtualHost>(any);
            (host.name, host.domains.concat())
        }
        RTDS => (decoded::<Runtime>(any).name, String::new()),
        other => panic!("unexpected type {other}"),
    };
    if content.is_empty() { name } else { format!("{name}@{content}") }
}

fn errors(errors: Vec<ResourceError>) -> Vec<(String, Code)> {
    let told = errors.into_iter().filter_map(|of| Some((of.resource_name?.name, of.error_detail?.code)));
    told.map(|(name, code)| (name, Code::from(code))).collect()
}

/// A response in the words of neither variant.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    pub(super) type_url: String,
    pub(super) nonce: String,
    /// Of the response, and of each resource where there is one.
    pub(super) version: String,
    pub(super) versions: Vec<String>,
    pub(super) identifier: String,
    /// `name@content`, in order.
    pub(super) resources: Vec<String>,
    pub(super) removed: Vec<String>,
    /// Other names of the resources.
    pub(super) aliases: Vec<String>,
    /// Names of what is wrong, and how.
    pub(super) errors: Vec<(String, Code)>,
    /// Of the message.
    pub(super) bytes: usize,
}

impl Told {
    /// What came, and with a minus what went.
    pub(super) fn all(&self) -> String {
        let removed = self.removed.iter().map(|name| format!("-{name}"));
        self.resources.iter().cloned().chain(removed).collect::<Vec<_>>().join(" ")
    }
}

/// A request in the words of neither variant.
#[derive(Clone, Default)]
pub(super) struct Saying {
    pub(super) type_url: String,
    pub(super) node: Option<Node>,
    pub(super) nonce: String,
    pub(super) version: String,
    pub(super) error: Option<String>,
    pub(super) all: Vec<String>,
    pub(super) subscribe: Vec<String>,
    pub(super) unsubscribe: Vec<String>,
    pub(super) held: BTreeMap<String, String>,
    /// By name and parameters, beside the names.
    pub(super) located: Vec<ResourceLocator>,
}

enum Ends {
    Sotw(mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>),
    Delta(mpsc::Sender<DeltaDiscoveryRequest>, Streaming<DeltaDiscoveryResponse>),
}

/// A client of either variant through either door.
pub(super) struct Peer {
    pub(super) protocol: Protocol,
    pub(super) door: Door,
    channel: Channel,
    token: Option<String>,
    pub(super) node: Node,
    /// By the method that was called.
    streams: BTreeMap<String, Ends>,
    names: BTreeMap<String, BTreeSet<String>>,
    /// The newest response of each type.
    newest: BTreeMap<String, Told>,
    said: u64,
}

fn method(protocol: Protocol, door: Door, type_url: &str) -> String {
    let (service, suffix) = match type_url {
        _ if door == Door::Aggregated => ("discovery.v3.AggregatedDiscoveryService", "AggregatedResources"),
        CDS => ("cluster.v3.ClusterDiscoveryService", "Clusters"),
        EDS => ("endpoint.v3.EndpointDiscoveryService", "Endpoints"),
        LDS => ("listener.v3.ListenerDiscoveryService", "Listeners"),
        RDS => ("route.v3.RouteDiscoveryService", "Routes"),
        SDS => ("secret.v3.SecretDiscoveryService", "Secrets"),
        VHDS => ("route.v3.VirtualHostDiscoveryService", "VirtualHosts"),
        RTDS => ("runtime.v3.RuntimeDiscoveryService", "Runtime"),
        other => return other.to_owned(),
    };
    let variant = if protocol == Protocol::Sotw { "Stream" } else { "Delta" };
    format!("/envoy.service.{service}/{variant}{suffix}")
}

impl Peer {
    /// The node `default.<name>`.
    pub(super) async fn of(
        zone: &Zone,
        name: &str,
        protocol: Protocol,
        door: Door,
        token: Option<&str>,
    ) -> Self {
        Self {
            protocol,
            door,
            channel: channel(zone).await,
            token: token.map(str::to_owned),
            node: Node { id: format!("default.{name}"), ..Node::default() },
            streams: BTreeMap::new(),
            names: BTreeMap::new(),
            newest: BTreeMap::new(),
            said: 0,
        }
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Where this type is asked for.
    pub(super) fn method(&self, type_url: &str) -> String {
        method(self.protocol, self.door, type_url)
    }

    /// Begins to want exactly these names.
    pub(super) async fn want(&mut self, type_url: &str, names: &[&str]) {
        let saying = self.wish(type_url, names);
        self.say(saying).await;
    }

    /// The request by which a client wants exactly these names.
    pub(super) fn wish(&mut self, type_url: &str, names: &[&str]) -> Saying {
        let names: BTreeSet<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let before = self.names.insert(type_url.to_owned(), names.clone()).unwrap_or_default();
        let is_delta = self.protocol == Protocol::Delta;
        let newest = self.newest.get(type_url).filter(|_| !is_delta);
        Saying {
            type_url: type_url.to_owned(),
            nonce: newest.map(|told| told.nonce.clone()).unwrap_or_default(),
            version: newest.map(|told| told.version.clone()).unwrap_or_default(),
            subscribe: names.difference(&before).cloned().collect(),
            unsubscribe: before.difference(&names).cloned().collect(),
            all: names.into_iter().collect(),
            ..Saying::default()
        }
    }

    /// Says this; the first request of a stream says who asks.
    pub(super) async fn say(&mut self, saying: Saying) {
        self.say_to(&method(self.protocol, self.door, &saying.type_url), saying).await;
    }

    /// The same, to a method that may not be the one for the type.
    pub(super) async fn say_to(&mut self, method: &str, saying: Saying) {
        let is_first = !self.streams.contains_key(method);
        if is_first {
            let ends = self.open(method).await;
            self.streams.insert(method.to_owned(), ends);
        }
        self.said += 1;
        let node = saying.node.or_else(|| is_first.then(|| self.node.clone()));
        let error_detail =
            saying.error.map(|message| rpc::Status { code: 13, message, ..rpc::Status::default() });
        // A stream that has ended says why when it is read.
        match &self.streams[method] {
            Ends::Sotw(requests, _) => {
                let request = DiscoveryRequest {
                    node,
                    type_url: saying.type_url,
                    resource_names: saying.all,
                    resource_locators: saying.located,
                    response_nonce: saying.nonce,
                    version_info: saying.version,
                    error_detail,
                };
                let _ended = requests.send(request).await;
            }
            Ends::Delta(requests, _) => {
                let request = DeltaDiscoveryRequest {
                    node,
                    type_url: saying.type_url,
                    resource_names_subscribe: saying.subscribe,
                    resource_locators_subscribe: saying.located,
                    resource_names_unsubscribe: saying.unsubscribe,
                    initial_resource_versions: saying.held.into_iter().collect(),
                    response_nonce: saying.nonce,
                    error_detail,
                    ..DeltaDiscoveryRequest::default()
                };
                let _ended = requests.send(request).await;
            }
        }
    }

    async fn open(&self, method: &str) -> Ends {
        self.try_open(method).await.unwrap()
    }

    /// With what a stream is refused.
    pub(super) async fn open_refused(&self, method: &str) -> Code {
        self.try_open(method).await.map(|_| ()).unwrap_err().code()
    }

    async fn try_open(&self, method: &str) -> Result<Ends, Status> {
        fn calling<T>(token: Option<&str>) -> (mpsc::Sender<T>, Request<ReceiverStream<T>>) {
            let (sender, receiver) = mpsc::channel(64);
            let mut request = Request::new(ReceiverStream::new(receiver));
            if let Some(token) = token {
                request.metadata_mut().insert("authorization", token.parse().unwrap());
            }
            (sender, request)
        }
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(256 << 20);
        grpc.ready().await.unwrap();
        let path: PathAndQuery = method.parse().unwrap();
        let token = self.token.as_deref();
        match self.protocol {
            Protocol::Sotw => {
                let (sender, request) = calling(token);
                let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
                Ok(Ends::Sotw(sender, grpc.streaming(request, path, codec).await?.into_inner()))
            }
            Protocol::Delta => {
                let (sender, request) = calling(token);
                let codec = ProstCodec::<DeltaDiscoveryRequest, DeltaDiscoveryResponse>::default();
                Ok(Ends::Delta(sender, grpc.streaming(request, path, codec).await?.into_inner()))
            }
        }
    }

    /// The next response on the stream of this type, not answered yet.
    pub(super) async fn hear(&mut self, type_url: &str) -> Told {
        self.next(type_url).await.unwrap()
    }

    /// The same, or what the stream ends with.
    pub(super) async fn next(&mut self, type_url: &str) -> Result<Told, Status> {
        let method = method(self.protocol, self.door, type_url);
        let told = self.next_of(&method).await?;
        if told.type_url != type_url {
            let shown = format!("{} {:?} came instead of {type_url}", told.type_url, told.all());
            return Err(Status::new(Code::Unknown, shown));
        }
        Ok(told)
    }

    /// The next response on this stream, whatever it is about.
    pub(super) async fn next_of(&mut self, method: &str) -> Result<Told, Status> {
        let ended = || Status::unknown("the stream ended without a status");
        let told = match self.streams.get_mut(method).unwrap() {
            Ends::Sotw(_, responses) => {
                let response = timeout(PATIENCE, responses.message()).await.expect("an answer")?;
                let response = response.ok_or_else(ended)?;
                Told {
                    bytes: response.encoded_len(),
                    resources: response.resources.iter().map(shown).collect(),
                    type_url: response.type_url,
                    nonce: response.nonce,
                    version: response.version_info,
                    identifier: response.control_plane.unwrap_or_default().identifier,
                    errors: errors(response.resource_errors),
                    ..Told::default()
                }
            }
            Ends::Delta(_, responses) => {
                let response = timeout(PATIENCE, responses.message()).await.expect("an answer")?;
                let response = response.ok_or_else(ended)?;
                let resources = &response.resources;
                Told {
                    bytes: response.encoded_len(),
                    versions: resources.iter().map(|resource| resource.version.clone()).collect(),
                    resources: resources.iter().map(enveloped).collect(),
                    type_url: response.type_url,
                    nonce: response.nonce,
                    version: response.system_version_info,
                    aliases: resources.iter().flat_map(|resource| resource.aliases.clone()).collect(),
                    removed: response.removed_resources,
                    errors: errors(response.resource_errors),
                    identifier: response.control_plane.unwrap_or_default().identifier,
                }
            }
        };
        self.newest.insert(told.type_url.clone(), told.clone());
        Ok(told)
    }

    /// The next response of the aggregated stream, accepted.
    pub(super) async fn any(&mut self) -> Told {
        let method = method(self.protocol, Door::Aggregated, "");
        let told = self.next_of(&method).await.unwrap();
        let type_url = told.type_url.clone();
        self.say(self.answer(&type_url, None)).await;
        told
    }

    /// The answer to the newest response of a type.
    pub(super) fn answer(&self, type_url: &str, error: Option<&str>) -> Saying {
        let newest = &self.newest[type_url];
        Saying {
            type_url: type_url.to_owned(),
            nonce: newest.nonce.clone(),
            version: if error.is_none() { newest.version.clone() } else { String::new() },
            error: error.map(str::to_owned),
            all: self.names.get(type_url).into_iter().flatten().cloned().collect(),
            ..Saying::default()
        }
    }

    /// The next response of a type, accepted.
    pub(super) async fn take(&mut self, type_url: &str) -> Told {
        let told = self.hear(type_url).await;
        self.say(self.answer(type_url, None)).await;
        told
    }

    /// Wants these names of a type and accepts what comes; says the names that came.
    pub(super) async fn raw(&mut self, type_url: &str, names: &[&str]) -> Vec<String> {
        let told = self.begin(type_url, names).await;
        let name = |shown: &String| shown.split('@').next().unwrap_or_default().to_owned();
        told.resources.iter().map(name).chain(told.removed.clone()).collect()
    }

    /// The next response of a type, refused.
    pub(super) async fn refuse(&mut self, type_url: &str) -> Told {
        let told = self.hear(type_url).await;
        self.say(self.answer(type_url, Some("no"))).await;
        told
    }

    /// Wants these names of a type and accepts what comes.
    pub(super) async fn begin(&mut self, type_url: &str, names: &[&str]) -> Told {
        self.want(type_url, names).await;
        self.take(type_url).await
    }

    /// Gives up all its streams; what it wants it has to say again.
    pub(super) fn hang_up(&mut self) {
        (self.said, self.streams, self.names, self.newest) = Default::default();
    }
}
