//! What a proxy says to ADS: about itself, in which order, and how much.

use bytes::Bytes;
use common::proto::google::protobuf::{ListValue, Struct, Value, value::Kind};

use super::{
    ads::{self, Ask, CDS, EDS, LDS, Protocol, SDS, VHDS, first, node, stream, text},
    grpc::{Call, Grpc, prefixed},
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::{
    doors::ads_peer::{self, join},
    harness::{
        Global, Options, Zone, eventually,
        tally::{
            Class::{self, Conversation, Proxies, Sizes},
            Tally,
        },
    },
};

const ID: &str = "default.web-1";
const INVALID: &[&str] = &["InvalidArgument"];
const SERVED: &[&str] = &["served"];
const FOREIGN: &[&str] = &["PermissionDenied", "Unauthenticated"];
/// Too much: a code that says so, or the end of the connection before anything was read.
const TOO_MUCH: &[&str] = &["ResourceExhausted", "OutOfRange", "InvalidArgument", "Internal", "reset"];
const BROKEN: &[&str] = &["Internal", "InvalidArgument", "Unimplemented"];

/// A row for each protocol.
fn both(
    table: &mut Vec<Case<Call>>,
    class: Class,
    what: &'static str,
    verdicts: &'static [&'static str],
    says: &'static [&'static str],
    asks: impl Fn() -> Vec<Ask>,
) {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let name = format!("{what} ({protocol:?})");
        table.push(case(class, name, stream(protocol, &asks()), verdicts, says));
    }
}

/// A first request that is right, so that whether the stream still serves can be seen, and `more` before it.
fn after(more: Vec<Ask>) -> Vec<Ask> {
    let mut asks = more;
    if let Some(opening) = asks.first_mut() {
        opening.node = Some(node(ID, []));
    }
    asks.push(Ask::of(CDS));
    asks
}

fn answer(nonce: &str, error: Option<&str>) -> Ask {
    Ask { nonce: nonce.to_owned(), error: error.map(str::to_owned), ..Ask::of(LDS) }
}

fn nested(depth: usize) -> Value {
    let mut value = text("x");
    for _ in 0..depth {
        value = Value { kind: Some(Kind::ListValue(ListValue { values: vec![value] })) };
    }
    value
}

#[rustfmt::skip]
fn nodes(table: &mut Vec<Case<Call>>) {
    let id = |id: &str| vec![Ask::of(CDS).from(node(id, []))];
    both(table, Proxies, "no node", INVALID, &["must carry a node"], || vec![Ask::of(CDS)]);
    both(table, Proxies, "no id", INVALID, &["node id"], || id(""));
    both(table, Proxies, "id without a mesh", INVALID, &["node id"], || id("web-1"));
    both(table, Proxies, "id without a name", INVALID, &["node id"], || id("default."));
    both(table, Proxies, "id of a zone proxy", INVALID, &["node id"], || id(".web-1"));
    both(table, Proxies, "another proxy's id", FOREIGN, &["straitctl generate dataplane-token"], || id("default.web-2"));
    both(table, Proxies, "id in another mesh", FOREIGN, &[], || id("other.web-1"));
    both(table, Proxies, "id with a newline", &["InvalidArgument", "PermissionDenied"], &[], || id("default.web-1\nforged=line"));
    both(table, Proxies, "id with a NUL", &["InvalidArgument", "PermissionDenied"], &[], || id("default.web-1\0"));
    both(table, Proxies, "id with a path", &["InvalidArgument", "PermissionDenied"], &[], || id("default.../web-1"));
    both(table, Proxies, "id in capitals", &["InvalidArgument", "PermissionDenied"], &[], || id("default.WEB-1"));
    let kind = |value: Value| vec![Ask::of(CDS).from(node(ID, [("dataplane.proxyType", value)]))];
    both(table, Proxies, "a sort of proxy there is not", INVALID, &["proxyType", "router"], || kind(text("router")));
    both(table, Proxies, "an ingress with a dataplane's id", INVALID, &["node id"], || kind(text("ingress")));
    both(table, Proxies, "an ingress with a dataplane's token", FOREIGN, &["--scope ingress"],
        || vec![Ask::of(CDS).from(node(".web-1", [("dataplane.proxyType", text("ingress"))]))]);
    both(table, Proxies, "an egress with a dataplane's token", FOREIGN, &["--scope egress"],
        || vec![Ask::of(CDS).from(node(".web-1", [("dataplane.proxyType", text("egress"))]))]);
    both(table, Proxies, "metadata of other types", SERVED, &[], || {
        let number = || Value { kind: Some(Kind::NumberValue(f64::NAN)) };
        vec![Ask::of(CDS).from(node(ID, [("version", number()), ("dataplane.admin.port", number()), ("features", text("x"))]))]
    });
    both(table, Proxies, "metadata without values", SERVED, &[], || {
        vec![Ask::of(CDS).from(node(ID, [("version", Value { kind: None }), ("dataplane.resource", Value { kind: None })]))]
    });
    both(table, Proxies, "metadata 5 deep", SERVED, &[], || vec![Ask::of(CDS).from(node(ID, [("x", nested(5))]))]);
    both(table, Proxies, "metadata 600 deep", BROKEN, &[], || vec![Ask::of(CDS).from(node(ID, [("x", nested(300))]))]);
    both(table, Proxies, "10,000 members of metadata", &["served", "InvalidArgument", "ResourceExhausted"], &[], || {
        let fields = (0..10_000).map(|n| (format!("m{n}"), text("x"))).collect();
        let mut node = node(ID, []);
        node.metadata = Some(Struct { fields });
        vec![Ask::of(CDS).from(node)]
    });
    both(table, Proxies, "another node later", INVALID, &["another node id than the first"], || {
        vec![Ask::of(LDS).from(node(ID, [])), Ask::of(CDS).from(node("default.web-2", []))]
    });
}

