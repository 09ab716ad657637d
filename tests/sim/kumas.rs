//! What a zone does under a global like Kuma's.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use common::{
    kds::{codec, metadata::Peer, order},
    model::{Kind, Origin, Resource, kinds, labels, transcode},
    policy::mesh_timeout,
    proto::{
        envoy::service::discovery::v3::DeltaDiscoveryResponse,
        google::protobuf::{Any, value::Kind as Value},
        kuma::mesh::v1alpha1::{DataplaneInsight, DiscoverySubscription},
    },
    registry,
};
use prost::Message;
use tonic::Status;
use zone::kds::{Link, ZoneKdsSettings};

use crate::{
    kumas_global::{Down, KumasGlobal, Up},
    plane::{Plane, store},
    sockets::TIMEOUT,
};

const ZONE: &str = "zone-1";
const HASHED: &str = "default-timeout-global-54dbd4c66zwbcf9c";

struct World {
    global: KumasGlobal,
    zone: Plane,
    link: Link,
}

impl World {
    /// A zone that holds `own` when it connects for the first time.
    async fn new(answers_pings: bool, own: impl FnOnce(&Plane) -> Vec<Resource>) -> Self {
        Self::with_settings(answers_pings, own, ZoneKdsSettings::new(ZONE)).await
    }

    async fn with_settings(
        answers_pings: bool,
        own: impl FnOnce(&Plane) -> Vec<Resource>,
        settings: ZoneKdsSettings,
    ) -> Self {
        let global = KumasGlobal::start(answers_pings).await;
        let mut zone = Plane::start(store(2), ZONE, 2).await;
        for resource in own(&zone) {
            zone.put(resource).await;
        }
        let backoff = (Duration::from_millis(10), Duration::from_millis(50));
        let settings = ZoneKdsSettings { backoff, ..settings };
        let link = zone.follow(settings, Arc::clone(&global.dial));
        Self { global, zone, link }
    }

    /// The next connection, with every type answered by what `sent` has of it.
    async fn in_sync(&mut self, sent: &[Resource]) -> (Down, Up) {
        let (mut down, up) = self.global.accept().await;
        let opening = down.opening(order::requested_by_zone().len()).await;
        for (nonce, request) in (1..).zip(opening) {
            let of_type = sent.iter().filter(|r| r.kind().name == request.type_url).cloned();
            let answer = down.send(&request.type_url, nonce, &of_type.collect::<Vec<_>>(), &[]).await;
            assert_eq!(answer.error_detail, None, "{}", request.type_url);
        }
        (down, up)
    }

    fn held(&self, kind: &Kind) -> Vec<String> {
        self.zone.index.current().list(kind).map(|r| r.name().to_owned()).collect()
    }
}

/// As a global of Kuma would send it.
fn from_global(kind: &'static Kind, mesh: &str, name: &str, spec: &[u8]) -> Resource {
    let key = common::model::ResourceKey::new(kind, mesh, name);
    Resource::new(key, chrono::DateTime::UNIX_EPOCH)
        .with_spec(spec.to_vec())
        .with_label(labels::ORIGIN, labels::ORIGIN_GLOBAL)
}

fn policy() -> Resource {
    from_global(&mesh_timeout::KIND, "default", HASHED, TIMEOUT)
        .with_label(labels::DISPLAY_NAME, "default-timeout-global")
}

fn mesh() -> Resource {
    from_global(&kinds::mesh::KIND, "", "default", b"")
}

fn nothing(_: &Plane) -> Vec<Resource> {
    Vec::new()
}

