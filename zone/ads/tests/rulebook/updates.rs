//! H1-H6: updates of what a peer of the incremental variant wants.

use super::{
    super::{client::Protocol, harness::Zone},
    plane::{CDS, Door, EDS, LDS, Plane, RDS},
};

const TYPES: [&str; 4] = [CDS, LDS, RDS, EDS];
const DOORS: [Door; 2] = [Door::Aggregated, Door::Alone];

/// Runs a scenario with each type through each door, each time on a node of its own.
macro_rules! with_each_type {
    (|$plane:ident, $peer:ident, $type_url:ident| $body:block) => {{
        let zone = Zone::start().await;
        for (at, $type_url) in TYPES.into_iter().enumerate() {
            for door in DOORS {
                let mut $plane = Plane::new(&zone, &format!("node-{at}-{door:?}").to_lowercase());
                $plane.set(&[($type_url, "r1", "v1"), ($type_url, "r2", "v1"), ($type_url, "r3", "v1")], &[]);
                let mut $peer = $plane.peer(Protocol::Delta, door).await;
                $body
            }
        }
        zone.stop().await;
    }};
}

#[tokio::test]
async fn h1_delta_one_name_and_later_another() {
    with_each_type!(|plane, peer, type_url| {
        assert_eq!(peer.begin(type_url, &["r1"]).await.all(), "r1@v1");
        assert_eq!(peer.begin(type_url, &["r1", "r2"]).await.all(), "r2@v1");
        plane.set(&[], &[]);
    });
}

#[tokio::test]
async fn h2_delta_an_update_of_one_of_three_is_that_one() {
    with_each_type!(|plane, peer, type_url| {
        let first = peer.begin(type_url, &["r1", "r2", "r3"]).await;
        plane.set(&[(type_url, "r2", "v2")], &[]);
        let second = peer.take(type_url).await;
        assert_eq!(second.all(), "r2@v2");
        assert!(second.nonce != first.nonce && second.versions[0] != first.versions[1]);
    });
}

#[tokio::test]
async fn h3_delta_a_missing_name_arrives_when_it_is_made() {
    with_each_type!(|plane, peer, type_url| {
        let first = peer.begin(type_url, &["r1", "later"]).await;
        assert_eq!(first.all(), "r1@v1 -later");
        plane.set(&[(type_url, "later", "v1")], &[]);
        let second = peer.take(type_url).await;
        assert_eq!(second.all(), "later@v1");
        assert_ne!(second.nonce, first.nonce);
    });
}

#[tokio::test]
async fn h4_delta_what_is_removed_is_told_and_comes_back_alone() {
    with_each_type!(|plane, peer, type_url| {
        peer.begin(type_url, &["r1", "r2"]).await;
        plane.set(&[], &[(type_url, "r1")]);
        assert_eq!(peer.take(type_url).await.all(), "-r1");
        plane.set(&[(type_url, "r1", "v2")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "r1@v2");
    });
}

#[tokio::test]
async fn h5_delta_what_is_given_up_is_not_updated() {
    with_each_type!(|plane, peer, type_url| {
        peer.begin(type_url, &["r1", "r2", "r3"]).await;
        for (rest, generation) in [(&["r2", "r3"][..], "v2"), (&["r3"], "v3")] {
            peer.want(type_url, rest).await;
            plane.heard(&peer).await;
            plane.set(&["r1", "r2", "r3"].map(|name| (type_url, name, generation)), &[]);
            let expected: Vec<String> = rest.iter().map(|name| format!("{name}@{generation}")).collect();
            assert_eq!(peer.take(type_url).await.all(), expected.join(" "));
        }
    });
}

#[tokio::test]
async fn h6_delta_types_of_one_stream_are_updated_independently() {
    let zone = Zone::start().await;
    for (first, second) in [(CDS, LDS), (LDS, CDS), (RDS, EDS), (EDS, RDS)] {
        let name = format!("node-{}-{}", first.len(), second.len());
        let both = [(first, "r", "v1"), (second, "r", "v1")];
        let mut plane = Plane::having(&zone, &name, &both);
        let mut peer = plane.peer(Protocol::Delta, Door::Aggregated).await;
        peer.begin(first, &["r"]).await;
        peer.begin(second, &["r"]).await;
        plane.set(&[(second, "r", "v2")], &[]);
        assert_eq!(peer.take(second).await.all(), "r@v2");
        plane.set(&[(first, "r", "v2")], &[]);
        assert_eq!(peer.take(first).await.all(), "r@v2");
        // Warmed again, the cluster gets its endpoints again.
        peer.hang_up();
        plane.streams(0).await;
    }
    zone.stop().await;
}
