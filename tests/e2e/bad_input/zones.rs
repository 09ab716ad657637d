//! What a zone does on its streams with global that it may not, that is no protocol, that is too much, and that would
//! wear the state out.

use bytes::Bytes;
use common::{
    kds::{codec::ENVELOPE_URL, order},
    model::{Kind, kinds},
    proto::{
        envoy::service::discovery::v3::{DeltaDiscoveryResponse, Resource as Item},
        google::protobuf::Any,
    },
    registry,
};
use prost::Message;
use reqwest::{Method, StatusCode};
use serde_json::json;

use super::{
    ads::Ask,
    grpc::{Call, framed, prefixed},
    kds::{Make, PROBE, Sent, Zoned, down, encoded, leaks, raw_down, raw_up, response, spec, up, wants},
    table::{Case, all_right, case, run, tally},
};
use crate::harness::{
    Global, Options, Zone, eventually,
    tally::{
        Class::{self, Conversation, Rights, Sizes, State},
        Tally,
    },
};

const REFUSED: &[&str] = &["refused"];
const TAKEN: &[&str] = &["taken"];
const SERVED: &[&str] = &["served"];
const INVALID: &[&str] = &["InvalidArgument"];
const BROKEN: &[&str] = &["Internal", "InvalidArgument", "Unimplemented", "Cancelled"];
/// Too much: a code that says so, or the end of the connection before anything was read.
const TOO_MUCH: &[&str] =
    &["OutOfRange", "ResourceExhausted", "InvalidArgument", "Internal", "Cancelled", "reset"];

const DATAPLANE: &Kind = &kinds::dataplane::KIND;

/// The zone all of this comes from.
const ZONE: &str = "zone-1";

/// A dataplane that is right.
fn good(name: &str) -> Sent {
    Sent::new(ZONE, DATAPLANE, name, spec(DATAPLANE))
}

fn sends(kind: &'static Kind, sent: &[Sent], removed: &[&str]) -> Call {
    up(&[response(kind.name, "1", sent.iter().map(Sent::item).collect(), removed)])
}

/// What only global writes, sent up; what zones do not get, asked for.
#[rustfmt::skip]
fn abuse() -> Vec<Case<Call>> {
    let mut table = Vec::new();
    let not_sent = |kind: &&&'static Kind| !order::requested_by_global().iter().any(|k| k.name == kind.name);
    for kind in registry::ALL.iter().filter(not_sent) {
        let name = format!("{}: written from below", kind.name);
        table.push(case(Rights, name, sends(kind, &[Sent::new(ZONE, kind, "default", spec(kind))], &[]), REFUSED, &["not subscribed"]));
        let name = format!("{}: removed from below", kind.name);
        table.push(case(Rights, name, sends(kind, &[], &["default.", "default.default"]), REFUSED, &["not subscribed"]));
    }
    let not_given = |kind: &&&'static Kind| !order::requested_by_zone().iter().any(|k| k.name == kind.name);
    for kind in registry::ALL.iter().filter(not_given) {
        table.push(case(Rights, format!("{}: asked for", kind.name), leaks(kind.name, &["*"]), &["empty"], &[]));
    }
    const PRIVATE: &[&str] = &["PRIVATE KEY", "user-token", "admin-user-token", "inter-cp-ca", "envoy-admin-ca"];
    for names in [&["*"][..], &["user-token-signing-key-1."], &["admin-user-token."], &["envoy-admin-ca."], &["../admin-user-token."]] {
        let what = format!("secrets of global by {names:?}");
        table.push(case(Rights, what, leaks("GlobalSecret", names), &["empty", "leaked"], &[]).hiding(PRIVATE));
    }
    for type_url in ["", "Nonsense", "mesh", "type.googleapis.com/kuma.mesh.v1alpha1.Mesh", "Dataplane\0", "../Dataplane"] {
        let call = up(&[DeltaDiscoveryResponse { type_url: type_url.to_owned(), ..response("", "1", vec![good("x").item()], &[]) }]);
        table.push(case(Rights, format!("a type there is not: {type_url:?}"), call, REFUSED, &["not subscribed"]));
    }
    table
}

