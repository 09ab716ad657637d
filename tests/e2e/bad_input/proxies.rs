//! What a proxy says to ADS: B13, and the protocol (B5) and sizes (B6) of its streams.

use bytes::Bytes;
use common::proto::google::protobuf::{ListValue, Struct, Value, value::Kind};

use super::{
    ads::{self, Ask, CDS, EDS, LDS, Protocol, SDS, first, node, stream, text},
    grpc::{Call, Grpc, prefixed},
    table::{Answer, Case, Front, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    tally::{
        Class::{self, B5, B6, B13},
        Tally,
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
    both(table, B13, "no node", INVALID, &["must carry a node"], || vec![Ask::of(CDS)]);
    both(table, B13, "no id", INVALID, &["node id"], || id(""));
    both(table, B13, "id without a mesh", INVALID, &["node id"], || id("web-1"));
    both(table, B13, "id without a name", INVALID, &["node id"], || id("default."));
    both(table, B13, "id of a zone proxy", INVALID, &["node id"], || id(".web-1"));
    both(table, B13, "another proxy's id", FOREIGN, &["straitctl generate dataplane-token"], || id("default.web-2"));
    both(table, B13, "id in another mesh", FOREIGN, &[], || id("other.web-1"));
    both(table, B13, "id with a newline", &["InvalidArgument", "PermissionDenied"], &[], || id("default.web-1\nforged=line"));
    both(table, B13, "id with a NUL", &["InvalidArgument", "PermissionDenied"], &[], || id("default.web-1\0"));
    both(table, B13, "id with a path", &["InvalidArgument", "PermissionDenied"], &[], || id("default.../web-1"));
    both(table, B13, "id in capitals", &["InvalidArgument", "PermissionDenied"], &[], || id("default.WEB-1"));
    let kind = |value: Value| vec![Ask::of(CDS).from(node(ID, [("dataplane.proxyType", value)]))];
    both(table, B13, "a sort of proxy there is not", INVALID, &["proxyType", "router"], || kind(text("router")));
    both(table, B13, "an ingress with a dataplane's id", INVALID, &["node id"], || kind(text("ingress")));
    both(table, B13, "an ingress with a dataplane's token", FOREIGN, &["--scope ingress"],
        || vec![Ask::of(CDS).from(node(".web-1", [("dataplane.proxyType", text("ingress"))]))]);
    both(table, B13, "an egress with a dataplane's token", FOREIGN, &["--scope egress"],
        || vec![Ask::of(CDS).from(node(".web-1", [("dataplane.proxyType", text("egress"))]))]);
    both(table, B13, "metadata of other types", SERVED, &[], || {
        let number = || Value { kind: Some(Kind::NumberValue(f64::NAN)) };
        vec![Ask::of(CDS).from(node(ID, [("version", number()), ("dataplane.admin.port", number()), ("features", text("x"))]))]
    });
    both(table, B13, "metadata without values", SERVED, &[], || {
        vec![Ask::of(CDS).from(node(ID, [("version", Value { kind: None }), ("dataplane.resource", Value { kind: None })]))]
    });
    both(table, B13, "metadata 5 deep", SERVED, &[], || vec![Ask::of(CDS).from(node(ID, [("x", nested(5))]))]);
    both(table, B13, "metadata 600 deep", BROKEN, &[], || vec![Ask::of(CDS).from(node(ID, [("x", nested(300))]))]);
    both(table, B13, "10,000 members of metadata", &["served", "InvalidArgument", "ResourceExhausted"], &[], || {
        let fields = (0..10_000).map(|n| (format!("m{n}"), text("x"))).collect();
        let mut node = node(ID, []);
        node.metadata = Some(Struct { fields });
        vec![Ask::of(CDS).from(node)]
    });
    both(table, B13, "another node later", SERVED, &[], || {
        vec![Ask::of(LDS).from(node(ID, [])), Ask::of(CDS).from(node("default.web-2", []))]
    });
}

#[rustfmt::skip]
fn protocol(table: &mut Vec<Case<Call>>) {
    both(table, B5, "no type", INVALID, &["type"], || vec![Ask::of("").from(node(ID, []))]);
    both(table, B5, "a type nobody serves", SERVED, &[], || after(vec![Ask::of("type.googleapis.com/x.Nothing")]));
    both(table, B5, "a type of KDS", SERVED, &[], || after(vec![Ask::of("Secret"), Ask::of("GlobalSecret")]));
    both(table, B5, "a type with traps", SERVED, &[], || after(vec![Ask::of("../../etc/passwd\0\u{202e}")]));
    both(table, B5, "100 types nobody serves", &["ResourceExhausted", "served"], &[],
        || after((0..100).map(|n| Ask::of(&format!("type.googleapis.com/x.T{n}"))).collect()));
    both(table, B5, "an answer to nothing", SERVED, &[], || after(vec![Ask::of(LDS), answer("99", None)]));
    both(table, B5, "an answer before any request", SERVED, &[], || after(vec![answer("1", None)]));
    both(table, B5, "an answer that is no number", SERVED, &[], || after(vec![Ask::of(LDS), answer("x\0\u{feff}", None)]));
    both(table, B5, "one answer many times", SERVED, &[], || {
        let mut asks = vec![Ask::of(LDS)];
        asks.extend((0..50).map(|_| answer("1", None)));
        after(asks)
    });
    both(table, B5, "a refusal of nothing", SERVED, &[], || after(vec![Ask::of(LDS), answer("99", Some("no"))]));
    both(table, B5, "a refusal without words", SERVED, &[], || after(vec![Ask::of(LDS), answer("1", Some(""))]));
    both(table, B5, "a refusal of 64 KiB", SERVED, &[], || after(vec![Ask::of(LDS), answer("1", Some(&"no ".repeat(21_000)))]));
    both(table, B5, "a storm of refusals", SERVED, &[], || {
        let mut asks = vec![Ask::of(LDS)];
        asks.extend((0..200).map(|n| answer(&n.to_string(), Some("no\nforged=line"))));
        after(asks)
    });
    both(table, B5, "the same first request again", SERVED, &[], || after((0..100).map(|_| Ask::of(LDS)).collect()));
    let names = ["\0", "..", "../../secrets", "\u{202e}evil", "*", "", "identity_cert:secret:other", "a b", "%00"];
    both(table, B5, "names with traps", SERVED, &[],
        || after(vec![Ask::of(EDS).named(names.map(str::to_owned)), Ask::of(SDS).named(names.map(str::to_owned))]));
    both(table, B5, "a wildcard for secrets", SERVED, &[], || after(vec![Ask::of(SDS).named(["*".to_owned()])]));
    both(table, B5, "one name 1,000 times", SERVED, &[],
        || after(vec![Ask::of(EDS).named(std::iter::repeat_n("x".to_owned(), 1_000))]));
    both(table, B5, "100,001 names", &["ResourceExhausted"], &["names"],
        || after(vec![Ask::of(EDS).named((0..100_001).map(|n| n.to_string()))]));
    let delta = |what: &'static str, asks: Vec<Ask>| case(B5, what, ads::delta(&after(asks)), SERVED, &[]);
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
        row(B6, "a message of no bytes", vec![prefixed(0, 0, b"")], INVALID);
        row(B6, "a prefix that promises 4 GiB", vec![prefixed(0, u32::MAX, b"x")], TOO_MUCH);
        row(B6, "a prefix that promises 100 MiB", vec![prefixed(0, 100 << 20, b"x")], TOO_MUCH);
        row(B6, "20 MiB of zeros", vec![prefixed(0, 20 << 20, &vec![0; 20 << 20])], TOO_MUCH);
        row(B5, "no protobuf", vec![prefixed(0, 4, b"\xff\xff\xff\xff")], BROKEN);
        row(B5, "a varint without end", vec![prefixed(0, 12, &[0x80; 12])], BROKEN);
        row(B5, "text that is no UTF-8", vec![prefixed(0, 4, b"\x22\x02\xc3\x28")], BROKEN);
        row(B5, "compressed, it says, by nothing", vec![prefixed(1, 2, b"xx")], BROKEN);
        row(B5, "a flag there is not", vec![prefixed(7, 2, b"xx")], BROKEN);
    }
    let mut hung_up = ads::delta(&[]);
    hung_up.closes = true;
    table.push(case(B5, "a stream of nothing", hung_up, &["Ok", "Cancelled", "InvalidArgument"], &[]));
    let mut elsewhere = ads::delta(&[first(ID)]);
    elsewhere.path = "/envoy.service.discovery.v3.AggregatedDiscoveryService/Everything";
    table.push(case(B5, "a method there is not", elsewhere, &["Unimplemented", "404"], &[]));
    let mut other = ads::delta(&[first(ID)]);
    other.path = "/kuma.mesh.v1alpha1.KDSSyncService/GlobalToZoneSync";
    table.push(case(B5, "the service of global", other, &["Unimplemented", "404"], &[]));
    let mut metadata = ads::delta(&[first(ID)]);
    metadata.metadata.push(("x-long".to_owned(), "x".repeat(64 << 10)));
    table.push(case(B6, "64 KiB of metadata", metadata, &["431", "reset", "ResourceExhausted"], &[]));
}

fn table() -> Vec<Case<Call>> {
    let mut table = Vec::new();
    nodes(&mut table);
    protocol(&mut table);
    wire(&mut table);
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
    all_right([run(&front, &table(), &[&zone.process]).await]);
    assert_eq!(ads::well_behaved(&front.ads, ID, &front.token).await.verdict, "served");
    zone.get("/meshes/default/dataplanes/web-1").await;
}
