//! The rules of the protocol that bind a server, one test or more each; the name begins with the number of the rule.
//! What a rule says is in `table`, which also says why some need no test.

mod answers;
mod bugs;
mod content;
mod difference;
mod errors;
mod heartbeats;
mod names;
mod order;
mod parameters;
mod table;
mod variants;
mod whole;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use prost::Message;
use tokio::time::Instant;

use crate::{
    proto::{
        envoy::{
            config::{core::v3::Node, endpoint::v3::ClusterLoadAssignment},
            service::discovery::v3::{
                DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
                ResourceError,
            },
        },
        google::{protobuf::Any, rpc::Status},
    },
    xds::{
        Delta, Dialect, Input, Malformed, Sotw, Source, SourceEvent, SourceOutput, SourceSettings,
        WantSnapshot, Wanted, envoy,
    },
};

const CDS: &str = envoy::CLUSTER;
const EDS: &str = envoy::ENDPOINTS;
const LDS: &str = envoy::LISTENER;
const RDS: &str = envoy::ROUTE;
const SDS: &str = envoy::SECRET;

/// A request in the words of neither variant.
#[derive(Clone, Debug, Default)]
struct Ask {
    type_url: String,
    node: Option<Node>,
    nonce: String,
    error: Option<&'static str>,
    /// All names of interest, which is what the one variant says.
    all: BTreeSet<String>,
    /// What the other says.
    subscribe: Vec<String>,
    unsubscribe: Vec<String>,
    held: Vec<(String, String)>,
    version: String,
}

/// A response in the words of neither variant.
#[derive(Clone, Debug, PartialEq)]
struct Sent {
    type_url: String,
    nonce: String,
    identifier: String,
    version: String,
    /// The envelope of each resource, where there is one, and what is in it.
    updated: Vec<(Option<(String, String)>, Any)>,
    removed: Vec<String>,
    /// Other names of resources, by which they were asked for.
    aliases: Vec<(String, Vec<String>)>,
    /// Names of what is wrong, and how.
    errors: Vec<(String, i32)>,
}

/// What the tests need of a variant.
trait Variant: Dialect + fmt::Debug {
    const IS_DELTA: bool;
    fn request(ask: &Ask) -> Self::Request;
    fn sent(response: Self::Response) -> Sent;
}

fn errors(errors: Vec<ResourceError>) -> Vec<(String, i32)> {
    let told = errors.into_iter().filter_map(|of| Some((of.resource_name?.name, of.error_detail?.code)));
    told.collect()
}

fn error(ask: &Ask) -> Option<Status> {
    ask.error.map(|message| Status { code: 13, message: message.to_owned(), ..Status::default() })
}

impl Variant for Sotw {
    const IS_DELTA: bool = false;

    fn request(ask: &Ask) -> DiscoveryRequest {
        DiscoveryRequest {
            node: ask.node.clone(),
            type_url: ask.type_url.clone(),
            resource_names: ask.all.iter().cloned().collect(),
            response_nonce: ask.nonce.clone(),
            error_detail: error(ask),
            version_info: ask.version.clone(),
            ..DiscoveryRequest::default()
        }
    }

    fn sent(response: DiscoveryResponse) -> Sent {
        Sent {
            type_url: response.type_url,
            nonce: response.nonce,
            identifier: response.control_plane.map(|plane| plane.identifier).unwrap_or_default(),
            version: response.version_info,
            updated: response.resources.into_iter().map(|any| (None, any)).collect(),
            aliases: Vec::new(),
            removed: Vec::new(),
            errors: errors(response.resource_errors),
        }
    }
}

impl Variant for Delta {
    const IS_DELTA: bool = true;

