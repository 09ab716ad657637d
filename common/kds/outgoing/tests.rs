#![allow(clippy::unwrap_used)]
use chrono::DateTime;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{
    kds::{features::Features, mapper},
    model::{Origin, names},
    policy::mesh_timeout,
    store::{Change, StoreIdentity},
};

struct Down;

impl OutgoingForm for Down {
    fn audiences(&self, resource: &Resource) -> Vec<Audience> {
        match (resource.label("stays"), resource.label("x")) {
            (Some(_), _) => Vec::new(),
            (None, Some("halves")) => Audience::of(&signing_key()),
            (None, _) => vec![Audience::default()],
        }
    }

    fn map(&self, resource: &Resource, audience: &Audience) -> Result<Resource, MapError> {
        let mut resource = resource.clone();
        if audience.gets_public_half() {
            let name = format!("half-of-{}", resource.name());
            resource.key = ResourceKey::new(resource.kind(), resource.mesh(), &name);
        }
        mapper::down(&resource, &mapper::DownForm::of(&Features::ours(), &[]))
    }

    fn largest(&self) -> usize {
        LARGEST
    }
}

const LARGEST: usize = 1000;

/// What leaves in two forms.
fn signing_key() -> Resource {
    let key = ResourceKey::new(&kinds::secret::SECRET, "default", "dataplane-token-signing-key-default-1");
    Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::ISSUING, labels::ISSUING_ZONE)
}

fn contents(outgoing: &OutgoingResources) -> Vec<(String, String)> {
    outgoing.list("MeshTimeout").map(|s| (s.wanted.name.to_string(), s.wanted.version.to_string())).collect()
}

fn key(name: usize) -> ResourceKey {
    ResourceKey::new(&mesh_timeout::KIND, "default", &format!("t{name}"))
}

#[test]
fn what_stays_leaves_the_outgoing_resources_as_they_are() {
    let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
    let mut index = Index::empty(store);
    let mut write = |revision, name, label: &str| {
        let resource = Resource::new(key(name), DateTime::UNIX_EPOCH).with_label(label, "x");
        index.apply(&Change { revision, key: key(name), resource: Some(Arc::new(resource)) });
        Arc::new(index.clone())
    };
    let sent = OutgoingResources::of(&write(1, 1, "sent"), &Down);
    let first = sent.moved_to(&write(2, 2, "stays"), &Down);
    let second = first.moved_to(&write(3, 2, "stays"), &Down);
    assert!(first.by_kind.ptr_eq(&sent.by_kind) && second.by_kind.ptr_eq(&sent.by_kind));
    assert_eq!(second.index.revision, 3);
}

#[test]
fn what_does_not_fit_is_withheld_alone_until_it_does() {
    let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
    let mut outgoing = OutgoingResources::of(&Arc::new(index.clone()), &Down);
    let mut step = |revision, name, text: usize| {
        let resource = Resource::new(key(name), DateTime::UNIX_EPOCH).with_label("x", &"x".repeat(text));
        index.apply(&Change { revision, key: key(name), resource: Some(Arc::new(resource)) });
        outgoing = outgoing.moved_to(&Arc::new(index.clone()), &Down);
        (outgoing.list("MeshTimeout").count(), outgoing.withheld_from(&Everything))
    };
    assert_eq!(step(1, 1, 1), (1, BTreeMap::new()));
    let (sent, withheld) = step(2, 2, LARGEST);
    assert_eq!(sent, 1);
    assert!(withheld["MeshTimeout"].contains("t2: it has ") && withheld.len() == 1, "{withheld:?}");
    assert_eq!(step(3, 2, 1), (2, BTreeMap::new()));
}

proptest! {
    #[test]
    fn moving_on_equals_starting_over(
        steps in proptest::collection::vec((0..5usize, 0..5usize), 0..20),
        cut in 0..20usize,
    ) {
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let mut moved = OutgoingResources::of(&Arc::new(index.clone()), &Down);
        let mut seen = moved.clone();
        for (revision, (name, what)) in steps.iter().enumerate() {
            let resource = Resource::new(key(*name), DateTime::UNIX_EPOCH);
            let resource = match what {
                0 => None,
                1 => Some(resource.with_label("stays", "here")),
                2 => Some(resource.with_label("x", "halves")),
                label => Some(resource.with_label("x", &label.to_string())),
            };
            let change = Change { revision: revision as u64 + 1, key: key(*name), resource: resource.map(Arc::new) };
            index.apply(&change);
            moved = moved.moved_to(&Arc::new(index.clone()), &Down);
            if revision == cut {
                seen = moved.clone();
            }
        }
        let fresh = OutgoingResources::of(&Arc::new(index), &Down);
        prop_assert_eq!(contents(&moved), contents(&fresh));
        // Whatever differs is named.
        let named = moved.changed_since(&seen).remove("MeshTimeout").unwrap_or_default();
        let (old, new) = (contents(&seen), contents(&moved));
        for (name, _) in old.iter().filter(|e| !new.contains(e)).chain(new.iter().filter(|e| !old.contains(e))) {
            prop_assert!(named.iter().any(|n| **n == **name), "{} is not named", name);
        }
    }
}

/// Forms that would all leave under one name, the one that goes first at the beginning; and one that has its name alone.
fn namesakes() -> [Resource; 5] {
    let of = |name: &str, zone: Option<&str>, labelled: [&str; 2]| {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
        let mut resource = Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::DISPLAY_NAME, "same");
        resource.origin = zone.map_or(Origin::Global, |zone| Origin::Zone(zone.into()));
        let given = [labels::ZONE, labels::NAMESPACE].into_iter().zip(labelled);
        resource.labels.extend(given.filter(|(_, value)| !value.is_empty()));
        resource
    };
    // The hash is over `default` `same` `zone-1` `0`, or over `default` `same` `zone-10`.
    let hashed = names::hashed("default", "same", Some("zone-1"), Some("0"));
    [
        of("same", None, ["zone-1", "0"]),
        of("a-copy", None, ["zone-1", "0"]),
        of("zone-10.same", Some("zone-10"), ["zone-10", ""]),
        of(&hashed, Some("zone-1"), ["zone-1", "0"]),
        of("else", None, ["", ""]),
    ]
}

