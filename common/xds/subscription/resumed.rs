//! A peer that comes back and says what it has of everything there is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{Collection, Holding, Holdings, Interest, Subscription, Version, Wanted};

impl Subscription {
    /// The state after a first request for all there is of a type, from a peer that `claims` to hold these versions.
    /// They are compared with `collection` before any is remembered: of what the peer has as it is now nothing is
    /// kept but a reference, and most have most as it is.
    pub(in crate::xds) fn resume(
        type_url: &'static str,
        claims: &HashMap<String, String>,
        collection: Arc<dyn Collection>,
    ) -> Self {
        let holding = |text: &str| Version::parse(text).map_or(Holding::Something, Holding::At);
        let is_as_now = |text: &str, wanted: &Wanted| {
            // Where the author of a resource gave it a version, peers know it by that.
            let own = wanted.own_version.as_ref().is_some_and(|own| *own.text == *text);
            own || Version::parse(text) == Some(wanted.version)
        };
        let (mut exceptions, mut known) = (BTreeMap::new(), 0);
        collection.each(&mut |wanted| match claims.get(&*wanted.name) {
            Some(claimed) => {
                known += 1;
                if !is_as_now(claimed, &wanted) {
                    exceptions.insert(wanted.name, holding(claimed));
                }
            }
            None => drop(exceptions.insert(wanted.name, Holding::Nothing)),
        });
        if known < claims.len() {
            let gone = claims.iter().filter(|(name, _)| collection.version(name).is_none());
            exceptions.extend(gone.map(|(name, version)| (name.as_str().into(), holding(version))));
        }
        let dirty: BTreeSet<_> = exceptions.keys().cloned().collect();
        let held = Holdings::resumed(collection, exceptions);
        Self {
            came_with: held.bytes(),
            held,
            dirty,
            rescan: false,
            interest: Interest { wildcard: true, ..Interest::default() },
            ..Self::open(type_url, [], [])
        }
    }

    /// The same from a peer that holds what there is in `collection` and nothing else.
    pub(in crate::xds) fn resume_unchanged(type_url: &'static str, collection: Arc<dyn Collection>) -> Self {
        Self {
            held: Holdings::resumed(collection, BTreeMap::new()),
            rescan: false,
            interest: Interest { wildcard: true, ..Interest::default() },
            ..Self::open(type_url, [], [])
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;

    use super::*;
    use crate::xds::{Confirmation, DeltaPart, Name, Want, WantSnapshot};

    const TYPE: &str = "t";

    fn world(resources: &BTreeMap<u8, u8>) -> WantSnapshot {
        let mut want = WantSnapshot::new(1);
        for (name, value) in resources {
            want.put(Wanted::new(format!("r{name}"), TYPE, vec![*value]));
        }
        want
    }

    fn claims(held: &BTreeMap<u8, Option<u8>>) -> HashMap<String, String> {
        let version = |value: &Option<u8>| match value {
            Some(value) => Version::of(&[*value]).to_string(),
            None => "of another make".to_owned(),
        };
        held.iter().map(|(name, value)| (format!("r{name}"), version(value))).collect()
    }

    /// What the peer is told, response by response, each of which it takes.
    fn told(peer: &mut Subscription, want: &WantSnapshot, nonce: &mut u64) -> Vec<(Vec<Name>, Vec<Name>)> {
        let mut told = Vec::new();
        loop {
            *nonce += 1;
            let Some(offer) = peer.next(want, DeltaPart::All, Some(150), *nonce) else { return told };
            peer.settle(*nonce, &Confirmation::Accepted).unwrap();
            told.push((offer.updated.into_iter().map(|wanted| wanted.name).collect(), offer.removed));
        }
    }

    proptest! {
        #[test]
        fn who_resumes_hears_what_one_hears_whose_claims_are_kept(
            first in proptest::collection::btree_map(0..8u8, 0..3u8, 0..8),
            held in proptest::collection::btree_map(0..8u8, proptest::option::of(0..3u8), 1..8),
            second in proptest::collection::btree_map(0..8u8, 0..3u8, 0..8),
        ) {
            let (world, claims) = ([world(&first), world(&second)], claims(&held));
            let kept = claims.iter().map(|(name, version)| (&**name, &**version));
            let collection = world[0].collection(TYPE).unwrap();
            let mut peers = [
                Subscription::open(TYPE, ["*"], kept),
                Subscription::resume(TYPE, &claims, collection),
            ];
            let mut nonce = 0;
            let [kept, resumed] = peers.each_mut().map(|peer| told(peer, &world[0], &mut nonce));
            prop_assert_eq!(&kept, &resumed);
            // Even who has everything gets one answer.
            prop_assert!(!resumed.is_empty());
            // And nothing is kept of it.
            prop_assert_eq!(peers[1].held.exceptions(peers[1].interest()).count(), 0);
            let changed = world[1].changed_since(&world[0]).remove(TYPE).unwrap_or_default();
            peers.iter_mut().for_each(|peer| peer.touch(&changed));
            let [kept, resumed] = peers.each_mut().map(|peer| told(peer, &world[1], &mut nonce));
            prop_assert_eq!(kept, resumed);
        }
    }
}
