//! What an idle proxy costs, measured: streams on connections of their own, all with one configuration. The
//! proxies live in another process. `cargo test --release -p zone --lib footprint -- --ignored --nocapture`;
//! `FOOTPRINT_PROXIES` and `FOOTPRINT_RESOURCES` say how many.

#![allow(clippy::disallowed_methods)]

use std::{process::Stdio, sync::Arc, time::Duration};

use common::{
    mode::Mode,
    proto::envoy::{
        config::{
            cluster::v3::Cluster,
            core::v3::Node,
            endpoint::v3::ClusterLoadAssignment,
            listener::v3::{Filter, FilterChain, Listener},
        },
        service::discovery::v3::{
            DeltaDiscoveryRequest, DiscoveryRequest,
            aggregated_discovery_service_client::AggregatedDiscoveryServiceClient,
        },
    },
    runtime::{
        Env,
        http::{Limits, Server},
    },
    store::{Store, feed::Feed, memory::MemoryStore},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpListener,
    process::Command,
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::Channel;

use super::client::{CDS, EDS, LDS};
use crate::{
    ads::{
        Ads, AdsConfig,
        auth::{Credential, Requirement},
        config::ProxyConfig,
        insight::ProxyInsights,
        node::{ProxyId, ProxyKind},
    },
    generator::{Encoded, ResourceCollection, ResourceSet, SharedResources},
};

const ADDRESS: &str = "FOOTPRINT_ADDRESS";
const PROTOCOL: &str = "FOOTPRINT_PROTOCOL";

fn number(variable: &str, otherwise: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// Bytes in memory that nobody else shares.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: Vec<usize> = statm.split(' ').map_while(|n| n.trim().parse().ok()).collect();
    (pages[1] - pages[2]) * 4096
}

/// So many clusters with their endpoints and listeners, about as large as real ones.
fn everything(count: usize, generation: usize) -> ResourceSet {
    let mut set = ResourceCollection::default();
    for n in 0..count {
        let name = format!("service-{n:05}.of.some.mesh");
        let cluster = Cluster { name: name.clone(), alt_stat_name: "x".repeat(600), ..Cluster::default() };
        set.insert(Arc::new(Encoded::new(&name, CDS, "test", &cluster)));
        let name_of_host = if n == 0 { generation.to_string() } else { String::new() };
        let policy = Some(Default::default());
        let endpoints = ClusterLoadAssignment { cluster_name: name.clone(), policy, ..Default::default() };
        let mut endpoints = endpoints;
        endpoints.named_endpoints.insert(name_of_host, Default::default());
        set.insert(Arc::new(Encoded::new(&name, EDS, "test", &endpoints)));
        let filters = vec![Filter { name: "y".repeat(900), ..Filter::default() }];
        let filter_chains = vec![FilterChain { filters, ..FilterChain::default() }];
        let listener = Listener { name: name.clone(), filter_chains, ..Listener::default() };
        set.insert(Arc::new(Encoded::new(&name, LDS, "test", &listener)));
    }
    ResourceSet::new(&ResourceCollection::default(), &SharedResources::new(set, None), None)
}

/// The other process: opens the streams, says when all have everything, and ends with its input.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a part of the measurement"]
async fn proxies_of_footprint() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let is_delta = std::env::var(PROTOCOL).is_ok_and(|protocol| protocol == "delta");
    let mut streams = Vec::new();
    for n in 0..number("FOOTPRINT_PROXIES", 1000) {
        let channel = Channel::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
        let id = format!("default.proxy-{n}");
        streams.push(tokio::spawn(async move {
            if is_delta { delta(channel, id).await } else { sotw(channel, id).await }
        }));
    }
    let mut held = Vec::new();
    for stream in streams {
        held.push(stream.await.unwrap());
    }
    println!("\nREADY");
    let mut line = String::new();
    BufReader::new(tokio::io::stdin()).read_line(&mut line).await.unwrap();
}

fn node(id: &str) -> Option<Node> {
    Some(Node { id: id.to_owned(), ..Node::default() })
}

/// Takes everything and returns what keeps the stream open.
async fn sotw(channel: Channel, id: String) -> Box<dyn Send> {
    let (requests, receiver) = mpsc::channel(16);
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(64 << 20);
    let of = |type_url: &str| DiscoveryRequest { type_url: type_url.to_owned(), ..Default::default() };
    requests.send(DiscoveryRequest { node: node(&id), ..of(CDS) }).await.unwrap();
    let mut responses =
        client.stream_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    let mut names: Vec<String> = Vec::new();
    for expected in [CDS, EDS, LDS] {
        let response = responses.message().await.unwrap().unwrap();
        assert_eq!(response.type_url, expected);
        if expected == CDS {
            names = response
                .resources
                .iter()
                .map(|any| <Cluster as prost::Message>::decode(&any.value[..]).unwrap().name)
                .collect();
            requests.send(DiscoveryRequest { resource_names: names.clone(), ..of(EDS) }).await.unwrap();
            requests.send(of(LDS)).await.unwrap();
        }
        let resource_names = if expected == EDS { names.clone() } else { Vec::new() };
        let (version_info, response_nonce) = (response.version_info, response.nonce);
        let answer = DiscoveryRequest { resource_names, version_info, response_nonce, ..of(expected) };
        requests.send(answer).await.unwrap();
    }
    Box::new((requests, responses))
}