/// One item that is no item, beside one that is right: the verdict is its own.
#[rustfmt::skip]
fn items() -> Vec<Case<Call>> {
    let row = |class: Class, what: &'static str, bad: Sent, says| {
        case(class, what, sends(DATAPLANE, &[good("beside"), bad], &[]), REFUSED, says)
    };
    let named = |name: &str| good("bad").with(|r| r.meta.get_or_insert_default().name = name.to_owned());
    let in_mesh = |mesh: &str| good("bad").with(|r| r.meta.get_or_insert_default().mesh = mesh.to_owned());
    let of_type = |url: &str| good("bad").with(|r| r.spec.get_or_insert_default().type_url = url.to_owned());
    let holding = |bytes: &[u8]| good("bad").with(|r| r.spec.get_or_insert_default().value = bytes.to_vec());
    let enveloped = |envelope: &str| Sent { envelope: envelope.to_owned(), ..good("bad") };
    let port = |port: i64| Sent::new(ZONE, DATAPLANE, "bad", encoded(DATAPLANE, &json!({"networking": {
        "address": "10.0.0.1", "inbound": [{"port": port, "tags": {"kuma.io/service": "web"}}]}})));
    vec![
        row(Conversation, "no envelope", enveloped(""), &["bad", "not KumaResource"]),
        row(Conversation, "another envelope", enveloped("type.googleapis.com/google.protobuf.Empty"), &["not KumaResource"]),
        row(Conversation, "an envelope of 64 KiB", enveloped(&"x".repeat(64 << 10)), &["not KumaResource"]),
        row(Conversation, "no meta", good("bad").with(|r| r.meta = None), &["meta is missing"]),
        row(Conversation, "no spec", good("bad").with(|r| r.spec = None), &["spec is missing"]),
        row(Conversation, "no name", named(""), &["is not a valid name"]),
        row(Conversation, "a name with a path", named("../../etc/passwd"), &["is not a valid name"]),
        row(Conversation, "a name with a NUL", named("a\0b"), &["is not a valid name"]),
        row(Conversation, "a name with a newline", named("a\nforged=line"), &["is not a valid name"]),
        row(Conversation, "a name that reads backwards", named("\u{202e}evil"), &["is not a valid name"]),
        row(Conversation, "a name of 64 KiB", named(&"x".repeat(64 << 10)), &["is not a valid name"]),
        row(Conversation, "no mesh", in_mesh(""), &["is not a valid name"]),
        row(Conversation, "a mesh with a path", in_mesh("../other"), &["is not a valid name"]),
        row(Conversation, "a spec of another type", of_type("type.googleapis.com/kuma.mesh.v1alpha1.Mesh"), &["not kuma.mesh.v1alpha1.Dataplane"]),
        row(Conversation, "a spec of no type", of_type(""), &["not kuma.mesh.v1alpha1.Dataplane"]),
        row(Conversation, "a spec that is no protobuf", holding(b"\xff\xff\xff"), &["bad"]),
        row(Conversation, "a spec that is JSON", holding(b"{}"), &["bad"]),
        row(Conversation, "a label with a NUL", good("bad").labelled("a", "b\0c"), &["NUL"]),
        row(Conversation, "port 0", port(0), &["networking.inbound[0].port"]),
        row(Conversation, "port 70000", port(70_000), &["networking.inbound[0].port"]),
        row(Sizes, "a spec of nothing", holding(b""), &["networking"]),
        row(Sizes, "groups 10,000 deep", holding(&[0x0b; 10_000]), &["bad"]),
    ]
}

