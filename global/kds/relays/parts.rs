//! What a relay holds, and states in parts that fit into messages.

use std::{collections::BTreeMap, sync::Arc};

use common::{
    kds::{
        outgoing::{ChangedNames, OutgoingResource, OutgoingResources},
        size::largest_sent,
    },
    model::Origin,
    proto::{
        google::protobuf::Any,
        strait::relay::v1alpha1::{RelayFollowResponse, RelayHeld, RelayResource},
    },
    registry,
    xds::Name,
};
use prost::Message;
use thiserror::Error;

/// Bytes of resources in one message, where they fit.
const PART: usize = 512 * 1024;
/// What stands around an item in a message, in bytes.
const FRAMING: usize = 8;
/// Resources a relay may say it holds: ten times what one global is made for.
const MOST_HELD: usize = 1_000_000;
/// And bytes of their names and versions.
const MOST_HELD_BYTES: usize = 256 << 20;

/// A relay says that it holds more than anybody has.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum HeldError {
    #[error("the relay holds more than {MOST_HELD} resources")]
    Many,
    #[error("what the relay holds is called by more than {MOST_HELD_BYTES} bytes")]
    Long,
}

/// What a relay holds: digests by type and name.
#[derive(Default)]
pub(super) struct HeldByRelay {
    versions: BTreeMap<(&'static str, Box<str>), [u8; 16]>,
    /// Of all it said, kept or not.
    said: usize,
    bytes: usize,
}

impl HeldByRelay {
    /// Takes down a part of it. What this side knows no type of, it sends nothing about.
    ///
    /// # Errors
    /// [`HeldError`] when it is more than is read.
    pub(super) fn take(&mut self, held: Vec<RelayHeld>) -> Result<(), HeldError> {
        self.said += held.len();
        self.bytes +=
            held.iter().map(|one| one.r#type.len() + one.name.len() + one.version.len()).sum::<usize>();
        if self.said > MOST_HELD {
            return Err(HeldError::Many);
        }
        if self.bytes > MOST_HELD_BYTES {
            return Err(HeldError::Long);
        }
        for RelayHeld { r#type, name, version } in held {
            if let Some(kind) = registry::by_name(&r#type) {
                // What is no digest equals none, so the resource is sent.
                let version = version.try_into().unwrap_or_default();
                self.versions.insert((kind.name, name.into()), version);
            }
        }
        Ok(())
    }

    /// Names of what the relay lacks of `outgoing`, or has and should not.
    pub(super) fn lacks(&self, outgoing: &OutgoingResources) -> ChangedNames {
        let mut changed = ChangedNames::new();
        for kind in registry::ALL.iter() {
            for item in outgoing.list(kind.name) {
                let held = self.versions.get(&(kind.name, Box::from(&*item.wanted.name)));
                if held != Some(item.wanted.version.as_bytes()) {
                    changed.entry(kind.name).or_default().push(Arc::clone(&item.wanted.name));
                }
            }
        }
        for (kind, name) in self.versions.keys().filter(|(kind, name)| outgoing.get(kind, name).is_none()) {
            changed.entry(kind).or_default().push(Name::from(&**name));
        }
        changed
    }
}

/// What may be in one message to a relay, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LargestSent {
    /// Of a resource that is alone in it.
    one: usize,
    /// Of several.
    part: usize,
}

impl LargestSent {
    /// Where this side sends messages of `ours` bytes, and the relay takes those of `theirs`, if it says so.
    pub(super) fn of(ours: usize, theirs: Option<u64>) -> Self {
        let theirs = theirs.map_or(usize::MAX, |theirs| usize::try_from(theirs).unwrap_or(usize::MAX));
        let one = largest_sent(ours.min(theirs));
        Self { one, part: PART.min(one) }
    }
}

/// The messages that bring a relay from what it has to a state, each made when it is asked for. The last one completes
/// the state.
pub(super) struct StateParts {
    outgoing: Arc<OutgoingResources>,
    names: Box<dyn Iterator<Item = (&'static str, Name)> + Send>,
    position: String,
    largest: LargestSent,
    /// What did not fit into the last one.
    left: Option<StateItem>,
    /// Resources the relay does not take because of their size, and one of them.
    withheld: (usize, Option<String>),
    is_over: bool,
}

/// Something in a message.
enum StateItem {
    Resource(RelayResource),
    Removed(RelayHeld),
}

impl StateItem {
    fn bytes(&self) -> usize {
        FRAMING
            + match self {
                Self::Resource(resource) => resource.encoded_len(),
                Self::Removed(removed) => removed.encoded_len(),
            }
    }

