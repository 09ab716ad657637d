//! Answers: refusals, stale ones, and requests that are not what they should be.

use tonic::Code;

use super::{
    super::harness::Zone,
    plane::{CDS, Door, EDS, LDS, Plane, RDS, SDS, Saying, everywhere},
};
use crate::ads::tests::client::Protocol;

#[tokio::test]
async fn s1_what_is_refused_comes_again_when_it_changes() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        for (kind, type_url) in [CDS, LDS, RDS, EDS, SDS].into_iter().enumerate() {
            let mut plane = Plane::having(&zone, &format!("node-{at}-{kind}"), &[(type_url, "A", "1")]);
            let mut peer = plane.peer(protocol, door).await;
            peer.want(type_url, &["A"]).await;
            let refused = peer.refuse(type_url).await;
            assert_eq!(refused.all(), "A@1");
            for _ in 0..9 {
                peer.say(peer.answer(type_url, Some("still no"))).await;
            }
            plane.heard(&peer).await;
            plane.set(&[(type_url, "A", "2")], &[]);
            let next = peer.take(type_url).await;
            assert_eq!(next.all(), "A@2", "{protocol:?} {door:?} {type_url}: and nothing before");
        }
    }
    zone.stop().await;
}

#[tokio::test]
async fn s2_a_late_answer_is_not_answered() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        peer.want(CDS, &["A"]).await;
        peer.take(CDS).await;
        let late = peer.answer(CDS, None);
        plane.set(&[(CDS, "A", "2")], &[]);
        peer.hear(CDS).await;
        peer.say(late).await;
        peer.say(peer.answer(CDS, None)).await;
        plane.heard(&peer).await;
        plane.set(&[(CDS, "A", "3")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@3");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s3_sotw_a_new_name_beside_an_old_nonce_arrives() {
    let zone = Zone::start().await;
    for door in [Door::Aggregated, Door::Alone] {
        let name = format!("node-{door:?}").to_lowercase();
        let mut plane = Plane::having(&zone, &name, &[(EDS, "A", "1"), (EDS, "B", "1")]);
        let mut peer = plane.peer(Protocol::Sotw, door).await;
        let old = peer.begin(EDS, &["A"]).await.nonce;
        plane.set(&[(EDS, "A", "2")], &[]);
        peer.take(EDS).await;
        let saying = Saying { nonce: old, ..peer.wish(EDS, &["A", "B"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(EDS).await.all(), "B@1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s4_delta_a_new_name_beside_an_old_nonce_arrives() {
    let zone = Zone::start().await;
    for door in [Door::Aggregated, Door::Alone] {
        let name = format!("node-{door:?}").to_lowercase();
        let plane = Plane::having(&zone, &name, &[(EDS, "A", "1"), (EDS, "B", "1")]);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        peer.begin(EDS, &["A"]).await;
        let saying = Saying { nonce: "of long ago".to_owned(), ..peer.wish(EDS, &["A", "B"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(EDS).await.all(), "B@1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s12_a_first_request_may_carry_what_belongs_to_another_stream() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        for (case, (nonce, error)) in
            [("7", None), ("1", Some("of then")), ("", Some("of then"))].iter().enumerate()
        {
            let plane = Plane::having(&zone, &format!("node-{at}-{case}"), &[(CDS, "A", "1")]);
            let mut peer = plane.peer(protocol, door).await;
            let (nonce, error) = ((*nonce).to_owned(), error.map(str::to_owned));
            let saying = Saying { nonce, error, ..peer.wish(CDS, &["A"]) };
            peer.say(saying).await;
            assert_eq!(peer.take(CDS).await.all(), "A@1");
        }
    }
    zone.stop().await;
}

#[tokio::test]
async fn s13_the_node_may_be_left_out_and_stays_the_same() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let plane = Plane::having(&zone, &format!("node-{at}"), &[(EDS, "A", "1"), (EDS, "B", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        peer.begin(EDS, &["A"]).await;
        let saying = Saying { node: Some(peer.node.clone()), ..peer.wish(EDS, &["A", "B"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(EDS).await.all(), "B@1");
        let mut other = peer.node.clone();
        other.id = "default.other".to_owned();
        let saying = Saying { node: Some(other), ..peer.wish(EDS, &["A", "B"]) };
        peer.say(saying).await;
        let ended = peer.next(EDS).await.unwrap_err();
        assert_eq!(ended.code(), Code::InvalidArgument, "{ended:?}");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s22_b27_refused_listeners_hold_up_no_clusters() {
    let zone = Zone::start().await;
    for (at, protocol) in [Protocol::Sotw, Protocol::Delta].into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "c", "1"), (LDS, "l", "1")]);
        let mut peer = plane.peer(protocol, Door::Aggregated).await;
        peer.begin(CDS, &[]).await;
        peer.want(LDS, &[]).await;
        peer.refuse(LDS).await;
        plane.heard(&peer).await;
        for generation in ["2", "3"] {
            plane.set(&[(CDS, "c", generation)], &[]);
            assert_eq!(peer.take(CDS).await.all(), format!("c@{generation}"));
        }
    }
    zone.stop().await;
}
