//! Which resources, in which form, one zone should hold. Pure: a view reads what leaves global at one index.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use common::{
    issuing,
    kds::{
        features::{Features, ISSUING},
        filter::{Audience, Receiver},
        headers::Upstream,
        mapper::{self, DownForm, MapError},
        outgoing::{
            ChangedNames, OutgoingForm, OutgoingResource, OutgoingResources, ReceiverSelection,
            SelectedTypes, SharedOutgoing,
        },
        serve::View,
    },
    model::{
        Kind, Origin, Resource, ResourceKey,
        kinds::secret::{GLOBAL_SECRET, SECRET},
    },
    store::{StoreIdentity, index::Index},
    xds::{Collection, Name, Version, Want, Wanted},
};

use super::{
    running::{RunningMeshes, ZoneMeshes},
    signing::Signatures,
};

/// The form of everything that goes down to zones that understand hashed names.
pub(crate) struct Downward {
    pub(crate) form: DownForm,
    pub(crate) signatures: Signatures,
    /// The largest resource that can be sent, in bytes.
    pub(crate) largest: usize,
}

impl OutgoingForm for Downward {
    fn audiences(&self, resource: &Resource) -> Vec<Audience> {
        Audience::of(resource)
    }

    fn map(&self, resource: &Resource, audience: &Audience) -> Result<Resource, MapError> {
        let mut mapped = match audience.gets_public_half() {
            true => mapper::down_public(resource, &self.form)?,
            false => mapper::down(resource, &self.form)?,
        };
        self.signatures.put_on(&mut mapped);
        Ok(mapped)
    }

    fn largest(&self) -> usize {
        self.largest
    }
}

/// What one zone should hold.
pub(crate) struct ZoneView {
    /// The history in which each response says where global stands; only for peers that expect it.
    shown: Option<StoreIdentity>,
    shared: Arc<SharedOutgoing<Downward>>,
    outgoing: Arc<OutgoingResources>,
    /// Who knows what runs in the zone, where it gets secrets only of that.
    running: Option<Arc<RunningMeshes>>,
    meant: MeantFor,
    selected: SelectedTypes<MeantFor>,
}

/// What is meant for one zone.
#[derive(Clone, Debug)]
struct MeantFor {
    receiver: Arc<ZoneReceiver>,
    /// Zones an operator took out of cross-zone traffic.
    disabled: Arc<BTreeSet<Arc<str>>>,
    /// What runs in the zone, where it gets secrets only of that.
    runs: Option<Arc<ZoneMeshes>>,
}

#[derive(Debug)]
struct ZoneReceiver {
    zone: Arc<str>,
    features: Features,
    /// Whether it signs with a key of its own, or did before: one that now says otherwise may have been taken
    /// over, and does not get by it what was kept from it.
    issues: bool,
}

impl ReceiverSelection for MeantFor {
    fn includes(&self, item: &OutgoingResource) -> bool {
        let needed = self.runs.as_ref().is_none_or(|meshes| meshes.need(&item.resource));
        needed && self.is_meant(&item.audience)
    }

    fn is_meant(&self, audience: &Audience) -> bool {
        let ZoneReceiver { zone, features, issues } = &*self.receiver;
        audience.includes(Receiver { zone, features, issues: *issues }, |zone| !self.disabled.contains(zone))
    }
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
        let outgoing = shared.for_zone(&zone, index);
        let request = ResourceKey::global(&GLOBAL_SECRET, &issuing::request_secret(&zone));
        let issues = features.has(ISSUING) || index.get(&request).is_some();
        let receiver = Arc::new(ZoneReceiver { zone, features, issues });
        let meant = MeantFor { receiver, disabled: Arc::clone(&outgoing.disabled), runs: None };
        let selected = SelectedTypes::of(&outgoing, &meant);
        Self { shown, shared, outgoing, running: None, meant, selected }
    }

    /// The same without the secrets of meshes of which nothing runs in the zone, if there is somebody who knows.
    pub(crate) fn where_run(self, running: Option<Arc<RunningMeshes>>, index: &Arc<Index>) -> Self {
        let runs = running.as_ref().map(|running| running.of(&self.meant.receiver.zone, index));
        let meant = MeantFor { runs, ..self.meant };
        let selected = SelectedTypes::of(&self.outgoing, &meant);
        Self { running, meant, selected, ..self }
    }

    /// Takes in what runs in the zone now: which secrets of `outgoing` it has a use for from now on, or no more.
    fn follow_running(
        &mut self,
        index: &Arc<Index>,
        outgoing: &OutgoingResources,
        changed: &mut ChangedNames,
    ) {
        let (Some(running), Some(known)) = (&self.running, &self.meant.runs) else { return };
        let now = running.of(&self.meant.receiver.zone, index);
        if now.run_as(known) {
            return;
        }
        let differs = |item: &&Arc<OutgoingResource>| known.need(&item.resource) != now.need(&item.resource);
        let secrets = outgoing.candidates(SECRET.name).filter(differs);
        let names: Vec<Name> = secrets.map(|item| Arc::clone(&item.wanted.name)).collect();
        if !names.is_empty() {
            changed.entry(SECRET.name).or_default().extend(names);
        }
        self.meant.runs = Some(now);
    }
}

