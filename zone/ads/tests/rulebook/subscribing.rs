//! H7-H18 and what else there is about names: who is told what, and who is told nothing.

use super::{
    super::{client::Protocol, harness::Zone},
    plane::{CDS, Door, EDS, LDS, Plane, RDS, SDS, Saying, everywhere},
};

const DOORS: [Door; 2] = [Door::Aggregated, Door::Alone];

/// Runs a scenario of the state-of-the-world variant with each of these types through each door.
macro_rules! sotw {
    ($types:expr, |$plane:ident, $peer:ident, $type_url:ident| $body:block) => {{
        let zone = Zone::start().await;
        for (at, $type_url) in $types.into_iter().enumerate() {
            for door in DOORS {
                let mut $plane = Plane::new(&zone, &format!("node-{at}-{door:?}").to_lowercase());
                $plane.set(&["A", "B", "C"].map(|name| ($type_url, name, "v1")), &[]);
                let mut $peer = $plane.peer(Protocol::Sotw, door).await;
                $body
                $plane.set(&[], &[]);
            }
        }
        zone.stop().await;
    }};
}

#[tokio::test]
async fn h7_sotw_the_wildcard_is_all_in_one_response() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        assert_eq!(peer.begin(type_url, &[]).await.all(), "A@v1 B@v1 C@v1");
        peer.hang_up();
        assert_eq!(peer.begin(type_url, &["*"]).await.all(), "A@v1 B@v1 C@v1");
    });
}

#[tokio::test]
async fn h8_sotw_an_update_under_the_wildcard_is_all_again() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        let first = peer.begin(type_url, &[]).await;
        plane.set(&[(type_url, "B", "v2")], &[]);
        let second = peer.take(type_url).await;
        assert_eq!(second.all(), "A@v1 B@v2 C@v1");
        assert_ne!(first.version, second.version);
        // In one response: the next one is about the next change.
        plane.set(&[(type_url, "C", "v2")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v1 B@v2 C@v2");
    });
}

#[tokio::test]
async fn h9_sotw_an_addition_under_the_wildcard_is_all_with_it() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        peer.begin(type_url, &[]).await;
        plane.set(&[(type_url, "D", "v1")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v1 B@v1 C@v1 D@v1");
    });
}

#[tokio::test]
async fn h10_sotw_a_subset_is_the_subset() {
    sotw!([CDS, LDS, RDS, EDS, SDS], |plane, peer, type_url| {
        assert_eq!(peer.begin(type_url, &["A", "C"]).await.all(), "A@v1 C@v1");
    });
}