/// What is said on a stream up, in an order nobody asked for.
#[rustfmt::skip]
fn upward() -> Vec<Case<Call>> {
    let mut table = items();
    let one = |nonce: &str| response(DATAPLANE.name, nonce, vec![good("one").item()], &[]);
    let row = |what: &'static str, responses: &[DeltaDiscoveryResponse], verdicts, says| {
        case(Conversation, what, up(responses), verdicts, says)
    };
    table.extend([
        row("no nonce", &[one("")], INVALID, &["nonce"]),
        row("one nonce twice", &[one("1"), one("1")], TAKEN, &[]),
        row("a nonce of 64 KiB", &[one(&"9".repeat(64 << 10))], INVALID, &["nonce"]),
        row("a nonce with traps", &[one("\0\n\u{202e}")], TAKEN, &[]),
        row("200 responses at once", &(0..200).map(|n| one(&n.to_string())).collect::<Vec<_>>(), &["taken", "InvalidArgument", "Internal"], &[]),
        row("one item twice in one response",
            &[response(DATAPLANE.name, "1", vec![good("twice").item(), good("twice").labelled("team", "a").item()], &[])], TAKEN, &[]),
        row("an item that comes and goes at once", &[response(DATAPLANE.name, "1", vec![good("both").item()], &[&good("both").wire])], TAKEN, &[]),
        row("a removal of nothing", &[response(DATAPLANE.name, "1", vec![], &["nobody.default"])], TAKEN, &[]),
        row("removals that are no names", &[response(DATAPLANE.name, "1", vec![], &["", ".", "..", "\0", "*", "../../x", "no-mesh"])], TAKEN, &[]),
        row("a version from the future", &[DeltaDiscoveryResponse { system_version_info: "18446744073709551615".into(), ..one("1") }], TAKEN, &[]),
        row("the stamp of another store", &[DeltaDiscoveryResponse {
            system_version_info: "00000000-0000-0000-0000-000000000000/9/999999999".into(), ..one("1") }], TAKEN, &[]),
        row("more to come, for ever", &[DeltaDiscoveryResponse { system_version_info: "more".into(), ..one("1") }], TAKEN, &[]),
    ]);
    for (what, body) in torn() {
        table.push(case(Conversation, format!("up: {what}"), raw_up(body, "1".to_owned()), BROKEN, &[]));
    }
    let item = |bytes: usize| response(DATAPLANE.name, "1", vec![good("large").labelled("pad", &"x".repeat(bytes)).item()], &[]);
    let many = |count: usize| (0..count).map(|n| good(&format!("many-{n}")).item()).collect();
    let labels = (0..20_000).fold(good("labels"), |sent, n| sent.labelled(&format!("l{n}"), "x"));
    table.extend([
        case(Sizes, "a label of 1 MiB", up(&[item(1 << 20)]), &["refused", "taken"], &[]),
        case(Sizes, "an item a byte below the limit of messages", up(&[item((10 << 20) - 1024)]), &["refused", "OutOfRange", "Cancelled"], &[]),
        case(Sizes, "an item of 11 MiB", up(&[item(11 << 20)]), TOO_MUCH, &[]),
        case(Sizes, "20,000 labels", up(&[response(DATAPLANE.name, "1", vec![labels.item()], &[])]), &["refused", "taken"], &[]),
        case(Sizes, "2,000 small items", up(&[response(DATAPLANE.name, "1", many(2_000), &[])]), TAKEN, &[]),
        case(Sizes, "all of them gone again", up(&[response(DATAPLANE.name, "1", vec![], &[])]), TAKEN, &[]),
        case(Sizes, "up: a prefix that promises 4 GiB", raw_up(vec![prefixed(0, u32::MAX, b"x")], "1".into()), TOO_MUCH, &[]),
        case(Sizes, "up: a prefix that promises 100 MiB", raw_up(vec![prefixed(0, 100 << 20, b"x")], "1".into()), TOO_MUCH, &[]),
        case(Sizes, "two million items of nothing", raw_up(vec![of_nothing(2_000_000)], "1".into()), TOO_MUCH, &[]),
        case(Sizes, "10,000 items of nothing", raw_up(vec![of_nothing(10_000)], "1".into()), REFUSED, &[]),
        case(Sizes, "a removal of a million dots", up(&[response(DATAPLANE.name, "1", vec![], &[&".".repeat(1_000_000)])]), TAKEN, &[]),
        case(Sizes, "2,000 removals of a thousand dots", up(&[response(DATAPLANE.name, "1", vec![], &vec![&*".".repeat(1_000); 2_000])]), TAKEN, &[]),
        case(Sizes, "2,000 items called by a thousand dots", up(&[response(DATAPLANE.name, "1", (0..2_000).map(|n| Item {
            name: format!("{n}{}", ".".repeat(1_000)), ..Item::default() }).collect(), &[])]), REFUSED, &["not KumaResource"]),
        case(Sizes, "up: nothing", raw_up(vec![prefixed(0, 0, b"")], "1".into()), INVALID, &["nonce"]),
    ]);
    table
}