impl View for ZoneView {
    fn key_of(&self, type_name: &str, name: &str) -> Option<ResourceKey> {
        self.selected.of_type(type_name).item(name).map(|item| item.resource.key.clone())
    }

    fn advance(&mut self, index: &Arc<Index>) -> ChangedNames {
        // A rollout that lets the zone have something, or keeps it back, is one more change.
        let outgoing = self.shared.for_zone(&self.meant.receiver.zone, index);
        let mut changed = outgoing.changed_since(&self.outgoing);
        let same_zones = Arc::ptr_eq(&outgoing.disabled, &self.outgoing.disabled);
        if !same_zones {
            for zone in outgoing.disabled.symmetric_difference(&self.outgoing.disabled) {
                for (kind, name) in cross_zone_names(&outgoing, zone) {
                    changed.entry(kind).or_default().push(name);
                }
            }
        }
        self.follow_running(index, &outgoing, &mut changed);
        if same_zones && outgoing.index.store == self.outgoing.index.store {
            self.selected.advance(&outgoing, &changed, &self.meant);
        } else {
            self.meant.disabled = Arc::clone(&outgoing.disabled);
            self.selected = SelectedTypes::of(&outgoing, &self.meant);
        }
        self.outgoing = outgoing;
        changed
    }

    fn withheld(&self) -> BTreeMap<&'static str, String> {
        self.outgoing.withheld_from(&self.meant)
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
        self.selected.of_type(type_url).each_version(visit);
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.selected.of_type(type_url).get(name)
    }

    fn collection(&self, type_url: &str) -> Option<Arc<dyn Collection>> {
        Some(Arc::clone(self.selected.of_type(type_url)) as Arc<dyn Collection>)
    }
}