#[tokio::test]
async fn a_zone_introduces_itself_in_kumas_words() {
    let mut world = World::new(true, nothing).await;
    let (mut down, up) = world.global.accept().await;
    let ping = world.global.pings.lock().unwrap()[0].clone();
    for headers in [&down.headers, &up.headers, &ping] {
        let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(text("client-id").as_deref(), Some(ZONE));
        assert_eq!(text("kds-version").as_deref(), Some("v3"));
        assert!(text("version").is_some_and(|version| !version.is_empty()));
        assert_eq!(text("authorization"), None, "there is no token to show");
        assert_eq!(text("grpc-encoding").as_deref(), Some("gzip"));
        let features: Vec<&str> = headers.get_all("features").iter().map(|v| v.to_str().unwrap()).collect();
        assert!(features.contains(&"zone-ping-health") && features.contains(&"hash-suffix"), "{features:?}");
    }

    let expected: BTreeSet<&str> = order::requested_by_zone().iter().map(|kind| kind.name).collect();
    let opening = down.opening(45).await;
    assert_eq!(opening.iter().map(|r| r.type_url.as_str()).collect::<BTreeSet<_>>(), expected);
    for request in &opening {
        assert_eq!(request.resource_names_subscribe, ["*"]);
        assert!(request.initial_resource_versions.is_empty() && request.response_nonce.is_empty());
        let node = request.node.as_ref().unwrap();
        assert_eq!(node.id, ZONE);
        // What is in there crashes a global of Kuma when it is missing.
        let peer = Peer::read(node);
        let config: serde_json::Value = serde_json::from_str(&peer.config).unwrap();
        assert!(config["store"]["type"].is_string(), "{config}");
        assert!(!peer.version.version.is_empty() && !peer.instance.is_empty());
        let metadata = &node.metadata.as_ref().unwrap().fields;
        assert!(matches!(metadata["features"].kind, Some(Value::ListValue(_))));
        for feature in
            ["hash-suffix", "producer-policy-flow", "optional-top-level-target-ref", "hg-mz-selector"]
        {
            assert!(peer.features.has(feature), "{feature}");
        }
    }

    let ack = down.send("Mesh", 1, &[mesh()], &[]).await;
    let node = ack.node.unwrap();
    assert_eq!((node.id.as_str(), node.metadata), (ZONE, None));
    assert_eq!((ack.error_detail, ack.resource_names_subscribe), (None, vec![]));
    let ack = down.send("TrafficRoute", 2, &[], &[]).await;
    assert_eq!(ack.error_detail, None, "an empty answer is one");
}

#[tokio::test]
async fn a_zone_takes_a_first_state_whole_and_then_differences() {
    let mut world = World::new(true, |zone| {
        let own = Origin::Zone(ZONE.into());
        let stale = zone.resource(&mesh_timeout::KIND, "default", "stale", Origin::Global);
        let local = zone.resource(&mesh_timeout::KIND, "default", "local", own.clone());
        let secret = zone.resource(&kinds::secret::SECRET, "default", "both", own.clone());
        // A zone that joins: its meshes become global's.
        let mesh = zone.resource(&kinds::mesh::KIND, "", "default", own);
        vec![stale.with_spec(TIMEOUT), local.with_spec(TIMEOUT), secret, mesh]
    })
    .await;
    let (mut down, _up) = world.in_sync(&[mesh(), policy()]).await;
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED, "local"]);
    let index = world.zone.index.current();
    let taken_over = index.find(&kinds::mesh::KIND, "", "default").unwrap();
    assert_eq!((&taken_over.origin, taken_over.label(labels::ORIGIN)), (&Origin::Global, Some("global")));

    // A name that is taken is refused in the words Kuma looks for, and the rest is taken.
    let secret = |name| {
        let spec =
            transcode::from_json(&kinds::secret::SECRET, &serde_json::json!({"data": "eA=="})).unwrap();
        from_global(&kinds::secret::SECRET, "default", name, &spec)
    };
    let nack = down.send("Secret", 100, &[secret("both"), secret("new")], &[]).await;
    let message = nack.error_detail.unwrap().message;
    assert!(message.starts_with("user error\n") && message.contains("both.default"), "{message}");
    assert!(nack.node.is_some_and(|node| node.id == ZONE));
    assert_eq!(world.held(&kinds::secret::SECRET), ["both", "new"]);
    let index = world.zone.index.current();
    assert!(index.find(&kinds::secret::SECRET, "default", "both").unwrap().spec.is_empty(), "overwritten");

    // An item that does not validate is refused alone; what was there under its name stays.
    let bad = Resource { spec: (&b"[]"[..]).into(), ..policy() };
    let good = from_global(&mesh_timeout::KIND, "default", "good-1", TIMEOUT);
    let nack = down.send("MeshTimeout", 101, &[bad, good], &[]).await;
    assert!(nack.error_detail.unwrap().message.contains(HASHED));
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED, "good-1", "local"]);

    let gone = format!("{HASHED}.default");
    let ack = down.send("MeshTimeout", 102, &[], &[&gone, "local.default", "unknown.default"]).await;
    assert_eq!(ack.error_detail, None);
    assert_eq!(world.held(&mesh_timeout::KIND), ["good-1", "local"], "what is the zone's own stays");

    // A type that was never asked for is refused without harm.
    let nack = down.send("NoSuchType", 103, &[], &[]).await;
    assert!(nack.error_detail.is_some());
    assert!(down.send("Mesh", 104, &[], &[]).await.error_detail.is_none());
}

