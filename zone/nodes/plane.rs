//! What each node is served, followed change by change.
//!
//! Nodes that the same configurations select share one set. Where two of these name the same resource, that of the
//! configuration with the smaller name is served, and the other one is a problem of all nodes that would get both.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Weak},
};

use imbl::ordmap::DiffItem;

use super::{
    NodeTraits,
    raw::{RawConfig, RawConfigSet, RawName},
};
use crate::generator::{ResourceCollection, ResourceSet, SharedResources};

/// Problems of one node that are told.
const PROBLEMS: usize = 100;

/// All nodes and what they are served.
#[derive(Default)]
pub(crate) struct Plane {
    configs: RawConfigSet,
    nodes: BTreeMap<Arc<str>, PlaneNode>,
    selections: KnownSelections,
}

/// What is served to anybody, by the names of the configurations that are selected: whoever selects the same has the
/// same.
#[derive(Default)]
struct KnownSelections {
    known: HashMap<Arc<SelectedNames>, Weak<ServedSelection>>,
    /// So many may be known before those that nobody has any more are taken out.
    room: usize,
}

/// Names of configurations.
type SelectedNames = BTreeSet<Arc<str>>;

struct PlaneNode {
    traits: NodeTraits,
    selection: Arc<ServedSelection>,
}

/// What one node is to have from now on.
#[derive(Debug)]
pub(crate) struct ServedNode {
    /// Its id.
    pub(crate) id: Arc<str>,
    /// What it is served.
    pub(crate) set: ResourceSet,
    /// What it is not served, and why.
    pub(crate) problems: Arc<[String]>,
}

/// What those nodes get that the same configurations select.
#[derive(Default)]
struct ServedSelection {
    /// Their names.
    selected: Arc<SelectedNames>,
    resources: ResourceCollection,
    shared: SharedResources,
    set: ResourceSet,
    /// What is there more than once, in the words of a problem.
    conflicts: BTreeMap<RawName, Vec<String>>,
    problems: Arc<[String]>,
}

/// A configuration that differs, and what it was before.
struct ChangedConfig {
    name: Arc<str>,
    old: Option<Arc<RawConfig>>,
    new: Option<Arc<RawConfig>>,
}

impl Plane {
    /// Takes in what is there now, and gives the nodes that get something else than before.
    pub(crate) fn follow(&mut self, configs: &RawConfigSet) -> Vec<ServedNode> {
        let changed = changes(&self.configs, configs);
        self.configs = configs.clone();
        if changed.is_empty() {
            return Vec::new();
        }
        self.selections.forget(&changed);
        let selections = &mut self.selections;
        // Most nodes had the same and get the same again.
        let mut made: HashMap<(*const ServedSelection, Vec<bool>), Arc<ServedSelection>> = HashMap::new();
        let mut told = Vec::new();
        let mut kept = Vec::new();
        for node in self.nodes.values_mut() {
            let selects =
                |config: &ChangedConfig| config.new.as_ref().is_some_and(|new| new.selects(&node.traits));
            let selected: Vec<bool> = changed.iter().map(selects).collect();
            let had = |config: &ChangedConfig| node.selection.selected.contains(&config.name);
            if !changed.iter().zip(&selected).any(|(config, selected)| *selected || had(config)) {
                continue;
            }
            let place = (Arc::as_ptr(&node.selection), selected);
            let renewed = match made.get(&place) {
                Some(known) => Arc::clone(known),
                None => {
                    let names = node.selection.names_after(&changed, &place.1);
                    // Who had something else before may come to the same.
                    let renewed = selections
                        .find(&names)
                        .unwrap_or_else(|| selections.keep(node.selection.renewed(names, &changed, configs)));
                    made.insert(place, Arc::clone(&renewed));
                    renewed
                }
            };
            // So that nothing else comes to be where it is before all were looked at.
            kept.push(std::mem::replace(&mut node.selection, renewed));
            told.push(node.served());
        }
        told
    }

    /// A node came, or came again with other things to say about itself.
    pub(crate) fn arrive(&mut self, traits: NodeTraits) -> ServedNode {
        let selects =
            |(name, config): (&Arc<str>, &Arc<RawConfig>)| config.selects(&traits).then(|| Arc::clone(name));
        let selected: SelectedNames = self.configs.iter().filter_map(selects).collect();
        let selection = self
            .selections
            .find(&selected)
            .unwrap_or_else(|| self.selections.keep(ServedSelection::of(selected, &self.configs)));
        let node = PlaneNode { traits, selection };
        let served = node.served();
        self.nodes.insert(Arc::clone(&served.id), node);
        served
    }

    /// A node left.
    pub(crate) fn leave(&mut self, id: &str) {
        self.nodes.remove(id);
    }
}

