#![allow(clippy::unwrap_used)]

use proptest::{collection::vec, prelude::*};

use super::{
    super::{Version, WantSnapshot, Wanted},
    *,
};

const TYPE: &str = "T";

fn resource(name: &str, content: &str) -> Wanted {
    Wanted::new(name, TYPE, content.as_bytes().to_vec())
}

fn world(resources: &[(&str, &str)]) -> WantSnapshot {
    let mut world = WantSnapshot::new(1);
    resources.iter().for_each(|(name, content)| world.put(resource(name, content)));
    world
}

fn names<'a, T: 'a>(items: impl IntoIterator<Item = &'a T>, name: impl Fn(&T) -> &Name) -> String {
    items.into_iter().map(|item| name(item).to_string()).collect::<Vec<_>>().join(" ")
}

/// The offer as `+added -removed`, or `none`.
fn next(subscription: &mut Subscription, world: &WantSnapshot, nonce: u64) -> String {
    let Some(offer) = subscription.next(world, DeltaPart::All, None, nonce) else { return "none".into() };
    let (updated, removed) = (names(&offer.updated, |w| &w.name), names(&offer.removed, |n| n));
    format!("+{updated} -{removed}")
}

fn touch(subscription: &mut Subscription, names: &[&str]) {
    let names: Vec<Name> = names.iter().map(|name| Name::from(*name)).collect();
    subscription.touch(&names);
}

fn refused(items: &[&str]) -> Confirmation {
    Confirmation::Refused { items: items.iter().map(ToString::to_string).collect() }
}

#[test]
fn first_request_is_answered_once_even_with_nothing() {
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    assert_eq!(next(&mut subscription, &world(&[]), 1), "+ -");
    subscription.settle(1, &Confirmation::Accepted).unwrap();
    assert_eq!(next(&mut subscription, &world(&[]), 2), "none");
}

#[test]
fn one_response_is_in_flight_and_changes_meanwhile_merge() {
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    assert_eq!(next(&mut subscription, &world(&[("a", "1")]), 1), "+a -");
    let later = world(&[("b", "3")]);
    touch(&mut subscription, &["a", "b", "b"]);
    assert_eq!(next(&mut subscription, &later, 2), "none");
    assert_eq!(subscription.settle(7, &Confirmation::Accepted), None, "not the response in flight");
    assert_eq!(next(&mut subscription, &later, 2), "none");
    subscription.settle(1, &Confirmation::Accepted).unwrap();
    assert_eq!(next(&mut subscription, &later, 2), "+b -a");
}

#[test]
fn resume_tells_the_difference_only() {
    let world = world(&[("same", "1"), ("altered", "2"), ("added", "1")]);
    let (one, foreign) = (Version::of(b"1").to_string(), "17");
    let held = [("same", &*one), ("altered", &*one), ("removed", &*one), ("strange", foreign)];
    let mut subscription = Subscription::open(TYPE, ["*"], held);
    assert_eq!(next(&mut subscription, &world, 1), "+added altered -removed strange");
}

#[test]
fn refused_version_waits_for_a_change_but_still_counts_for_removal() {
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    let before = world(&[("bad", "1"), ("good", "1")]);
    assert_eq!(next(&mut subscription, &before, 1), "+bad good -");
    let settled = subscription.settle(1, &refused(&["bad", "never sent"])).unwrap();
    assert_eq!((settled.accepted, names(&settled.refused, |n| n)), (1, "bad".to_owned()));
    subscription.rescan();
    assert_eq!(next(&mut subscription, &before, 2), "none");
    touch(&mut subscription, &["bad", "good"]);
    assert_eq!(next(&mut subscription, &world(&[]), 2), "+ -bad good");
}

#[test]
fn refusal_without_names_may_mean_any_item() {
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    let world = world(&[("a", "1"), ("b", "1")]);
    next(&mut subscription, &world, 1);
    assert_eq!(subscription.settle(1, &refused(&[])).unwrap().refused.len(), 2);
    assert_eq!(names(subscription.refused().keys(), |n| n), "a b");
    assert_eq!(next(&mut subscription, &world, 2), "none");
}

#[test]
fn words_accuse_only_whom_they_name() {
    let all = "a b:1 ba";
    for (words, accused) in [
        ("a: too old", "a"),
        ("b:1: no such path, ba: field: must be set", "b:1 ba"),
        ("b:1: no such path\na: says b", "a b:1"),
        ("c: unheard of", all),
        ("something went wrong", all),
    ] {
        let mut subscription = Subscription::open(TYPE, ["*"], []);
        next(&mut subscription, &world(&[("a", "1"), ("b:1", "1"), ("ba", "1")]), 1);
        let settled = subscription.settle(1, &Confirmation::RefusedInWords(words.into())).unwrap();
        assert_eq!(names(&settled.refused, |n| n), accused, "{words}");
    }
}