#[rustfmt::skip]
fn protocol(table: &mut Vec<Case<Call>>) {
    both(table, Conversation, "no type", INVALID, &["type"], || vec![Ask::of("").from(node(ID, []))]);
    both(table, Conversation, "a type nobody serves", SERVED, &[], || after(vec![Ask::of("type.googleapis.com/x.Nothing")]));
    both(table, Conversation, "a type of KDS", SERVED, &[], || after(vec![Ask::of("Secret"), Ask::of("GlobalSecret")]));
    both(table, Conversation, "a type with traps", SERVED, &[], || after(vec![Ask::of("../../etc/passwd\0\u{202e}")]));
    both(table, Conversation, "100 types nobody serves", &["ResourceExhausted", "served"], &[],
        || after((0..100).map(|n| Ask::of(&format!("type.googleapis.com/x.T{n}"))).collect()));
    both(table, Conversation, "an answer to nothing", SERVED, &[], || after(vec![Ask::of(LDS), answer("99", None)]));
    both(table, Conversation, "an answer before any request", SERVED, &[], || after(vec![answer("1", None)]));
    both(table, Conversation, "an answer that is no number", SERVED, &[], || after(vec![Ask::of(LDS), answer("x\0\u{feff}", None)]));
    both(table, Conversation, "one answer many times", SERVED, &[], || {
        let mut asks = vec![Ask::of(LDS)];
        asks.extend((0..50).map(|_| answer("1", None)));
        after(asks)
    });
    both(table, Conversation, "a refusal of nothing", SERVED, &[], || after(vec![Ask::of(LDS), answer("99", Some("no"))]));
    both(table, Conversation, "a refusal without words", SERVED, &[], || after(vec![Ask::of(LDS), answer("1", Some(""))]));
    both(table, Conversation, "a refusal of 64 KiB", SERVED, &[], || after(vec![Ask::of(LDS), answer("1", Some(&"no ".repeat(21_000)))]));
    both(table, Conversation, "a storm of refusals", SERVED, &[], || {
        let mut asks = vec![Ask::of(LDS)];
        asks.extend((0..200).map(|n| answer(&n.to_string(), Some("no\nforged=line"))));
        after(asks)
    });
    both(table, Conversation, "the same first request again", SERVED, &[], || after((0..100).map(|_| Ask::of(LDS)).collect()));
    let names = ["\0", "..", "../../secrets", "\u{202e}evil", "*", "", "identity_cert:secret:other", "a b", "%00"];
    both(table, Conversation, "names with traps", SERVED, &[],
        || after(vec![Ask::of(EDS).named(names.map(str::to_owned)), Ask::of(SDS).named(names.map(str::to_owned))]));
    both(table, Conversation, "a wildcard for secrets", SERVED, &[], || after(vec![Ask::of(SDS).named(["*".to_owned()])]));
    both(table, Conversation, "one name 1,000 times", SERVED, &[],
        || after(vec![Ask::of(EDS).named(std::iter::repeat_n("x".to_owned(), 1_000))]));
    both(table, Conversation, "100,001 names", &["ResourceExhausted"], &["names"],
        || after(vec![Ask::of(EDS).named((0..100_001).map(|n| n.to_string()))]));
    both(table, Sizes, "a million names", TOO_MUCH, &[],
        || after(vec![Ask::of(EDS).named((0..1_000_000).map(|n| n.to_string()))]));
    both(table, Sizes, "a name of 10 MiB", TOO_MUCH, &[], || after(vec![Ask::of(EDS).named(["x".repeat(10 << 20)])]));
    let parameters = |count: usize| (0..count).rev().map(|n| format!("{n}=v")).collect::<Vec<_>>().join("&");
    both(table, Conversation, "an xdstp name with 100 parameters", SERVED, &[],
        || after(vec![Ask::of(EDS).named([format!("xdstp://x/T/a?{}", parameters(100))])]));
    both(table, Sizes, "an xdstp name with 1,000 parameters", &["ResourceExhausted"], &["bytes"],
        || after(vec![Ask::of(EDS).named([format!("xdstp://x/T/a?{}", parameters(1_000))])]));
    let traps = ["xdstp://", "xdstp:///*", "xdstp://x/T/*?", "xdstp://x/T/a?&&&", "xdstp://x/T/a?=#*", "xdstp://x/T/*/*"];
    both(table, Conversation, "xdstp names with traps", SERVED, &[],
        || after(vec![Ask::of(EDS).named(traps.map(str::to_owned)), Ask::of(LDS).named(traps.map(str::to_owned))]));
    both(table, Conversation, "10,000 globs", SERVED, &[],
        || after(vec![Ask::of(EDS).named((0..10_000).map(|n| format!("xdstp://x/T/{n}/*")))]));
    let located = |count: usize, parameters: usize| Ask {
        located: (0..count).map(|n| (n.to_string(), parameters)).collect(),
        ..Ask::of(EDS)
    };
    both(table, Conversation, "locators with parameters", SERVED, &[], || after(vec![located(10, 10)]));
    both(table, Sizes, "a locator with 1,000 parameters", &["ResourceExhausted"], &["bytes"], || after(vec![located(1, 1_000)]));
    both(table, Sizes, "100,001 locators", &["ResourceExhausted"], &["names"], || after(vec![located(100_001, 0)]));
    let hosts = ["", "/", "//", "r/", "/h", "r/\0", "r/*", "r/a:b:c", "r/\u{202e}"];
    both(table, Conversation, "hosts with traps", SERVED, &[], || after(vec![Ask::of(VHDS).named(hosts.map(str::to_owned))]));
    both(table, Conversation, "10,000 hosts", SERVED, &[],
        || after(vec![Ask::of(VHDS).named((0..10_000).map(|n| format!("r/{n}.test")))]));
    let delta = |what: &'static str, asks: Vec<Ask>| case(Conversation, what, ads::delta(&after(asks)), SERVED, &[]);
    table.extend([
        delta("names let go that were never asked for", vec![Ask { not: vec!["*".into(), "x".into()], ..Ask::of(EDS) }]),
        delta("names asked for and let go at once", vec![Ask { names: vec!["x".into()], not: vec!["x".into()], ..Ask::of(EDS) }]),
        delta("held before, by nobody's version", vec![Ask {
            held: (0..1_000).map(|n| (format!("held-{n}"), "\0".to_owned())).collect(),
            ..Ask::of(LDS)
        }]),
    ]);
}