async fn delta(channel: Channel, id: String) -> Box<dyn Send> {
    let (requests, receiver) = mpsc::channel(16);
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(64 << 20);
    let of = |type_url: &str| DeltaDiscoveryRequest { type_url: type_url.to_owned(), ..Default::default() };
    requests.send(DeltaDiscoveryRequest { node: node(&id), ..of(CDS) }).await.unwrap();
    let mut responses =
        client.delta_aggregated_resources(ReceiverStream::new(receiver)).await.unwrap().into_inner();
    for expected in [CDS, EDS, LDS] {
        let response = responses.message().await.unwrap().unwrap();
        assert_eq!(response.type_url, expected);
        if expected == CDS {
            let resource_names_subscribe = response.resources.iter().map(|r| r.name.clone()).collect();
            requests.send(DeltaDiscoveryRequest { resource_names_subscribe, ..of(EDS) }).await.unwrap();
            requests.send(of(LDS)).await.unwrap();
        }
        let answer = DeltaDiscoveryRequest { response_nonce: response.nonce, ..of(expected) };
        requests.send(answer).await.unwrap();
    }
    Box::new((requests, responses))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement"]
async fn footprint() {
    for protocol in ["sotw", "delta"] {
        measure(protocol).await;
    }
}

async fn measure(protocol: &str) {
    let (proxies, count) = (number("FOOTPRINT_PROXIES", 1000), number("FOOTPRINT_RESOURCES", 1000));
    let store = Arc::new(MemoryStore::new(uuid::Uuid::from_u128(1)));
    let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let mut config = AdsConfig::new(Mode::federated_zone("east"), None);
    config.requirement =
        Requirement { dataplane: Credential::None, zone_proxy: Credential::None, ..Requirement::default() };
    config.http =
        Limits { unknown: 100_000, unknown_per_address: 100_000, answers: usize::MAX, ..config.http };
    let ads = Ads::new(config, Arc::clone(&store) as Arc<dyn Store>, feed.reader(), Env::system("test"));
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let insights = Arc::new(ProxyInsights::new(&"east".into(), &ads.env));
    let streams = ads.streams(&insights, &stop);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = ads.router(&streams, &tasks, None, None, address);
    let server = Server::new("dp_server", ads.config.http.clone());
    let serving = tokio::spawn(server.serve(listener, router, stop.clone()));

    let shared = Arc::new(ProxyConfig::new(1, everything(count, 0)));
    let before = resident();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "ads::tests::footprint::proxies_of_footprint"])
        .env(ADDRESS, address.to_string())
        .env(PROTOCOL, protocol)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let publisher = async {
        let mut known = 0;
        while known < proxies {
            ads.proxies.movement().await;
            for proxy in ads.proxies.take_movement().arrived {
                known += 1;
                ads.proxies.publish(&proxy.id, Some(Arc::clone(&shared)), Arc::default(), None);
            }
        }
    };
    let ready = async {
        while let Some(line) = lines.next_line().await.unwrap() {
            if line.contains("READY") {
                return;
            }
        }
        panic!("the proxies went away");
    };
    let begin = std::time::Instant::now();
    tokio::join!(publisher, ready);
    let took = begin.elapsed();
    // The last answers are on their way.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let each = |bytes: usize| bytes.saturating_sub(before) / proxies / 1024;
    println!(
        "{protocol}: {proxies} proxies with {count} resources of each type in {took:?}: {} KiB each",
        each(resident())
    );
    for generation in 1..=3 {
        let newer = Arc::new(ProxyConfig::new(1 + generation as u64, everything(count, generation)));
        for n in 0..proxies {
            let id = ProxyId::new(ProxyKind::Dataplane, "default", &format!("proxy-{n}"));
            ads.proxies.publish(&id, Some(Arc::clone(&newer)), Arc::default(), None);
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    println!("{protocol}: {} KiB each after changes nobody has answered", each(resident()));
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"\n").await.unwrap();
    drop(input);
    let _left = child.wait().await;
    stop.cancel();
    let _drained = tokio::time::timeout(Duration::from_secs(10), serving).await;
}
