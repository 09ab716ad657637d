//! Whose a name on global is. Names of zones come in two forms, and the authenticated zone is part of both:
//! hashed, where the hash covers it, and below the zone, as `<zone>.<name>`, from zones of before hashes.
//!
//! The hash is no signature: its input is joined without separators, so that `zone-1` with namespace `0` and
//! `zone-10` without one make the same name, and who may choose the namespace can make any. So when two zones
//! can show that a name is theirs, it belongs to the one that was free to choose less of what makes it.

use crate::{
    clip::clip,
    model::{Labels, Resource, ResourceKey, kinds, labels, names},
    store::index::Index,
};

/// How much of a name from outside a refusal shows, in bytes.
const SHOWN: usize = names::MAX_NAME;

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
    // Of a long name the hash covers more than is left of it to see.
    let unseen = |display: &str| (display.len() + names::SUFFIX).saturating_sub(key.name.len());
    hashed.map(|display| unseen(display) + namespace.map_or(0, str::len)).or_else(|| below(&key.name, zone))
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

/// Why the name of `key` is not one for `zone` to give; `None` when it is. `naming` is how its names are made.
pub(super) fn refusal(
    key: &ResourceKey,
    labels: &Labels,
    zone: &str,
    naming: ZoneNaming,
    index: &Index,
) -> Option<String> {
    let is_own = match naming {
        ZoneNaming::Hashed => claim(key, labels, zone).is_some() && names::is_hashed(&key.name),
        ZoneNaming::Below => below(&key.name, zone).is_some(),
    };
    if is_own {
        return None;
    }
    let called = labels.get(labels::DISPLAY_NAME).unwrap_or(&key.name);
    let namespace = labels.get(labels::NAMESPACE);
    let name_in = |zone: &str| names::hashed(&key.mesh, called, Some(zone), namespace);
    let mut zones = index.list(&kinds::zone::KIND).map(|zone| zone.name());
    let owner = match zones.find(|other| *other != zone && name_in(other) == *key.name) {
        Some(owner) => format!("it is the name of what zone {owner:?} calls so"),
        None => "it may be another zone's".to_owned(),
    };
    let called = clip(called, SHOWN);
    Some(match naming {
        ZoneNaming::Hashed => format!(
            "{:?} is not the name on global of what zone {zone:?} calls {called:?}, which is {:?}; {owner}",
            key.name,
            name_in(zone)
        ),
        ZoneNaming::Below => format!(
            "{:?} of zone {zone:?} has the form of a hashed name; {owner}: rename it, or let the zone send hashed names",
            key.name
        ),
    })
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