#[test]
fn what_was_refused_is_offered_again_when_it_is_reconsidered() {
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    let world = world(&[("bad", "1"), ("good", "1")]);
    next(&mut subscription, &world, 1);
    subscription.settle(1, &refused(&["bad"])).unwrap();
    assert_eq!(next(&mut subscription, &world, 2), "none");
    subscription.reconsider();
    assert!(!subscription.is_drained());
    assert_eq!(next(&mut subscription, &world, 2), "+bad -");
    subscription.settle(2, &Confirmation::Accepted).unwrap();
    subscription.reconsider();
    assert_eq!(next(&mut subscription, &world, 3), "none", "nothing is refused any more");
}

#[test]
fn removal_refused_with_an_update_is_tried_once_alone() {
    let one = Version::of(b"1").to_string();
    let mut subscription = Subscription::open(TYPE, ["*"], [("old", &*one)]);
    let world = world(&[("bad", "1")]);
    assert_eq!(next(&mut subscription, &world, 1), "+bad -old");
    subscription.settle(1, &refused(&[])).unwrap();
    assert_eq!(next(&mut subscription, &world, 2), "+ -old");
    subscription.settle(2, &refused(&[])).unwrap();
    assert_eq!(next(&mut subscription, &world, 3), "none");
    assert!(subscription.is_kept("old") && !subscription.is_accepted());
    subscription.reconsider();
    assert_eq!(next(&mut subscription, &world, 3), "+bad -old", "and again when all is reconsidered");
    subscription.settle(3, &Confirmation::Accepted).unwrap();
    assert!(subscription.is_accepted());
    subscription.reconsider();
    assert_eq!(next(&mut subscription, &world, 4), "none");
}

#[test]
fn names_are_told_whether_they_exist_and_told_again_when_asked_again() {
    let world = world(&[("a", "1"), ("b", "1")]);
    let mut subscription = Subscription::open(TYPE, ["a", "missing"], []);
    assert_eq!(next(&mut subscription, &world, 1), "+a -missing");
    subscription.settle(1, &Confirmation::Accepted).unwrap();
    touch(&mut subscription, &["b"]);
    assert_eq!(next(&mut subscription, &world, 2), "none", "b was not asked for");
    subscription.subscribe(["a"]);
    assert_eq!(next(&mut subscription, &world, 2), "+a -");
    subscription.subscribe(["a"]);
    subscription.settle(2, &Confirmation::Accepted).unwrap();
    assert_eq!(next(&mut subscription, &world, 3), "+a -", "asked again while in flight");
    subscription.unsubscribe(["a"]);
    subscription.settle(3, &Confirmation::Accepted).unwrap();
    touch(&mut subscription, &["a"]);
    assert_eq!(next(&mut subscription, &world, 4), "none");
}

#[test]
fn wildcard_outlives_names_and_names_outlive_the_wildcard() {
    let mut subscription = Subscription::open(TYPE, ["*", "a"], []);
    let before = world(&[("a", "1"), ("b", "1")]);
    assert_eq!(next(&mut subscription, &before, 1), "+a b -");
    subscription.settle(1, &Confirmation::Accepted).unwrap();
    subscription.unsubscribe(["b"]);
    assert_eq!(next(&mut subscription, &before, 2), "+b -", "the peer dropped it, the wildcard covers it");
    subscription.settle(2, &Confirmation::Accepted).unwrap();
    subscription.unsubscribe(["*"]);
    touch(&mut subscription, &["a", "b"]);
    assert_eq!(next(&mut subscription, &world(&[]), 3), "+ -a");
}

#[test]
fn limit_splits_and_removals_come_last() {
    let one = Version::of(b"1").to_string();
    let mut subscription = Subscription::open(TYPE, ["*"], [("0", &*one)]);
    let world = world(&[("a", "1"), ("b", "1"), ("c", "1")]);
    let two = Some(2 * resource("a", "1").size());
    let mut seen = Vec::new();
    for nonce in 1.. {
        let Some(offer) = subscription.next(&world, DeltaPart::All, two, nonce) else { break };
        seen.push((offer.updated.len(), offer.removed.len(), offer.more));
        subscription.settle(nonce, &Confirmation::Accepted).unwrap();
    }
    assert_eq!(seen, [(2, 0, true), (1, 1, false)]);
    let tiny = Some(1);
    let mut subscription = Subscription::open(TYPE, ["*"], []);
    assert_eq!(
        subscription.next(&world, DeltaPart::All, tiny, 1).unwrap().updated.len(),
        1,
        "one item always goes"
    );
}

