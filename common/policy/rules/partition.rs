//! Cutting overlapping groups into groups that need no further distinction.

use std::{cmp::Reverse, collections::BTreeMap};

use super::{
    RulesError, Subset, Tag,
    by_service::ByService,
    overlap::{DistinctGroups, LIMIT, OverlapBudget},
};

/// What a tag of a new group costs, in steps: it is a text of its own.
const TAG: usize = 16;
/// And two groups that overlap: both remember it.
const NEIGHBOURS: usize = 16;

/// Which tags are combined with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Those of subsets that may all hold at once. Few groups, of which some may overlap: the first one
    /// that has a proxy is its group.
    Overlapping,
    /// Those of subsets that are connected by overlaps. More groups, and each proxy is in one only.
    Disjoint,
}

/// All groups that must be told apart to know, for any proxy, in which of `groups` it is: every
/// combination of tags, positive and negated, of groups that belong together. `near` has their places.
pub(super) fn partition(
    groups: &DistinctGroups<'_>,
    near: &ByService,
    grouping: Grouping,
    effort: &mut OverlapBudget,
) -> Result<Vec<Subset>, RulesError> {
    let mut parts = Vec::new();
    let subsets = &groups.subsets;
    let neighbours = neighbours(subsets, near, effort)?;
    let together = match grouping {
        Grouping::Overlapping => cliques(&neighbours, effort)?,
        Grouping::Disjoint => components(&neighbours),
    };
    for members in ordered(together, groups, effort)? {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let mut tags: Vec<&Tag> = members.iter().flat_map(|i| &subsets[*i].0).collect();
        effort.spend(tags.len())?;
        tags.sort();
        tags.dedup();
        for tag in tags {
            values.entry(&tag.key).or_default().push(&tag.value);
        }
        combinations(&values, &mut parts, effort)?;
    }
    Ok(parts)
}

