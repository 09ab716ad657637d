//! The rules by which an Envoy takes or refuses a resource, so that nothing leaves that it would refuse.
//!
//! Most of them stand beside the members of the messages in the files that describe these, from where the build script
//! takes them; what Envoy looks at beyond that stands in here. An encoded message is looked at as it is, with what is
//! packed in it, without being unpacked. What nobody here knows is let through: another version of Envoy may know it.

mod cluster;
mod listener;
mod noted;
mod plan;
mod routes;
mod table;
mod trust;
mod value;
mod walk;

use std::sync::LazyLock;

pub use listener::{ListenAddress, listens_at};

use self::{noted::Look, plan::RuleBook, walk::RuleWalk};
use crate::{model::FieldPath, proto::ENVOY_RULES};

/// Broken rules of one resource that are told.
const TOLD: usize = 20;

/// Messages that are looked at as a whole.
const LOOKS: [(&str, Look); 9] = [
    ("envoy.config.listener.v3.Listener", listener::listener),
    ("envoy.config.listener.v3.FilterChain", listener::chain),
    (
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        listener::connection_manager,
    ),
    ("envoy.config.core.v3.TransportSocket", listener::transport_socket),
    ("envoy.config.route.v3.RouteConfiguration", routes::configuration),
    ("envoy.config.route.v3.WeightedCluster", routes::weights),
    ("envoy.type.matcher.v3.RegexMatcher", routes::expression),
    ("envoy.config.cluster.v3.Cluster", cluster::cluster),
    ("envoy.extensions.transport_sockets.tls.v3.SPIFFECertValidatorConfig", trust::domains),
];

static BOOK: LazyLock<RuleBook> = LazyLock::new(|| RuleBook::read(ENVOY_RULES, &LOOKS));

/// A rule that a resource breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenRule {
    /// The member, in the notation of the files that describe it.
    pub field: FieldPath,
    /// What is wrong with it.
    pub reason: String,
}

/// What an Envoy would not take of an encoded message of this type.
pub fn broken(type_url: &str, message: &[u8]) -> Vec<BrokenRule> {
    RuleWalk::of(&BOOK, type_url, message)
}

#[cfg(test)]
mod tests;
