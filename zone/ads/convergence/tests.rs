#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn mark(convergence: &Convergence, revision: Revision) {
    convergence.mark(MadeFor::Meshes, revision);
    convergence.mark(MadeFor::Nodes, revision);
}

#[test]
fn what_is_made_for_others_counts_as_well() {
    let convergence = Convergence::default();
    convergence.mark(MadeFor::Meshes, 5);
    assert_eq!(convergence.reached(), 0);
    convergence.mark(MadeFor::Nodes, 3);
    assert_eq!(convergence.reached(), 3);
}

#[test]
fn a_revision_is_reached_when_all_it_concerned_have_answered() {
    let convergence = Convergence::default();
    mark(&convergence, 3);
    assert_eq!(convergence.reached(), 3, "nobody is here, so nobody is concerned");
    convergence.open(1, "default.web".to_owned());
    convergence.open(2, "default.db".to_owned());
    let first = convergence.number();
    convergence.owes(1, first);
    convergence.owes(2, first);
    convergence.settled(2, first);
    mark(&convergence, 5);
    assert_eq!(convergence.reached(), 3);
    assert_eq!(convergence.progress().waiting, ["default.web"]);
    let second = convergence.number();
    convergence.owes(1, second);
    convergence.owes(2, second);
    mark(&convergence, 6);
    convergence.settled(1, first);
    assert_eq!(convergence.reached(), 5, "the first has answered for what it was given then");
    convergence.settled(2, second);
    assert_eq!((convergence.reached(), convergence.progress().behind), (5, 1));
    convergence.settled(1, second);
    assert_eq!((convergence.reached(), convergence.progress().behind), (6, 0));
}

#[test]
fn who_has_just_come_owes_an_answer_before_there_is_anything_for_it() {
    let convergence = Convergence::default();
    mark(&convergence, 3);
    let before = convergence.number();
    convergence.open(1, "default.web".to_owned());
    mark(&convergence, 4);
    assert_eq!((convergence.reached(), convergence.progress().waiting), (3, vec!["default.web".to_owned()]));
    // What was made before it came is what it is given.
    convergence.owes(1, before);
    assert_eq!(convergence.reached(), 3);
    convergence.settled(1, before);
    assert_eq!((convergence.reached(), convergence.progress().behind), (4, 0));
}

#[test]
fn who_leaves_is_not_waited_for_and_who_does_without_is_named() {
    let convergence = Convergence::default();
    let mut moved = convergence.moved();
    convergence.open(1, "default.web".to_owned());
    let number = convergence.number();
    convergence.owes(1, number);
    mark(&convergence, 4);
    convergence.lacks(1, "Listener", Some("cannot bind"));
    assert!(moved.has_changed().unwrap());
    let progress = convergence.progress();
    assert_eq!((progress.acked, progress.behind, progress.refusing, progress.connected), (0, 1, 1, 1));
    assert_eq!(progress.refusals, [ProxyRefusal::new("default.web", "cannot bind")]);
    moved.mark_unchanged();
    convergence.lacks(1, "Listener", Some("cannot bind"));
    assert!(!moved.has_changed().unwrap(), "that was known");
    convergence.close(1);
    let progress = convergence.progress();
    assert_eq!((progress.acked, progress.behind, progress.refusing, progress.connected), (4, 0, 0, 0));
    // Whoever answers once and is gone owes nothing from the beginning.
    convergence.owes(7, number);
    assert_eq!(convergence.progress().behind, 0);
}

/// Numbers, each with the revision it was published for.
type NumberedRevisions = Vec<(u64, u64)>;

#[derive(Clone, Debug)]
enum Step {
    Open(u64),
    Close(u64),
    /// What follows from the next revision is published to these.
    Publish(Vec<u64>),
    /// All was published.
    Mark,
    /// A stream answers for the newest but so many.
    Settle(u64, usize),
}

fn step() -> impl Strategy<Value = Step> {
    let stream = 0..4u64;
    prop_oneof![
        stream.clone().prop_map(Step::Open),
        stream.clone().prop_map(Step::Close),
        proptest::collection::vec(stream.clone(), 0..3).prop_map(Step::Publish),
        Just(Step::Mark),
        (stream, 0..3usize).prop_map(|(stream, back)| Step::Settle(stream, back)),
    ]
}

proptest! {
    /// What is said to be reached is: every stream that was given something for it has answered for that. And once
    /// everybody has answered for all, the last mark is reached.
    #[test]
    fn nothing_is_reached_before_it_is(steps in proptest::collection::vec(step(), 0..200)) {
        let convergence = Convergence::default();
        // By stream: what it was given, as number and revision, up to which number it has answered, and what was
        // reached when it came.
        let mut model: BTreeMap<u64, (NumberedRevisions, u64, u64)> = BTreeMap::new();
        let (mut revision, mut marked) = (0, 0);
        for step in steps {
            match step {
                Step::Open(stream) if !model.contains_key(&stream) => {
                    model.insert(stream, (Vec::new(), 0, convergence.reached()));
                    convergence.open(stream, stream.to_string());
                }
                Step::Close(stream) => {
                    model.remove(&stream);
                    convergence.close(stream);
                }
                Step::Publish(streams) => {
                    revision += 1;
                    for stream in streams {
                        let number = convergence.number();
                        if let Some((given, ..)) = model.get_mut(&stream) {
                            given.push((number, revision));
                        }
                        convergence.owes(stream, number);
                    }
                }
                Step::Mark => {
                    marked = revision;
                    mark(&convergence, revision);
                }
                Step::Settle(stream, back) => {
                    let Some((given, answered, _)) = model.get_mut(&stream) else { continue };
                    let Some((number, _)) = given.iter().rev().nth(back) else { continue };
                    *answered = (*answered).max(*number);
                    convergence.settled(stream, *number);
                }
                Step::Open(_) => {}
            }
            let reached = convergence.reached();
            prop_assert!(reached <= marked);
            for (given, answered, came) in model.values() {
                prop_assert!(*answered > 0 || reached <= *came, "nothing is known of one who has not answered");
                let mut open = given.iter().filter(|(number, _)| number > answered);
                prop_assert!(open.all(|(_, of)| *of > reached), "{reached} is not reached: {model:?}");
            }
        }
        for stream in model.keys() {
            let number = convergence.number();
            convergence.owes(*stream, number);
            convergence.settled(*stream, number);
        }
        mark(&convergence, revision);
        prop_assert_eq!(convergence.reached(), revision);
        prop_assert_eq!(convergence.progress().behind, 0);
    }
}
