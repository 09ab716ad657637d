//! What zones hold, as resources of global: which name and owner each has there. Pure.
//!
//! A zone has one say about each: what it tells of one once more is refused, so that nobody counts for several by
//! repeating himself, and there are no more contents of a resource than zones.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use common::{
    ca, issuing,
    kds::{attribution, filter::Audience, headers::Upstream, holdings::HeldResource, ownership},
    model::{
        Origin, Resource, ResourceKey,
        kinds::{self, mesh, secret},
        labels, names,
    },
    store::index::Index,
    token,
};

use crate::kds::ZoneHoldings;

/// One content of a resource, and who has it.
#[derive(Clone, Debug)]
pub(super) struct HeldVersion {
    /// As it would stand on global; `modified` is the latest among its holders.
    pub(super) resource: Resource,
    /// Who holds it.
    pub(super) zones: BTreeSet<Arc<str>>,
    /// The furthest of them.
    pub(super) taken: Option<Upstream>,
}

/// Everything zones hold, by what it is called on global.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// All contents of each resource.
    pub(super) versions: BTreeMap<ResourceKey, Vec<HeldVersion>>,
    /// Keys of which zones have no more than the public half, and that. Of one about which they differ nobody can say
    /// what it is, so it is not among these.
    pub(super) public_halves: BTreeMap<ResourceKey, HeldVersion>,
    /// What is not restored, by zone: it claims to be another's, or the like. The first of it.
    pub(super) refused: BTreeMap<Arc<str>, Vec<String>>,
}

/// Reasons that are kept of one zone.
pub(super) const REASONS: usize = 20;

impl Evidence {
    /// Reads what `zones` hold.
    pub(super) fn of(zones: &[ZoneHoldings], index: &Index) -> Self {
        let mut evidence = Self::default();
        let guarded = zone_only_meshes(zones, index);
        let asked: BTreeSet<&str> = zones.iter().map(|zone| &*zone.zone).collect();
        let mut disputed = BTreeSet::new();
        for zone in zones {
            // The whole of a key and its public half go by the same name, and are two things to hold.
            let (mut resources, mut halves) = (BTreeSet::new(), BTreeSet::new());
            for held in &zone.held {
                match on_global(held, &zone.zone, &asked, &guarded) {
                    Found::Resource(resource) if resources.insert(resource.key.clone()) => {
                        evidence.add(*resource, zone);
                    }
                    Found::Resource(resource) => evidence.refuse(&zone.zone, repeated(&resource.key)),
                    Found::PublicHalf(key, half) if halves.insert(key.clone()) => {
                        if !evidence.add_half(&key, *half, zone) {
                            disputed.insert(key);
                        }
                    }
                    Found::PublicHalf(_, half) => evidence.refuse(&zone.zone, repeated(&half.key)),
                    Found::Elsewhere => {}
                    Found::Refused(reason) => evidence.refuse(&zone.zone, reason),
                }
            }
        }
        evidence.refuse_other_keys();
        for key in disputed {
            let named = evidence.public_halves.remove(&key);
            for zone in named.into_iter().flat_map(|half| half.zones) {
                evidence.refuse(&zone, format!("{key}: zones hold different public halves of it"));
            }
        }
        evidence
    }

    fn refuse(&mut self, zone: &Arc<str>, reason: String) {
        let reasons = self.refused.entry(Arc::clone(zone)).or_default();
        if reasons.len() < REASONS {
            reasons.push(reason);
        }
    }

    /// Of a key of which somebody holds the public half no other is believed.
    fn refuse_other_keys(&mut self) {
        let mut refused = Vec::new();
        for (key, half) in &self.public_halves {
            let Some(versions) = self.versions.get_mut(key) else { continue };
            let is_whole = |held: &HeldVersion| {
                let public = token::public_half(&held.resource);
                public.is_ok_and(|(_, pem)| token::secret_spec(pem) == half.resource.spec)
            };
            let (whole, others) = std::mem::take(versions).into_iter().partition(is_whole);
            *versions = whole;
            for zone in others.into_iter().flat_map(|held| held.zones) {
                let reason = format!("{key}: others hold the public half of another key of this name");
                refused.push((zone, reason));
            }
        }
        for (zone, reason) in refused {
            self.refuse(&zone, reason);
        }
        self.versions.retain(|_, versions| !versions.is_empty());
    }

    fn add(&mut self, resource: Resource, zone: &ZoneHoldings) {
        let versions = self.versions.entry(resource.key.clone()).or_default();
        let same = |version: &&mut HeldVersion| {
            let known = &version.resource;
            known.spec == resource.spec && known.labels == resource.labels && known.origin == resource.origin
        };
        match versions.iter_mut().find(same) {
            Some(version) => {
                if is_further((zone.taken, resource.modified), (version.taken, version.resource.modified)) {
                    version.taken = zone.taken;
                }
                version.resource.modified = version.resource.modified.max(resource.modified);
                version.zones.insert(Arc::clone(&zone.zone));
            }
            None => {
                let zones = BTreeSet::from([Arc::clone(&zone.zone)]);
                versions.push(HeldVersion { resource, zones, taken: zone.taken });
            }
        }
    }

    /// Whether it is the half that others hold, or nobody else holds any.
    fn add_half(&mut self, key: &ResourceKey, resource: Resource, zone: &ZoneHoldings) -> bool {
        let Some(known) = self.public_halves.get_mut(key) else {
            let held =
                HeldVersion { resource, zones: BTreeSet::from([Arc::clone(&zone.zone)]), taken: zone.taken };
            self.public_halves.insert(key.clone(), held);
            return true;
        };
        known.zones.insert(Arc::clone(&zone.zone));
        if is_further((zone.taken, resource.modified), (known.taken, known.resource.modified)) {
            known.taken = zone.taken;
        }
        known.resource.spec == resource.spec
    }