#[rustfmt::skip]
fn wire(table: &mut Vec<Case<Call>>) {
    for protocol in [Protocol::Sotw, Protocol::Delta] {
        let mut row = |class, what: &str, body: Vec<Bytes>, verdicts: &'static [&'static str]| {
            table.push(case(class, format!("{what} ({protocol:?})"), ads::raw(protocol, body), verdicts, &[]));
        };
        row(Sizes, "a message of no bytes", vec![prefixed(0, 0, b"")], INVALID);
        row(Sizes, "a prefix that promises 4 GiB", vec![prefixed(0, u32::MAX, b"x")], TOO_MUCH);
        row(Sizes, "a prefix that promises 100 MiB", vec![prefixed(0, 100 << 20, b"x")], TOO_MUCH);
        row(Sizes, "20 MiB of zeros", vec![prefixed(0, 20 << 20, &vec![0; 20 << 20])], TOO_MUCH);
        row(Conversation, "no protobuf", vec![prefixed(0, 4, b"\xff\xff\xff\xff")], BROKEN);
        row(Conversation, "a varint without end", vec![prefixed(0, 12, &[0x80; 12])], BROKEN);
        row(Conversation, "text that is no UTF-8", vec![prefixed(0, 4, b"\x22\x02\xc3\x28")], BROKEN);
        row(Conversation, "compressed, it says, by nothing", vec![prefixed(1, 2, b"xx")], BROKEN);
        row(Conversation, "a flag there is not", vec![prefixed(7, 2, b"xx")], BROKEN);
    }
    let mut hung_up = ads::delta(&[]);
    hung_up.closes = true;
    table.push(case(Conversation, "a stream of nothing", hung_up, &["Ok", "Cancelled", "InvalidArgument"], &[]));
    let mut elsewhere = ads::delta(&[first(ID)]);
    elsewhere.path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/Everything";
    table.push(case(Conversation, "a method there is not", elsewhere, &["Unimplemented", "404"], &[]));
    let mut other = ads::delta(&[first(ID)]);
    other.path = "/kuma.mesh.v1alpha1.KDSSyncService/GlobalToZoneSync";
    table.push(case(Conversation, "the service of global", other, &["Unimplemented", "404"], &[]));
    // Two bytes each on their way.
    let parts = |member: &[u8]| {
        let node = [&[0x0a, u8::try_from(ID.len()).unwrap()][..], ID.as_bytes(), &member.repeat(1_900_000)].concat();
        let mut message = vec![0x0a];
        prost::encoding::encode_varint(node.len() as u64, &mut message);
        message.extend(node);
        ads::raw(Protocol::Delta, vec![prefixed(0, u32::try_from(message.len()).unwrap(), &message)])
    };
    table.push(case(Sizes, "a node of 1,900,000 extensions", parts(&[0x4a, 0]), &["ResourceExhausted"], &["parts"]));
    table.push(case(Sizes, "a node of 1,900,000 addresses", parts(&[0x5a, 0]), &["ResourceExhausted"], &["parts"]));
    let mut metadata = ads::delta(&[first(ID)]);
    metadata.metadata.push(("x-long".to_owned(), "x".repeat(64 << 10)));
    table.push(case(Sizes, "64 KiB of metadata", metadata, &["431", "reset", "ResourceExhausted"], &[]));
}

