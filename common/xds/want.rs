//! What one peer should have.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use prost::encoding::{WireType, encode_key, encode_varint};

use super::{OwnVersion, Version, envoy::SECRET, variant};
use crate::proto::{
    envoy::service::discovery::v3::{Resource, resource::CacheControl},
    google::protobuf::{self, Any},
};

/// The name of a resource on the wire, shared by every stream that knows it.
pub type Name = Arc<str>;

/// What one peer should have, type by type, at one revision.
///
/// The engine reads through this and keeps nothing but names and versions. Implementations read an
/// immutable snapshot, so that one step of the engine sees one revision.
pub trait Want {
    /// The revision this is at: how progress is counted.
    fn revision(&self) -> u64;

    /// What responses say in `system_version_info`. Empty for peers that expect nothing there.
    fn stamp(&self) -> String {
        String::new()
    }

    /// Whether the state of this type is known. Until it is, the peer hears nothing about the type: an
    /// answer would say "there is none".
    fn ready(&self, type_url: &str) -> bool;

    /// Visits the name and version of every resource of a type.
    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version));

    /// One resource.
    fn get(&self, type_url: &str, name: &str) -> Option<Wanted>;

    /// Visits the resources of a type whose name begins with `prefix`.
    fn under(&self, type_url: &str, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        if let Some(all) = self.collection(type_url) {
            return all.under(prefix, visit);
        }
        let mut names = Vec::new();
        self.each(type_url, &mut |name, _| names.extend(name.starts_with(prefix).then(|| Arc::clone(name))));
        names.iter().filter_map(|name| self.get(type_url, name)).for_each(visit);
    }

    /// The resources of a type as something that stays as it is: what a peer holds is kept as a reference
    /// to it then, and not name by name. It has what [`each`](Self::each) and [`get`](Self::get) show.
    fn collection(&self, _type_url: &str) -> Option<Arc<dyn Collection>> {
        None
    }
}

/// The resources of one type at one moment, shared by everybody who was sent them.
pub trait Collection: fmt::Debug + Send + Sync {
    /// One resource.
    fn get(&self, name: &str) -> Option<Wanted>;

    /// Its version.
    fn version(&self, name: &str) -> Option<Version> {
        self.get(name).map(|wanted| wanted.version)
    }

    /// Visits all of them, in the order of their names.
    fn each(&self, visit: &mut dyn FnMut(Wanted));

    /// Visits those whose name begins with `prefix`.
    fn under(&self, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        self.each(&mut |wanted| {
            if wanted.name.starts_with(prefix) {
                visit(wanted);
            }
        });
    }

    /// How many there are.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Digits of a version.
const DIGITS: usize = 32;

/// One resource in the form it is sent in. Encoded once and shared; cloning copies no content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its name on the wire.
    pub name: Name,
    /// The version of `value`.
    pub version: Version,
    /// Type URL of the `Any`.
    pub type_url: &'static str,
    /// The encoded message.
    pub value: Bytes,
    /// What peers are told in place of the version. Two that differ in it differ in the version as well.
    pub own_version: Option<Arc<OwnVersion>>,
    /// It is for who asks for it, and not for who asks for all of a route configuration.
    pub on_demand: bool,
}

impl Wanted {
    /// A resource whose version is the digest of its content.
    pub fn new(name: impl Into<Name>, type_url: &'static str, value: impl Into<Bytes>) -> Self {
        let value = value.into();
        Self {
            name: name.into(),
            version: Version::of(&value),
            type_url,
            value,
            own_version: None,
            on_demand: false,
        }
    }

    /// The same under another name, also in its content, where the name is the first member of every type.
    pub(super) fn renamed(self, name: &str) -> Self {
        const NAME: u32 = 1;
        let mut value = BytesMut::with_capacity(self.value.len() + name.len() + 8);
        value.extend_from_slice(&self.value);
        // Of a member that is there twice, readers take the last.
        encode_key(NAME, WireType::LengthDelimited, &mut value);
        encode_varint(name.len() as u64, &mut value);
        value.extend_from_slice(name.as_bytes());
        Self { name: name.into(), value: value.freeze(), ..self }
    }

    /// The version as peers are told it.
    pub fn told_version(&self) -> Cow<'_, str> {
        match &self.own_version {
            Some(own) => Cow::Borrowed(&*own.text),
            None => Cow::Owned(self.version.to_string()),
        }
    }

    /// Bytes of that.
    pub(super) fn told_version_len(&self) -> usize {
        self.own_version.as_ref().map_or(DIGITS, |own| own.text.len())
    }

    /// About how many bytes it takes in a delta response.
    pub fn size(&self) -> usize {
        const FRAMING: usize = 24;
        let version = self.told_version_len();
        self.value.len() + self.type_url.len() + self.name.len() + version + FRAMING
    }

    pub(super) fn to_any(&self) -> Any {
        Any { type_url: self.type_url.to_owned(), value: self.value.to_vec() }
    }

    /// Whether nobody between this side and the peer may keep it: keys stand in it.
    pub(super) fn is_private(&self) -> bool {
        self.type_url == SECRET
    }

    pub(super) fn to_resource(&self, ttl: Option<Duration>) -> Resource {
        let cache_control = self.is_private().then_some(CacheControl { do_not_cache: true });
        let bare = bare(&self.name, self.told_version().into_owned(), ttl);
        Resource { resource: Some(self.to_any()), cache_control, ..bare }
    }
}