#[tokio::test]
async fn h11_sotw_an_update_of_a_subset_of_clusters_or_listeners_is_the_whole_subset() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        peer.begin(type_url, &["A", "C"]).await;
        plane.set(&[(type_url, "A", "v2"), (type_url, "B", "v2")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v2 C@v1");
        plane.set(&[(type_url, "C", "v2")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v2 C@v2");
    });
}

#[tokio::test]
async fn h12_sotw_of_routes_and_endpoints_the_changed_one_suffices() {
    sotw!([RDS, EDS], |plane, peer, type_url| {
        peer.begin(type_url, &["A", "C"]).await;
        plane.set(&[(type_url, "A", "v2"), (type_url, "B", "v2")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v2");
    });
}

#[tokio::test]
async fn h13_sotw_a_missing_cluster_or_listener_comes_with_its_subset() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        assert_eq!(peer.begin(type_url, &["A", "later"]).await.all(), "A@v1");
        plane.set(&[(type_url, "later", "v1")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@v1 later@v1");
    });
}

#[tokio::test]
async fn h14_sotw_missing_routes_and_endpoints_come_alone() {
    sotw!([RDS, EDS], |plane, peer, type_url| {
        // Of endpoints it is said at once that there are none.
        let first = peer.begin(type_url, &["A", "later"]).await;
        assert_eq!(first.all(), if type_url == EDS { "A@v1 later" } else { "A@v1" });
        plane.set(&[(type_url, "later", "v1")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "later@v1");
    });
}

#[tokio::test]
async fn h15_sotw_several_types_on_one_stream() {
    let zone = Zone::start().await;
    for (first, second) in [(CDS, LDS), (RDS, EDS)] {
        let name = format!("node-{}", first.len());
        let plane = Plane::having(&zone, &name, &[(first, "A", "v1"), (second, "B", "v1")]);
        let mut peer = plane.peer(Protocol::Sotw, Door::Aggregated).await;
        assert_eq!(peer.begin(first, &["A"]).await.all(), "A@v1");
        assert_eq!(peer.begin(second, &["B"]).await.all(), "B@v1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn h16_sotw_clusters_and_listeners_narrowed_to_one() {
    sotw!([CDS, LDS], |plane, peer, type_url| {
        peer.begin(type_url, &["A", "B", "C"]).await;
        peer.want(type_url, &["B"]).await;
        plane.heard(&peer).await;
        plane.set(&["A", "B"].map(|name| (type_url, name, "v2")), &[]);
        assert_eq!(peer.take(type_url).await.all(), "B@v2");
    });
}

#[tokio::test]
async fn h17_sotw_routes_and_endpoints_narrowed_to_one() {
    sotw!([RDS, EDS], |plane, peer, type_url| {
        peer.begin(type_url, &["A", "B", "C"]).await;
        peer.want(type_url, &["B"]).await;
        plane.heard(&peer).await;
        plane.set(&["A", "B", "C"].map(|name| (type_url, name, "v2")), &[]);
        assert_eq!(peer.take(type_url).await.all(), "B@v2");
    });
}

/// Some clients list an empty name where others list none.
#[tokio::test]
async fn h18_sotw_who_wants_nothing_any_more_hears_nothing() {
    for last in [&[][..], &[""]] {
        sotw!([CDS, LDS, RDS, EDS], |plane, peer, type_url| {
            peer.begin(type_url, &["A", "B"]).await;
            peer.want(type_url, last).await;
            plane.heard(&peer).await;
            plane.set(&["A", "B"].map(|name| (type_url, name, "v2")), &[]);
            // What comes next is the answer to the next wish.
            assert_eq!(peer.begin(type_url, &["C"]).await.all(), "C@v1");
        });
    }
}

#[tokio::test]
async fn s5_sotw_what_no_names_mean() {
    sotw!([CDS], |plane, peer, type_url| {
        plane.set(&[], &[(type_url, "C")]);
        assert_eq!(peer.begin(type_url, &[]).await.all(), "A@v1 B@v1");
        let steps = [(&["*"][..], "A@2 B@2"), (&["*", "A"], "A@3 B@3"), (&["A"], "A@4")];
        for (generation, (names, told)) in steps.into_iter().enumerate() {
            peer.want(type_url, names).await;
            plane.heard(&peer).await;
            if names.len() == 2 {
                assert_eq!(peer.take(type_url).await.all(), "A@2 B@2", "asked for by name");
                plane.heard(&peer).await;
            }
            let generation = (generation + 2).to_string();
            plane.set(&["A", "B"].map(|name| (type_url, name, &*generation)), &[]);
            assert_eq!(peer.take(type_url).await.all(), told, "{names:?}");
        }
        peer.want(type_url, &[]).await;
        plane.heard(&peer).await;
        plane.set(&["A", "B"].map(|name| (type_url, name, "9")), &[]);
        assert_eq!(peer.begin(type_url, &["B"]).await.all(), "B@9");
    });
}

#[tokio::test]
async fn s6_delta_what_no_names_mean() {
    let zone = Zone::start().await;
    for door in DOORS {
        let mut plane = Plane::having(&zone, "node", &[(CDS, "A", "1"), (CDS, "B", "1")]);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        assert_eq!(peer.begin(CDS, &[]).await.all(), "A@1 B@1");
        let say = |subscribe: &[&str], unsubscribe: &[&str]| Saying {
            type_url: CDS.to_owned(),
            subscribe: subscribe.iter().map(|name| (*name).to_owned()).collect(),
            unsubscribe: unsubscribe.iter().map(|name| (*name).to_owned()).collect(),
            ..Saying::default()
        };
        peer.say(say(&["A"], &[])).await;
        assert_eq!(peer.take(CDS).await.all(), "A@1");
        plane.set(&[(CDS, "A", "2"), (CDS, "B", "2")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@2 B@2", "still all");
        peer.say(say(&[], &["*"])).await;
        plane.heard(&peer).await;
        plane.set(&[(CDS, "A", "3"), (CDS, "B", "3")], &[]);
        assert_eq!(peer.take(CDS).await.all(), "A@3");
        peer.say(say(&[], &["A"])).await;
        plane.heard(&peer).await;
        plane.set(&[(CDS, "A", "4"), (CDS, "B", "4")], &[]);
        peer.say(say(&["B"], &[])).await;
        assert_eq!(peer.take(CDS).await.all(), "B@4", "nothing before");
        peer.hang_up();
        plane.streams(0).await;
    }
    zone.stop().await;
}

#[tokio::test]
async fn s7_delta_giving_up_a_name_under_the_wildcard() {
    let zone = Zone::start().await;
    for door in DOORS {
        let plane = Plane::having(&zone, "node", &[(CDS, "A", "1"), (CDS, "B", "1")]);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        assert_eq!(peer.begin(CDS, &["*", "A", "missing"]).await.all(), "A@1 B@1 -missing");
        assert_eq!(peer.begin(CDS, &["*", "missing"]).await.all(), "A@1");
        assert_eq!(peer.begin(CDS, &["*"]).await.all(), "-missing");
        peer.hang_up();
        plane.streams(0).await;
    }
    zone.stop().await;
}

#[tokio::test]
async fn s8_delta_a_name_that_is_asked_for_again_is_sent_again() {
    let zone = Zone::start().await;
    for (type_url, door) in [(EDS, Door::Aggregated), (SDS, Door::Alone)] {
        let plane = Plane::having(&zone, &format!("node-{door:?}").to_lowercase(), &[(type_url, "A", "1")]);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        let ask = peer.wish(type_url, &["A"]);
        for _ in 0..3 {
            peer.say(ask.clone()).await;
            assert_eq!(peer.take(type_url).await.all(), "A@1");
        }
    }
    zone.stop().await;
}

#[tokio::test]
async fn s9_b7_delta_a_missing_name_is_told_and_arrives() {
    let zone = Zone::start().await;
    for (at, type_url) in [CDS, EDS, LDS, RDS, SDS].into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[]);
        let mut peer = plane.peer(Protocol::Delta, DOORS[at % 2]).await;
        assert_eq!(peer.begin(type_url, &["A"]).await.all(), "-A");
        plane.set(&[(type_url, "A", "1")], &[]);
        assert_eq!(peer.take(type_url).await.all(), "A@1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s25_delta_a_cluster_on_demand_that_is_missing_is_told_at_once() {
    let zone = Zone::start().await;
    for door in DOORS {
        let plane = Plane::having(&zone, "node", &[(CDS, "there", "1"), (LDS, "l", "1")]);
        let mut peer = plane.peer(Protocol::Delta, door).await;
        peer.begin(CDS, &["*"]).await;
        // With a listener that nobody answers for: removals wait for that, and this is none.
        peer.want(LDS, &["*"]).await;
        peer.hear(LDS).await;
        assert_eq!(peer.begin(CDS, &["*", "missing"]).await.all(), "-missing");
        assert_eq!(peer.begin(CDS, &["*", "missing", "there"]).await.all(), "there@1");
        peer.hang_up();
        plane.streams(0).await;
    }
    zone.stop().await;
}

#[tokio::test]
async fn s36_sotw_endpoints_without_names_are_none() {
    sotw!([EDS, RDS, SDS], |plane, peer, type_url| {
        assert_eq!(peer.begin(type_url, &[]).await.all(), "");
        plane.heard(&peer).await;
        plane.set(&[(type_url, "A", "v2")], &[]);
        assert_eq!(peer.begin(type_url, &["B"]).await.all(), "B@v1", "and nothing before");
    });
}

#[tokio::test]
async fn s38_an_answer_may_bring_another_name() {
    let zone = Zone::start().await;
    for (at, (protocol, door)) in everywhere().enumerate() {
        let plane = Plane::having(&zone, &format!("node-{at}"), &[(EDS, "A", "1"), (EDS, "B", "1")]);
        let mut peer = plane.peer(protocol, door).await;
        peer.want(EDS, &["A"]).await;
        let first = peer.hear(EDS).await;
        let saying = Saying { nonce: first.nonce, ..peer.wish(EDS, &["A", "B"]) };
        peer.say(saying).await;
        assert_eq!(peer.take(EDS).await.all(), "B@1");
    }
    zone.stop().await;
}

#[tokio::test]
async fn s40_delta_asking_and_giving_up_at_once() {
    let zone = Zone::start().await;
    for (at, name) in ["A", "*", "missing"].into_iter().enumerate() {
        let mut plane = Plane::having(&zone, &format!("node-{at}"), &[(CDS, "A", "1")]);
        let mut peer = plane.peer(Protocol::Delta, DOORS[at % 2]).await;
        let once = vec![name.to_owned()];
        let saying = Saying { subscribe: once.clone(), unsubscribe: once, ..peer.wish(CDS, &[]) };
        peer.say(saying).await;
        assert_eq!(peer.take(CDS).await.all(), "", "{name}");
        plane.heard(&peer).await;
        plane.set(&[(CDS, "A", "2"), (CDS, "B", "2")], &[]);
        assert_eq!(peer.begin(CDS, &["B"]).await.all(), "B@2", "{name}");
    }
    zone.stop().await;
}