    fn request(ask: &Ask) -> DeltaDiscoveryRequest {
        DeltaDiscoveryRequest {
            node: ask.node.clone(),
            type_url: ask.type_url.clone(),
            resource_names_subscribe: ask.subscribe.clone(),
            resource_names_unsubscribe: ask.unsubscribe.clone(),
            initial_resource_versions: ask.held.iter().cloned().collect(),
            response_nonce: ask.nonce.clone(),
            error_detail: error(ask),
            ..DeltaDiscoveryRequest::default()
        }
    }

    fn sent(response: DeltaDiscoveryResponse) -> Sent {
        let (mut aliases, is_secret) = (Vec::new(), response.type_url == SDS);
        let opened = response.resources.into_iter().map(|mut resource| {
            let any = resource.resource.take().unwrap_or_default();
            let is_private = resource.cache_control.is_some_and(|control| control.do_not_cache);
            assert!(resource.ttl.is_none() && is_private == is_secret);
            if !resource.aliases.is_empty() {
                aliases.push((resource.name.clone(), resource.aliases));
            }
            (Some((resource.name, resource.version)), any)
        });
        Sent {
            type_url: response.type_url,
            nonce: response.nonce,
            identifier: response.control_plane.map(|plane| plane.identifier).unwrap_or_default(),
            version: response.system_version_info,
            updated: opened.collect::<Vec<_>>(),
            aliases,
            removed: response.removed_resources,
            errors: errors(response.resource_errors),
        }
    }
}

impl Sent {
    /// Contents of its resources, each `name@content`.
    fn contents(&self) -> Vec<String> {
        let vacant = |any: &Any| {
            let vacant = ClusterLoadAssignment::decode(&*any.value).ok().filter(|_| any.type_url == EDS)?;
            Some(format!("{}@vacant", vacant.cluster_name))
        };
        let text = |any: &Any| String::from_utf8_lossy(&any.value).into_owned();
        let contents = self.updated.iter().map(|(_, any)| vacant(any).unwrap_or_else(|| text(any)));
        contents.collect()
    }

    fn names(&self) -> Vec<String> {
        let name = |content: &String| content.split('@').next().unwrap_or_default().to_owned();
        self.contents().iter().map(name).collect()
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.type_url.rsplit('.').next().unwrap_or_default())?;
        self.contents().iter().try_for_each(|content| write!(f, " {content}"))?;
        self.removed.iter().try_for_each(|name| write!(f, " -{name}"))
    }
}

/// One stream, the world behind it, and what its peer would remember.
struct Stream<D: Variant> {
    source: Source<D>,
    world: WantSnapshot,
    now: Instant,
    events: Vec<SourceEvent>,
    /// Everything that was sent.
    sent: Vec<Sent>,
    /// What the peer wants of each type, by name.
    names: BTreeMap<String, BTreeSet<String>>,
}

