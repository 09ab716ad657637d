//! Order on the wire, size and number.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use common::proto::envoy::{
    config::endpoint::v3::{ClusterLoadAssignment, Endpoint},
    service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
};
use tokio::time::timeout;
use tonic::{Code, Request, client::Grpc};
use tonic_prost::ProstCodec;

use super::{
    super::{
        client::{BOTH, Protocol},
        harness::{PATIENCE, Zone, dataplane},
    },
    plane::{CDS, Door, EDS, LDS, Peer, Plane, RDS, SDS, Saying, everywhere},
};
use crate::generator::Encoded;

/// All that comes on an aggregated stream until `last` of its type is there, each accepted; types in order.
async fn until(peer: &mut Peer, type_url: &str, last: &str) -> Vec<(String, String)> {
    let mut seen = Vec::new();
    loop {
        let told = peer.any().await;
        let all = told.all();
        let is_last = told.type_url == type_url && all.split(' ').any(|one| one == last);
        seen.push((told.type_url, all));
        if is_last {
            return seen;
        }
    }
}

#[tokio::test]
async fn s16_b8_a_changed_cluster_is_followed_by_its_endpoints() {
    let zone = Zone::start().await;
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1"), (EDS, "A", "1")]);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.begin(CDS, &[]).await;
        peer.begin(EDS, &["A"]).await;
        plane.set(&[(CDS, "A", "2")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@2");
        assert_eq!(peer.take(EDS).await.all(), "A@1", "the same, for the new cluster");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s17_made_before_and_broken_after() {
    let zone = Zone::start().await;
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let mut plane =
            Plane::having(&zone, &format!("node-{at}"), &[(CDS, "old", "1"), (RDS, "r", "to old")]);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.begin(CDS, &[]).await;
        peer.begin(RDS, &["r"]).await;
        plane.set(&[(CDS, "new", "1"), (RDS, "r", "to new")], &[(CDS, "old")]);
        let first = peer.take(CDS).await.all();
        assert!(first.contains("new@1") && !first.contains("-old"), "{first}");
        assert_eq!(peer.take(RDS).await.all(), "r@to new");
        let last = peer.take(CDS).await.all();
        assert_eq!(last, if protocol == Protocol::Delta { "-old" } else { "new@1" });
    }
    zone.stop().await;
}

#[tokio::test]
async fn s18_endpoints_come_although_clusters_are_unanswered() {
    let zone = Zone::start().await;
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1"), (EDS, "A", "1")]);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.want(CDS, &[]).await;
        peer.hear(CDS).await;
        assert_eq!(peer.begin(EDS, &["A"]).await.all(), "A@1");
        plane.set(&[(EDS, "A", "2")], &[]);
        assert_eq!(peer.take(EDS).await.all(), "A@2");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s20_many_resources_are_each_there_once() {
    let zone = Zone::start().await;
    let names: Vec<String> = (0..500).map(|n| format!("r{n:03}")).collect();
    for (at, (protocol, door)) in everywhere().enumerate() {
        let resources: Vec<_> = names.iter().map(|name| (CDS, &**name, "1")).collect();
        let plane = Plane::having(&zone, &format!("node-{at}"), &resources);
        let mut peer = plane.peer(protocol, door).await;
        let told = peer.begin(CDS, &[]).await;
        assert!(told.type_url == CDS && !told.nonce.is_empty());
        let came: BTreeSet<&String> = told.resources.iter().collect();
        assert_eq!((told.resources.len(), came.len()), (500, 500));
    }
    zone.stop().await;
}

#[tokio::test]
async fn s21_no_nonce_comes_twice() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(EDS, "A", "0")]);
        let mut peer = plane.peer(protocol, door).await;
        let mut nonces = BTreeSet::from([peer.begin(EDS, &["A"]).await.nonce]);
        for generation in 1..100 {
            plane.set(&[(EDS, "A", &generation.to_string())], &[]);
            nonces.insert(peer.take(EDS).await.nonce);
        }
        assert_eq!(nonces.len(), 100);
    }
    zone.stop().await;
}

