//! Chains of a listener that are told apart by the server names clients ask for.

use std::collections::BTreeSet;

use crate::generator::Chain;

/// Envoy compares server names without regard to case and refuses a second chain for one.
pub(super) fn unambiguous(chains: Vec<Chain>) -> Vec<Chain> {
    let mut seen = BTreeSet::new();
    let name = |chain: &Chain| {
        let names = chain.matches.as_ref().map(|matches| matches.server_names.join(","));
        names.unwrap_or_default().to_lowercase()
    };
    chains.into_iter().filter(|chain| seen.insert(name(chain))).collect()
}
