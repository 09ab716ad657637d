//! What global does with peers: those that behave like Kuma's zones, and those that do not behave.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    kds::{codec::ENVELOPE_URL, features::RESUME, order},
    model::{Origin, kinds, labels},
    policy::mesh_timeout,
    proto::google::protobuf::Any,
    rest::{ZoneHealth, ZoneStatusSource},
    runtime::http::Limits,
};
use global::kds::{ShownCredentials, ZoneAuthError, ZoneAuthenticator};
use tokio::net::TcpListener;
use tonic::Code;
use zone::kds::{Dial, ZoneKdsSettings};

use crate::{
    plane::{Plane, store},
    scripted::{Scripted, item, on_global},
    sockets::serve,
    world::{DATAPLANE, World},
};

#[tokio::test]
async fn a_zone_of_kuma_gets_each_type_whole_and_then_differences() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.ping().await.unwrap();
    let types = ["Mesh", "MeshTimeout", "TrafficRoute"];
    let mut down = zone.ask(types.iter().map(|name| zone.first(name)).collect()).await.unwrap();
    let mut seen = BTreeSet::new();
    for nonce in 1..=3 {
        let response = down.next().await;
        assert_eq!(response.nonce, nonce.to_string());
        assert_eq!(response.control_plane.clone().unwrap().identifier, "global");
        assert_eq!(response.system_version_info, "");
        let items: Vec<&str> = response.resources.iter().map(|r| r.name.as_str()).collect();
        let expected: &[&str] = if response.type_url == "Mesh" { &["default."] } else { &[] };
        assert_eq!(items, expected, "{}", response.type_url);
        for resource in &response.resources {
            assert_eq!(resource.resource.as_ref().unwrap().type_url, ENVELOPE_URL);
        }
        seen.insert(response.type_url.clone());
        down.reply(&response, None).await;
    }
    assert_eq!(seen.len(), 3);

    // A refusal is not argued with; what was refused with it stands, and the next version is offered.
    world.global.put(world.policy("p")).await;
    let offered = down.next().await;
    assert!(offered.resources[0].name.starts_with("p-") && offered.resources[0].name.ends_with(".default"));
    down.reply(&offered, Some("it does not fit here")).await;
    let refused =
        "the zone refused MeshTimeout and keeps what it had; correct it on global: it does not fit here";
    world.note("zone-1", &[refused]).await;
    world.global.put(world.policy("p").with_label("team", "a")).await;
    let again = down.next().await;
    assert_eq!(again.resources.len(), 1);
    assert_ne!(again.resources[0].version, offered.resources[0].version);
    down.reply(&again, None).await;
    world.global.delete(world.policy("p").key).await;
    let removal = down.next().await;
    assert_eq!(removal.removed_resources, [offered.resources[0].name.clone()]);
    assert!(removal.resources.is_empty());
}

#[tokio::test]
async fn global_asks_first_and_takes_what_is_right() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let mut asked = BTreeSet::new();
    for _ in order::requested_by_global() {
        let request = up.next().await;
        let node = request.node.unwrap();
        assert_eq!(node.id, "zone-1");
        assert!(node.metadata.is_some());
        assert_eq!(request.resource_names_subscribe, ["*"]);
        assert!(request.initial_resource_versions.is_empty());
        asked.insert(request.type_url);
    }
    assert_eq!(asked.len(), 31);

    let good =
        world.of_zone(&kinds::dataplane::KIND, "good-1", DATAPLANE).with_label(labels::DISPLAY_NAME, "good");
    let bad = world.of_zone(&kinds::dataplane::KIND, "bad-1", r#"{"networking":{}}"#);
    up.send("Dataplane", 1, &[good.clone(), bad], &[]).await;
    let verdict = up.verdict("Dataplane").await;
    let message = verdict.error_detail.unwrap().message;
    assert!(message.contains("bad-1-") && !message.contains("good-1"), "{message}");
    world.global.until("the good one", |index| index.count(&kinds::dataplane::KIND) == 1).await;

    let fixed = world.of_zone(&kinds::dataplane::KIND, "bad-1", DATAPLANE);
    up.send("Dataplane", 2, &[fixed], &[]).await;
    assert!(up.verdict("Dataplane").await.error_detail.is_none());
    world.global.until("both", |index| index.count(&kinds::dataplane::KIND) == 2).await;

    // The stream never ends well, or a zone of Kuma would never come back.
    drop(up.responses);
    let end = loop {
        match up.requests.message().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("ended with OK"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Cancelled);
}

#[tokio::test]
async fn a_newer_session_replaces_the_older_one() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut old_down = zone.ask(vec![zone.first("Mesh")]).await.unwrap();
    let mut old_up = zone.answer().await.unwrap();
    old_down.next().await;
    let again = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut new_down = again.ask(vec![again.first("Mesh")]).await.unwrap();
    assert_eq!(old_down.end().await.unwrap().code(), Code::Cancelled);
    assert_eq!(old_up.end().await.unwrap().code(), Code::Cancelled);
    assert_eq!(new_down.next().await.type_url, "Mesh");
    let mut new_up = again.answer().await.unwrap();
    new_up.send("Dataplane", 1, &[world.of_zone(&kinds::dataplane::KIND, "d", DATAPLANE)], &[]).await;
    assert!(new_up.verdict("Dataplane").await.error_detail.is_none());
}