    fn put_into(self, message: &mut RelayFollowResponse) {
        match self {
            Self::Resource(resource) => message.resources.push(resource),
            Self::Removed(removed) => message.removed.push(removed),
        }
    }
}

impl StateParts {
    /// Those that bring what is named in `changed` to what it is in `outgoing`, which is at `position`.
    pub(super) fn new(
        outgoing: Arc<OutgoingResources>,
        changed: ChangedNames,
        position: String,
        largest: LargestSent,
    ) -> Self {
        let names =
            changed.into_iter().flat_map(|(kind, names)| names.into_iter().map(move |name| (kind, name)));
        let (left, withheld) = (None, (0, None));
        Self { outgoing, names: Box::new(names), position, largest, left, withheld, is_over: false }
    }

    /// Whether the last one was made.
    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    fn next_item(&mut self) -> Option<StateItem> {
        if let Some(left) = self.left.take() {
            return Some(left);
        }
        let (kind, name) = self.names.next()?;
        let found = self.outgoing.get(kind, &name);
        let is_too_large = found.filter(|item| item.wanted.size() > self.largest.one);
        if let Some(item) = is_too_large {
            self.withheld.0 += 1;
            self.withheld.1.get_or_insert_with(|| item.resource.key.to_string());
        }
        Some(match found.filter(|_| is_too_large.is_none()) {
            Some(item) => StateItem::Resource(on_the_wire(kind, item)),
            None => {
                let (name, version) = (name.to_string(), Vec::new());
                StateItem::Removed(RelayHeld { r#type: kind.to_owned(), name, version })
            }
        })
    }
}

impl Iterator for StateParts {
    type Item = RelayFollowResponse;

    fn next(&mut self) -> Option<RelayFollowResponse> {
        if self.is_over {
            return None;
        }
        let position = self.position.clone();
        let mut message = RelayFollowResponse { position, ..RelayFollowResponse::default() };
        let mut bytes = 0;
        while let Some(item) = self.next_item() {
            let more = item.bytes();
            if bytes > 0 && bytes + more > self.largest.part {
                self.left = Some(item);
                return Some(message);
            }
            bytes += more;
            item.put_into(&mut message);
        }
        if let (resources, Some(one)) = &self.withheld {
            tracing::warn!(
                resource = one,
                resources,
                "resources are withheld from a relay, which takes no message so large: raise its maxMsgSize"
            );
        }
        message.complete = true;
        self.is_over = true;
        Some(message)
    }
}

fn on_the_wire(kind: &'static str, item: &OutgoingResource) -> RelayResource {
    let zone = match &item.resource.origin {
        Origin::Global => String::new(),
        Origin::Zone(zone) => zone.to_string(),
    };
    let resource = Any { type_url: item.wanted.type_url.to_owned(), value: item.wanted.value.to_vec() };
    RelayResource { r#type: kind.to_owned(), zone, resource: Some(resource) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use chrono::DateTime;
    use common::{
        model::{Resource, ResourceKey, kinds},
        policy::mesh_timeout,
        store::{Snapshot, StoreIdentity, index::Index},
    };
    use uuid::Uuid;

    use super::*;
    use crate::kds::relays::form::ForRelays;

    fn outgoing(policies: &[(&str, usize)]) -> Arc<OutgoingResources> {
        let store = StoreIdentity { store_id: Uuid::nil(), epoch: 1 };
        let policy = |(name, filler): &(&str, usize)| {
            let key = ResourceKey::new(&mesh_timeout::KIND, "default", name);
            Resource::new(key, DateTime::UNIX_EPOCH).with_label("filler", &"x".repeat(*filler))
        };
        let mesh = Resource::new(ResourceKey::global(&kinds::mesh::KIND, "default"), DateTime::UNIX_EPOCH);
        let resources = policies.iter().map(policy).chain([mesh]).map(Arc::new).collect();
        let index = Arc::new(Index::of(store, Snapshot { revision: 7, commit: None, resources }));
        Arc::new(OutgoingResources::of(&index, &ForRelays::new(&[], usize::MAX)))
    }

    fn held(outgoing: &OutgoingResources) -> HeldByRelay {
        let kinds = registry::ALL.iter().map(|kind| kind.name);
        let all = kinds.flat_map(|kind| outgoing.list(kind).map(move |item| (kind, item)));
        let all = all.map(|(kind, item)| RelayHeld {
            r#type: kind.to_owned(),
            name: item.wanted.name.to_string(),
            version: item.wanted.version.as_bytes().to_vec(),
        });
        let mut held = HeldByRelay::default();
        held.take(all.collect()).unwrap();
        held
    }

    fn parts(there: &Arc<OutgoingResources>, changed: ChangedNames, max: usize) -> Vec<RelayFollowResponse> {
        StateParts::new(Arc::clone(there), changed, "p".to_owned(), LargestSent::of(max, None)).collect()
    }

    #[test]
    fn a_relay_is_told_what_it_lacks_and_nothing_else() {
        let there = outgoing(&[("a", 1), ("b", 1)]);
        assert_eq!(held(&there).lacks(&there), ChangedNames::new());
        let before = outgoing(&[("a", 2), ("c", 1)]);
        let mut changed = held(&before).lacks(&there).remove("MeshTimeout").unwrap_or_default();
        changed.sort();
        let changed: Vec<&str> = changed.iter().map(|name| &**name).collect();
        assert_eq!(changed, ["a.default", "b.default", "c.default"]);
        let nothing = HeldByRelay::default().lacks(&there);
        assert_eq!(nothing.values().map(Vec::len).sum::<usize>(), 3);
    }

    #[test]
    fn what_a_relay_says_it_holds_has_an_end_and_what_nobody_knows_is_not_kept() {
        let one = |r#type: &str, name: usize| RelayHeld {
            r#type: r#type.to_owned(),
            name: name.to_string(),
            version: vec![0; 40],
        };
        let mut held = HeldByRelay::default();
        held.take((0..1000).map(|name| one("Made up", name)).collect()).unwrap();
        held.take(vec![one("MeshTimeout", 1)]).unwrap();
        assert_eq!(held.versions.len(), 1);
        let mut held = HeldByRelay { bytes: MOST_HELD_BYTES, ..HeldByRelay::default() };
        assert_eq!(held.take(vec![one("Made up", 1)]), Err(HeldError::Long));
        let mut held = HeldByRelay { said: MOST_HELD, ..HeldByRelay::default() };
        assert_eq!(held.take(vec![one("Made up", 1)]), Err(HeldError::Many));
    }

    #[test]
    fn a_large_state_comes_in_parts_and_the_last_one_completes_it() {
        let there = outgoing(&[("a", PART), ("b", PART), ("c", 1)]);
        let mut changed = HeldByRelay::default().lacks(&there);
        changed.entry("MeshTimeout").or_default().push("gone.default".into());
        let messages = parts(&there, changed, usize::MAX);
        let complete: Vec<bool> = messages.iter().map(|message| message.complete).collect();
        assert_eq!(complete, [false, false, false, true]);
        assert_eq!(messages.iter().map(|message| message.resources.len()).sum::<usize>(), 4);
        assert_eq!(messages[3].removed[0].name, "gone.default");
        assert!(messages.iter().all(|message| message.position == "p"));
    }

    #[test]
    fn every_message_fits_and_what_can_be_in_none_is_withheld_alone() {
        let largest = |size: usize| LargestSent::of(size, None).one;
        for max in [64 << 10, 600 << 10, 1 << 20] {
            let most = largest(max);
            let there = outgoing(&[
                ("a", most / 2),
                ("b", most / 2),
                ("c", most - 1000),
                ("d", 10),
                ("e", most),
                ("f", 20),
            ]);
            let messages = parts(&there, HeldByRelay::default().lacks(&there), max);
            let sizes: Vec<usize> = messages.iter().map(Message::encoded_len).collect();
            assert!(sizes.iter().all(|size| *size <= max), "{max}: {sizes:?}");
            let sent = messages.iter().map(|message| message.resources.len()).sum::<usize>();
            let removed: Vec<&str> =
                messages.iter().flat_map(|message| &message.removed).map(|one| one.name.as_str()).collect();
            assert_eq!((sent, removed), (6, vec!["e.default"]), "{max}");
        }
    }

    #[test]
    fn a_relay_that_takes_less_is_sent_less() {
        assert_eq!(LargestSent::of(10 << 20, Some(1 << 20)), LargestSent::of(1 << 20, None));
        assert_eq!(LargestSent::of(1 << 20, Some(10 << 20)), LargestSent::of(1 << 20, None));
        assert_eq!(LargestSent::of(10 << 20, None).part, PART);
    }

    #[test]
    fn without_changes_only_the_position_is_told() {
        let there = outgoing(&[]);
        let messages = parts(&there, ChangedNames::new(), usize::MAX);
        assert_eq!(messages.len(), 1);
        assert!(messages[0].complete && messages[0].resources.is_empty());
    }
}
