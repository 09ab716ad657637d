//! KDS v1, both directions over one stream: zones of Kuma before 2.9 under our global, and our zone under such a global.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use common::{
    kds::{metadata::Peer, multiplex, order},
    model::{Resource, ResourceKey, kinds, labels},
    policy::mesh_timeout,
    proto::{
        envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse},
        kuma::mesh::v1alpha1::{Message, message::Value as Said},
    },
    rest::ZoneStatusSource,
};
use global::kds::GlobalKdsSettings;
use tonic::Code;
use zone::kds::ZoneKdsSettings;

use crate::{
    kumas_global::{Both, KumasGlobal},
    plane::{Plane, store},
    scripted::{Multiplexed, Scripted, item},
    sockets::TIMEOUT,
    world::{DATAPLANE, World},
};

async fn world() -> World {
    World::with(GlobalKdsSettings { v1: true, ..Plane::settings() }).await
}

/// Display names of what a state holds, sorted.
fn names(response: &DiscoveryResponse) -> Vec<String> {
    let named = response.resources.iter().map(|any| {
        let key = common::kds::codec::named(&mesh_timeout::KIND, any).unwrap();
        key.name.rsplit_once('-').map_or(key.name.to_string(), |(name, _)| name.to_owned())
    });
    let mut names: Vec<String> = named.collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_zone_of_kuma_before_2_9_gets_each_type_whole_again_with_every_change() {
    let world = world().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut peer = zone.multiplexed().await.unwrap();
    peer.ask("Mesh").await;
    peer.ask("MeshTimeout").await;
    let mut empty = String::new();
    for nonce in ["1", "2"] {
        let response = peer.response().await;
        assert_eq!(response.nonce, nonce);
        assert_eq!(response.control_plane.clone().unwrap().identifier, "global");
        assert!(!response.version_info.is_empty(), "who has none takes it for nothing new");
        assert_eq!(response.resources.len(), usize::from(response.type_url == "Mesh"));
        if response.type_url == "MeshTimeout" {
            empty.clone_from(&response.version_info);
        }
        peer.reply(&response, None).await;
    }

    world.global.put(world.policy("p")).await;
    let offered = peer.response().await;
    assert_eq!(names(&offered), ["p"]);
    peer.reply(&offered, Some((&empty, "it does not fit here"))).await;
    world.note("zone-1", &["the zone refused MeshTimeout", "it does not fit here"]).await;
    world.global.put(world.policy("q")).await;
    let both = peer.response().await;
    assert_eq!(names(&both), ["p", "q"]);
    assert_ne!(both.version_info, offered.version_info);
    peer.reply(&both, None).await;
    world.global.delete(world.policy("p").key).await;
    let left = peer.response().await;
    assert_eq!(names(&left), ["q"], "what is gone is not in it");
    peer.reply(&left, None).await;

    let in_sync = async {
        loop {
            let status = world.kds.zone_status("zone-1", &world.global.index.current()).unwrap();
            let is_refused = status.notes.iter().any(|note| note.contains("refused"));
            if !is_refused && status.down.lag == 0 && status.down.acked > 0 {
                return status;
            }
            tokio::task::yield_now().await;
        }
    };
    let status = tokio::time::timeout(Duration::from_secs(10), in_sync).await.expect("the zone in sync");
    assert_eq!(status.protocol.as_deref(), Some(multiplex::PROTOCOL));
}

#[tokio::test]
async fn a_zone_of_kuma_before_2_9_is_asked_for_states_and_told_what_is_wrong_in_them() {
    let world = world().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut peer = zone.multiplexed().await.unwrap();
    let mut asked = BTreeSet::new();
    for _ in order::requested_by_global() {
        let request = peer.request(|request| request.response_nonce.is_empty()).await;
        let node = request.node.unwrap();
        assert_eq!(node.id, "zone-1");
        assert!(!Peer::read(&node).features.has(common::kds::features::RESUME));
        assert!(request.resource_names.is_empty() && request.version_info.is_empty());
        asked.insert(request.type_url);
    }
    assert_eq!(asked.len(), 31);

    let dataplane = |name: &str, spec: &str| {
        let label = name.to_owned();
        world.of_zone(&kinds::dataplane::KIND, name, spec).with_label(labels::DISPLAY_NAME, &label)
    };
    let (good, bad) = (dataplane("good", DATAPLANE), dataplane("bad", r#"{"networking":{}}"#));
    let refused = peer.state("Dataplane", 1, &[good.clone(), bad]).await;
    let error = refused.error_detail.unwrap().message;
    assert!(error.contains("bad-") && !error.contains("good-"), "{error}");
    assert_eq!(refused.version_info, "", "nothing was taken as a whole before");
    let held = |count: usize| {
        move |index: &common::store::index::Index| index.count(&kinds::dataplane::KIND) == count
    };
    world.global.until("the good one", held(1)).await;

    let fixed = dataplane("bad", DATAPLANE);
    let taken = peer.state("Dataplane", 2, &[good, fixed.clone()]).await;
    assert_eq!((taken.error_detail, taken.version_info.as_str()), (None, "version-2"));
    world.global.until("both", held(2)).await;
    let taken = peer.state("Dataplane", 3, &[fixed]).await;
    assert_eq!(taken.error_detail, None);
    world.global.until("the one that is left", held(1)).await;

    // It says it in one word when it comes again, and what it lacks by then is gone.
    let again = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut newer = again.multiplexed().await.unwrap();
    assert_eq!(peer.end().await.unwrap().code(), Code::Cancelled);
    assert_eq!(newer.state("Dataplane", 1, &[]).await.error_detail, None);
    world.global.until("nothing", held(0)).await;
}

#[tokio::test]
async fn kds_v1_is_unknown_unless_it_is_switched_on() {
    let world = World::new().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let refused = zone.multiplexed().await.err().unwrap();
    assert_eq!(refused.code(), Code::Unimplemented);
    assert!(refused.message().contains("multizone.global.kds.v1.enabled"), "{refused}");
}

#[tokio::test]
async fn a_message_of_the_interface_before_is_refused_with_what_to_say() {
    let world = world().await;
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut peer = zone.multiplexed().await.unwrap();
    peer.messages.send(Message { value: None }).await.unwrap();
    let end = peer.end().await.unwrap();
    assert_eq!(end.code(), Code::InvalidArgument);
    assert!(end.message().contains("kds-version: v3"), "{end}");
}

#[tokio::test]
async fn a_type_that_does_not_fit_into_one_message_is_held_back_alone() {
    let settings = GlobalKdsSettings { v1: true, max_message: 100_000, ..Plane::settings() };
    let world = World::with(settings).await;
    for name in ["a", "b", "c"] {
        let large = world.policy(name).with_label("large", &"x".repeat(40_000));
        world.global.put(large).await;
    }
    let zone = Scripted::like_kumas(&world.dial, "zone-1").await;
    let mut peer: Multiplexed = zone.multiplexed().await.unwrap();
    peer.ask("MeshTimeout").await;
    peer.ask("Mesh").await;
    let mesh = peer.response().await;
    assert_eq!(mesh.type_url, "Mesh");
    peer.reply(&mesh, None).await;
    world.note("zone-1", &["the zone does not get some MeshTimeout", "all 3 of them have"]).await;
    world.global.delete(world.policy("b").key).await;
    let rest = peer.response().await;
    assert_eq!(names(&rest), ["a", "c"]);
    peer.reply(&rest, None).await;
    let told = async {
        while world.notes("zone-1").iter().any(|note| note.contains("does not get")) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), told).await.expect("nothing left to note");
}

impl Both {
    async fn say(&self, value: Said) {
        self.outbound.send(Ok(Message { value: Some(value) })).await.unwrap();
    }

    async fn heard(&mut self) -> Said {
        let heard = tokio::time::timeout(Duration::from_secs(10), self.inbound.message()).await;
        heard.expect("a message in time").unwrap().unwrap().value.unwrap()
    }

    /// The next request that is so.
    async fn request(&mut self, is: impl Fn(&DiscoveryRequest) -> bool) -> DiscoveryRequest {
        loop {
            match self.heard().await {
                Said::Request(request) if is(&request) => return request,
                _ => {}
            }
        }
    }

    /// Sends all policies there are under this number; what the zone says to that.
    async fn policies(&mut self, nonce: &str, policies: &[Resource]) -> DiscoveryRequest {
        let response = DiscoveryResponse {
            version_info: format!("version-{nonce}"),
            resources: policies.iter().filter_map(|policy| item(policy).resource).collect(),
            type_url: "MeshTimeout".to_owned(),
            nonce: nonce.to_owned(),
            ..DiscoveryResponse::default()
        };
        self.say(Said::Response(response)).await;
        self.request(|request| request.response_nonce == nonce).await
    }
}

#[tokio::test]
async fn our_zone_follows_a_global_that_speaks_nothing_but_kds_v1() {
    // It does not know of pings either.
    let mut global = KumasGlobal::start(false).await;
    let mut zone = Plane::start(store(2), "zone-1", 2).await;
    let dataplane = |name: &str| {
        let spec = serde_json::from_str(DATAPLANE).unwrap();
        let spec = common::model::transcode::from_json(&kinds::dataplane::KIND, &spec).unwrap();
        let key = ResourceKey::new(&kinds::dataplane::KIND, "default", name);
        let origin = common::model::Origin::Zone("zone-1".into());
        Resource { origin, ..Resource::new(key, chrono::DateTime::UNIX_EPOCH) }.with_spec(spec)
    };
    zone.put(dataplane("a")).await;
    let backoff = (Duration::from_millis(10), Duration::from_millis(50));
    let settings = ZoneKdsSettings { v1: true, backoff, ..ZoneKdsSettings::new("zone-1") };
    let link = zone.follow(settings, Arc::clone(&global.dial));
    let mut both = global.both.recv().await.unwrap();
    let features: Vec<_> = both.headers.get_all("features").iter().collect();
    assert!(!features.iter().any(|name| *name == common::kds::features::RESUME), "{features:?}");

    let expected: BTreeSet<&str> = order::requested_by_zone().iter().map(|kind| kind.name).collect();
    let mut asked = BTreeSet::new();
    for _ in &expected {
        let request = both.request(|_| true).await;
        assert!(request.resource_names.is_empty() && request.node.unwrap().metadata.is_some());
        asked.insert(request.type_url);
    }
    assert_eq!(asked.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    assert_eq!(link.status().protocol, Some(multiplex::PROTOCOL));

    let policy = |name: &str| {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
        let policy = Resource::new(key, chrono::DateTime::UNIX_EPOCH).with_spec(TIMEOUT);
        policy.with_label(labels::ORIGIN, labels::ORIGIN_GLOBAL)
    };
    let taken = both.policies("1", &[policy("p"), policy("q")]).await;
    assert_eq!((taken.error_detail, taken.version_info.as_str()), (None, "version-1"));
    assert_eq!(zone.index.current().count(&mesh_timeout::KIND), 2);
    let refused = both.policies("2", &[policy("p"), policy("q").with_spec(&b"[]"[..])]).await;
    assert!(refused.error_detail.unwrap().message.contains("q.default"));
    assert_eq!(refused.version_info, "version-1", "it goes on with that");
    assert_eq!(zone.index.current().count(&mesh_timeout::KIND), 2);
    let taken = both.policies("3", &[policy("p")]).await;
    assert_eq!((taken.error_detail, taken.version_info.as_str()), (None, "version-3"));
    assert_eq!(zone.index.current().count(&mesh_timeout::KIND), 1);

    // And global asks for what the zone has.
    let peer =
        Peer { features: [common::kds::features::HASH_SUFFIX].into_iter().collect(), ..Peer::default() };
    let ask = DiscoveryRequest {
        node: Some(peer.node("zone-1")),
        type_url: "Dataplane".to_owned(),
        ..DiscoveryRequest::default()
    };
    both.say(Said::Request(ask.clone())).await;
    let mut version = String::new();
    for (count, step) in [(1, None), (2, Some("b"))] {
        if let Some(name) = step {
            zone.put(dataplane(name)).await;
        }
        let Said::Response(state) = both.heard().await else { panic!("a state") };
        assert_eq!((state.type_url.as_str(), state.resources.len()), ("Dataplane", count));
        assert_eq!(state.control_plane.clone().unwrap().identifier, "zone-1");
        assert_ne!(state.version_info, version);
        version.clone_from(&state.version_info);
        let (version_info, response_nonce) = (state.version_info, state.nonce);
        both.say(Said::Request(DiscoveryRequest { version_info, response_nonce, ..ask.clone() })).await;
    }

    // Whatever ends it, it comes back, and is told all of it again.
    drop(both);
    let mut both = global.both.recv().await.unwrap();
    let taken = both.policies("1", &[policy("r")]).await;
    assert_eq!(taken.error_detail, None);
    let left: Vec<String> =
        zone.index.current().list(&mesh_timeout::KIND).map(|policy| policy.name().to_owned()).collect();
    assert_eq!(left, ["r"]);
}
