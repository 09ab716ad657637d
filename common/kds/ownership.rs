//! Whose a name on global is. Names of zones come in two forms, and the authenticated zone is part of both:
//! hashed, where the hash covers it, and below the zone, as `<zone>.<name>`, from zones of before hashes.
//!
//! The hash is no signature: its input is joined without separators, so that `zone-1` with namespace `0` and
//! `zone-10` without one make the same name, and who may choose the namespace can make any. So when two zones
//! can show that a name is theirs, it belongs to the one that was free to choose less of what makes it, and to the one that
//! has it where both chose as much as it takes to make any.

use crate::{
    clip::clip,
    model::{Labels, Resource, ResourceKey, kinds, labels, names},
    store::index::Index,
};

/// How much of a name from outside a refusal shows, in bytes.
const SHOWN: usize = names::MAX_NAME;
/// Bytes of a DNS label that are enough to make a given hash: who was free to choose so many shows nothing by it. The hash
/// has 62 bits and runs backwards as well as forwards, so of ten bytes, 52 bits, there is one for a name in a thousand, found
/// in 2^26 steps from both ends; of nine for one in some fifty thousand.
const FORGEABLE: usize = 10;

/// How the resources of a zone are called on global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneNaming {
    /// By their hashed names, as the zone sends them.
    Hashed,
    /// By their names at home, below the zone.
    Below,
}

/// How many bytes of what makes the name of `key` were for `zone` to choose; `None` when it is no name
/// that resources of `zone` get. The shorter claim is the better one.
pub fn claim(key: &ResourceKey, labels: &Labels, zone: &str) -> Option<usize> {
    let text = |label: &str| labels.get(label).filter(|text| !text.is_empty());
    let (display, namespace) = (text(labels::DISPLAY_NAME), text(labels::NAMESPACE));
    let hashed =
        display.filter(|display| names::hashed(&key.mesh, display, Some(zone), namespace) == *key.name);
    hashed.map(|display| chosen(&key.name, display, namespace)).or_else(|| below(&key.name, zone))
}

/// How many bytes a zone was free to choose to make `name` of these: as far as that says something.
pub(super) fn chosen(name: &str, display: &str, namespace: Option<&str>) -> usize {
    // Of a long name the hash covers more than is left of it to see.
    let unseen = (display.len() + names::SUFFIX).saturating_sub(name.len());
    (unseen + namespace.map_or(0, str::len)).min(FORGEABLE)
}

/// The claim to `<zone>.<name>`; nobody has one to what looks like a hashed name.
fn below(name: &str, zone: &str) -> Option<usize> {
    let rest = name.strip_prefix(zone)?.strip_prefix('.')?;
    (!names::is_hashed(name)).then_some(rest.len())
}

/// Whether `zone`, with a resource of these labels, takes the name of `existing` from the zone that has it.
pub(super) fn outranks(existing: &Resource, holder: &str, labels: &Labels, zone: &str) -> bool {
    let held = claim(&existing.key, &existing.labels, holder);
    claim(&existing.key, labels, zone).is_some_and(|claimed| held.is_none_or(|held| claimed < held))
}

/// Whether the name of `key` is one for `zone` to give. `naming` is how its names are made.
pub(super) fn is_own(key: &ResourceKey, labels: &Labels, zone: &str, naming: ZoneNaming) -> bool {
    match naming {
        ZoneNaming::Hashed => claim(key, labels, zone).is_some() && names::is_hashed(&key.name),
        ZoneNaming::Below => below(&key.name, zone).is_some() && misnomer(key, labels, zone).is_none(),
    }
}

/// The name its labels give to what stands below `zone`, when that is another one than it has there. Other zones are sent
/// it under a name that is made of the label, and it would be anybody's.
fn misnomer<'a>(key: &ResourceKey, labels: &'a Labels, zone: &str) -> Option<&'a str> {
    let text = |label: &str| labels.get(label).filter(|text| !text.is_empty());
    let name = key.name.strip_prefix(zone).and_then(|rest| rest.strip_prefix('.')).unwrap_or_default();
    let called = text(labels::DISPLAY_NAME).filter(|called| *called != name)?;
    // In Kubernetes it is called by both.
    let in_namespace = text(labels::NAMESPACE).is_some_and(|namespace| {
        name.strip_prefix(called).and_then(|n| n.strip_prefix('.')) == Some(namespace)
    });
    (!in_namespace).then_some(called)
}