fn cross_zone_names(outgoing: &OutgoingResources, zone: &str) -> Vec<(&'static str, Name)> {
    let shared = |kind: &&Kind| kind.flow.across_zones() || kind.flow.across_our_zones();
    let kinds = common::kds::order::served_to_zones().into_iter().filter(shared);
    let owned = |item: &&Arc<OutgoingResource>| matches!(&item.resource.origin, Origin::Zone(owner) if **owner == *zone);
    kinds
        .flat_map(|kind| {
            outgoing
                .candidates(kind.name)
                .filter(owned)
                .map(|item| (kind.name, Arc::clone(&item.wanted.name)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{kinds, labels},
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
        Arc::new(SharedOutgoing::new(Downward { form, signatures: Signatures::None, largest: usize::MAX }))
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
    fn secrets_go_where_their_mesh_runs_and_leave_with_it() {
        let secret = || resource(&kinds::secret::SECRET, "ca", "");
        let proxy = || resource(&kinds::dataplane::KIND, "web", "zone-1");
        let (shared, running) = (shared(), Arc::<RunningMeshes>::default());
        let before = index(1, vec![secret()]);
        let view = |zone: &str| {
            let view = ZoneView::new(zone.into(), Features::ours(), None, Arc::clone(&shared), &before);
            view.where_run(Some(Arc::clone(&running)), &before)
        };
        let (mut view, mut other) = (view("zone-1"), view("zone-2"));
        assert!(names(&view, &kinds::secret::SECRET).is_empty());
        let after = index(2, vec![secret(), proxy()]);
        assert_eq!(view.advance(&after).get("Secret").map(Vec::len), Some(1));
        assert_eq!(names(&view, &kinds::secret::SECRET).len(), 1);
        assert!(other.advance(&after).is_empty() && names(&other, &kinds::secret::SECRET).is_empty());
        // The last proxy leaves, and another comes: only the former changes anything.
        let more = Resource { key: ResourceKey::new(&kinds::dataplane::KIND, "default", "db"), ..proxy() };
        assert!(view.advance(&index(3, vec![secret(), more.clone()])).is_empty());
        let gone = view.advance(&index(4, vec![secret()]));
        assert_eq!(gone.get("Secret").map(Vec::len), Some(1));
        assert!(names(&view, &kinds::secret::SECRET).is_empty());
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
    fn what_a_zone_has_of_a_type_stays_in_place_while_nothing_of_it_changes() {
        let timeout = |name: &str| resource(&mesh_timeout::KIND, name, "");
        let ingress = || resource(&kinds::zone_ingress::KIND, "in", "zone-2");
        let before = index(1, vec![timeout("t"), ingress()]);
        let mut view = ZoneView::new("zone-1".into(), Features::ours(), None, shared(), &before);
        let place = |view: &ZoneView, kind: &Kind| {
            Arc::as_ptr(&view.collection(kind.name).unwrap()).cast::<()>() as usize
        };
        let len = |view: &ZoneView, kind: &Kind| view.collection(kind.name).unwrap().len();
        let (timeouts, ingresses, secrets) =
            (&mesh_timeout::KIND, &kinds::zone_ingress::KIND, &kinds::secret::SECRET);
        let places = [timeouts, ingresses, secrets].map(|kind| place(&view, kind));
        view.advance(&index(2, vec![timeout("t"), timeout("u"), ingress()]));
        assert_eq!((len(&view, timeouts), len(&view, ingresses), len(&view, secrets)), (2, 1, 0));
        assert_ne!(place(&view, timeouts), places[0]);
        assert_eq!([ingresses, secrets].map(|kind| place(&view, kind)), places[1..]);
        // What a zone may not have any more is not in there either.
        view.advance(&index(3, vec![timeout("t"), timeout("u"), ingress(), zone("zone-2", false)]));
        assert_eq!((len(&view, timeouts), len(&view, ingresses)), (2, 0));
    }

    /// `zone-1` with namespace `0` and `zone-10` without one make the same name.
    #[test]
    fn of_two_with_one_name_a_zone_has_the_better_one_that_is_for_it() {
        let kind = &kinds::mesh_service::KIND;
        let sent = |zone: &str, namespace: &str| {
            let mut own = resource(kind, "web", "");
            own.labels.extend((!namespace.is_empty()).then_some((labels::NAMESPACE, namespace)));
            let sent = mapper::up(&own, zone, &[]).unwrap();
            Resource { origin: Origin::Zone(zone.into()), ..sent }
        };
        let (honest, mut thief) = (sent("zone-10", ""), sent("zone-1", "0"));
        assert_eq!(honest.key, thief.key);
        // A zone that hashes no names is free in what they are here.
        thief.key = ResourceKey::new(kind, "default", "zone-1.web.0");
        let shared = shared();
        let both = || vec![honest.clone(), thief.clone()];
        let before = index(1, both());
        let mut views = ["west", "zone-10", "zone-1"]
            .map(|zone| ZoneView::new(zone.into(), Features::ours(), None, Arc::clone(&shared), &before));
        let has = |views: &[ZoneView; 3]| {
            views.each_ref().map(|view| {
                let names = names(view, kind);
                names.first().and_then(|name| view.key_of(kind.name, name)).map(|key| key.name.to_string())
            })
        };
        let (h, t) = (Some(honest.name().to_owned()), Some(thief.name().to_owned()));
        assert_eq!(has(&views), [h.clone(), t.clone(), h.clone()]);
        let withheld = views.each_ref().map(|view| view.withheld().remove(kind.name).unwrap_or_default());
        assert!(
            withheld[0].starts_with("MeshService default/zone-1.web.0: it would be sent as"),
            "{withheld:?}"
        );
        assert!(withheld[0].contains("of zone zone-10, which goes before it"), "{withheld:?}");
        assert_eq!(withheld[1..], ["", ""], "only one of them is for these");

        let mut advance = |revision, resources| {
            let next = index(revision, resources);
            let named = views.each_mut().map(|view| view.advance(&next).contains_key(kind.name));
            (has(&views), named)
        };
        let taken_out = both().into_iter().chain([zone("zone-10", false)]).collect();
        let (now, named) = advance(2, taken_out);
        assert_eq!((now, named[0]), ([t.clone(), t.clone(), None], true));
        assert_eq!(advance(3, both()).0, [h.clone(), t.clone(), h.clone()]);
        // The thief goes, and takes nothing with him.
        assert_eq!(advance(4, vec![honest.clone()]).0, [h.clone(), None, h.clone()]);
        assert_eq!(advance(5, both()).0, [h, t.clone(), Some(honest.name().to_owned())]);
        let (now, named) = advance(6, vec![thief.clone()]);
        assert_eq!((now, named), ([t.clone(), t, None], [true; 3]));
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