/// A response with so many items, two bytes each.
fn of_nothing(items: usize) -> Bytes {
    let mut message = [0x12, 0].repeat(items);
    message.extend(response(DATAPLANE.name, "1", vec![], &[]).encode_to_vec());
    prefixed(0, u32::try_from(message.len()).unwrap(), &message)
}

/// Messages that are none.
fn torn() -> Vec<(&'static str, Vec<Bytes>)> {
    vec![
        ("no protobuf", vec![prefixed(0, 4, b"\xff\xff\xff\xff")]),
        ("a varint without end", vec![prefixed(0, 12, &[0x80; 12])]),
        ("text that is no UTF-8", vec![prefixed(0, 4, b"\x22\x02\xc3\x28")]),
        ("compressed, it says, by nothing", vec![prefixed(1, 2, b"xx")]),
        ("a flag there is not", vec![prefixed(7, 2, b"xx")]),
        ("a map entry without end", vec![prefixed(0, 3, b"\x12\x7f\x0a")]),
    ]
}

/// What is said on a stream down.
#[rustfmt::skip]
fn downward() -> Vec<Case<Call>> {
    let after = |asks: Vec<Ask>| {
        let mut all = asks;
        all.push(wants(PROBE));
        down(&all)
    };
    let row = |what: &'static str, asks: Vec<Ask>, verdicts, says| case(Conversation, what, after(asks), verdicts, says);
    let answer = |nonce: &str, error: Option<&str>| Ask { nonce: nonce.into(), error: error.map(str::to_owned), ..wants("MeshTimeout") };
    let held = |version: &str| Ask { held: [("default.".to_owned(), version.to_owned())].into(), ..wants("MeshTimeout") };
    let names = ["\0", "..", "../../x", "\u{202e}evil", "", "a b", "%00"].map(str::to_owned);
    let mut table = vec![
        row("no type", vec![Ask { type_url: String::new(), ..wants("") }], INVALID, &["type"]),
        case(Conversation, "no node", down(&[Ask { node: None, ..wants(PROBE) }]), INVALID, &["node"]),
        row("a type nobody serves", vec![wants("Nonsense")], SERVED, &[]),
        row("a type of Envoy", vec![wants("type.googleapis.com/envoy.config.cluster.v3.Cluster")], SERVED, &[]),
        row("100 types nobody serves", (0..100).map(|n| wants(&format!("T{n}"))).collect(), &["served", "ResourceExhausted", "InvalidArgument"], &[]),
        row("the same first request 100 times", (0..100).map(|_| wants("MeshTimeout")).collect(), SERVED, &[]),
        row("an answer to nothing", vec![wants("MeshTimeout"), answer("99", None)], SERVED, &[]),
        row("an answer before any request", vec![answer("1", None)], SERVED, &[]),
        row("an answer with traps", vec![wants("MeshTimeout"), answer("\0\n", None)], SERVED, &[]),
        row("one answer 50 times", std::iter::repeat_n(answer("1", None), 50).collect(), SERVED, &[]),
        row("a refusal of nothing", vec![answer("99", Some("no"))], SERVED, &[]),
        row("a refusal without words", vec![wants("MeshTimeout"), answer("1", Some(""))], SERVED, &[]),
        row("a refusal of 256 KiB", vec![wants("MeshTimeout"), answer("1", Some(&"no ".repeat(87_000)))], SERVED, &[]),
        row("200 refusals", (0..200).map(|n| answer(&n.to_string(), Some("no\nforged=line"))).collect(), SERVED, &[]),
        row("another zone's node", vec![Ask { node: Some(super::ads::node("zone-2", [])), ..wants("MeshTimeout") }], INVALID, &["another node id than the first"]),
        row("held at a version of the future", vec![held("ffffffffffffffff")], SERVED, &[]),
        row("held at a version with traps", vec![held("\0\u{202e}")], SERVED, &[]),
        row("10,000 held", vec![Ask { held: (0..10_000).map(|n| (format!("h{n}.default"), "1".into())).collect(), ..wants("MeshTimeout") }], SERVED, &[]),
        row("names with traps", vec![wants("MeshTimeout").named(names)], SERVED, &[]),
        row("no names", vec![wants("MeshTimeout").named([])], SERVED, &[]),
        row("names let go that were never asked for", vec![Ask { not: vec!["*".into(), "x".into()], ..wants("MeshTimeout") }], SERVED, &[]),
        row("10,000 names", vec![wants("MeshTimeout").named((0..10_000).map(|n| n.to_string()))], &["served", "ResourceExhausted"], &[]),
        case(Sizes, "down: a prefix that promises 4 GiB", raw_down(vec![prefixed(0, u32::MAX, b"x")]), TOO_MUCH, &[]),
        case(Sizes, "down: nothing", raw_down(vec![prefixed(0, 0, b"")]), INVALID, &[]),
        case(Sizes, "down: 11 MiB", raw_down(vec![prefixed(0, 11 << 20, &vec![0; 11 << 20])]), TOO_MUCH, &[]),
        case(Conversation, "down: a response", raw_down(vec![framed(&response(DATAPLANE.name, "1", vec![good("x").item()], &[]))]), BROKEN, &[]),
    ];
    for (what, body) in torn() {
        table.push(case(Conversation, format!("down: {what}"), raw_down(body), BROKEN, &[]));
    }
    let mut unnamed = down(&[wants(PROBE)]);
    unnamed.metadata.push(("client-id".to_owned(), "zone-2".to_owned()));
    table.push(case(Conversation, "two names of the caller", unnamed, &["served", "InvalidArgument", "PermissionDenied", "Unauthenticated"], &[]));
    table
}

