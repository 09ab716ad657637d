//! From many policies to one answer: sort, select, merge. Everything here is a pure function of values.
//!
//! ```text
//! Resource ── Policy::parse (once per policy) ──► PolicySet ── by Reach, of(proxy) ──► Selection
//!                                                                                         │
//!      per inbound: inbound_rules, access_rules and client_rules (groups of clients) ◄────┤
//!      per destination, one on demand: OutboundRules                                    ◄─┤
//!      per destination, all: to_rules ── tag service ──► TagRules                       ◄─┘
//!                                     └─ real resource ─► ResourceRules (KRI → service → Mesh)
//! ```
//!
//! What is kept ([`PolicySet`], [`Destinations`], [`Selection`], [`OutboundRules`]) is changed by one resource
//! at a time, at the cost of that resource; what it is for is found by an index: policies by what a proxy must
//! have ([`Reach`]), items by what they point at.
//!
//! Configurations are merged as JSON, because one algorithm then serves every kind, and decoded into the
//! type of the kind at the end ([`TagRule::conf`], [`ResourceRule::conf`], [`InboundRules::unconditional`]).

mod access;
mod alone;
mod by_service;
mod destinations;
mod gateway;
mod inbound;
mod memo;
pub mod merge;
pub mod order;
mod outbound;
mod overlap;
mod partition;
mod policy;
mod producer;
mod proxy;
mod reach;
mod resource;
mod select;
mod set;
mod subset;
mod tag;
#[cfg(test)]
mod tests;
mod to;

use std::{collections::HashSet, sync::Arc};

use serde::de::DeserializeOwned;
use serde_json::Value;
use thiserror::Error;

pub use access::access_rules;
pub use alone::too_much_alone;
pub use destinations::{Destinations, ServicePort, TargetResource};
pub use gateway::{ListenerKey, SelectableGateway};
pub use inbound::{InboundRule, InboundRules};
pub use outbound::{Concern, OutboundRules, PointedAt};
pub use policy::{Policy, PolicyItem, RuleItem};
pub use proxy::{InboundKey, SelectableInbound, SelectableProxy};
pub use reach::{Reach, ReachIndex, most_telling};
pub use resource::{ResourceRule, ResourceRules};
pub use select::Selection;
pub use set::{Policies, PolicyChange, PolicySet};
pub use subset::{Element, Subset, Tag};
pub use tag::{TagRule, TagRules};
pub use to::{MATCHES_HASH_TAG, ToRules, to_rules};

use super::decode;
use crate::model::{FieldPath, SpecError};

/// Why policies cannot be turned into rules.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RulesError {
    /// The targets of `from` or `to` overlap in more ways than can be told apart.
    #[error(
        "the targets of these policies overlap in too many ways (the limit is {limit} groups, or the work of as many); \
         use fewer items and tags per list"
    )]
    TooManySubsets {
        /// How many are too many.
        limit: usize,
    },
    /// A policy is for a route that does not exist.
    #[error("can't resolve MeshHTTPRoute {route:?}, which {policy} is for")]
    MissingRoute {
        /// Name of the route.
        route: String,
        /// The policy.
        policy: String,
    },
}

/// A policy item that contributed to a configuration.
#[derive(Clone, Debug)]
pub struct RuleOrigin {
    /// The policy.
    pub policy: Arc<Policy>,
    /// Which item of its list.
    pub index: usize,
}

/// Decodes a merged configuration.
fn decode_conf<C: DeserializeOwned>(conf: &Value) -> Result<C, SpecError> {
    decode::value_at(&FieldPath::new("default"), conf)
}

/// `origins` without repetition: of policy and index, or of the policy alone.
fn distinct(origins: impl IntoIterator<Item = RuleOrigin>, by_index: bool) -> Vec<RuleOrigin> {
    let mut seen = HashSet::new();
    let index = |o: &RuleOrigin| if by_index { o.index } else { 0 };
    origins.into_iter().filter(|o| seen.insert((o.policy.resource.key.clone(), index(o)))).collect()
}
