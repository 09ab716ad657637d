//! Chains of a listener that are told apart by the server names clients ask for.

use std::collections::BTreeSet;

use crate::generator::Chain;

/// Whether an Envoy takes it: an asterisk, which is also how a tag of any value is written, may be its first label only.
pub(super) fn is_taken(name: &str) -> bool {
    !name.strip_prefix("*.").unwrap_or(name).contains('*')
}

/// Envoy compares server names without regard to case and refuses a second chain for one.
pub(super) fn unambiguous(chains: Vec<Chain>) -> Vec<Chain> {
    let mut seen = BTreeSet::new();
    let name = |chain: &Chain| {
        let names = chain.matches.as_ref().map(|matches| matches.server_names.join(","));
        names.unwrap_or_default().to_lowercase()
    };
    let taken = |chain: &Chain| {
        let mut names = chain.matches.iter().flat_map(|matches| &matches.server_names);
        names.all(|name| is_taken(name))
    };
    chains.into_iter().filter(|chain| taken(chain) && seen.insert(name(chain))).collect()
}