#[tokio::test]
async fn s23_nothing_is_wrapped_whatever_a_client_can_read() {
    let zone = Zone::start().await;
    for (at, features) in [vec![], vec!["xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"]]
        .into_iter()
        .enumerate()
    {
        let plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1")]);
        let mut peer = plane.peer(Protocol::Sotw, Door::Aggregated).await;
        peer.node.client_features = features.into_iter().map(str::to_owned).collect();
        // What came is read as a cluster.
        assert_eq!(peer.begin(CDS, &[]).await.all(), "A@1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s27_b2_who_does_not_read_is_told_the_newest_when_it_does() {
    let zone = Zone::start().await;
    let large = |generation: usize| format!("{generation:0>20000}");
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", &large(0))]);
        let mut peer = plane.peer(protocol, door).await;
        peer.begin(CDS, &[]).await;
        for generation in 1..=1000 {
            plane.set(&[(CDS, "A", &large(generation))], &[]);
        }
        let newest = format!("A@{}", large(1000));
        let mut responses = 1;
        while peer.take(CDS).await.all() != newest {
            responses += 1;
        }
        assert!(responses <= 3, "{responses} responses");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s28_ten_thousand_clusters_come_and_are_restated() {
    let zone = Zone::start().await;
    let content = "x".repeat(500);
    let names: Vec<String> = (0..10_000).map(|n| format!("cluster-{n:05}")).collect();
    let resources: Vec<_> = names.iter().map(|name| (CDS, &**name, &*content)).collect();
    let mut plane = Plane::having(&zone, "node", &resources);
    for (protocol, door) in everywhere() {
        let mut peer = plane.peer(protocol, door).await;
        let (mut versions, mut parts) = (Vec::new(), 0);
        peer.want(CDS, &[]).await;
        if protocol == Protocol::Sotw {
            let told = peer.take(CDS).await;
            assert!(told.resources.len() == 10_000 && told.bytes > 4 << 20, "it cannot be split");
            continue;
        }
        while versions.len() < names.len() {
            let told = peer.take(CDS).await;
            assert!(told.bytes <= 2 << 20, "a response of {} bytes", told.bytes);
            versions.extend(told.versions);
            parts += 1;
        }
        assert!((3..6).contains(&parts), "{parts} responses");
        peer.hang_up();
        let held = names.iter().cloned().zip(versions).collect();
        let saying = Saying { held, ..peer.wish(CDS, &["*"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(CDS).await.all(), "", "it has all of it");
    }
    plane.set(&[], &[]);
    zone.stop().await;
}

/// Here half a second stands for minutes: what is waited for is word that something is still good.
#[tokio::test]
async fn s23_who_can_tell_time_hears_that_endpoints_are_still_good() {
    let lives = Duration::from_millis(600);
    let zone = Zone::start_with(|config| config.resource_ttl = Some(lives)).await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1"), (EDS, "A", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        let features = ["xds.config.supports-resource-ttl", "xds.config.resource-in-sotw"];
        peer.node.client_features = features.map(str::to_owned).into();
        assert_eq!(peer.begin(CDS, &[]).await.all(), "A@1");
        let first = peer.begin(EDS, &["A"]).await;
        assert_eq!(first.all(), "A@1 for 600ms", "{protocol:?} {door:?}");
        for _ in 0..2 {
            let told = peer.take(EDS).await;
            assert_eq!((told.all().as_str(), told.version), ("A! for 600ms", first.version.clone()));
            assert_eq!(told.versions, first.versions);
        }
        plane.set(&[(EDS, "A", "2")], &[]);
        while peer.take(EDS).await.all() != "A@2 for 600ms" {}
        assert_eq!(peer.take(EDS).await.all(), "A! for 600ms");
    }
    zone.stop().await;
}

/// Streams opened and closed leave nothing behind: no stream, no task. A connection carries a hundred of them,
/// for one that opens and cancels many without a pause is cut off as a flood.
#[tokio::test]
async fn s33_b11_five_thousand_streams_come_and_go() {
    let zone = Zone::start().await;
    let plane = Plane::having(&zone, "node", &[(CDS, "A", "1"), (EDS, "A", "1")]);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let at_the_start = tasks();
    for protocol in BOTH {
        for _ in 0..25 {
            let mut peer = plane.peer(protocol, Door::Aggregated).await;
            for _ in 0..100 {
                peer.want(CDS, &[]).await;
                peer.hear(CDS).await;
                peer.want(EDS, &["A"]).await;
                peer.hang_up();
            }
        }
        plane.streams(0).await;
    }
    let gone = async {
        // What the node keeps running is not many tasks.
        while tasks() > at_the_start + 4 {
            tokio::task::yield_now().await;
        }
    };
    let gone = timeout(PATIENCE, gone).await;
    assert!(gone.is_ok(), "{} tasks, {at_the_start} before the first stream", tasks());
    zone.stop().await;
}

#[tokio::test]
async fn r72_a_node_that_left_leaves_nothing() {
    let zone = Zone::start().await;
    for (protocol, door) in everywhere() {
        // Nobody but this test says what it is to have.
        let plane = Plane::having(&zone, "node-1", &[(CDS, "A", "1"), (LDS, "l", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        peer.begin(CDS, &[]).await;
        peer.begin(LDS, &[]).await;
        peer.hang_up();
        plane.streams(0).await;
        drop(plane);
        assert!(zone.proxies.view().is_empty());
    }
    zone.stop().await;
}

/// The generated types hold maps in the order of a hash.
#[test]
fn s34_maps_have_one_order() {
    let names: Vec<String> = (0..40).map(|n| format!("endpoint-{n}")).collect();
    let versions: BTreeSet<String> = (0..50)
        .map(|_| {
            let named_endpoints: HashMap<String, Endpoint> =
                names.iter().map(|name| (name.clone(), Endpoint::default())).collect();
            let endpoints = ClusterLoadAssignment { named_endpoints, ..ClusterLoadAssignment::default() };
            Encoded::new("A", EDS, "test", &endpoints).version.to_string()
        })
        .collect();
    assert_eq!(versions.len(), 1);
}

#[tokio::test]
async fn s37_a_new_secret_is_one_response() {
    let zone = Zone::start().await;
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let resources = [(CDS, "c", "1"), (LDS, "l", "1"), (SDS, "s", "1")];
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &resources);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.begin(CDS, &[]).await;
        peer.begin(LDS, &[]).await;
        peer.begin(SDS, &["s"]).await;
        plane.set(&[(SDS, "s", "2")], &[]);
        assert_eq!(peer.take(SDS).await.all(), "s@2");
        plane.set(&[(LDS, "l", "2")], &[]);
        assert_eq!(peer.take(LDS).await.all(), "l@2", "and nothing in between");
    }
    zone.stop().await;
}

/// Requests are heard while so much is pushed that something always waits to be sent.
#[tokio::test]
async fn r68_requests_are_heard_while_there_is_always_something_to_push() {
    let zone = Zone::start().await;
    for (at, protocol) in BOTH.into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(EDS, "A", "0"), (SDS, "s", "1")]);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.begin(EDS, &["A"]).await;
        peer.want(SDS, &["s"]).await;
        let mut pushes = 0;
        loop {
            pushes += 1;
            plane.set(&[(EDS, "A", &pushes.to_string())], &[]);
            let told = peer.any().await;
            if told.type_url == SDS {
                break;
            }
        }
        assert!(pushes < 10, "answered after {pushes} pushes");
        until(&mut peer, EDS, &format!("A@{pushes}")).await;
    }
    zone.stop().await;
}

/// One connection carries as many streams as there are types and nodes behind a gateway.
#[tokio::test]
async fn r74_b34_a_connection_carries_many_streams_of_a_known_proxy() {
    let zone = Zone::start().await;
    zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
    let plane = Plane::having(&zone, "web-1", &[(CDS, "A", "1")]);
    let mut peer = plane.peer(Protocol::Delta, Door::Aggregated).await;
    peer.begin(CDS, &[]).await;
    let (mut grpc, token) = (Grpc::new(peer.channel()), zone.token_for("web-1"));
    let mut held = Vec::new();
    for n in 0..30 {
        grpc.ready().await.unwrap();
        let path = http::uri::PathAndQuery::from_static(
            "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters",
        );
        let first = DiscoveryRequest { node: Some(peer.node.clone()), ..DiscoveryRequest::default() };
        let open = tokio_stream::StreamExt::chain(tokio_stream::once(first), tokio_stream::pending());
        let mut request = Request::new(open);
        request.metadata_mut().insert("authorization", token.parse().unwrap());
        let codec = ProstCodec::<DiscoveryRequest, DiscoveryResponse>::default();
        let mut responses = grpc.streaming(request, path, codec).await.unwrap().into_inner();
        let told = timeout(PATIENCE, responses.message()).await.expect("an answer").unwrap().unwrap();
        assert_eq!(told.type_url, CDS, "stream {n}");
        held.push(responses);
    }
    zone.stop().await;
}

#[tokio::test]
async fn s39_a_name_is_a_resource_or_an_error_and_never_both() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(RDS, "A", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        let told = peer.begin(RDS, &["A", "missing"]).await;
        assert_eq!(told.resources, ["A@1"]);
        let missing = vec![("missing".to_owned(), Code::NotFound)];
        let is_delta = protocol == Protocol::Delta;
        assert_eq!(told.errors, if is_delta { vec![] } else { missing }, "{protocol:?} {door:?}");
        assert_eq!(told.removed.len(), usize::from(is_delta));
        plane.set(&[(RDS, "missing", "1")], &[]);
        let told = peer.take(RDS).await;
        assert_eq!((told.all().as_str(), told.errors.len()), ("missing@1", 0));
    }
    zone.stop().await;
}
