//! Cutting overlapping groups into groups that need no further distinction.

use std::collections::BTreeMap;

use super::{RulesError, Subset, Tag};

/// More groups than this are refused: their number grows exponentially with the tags.
const LIMIT: usize = 1 << 14;

/// All groups that must be told apart to know, for any proxy, in which of `subsets` it is: for each
/// largest set of subsets that may hold at once, every combination of their tags, positive and negated.
pub(super) fn partition(subsets: &[Subset]) -> Result<Vec<Subset>, RulesError> {
    let mut parts = Vec::new();
    for clique in ordered(cliques(subsets)?) {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut tags: Vec<&Tag> = clique.iter().flat_map(|i| &subsets[*i].0).collect();
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
fn ordered(mut cliques: Vec<Vec<usize>>) -> Vec<Vec<usize>> {
    let text = |clique: &Vec<usize>| clique.iter().map(usize::to_string).collect::<Vec<_>>().join(":");
    cliques.sort_by_cached_key(|clique| std::cmp::Reverse(text(clique)));
    cliques
}

/// The largest sets of pairwise intersecting subsets, by index (Bron–Kerbosch with pivot).
fn cliques(subsets: &[Subset]) -> Result<Vec<Vec<usize>>, RulesError> {
    let all = 0..subsets.len();
    let near =
        |a: usize| all.clone().filter(move |b| a != *b && subsets[a].intersects(&subsets[*b])).collect();
    let neighbours: Vec<Vec<usize>> = all.clone().map(near).collect();
    let mut found = Vec::new();
    extend(&mut Vec::new(), all.collect(), Vec::new(), &neighbours, &mut found)?;
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
