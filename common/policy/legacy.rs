//! Policies of the older generation: whom they select stands in `selectors`, or in `sources` and `destinations`.
//!
//! ```text
//! Resource ── LegacyPolicy::parse (once per policy) ──► LegacySet ── candidates(proxy) ──► choice: one winner per
//!                                                                    service or inbound, or all that fit
//! ```
//!
//! None of this is merged: for one place there is one winner, the most specific one.

mod check;
pub mod choice;
pub mod circuit_breaker;
pub mod fault_injection;
pub mod health_check;
mod policy;
pub mod proxy_template;
pub mod rate_limit;
pub mod retry;
mod selector;
mod set;
#[cfg(test)]
mod tests;
pub mod timeout;
pub mod traffic_log;
pub mod traffic_permission;
pub mod traffic_route;
pub mod traffic_trace;

pub use policy::{LegacyConf, LegacyPolicy, LegacyRole};
pub use selector::{Rank, Tags, rank, selects, tag_sets};
pub use set::{LegacyChange, LegacySet};

use super::{
    mesh_health_check, mesh_rate_limit, mesh_retry, mesh_timeout, mesh_trace, mesh_traffic_permission,
};
use crate::model::{Kind, PolicyTraits};

/// All of them, by name.
pub static KINDS: [&Kind; 11] = [
    &circuit_breaker::KIND,
    &fault_injection::KIND,
    &health_check::KIND,
    &proxy_template::KIND,
    &rate_limit::KIND,
    &retry::KIND,
    &timeout::KIND,
    &traffic_log::KIND,
    &traffic_permission::KIND,
    &traffic_route::KIND,
    &traffic_trace::KIND,
];

/// The newer kind that takes the place of one of these where both are for the same. Those without one are merged
/// with what newer policies say, or come beside it; where calls go, newer routes decide about.
pub fn successor(kind: &Kind) -> Option<&'static Kind> {
    let successors: [(&Kind, &'static Kind); 6] = [
        (&timeout::KIND, &mesh_timeout::KIND),
        (&retry::KIND, &mesh_retry::KIND),
        (&health_check::KIND, &mesh_health_check::KIND),
        (&traffic_permission::KIND, &mesh_traffic_permission::KIND),
        (&rate_limit::KIND, &mesh_rate_limit::KIND),
        (&traffic_trace::KIND, &mesh_trace::KIND),
    ];
    successors.into_iter().find(|(older, _)| *older == kind).map(|(_, newer)| newer)
}

/// Whether `kind` is one of them.
pub fn is_one(kind: &Kind) -> bool {
    KINDS.contains(&kind)
}

const fn kind(name: &'static str, path: &'static str, message: &'static str, arg: &'static str) -> Kind {
    let traits =
        PolicyTraits { target_ref: false, to: false, from: false, rules: false, from_as_rules: false };
    Kind::proto(name, path, message).flow(17).named(arg, "").policy(traits)
}
