//! Which of several policies is for a place: the most specific one, of equals the newest, and of those the one whose
//! name comes first.
//!
//! Policies are given in order of their names.

use std::{cmp::Ordering, sync::Arc};

use super::{
    LegacyPolicy, Rank, Tags,
    selector::{best, rank, selects},
};
use crate::{model::labels, proto::kuma::mesh::v1alpha1::Selector};

/// A policy that is for some proxy as far as `sources` say.
#[derive(Clone, Debug)]
pub struct PolicyCandidate {
    /// The policy.
    pub policy: Arc<LegacyPolicy>,
    /// How specific it is about the proxy.
    pub rank: Rank,
}

impl PolicyCandidate {
    /// `policy` as far as it is for who has these tags.
    pub fn of(policy: &Arc<LegacyPolicy>, tag_sets: &[&Tags]) -> Option<Self> {
        Some(Self { policy: Arc::clone(policy), rank: best(&policy.sources, tag_sets)? })
    }
}

/// The one for calls of `service`.
pub fn for_service<'a>(
    candidates: impl IntoIterator<Item = &'a PolicyCandidate>,
    service: &str,
) -> Option<&'a Arc<LegacyPolicy>> {
    winner(ranked_for_service(candidates, service))
}

fn ranked_for_service<'a>(
    candidates: impl IntoIterator<Item = &'a PolicyCandidate>,
    service: &str,
) -> impl Iterator<Item = (Rank, &'a Arc<LegacyPolicy>)> {
    let to = Tags::from([(labels::TAG_SERVICE.to_owned(), service.to_owned())]);
    candidates.into_iter().filter_map(move |candidate| {
        let rank = best(&candidate.policy.destinations, &[&to])?;
        Some((rank.with(candidate.rank), &candidate.policy))
    })
}

/// All that are for calls of `service`, the one that wins first.
pub fn all_for_service<'a>(
    candidates: impl IntoIterator<Item = &'a PolicyCandidate>,
    service: &str,
) -> Vec<&'a Arc<LegacyPolicy>> {
    in_order(ranked_for_service(candidates, service))
}

/// The one for an inbound with these tags.
pub fn for_inbound<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tags: &Tags,
) -> Option<&'a Arc<LegacyPolicy>> {
    winner(ranked_for_inbound(policies, tags))
}

/// All of which one is for an inbound with these tags, the one that wins first.
pub fn contenders_for_inbound<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tags: &Tags,
) -> Vec<&'a Arc<LegacyPolicy>> {
    in_order(ranked_for_inbound(policies, tags))
}

fn ranked_for_inbound<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tags: &Tags,
) -> impl Iterator<Item = (Rank, &'a Arc<LegacyPolicy>)> {
    policies.into_iter().filter_map(|policy| Some((best(&policy.destinations, &[tags])?, policy)))
}

/// All that are for an inbound with these tags, once for each of their sources: the most specific source first, of
/// equals the newest policy.
pub fn all_for_inbound<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tags: &Tags,
) -> Vec<(&'a Selector, &'a Arc<LegacyPolicy>)> {
    let fits =
        |policy: &&Arc<LegacyPolicy>| policy.destinations.iter().any(|selector| selects(selector, tags));
    let fitting = policies.into_iter().filter(fits);
    let mut all: Vec<_> =
        fitting.flat_map(|policy| policy.sources.iter().map(move |source| (source, policy))).collect();
    all.sort_by(|(one, a), (other, b)| {
        rank(other).cmp(&rank(one)).then_with(|| b.resource.created.cmp(&a.resource.created))
    });
    all
}

/// The one for a proxy with these tags. One without selectors is for everybody.
pub fn for_proxy<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tag_sets: &[&Tags],
) -> Option<&'a Arc<LegacyPolicy>> {
    winner(ranked_for_proxy(policies, tag_sets))
}

/// All of which one is for a proxy with these tags, the one that wins first.
pub fn contenders_for_proxy<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tag_sets: &[&Tags],
) -> Vec<&'a Arc<LegacyPolicy>> {
    in_order(ranked_for_proxy(policies, tag_sets))
}

fn ranked_for_proxy<'a>(
    policies: impl IntoIterator<Item = &'a Arc<LegacyPolicy>>,
    tag_sets: &[&Tags],
) -> impl Iterator<Item = (Rank, &'a Arc<LegacyPolicy>)> {
    policies.into_iter().filter_map(move |policy| {
        let everybody = policy.sources.is_empty() || policy.sources.iter().any(|s| s.r#match.is_empty());
        let rank = best(&policy.sources, tag_sets).or_else(|| everybody.then(Rank::default))?;
        Some((rank, policy))
    })
}

/// A policy and how specific it is about a place.
type RankedSelector<'a> = (Rank, &'a Arc<LegacyPolicy>);

fn compare((rank, policy): &RankedSelector<'_>, than: &RankedSelector<'_>) -> Ordering {
    rank.cmp(&than.0).then_with(|| policy.resource.created.cmp(&than.1.resource.created))
}

fn winner<'a>(ranked: impl Iterator<Item = RankedSelector<'a>>) -> Option<&'a Arc<LegacyPolicy>> {
    let best = ranked.reduce(|best, next| if compare(&next, &best).is_gt() { next } else { best });
    best.map(|(_, policy)| policy)
}

fn in_order<'a>(ranked: impl Iterator<Item = RankedSelector<'a>>) -> Vec<&'a Arc<LegacyPolicy>> {
    let mut all: Vec<RankedSelector<'a>> = ranked.collect();
    // Among equals the order of the names stays.
    all.sort_by(|a, b| compare(b, a));
    all.into_iter().map(|(_, policy)| policy).collect()
}
