//! Cutting overlapping groups into groups that need no further distinction.

use std::collections::BTreeMap;

use super::{RulesError, Subset, Tag};

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
/// combination of tags, positive and negated, of subsets that belong together.
pub(super) fn partition(subsets: &[Subset], grouping: Grouping) -> Result<Vec<Subset>, RulesError> {
    let mut parts = Vec::new();
    let neighbours = neighbours(subsets);
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
fn neighbours(subsets: &[Subset]) -> Vec<Vec<usize>> {
    let all = 0..subsets.len();
    let near =
        |a: usize| all.clone().filter(move |b| a != *b && subsets[a].intersects(&subsets[*b])).collect();
    all.clone().map(near).collect()
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

fn extend(
    clique: &mut Vec<usize>,
    mut candidates: Vec<usize>,
    mut excluded: Vec<usize>,
    neighbours: &[Vec<usize>],
    found: &mut Vec<Vec<usize>>,
) -> Result<(), RulesError> {
    let degree = |v: &usize| candidates.iter().filter(|c| neighbours[*v].binary_search(c).is_ok()).count();
    let Some(pivot) = candidates.iter().chain(&excluded).copied().max_by_key(|v| degree(v)) else {
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
        let near = |list: &[usize]| -> Vec<usize> {
            list.iter().copied().filter(|v| neighbours[vertex].binary_search(v).is_ok()).collect()
        };
        let (next, barred) = (near(&candidates), near(&excluded));
        clique.push(vertex);
        extend(clique, next, barred, neighbours, found)?;
        clique.pop();
        candidates.retain(|v| *v != vertex);
        excluded.push(vertex);
    }
    Ok(())
}
