#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::xds::{Confirmation, DeltaPart, Version, WantSnapshot, Wanted};

const TYPE: &str = "T";
const BAD: &[u8] = b"bad";

/// A peer that takes nothing of a response in which anything is bad, and does not say what.
struct Run {
    world: WantSnapshot,
    holds: BTreeMap<Name, Version>,
    subscription: Subscription,
    nonce: u64,
}

impl Run {
    fn new() -> Self {
        let mut subscription = Subscription::open(TYPE, ["*"], []);
        subscription.narrow();
        Self { world: WantSnapshot::new(1), holds: BTreeMap::new(), subscription, nonce: 0 }
    }

    fn put(&mut self, name: usize, content: &[u8]) {
        let wanted = Wanted::new(format!("{name:05}").as_str(), TYPE, content.to_vec());
        self.subscription.touch(std::slice::from_ref(&wanted.name));
        self.world.put(wanted);
    }

    fn remove(&mut self, name: usize) {
        let name = format!("{name:05}");
        self.world.remove(TYPE, &name);
        self.subscription.touch(&[Name::from(&*name)]);
    }

    /// One response and its answer; whether there was something to say.
    fn exchange(&mut self) -> bool {
        self.nonce += 1;
        let Some(offer) = self.subscription.next(&self.world, DeltaPart::All, None, self.nonce) else {
            return false;
        };
        let is_bad = offer.updated.iter().any(|wanted| wanted.value.as_ref() == BAD);
        let verdict = match is_bad {
            true => Confirmation::Refused { items: Vec::new() },
            false => Confirmation::Accepted,
        };
        if !is_bad {
            offer.removed.iter().for_each(|name| {
                self.holds.remove(name);
            });
            let taken = offer.updated.into_iter().map(|wanted| (wanted.name, wanted.version));
            self.holds.extend(taken);
        }
        self.subscription.settle(self.nonce, &verdict).unwrap();
        true
    }

    /// How many responses it takes until there is nothing to say.
    fn settle(&mut self) -> usize {
        (0..10_000).find(|_| !self.exchange()).unwrap()
    }

    fn check(&self) {
        for wanted in self.world.list(TYPE) {
            let is_bad = wanted.value.as_ref() == BAD;
            let holds = self.holds.get(&wanted.name) == Some(&wanted.version);
            assert_eq!(holds, !is_bad, "{}", wanted.name);
            assert_eq!(self.subscription.refused().contains_key(&wanted.name), is_bad, "{}", wanted.name);
        }
        assert!(self.subscription.is_drained() && !self.subscription.is_narrowing());
    }
}

#[test]
fn one_of_two_thousand_is_found_in_some_twenty_responses() {
    for bad in [0, 1, 777, 1024, 1999] {
        let mut run = Run::new();
        (0..2000).for_each(|name| run.put(name, if name == bad { BAD } else { b"good" }));
        let responses = run.settle();
        assert!(responses <= 1 + 2 * 11, "{responses}");
        run.check();
    }
}

#[test]
fn who_refuses_everything_is_not_asked_about_each_for_ever() {
    let mut run = Run::new();
    (0..5000).for_each(|name| run.put(name, BAD));
    let responses = run.settle();
    assert!(responses <= TRIALS + 1, "{responses}");
    assert_eq!(run.subscription.refused().len(), 5000);
    // What was not found out yet is found out when it is reconsidered, and what is good by then arrives.
    (0..4990).for_each(|name| run.put(name, b"good"));
    run.subscription.reconsider();
    run.settle();
    run.check();
}

#[test]
fn what_changes_meanwhile_need_not_wait_for_the_search() {
    let mut run = Run::new();
    (0..64).for_each(|name| run.put(name, if name == 3 { BAD } else { b"good" }));
    assert!(run.exchange() && run.subscription.is_narrowing());
    run.put(100, b"new");
    (0..2).for_each(|_| assert!(run.exchange()));
    assert!(run.holds.contains_key("00100"), "of two responses one is for what is new");
    assert!(run.subscription.is_narrowing());
    // It is asked to reconsider in the middle of the search, which is what it does.
    run.subscription.reconsider();
    run.settle();
    run.check();
}

#[test]
fn a_refusal_that_will_pass_is_not_narrowed() {
    let mut run = Run::new();
    (0..8).for_each(|name| run.put(name, b"good"));
    run.subscription.next(&run.world, DeltaPart::All, None, 1).unwrap();
    run.subscription.settle(1, &Confirmation::Postponed).unwrap();
    assert!(!run.subscription.is_narrowing());
    assert_eq!(run.subscription.refused().len(), 8);
}

#[derive(Clone, Debug)]
enum Step {
    Put(usize, bool),
    Remove(usize),
    Exchange,
    Rescan,
    Reconsider,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40usize, proptest::bool::weighted(0.15)).prop_map(|(name, bad)| Step::Put(name, bad)),
        1 => (0..40usize).prop_map(Step::Remove),
        2 => Just(Step::Exchange),
        1 => Just(Step::Rescan),
        1 => Just(Step::Reconsider),
    ]
}

proptest! {
    /// Whatever happens meanwhile, in the end the peer holds everything but what it refuses.
    #[test]
    fn the_innocent_arrive(
        start in vec(proptest::bool::weighted(0.1), 0..40),
        steps in vec(step(), 0..80),
    ) {
        let mut run = Run::new();
        start.iter().enumerate().for_each(|(name, bad)| run.put(name, if *bad { BAD } else { b"good" }));
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(name, true) => run.put(name, BAD),
                Step::Put(name, false) => run.put(name, format!("good {number}").as_bytes()),
                Step::Remove(name) => run.remove(name),
                Step::Exchange => drop(run.exchange()),
                Step::Rescan => run.subscription.rescan(),
                Step::Reconsider => run.subscription.reconsider(),
            }
        }
        run.settle();
        run.check();
        for name in run.holds.keys() {
            prop_assert!(run.world.get(TYPE, name).is_some(), "{} was deleted and stays", name);
        }
    }
}
