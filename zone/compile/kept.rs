//! What a proxy keeps of what it had, in place of what it is not sent because it would refuse it.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    generator::{Encoded, ResourceCollection, ResourceSet, SharedResources, type_url},
    mesh::problem::EnvoyResource,
};

/// Types of what listeners, routes and clusters refer to.
const REFERRED_TO: [&str; 4] = [type_url::CLUSTER, type_url::ENDPOINT, type_url::SECRET, type_url::ROUTE];

/// `own` with what the proxy `had` of those that are `refused`, and what that refers to and is nowhere else any more; and
/// what all that is. Endpoints and secrets that nobody else has stay as they were.
pub(super) fn with_kept<'a>(
    own: &ResourceCollection,
    shared: &SharedResources,
    refused: impl IntoIterator<Item = &'a EnvoyResource>,
    had: &ResourceSet,
) -> (ResourceCollection, Vec<Arc<Encoded>>) {
    let mut own = own.clone();
    let mut kept: Vec<Arc<Encoded>> = Vec::new();
    for resource in refused {
        if let Some(had) = had.get(resource.type_url, &resource.name) {
            own.insert(Arc::clone(&had));
            kept.push(had);
        }
    }
    if kept.is_empty() {
        return (own, kept);
    }
    let mut all = kept.clone();
    let mut missing: Vec<Arc<Encoded>> = REFERRED_TO
        .into_iter()
        .flat_map(|of_type| had.of_type(of_type))
        .map(|(_, had)| had)
        .filter(|had| {
            let place = (had.type_url, &*had.name);
            own.get(place.0, place.1).is_none() && shared.get(place.0, place.1).is_none()
        })
        .collect();
    // What refers to something has its name in it; that another text may look like it only keeps more.
    while let Some(holder) = kept.pop() {
        missing.retain(|had| {
            let is_meant = mentions(&holder.value, had.name.as_bytes());
            if is_meant {
                own.insert(Arc::clone(had));
                kept.push(Arc::clone(had));
                all.push(Arc::clone(had));
            }
            !is_meant
        });
    }
    (own, all)
}

/// Whether it `had` some of those that are `refused`.
pub(super) fn some(refused: &BTreeSet<&EnvoyResource>, had: &ResourceSet) -> bool {
    refused.iter().any(|resource| had.get(resource.type_url, &resource.name).is_some())
}

fn mentions(message: &[u8], name: &[u8]) -> bool {
    !name.is_empty() && message.windows(name.len()).any(|window| window == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(of_type: &'static str, name: &str, value: &str) -> Arc<Encoded> {
        Arc::new(Encoded::of_bytes(name, of_type, "test", value.as_bytes().to_vec()))
    }

    fn collection(all: &[(&'static str, &str, &str)]) -> ResourceCollection {
        let mut collection = ResourceCollection::default();
        all.iter().for_each(|(of_type, name, value)| collection.insert(encoded(of_type, name, value)));
        collection
    }

    fn set(all: &[(&'static str, &str, &str)]) -> ResourceSet {
        ResourceSet::new(&ResourceCollection::default(), &SharedResources::new(collection(all), None), None)
    }

    #[test]
    fn what_is_refused_stays_with_all_it_refers_to_and_nothing_else_does() {
        let had = set(&[
            (type_url::LISTENER, "a", "one -> web"),
            (type_url::LISTENER, "gone", "-> cache"),
            (type_url::CLUSTER, "web", "first, with key"),
            (type_url::CLUSTER, "db", "-"),
            (type_url::CLUSTER, "cache", "-"),
            (type_url::ENDPOINT, "web", "1.1.1.1"),
            (type_url::SECRET, "key", "-"),
        ]);
        let now = collection(&[(type_url::CLUSTER, "db", "other"), (type_url::LISTENER, "b", "-> db")]);
        let shared = SharedResources::new(now, None);
        let refused =
            ["a", "never"].map(|name| EnvoyResource { type_url: type_url::LISTENER, name: name.into() });
        let own = collection(&[(type_url::SECRET, "own", "-")]);
        let (kept, all) = with_kept(&own, &shared, &refused, &had);
        let all: Vec<&str> = all.iter().map(|one| &*one.name).collect();
        assert_eq!(all, ["a", "web", "web", "key"]);
        let has = ResourceSet::new(&kept, &shared, None);
        let names: Vec<(String, String)> = has
            .iter()
            .map(|resource| {
                (resource.name.to_string(), String::from_utf8_lossy(&resource.value).into_owned())
            })
            .collect();
        let expected = [
            ("db", "other"),
            ("web", "first, with key"),
            ("web", "1.1.1.1"),
            ("key", "-"),
            ("own", "-"),
            ("a", "one -> web"),
            ("b", "-> db"),
        ];
        assert_eq!(names, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        assert!(some(&refused.iter().collect(), &had) && !some(&BTreeSet::new(), &had));
    }
}