/// Counts through the values of all keys, the first key fastest: for each key one value, or none of them.
/// The state in which every key has its last value, where the count would start, comes last.
fn combinations(
    values: &BTreeMap<&str, Vec<&str>>,
    parts: &mut Vec<Subset>,
    effort: &mut OverlapBudget,
) -> Result<(), RulesError> {
    // Before the first is made: each of so many would have a tag of each key.
    let all = values.values().try_fold(1_usize, |all, values| all.checked_mul(values.len() + 1));
    if all.is_none_or(|all| all > LIMIT - parts.len()) {
        return Err(RulesError::TooManySubsets { limit: LIMIT });
    }
    let mut state = vec![0; values.len()];
    loop {
        let wrapped = !advance(&mut state, values);
        let part: Vec<Tag> =
            values.iter().zip(&state).flat_map(|((k, v), choice)| chosen(k, v, *choice)).collect();
        effort.spend(TAG * (1 + part.len()))?;
        parts.push(Subset(part));
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

/// Last first, by the text of the positions of all items in a set: the order in which rules of equal weight are
/// tried, which other control planes share.
fn ordered(
    sets: Vec<Vec<usize>>,
    groups: &DistinctGroups<'_>,
    effort: &mut OverlapBudget,
) -> Result<Vec<Vec<usize>>, RulesError> {
    let mut named = Vec::new();
    for set in sets {
        let mut positions: Vec<usize> = set.iter().flat_map(|i| &groups.positions[*i]).copied().collect();
        effort.spend(positions.len())?;
        positions.sort_unstable();
        let text = positions.iter().map(usize::to_string).collect::<Vec<_>>().join(":");
        named.push((Reverse(text), set));
    }
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    Ok(named.into_iter().map(|(_, set)| set).collect())
}

/// For each group those it intersects with, by index, in order.
fn neighbours(
    subsets: &[&Subset],
    near: &ByService,
    effort: &mut OverlapBudget,
) -> Result<Vec<Vec<usize>>, RulesError> {
    let mut neighbours = vec![Vec::new(); subsets.len()];
    for a in 0..subsets.len() {
        let service = subsets[a].service();
        let confined = service.map(|service| near.near(Some(service))).into_iter().flatten();
        let others = if service.is_none() { a + 1..subsets.len() } else { 0..0 };
        for b in confined.filter(|b| *b > a).chain(others) {
            effort.compare(subsets[a], subsets[b])?;
            if subsets[a].intersects(subsets[b]) {
                effort.spend(NEIGHBOURS)?;
                neighbours[a].push(b);
                neighbours[b].push(a);
            }
        }
    }
    Ok(neighbours)
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

/// The largest sets of indices each connected with every other (Bron–Kerbosch with pivot). What is still to be tried
/// is on a stack of ours: a set may have as many members as there are groups.
fn cliques(neighbours: &[Vec<usize>], effort: &mut OverlapBudget) -> Result<Vec<Vec<usize>>, RulesError> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    let mut clique = Vec::new();
    let mut searches = vec![Search::new((0..neighbours.len()).collect(), Vec::new(), neighbours, effort)?];
    while let Some(search) = searches.last_mut() {
        let Some(vertex) = search.branch.next() else {
            searches.pop();
            clique.pop();
            continue;
        };
        effort.spend(1 + search.cost(&neighbours[vertex]))?;
        let (candidates, excluded) = search.beside(vertex, &neighbours[vertex]);
        clique.push(vertex);
        if !candidates.is_empty() || !excluded.is_empty() {
            searches.push(Search::new(candidates, excluded, neighbours, effort)?);
            continue;
        }
        if found.len() >= LIMIT {
            return Err(RulesError::TooManySubsets { limit: LIMIT });
        }
        let mut members = clique.clone();
        effort.spend(members.len())?;
        members.sort_unstable();
        found.push(members);
        clique.pop();
    }
    Ok(found)
}

/// The search for cliques that have the same vertices so far.
struct Search {
    /// Vertices each connected with all of the clique that may be added, in order.
    candidates: Vec<usize>,
    /// Those of which everything was found, in order.
    excluded: Vec<usize>,
    /// Which candidates are still to be tried: those that are not connected with the pivot.
    branch: std::vec::IntoIter<usize>,
}

impl Search {
    fn new(
        candidates: Vec<usize>,
        excluded: Vec<usize>,
        neighbours: &[Vec<usize>],
        effort: &mut OverlapBudget,
    ) -> Result<Self, RulesError> {
        let mut pivot = None;
        for vertex in candidates.iter().chain(&excluded) {
            effort.spend(1 + candidates.len().min(neighbours[*vertex].len()))?;
            let degree = common(&candidates, &neighbours[*vertex]).count();
            if pivot.is_none_or(|(most, _)| degree > most) {
                pivot = Some((degree, *vertex));
            }
            // No other leaves less than one to be tried, but for what is found already.
            if degree + 1 >= candidates.len() {
                break;
            }
        }
        let near = pivot.map_or(&[][..], |(_, pivot)| &neighbours[pivot]);
        let branch: Vec<usize> =
            candidates.iter().copied().filter(|v| near.binary_search(v).is_err()).collect();
        Ok(Self { candidates, excluded, branch: branch.into_iter() })
    }

    /// What it costs to go on with a vertex that has these neighbours.
    fn cost(&self, near: &[usize]) -> usize {
        let moved = (self.candidates.len() + self.excluded.len()) / 64;
        self.candidates.len().min(near.len()) + self.excluded.len().min(near.len()) + moved
    }

    /// Candidates and excluded ones for a clique with `vertex`, of which everything is found then.
    fn beside(&mut self, vertex: usize, near: &[usize]) -> (Vec<usize>, Vec<usize>) {
        let next = common(&self.candidates, near).collect();
        let barred = common(&self.excluded, near).collect();
        if let Ok(position) = self.candidates.binary_search(&vertex) {
            self.candidates.remove(position);
        }
        if let Err(position) = self.excluded.binary_search(&vertex) {
            self.excluded.insert(position, vertex);
        }
        (next, barred)
    }
}

/// What two ordered lists have in common, in order, at the cost of the shorter one.
fn common<'a>(a: &'a [usize], b: &'a [usize]) -> impl Iterator<Item = usize> + 'a {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    short.iter().copied().filter(|v| long.binary_search(v).is_ok())
}