fn candidates(outgoing: &OutgoingResources) -> Vec<(String, String)> {
    let all = outgoing.candidates("MeshTimeout");
    all.map(|item| (item.resource.key.to_string(), item.wanted.version.to_string())).collect()
}

#[test]
fn the_one_that_is_written_last_takes_nothing_from_the_others() {
    let all = namesakes();
    let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
    let mut outgoing = OutgoingResources::of(&Arc::new(index.clone()), &Down);
    let mut step = |resource: &Resource, is_there: bool| {
        let (revision, key) = (index.revision + 1, resource.key.clone());
        index.apply(&Change {
            revision,
            key,
            resource: Some(Arc::new(resource.clone())).filter(|_| is_there),
        });
        outgoing = outgoing.moved_to(&Arc::new(index.clone()), &Down);
        let sent: Vec<String> = outgoing.list("MeshTimeout").map(|i| i.resource.name().to_owned()).collect();
        (sent, outgoing.withheld_from(&Everything).remove("MeshTimeout").unwrap_or_default())
    };
    for n in [2, 3, 1, 0] {
        let (sent, withheld) = step(&all[n], true);
        assert_eq!(sent, [all[if n == 3 { 2 } else { n }].name()]);
        assert_eq!(withheld.is_empty(), n == 2, "{withheld}");
    }
    // As they go, the next one is sent.
    for n in [0, 1, 2] {
        let (sent, withheld) = step(&all[n], false);
        assert_eq!(sent, [all[n + 1].name()]);
        assert_eq!(withheld.lines().count(), 2 - n, "{withheld}");
        let says = "goes before it: rename one of the two, or change its label kuma.io/display-name";
        assert!(withheld.lines().all(|line| line.contains(all[n + 1].name()) && line.contains(says)));
    }
    assert_eq!(step(&all[3], false), (vec![], String::new()));
}

#[test]
fn many_of_one_name_are_told_in_a_few_words() {
    let all = (0..1000).map(|n| {
        let key = ResourceKey::new(&mesh_timeout::KIND, "default", &format!("copy-{n}"));
        Resource::new(key, DateTime::UNIX_EPOCH).with_label(labels::DISPLAY_NAME, "same")
    });
    let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
    for resource in all {
        let (revision, key) = (index.revision + 1, resource.key.clone());
        index.apply(&Change { revision, key, resource: Some(Arc::new(resource)) });
    }
    let outgoing = OutgoingResources::of(&Arc::new(index), &Down);
    assert_eq!(outgoing.list("MeshTimeout").count(), 1);
    let told = outgoing.withheld_from(&Everything).remove("MeshTimeout").unwrap();
    assert!(told.ends_with("\nand perhaps more") && told.lines().count() == 11, "{told}");
}

proptest! {
    #[test]
    fn of_one_name_the_best_is_sent_whatever_came_before(
        steps in proptest::collection::vec((0..5usize, 0..3usize), 0..24),
        cut in 0..24usize,
    ) {
        let all = namesakes();
        let mut index = Index::empty(StoreIdentity { store_id: Uuid::nil(), epoch: 1 });
        let mut moved = OutgoingResources::of(&Arc::new(index.clone()), &Down);
        let mut seen = moved.clone();
        let mut held = [false; 5];
        for (step, (which, what)) in steps.iter().enumerate() {
            let resource = match what {
                0 => None,
                label => Some(all[*which].clone().with_label("x", &label.to_string())),
            };
            held[*which] = resource.is_some();
            let key = all[*which].key.clone();
            index.apply(&Change { revision: step as u64 + 1, key, resource: resource.map(Arc::new) });
            moved = moved.moved_to(&Arc::new(index.clone()), &Down);
            if step == cut {
                seen = moved.clone();
            }
        }
        let fresh = OutgoingResources::of(&Arc::new(index.clone()), &Down);
        prop_assert_eq!(candidates(&moved), candidates(&fresh));
        // What is there is all there, in its order.
        let expected = all.iter().zip(held).filter(|(_, held)| *held).map(|(one, _)| one.key.to_string());
        let mut expected: Vec<String> = expected.collect();
        let of_same: Vec<String> = expected.iter().filter(|key| !key.ends_with("else")).cloned().collect();
        let there = candidates(&moved).into_iter().map(|(key, _)| key);
        let there_of_same: Vec<String> = there.clone().filter(|key| !key.ends_with("else")).collect();
        prop_assert_eq!(&there_of_same, &of_same);
        let mut there: Vec<String> = there.collect();
        there.sort();
        expected.sort();
        prop_assert_eq!(there, expected);
        for resource in index.iter() {
            prop_assert_eq!(moved.of_resource(resource, &Down).count(), 1);
        }
        let withheld = moved.withheld_from(&Everything).remove("MeshTimeout").unwrap_or_default();
        prop_assert_eq!(withheld.lines().count(), of_same.len().saturating_sub(1));
        // Whatever differs is named.
        let named = moved.changed_since(&seen).remove("MeshTimeout").unwrap_or_default();
        let (old, new) = (contents(&seen), contents(&moved));
        for (name, _) in old.iter().filter(|e| !new.contains(e)).chain(new.iter().filter(|e| !old.contains(e))) {
            prop_assert!(named.iter().any(|n| **n == **name), "{} is not named", name);
        }
    }
}
