//! The policies of a mesh, parsed, and those among them that are for one proxy.

use crate::{
    model::Kind,
    policy::rules::{Destinations, PolicySet, SelectableProxy, Selection},
    registry,
    rest::read,
    store::index::Index,
};

/// What policies of one kind say about a proxy.
pub(super) struct Matched {
    pub(super) kind: &'static Kind,
    pub(super) selection: Selection,
}

/// The policies of one mesh and what they can point at.
pub(super) struct MeshPolicies {
    pub(super) destinations: Destinations,
    sets: Vec<PolicySet>,
}

impl MeshPolicies {
    /// Those of all kinds, in the order in which they take effect.
    pub(super) fn new(index: &Index, mesh: &str) -> Self {
        Self::of_kinds(index, mesh, registry::policies_in_order())
    }

    /// Those of some kinds.
    pub(super) fn of_kinds(
        index: &Index,
        mesh: &str,
        kinds: impl IntoIterator<Item = &'static Kind>,
    ) -> Self {
        let sets = kinds.into_iter().map(|kind| PolicySet::parse(kind, index.list_in_mesh(kind, mesh)));
        Self { sets: sets.collect(), destinations: destinations(index, mesh) }
    }

    /// What is for `proxy`, policies that are only being tried out left out. Kinds of which nothing is have an
    /// empty selection.
    pub(super) fn matching(&self, proxy: &SelectableProxy) -> Vec<Matched> {
        let matched = |set: &PolicySet| Matched {
            kind: set.kind,
            selection: Selection::of(set, proxy, &self.destinations, false),
        };
        self.sets.iter().map(matched).collect()
    }
}

/// What policies of `mesh` can point at: it, its services and its routes.
pub(super) fn destinations(index: &Index, mesh: &str) -> Destinations {
    let referents = registry::ALL.iter().filter(|kind| kind.referent.is_some());
    let all = referents.flat_map(|kind| {
        let scope = if kind.is_mesh_scoped() { mesh } else { "" };
        index.list_in_mesh(kind, scope).filter(move |one| kind.is_mesh_scoped() || one.name() == mesh)
    });
    Destinations::new(all)
}

/// Bytes of what an answer about policies of `mesh` is made from.
pub(super) fn weight(index: &Index, mesh: &str) -> usize {
    let kinds = registry::ALL.iter().filter(|kind| kind.policy.is_some() || kind.referent.is_some());
    let kinds = kinds.filter(|kind| kind.is_mesh_scoped());
    read::weight_of_all(kinds.flat_map(|kind| index.list_in_mesh(kind, mesh)))
}
