//! What a zone holds, for a global that is rebuilt from its zones: page by page, and back from the wire. Pure.
//!
//! Of what global owned a zone hands out everything it took; of its own, what other zones use, so that a rebuilt
//! global does not take that from them before its owner has sent it again.

use chrono::{DateTime, Utc};

use super::{codec, filter, mapper, order, size};
use crate::{
    clip::clip,
    model::{Kind, Origin, Resource, ResourceKey, labels},
    proto::{google::protobuf::Any, strait::federation::v1::Holding},
    registry,
    store::index::Index,
};

/// A page ends with the resource that makes it longer than this, in bytes.
pub const PAGE: usize = 1024 * 1024;
/// What is shown of a type nobody knows, in bytes.
const SHOWN: usize = 80;

/// One page of what a zone holds.
#[derive(Debug, Default)]
pub struct HeldPage {
    /// As they go over the wire.
    pub holdings: Vec<Holding>,
    /// Where to go on; empty at the end.
    pub next: String,
    /// Secrets that were left out.
    pub secrets_kept: u64,
}

/// A resource as a zone holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeldResource {
    /// Under the name on the wire; `modified` by the clock of the zone.
    pub resource: Resource,
    /// The zone that holds it owns it as well.
    pub own: bool,
}

/// The page of what `zone` holds at `index` that follows `after`, which an earlier page named. Secrets are in it only
/// if `gives_secrets`.
pub fn page(index: &Index, zone: &str, after: &str, gives_secrets: bool) -> HeldPage {
    let (mut page, mut bytes) = (HeldPage::default(), 0);
    for resource in held(index, after) {
        let Some(form) = form(resource, zone) else { continue };
        if bytes >= PAGE {
            return page;
        }
        // The next page begins behind it.
        page.next = place(&resource.key);
        if resource.kind().admin_only && !gives_secrets {
            page.secrets_kept += 1;
            continue;
        }
        let wanted = codec::encode(&form);
        bytes += wanted.value.len();
        page.holdings.push(Holding {
            r#type: resource.kind().name.to_owned(),
            resource: wanted.value,
            modified: resource.modified.timestamp_nanos_opt().unwrap_or_default(),
            own: resource.origin != Origin::Global,
        });
    }
    page.next.clear();
    page
}

/// Everything that may be on a page behind `after`, in the order of pages.
fn held<'a>(index: &'a Index, after: &str) -> impl Iterator<Item = &'a std::sync::Arc<Resource>> + use<'a> {
    let mut parts = after.splitn(3, '/');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let (kind, last) = (part(), (part(), part()));
    let all = kinds().into_iter().filter({
        let kind = kind.clone();
        move |next| next.name >= kind.as_str()
    });
    all.flat_map(move |next| {
        let (begun, last) = (next.name == kind, last.clone());
        let is_done = move |key: &ResourceKey| begun && (&*key.mesh, &*key.name) <= (&*last.0, &*last.1);
        index.list(next).filter(move |resource| !is_done(&resource.key))
    })
}

/// What a zone may be asked for, by name.
fn kinds() -> Vec<&'static Kind> {
    let mut kinds = order::requested_by_zone();
    kinds.sort_by_key(|kind| kind.name);
    kinds
}

fn place(key: &ResourceKey) -> String {
    format!("{}/{}/{}", key.kind.name, key.mesh, key.name)
}

/// The form in which the zone hands a resource out; `None` for what it keeps to itself.
fn form(resource: &Resource, zone: &str) -> Option<Resource> {
    match &resource.origin {
        Origin::Global => Some(Resource { status: None, ..resource.clone() }),
        Origin::Zone(_) if resource.kind().flow.across_zones() && filter::goes_up(resource, zone) => {
            mapper::up(resource, zone, &[]).ok()
        }
        Origin::Zone(_) => None,
    }
}

