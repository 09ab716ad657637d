//! What would leave under one name. That name is a hash over labels, authors choose those, and the hash is short: several
//! resources can be called alike where they are sent, though they are not here. All of them are kept in an order that
//! nobody but an owner of better standing can get before, so that the one who writes last hides nothing, and takes nothing
//! away when he goes.

use std::sync::Arc;

use imbl::OrdMap;

use super::OutgoingResource;
use crate::{
    clip::clip,
    kds::{names::delta_name, ownership},
    model::{Origin, Resource, ResourceKey, labels, names},
};

/// Which of the resources that would leave under one name goes before which: the lesser one. It follows from what is stored,
/// so that all control planes decide alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NamesakeStanding {
    /// What global owns goes before all that zones have.
    is_of_zone: bool,
    /// How much of what makes the name its zone was free to choose.
    chosen: usize,
    /// It is stored neither under the name its author gave it nor under the one that is made of that.
    is_renamed: bool,
}

/// A standing; of two equal ones the key decides.
pub(super) type NamesakeRank = (NamesakeStanding, ResourceKey);

/// The name under which `resource` leaves in the form `mapped`, and its rank among those that do.
pub(super) fn place(resource: &Resource, mapped: &Resource) -> (String, NamesakeRank) {
    (delta_name(mapped.name(), mapped.mesh()), (NamesakeStanding::of(resource, mapped), resource.key.clone()))
}

impl NamesakeStanding {
    /// That of `resource`, which leaves as `mapped`.
    pub(super) fn of(resource: &Resource, mapped: &Resource) -> Self {
        let display = mapped.display_name();
        let is_of_zone = matches!(resource.origin, Origin::Zone(_));
        let chosen = || ownership::chosen(mapped.name(), display, mapped.label(labels::NAMESPACE));
        // What zones send has its hashed name here; what is written here may be called like that by intent.
        let is_renamed = resource.name() != display && !(is_of_zone && resource.name() == mapped.name());
        Self { is_of_zone, chosen: if is_of_zone { chosen() } else { 0 }, is_renamed }
    }
}

impl OutgoingResource {
    fn rank(&self) -> NamesakeRank {
        (self.standing, self.resource.key.clone())
    }

    /// Why it is withheld from who gets `first`, which has the same name.
    pub(super) fn behind(&self, first: &Self) -> String {
        let owner = match &first.resource.origin {
            Origin::Global => "global".to_owned(),
            Origin::Zone(zone) => format!("zone {zone}"),
        };
        format!(
            "it would be sent as {:?}, and so is {} of {owner}, which goes before it: rename one of the two, or change its \
             label {}",
            clip(&self.wanted.name, 2 * names::MAX_NAME),
            first.resource.key,
            labels::DISPLAY_NAME,
        )
    }
}

/// All that would leave under one name, in their order: one, unless somebody makes names.
#[derive(Clone, Debug)]
pub(super) struct Namesakes {
    first: Arc<OutgoingResource>,
    others: Option<Arc<OrdMap<NamesakeRank, Arc<OutgoingResource>>>>,
}

impl PartialEq for Namesakes {
    /// Whether no receiver could tell the two apart. The others are not compared one by one: there may be many, and
    /// whoever is told of a change in vain sees that there is none for it.
    fn eq(&self, other: &Self) -> bool {
        let same_others = match (&self.others, &other.others) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        same_others && (Arc::ptr_eq(&self.first, &other.first) || self.first == other.first)
    }
}

impl Namesakes {
    /// One alone.
    pub(super) fn of(item: Arc<OutgoingResource>) -> Self {
        Self { first: item, others: None }
    }

    /// The one that goes first.
    pub(super) fn first(&self) -> &Arc<OutgoingResource> {
        &self.first
    }

    /// All, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<OutgoingResource>> {
        std::iter::once(&self.first).chain(self.others.iter().flat_map(|others| others.values()))
    }

    /// Whether it is more than one.
    pub(super) fn are_several(&self) -> bool {
        self.others.is_some()
    }

    /// The one of this rank.
    pub(super) fn get(&self, rank: &NamesakeRank) -> Option<&Arc<OutgoingResource>> {
        match self.first.rank() == *rank {
            true => Some(&self.first),
            false => self.others.as_ref()?.get(rank),
        }
    }

    /// Takes in `item`. The one of the two that stands behind the first from now on; none where it replaces its former self.
    pub(super) fn put(&mut self, item: Arc<OutgoingResource>) -> Option<Arc<OutgoingResource>> {
        let (rank, first) = (item.rank(), self.first.rank());
        if rank == first {
            self.first = item;
            return None;
        }
        let (rank, behind) = match rank < first {
            true => (first, std::mem::replace(&mut self.first, item)),
            false => (rank, item),
        };
        let mut others = self.others.as_deref().cloned().unwrap_or_default();
        others.insert(rank, Arc::clone(&behind));
        self.others = Some(Arc::new(others));
        Some(behind)
    }

    /// What is left without the one of this rank; the next one goes first then.
    pub(super) fn without(&self, rank: &NamesakeRank) -> Option<Self> {
        let mut others = self.others.as_deref().cloned().unwrap_or_default();
        let mut first = Arc::clone(&self.first);
        if first.rank() == *rank {
            let (next, item) = others.get_min()?.clone();
            others.remove(&next);
            first = item;
        } else {
            others.remove(rank);
        }
        let others = (!others.is_empty()).then(|| Arc::new(others));
        Some(Self { first, others })
    }
}
