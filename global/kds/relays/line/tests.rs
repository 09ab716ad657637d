#![allow(clippy::unwrap_used)]
use chrono::DateTime;
use common::{
    envoy_admin::AdminFormat,
    events::EventBus,
    kds::{features::Features, headers::KdsCaller, metadata::Peer, proxies::ProxyProgress},
    proto::{
        kuma::mesh::v1alpha1::StatsResponse,
        strait::relay::v1alpha1::{RelayRefusal, RelayReport, RelayedZone},
    },
    runtime::Env,
    store::Fence,
};
use tokio::sync::watch;

use super::*;
use crate::kds::{questions, relays::report::REFUSAL};

fn session(zone: &str, key: &str) -> Arc<Session> {
    let caller = KdsCaller {
        zone: zone.to_owned(),
        features: Features::ours(),
        session: Some(key.to_owned()),
        token: None,
        version: String::new(),
        issuing_request: None,
    };
    let fence = Fence { name: format!("kds/{zone}"), epoch: 1 };
    let (env, bus, progress) = (Env::system("test"), EventBus::new(8), watch::Sender::new(()));
    Arc::new(Session::new(&caller.into(), DateTime::UNIX_EPOCH, fence, env, bus, progress, false))
}

fn line() -> (RelayLine, RelayQuestions) {
    let carrier = Carrier { relay: "relay-1".to_owned(), session: "s".to_owned(), token: None };
    let (sender, questions) = questions::channel();
    (RelayLine::new(&carrier, sender), questions)
}

/// Has it say so.
fn heed(line: &RelayLine, report: &RelayReport, version: &str) {
    line.heed(&HeardReport::of(report.clone()), version);
}

fn at(acked: u64) -> Option<RelayPosition> {
    Some(RelayPosition { head: 9, acked, lag: 9 - acked })
}

fn of(zone: &str, session: &str) -> RelayedZone {
    RelayedZone { zone: zone.to_owned(), session: session.to_owned(), ..RelayedZone::default() }
}

fn introduced(zone: &str, session: &str) -> RelayedZone {
    RelayedZone { node: Some(Peer::default().node(zone)), ..of(zone, session) }
}

fn acked(session: &Session) -> u64 {
    session.facts().down.acked
}

#[tokio::test]
async fn what_is_said_of_all_zones_holds_for_those_that_were_named_before() {
    let (line, _questions) = line();
    let [a, b] = ["a", "b"].map(|zone| session(zone, "1"));
    line.carry(&a);
    line.carry(&b);
    let report =
        RelayReport { zones: vec![introduced("a", "1")], watermark: at(7), ..RelayReport::default() };
    heed(&line, &report, "1.0");
    assert_eq!((acked(&a), acked(&b)), (7, 0), "b was not named: the watermark is older than its session");
    let lagging = RelayedZone { down: at(3), ..introduced("b", "1") };
    heed(&line, &RelayReport { zones: vec![lagging], watermark: at(8), ..RelayReport::default() }, "1.0");
    assert_eq!((acked(&a), acked(&b)), (8, 3));
    heed(&line, &RelayReport { watermark: at(9), ..RelayReport::default() }, "1.0");
    assert_eq!((acked(&a), acked(&b)), (9, 9));
    assert_eq!(a.facts().relay.as_deref(), Some("relay-1"));
}

