//! Cutting overlapping groups into groups that need no further distinction.

use std::collections::BTreeMap;

use super::{RulesError, Subset, Tag, by_service::ByService};

/// More groups than this are refused: their number grows exponentially with the tags.
const LIMIT: usize = 1 << 14;

/// Which tags are combined with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Those of subsets that may all hold at once. Few groups, of which some may overlap: the first one
    /// that has a proxy is its group.
    Overlapping,
    /// Those of subsets that are connected by overlaps. More groups, and each proxy is in one only.
    Disjoint,
}

/// All groups that must be told apart to know, for any proxy, in which of `subsets` it is: every
/// combination of tags, positive and negated, of subsets that belong together. `near` has their positions.
pub(super) fn partition(
    subsets: &[&Subset],
    near: &ByService,
    grouping: Grouping,
) -> Result<Vec<Subset>, RulesError> {
    let mut parts = Vec::new();
    let neighbours = neighbours(subsets, near);
    let together = match grouping {
        Grouping::Overlapping => cliques(&neighbours)?,
        Grouping::Disjoint => components(&neighbours),
    };
    for members in ordered(together) {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut tags: Vec<&Tag> = members.iter().flat_map(|i| &subsets[*i].0).collect();
        tags.sort();
        tags.dedup();
        for tag in tags {
            values.entry(&tag.key).or_default().push(&tag.value);
        }
        combinations(&values, &mut parts)?;
    }
    Ok(parts)
}

/// Counts through the values of all keys, the first key fastest: for each key one value, or none of them.
/// The state in which every key has its last value, where the count would start, comes last.
fn combinations(values: &BTreeMap<&str, Vec<&str>>, parts: &mut Vec<Subset>) -> Result<(), RulesError> {
    let mut state = vec![0; values.len()];
    loop {
        let wrapped = !advance(&mut state, values);
        if parts.len() >= LIMIT {
            return Err(RulesError::TooManySubsets { limit: LIMIT });
        }
        parts.push(Subset(
            values.iter().zip(&state).flat_map(|((k, v), choice)| chosen(k, v, *choice)).collect(),
        ));
        if wrapped {
            return Ok(());
        }
    }
}

/// Counts one further; `false` when the count is back at its start.
fn advance(state: &mut [usize], values: &BTreeMap<&str, Vec<&str>>) -> bool {
    for (digit, values) in state.iter_mut().zip(values.values()) {
        *digit += 1;
        if *digit <= values.len() {
            return true;
        }
        *digit = 0;
    }
    false
}

fn chosen(key: &str, values: &[&str], choice: usize) -> Vec<Tag> {
    match values.len().checked_sub(choice + 1) {
        Some(i) => vec![Tag::is(key, values[i])],
        None => values.iter().map(|v| Tag::is_not(key, v)).collect(),
    }
}

/// Last first, by the text of the indices: the order in which rules of equal weight are tried, which
/// other control planes share.
fn ordered(mut sets: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let text = |set: &Vec<usize>| set.iter().map(usize::to_string).collect::<Vec<_>>().join(":");
    sets.sort_by_cached_key(|set| std::cmp::Reverse(text(set)));
    sets
}

/// For each subset those it intersects with, by index, in order.
fn neighbours(subsets: &[&Subset], near: &ByService) -> Vec<Vec<usize>> {
    let intersects = |a: usize, b: usize| a != b && subsets[a].intersects(subsets[b]);
    let neighbours = |a: usize| match subsets[a].service() {
        Some(service) => near.near(Some(service)).filter(|b| intersects(a, *b)).collect(),
        None => (0..subsets.len()).filter(|b| intersects(a, *b)).collect(),
    };
    (0..subsets.len()).map(neighbours).collect()
}

/// Sets of indices connected with each other.
fn components(neighbours: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut seen = vec![false; neighbours.len()];
    let mut components = Vec::new();
    for start in 0..neighbours.len() {
        let mut queue = vec![start];
        let mut members = Vec::new();
        while let Some(vertex) = queue.pop() {
            if !std::mem::replace(&mut seen[vertex], true) {
                members.push(vertex);
                queue.extend(&neighbours[vertex]);
            }
        }
        if !members.is_empty() {
            members.sort_unstable();
            components.push(members);
        }
    }
    components
}

/// The largest sets of indices each connected with every other (Bron–Kerbosch with pivot).
fn cliques(neighbours: &[Vec<usize>]) -> Result<Vec<Vec<usize>>, RulesError> {
    let mut found = Vec::new();
    extend(&mut Vec::new(), (0..neighbours.len()).collect(), Vec::new(), neighbours, &mut found)?;
    Ok(found)
}

/// `candidates` and `excluded` are in order.
fn extend(
    clique: &mut Vec<usize>,
    mut candidates: Vec<usize>,
    mut excluded: Vec<usize>,
    neighbours: &[Vec<usize>],
    found: &mut Vec<Vec<usize>>,
) -> Result<(), RulesError> {
    let degree = |v: &usize| common(&candidates, &neighbours[*v]).count();
    let Some(pivot) = candidates.iter().chain(&excluded).copied().max_by_key(degree) else {
        if found.len() >= LIMIT {
            return Err(RulesError::TooManySubsets { limit: LIMIT });
        }
        let mut members = clique.clone();
        members.sort_unstable();
        found.push(members);
        return Ok(());
    };
    let branch: Vec<usize> =
        candidates.iter().copied().filter(|v| neighbours[pivot].binary_search(v).is_err()).collect();
    for vertex in branch {
        let near = |list: &[usize]| -> Vec<usize> { common(list, &neighbours[vertex]).collect() };
        let (next, barred) = (near(&candidates), near(&excluded));
        clique.push(vertex);
        extend(clique, next, barred, neighbours, found)?;
        clique.pop();
        if let Ok(position) = candidates.binary_search(&vertex) {
            candidates.remove(position);
        }
        if let Err(position) = excluded.binary_search(&vertex) {
            excluded.insert(position, vertex);
        }
    }
    Ok(())
}

/// What two ordered lists have in common, in order, at the cost of the shorter one.
fn common<'a>(a: &'a [usize], b: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.iter().copied().filter(|v| long.binary_search(v).is_ok())
}