/// One name costs its pointer and its version; many zones times many resources live here.
#[test]
fn a_held_name_is_small() {
    assert!(size_of::<Name>() + size_of::<Option<Version>>() <= 40);
    assert_eq!(align_of::<Option<Version>>(), 1);
}

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Remove(u8),
    Send { limited: bool, split: bool },
    Answer,
    Stale,
    Subscribe(u8),
    Unsubscribe(u8),
    Rescan,
    Reconnect { resume: bool },
}

fn step() -> impl Strategy<Value = Step> {
    let name = 0..6_u8;
    prop_oneof![
        4 => (name.clone(), 0..6_u8).prop_map(|(name, content)| Step::Put(name, content)),
        2 => name.clone().prop_map(Step::Remove),
        4 => (any::<bool>(), any::<bool>()).prop_map(|(limited, split)| Step::Send { limited, split }),
        4 => Just(Step::Answer),
        1 => Just(Step::Stale),
        1 => name.clone().prop_map(Step::Subscribe),
        1 => name.prop_map(Step::Unsubscribe),
        1 => Just(Step::Rescan),
        1 => any::<bool>().prop_map(|resume| Step::Reconnect { resume }),
    ]
}

/// A peer that applies what it can and refuses some contents for good.
struct Peer {
    holds: BTreeMap<Name, Version>,
    manner: Manner,
}

/// How a peer refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    /// Names the bad items and takes the rest.
    Telling,
    /// Takes the rest without saying so.
    Silent,
    /// Takes nothing of a response in which anything is bad.
    AllOrNothing,
}

fn manner() -> impl Strategy<Value = Manner> {
    prop_oneof![Just(Manner::Telling), Just(Manner::Silent), Just(Manner::AllOrNothing)]
}

impl Peer {
    fn take(&mut self, offer: &Offer, full: bool) -> Confirmation {
        let bad: Vec<&Wanted> = offer.updated.iter().filter(|wanted| is_poison(wanted)).collect();
        let tells = self.manner == Manner::Telling;
        let verdict = match bad.as_slice() {
            [] => Confirmation::Accepted,
            bad => Confirmation::Refused {
                items: bad.iter().filter(|_| tells).map(|wanted| wanted.name.to_string()).collect(),
            },
        };
        if full {
            self.holds.retain(|name, _| offer.updated.iter().any(|wanted| wanted.name == *name));
        }
        if self.manner == Manner::AllOrNothing && !bad.is_empty() {
            return verdict;
        }
        for name in &offer.removed {
            self.holds.remove(name);
        }
        for wanted in offer.updated.iter().filter(|wanted| !is_poison(wanted)) {
            self.holds.insert(Arc::clone(&wanted.name), wanted.version);
        }
        verdict
    }
}

fn is_poison(wanted: &Wanted) -> bool {
    wanted.value.as_ref() >= b"4".as_slice()
}

struct Run {
    world: WantSnapshot,
    peer: Peer,
    subscription: Subscription,
    flight: Option<(u64, Confirmation)>,
    nonce: u64,
    first: bool,
    resumed: bool,
    named: bool,
}

