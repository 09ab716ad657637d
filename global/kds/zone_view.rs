//! Which resources, in which form, one zone should hold. Pure: a view reads what leaves global at one index.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    issuing,
    kds::{
        features::{Features, ISSUING},
        filter::{Audience, Receiver},
        headers::Upstream,
        mapper::{self, DownForm, MapError},
        outgoing::{self, ChangedNames, OutgoingForm, OutgoingResource, OutgoingResources, SharedOutgoing},
        serve::View,
    },
    model::{Origin, Resource, ResourceKey, kinds::secret::GLOBAL_SECRET},
    store::{StoreIdentity, index::Index},
    xds::{Name, Version, Want, Wanted},
};

/// The form of everything that goes down to zones that understand hashed names.
pub(crate) struct Downward {
    pub(crate) form: DownForm,
    /// The largest resource that can be sent, in bytes.
    pub(crate) largest: usize,
}

impl OutgoingForm for Downward {
    fn audiences(&self, resource: &Resource) -> Vec<Audience> {
        Audience::of(resource)
    }

    fn map(&self, resource: &Resource, audience: &Audience) -> Result<Resource, MapError> {
        if audience.gets_public_half() {
            return mapper::down_public(resource, &self.form);
        }
        mapper::down(resource, &self.form)
    }

    fn largest(&self) -> usize {
        self.largest
    }
}

/// What one zone should hold.
pub(crate) struct ZoneView {
    zone: Arc<str>,
    features: Features,
    /// Whether it signs with a key of its own, or did before: one that now says otherwise may have been taken
    /// over, and does not get by it what was kept from it.
    issues: bool,
    /// The history in which each response says where global stands; only for peers that expect it.
    shown: Option<StoreIdentity>,
    shared: Arc<SharedOutgoing<Downward>>,
    outgoing: Arc<OutgoingResources>,
}

impl ZoneView {
    /// The view of `zone`, which announced `features`, on `index`.
    pub(crate) fn new(
        zone: Arc<str>,
        features: Features,
        shown: Option<StoreIdentity>,
        shared: Arc<SharedOutgoing<Downward>>,
        index: &Arc<Index>,
    ) -> Self {
        let outgoing = shared.at(index);
        let request = ResourceKey::global(&GLOBAL_SECRET, &issuing::request_secret(&zone));
        let issues = features.has(ISSUING) || index.get(&request).is_some();
        Self { issues, zone, features, shown, shared, outgoing }
    }

    fn shows(&self, item: &OutgoingResource) -> bool {
        self.is_for(&item.audience)
    }

    fn is_for(&self, audience: &Audience) -> bool {
        let receiver = Receiver { zone: &self.zone, features: &self.features, issues: self.issues };
        audience.includes(receiver, |zone| !self.outgoing.disabled.contains(zone))
    }
}

impl View for ZoneView {
    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        let outgoing = self.shared.at(index);
        let mut changed = outgoing.changed_since(&self.outgoing);
        if !Arc::ptr_eq(&outgoing.disabled, &self.outgoing.disabled) {
            for zone in outgoing.disabled.symmetric_difference(&self.outgoing.disabled) {
                for (kind, name) in cross_zone_names(&outgoing, zone) {
                    changed.entry(kind).or_default().push(name);
                }
            }
        }
        self.outgoing = outgoing;
        changed
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        outgoing::reasons(self.outgoing.withheld().filter(|(_, withheld)| self.is_for(&withheld.audience)))
    }
}

impl Want for ZoneView {
    fn revision(&self) -> u64 {
        self.outgoing.index.revision
    }

    fn stamp(&self) -> String {
        let at = |shown| Upstream::new(shown, self.revision()).to_text();
        self.shown.map(at).unwrap_or_default()
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        for item in self.outgoing.list(type_url).filter(|item| self.shows(item)) {
            visit(&item.wanted.name, item.wanted.version);
        }
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        let item = self.outgoing.get(type_url, name)?;
        self.shows(item).then(|| item.wanted.clone())
    }
}