/// Reads what a zone handed out.
///
/// # Errors
/// What is wrong with it, for an operator.
pub fn read(holding: Holding) -> Result<HeldResource, String> {
    let Holding { r#type, resource, modified, own } = holding;
    // Who may do what on global is not for zones to say.
    let is_held = |kind: &&Kind| kind.flow.requested_by_zone() && kind.known_by.is_none();
    let asked = registry::by_name(&r#type).filter(|kind| is_held(kind));
    let kind = asked.ok_or_else(|| format!("{:?} is no type zones hold", clip(&r#type, SHOWN)))?;
    size::admits(kind, resource.len())?;
    let any = Any { type_url: codec::ENVELOPE_URL.to_owned(), value: resource.to_vec() };
    let item = codec::decode(kind, &any).map_err(|error| format!("{}: {error}", kind.name))?;
    if let Some(excess) = size::excess(kind, &item.labels, &item.spec, item.status.as_deref()) {
        return Err(format!("{}: {excess}", item.key));
    }
    let at: DateTime<Utc> = DateTime::from_timestamp_nanos(modified);
    let mut resource = Resource::new(item.key, at).with_spec(item.spec);
    resource.labels = item.labels;
    // Global signs it again.
    resource.labels.remove(labels::SIGNATURE);
    resource.status = item.status;
    Ok(HeldResource { resource, own })
}

/// How many bytes a holding takes on the wire, about.
pub fn weight(holding: &Holding) -> usize {
    let Holding { r#type, resource, .. } = holding;
    r#type.len() + resource.len()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Arc;

    use proptest::prelude::*;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::kinds,
        policy::mesh_timeout,
        store::{Snapshot, StoreIdentity},
        token,
    };

    fn index(resources: Vec<Resource>) -> Index {
        let resources = resources.into_iter().map(Arc::new).collect();
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        Index::of(store, Snapshot { revision: 1, commit: None, resources })
    }

    fn resource(kind: &'static Kind, name: &str, origin: Origin) -> Resource {
        let mesh = if kind.is_mesh_scoped() { "default" } else { "" };
        let new = Resource::new(ResourceKey::new(kind, mesh, name), DateTime::UNIX_EPOCH);
        Resource { origin, ..new }
    }

    /// All pages, read again.
    fn all(index: &Index, zone: &str, gives_secrets: bool) -> (Vec<HeldResource>, u64) {
        let (mut held, mut kept, mut after) = (Vec::new(), 0, String::new());
        loop {
            let page = page(index, zone, &after, gives_secrets);
            assert!(!page.holdings.is_empty() || page.next.is_empty(), "no page goes on without a step");
            held.extend(page.holdings.into_iter().map(|holding| read(holding).unwrap()));
            kept += page.secrets_kept;
            match page.next {
                next if next.is_empty() => return (held, kept),
                next => after = next,
            }
        }
    }

    #[test]
    fn a_zone_hands_out_what_global_owned_and_of_its_own_what_others_use() {
        let here = || Origin::Zone("east".into());
        let secret = resource(&kinds::secret::SECRET, "s", Origin::Global).with_spec(token::secret_spec("x"));
        let service =
            resource(&kinds::mesh_service::KIND, "web", here()).with_spec(&br#"{"ports":[{"port":80}]}"#[..]);
        let index = index(vec![
            resource(&kinds::mesh::KIND, "default", Origin::Global),
            secret,
            service,
            resource(&kinds::dataplane::KIND, "dp", here()),
            resource(&mesh_timeout::KIND, "own", here()).with_label(labels::KDS_SYNC, "disabled"),
        ]);
        let names = |gives| {
            let (held, kept) = all(&index, "east", gives);
            let names: Vec<_> = held.iter().map(|h| (h.resource.kind().name, h.own)).collect();
            (names, kept)
        };
        assert_eq!(names(true), (vec![("Mesh", false), ("MeshService", true), ("Secret", false)], 0));
        assert_eq!(names(false), (vec![("Mesh", false), ("MeshService", true)], 1));
        let (held, _) = all(&index, "east", true);
        assert_eq!(held[1].resource.label(labels::ZONE), Some("east"));
    }

    #[test]
    fn what_no_zone_holds_is_not_read() {
        let holding = |r#type: &str| Holding { r#type: r#type.to_owned(), ..Holding::default() };
        assert!(read(holding("Nonsense")).unwrap_err().contains("no type"));
        assert!(read(holding("DataplaneInsight")).unwrap_err().contains("no type"));
        assert!(read(holding("Mesh")).unwrap_err().contains("meta"));
    }

    proptest! {
        #[test]
        fn pages_hold_everything_once(names in proptest::collection::btree_set("[a-z]{1,6}", 0..40), pad in 0usize..200_000) {
            let label = |n: &String| resource(&mesh_timeout::KIND, n, Origin::Global)
                .with_spec(format!(r#"{{"to":[{{"targetRef":{{"kind":"Mesh"}},"default":{{"idleTimeout":"20s"}}}}],"filler":"{}"}}"#, "x".repeat(pad)).into_bytes());
            let meshes = names.iter().map(|n| resource(&kinds::mesh::KIND, n, Origin::Global));
            let index = index(names.iter().map(label).chain(meshes).collect());
            let (held, _) = all(&index, "east", true);
            let expected: Vec<_> = index.iter().map(|r| r.key.clone()).collect();
            let mut got: Vec<_> = held.into_iter().map(|h| h.resource.key).collect();
            got.sort();
            let mut sorted = expected;
            sorted.sort();
            prop_assert_eq!(got, sorted);
        }
    }
}
