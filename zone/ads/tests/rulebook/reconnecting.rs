//! Peers that come back, to the same replica or another, and several streams of one node.

use super::{
    super::{
        client::{BOTH, Client, Protocol, Who},
        harness::{Zone, dataplane},
    },
    plane::{CDS, Door, EDS, LDS, Plane, Saying, everywhere},
};

#[tokio::test]
async fn s10_b30_delta_who_comes_back_is_told_the_difference() {
    let zone = Zone::start().await;
    for door in [Door::Aggregated, Door::Alone] {
        let before = [(CDS, "altered", "1"), (CDS, "gone", "1"), (CDS, "same", "1")];
        let mut plane = Plane::having(&zone, "node", &before);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        let held = peer.begin(CDS, &["*"]).await;
        let names = held.resources.iter().filter_map(|of| of.split('@').next()).map(str::to_owned);
        let held = names.zip(held.versions).collect();
        peer.hang_up();
        plane.set(&[(CDS, "altered", "2")], &[(CDS, "gone")]);
        let saying = Saying { held, ..peer.wish(CDS, &["*"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(CDS).await.all(), "altered@2 -gone");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s11_sotw_who_comes_back_at_the_current_version_hears_changes() {
    let zone = Zone::start().await;
    for door in [Door::Aggregated, Door::Alone] {
        let mut plane = Plane::having(&zone, "node", &[(CDS, "A", "1")]);
        let mut peer = plane.peer(Protocol::Sotw, door).await;
        let version = peer.begin(CDS, &[]).await.version;
        peer.hang_up();
        let saying = Saying { version: version.clone(), ..peer.wish(CDS, &[]) };
        peer.say(saying).await;
        let again = peer.take(CDS).await;
        assert_eq!((again.all().as_str(), again.version), ("A@1", version));
        plane.set(&[(CDS, "A", "2")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@2");
        peer.hang_up();
    }
    zone.stop().await;
}

#[tokio::test]
async fn s29_b22_b32_replicas_give_the_same_versions_and_other_names_of_themselves() {
    let resources = [(CDS, "A", "1"), (CDS, "B", "1")];
    for (protocol, door) in everywhere() {
        let (one, two) = (Zone::start_as("one", |_| {}).await, Zone::start_as("two", |_| {}).await);
        let (here, there) =
            (Plane::having(&one, "node", &resources), Plane::having(&two, "node", &resources));
        let (mut first, mut second) = (here.peer(protocol, door).await, there.peer(protocol, door).await);
        let (told, again) = (first.begin(CDS, &[]).await, second.begin(CDS, &[]).await);
        assert_eq!(told.all(), again.all());
        assert_eq!(told.versions, again.versions);
        assert!(protocol == Protocol::Delta || told.version == again.version);
        assert!(told.identifier.contains("one") && again.identifier.contains("two"), "{}", told.identifier);
        one.stop().await;
        two.stop().await;
    }
}

/// What another process counted as its first version is not what this one counts so.
#[tokio::test]
async fn s30_b15_after_a_restart_with_other_content_all_of_it_comes() {
    for (protocol, door) in everywhere() {
        let (one, two) = (Zone::start().await, Zone::start().await);
        let before = Plane::having(&one, "node", &[(CDS, "A", "1"), (CDS, "gone", "1")]);
        let after = Plane::having(&two, "node", &[(CDS, "A", "2")]);
        let mut old = before.peer(protocol, door).await;
        let told = old.begin(CDS, &[]).await;
        let mut new = after.peer(protocol, door).await;
        let held = ["A", "gone"].map(str::to_owned).into_iter().zip(told.versions).collect();
        let saying = Saying { held, version: told.version, ..new.wish(CDS, &[]) };
        new.say(saying).await;
        let all = if protocol == Protocol::Delta { "A@2 -gone" } else { "A@2" };
        assert_eq!(new.take(CDS).await.all(), all);
        one.stop().await;
        two.stop().await;
    }
}

#[tokio::test]
async fn s31_b23_of_two_streams_of_a_node_the_newer_outlives_the_older() {
    for protocol in BOTH {
        let zone = Zone::start().await;
        zone.put(&dataplane("web-1", "127.0.0.2", "web", &[])).await;
        let token = zone.token_for("web-1");
        let who = || Who::known("default.web-1", &token);
        let mut older = Client::begin(&zone, protocol, who()).await;
        older.take(CDS).await;
        let mut newer = Client::begin(&zone, protocol, who()).await;
        newer.take(CDS).await;
        newer.take(LDS).await;
        drop(older);
        let insight = zone
            .insight("web-1", |insight| {
                insight.subscriptions.iter().filter(|one| one.disconnect_time.is_some()).count() == 1
            })
            .await;
        assert!(insight.subscriptions.iter().any(|one| one.disconnect_time.is_none()), "it is online");
        zone.put(&dataplane("web-1", "127.0.0.3", "web", &[])).await;
        newer.take(LDS).await;
        zone.stop().await;
    }
}

#[tokio::test]
async fn s32_b19_nothing_is_something_else_than_not_known_yet() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::new(&zone, &format!("node-{at}"));
        let mut peer = plane.peer(protocol, door).await;
        peer.want(CDS, &[]).await;
        plane.heard(&peer).await;
        // Nothing was said until something was known.
        plane.set(&[], &[]);
        assert_eq!(peer.take(CDS).await.all(), "", "explicitly nothing");
        plane.set(&[(CDS, "A", "1")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@1");
    }
    zone.stop().await;
}

/// Removed, and asked for by a peer that comes back in the middle of warming.
#[tokio::test]
async fn s19_b18_the_first_request_may_be_for_endpoints() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1"), (EDS, "A", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        assert_eq!(peer.begin(EDS, &["A"]).await.all(), "A@1");
    }
    zone.stop().await;
}