#[tokio::test]
async fn a_zone_comes_back_however_a_stream_ends() {
    let mut world = World::new(true, nothing).await;
    let ends: [fn() -> Option<Status>; 4] = [
        || None,
        || Some(Status::cancelled("zone went offline")),
        || Some(Status::internal("stream failed")),
        || Some(Status::unavailable("shutting down")),
    ];
    for (number, end) in ends.into_iter().enumerate() {
        let name = format!("round-{number}");
        let sent = from_global(&mesh_timeout::KIND, "default", &name, TIMEOUT);
        let (down, up) = world.in_sync(&[mesh(), sent]).await;
        // Each connection begins with the full state: what the one before brought is gone.
        assert_eq!(world.held(&mesh_timeout::KIND), [name]);
        let hold = if number % 2 == 0 {
            if let Some(status) = end() {
                down.outbound.send(Err(status)).await.unwrap();
            }
            drop(down);
            Ok(up)
        } else {
            if let Some(status) = end() {
                up.outbound.send(Err(status)).await.unwrap();
            }
            drop(up);
            Err(down)
        };
        // The other half is still there, and yet the zone starts over.
        let next = world.global.accept().await;
        drop(hold);
        drop(next);
    }
    world.in_sync(&[mesh(), policy()]).await;
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED]);
}

#[tokio::test]
async fn a_global_that_takes_no_pings_is_followed_all_the_same() {
    let mut world = World::new(false, nothing).await;
    let (_down, _up) = world.in_sync(&[mesh(), policy()]).await;
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED]);
    assert!(world.link.status().connected);
}

#[tokio::test]
async fn a_first_state_that_lacks_too_much_is_not_obeyed() {
    let mut world = World::new(true, |zone| {
        let policy = |n| zone.resource(&mesh_timeout::KIND, "default", &format!("p{n}"), Origin::Global);
        (0..30).map(|n| policy(n).with_spec(TIMEOUT)).collect()
    })
    .await;
    let (mut down, up) = world.global.accept().await;
    down.opening(45).await;
    let nack = down.send("MeshTimeout", 1, &[], &[]).await;
    assert!(nack.error_detail.unwrap().message.contains("remove 30 of 30"));
    assert_eq!(world.held(&mesh_timeout::KIND).len(), 30);
    assert!(world.link.status().held_back.is_some());
    // A difference after it is taken; and the next connection is as careful as this one.
    assert!(down.send("MeshTimeout", 2, &[policy()], &["p0.default"]).await.error_detail.is_none());
    assert_eq!(world.held(&mesh_timeout::KIND).len(), 30);
    drop((down, up));
    let (mut down, _up) = world.global.accept().await;
    down.opening(45).await;
    assert!(down.send("MeshTimeout", 1, &[policy()], &[]).await.error_detail.is_some());
    assert_eq!(world.held(&mesh_timeout::KIND).len(), 30);
    drop(down);
    world.link.approve();
    let (_down, _up) = world.in_sync(&[mesh(), policy()]).await;
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED]);
}

