//! Whose fault it is when what is drafted breaks a rule of Envoy's. This is only asked of what does: everything is applied
//! once more, one kind after the other, to see where it breaks.

use std::{collections::BTreeSet, sync::Arc};

use common::{model::Kind, policy::rules::Policy};

use super::{ALL, AnyPolicyEffect, Outside, Reporter, Selections, legacy};
use crate::{
    generator::{Backend, ClusterDraft, Draft, ListenerDraft, Sidecar, Terminal},
    mesh::{MeshContext, Problem},
};

/// Who is to blame where several kinds select by tags: which of them it is, is not looked at.
const BY_TAGS: &str = "policies that select by tags";

/// What `draft`, to which no policy was applied but routes, breaks by.
pub(crate) fn of_outbound(
    outside: Outside<'_>,
    backend: &Backend,
    mut draft: ListenerDraft,
    is_broken: impl Fn(&ListenerDraft) -> bool,
) -> Option<String> {
    if is_broken(&draft) {
        return routes(&draft);
    }
    let mut passed = BTreeSet::new();
    let apply = |effect: &dyn AnyPolicyEffect, draft: &mut ListenerDraft, reporter: &mut Reporter<'_>| {
        effect.outbound(outside, backend, draft, reporter);
    };
    let found = first(&mut draft, &mut passed, apply, &is_broken);
    if let Some(kind) = found {
        return Some(named(kind, outside.rules(kind).policies()));
    }
    legacy::apply_outbound(outside, backend, &mut draft, &mut passed);
    is_broken(&draft).then(|| BY_TAGS.to_owned())
}

/// What `draft`, to which no policy was applied, breaks by.
pub(crate) fn of_cluster(
    outside: Outside<'_>,
    backend: &Backend,
    mut draft: ClusterDraft,
    is_broken: impl Fn(&ClusterDraft) -> bool,
) -> Option<String> {
    if is_broken(&draft) {
        return None;
    }
    let mut passed = BTreeSet::new();
    let apply = |effect: &dyn AnyPolicyEffect, draft: &mut ClusterDraft, reporter: &mut Reporter<'_>| {
        effect.cluster(outside, backend, draft, reporter);
    };
    let found = first(&mut draft, &mut passed, apply, &is_broken);
    if let Some(kind) = found {
        return Some(named(kind, outside.rules(kind).policies()));
    }
    legacy::apply_cluster(outside, backend, &mut draft, &mut passed);
    is_broken(&draft).then(|| BY_TAGS.to_owned())
}

/// What the own of one proxy, to which no policy was applied, breaks by.
pub(crate) fn of_own(
    mesh: &MeshContext,
    proxy: &Sidecar,
    selections: &Selections,
    mut draft: Draft,
    is_broken: impl Fn(&Draft) -> bool,
) -> Option<String> {
    if is_broken(&draft) {
        return None;
    }
    let mut passed = BTreeSet::new();
    let apply = |effect: &dyn AnyPolicyEffect, draft: &mut Draft, reporter: &mut Reporter<'_>| {
        let selection = selections.of(effect.kind());
        effect.inbounds(mesh, selection, draft, reporter);
        effect.proxy(mesh, proxy, selection, draft, reporter);
    };
    let found = first(&mut draft, &mut passed, apply, &is_broken);
    if let Some(kind) = found {
        return Some(named(kind, &selections.of(kind).policies));
    }
    legacy::apply_inbound(mesh, proxy, selections, &mut draft, &mut passed);
    is_broken(&draft).then(|| BY_TAGS.to_owned())
}

/// The first kind after which `draft` is broken.
fn first<D>(
    draft: &mut D,
    passed: &mut BTreeSet<Problem>,
    apply: impl Fn(&dyn AnyPolicyEffect, &mut D, &mut Reporter<'_>),
    is_broken: impl Fn(&D) -> bool,
) -> Option<&'static Kind> {
    ALL.iter().find_map(|effect| {
        apply(*effect, draft, &mut Reporter { kind: effect.kind(), problems: &mut *passed });
        is_broken(draft).then(|| effect.kind())
    })
}

/// The policies of the kind that select what it is about.
fn named<'a>(kind: &Kind, policies: impl IntoIterator<Item = &'a Arc<Policy>>) -> String {
    let names: BTreeSet<&str> = policies.into_iter().map(|policy| policy.resource.display_name()).collect();
    format!("{} {}", kind.name, names.into_iter().collect::<Vec<_>>().join(" or "))
}

/// The policies whose routes it has.
fn routes(draft: &ListenerDraft) -> Option<String> {
    let http = draft.chains.iter().filter_map(|chain| match &chain.terminal {
        Terminal::Http(http) => Some(http),
        Terminal::Tcp(_) | Terminal::Other(_) => None,
    });
    let policies = http.flat_map(|http| &http.routes).filter_map(|route| route.policy.as_ref());
    let names: BTreeSet<String> = policies.map(ToString::to_string).collect();
    (!names.is_empty()).then(|| names.into_iter().collect::<Vec<_>>().join(" or "))
}
