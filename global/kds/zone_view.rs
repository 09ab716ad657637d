//! Which resources, in which form, one zone should hold. Pure: a view reads one shelf.

use std::sync::Arc;

use common::{
    issuing,
    kds::{
        features::{Features, ISSUING},
        filter::{Audience, Receiver},
        mapper::{self, DownForm, MapError},
        serve::View,
        shelf::{ChangedNames, Form, Shelf, ShelfRoom, Shelved},
    },
    model::{Origin, Resource, ResourceKey, kinds::secret::GLOBAL_SECRET},
    store::index::Index,
    xds::{Name, Version, Want, Wanted},
};

/// The form of everything that goes down to zones that understand hashed names.
pub(crate) struct Downward(pub(crate) DownForm);

impl Form for Downward {
    fn audience(&self, resource: &Resource) -> Option<Audience> {
        Audience::of(resource)
    }

    fn map(&self, resource: &Resource) -> Result<Resource, MapError> {
        mapper::down(resource, &self.0)
    }
}

/// What one zone should hold.
pub(crate) struct ZoneView {
    zone: Arc<str>,
    features: Features,
    /// Whether it signs with a key of its own, or did before: one that now says otherwise may have been taken
    /// over, and does not get by it what was kept from it.
    issues: bool,
    /// Says in each response where global stands; only for peers that expect it.
    stamped: bool,
    room: Arc<ShelfRoom<Downward>>,
    shelf: Arc<Shelf>,
}

impl ZoneView {
    /// The view of `zone`, which announced `features`, on `index`.
    pub(crate) fn new(
        zone: Arc<str>,
        features: Features,
        stamped: bool,
        room: Arc<ShelfRoom<Downward>>,
        index: &Arc<Index>,
    ) -> Self {
        let shelf = room.at(index);
        let request = ResourceKey::global(&GLOBAL_SECRET, &issuing::request_secret(&zone));
        let issues = features.has(ISSUING) || index.get(&request).is_some();
        Self { issues, zone, features, stamped, room, shelf }
    }

    fn shows(&self, shelved: &Shelved) -> bool {
        let receiver = Receiver { zone: &self.zone, features: &self.features, issues: self.issues };
        shelved.audience.includes(receiver, |zone| !self.shelf.disabled.contains(zone))
    }
}

impl View for ZoneView {
    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        let shelf = self.room.at(index);
        let mut changed = shelf.changed_since(&self.shelf);
        if !Arc::ptr_eq(&shelf.disabled, &self.shelf.disabled) {
            for zone in shelf.disabled.symmetric_difference(&self.shelf.disabled) {
                for (kind, name) in cross_zone_names(&shelf, zone) {
                    changed.entry(kind).or_default().push(name);
                }
            }
        }
        self.shelf = shelf;
        changed
    }
}

impl Want for ZoneView {
    fn revision(&self) -> u64 {
        self.shelf.index.revision
    }

    fn stamp(&self) -> String {
        if !self.stamped {
            return String::new();
        }
        common::kds::headers::Upstream::new(self.shelf.index.store, self.revision()).to_text()
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        for shelved in self.shelf.list(type_url).filter(|shelved| self.shows(shelved)) {
            visit(&shelved.wanted.name, shelved.wanted.version);
        }
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        let shelved = self.shelf.get(type_url, name)?;
        self.shows(shelved).then(|| shelved.wanted.clone())
    }
}

fn cross_zone_names(shelf: &Shelf, zone: &str) -> Vec<(&'static str, Name)> {
    let kinds = common::kds::order::requested_by_zone().into_iter().filter(|k| k.flow.across_zones());
    let owned =
        |shelved: &&Arc<Shelved>| matches!(&shelved.resource.origin, Origin::Zone(owner) if **owner == *zone);
    kinds
        .flat_map(|kind| {
            shelf.list(kind.name).filter(owned).map(|shelved| (kind.name, Arc::clone(&shelved.wanted.name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use common::{
        model::{Kind, kinds},
        policy::mesh_timeout,
        store::{Snapshot, StoreIdentity},
    };
    use uuid::Uuid;

    use super::*;

    fn resource(kind: &'static Kind, name: &str, origin: &str) -> Resource {
        let key = ResourceKey::new(kind, "default", name);
        Resource { origin: Origin::from_column(origin), ..Resource::new(key, DateTime::UNIX_EPOCH) }
    }

    fn zone(name: &str, enabled: bool) -> Resource {
        // BoolValue{value} in field 1: absent content means false.
        let spec: &[u8] = if enabled { &[0x0a, 0x02, 0x08, 0x01] } else { &[0x0a, 0x00] };
        resource(&kinds::zone::KIND, name, "").with_spec(spec)
    }

    fn index(revision: u64, resources: Vec<Resource>) -> Arc<Index> {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let resources = resources.into_iter().map(Arc::new).collect();
        Arc::new(Index::of(store, Snapshot { revision, resources }))
    }

    fn room() -> Arc<ShelfRoom<Downward>> {
        Arc::new(ShelfRoom::new(Downward(DownForm::of(&Features::ours(), &[]))))
    }

    fn names(view: &ZoneView, kind: &Kind) -> Vec<String> {
        let mut names = Vec::new();
        view.each(kind.name, &mut |name, _| names.push(name.to_string()));
        names
    }

    #[test]
    fn a_zone_sees_global_and_the_other_zones() {
        let timeout = resource(&mesh_timeout::KIND, "t", "");
        let ingress = |zone| resource(&kinds::zone_ingress::KIND, &format!("in-{zone}"), zone);
        let index = index(1, vec![timeout, ingress("zone-1"), ingress("zone-2"), zone("zone-2", true)]);
        let view = ZoneView::new("zone-1".into(), Features::ours(), false, room(), &index);
        assert_eq!(names(&view, &mesh_timeout::KIND).len(), 1);
        let ingresses = names(&view, &kinds::zone_ingress::KIND);
        assert_eq!(ingresses.len(), 1);
        assert!(ingresses[0].starts_with("in-zone-2-"), "{ingresses:?}");
        assert!(view.get("ZoneIngress", &ingresses[0]).is_some());
        assert!(names(&view, &kinds::zone::KIND).is_empty());
    }

    #[test]
    fn disabling_a_zone_withdraws_what_it_shares() {
        let ingress = || resource(&kinds::zone_ingress::KIND, "in", "zone-2");
        let room = room();
        let before = index(1, vec![ingress(), zone("zone-2", true)]);
        let mut view = ZoneView::new("zone-1".into(), Features::ours(), false, room, &before);
        assert_eq!(names(&view, &kinds::zone_ingress::KIND).len(), 1);
        let changed = view.advance(&index(2, vec![ingress(), zone("zone-2", false)]));
        assert!(names(&view, &kinds::zone_ingress::KIND).is_empty());
        assert_eq!(changed["ZoneIngress"].len(), 1);
    }

    #[test]
    fn zones_share_one_encoding() {
        let room = room();
        let index = index(1, vec![resource(&mesh_timeout::KIND, "t", "")]);
        let views = ["zone-1", "zone-2"]
            .map(|zone| ZoneView::new(zone.into(), Features::ours(), false, Arc::clone(&room), &index));
        let sent = views.map(|view| {
            let name = names(&view, &mesh_timeout::KIND).remove(0);
            view.get("MeshTimeout", &name).map(|wanted| wanted.value.as_ptr())
        });
        assert_eq!(sent[0], sent[1]);
    }
}