/// The same through the doors of one type: two sorts of streams, and calls.
#[rustfmt::skip]
fn single_types(table: &mut Vec<Case<Call>>) {
    const DOORS: [(Protocol, &str, &str); 3] = [
        (Protocol::Sotw, "StreamClusters", "/envoy.service.cluster.v3.ClusterDiscoveryService/StreamClusters"),
        (Protocol::Delta, "DeltaClusters", "/envoy.service.cluster.v3.ClusterDiscoveryService/DeltaClusters"),
        (Protocol::Sotw, "FetchClusters", "/envoy.service.cluster.v3.ClusterDiscoveryService/FetchClusters"),
    ];
    for (protocol, door, path) in DOORS {
        let mut row = |class, what: &str, mut call: Call, verdicts: &'static [&'static str], says: &'static [&'static str]| {
            call.path = path;
            table.push(case(class, format!("{what} ({door})"), call, verdicts, says));
        };
        let ask = |ask: Ask| stream(protocol, &[ask]);
        let many = |count: usize| first(ID).named((0..count).map(|n| n.to_string()));
        let untyped = Ask { type_url: String::new(), ..first(ID) };
        let (to_nothing, refusing) = (Ask { nonce: "99".into(), ..first(ID) }, Ask { error: Some("no".into()), ..first(ID) });
        row(Conversation, "a request that is right", ask(first(ID)), SERVED, &[]);
        row(Conversation, "no type, which goes without saying", ask(untyped), SERVED, &[]);
        row(Conversation, "another type", ask(Ask { type_url: EDS.into(), ..first(ID) }), INVALID, &["not served"]);
        row(Conversation, "an answer to nothing", ask(to_nothing), SERVED, &[]);
        row(Conversation, "a refusal of nothing", ask(refusing), SERVED, &[]);
        row(Conversation, "100,001 names", ask(many(100_001)), &["ResourceExhausted"], &["names"]);
        row(Sizes, "a million names", ask(many(1_000_000)), TOO_MUCH, &[]);
        row(Sizes, "a name of 10 MiB", ask(first(ID).named(["x".repeat(10 << 20)])), TOO_MUCH, &[]);
        row(Proxies, "no node", ask(Ask::of(CDS)), INVALID, &["must carry a node"]);
        row(Proxies, "another proxy's id", ask(first("default.web-2")), FOREIGN, &["straitctl generate dataplane-token"]);
        row(Proxies, "id in another mesh", ask(first("other.web-1")), FOREIGN, &[]);
        row(Conversation, "no protobuf", ads::raw(protocol, vec![prefixed(0, 4, b"\xff\xff\xff\xff")]), BROKEN, &[]);
        row(Sizes, "a prefix that promises 4 GiB", ads::raw(protocol, vec![prefixed(0, u32::MAX, b"x")]), TOO_MUCH, &[]);
    }
    let hosts = |ask: Ask, verdicts: &'static [&'static str], what: &'static str| {
        let mut call = ads::delta(&[ask]);
        call.path = "/envoy.service.route.v3.VirtualHostDiscoveryService/DeltaVirtualHosts";
        case(Conversation, format!("{what} (DeltaVirtualHosts)"), call, verdicts, &[])
    };
    let of_a_million = |type_url: &str| Ask { type_url: type_url.to_owned(), ..first(ID) }.named((0..1_000_000).map(|n| format!("r/{n}")));
    table.extend([
        hosts(Ask::of(VHDS), INVALID, "no node"),
        hosts(first(ID), INVALID, "another type"),
        hosts(Ask { type_url: VHDS.to_owned(), ..first("default.web-2") }, FOREIGN, "another proxy's id"),
        hosts(of_a_million(VHDS), TOO_MUCH, "a million hosts"),
    ]);
    let mut silent = stream(Protocol::Sotw, &[]);
    (silent.path, silent.closes) = (DOORS[2].2, true);
    table.push(case(Conversation, "a call of nothing", silent, INVALID, &["no request"]));
    let mut status = ads::raw(Protocol::Sotw, vec![prefixed(0, 4, b"\xff\xff\xff\xff")]);
    status.path = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
    table.push(case(Proxies, "a proxy that asks for the status of others", status, &["Unauthenticated"], &["user token"]));
}