fn cross_zone_names(outgoing: &OutgoingResources, zone: &str) -> Vec<(&'static str, Name)> {
    let kinds = common::kds::order::requested_by_zone().into_iter().filter(|k| k.flow.across_zones());
    let owned = |item: &&Arc<OutgoingResource>| matches!(&item.resource.origin, Origin::Zone(owner) if **owner == *zone);
    kinds
        .flat_map(|kind| {
            outgoing.list(kind.name).filter(owned).map(|item| (kind.name, Arc::clone(&item.wanted.name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{Kind, kinds, labels},
        policy::mesh_timeout,
        store::{Snapshot, StoreIdentity},
        token,
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

    fn shared() -> Arc<SharedOutgoing<Downward>> {
        let form = DownForm::of(&Features::ours(), &[]);
        Arc::new(SharedOutgoing::new(Downward { form, largest: usize::MAX }))
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
        let view = ZoneView::new("zone-1".into(), Features::ours(), None, shared(), &index);
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
        let shared = shared();
        let before = index(1, vec![ingress(), zone("zone-2", true)]);
        let mut view = ZoneView::new("zone-1".into(), Features::ours(), None, shared, &before);
        assert_eq!(names(&view, &kinds::zone_ingress::KIND).len(), 1);
        let changed = view.advance(&index(2, vec![ingress(), zone("zone-2", false)]));
        assert!(names(&view, &kinds::zone_ingress::KIND).is_empty());
        assert_eq!(changed["ZoneIngress"].len(), 1);
    }

    #[test]
    fn signing_keys_change_their_form_with_who_may_sign() {
        let (whole, half) =
            ("dataplane-token-signing-key-default-1", "dataplane-token-signing-public-key-default-1");
        let private = token::new_signing_key().unwrap();
        let key = |by: &str| {
            let key = resource(&kinds::secret::SECRET, whole, "").with_label(labels::ISSUING, by);
            key.with_spec(token::secret_spec(private.pem()))
        };
        let (shared, before) = (shared(), index(1, vec![key("zone")]));
        let kumas = Features::ours().without(ISSUING);
        let mut views = [Features::ours(), kumas]
            .map(|features| ZoneView::new("zone-1".into(), features, None, Arc::clone(&shared), &before));
        let held = |views: &[ZoneView; 2]| views.each_ref().map(|view| names(view, &kinds::secret::SECRET));
        let named = |name: &str| vec![format!("{name}.default")];
        assert_eq!(held(&views), [named(half), named(whole)]);
        let sent = views[0].get("Secret", &named(half)[0]).unwrap().value;
        assert!(!String::from_utf8_lossy(&sent).contains("PRIVATE KEY"));
        assert!(views[0].get("Secret", &named(whole)[0]).is_none());

        // There and back: what comes and what goes is named to both.
        for (revision, by, expected) in
            [(2, "mesh", [named(whole), named(whole)]), (3, "zone", [named(half), named(whole)])]
        {
            let next = index(revision, vec![key(by)]);
            for view in &mut views {
                let mut changed = view.advance(&next).remove("Secret").unwrap();
                changed.sort();
                assert_eq!(
                    changed.iter().map(|name| &**name).collect::<Vec<_>>(),
                    [named(whole)[0].as_str(), named(half)[0].as_str(),]
                );
            }
            assert_eq!(held(&views), expected);
        }
        for view in &mut views {
            view.advance(&index(4, Vec::new()));
        }
        assert_eq!(held(&views), [vec![], vec![]] as [Vec<String>; 2]);
    }

    #[test]
    fn a_zone_that_asked_before_gets_no_key_by_hiding_it() {
        let asked = resource(&kinds::secret::GLOBAL_SECRET, &issuing::request_secret("zone-1"), "");
        let asked = Resource { key: ResourceKey::global(&GLOBAL_SECRET, asked.name()), ..asked };
        let key = |name| {
            resource(&kinds::secret::SECRET, name, "")
                .with_label(labels::ISSUING, labels::ISSUING_ZONE)
                .with_spec(token::secret_spec(token::new_signing_key().unwrap().pem()))
        };
        let keys = ["dataplane-token-signing-key-default-1", "default.ca-builtin-key-ca"].map(key);
        let index = index(1, keys.into_iter().chain([asked]).collect());
        let of = |zone: &str| {
            let view = ZoneView::new(zone.into(), Features::default(), None, shared(), &index);
            names(&view, &kinds::secret::SECRET)
        };
        assert_eq!(of("zone-1"), ["dataplane-token-signing-public-key-default-1.default"]);
        assert_eq!(of("zone-2").len(), 2);
    }

    #[test]
    fn zones_share_one_encoding() {
        let shared = shared();
        let index = index(1, vec![resource(&mesh_timeout::KIND, "t", "")]);
        let views = ["zone-1", "zone-2"]
            .map(|zone| ZoneView::new(zone.into(), Features::ours(), None, Arc::clone(&shared), &index));
        let sent = views.map(|view| {
            let name = names(&view, &mesh_timeout::KIND).remove(0);
            view.get("MeshTimeout", &name).map(|wanted| wanted.value.as_ptr())
        });
        assert_eq!(sent[0], sent[1]);
    }
}