#[tokio::test]
async fn when_one_half_ends_the_session_ends() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut down = zone.ask(vec![zone.first("Mesh")]).await.unwrap();
    let up = zone.answer().await.unwrap();
    down.next().await;
    drop(up);
    assert_eq!(down.end().await.unwrap().code(), Code::Cancelled);
    let status = world.kds.zone_status("zone-1", &world.global.index.current()).unwrap();
    assert_ne!(status.status, ZoneHealth::Online);
}

#[tokio::test]
async fn what_was_kept_is_not_sent_again() {
    let world = World::new().await;
    for n in 0..50 {
        world.global.put(world.policy(&format!("p{n}"))).await;
    }
    let mut zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    zone.caller.features.insert(RESUME);
    let ask = |kept| {
        let mut first = zone.first("MeshTimeout");
        first.initial_resource_versions = kept;
        first
    };
    let mut down = zone.ask(vec![ask(Default::default())]).await.unwrap();
    let all = down.next().await;
    assert_eq!(all.resources.len(), 50);
    let mut kept: std::collections::HashMap<String, String> =
        all.resources.iter().map(|r| (r.name.clone(), r.version.clone())).collect();
    kept.insert("ghost.default".to_owned(), "x".to_owned());
    let again = zone.clone();
    let mut down = again.ask(vec![ask(kept)]).await.unwrap();
    let difference = down.next().await;
    assert_eq!(difference.resources.len(), 0);
    assert_eq!(difference.removed_resources, ["ghost.default"]);
}

#[tokio::test]
async fn a_zone_that_does_not_answer_does_not_hold_up_the_others() {
    let world = World::new().await;
    let stuck = Scripted::like_kumas(&world.dial, "stuck").await;
    let _down = stuck.ask(vec![stuck.first("MeshTimeout"), stuck.first("Mesh")]).await.unwrap();
    let _up = stuck.answer().await.unwrap();
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    zone.follow(ZoneKdsSettings::new("zone-1"), Arc::clone(&world.dial));
    for n in 0..20 {
        let revision = world.global.put(world.policy(&format!("p{n}"))).await;
        assert!(revision > 0);
        zone.until("the policy", |index| index.count(&mesh_timeout::KIND) == n + 1).await;
    }
}

/// Accepts `token-of-<zone>`.
struct Tokens;

impl ZoneAuthenticator for Tokens {
    fn authenticate(&self, zone: &str, shown: ShownCredentials<'_>) -> Result<(), ZoneAuthError> {
        let token = shown.token;
        match token {
            None => Err(ZoneAuthError::Missing { zone: zone.to_owned() }),
            Some(token) if token == format!("token-of-{zone}") => Ok(()),
            Some(_) => {
                Err(ZoneAuthError::Foreign { claimed: zone.to_owned(), reason: "another's".to_owned() })
            }
        }
    }
}

#[tokio::test]
async fn only_a_zone_with_its_own_credential_gets_in() {
    let mut global = Plane::start(store(1), "global", 1).await;
    let kds = global.kds_with(Plane::settings(), Arc::new(Tokens));
    let dial = serve(&mut global, &kds).await;
    let check = async |token: Option<&str>, name: &str, expected: Option<Code>| {
        let mut zone = Scripted::like_kumas(&dial, "zone-1").await;
        zone.caller.zone = name.to_owned();
        zone.caller.token = token.map(str::to_owned);
        let codes = [
            zone.ping().await.err().map(|s| s.code()),
            zone.ask(vec![zone.first("Mesh")]).await.err().map(|s| s.code()),
            zone.answer().await.err().map(|s| s.code()),
        ];
        assert_eq!(codes, [expected; 3], "{name} with {token:?}");
    };
    check(None, "zone-1", Some(Code::Unauthenticated)).await;
    check(Some("token-of-zone-2"), "zone-1", Some(Code::PermissionDenied)).await;
    check(Some("token-of-zone-1"), "ZONE", Some(Code::InvalidArgument)).await;
    check(Some("token-of-zone-1"), "", Some(Code::InvalidArgument)).await;
    assert_eq!(global.index.current().count(&kinds::zone::KIND), 0, "nobody was registered");
    check(Some("token-of-zone-1"), "zone-1", None).await;
    assert_eq!(global.index.current().count(&kinds::zone::KIND), 1);
}