/// The resources of a response, as they left.
fn contents(response: &DeltaDiscoveryResponse) -> BTreeMap<String, codec::Item> {
    let kind = registry::by_name(&response.type_url).unwrap();
    let decode = |any: &Any| codec::decode(kind, any).unwrap();
    let items = response.resources.iter().map(|r| (r.name.clone(), decode(r.resource.as_ref().unwrap())));
    items.collect()
}

#[tokio::test]
async fn a_zone_answers_for_what_it_owns() {
    let insight = |generation| {
        let subscription = DiscoverySubscription { generation, ..DiscoverySubscription::default() };
        DataplaneInsight { subscriptions: vec![subscription], ..DataplaneInsight::default() }.encode_to_vec()
    };
    let mut world = World::new(true, |zone| {
        let own = || Origin::Zone(ZONE.into());
        let of = |kind, name| zone.resource(kind, "default", name, own());
        let status: &'static [u8] = br#"{"vips":[{"ip":"10.0.1.1"}]}"#;
        let service = of(&kinds::mesh_service::KIND, "redis-zone-1").with_spec(&br#"{"ports":[]}"#[..]);
        let foreign = zone.resource(&kinds::mesh_service::KIND, "default", "theirs", Origin::Global);
        vec![
            of(&kinds::dataplane_insight::KIND, "dp").with_spec(insight(7)),
            Resource { status: Some(status.into()), ..service },
            foreign.with_spec(&b"{}"[..]),
            of(&mesh_timeout::KIND, "stays").with_spec(TIMEOUT).with_label(labels::KDS_SYNC, "disabled"),
            of(&kinds::secret::SECRET, "own"),
        ]
    })
    .await;
    let (_down, mut up) = world.in_sync(&[mesh()]).await;
    let mut asked: Vec<&str> = order::requested_by_global().iter().map(|kind| kind.name).collect();
    asked.push("TypeOfALaterRelease");
    for type_url in &asked {
        up.ask(ZONE, type_url).await;
    }
    let mut nonces = BTreeSet::new();
    for answer in up.all(&asked).await {
        assert_eq!(answer.control_plane.as_ref().unwrap().identifier, ZONE);
        assert!(answer.system_version_info.is_empty() && answer.removed_resources.is_empty());
        assert!(nonces.insert(answer.nonce.parse::<u64>().unwrap()), "a nonce is used once");
        up.reply(ZONE, &answer, None).await;
        if answer.type_url == "TypeOfALaterRelease" {
            assert!(answer.resources.is_empty());
            continue;
        }
        let contents = contents(&answer);
        let names: Vec<&str> = contents.keys().map(String::as_str).collect();
        match answer.type_url.as_str() {
            "MeshService" => {
                assert_eq!(names, ["redis-zone-1-2v6wfvvcvbc9f55d.default"]);
                let sent = contents.into_values().next().unwrap();
                assert_eq!(&sent.labels[labels::ORIGIN], "zone");
                assert_eq!(&sent.labels[labels::ZONE], ZONE);
                assert_eq!(&sent.labels[labels::DISPLAY_NAME], "redis-zone-1");
                assert_eq!(sent.status.unwrap(), br#"{"vips":[{"ip":"10.0.1.1"}]}"#[..]);
            }
            "DataplaneInsight" => {
                assert_eq!(names.len(), 1);
                assert_eq!(contents.into_values().next().unwrap().spec, insight(0));
            }
            other => assert!(names.is_empty(), "{other}: {names:?}"),
        }
    }

    // A refusal is not argued with, although it asks for everything again; a change is offered.
    let own = world.zone.resource(&mesh_timeout::KIND, "default", "p", Origin::Zone(ZONE.into()));
    world.zone.put(own.clone().with_spec(TIMEOUT)).await;
    let offered = up.next().await;
    up.reply(ZONE, &offered, Some("user error\nit does not fit")).await;
    world.zone.put(own.clone().with_spec(TIMEOUT).with_label("team", "a")).await;
    let again = up.next().await;
    assert_eq!(again.resources.len(), 1);
    assert_ne!(again.resources[0].version, offered.resources[0].version);
    up.reply(ZONE, &again, None).await;
    world.zone.delete(own.key).await;
    let removal = up.next().await;
    assert_eq!(removal.removed_resources, [again.resources[0].name.clone()]);
    assert!(removal.resources.is_empty());
}

#[tokio::test]
async fn a_global_that_names_nothing_gets_all_but_what_it_refuses() {
    const OWN: usize = 200;
    let policy = |zone: &Plane, n: usize| {
        zone.resource(&mesh_timeout::KIND, "default", &format!("p{n:03}"), Origin::Zone(ZONE.into()))
    };
    let own = |zone: &Plane| (0..OWN).map(|n| policy(zone, n).with_spec(TIMEOUT)).collect();
    let mut world = World::new(true, own).await;
    let (_down, mut up) = world.in_sync(&[mesh()]).await;
    up.ask(ZONE, "MeshTimeout").await;
    let (mut held, mut responses) = (BTreeSet::new(), 0);
    while held.len() < OWN - 1 {
        responses += 1;
        assert!(responses <= 1 + 2 * 8, "{} of {OWN} have arrived", held.len());
        let answer = up.next().await;
        let names: Vec<String> = answer.resources.iter().map(|item| item.name.clone()).collect();
        let is_bad = names.iter().any(|name| name.starts_with("p123"));
        if !is_bad {
            held.extend(names);
        }
        up.reply(ZONE, &answer, is_bad.then_some("user error\nit does not fit")).await;
    }
}

/// When an older stream of a zone ends late, a global of Kuma drops who waits on the newer one: it says nothing more
/// there, though it answers pings, until it hears something.
#[tokio::test]
async fn a_global_that_forgot_who_waits_is_reminded() {
    let often = Duration::from_millis(50);
    let settings = ZoneKdsSettings { remind_every: often, ..ZoneKdsSettings::new(ZONE) };
    let mut world = World::with_settings(true, nothing, settings).await;
    let (mut down, _up) = world.global.accept().await;
    let opening = down.opening(order::requested_by_zone().len()).await;
    for (nonce, request) in (1..).zip(&opening) {
        down.tell(&request.type_url, nonce, &[], &[]).await;
    }
    let mut heard: BTreeMap<String, Vec<String>> = BTreeMap::new();
    while heard.len() < opening.len() || heard.values().any(|nonces| nonces.len() < 2) {
        let request = down.next().await;
        assert!(request.error_detail.is_none() && request.resource_names_subscribe.is_empty());
        assert_eq!(request.node.as_ref().map(|node| &*node.id), Some(ZONE));
        heard.entry(request.type_url).or_default().push(request.response_nonce);
    }
    assert!(
        heard.values().all(|nonces| nonces[0] == nonces[1]),
        "it repeats what it has acknowledged: {heard:?}"
    );
    // What it is told then, it takes.
    let update = [policy()];
    down.tell("MeshTimeout", 100, &update, &[]).await;
    loop {
        let answer = down.next().await;
        if answer.response_nonce == "100" {
            break assert_eq!(answer.error_detail, None);
        }
    }
    assert_eq!(world.held(&mesh_timeout::KIND), [HASHED]);
}