/// What says of a resource that it goes on.
pub(super) fn bare(name: &str, version: String, ttl: Option<Duration>) -> Resource {
    let ttl = ttl.map(|ttl| protobuf::Duration {
        // Nobody keeps anything for as long as would not fit.
        seconds: i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(ttl.subsec_nanos()).unwrap_or_default(),
    });
    let resource_name = variant::resource_name(name);
    let name = if resource_name.is_some() { String::new() } else { name.to_owned() };
    Resource { name, resource_name, version, ttl, ..Resource::default() }
}

/// A [`Want`] held in memory: the configuration of one proxy, or a test's idea of the world.
#[derive(Clone, Debug, Default)]
pub struct WantSnapshot {
    /// The revision it was made from.
    pub revision: u64,
    types: BTreeMap<&'static str, Arc<SnapshotOfType>>,
}

#[derive(Clone, Debug, Default)]
struct SnapshotOfType(BTreeMap<Name, Wanted>);

impl WantSnapshot {
    /// An empty snapshot: every type is known, and there is nothing of any.
    pub fn new(revision: u64) -> Self {
        Self { revision, types: BTreeMap::new() }
    }

    /// Adds or replaces one resource. Its type on the stream is that of its content.
    pub fn put(&mut self, wanted: Wanted) {
        self.put_as(wanted.type_url, wanted);
    }

    /// Adds or replaces one resource of a type whose name is not the type URL of the content.
    pub fn put_as(&mut self, type_url: &'static str, wanted: Wanted) {
        let resources = self.types.entry(type_url).or_default();
        Arc::make_mut(resources).0.insert(Arc::clone(&wanted.name), wanted);
    }

    /// Takes one resource out.
    pub fn remove(&mut self, type_url: &str, name: &str) {
        if let Some(resources) = self.types.get_mut(type_url) {
            Arc::make_mut(resources).0.remove(name);
        }
    }

    /// The resources of a type, by name.
    pub fn list(&self, type_url: &str) -> impl Iterator<Item = &Wanted> {
        self.types.get(type_url).into_iter().flat_map(|resources| resources.0.values())
    }

    /// The names whose version differs between `older` and this, by type: what to tell a stream.
    pub fn changed_since(&self, older: &Self) -> BTreeMap<&'static str, Vec<Name>> {
        let mut changed: BTreeMap<&'static str, Vec<Name>> = BTreeMap::new();
        for (this, that, gone_only) in [(self, older, false), (older, self, true)] {
            for (type_url, resources) in &this.types {
                let others = that.types.get(type_url);
                let differs = resources.0.values().filter(|wanted| {
                    let other = others.and_then(|others| others.0.get(&wanted.name));
                    other.is_none_or(|other| !gone_only && other.version != wanted.version)
                });
                let names: Vec<Name> = differs.map(|wanted| Arc::clone(&wanted.name)).collect();
                if !names.is_empty() {
                    changed.entry(type_url).or_default().extend(names);
                }
            }
        }
        changed
    }
}

impl Want for WantSnapshot {
    fn revision(&self) -> u64 {
        self.revision
    }

    fn ready(&self, _type_url: &str) -> bool {
        true
    }

    fn each(&self, type_url: &str, visit: &mut dyn FnMut(&Name, Version)) {
        self.list(type_url).for_each(|wanted| visit(&wanted.name, wanted.version));
    }

    fn get(&self, type_url: &str, name: &str) -> Option<Wanted> {
        self.types.get(type_url)?.0.get(name).cloned()
    }

    fn collection(&self, type_url: &str) -> Option<Arc<dyn Collection>> {
        Some(self.types.get(type_url).map_or_else(Arc::<SnapshotOfType>::default, Arc::clone))
    }
}

impl Collection for SnapshotOfType {
    fn get(&self, name: &str) -> Option<Wanted> {
        self.0.get(name).cloned()
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.0.get(name).map(|wanted| wanted.version)
    }

    fn each(&self, visit: &mut dyn FnMut(Wanted)) {
        self.0.values().cloned().for_each(visit);
    }

    fn under(&self, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        let after = (std::ops::Bound::Included(prefix), std::ops::Bound::Unbounded);
        let named = self.0.range::<str, _>(after).take_while(|(name, _)| name.starts_with(prefix));
        named.map(|(_, wanted)| wanted.clone()).for_each(visit);
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{WantSnapshot, Wanted};

    #[test]
    fn changed_since_names_what_was_added_altered_or_removed() {
        let resource = |name: &str, value: &'static str| Wanted::new(name, "t", value);
        let mut old = WantSnapshot::new(1);
        for (name, value) in [("same", "1"), ("altered", "1"), ("removed", "1")] {
            old.put(resource(name, value));
        }
        let mut new = old.clone();
        new.remove("t", "removed");
        new.put(resource("altered", "2"));
        new.put(resource("added", "1"));
        let changed = new.changed_since(&old);
        let names: Vec<&str> = changed["t"].iter().map(|name| &**name).collect();
        assert_eq!(names, ["added", "altered", "removed"]);
        assert!(new.changed_since(&new).is_empty());
    }
}
