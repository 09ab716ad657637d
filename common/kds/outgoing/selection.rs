//! What one receiver is to have of each type, as something that stays as it is: what it has acknowledged is kept as a
//! reference to it, and all receivers share what is behind it.

use std::{collections::BTreeMap, fmt, ops::Bound, sync::Arc};

use imbl::OrdMap;

use super::{ChangedNames, OutgoingResource, OutgoingResources, namesakes::Namesakes};
use crate::{
    kds::filter::Audience,
    xds::{Collection, Name, Version, Wanted},
};

/// Which of the outgoing resources one receiver gets.
pub trait ReceiverSelection: Clone + fmt::Debug + Send + Sync + 'static {
    /// Whether it gets this one.
    fn includes(&self, item: &OutgoingResource) -> bool;

    /// Whether it is one of these, who should get something that cannot be sent.
    fn is_meant(&self, audience: &Audience) -> bool;
}

/// The selection of a receiver that gets them all.
#[derive(Clone, Copy, Debug)]
pub struct Everything;

impl ReceiverSelection for Everything {
    fn includes(&self, _item: &OutgoingResource) -> bool {
        true
    }

    fn is_meant(&self, _audience: &Audience) -> bool {
        true
    }
}

/// What a selection leaves of each type, at one moment.
pub struct SelectedTypes<S> {
    by_kind: BTreeMap<&'static str, Arc<SelectedOfType<S>>>,
    /// Of every type of which there is nothing.
    nothing: Arc<SelectedOfType<S>>,
}

impl<S: ReceiverSelection> SelectedTypes<S> {
    /// What `selection` leaves of `outgoing`.
    pub fn of(outgoing: &OutgoingResources, selection: &S) -> Self {
        let nothing = Arc::new(SelectedOfType { items: OrdMap::new(), selection: selection.clone() });
        let mut selected = Self { by_kind: BTreeMap::new(), nothing };
        selected.replace(outgoing, outgoing.by_kind.keys().copied(), selection);
        selected
    }

    /// Moves on to `outgoing`, of which only what is named in `changed` differs from before.
    pub fn advance(&mut self, outgoing: &OutgoingResources, changed: &ChangedNames, selection: &S) {
        // Of the other types everything stays in place, so that nobody compares it again.
        self.replace(outgoing, changed.keys().copied(), selection);
    }

    fn replace(
        &mut self,
        outgoing: &OutgoingResources,
        kinds: impl Iterator<Item = &'static str>,
        selection: &S,
    ) {
        for kind in kinds {
            match outgoing.by_kind.get(kind) {
                Some(items) => {
                    let of_type = SelectedOfType { items: items.clone(), selection: selection.clone() };
                    self.by_kind.insert(kind, Arc::new(of_type));
                }
                None => drop(self.by_kind.remove(kind)),
            }
        }
    }

    /// Those of one type.
    pub fn of_type(&self, type_name: &str) -> &Arc<SelectedOfType<S>> {
        self.by_kind.get(type_name).unwrap_or(&self.nothing)
    }
}

/// What a selection leaves of one type.
#[derive(Clone)]
pub struct SelectedOfType<S> {
    items: OrdMap<Name, Namesakes>,
    selection: S,
}

impl<S: ReceiverSelection> SelectedOfType<S> {
    fn iter(&self) -> impl Iterator<Item = &Arc<OutgoingResource>> {
        self.items.values().filter_map(|namesakes| self.chosen(namesakes))
    }

    /// What this receiver gets of those with one name: the first that is for it.
    fn chosen<'a>(&self, namesakes: &'a Namesakes) -> Option<&'a Arc<OutgoingResource>> {
        namesakes.iter().find(|item| self.selection.includes(item))
    }

    /// What this receiver gets under a name.
    pub fn item(&self, name: &str) -> Option<&Arc<OutgoingResource>> {
        self.chosen(self.items.get(name)?)
    }

    /// Visits the name and version of each.
    pub fn each_version(&self, visit: &mut dyn FnMut(&Name, Version)) {
        self.iter().for_each(|item| visit(&item.wanted.name, item.wanted.version));
    }
}

impl<S> fmt::Debug for SelectedOfType<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedOfType").field("of", &self.items.len()).finish_non_exhaustive()
    }
}

impl<S: ReceiverSelection> Collection for SelectedOfType<S> {
    fn get(&self, name: &str) -> Option<Wanted> {
        self.item(name).map(|item| item.wanted.clone())
    }

    fn version(&self, name: &str) -> Option<Version> {
        self.item(name).map(|item| item.wanted.version)
    }

    fn each(&self, visit: &mut dyn FnMut(Wanted)) {
        self.iter().for_each(|item| visit(item.wanted.clone()));
    }

    fn under(&self, prefix: &str, visit: &mut dyn FnMut(Wanted)) {
        let after = (Bound::Included(prefix), Bound::Unbounded);
        let named = self.items.range::<_, str>(after).take_while(|(name, _)| name.starts_with(prefix));
        let selected = named.filter_map(|(_, namesakes)| self.chosen(namesakes));
        selected.for_each(|item| visit(item.wanted.clone()));
    }

    fn len(&self) -> usize {
        self.iter().count()
    }
}
