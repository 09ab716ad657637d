//! Which type comes when, whatever a client answers first.

use std::collections::BTreeSet;

use super::{
    super::{
        client::{BOTH, Protocol},
        harness::Zone,
    },
    plane::{CDS, Door, EDS, LDS, Peer, Plane, RDS, Told},
};

/// All orders of these.
fn orders(types: &[&'static str]) -> Vec<Vec<&'static str>> {
    let Some((first, rest)) = types.split_first() else { return vec![Vec::new()] };
    let grown = orders(rest).into_iter().flat_map(|order| {
        (0..=order.len()).map(move |at| {
            let mut order = order.clone();
            order.insert(at, first);
            order
        })
    });
    grown.collect()
}

/// What a client was told and has not answered, and whether anything came too early.
#[derive(Default)]
struct Account {
    unanswered: BTreeSet<&'static str>,
    made: bool,
    /// What was told to use the new cluster.
    moved: BTreeSet<&'static str>,
    broken: bool,
}

impl Account {
    fn hear(&mut self, protocol: Protocol, told: &Told, order: &[&str]) {
        let type_url = [CDS, EDS, LDS, RDS].into_iter().find(|known| **known == told.type_url).unwrap();
        let all = told.all();
        match type_url {
            CDS => {
                let is_gone = match protocol {
                    Protocol::Sotw => !all.contains("old@1"),
                    Protocol::Delta => all.contains("-old"),
                };
                let nobody_uses_it = self.moved.len() == 2 && self.unanswered.is_disjoint(&self.moved);
                assert!(!is_gone || nobody_uses_it, "{all} came too early with {order:?}");
                self.made |= all.contains("new@1");
                self.broken |= is_gone;
            }
            LDS | RDS => {
                assert!(all.ends_with("@to-new"), "{all}");
                let is_there = self.made && !self.unanswered.contains(CDS);
                assert!(is_there, "{all} came too early with {order:?}");
                self.moved.insert(type_url);
            }
            _ => {}
        }
        self.unanswered.insert(type_url);
    }
}

/// A client that uses the cluster `old`.
async fn settled(plane: &Plane<'_>, protocol: Protocol) -> Peer {
    let mut peer = plane.peer(protocol, Door::Aggregated).await;
    for (type_url, names) in [(CDS, &[][..]), (EDS, &["new", "old"]), (LDS, &[]), (RDS, &["r"])] {
        peer.begin(type_url, names).await;
    }
    peer
}

#[tokio::test]
async fn s17_made_before_and_broken_after_whatever_is_answered_first() {
    let zone = Zone::start().await;
    for protocol in BOTH {
        for (at, order) in orders(&[CDS, EDS, LDS, RDS]).iter().enumerate() {
            let before = [(CDS, "old", "1"), (EDS, "old", "1"), (LDS, "l", "to-old"), (RDS, "r", "to-old")];
            let mut plane = Plane::having(&zone, &format!("node-{protocol:?}-{at}").to_lowercase(), &before);
            let mut peer = settled(&plane, protocol).await;
            let method = peer.method(CDS);
            let after = [(CDS, "new", "1"), (EDS, "new", "1"), (LDS, "l", "to-new"), (RDS, "r", "to-new")];
            plane.set(&after, &[(CDS, "old"), (EDS, "old")]);
            let mut account = Account::default();
            while !account.broken || account.unanswered.contains(CDS) {
                // All that came is known before anything is answered.
                while account.unanswered.is_empty() || !plane.is_read_by(&peer) {
                    let told = peer.next_of(&method).await.unwrap();
                    account.hear(protocol, &told, order);
                }
                let next = order.iter().find(|type_url| account.unanswered.remove(*type_url)).unwrap();
                peer.say(peer.answer(next, None)).await;
                plane.heard(&peer).await;
            }
            assert_eq!(account.moved.len(), 2);
        }
    }
    zone.stop().await;
}