/// What leaves the state as it was, or as its owner wants it, however often it is said.
#[rustfmt::skip]
fn state() -> Vec<Case<Call>> {
    let times = |count: usize, make: &dyn Fn(usize) -> DeltaDiscoveryResponse| {
        up(&(0..count).map(|n| DeltaDiscoveryResponse { nonce: n.to_string(), ..make(n) }).collect::<Vec<_>>())
    };
    let of = |items: Vec<Sent>, removed: &[&str]| response(DATAPLANE.name, "", items.iter().map(Sent::item).collect(), removed);
    let bad = good("bad").with(|r| r.spec = Some(Any { type_url: ENVELOPE_URL.to_owned(), value: vec![0xff] }));
    let insight = &kinds::dataplane_insight::KIND;
    let seen = |at: &str| Sent::new(ZONE, insight, "one", encoded(insight, &json!({"subscriptions": [{
        "id": "1", "controlPlaneInstanceId": "x", "connectTime": at}]})));
    let ghosts: Vec<String> = (0..5_000).map(|n| format!("ghost-{n}.default")).collect();
    let ghosts: Vec<&str> = ghosts.iter().map(String::as_str).collect();
    let zone_insight = |at: &'static str| sends(insight, &[seen(at)], &[]);
    let bare = |what: &'static str, call, verdicts, says| case(State, what, call, verdicts, says);
    vec![
        bare("one item back and forth", times(4, &|n| of(vec![good("flap").labelled("n", &n.to_string())], &[])), TAKEN, &[]),
        bare("one item that comes and goes", times(4, &|n| match n % 2 {
            0 => of(vec![good("flap")], &[]),
            _ => of(vec![], &[&good("flap").wire]),
        }), TAKEN, &[]),
        bare("one item back and forth a hundred times", times(100, &|n| of(vec![good("flap").labelled("n", &n.to_string())], &[])), TAKEN, &[]),
        bare("an item of before, after the newer one", up(&[
            DeltaDiscoveryResponse { nonce: "1".into(), system_version_info: "9".into(), ..of(vec![good("back").labelled("n", "2")], &[]) },
            DeltaDiscoveryResponse { nonce: "2".into(), system_version_info: "1".into(), ..of(vec![good("back").labelled("n", "1")], &[]) },
        ]), TAKEN, &[]),
        bare("removals of 5,000 names nobody had", sends(DATAPLANE, &[], &ghosts), TAKEN, &[]),
        bare("everything it ever sent, removed twice over", times(2, &|_| of(vec![],
            &[&good("flap").wire, &good("bad").wire, &good("back").wire, &good("beside").wire])), TAKEN, &[]),
        bare("right and wrong in turn, wrong last", times(4, &|n| of(vec![if n % 2 == 0 { good("bad") } else { bad.clone() }], &[])), REFUSED, &["bad"]),
        bare("right again", sends(DATAPLANE, &[good("bad")], &[]), TAKEN, &[]),
        bare("removals of what never was", sends(DATAPLANE, &[], &vec!["ghost.default"; 5_000]), TAKEN, &[]),
        bare("one removal 1,000 times", sends(DATAPLANE, &[good("gone")], &vec![&*good("gone").wire; 1_000]), TAKEN, &[]),
        bare("everything is gone", sends(DATAPLANE, &[], &[]), TAKEN, &[]),
        bare("seen 100 years ago", zone_insight("1926-01-01T00:00:00Z"), TAKEN, &[]),
        bare("seen in 100 years", zone_insight("2126-01-01T00:00:00Z"), TAKEN, &[]),
        bare("seen at the beginning of time", zone_insight("0001-01-01T00:00:00Z"), TAKEN, &[]),
        bare("seen at the end of time", zone_insight("9999-12-31T23:59:59Z"), TAKEN, &[]),
        bare("seen before time and after it", sends(insight, &[Sent::new(ZONE, insight, "one", beyond_time())], &[]), &["taken", "refused"], &[]),
        bare("a mesh nobody has", sends(DATAPLANE, &[good("x").with(|r| r.meta.get_or_insert_default().mesh = "nowhere".into())], &[]), &["taken", "refused"], &[]),
        bare("a name as if it were hashed", sends(DATAPLANE,
            &[good("x").with(|r| r.meta.get_or_insert_default().name = "web-xf59w6z4d8v4dd9c".into())], &[]), REFUSED, &["web-xf59w6z4d8v4dd9c"]),
        bare("the label that stops sync", sends(DATAPLANE, &[good("stop").labelled("kuma.io/kds-sync", "disabled")], &[]), TAKEN, &[]),
        bare("a label as if global had made it", sends(DATAPLANE, &[good("made").labelled("kuma.io/managed-by", "global")], &[]), TAKEN, &[]),
    ]
}