/// Why the name of `key`, which is not its own, is not one for `zone` to give. The owner is looked for among the zones of
/// `owners`, which costs as much as there are.
pub(super) fn refusal(
    key: &ResourceKey,
    labels: &Labels,
    zone: &str,
    naming: ZoneNaming,
    owners: Option<&Index>,
) -> String {
    if naming == ZoneNaming::Below
        && below(&key.name, zone).is_some()
        && let Some(called) = misnomer(key, labels, zone)
    {
        let called = clip(called, SHOWN);
        return format!(
            "its label {} calls what zone {zone:?} sends as {:?} {called:?}: take the label away",
            labels::DISPLAY_NAME,
            key.name
        );
    }
    let called = labels.get(labels::DISPLAY_NAME).unwrap_or(&key.name);
    let namespace = labels.get(labels::NAMESPACE);
    let name_in = |zone: &str| names::hashed(&key.mesh, called, Some(zone), namespace);
    let is_theirs = |other: &&str| *other != zone && name_in(other) == *key.name;
    let zones =
        owners.filter(|_| called.len() <= names::MAX_NAME).map(|index| index.list(&kinds::zone::KIND));
    let owner = match zones.into_iter().flatten().map(|zone| zone.name()).find(is_theirs) {
        Some(owner) => format!("it is the name of what zone {owner:?} calls so"),
        None => "it may be another zone's".to_owned(),
    };
    let called = clip(called, SHOWN);
    match naming {
        ZoneNaming::Hashed => format!(
            "{:?} is not the name on global of what zone {zone:?} calls {called:?}, which is {:?}; {owner}",
            key.name,
            name_in(zone)
        ),
        ZoneNaming::Below => format!(
            "{:?} of zone {zone:?} has the form of a hashed name; {owner}: rename it, or let the zone send hashed names",
            key.name
        ),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use proptest::prelude::*;

    use super::*;
    use crate::{kds::mapper, model::kinds};

    fn sent(zone: &str, name: &str, namespace: Option<&str>) -> Resource {
        let key = ResourceKey::new(&kinds::dataplane::KIND, "default", name);
        let mut resource = Resource::new(key, DateTime::UNIX_EPOCH);
        resource.labels.extend(namespace.map(|n| (labels::NAMESPACE, n)));
        mapper::up(&resource, zone, &[]).unwrap()
    }

    #[test]
    fn names_that_two_zones_can_make_belong_to_the_one_that_chose_less() {
        let (long, short) = (sent("zone-10", "web", None), sent("zone-1", "web", Some("0")));
        assert_eq!(long.key, short.key, "the hash tells no zone from a namespace");
        assert!(outranks(&short, "zone-1", &long.labels, "zone-10"));
        assert!(!outranks(&long, "zone-10", &short.labels, "zone-1"));
        assert!(!outranks(&long, "zone-10", &long.labels, "zone-10"), "nobody outranks himself");
    }

    #[test]
    fn only_the_zone_in_the_hash_can_show_that_a_name_is_its_own() {
        let web = sent("zone-2", "web", None);
        assert_eq!(claim(&web.key, &web.labels, "zone-2"), Some(0));
        assert_eq!(claim(&web.key, &web.labels, "zone-1"), None);
        let squatted = Resource { labels: Labels::new(), ..web.clone() };
        assert!(outranks(&squatted, "zone-1", &web.labels, "zone-2"), "who had it before shows nothing");
    }

    #[test]
    fn below_a_zone_nothing_has_the_form_of_a_hashed_name() {
        let check = |name: &str, zone, expected| {
            let key = ResourceKey::new(&kinds::dataplane::KIND, "default", name);
            assert_eq!(claim(&key, &Labels::new(), zone), expected, "{name}");
        };
        check("zone-1.web", "zone-1", Some(3));
        check("zone-1.web-7d4b9c8f6d-x2x4z", "zone-1", Some(20));
        check("zone-2.web", "zone-1", None);
        check("zone-10.web", "zone-1", None);
        check("a.b.web", "a", Some(5));
        check("a.b.web", "a.b", Some(3));
        // What zone-2 calls `x.foo`, sent by a zone `x` as what it calls `foo-…`.
        check(sent("zone-2", "x.foo", None).name(), "x", None);
    }

    #[test]
    fn who_could_have_made_any_name_takes_none_from_who_has_it() {
        let held = sent("zone-2", "web", Some("payments-production"));
        let forged = labelled("web", "0123456789ab");
        assert_eq!(chosen(&held.key.name, "web", Some("payments-production")), FORGEABLE);
        assert_eq!(chosen(&held.key.name, "web", forged.get(labels::NAMESPACE)), FORGEABLE);
        let ten = labelled("web", "0123456789");
        assert_eq!(chosen(&held.key.name, "web", ten.get(labels::NAMESPACE)), FORGEABLE, "of some names");
        assert_eq!(chosen(&held.key.name, "web", Some("kuma-demo")), 9);
        assert_eq!(claim(&held.key, &held.labels, "zone-2"), Some(FORGEABLE));
    }

    fn labelled(display: &str, namespace: &str) -> Labels {
        let own = [(labels::DISPLAY_NAME, display), (labels::NAMESPACE, namespace)];
        let mut all = Labels::new();
        all.extend(own.into_iter().filter(|(_, value)| !value.is_empty()));
        all
    }

    #[test]
    fn what_stands_below_a_zone_is_called_as_it_is_there() {
        let check = |name: &str, display: &str, namespace: &str, expected: bool| {
            let key = ResourceKey::new(&kinds::dataplane::KIND, "default", name);
            let labels = labelled(display, namespace);
            let is = is_own(&key, &labels, "zone-1", ZoneNaming::Below);
            assert_eq!(is, expected, "{name} {display} {namespace}");
            let why = refusal(&key, &labels, "zone-1", ZoneNaming::Below, None);
            assert!(is || why.contains("kuma.io/display-name"), "{why}");
        };
        check("zone-1.web", "", "", true);
        check("zone-1.web", "", "demo", true);
        check("zone-1.web", "web", "", true);
        check("zone-1.web", "web", "demo", true);
        check("zone-1.web.demo", "web", "demo", true);
        check("zone-1.web.demo", "web.demo", "demo", true);
        check("zone-1.x", "web", "0", false);
        check("zone-1.web.demo", "web", "other", false);
        check("zone-1.web.demo", "web", "", false);
    }

    proptest! {
        #[test]
        fn every_name_a_zone_sends_is_its_own(
            zone in "[a-z][a-z0-9-]{0,8}",
            name in "[a-z0-9.-]{1,253}",
            namespace in proptest::option::of("[a-z0-9]{1,10}"),
        ) {
            let sent = sent(&zone, &name, namespace.as_deref());
            prop_assert!(claim(&sent.key, &sent.labels, &zone).is_some());
            prop_assert!(names::is_hashed(sent.name()));
        }
    }
}
