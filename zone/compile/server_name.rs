//! Chains of a listener that are told apart by the server names clients ask for.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    generator::Chain,
    mesh::{Problem, problem::Subject},
};

/// Whether an Envoy takes it: an asterisk, which is also how a tag of any value is written, may be its first label only.
pub(super) fn is_taken(name: &str) -> bool {
    !name.strip_prefix("*.").unwrap_or(name).contains('*')
}

/// A name in the form in which Envoy compares it.
pub(super) fn compared(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// What is told of a name that nobody gets in by, because another one differs from it in case only.
pub(super) fn taken(name: &str, holder: &str) -> Problem {
    let reason = format!("nobody gets in by it: {holder:?} comes first, and Envoy takes both for one");
    Problem { subject: Subject::ServerName(name.to_owned()), reason }
}

fn asked_for(chain: &Chain) -> impl Iterator<Item = &String> {
    chain.matches.iter().flat_map(|matches| &matches.server_names)
}

/// What makes two chains one for an Envoy.
fn key(chain: &Chain) -> String {
    compared(&asked_for(chain).map(String::as_str).collect::<Vec<_>>().join(","))
}

/// Envoy compares server names without regard to case and refuses a second chain for one.
pub(super) fn unambiguous(chains: Vec<Chain>) -> Vec<Chain> {
    let mut seen = BTreeSet::new();
    let takes = |chain: &Chain| asked_for(chain).all(|name| is_taken(name));
    chains.into_iter().filter(|chain| takes(chain) && seen.insert(key(chain))).collect()
}

/// The `chains` for what none of `first` is for, and those after them. Which has to yield is one of the `problems`.
pub(super) fn yielding(
    chains: Vec<Chain>,
    first: Vec<Chain>,
    problems: &mut BTreeSet<Problem>,
) -> Vec<Chain> {
    let named = |chain: &Chain| asked_for(chain).map(String::as_str).collect::<Vec<_>>().join(",");
    let mut holders: BTreeMap<String, String> = BTreeMap::new();
    let (mut others, mut kept) = (Vec::new(), Vec::new());
    for chain in first {
        if let Some(holder) = holders.get(&key(&chain)) {
            problems.insert(taken(&named(&chain), holder));
        } else {
            holders.insert(key(&chain), named(&chain));
            kept.push(chain);
        }
    }
    for chain in chains {
        if let Some(holder) = holders.get(&key(&chain)) {
            problems.insert(taken(&named(&chain), holder));
        } else {
            others.push(chain);
        }
    }
    others.extend(kept);
    unambiguous(others)
}

#[cfg(test)]
mod tests {
    use common::proto::envoy::config::listener::v3::FilterChainMatch;

    use super::*;

    fn chains(names: &[&str]) -> Vec<Chain> {
        let chain = |name: &&str| {
            let matches =
                FilterChainMatch { server_names: vec![(*name).to_owned()], ..FilterChainMatch::default() };
            Chain { matches: Some(matches), ..Chain::default() }
        };
        names.iter().map(chain).collect()
    }

    #[test]
    fn what_comes_first_has_its_name_wherever_it_stands() {
        let mut problems = BTreeSet::new();
        let all = yielding(chains(&["BANK", "Shop", "web"]), chains(&["bank", "ext", "EXT"]), &mut problems);
        let names: Vec<&String> = all.iter().flat_map(asked_for).collect();
        assert_eq!(names, ["Shop", "web", "bank", "ext"]);
        let told: Vec<String> = problems.iter().map(|problem| problem.subject.to_string()).collect();
        assert_eq!(told, ["server name \"BANK\"", "server name \"EXT\""]);
        // A letter that only others than Envoy take for the same.
        assert_eq!(yielding(chains(&["ban\u{212a}"]), chains(&["bank"]), &mut problems).len(), 2);
    }
}