#[tokio::test]
async fn an_unknown_zone_stays_out_when_zones_are_registered_by_hand() {
    let mut global = Plane::start(store(1), "global", 1).await;
    let settings = global::kds::GlobalKdsSettings { auto_register: false, ..Plane::settings() };
    let kds = global.kds_with(settings, Arc::new(global::kds::AnyZone));
    let dial = serve(&mut global, &kds).await;
    let zone = Scripted::like_kumas(&dial, "zone-1").await;
    let refused = zone.answer().await.err().unwrap();
    assert_eq!(refused.code(), Code::PermissionDenied);
    assert!(refused.message().contains("zone-1"), "{}", refused.message());
    global.put(global.resource(&kinds::zone::KIND, "", "zone-1", Origin::Global)).await;
    assert!(zone.answer().await.is_ok());
}

#[tokio::test]
async fn nonsense_ends_a_stream_or_is_refused_and_never_the_process() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut no_type = zone.first("Mesh");
    no_type.type_url.clear();
    let mut down = zone.ask(vec![no_type]).await.unwrap();
    assert_eq!(down.end().await.unwrap().code(), Code::InvalidArgument);
    let mut no_node = zone.first("Mesh");
    no_node.node = None;
    let mut down = zone.ask(vec![no_node]).await.unwrap();
    assert_eq!(down.end().await.unwrap().code(), Code::InvalidArgument);
    let mut down = zone.ask(vec![zone.first("NoSuchType")]).await.unwrap();
    assert!(down.next().await.resources.is_empty());

    let mut up = zone.answer().await.unwrap();
    let good = item(&on_global(&world.of_zone(&kinds::dataplane::KIND, "good", DATAPLANE), "zone-1"));
    let garbage = |value: Vec<u8>, type_url: &str| {
        let mut garbage = good.clone();
        garbage.name = format!("garbage-{}.default", value.len());
        garbage.resource = Some(Any { type_url: type_url.to_owned(), value });
        garbage
    };
    let mut nothing = good.clone();
    (nothing.name, nothing.resource) = ("nothing".to_owned(), None);
    let resources = vec![
        good.clone(),
        garbage(vec![0xff; 40], ENVELOPE_URL),
        garbage(vec![], ENVELOPE_URL),
        garbage(vec![1], "x"),
        nothing,
    ];
    let response = common::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse {
        type_url: "Dataplane".to_owned(),
        nonce: "1".to_owned(),
        resources,
        removed_resources: vec!["".to_owned(), ".".to_owned(), "....".to_owned(), "é.ü".to_owned()],
        ..Default::default()
    };
    up.responses.send(response).await.unwrap();
    assert!(up.verdict("Dataplane").await.error_detail.is_some());
    assert_eq!(world.global.index.current().count(&kinds::dataplane::KIND), 1);
    // A type nobody asked for is refused, the stream goes on.
    up.send("Zone", 2, &[], &[]).await;
    assert!(up.verdict("Zone").await.error_detail.is_some());
    up.send("Dataplane", 3, &[], &[&good.name]).await;
    assert!(up.verdict("Dataplane").await.error_detail.is_none());
    // Without a nonce no answer is possible.
    let response = common::proto::envoy::service::discovery::v3::DeltaDiscoveryResponse {
        type_url: "Dataplane".to_owned(),
        ..Default::default()
    };
    up.responses.send(response).await.unwrap();
    assert_eq!(up.end().await.unwrap().code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_message_over_the_limit_ends_its_stream_and_not_the_connection() {
    let mut global = Plane::start(store(1), "global", 1).await;
    let settings = global::kds::GlobalKdsSettings { max_message: 64 * 1024, ..Plane::settings() };
    let kds = global.kds_with(settings, Arc::new(global::kds::AnyZone));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("grpc://{}", listener.local_addr().unwrap());
    let (serving, stop) = (kds.clone(), global.stop.clone());
    global.tasks.spawn(async move { serving.serve(listener, None, Limits::default(), stop).await.unwrap() });
    let dial: Arc<dyn Dial> =
        Arc::new(zone::kds::Trusted::new(&address, &common::tls::Trust::System).unwrap());
    let zone = Scripted::like_kumas(&dial, "zone-1").await;
    let mut up = zone.answer().await.unwrap();
    let huge = global.resource(&kinds::mesh_service::KIND, "default", "huge", Origin::Global);
    up.send("MeshService", 1, &[huge.with_label("x", &"y".repeat(100 * 1024))], &[]).await;
    assert_ne!(up.end().await.unwrap().code(), Code::Ok);
    zone.ping().await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), zone.answer()).await.unwrap().unwrap();
}