impl KnownSelections {
    /// What somebody has who selects the same.
    fn find(&self, names: &SelectedNames) -> Option<Arc<ServedSelection>> {
        self.known.get(names)?.upgrade()
    }

    /// Lets others find `selection` for as long as somebody has it.
    fn keep(&mut self, selection: ServedSelection) -> Arc<ServedSelection> {
        if self.known.len() >= self.room {
            self.known.retain(|_, known| known.strong_count() > 0);
            self.room = 2 * self.known.len() + 1;
        }
        let selection = Arc::new(selection);
        self.known.insert(Arc::clone(&selection.selected), Arc::downgrade(&selection));
        selection
    }

    /// What was made of older contents is no more what is selected under their names.
    fn forget(&mut self, changed: &[ChangedConfig]) {
        self.known.retain(|names, _| !changed.iter().any(|config| names.contains(&config.name)));
    }
}

impl PlaneNode {
    fn served(&self) -> ServedNode {
        let ServedSelection { set, problems, .. } = &*self.selection;
        ServedNode { id: Arc::clone(&self.traits.id), set: set.clone(), problems: Arc::clone(problems) }
    }
}

fn changes(old: &RawConfigSet, new: &RawConfigSet) -> Vec<ChangedConfig> {
    let change = |name: &Arc<str>, old: Option<&Arc<RawConfig>>, new: Option<&Arc<RawConfig>>| {
        ChangedConfig { name: Arc::clone(name), old: old.cloned(), new: new.cloned() }
    };
    let differences = old.diff(new).filter_map(|item| match item {
        DiffItem::Add(name, new) => Some(change(name, None, Some(new))),
        DiffItem::Remove(name, old) => Some(change(name, Some(old), None)),
        DiffItem::Update { old: (_, old), new: (name, new) } => {
            (old != new).then(|| change(name, Some(old), Some(new)))
        }
    });
    differences.collect()
}

impl ServedSelection {
    /// What all of `selected` come to.
    fn of(selected: SelectedNames, configs: &RawConfigSet) -> Self {
        let new = |name: &Arc<str>| ChangedConfig {
            name: Arc::clone(name),
            old: None,
            new: configs.get(name).cloned(),
        };
        let all: Vec<ChangedConfig> = selected.iter().map(new).collect();
        Self::default().renewed(selected, &all, configs)
    }

    /// The names after `changed`, each of which is one of the selected now or not.
    fn names_after(&self, changed: &[ChangedConfig], is_selected: &[bool]) -> SelectedNames {
        let mut names = (*self.selected).clone();
        for (config, is_selected) in changed.iter().zip(is_selected) {
            match is_selected {
                true => names.insert(Arc::clone(&config.name)),
                false => names.remove(&config.name),
            };
        }
        names
    }

    /// The same after `changed`, with these selected from now on.
    fn renewed(&self, selected: SelectedNames, changed: &[ChangedConfig], configs: &RawConfigSet) -> Self {
        let mut touched: BTreeSet<&RawName> = BTreeSet::new();
        for config in changed {
            let old = config.old.iter().filter(|_| self.selected.contains(&config.name));
            touched.extend(old.flat_map(|old| old.resources().keys()));
            let new = config.new.iter().filter(|_| selected.contains(&config.name));
            touched.extend(new.flat_map(|new| new.resources().keys()));
        }
        let (mut resources, mut conflicts) = (self.resources.clone(), self.conflicts.clone());
        for place in touched {
            let holders = selected.iter().filter_map(|name| {
                let config = configs.get(name)?;
                Some((name, config.resources().get(place)?))
            });
            conflicts.remove(place);
            let mut holders = holders;
            let Some((first, resource)) = holders.next() else {
                resources.remove(place.0, &place.1);
                continue;
            };
            resources.insert(Arc::clone(resource));
            let others: Vec<String> = holders.map(|(other, _)| conflict(place, first, other)).collect();
            if !others.is_empty() {
                conflicts.insert(place.clone(), others);
            }
        }
        let unread =
            selected.iter().filter_map(|name| configs.get(name)).flat_map(|config| config.problems());
        let problems = conflicts.values().flatten().chain(unread).take(PROBLEMS).cloned().collect();
        let shared = SharedResources::new(resources.clone(), Some(&self.shared));
        let set = ResourceSet::new(&ResourceCollection::default(), &shared, Some(&self.set));
        Self { selected: Arc::new(selected), resources, shared, set, conflicts, problems }
    }
}

fn conflict((type_url, name): &RawName, first: &str, other: &str) -> String {
    let of_type = type_url.rsplit('.').next().unwrap_or(type_url);
    format!("{of_type} {name:?} of EnvoyConfig {other} is left out: EnvoyConfig {first} has one of this name")
}

#[cfg(test)]
mod tests;