#[tokio::test]
async fn what_is_said_of_a_former_session_is_not_said_of_this_one() {
    let (line, _questions) = line();
    let (former, now) = (session("a", "1"), session("a", "2"));
    line.carry(&former);
    line.carry(&now);
    let report =
        RelayReport { zones: vec![introduced("a", "1")], watermark: at(9), ..RelayReport::default() };
    heed(&line, &report, "1.0");
    assert_eq!((acked(&former), acked(&now)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_beat_is_a_sign_of_life_of_all_but_the_silent() {
    let (line, _questions) = line();
    let [a, b] = ["a", "b"].map(|zone| session(zone, "1"));
    line.carry(&a);
    line.carry(&b);
    let zones = vec![introduced("a", "1"), introduced("b", "1")];
    heed(&line, &RelayReport { zones, watermark: at(9), ..RelayReport::default() }, "1.0");
    let before = a.facts().heard.0;
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    let silent = RelayedZone { silent: true, ..of("b", "1") };
    heed(
        &line,
        &RelayReport { zones: vec![silent], watermark: at(9), beat: true, ..RelayReport::default() },
        "1.0",
    );
    assert!(a.facts().heard.0 > before);
    assert_eq!(b.facts().heard.0, before);
}

#[tokio::test]
async fn what_a_zone_refuses_is_known_until_it_is_over() {
    let (line, _questions) = line();
    let a = session("a", "1");
    line.carry(&a);
    let refusal = |name: &str, reason: &str| RelayRefusal {
        r#type: "MeshTimeout".to_owned(),
        name: name.to_owned(),
        reason: reason.to_owned(),
    };
    let details = RelayDetails {
        refusals: vec![refusal("t.default", "password=hunter2 is odd"), refusal("u.default", "no")],
        withheld: vec![refusal("", "too large")],
    };
    let told = RelayedZone { details: Some(details), ..introduced("a", "1") };
    heed(&line, &RelayReport { zones: vec![told], ..RelayReport::default() }, "1.0");
    let reason = a.refusal("MeshTimeout", "t.default").unwrap();
    assert!(reason.contains("is odd") && !reason.contains("hunter2"), "{reason}");
    assert_eq!(a.refusal("MeshTimeout", "u.default").as_deref(), Some("no"));
    assert!(a.facts().notes.iter().any(|note| note.contains("too large")));
    let over = RelayedZone { details: Some(RelayDetails::default()), ..of("a", "1") };
    heed(&line, &RelayReport { zones: vec![over], ..RelayReport::default() }, "1.0");
    assert_eq!(a.refusal("MeshTimeout", "t.default"), None);
    assert_eq!(a.facts().notes, Vec::<String>::new());
}

#[tokio::test]
async fn what_is_said_of_a_zone_once_more_in_a_report_is_not_heard() {
    let (line, _questions) = line();
    let a = session("a", "1");
    line.carry(&a);
    let told = |reason: &str| {
        let (r#type, name) = ("MeshTimeout".to_owned(), "t.default".to_owned());
        let refusals = vec![RelayRefusal { r#type, name, reason: reason.to_owned() }];
        let details = RelayDetails { refusals, ..RelayDetails::default() };
        RelayedZone { details: Some(details), ..introduced("a", "1") }
    };
    let zones = vec![of("a", "of another session"), told("no"), told("yes"), told(&"no ".repeat(1 << 20))];
    heed(&line, &RelayReport { zones, ..RelayReport::default() }, "1.0");
    assert_eq!(a.refusal("MeshTimeout", "t.default").as_deref(), Some("no"));
    heed(&line, &RelayReport { zones: vec![told(&"no ".repeat(1 << 20))], ..RelayReport::default() }, "1.0");
    assert!(a.refusal("MeshTimeout", "t.default").is_some_and(|reason| reason.len() <= REFUSAL));
}

#[tokio::test]
async fn questions_to_a_zone_go_to_its_relay_by_name() {
    let (line, mut questions) = line();
    let a = session("a", "1");
    line.carry(&a);
    let ask = Ask::Stats { format: AdminFormat::Text, used_only: false };
    let call = Call {
        id: "1".to_owned(),
        resource_type: "Dataplane".to_owned(),
        mesh: "default".to_owned(),
        name: "web".to_owned(),
        ask,
    };
    let asking = crate::kds::put(&a, call);
    let answering = async {
        let mut owed = OwedByRelay::default();
        let asked = owed.note(questions.recv().await.unwrap()).unwrap();
        assert_eq!((asked.zone.as_str(), asked.stats.is_some(), asked.config.is_some()), ("a", true, false));
        let answer = Answer { id: "1".to_owned(), result: Ok(Bytes::from_static(b"up: 1")) };
        let report = RelayReport { stats: Some(StatsResponse::from(answer)), ..RelayReport::default() };
        HeardReport::of(report).answers().for_each(|answer| assert!(owed.settle(answer)));
    };
    let (answer, ()) = tokio::join!(asking, answering);
    assert_eq!(answer.unwrap(), "up: 1");
}

#[test]
fn how_far_proxies_are_is_kept_until_it_is_told_anew_and_never_further_than_their_zone() {
    let (line, _questions) = line();
    let carried = session("zone-1", "a");
    line.carry(&carried);
    let proxies = ProxyProgress { acked: 9, connected: 2, ..ProxyProgress::default() };
    let told = |proxies: Vec<u8>| RelayedZone {
        zone: "zone-1".to_owned(),
        session: "a".to_owned(),
        node: Some(Peer::default().node("zone-1")),
        down: Some(RelayPosition { head: 7, acked: 7, lag: 0 }),
        proxies,
        ..RelayedZone::default()
    };
    let report = |zone| RelayReport { zones: vec![zone], ..RelayReport::default() };
    heed(&line, &report(told(proxies.encode())), "1");
    for said in [Vec::new(), b"{".to_vec()] {
        heed(&line, &report(told(said)), "1");
        let known = carried.facts().proxies.unwrap();
        assert_eq!((known.acked, known.connected), (7, 2));
    }
}

#[tokio::test]
async fn one_follows_at_a_time_and_the_newest_has_the_line() {
    let (line, _questions) = line();
    let first = line.follow();
    let running = line.alone(first.cancelled());
    tokio::pin!(running);
    assert!(futures::poll!(&mut running).is_pending());
    let second = line.follow();
    assert!(first.is_cancelled() && !second.is_cancelled());
    let next = line.alone(async { "follows" });
    tokio::pin!(next);
    assert!(futures::poll!(&mut next).is_pending(), "the first has not let go yet");
    running.await;
    assert_eq!(next.await, "follows");
    assert!(!line.stop.is_cancelled());
    line.stop.cancel();
    assert!(second.is_cancelled());
}

#[tokio::test]
async fn what_a_relay_makes_up_about_refusals_is_not_kept() {
    let (line, _questions) = line();
    let a = session("a", "1");
    line.carry(&a);
    let made_up = |r#type: String, name: String| RelayRefusal { r#type, name, reason: "no".to_owned() };
    let long = "x".repeat(1 << 20);
    let of_types = (0..10).map(|n| made_up(format!("{n}{long}"), "t".to_owned()));
    let of_names = [made_up("MeshTimeout".to_owned(), long.clone())];
    let good = [made_up("MeshTimeout".to_owned(), "t.default".to_owned())];
    let details = RelayDetails {
        refusals: of_types.clone().chain(of_names).chain(good).collect(),
        withheld: of_types.collect(),
    };
    let told = RelayedZone { details: Some(details), ..introduced("a", "1") };
    heed(&line, &RelayReport { zones: vec![told], ..RelayReport::default() }, "1.0");
    let facts = a.facts();
    let kept: usize = facts.notes.iter().map(String::len).sum();
    assert!(kept < 1024, "{kept} bytes are kept");
    assert_eq!(facts.refused.len(), 1);
    assert_eq!(a.refusal("MeshTimeout", "t.default").as_deref(), Some("no"));
}