fn table() -> Vec<Case<Call>> {
    let mut table = Vec::new();
    nodes(&mut table);
    protocol(&mut table);
    wire(&mut table);
    single_types(&mut table);
    table
}

/// What is tried.
pub fn count() -> Tally {
    tally(&table())
}

/// ADS, called with a token that is right.
struct Authorized {
    ads: Grpc,
    token: String,
}

impl Front for Authorized {
    type Input = Call;

    fn name(&self) -> &str {
        "ADS"
    }

    async fn send(&self, input: &Call) -> Answer {
        let mut metadata = input.metadata.clone();
        metadata.push(("authorization".to_owned(), self.token.clone()));
        self.ads.call_with(input, &metadata).await
    }
}

#[tokio::test]
async fn a_proxy_that_talks_nonsense_hurts_nobody_and_the_next_one_is_served() {
    let global = Global::start().await;
    let zone = Zone::start_with(&global, "zone-1", Options::default()).await;
    eventually("the mesh in the zone", || zone.try_get("/meshes/default")).await;
    zone.apply(&ads::dataplane("web-1"));
    zone.apply(&ads::dataplane("web-2"));
    let token = zone.proxy_token("default", &["--name", "web-1"]).await;
    let certificate = std::fs::read_to_string(zone.certificate()).unwrap();
    let ads = Grpc::new("ADS", zone.dp_server, &certificate);
    let front = Authorized { ads, token };
    let witness = zone.proxy_token("default", &["--name", "web-2"]).await;
    let mut witness = join(&zone, ads_peer::node("default.web-2", None), Some(&witness)).await.unwrap();
    all_right([run(&front, &table(), &[&zone.process]).await]);
    zone.apply(&ads::dataplane("web-2").replace("port: 80,", "port: 81,"));
    let told = witness.take().await.expect("a stream beside all that goes on");
    assert_eq!(told.type_url, CDS);
    assert_eq!(ads::well_behaved(&front.ads, ID, &front.token).await.verdict, "served");
    zone.get("/meshes/default/dataplanes/web-1").await;
}