impl<D: Variant> Stream<D> {
    fn new(resources: &[(&'static str, &str, &str)]) -> Self {
        Self::with(SourceSettings::ads("cp"), resources)
    }

    fn with(settings: SourceSettings, resources: &[(&'static str, &str, &str)]) -> Self {
        let mut world = WantSnapshot::new(1);
        resources.iter().for_each(|(type_url, name, content)| put(&mut world, type_url, name, content));
        Self::over(settings, world)
    }

    /// A new stream over a world that is there already.
    fn over(settings: SourceSettings, world: WantSnapshot) -> Self {
        let (events, sent, names) = (Vec::new(), Vec::new(), BTreeMap::new());
        Self { source: Source::new(settings), world, now: Instant::now(), events, sent, names }
    }

    /// Moves the world on; says what is sent.
    fn change(
        &mut self,
        put_: &[(&'static str, &str, &str)],
        remove: &[(&'static str, &str)],
    ) -> Vec<String> {
        self.alter(put_, remove);
        self.pump()
    }

    /// Moves the world on while there is no room to send anything.
    fn alter(&mut self, put_: &[(&'static str, &str, &str)], remove: &[(&'static str, &str)]) {
        let before = self.world.clone();
        put_.iter().for_each(|(type_url, name, content)| put(&mut self.world, type_url, name, content));
        remove.iter().for_each(|(type_url, name)| self.world.remove(type_url, name));
        self.world.revision += 1;
        let changed = self.world.changed_since(&before);
        self.source.handle(Input::Changed(&changed), &self.world).unwrap();
    }

    /// A request as it is; says what is sent.
    fn raw(&mut self, ask: &Ask) -> Result<Vec<String>, Malformed> {
        let request = D::request(ask);
        self.events.extend(self.source.handle(Input::Request(&request), &self.world)?);
        Ok(self.pump())
    }

    /// Everything there is to send.
    fn pump(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        for output in self.source.step(self.now, Input::Wake, &self.world).unwrap() {
            match output {
                SourceOutput::Send(response) => {
                    let sent = D::sent(response);
                    shown.push(sent.to_string());
                    self.sent.push(sent);
                }
                SourceOutput::Event(event) => self.events.push(event),
            }
        }
        shown
    }

    /// The request by which a peer wants exactly `names` from now on.
    fn wish(&mut self, type_url: &str, names: &[&str]) -> Ask {
        let names: BTreeSet<String> = names.iter().map(ToString::to_string).collect();
        let before = self.names.insert(type_url.to_owned(), names.clone()).unwrap_or_default();
        Ask {
            type_url: type_url.to_owned(),
            node: Some(node("envoy")),
            subscribe: names.difference(&before).cloned().collect(),
            unsubscribe: before.difference(&names).cloned().collect(),
            all: names,
            ..Ask::default()
        }
    }

    /// Wants exactly `names`, with the nonce a peer would have.
    fn want(&mut self, type_url: &str, names: &[&str]) -> Vec<String> {
        let nonce = if D::IS_DELTA { String::new() } else { self.nonce(type_url) };
        let ask = Ask { nonce, ..self.wish(type_url, names) };
        self.raw(&ask).unwrap()
    }

    /// The answer to the newest response of a type.
    fn answer(&self, type_url: &str, error: Option<&'static str>) -> Ask {
        let all = self.names.get(type_url).cloned().unwrap_or_default();
        let (type_url, nonce) = (type_url.to_owned(), self.nonce(type_url));
        Ask { type_url, nonce, all, error, ..Ask::default() }
    }

    fn ack(&mut self, type_url: &str) -> Vec<String> {
        self.raw(&self.answer(type_url, None)).unwrap()
    }

    fn nack(&mut self, type_url: &str) -> Vec<String> {
        self.raw(&self.answer(type_url, Some("no"))).unwrap()
    }

    /// Accepts whatever comes until nothing more does; says all that came.
    fn settle(&mut self) -> Vec<String> {
        let mut shown = Vec::new();
        while !self.source.is_settled() {
            let waiting: Vec<String> = self.names.keys().cloned().collect();
            waiting.iter().for_each(|type_url| shown.extend(self.ack(type_url)));
        }
        shown
    }

    /// The nonce of the newest response of a type.
    fn nonce(&self, type_url: &str) -> String {
        let newest = self.sent.iter().rev().find(|sent| sent.type_url == type_url);
        newest.map(|sent| sent.nonce.clone()).unwrap_or_default()
    }

    fn newest(&self) -> &Sent {
        self.sent.last().unwrap()
    }
}

fn put(world: &mut WantSnapshot, type_url: &'static str, name: &str, content: &str) {
    world.put(Wanted::new(name, type_url, format!("{name}@{content}")));
}

fn node(id: &str) -> Node {
    Node { id: id.to_owned(), ..Node::default() }
}

/// No response.
const NOTHING: [&str; 0] = [];

/// Runs the body once for each variant.
macro_rules! both {
    ($(#[$doc:meta])* $name:ident, $run:ident) => {
        $(#[$doc])*
        #[test]
        fn $name() {
            $run::<$crate::xds::Sotw>();
            $run::<$crate::xds::Delta>();
        }
    };
}
use both;