impl Run {
    fn new(manner: Manner, named: bool) -> Self {
        let interest: &[&str] = if named { &["0", "1", "2"] } else { &["*"] };
        Self {
            world: WantSnapshot::new(1),
            peer: Peer { holds: BTreeMap::new(), manner },
            subscription: Subscription::open(TYPE, interest.iter().copied(), []),
            flight: None,
            nonce: 0,
            first: true,
            resumed: true,
            named,
        }
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Put(name, content) => {
                let wanted = resource(&name.to_string(), &content.to_string());
                self.subscription.touch(std::slice::from_ref(&wanted.name));
                self.world.put(wanted);
            }
            Step::Remove(name) => {
                self.world.remove(TYPE, &name.to_string());
                touch(&mut self.subscription, &[&name.to_string()]);
            }
            Step::Send { limited, split } => {
                let limit = limited.then_some(80).filter(|_| self.resumed || !self.first);
                let parts = [DeltaPart::Updates, DeltaPart::Removals];
                parts[usize::from(!split)..].iter().for_each(|part| {
                    self.send(if split { *part } else { DeltaPart::All }, limit);
                });
            }
            Step::Answer => self.answer(),
            Step::Stale => {
                assert_eq!(self.subscription.settle(self.nonce + 1, &Confirmation::Accepted), None)
            }
            Step::Subscribe(name) => self.subscription.subscribe([&*name.to_string()]),
            Step::Unsubscribe(name) => {
                self.subscription.unsubscribe([&*name.to_string()]);
                self.peer.holds.remove(&*name.to_string());
            }
            Step::Rescan => self.subscription.rescan(),
            Step::Reconnect { resume } => self.reconnect(resume),
        }
    }

    fn send(&mut self, part: DeltaPart, limit: Option<usize>) {
        // A plain peer takes the first response for all there is.
        let part = if self.first { DeltaPart::All } else { part };
        let expected = self.full_difference();
        let idle = self.flight.is_none();
        let Some(offer) = self.subscription.next(&self.world, part, limit, self.nonce + 1) else {
            if part == DeltaPart::All && idle {
                assert_eq!(expected, (vec![], vec![]), "held back");
            }
            return;
        };
        assert!(idle, "two responses in flight");
        let updated: Vec<Name> = offer.updated.iter().map(|wanted| Arc::clone(&wanted.name)).collect();
        if part == DeltaPart::All && !offer.more {
            assert!(limit.is_some() || (updated.clone(), offer.removed.clone()) == expected);
        }
        assert!(updated.iter().all(|name| expected.0.contains(name)), "sent again: {updated:?}");
        assert!(offer.removed.iter().all(|name| expected.1.contains(name)));
        self.nonce += 1;
        let full = self.first && !self.resumed;
        self.first = false;
        self.flight = Some((self.nonce, self.peer.take(&offer, full)));
    }

    fn answer(&mut self) {
        if let Some((nonce, verdict)) = self.flight.take() {
            self.subscription.settle(nonce, &verdict).unwrap();
        }
    }

    /// What a comparison of everything says is to be sent.
    fn full_difference(&self) -> (Vec<Name>, Vec<Name>) {
        let state = &self.subscription;
        let wanted = self.world.list(TYPE).filter(|wanted| state.interest.covers(&wanted.name));
        let updated = wanted.filter(|wanted| {
            state.holding(&wanted.name) != Holding::At(wanted.version)
                && state.refused().get(&wanted.name) != Some(&wanted.version)
        });
        let updated = updated.map(|wanted| Arc::clone(&wanted.name)).collect();
        let mut held = BTreeSet::new();
        state.held.each(&state.interest, &mut |name| held.extend([Arc::clone(name)]));
        (updated, held.into_iter().filter(|name| self.world.get(TYPE, name).is_none()).collect())
    }

    fn reconnect(&mut self, resume: bool) {
        let resume = resume || self.named;
        let held: Vec<_> =
            self.peer.holds.iter().map(|(name, v)| (name.to_string(), v.to_string())).collect();
        let held = held.iter().filter(|_| resume).map(|(name, version)| (&**name, &**version));
        let interest = self.subscription.interest.clone();
        let names = interest.names.iter().chain(interest.wildcard.then_some("*"));
        self.subscription = Subscription::open(TYPE, names, held);
        (self.first, self.resumed, self.flight) = (true, resume, None);
    }

    fn settle_down(&mut self) {
        for _ in 0..64 {
            self.answer();
            self.send(DeltaPart::All, None);
        }
        assert!(self.flight.is_none() && self.subscription.is_drained(), "it never comes to rest");
        assert_eq!(self.subscription.next(&self.world, DeltaPart::All, None, 0), None);
    }
}

proptest! {
    #[test]
    fn peer_ends_with_what_is_wanted_less_what_it_refused(
        manner in manner(), named: bool, steps in vec(step(), 0..60),
    ) {
        let mut run = Run::new(manner, named);
        steps.iter().for_each(|step| run.step(step));
        run.settle_down();
        for name in run.peer.holds.keys() {
            prop_assert!(run.world.get(TYPE, name).is_some(), "{name} was deleted and stays");
        }
        for wanted in run.world.list(TYPE).filter(|w| run.subscription.interest.covers(&w.name)) {
            let holds = run.peer.holds.get(&wanted.name) == Some(&wanted.version);
            let refused = run.subscription.refused().get(&wanted.name) == Some(&wanted.version);
            // Who rejects a whole response for one item may miss the others.
            let excused = is_poison(wanted) || manner == Manner::AllOrNothing;
            prop_assert!(holds || (refused && excused), "{} is missing", wanted.name);
            prop_assert!(refused || !is_poison(wanted));
        }
    }
}