    /// Whether `zone` holds any content of `key`.
    pub(super) fn holds(&self, zone: &str, key: &ResourceKey) -> bool {
        self.versions.get(key).into_iter().flatten().any(|version| version.zones.contains(zone))
    }
}

/// Whether the first stands for a later state of global than the second. Revisions of one history are compared; where
/// there are none, the times at which zones took it are.
pub(super) fn is_further(
    (a, a_modified): (Option<Upstream>, DateTime<Utc>),
    (b, b_modified): (Option<Upstream>, DateTime<Utc>),
) -> bool {
    match (a, b) {
        (Some(a), Some(b)) if a.store_id == b.store_id && (a.epoch, a.revision) != (b.epoch, b.revision) => {
            (a.epoch, a.revision) > (b.epoch, b.revision)
        }
        _ => a_modified > b_modified,
    }
}

fn repeated(key: &ResourceKey) -> String {
    format!("{key}: told more than once, and the first counts")
}

/// What a holding is on global.
enum Found {
    /// This.
    Resource(Box<Resource>),
    /// No more than the public half of the key of this name.
    PublicHalf(ResourceKey, Box<Resource>),
    /// Who owns it is asked as well, or nobody keeps it on global.
    Elsewhere,
    /// Not what a zone may hold.
    Refused(String),
}

/// Meshes whose keys no zone was ever sent: global says so, or anybody who holds the mesh.
fn zone_only_meshes(zones: &[ZoneHoldings], index: &Index) -> BTreeSet<String> {
    let stored = index.list(&mesh::KIND).map(|mesh| &**mesh);
    let held = zones.iter().flat_map(|zone| &zone.held).map(|held| &held.resource);
    let all = stored.chain(held.filter(|resource| resource.kind() == &mesh::KIND));
    all.filter(|mesh| issuing::is_by_zone_only(mesh)).map(|mesh| mesh.display_name().to_owned()).collect()
}

fn on_global(
    held: &HeldResource,
    zone: &Arc<str>,
    asked: &BTreeSet<&str>,
    guarded: &BTreeSet<String>,
) -> Found {
    let mut resource = held.resource.clone();
    resource.owner = None;
    let owner = match (held.own, resource.label(labels::ZONE)) {
        (true, _) => Some(Arc::clone(zone)),
        (false, Some(owner)) => Some(owner.into()),
        (false, None) => None,
    };
    let Some(owner) = owner else { return of_global(resource, guarded) };
    if !resource.kind().flow.across_zones() {
        return Found::Elsewhere;
    }
    if !held.own && asked.contains(&*owner) {
        return Found::Elsewhere;
    }
    of_zone(resource, &owner)
}

/// A resource of a zone, under the name it has on global anyway.
fn of_zone(mut resource: Resource, owner: &Arc<str>) -> Found {
    let key = resource.key.clone();
    match attribution::pin(key.kind, &mut resource.labels, &mut resource.spec, owner) {
        Err(error) => return Found::Refused(format!("{key}: {error}")),
        Ok(Some(claim)) => return Found::Refused(format!("{key} is said to be of zone {owner}: {claim}")),
        Ok(None) => {}
    }
    if ownership::claim(&key, &resource.labels, owner).is_none() || !names::is_hashed(&key.name) {
        return Found::Refused(format!("{key} has no name of zone {owner}"));
    }
    resource.origin = Origin::Zone(Arc::clone(owner));
    resource.owner = Some(ResourceKey::global(&kinds::zone::KIND, owner));
    Found::Resource(Box::new(resource))
}

/// A resource of global, under the name its author gave it.
fn of_global(mut resource: Resource, guarded: &BTreeSet<String>) -> Found {
    let kind = resource.kind();
    if !kind.flow.global_to_zone() {
        return Found::Elsewhere;
    }
    if let Some(key) = private_half(&resource.key) {
        // The mark keeps a key from zones that sign by themselves; its public half is for everybody.
        resource.labels.remove(labels::ISSUING);
        return Found::PublicHalf(key, Box::new(resource));
    }
    let name = resource.display_name();
    if !kind.keeps_name && names::hashed_name(&resource) == *resource.key.name {
        resource.key = ResourceKey::new(kind, resource.mesh(), name);
    }
    let owned = kind.is_mesh_scoped() && !kind.outlives_mesh;
    resource.owner = owned.then(|| ResourceKey::global(&mesh::KIND, resource.mesh()));
    resource.origin = Origin::Global;
    resource.status = None;
    // What global keeps to itself no zone has, whatever it says: it would make its keys those of users.
    let is_secret = kind == &secret::SECRET || kind == &secret::GLOBAL_SECRET;
    // What a zone says of a key, its mark among it, is nothing to go by.
    let (mesh, name) = (resource.mesh(), resource.name());
    let signs = token::is_dataplane_key(name) || ca::is_key_secret(mesh, name);
    let is_guarded = signs && guarded.contains(mesh);
    let is_kept = token::is_zone_key(name) || is_guarded || Audience::of(&resource).is_empty();
    if is_secret && is_kept {
        return Found::Refused(format!("{}: zones are never sent this", resource.key));
    }
    Found::Resource(Box::new(resource))
}

/// The key on global whose public half is stored under `key` in zones.
fn private_half(key: &ResourceKey) -> Option<ResourceKey> {
    let is_secret = key.kind == &secret::SECRET || key.kind == &secret::GLOBAL_SECRET;
    let name = is_secret.then(|| token::private_half(&key.name)).flatten()?;
    Some(ResourceKey::new(key.kind, &key.mesh, &name))
}