/// An insight whose times no calendar has.
fn beyond_time() -> Vec<u8> {
    use common::proto::{
        google::protobuf::Timestamp,
        kuma::mesh::v1alpha1::{DataplaneInsight, DiscoverySubscription},
    };
    let at = |seconds| Some(Timestamp { seconds, nanos: -1 });
    let subscription = DiscoverySubscription {
        id: "1".to_owned(),
        connect_time: at(i64::MIN),
        disconnect_time: at(i64::MAX),
        ..DiscoverySubscription::default()
    };
    DataplaneInsight { subscriptions: vec![subscription], ..DataplaneInsight::default() }.encode_to_vec()
}

fn tables() -> [(Make, Vec<Case<Call>>); 4] {
    [(Make::Ours, abuse()), (Make::Ours, upward()), (Make::Kumas, downward()), (Make::Ours, state())]
}

/// What is tried.
pub fn count() -> Tally {
    let mut all = Tally::default();
    tables().iter().for_each(|(_, table)| all.join(&tally(table)));
    all
}

#[tokio::test]
async fn a_zone_that_does_not_behave_hurts_neither_global_nor_another_zone() {
    let global = Global::start().await;
    let bystander = Zone::start_with(&global, "bystander", Options::default()).await;
    eventually("the mesh in the zone", || bystander.try_get("/meshes/default")).await;
    let mut outcomes = Vec::new();
    for (make, table) in tables() {
        let zoned = Zoned::new(&global, ZONE, make);
        outcomes.push(run(&zoned, &table, &[&global.process, &bystander.process]).await);
    }
    all_right(outcomes);
    // The state is the operator's, and a change of it still reaches who behaves.
    let mesh = json!({"type": "Mesh", "name": "after"});
    assert_eq!(global.call(Method::PUT, "/meshes/after", Some(mesh)).await.0, StatusCode::CREATED);
    eventually("a mesh made afterwards in the zone", || bystander.try_get("/meshes/after")).await;
    let status = global.zone_status("bystander").await;
    assert_eq!(status.as_deref(), Ok("online"));
}
