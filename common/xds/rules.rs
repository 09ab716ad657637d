//! What a stream serves and in which order.

use std::time::Duration;

use prost::Message;

use super::Wanted;
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;

/// How one end in server role behaves.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who answers: `control_plane.identifier`.
    pub identifier: String,
    /// The types served, in the order they are sent in.
    pub types: Vec<TypeRule>,
    /// What a peer gets that asks for another type.
    pub unknown: Unknown,
    /// Whether a removal waits until nothing can refer to the removed resource any more.
    pub make_before_break: bool,
    /// How long a type waits at most for the types it [waits for](TypeRule::waits_for).
    pub patience: Duration,
    /// How many bytes a delta response may have. Only for peers that agreed to it: others take the first
    /// response for the full state.
    pub limit: Option<usize>,
    /// How many names a peer may list per type.
    pub max_names: usize,
    /// How many bytes a name or a version a peer lists may have.
    pub max_name: usize,
    /// How many bytes of names one stream may make this side remember, over all types.
    pub max_bytes: usize,
}

/// How one type is served.
#[derive(Clone, Copy, Debug)]
pub struct TypeRule {
    /// The type, as requests name it.
    pub type_url: &'static str,
    /// A first request without names asks for all.
    pub implied_wildcard: bool,
    /// In the state-of-the-world form each response holds all; what it lacks is gone.
    pub full_state: bool,
    /// Additions and changes wait until the peer has answered for these types.
    pub waits_for: &'static [&'static str],
    /// Resources of this type refer to resources of these types, which go only after it has let go.
    pub uses: &'static [&'static str],
    /// When a resource of this type is sent, the resource of that type with the same name is sent again.
    pub renews: Option<&'static str>,
    /// What stands for a name that does not exist, where the dialect has no other word for that.
    pub vacant: Option<fn(&str) -> Wanted>,
}

/// What a peer gets that asks for a type which is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// An empty answer: there is none of it here.
    Empty,
    /// The end of its stream.
    Refuse,
}

/// Type URLs of Envoy's resources.
pub mod envoy {
    /// CDS.
    pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    /// EDS.
    pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
    /// SDS.
    pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
    /// LDS.
    pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
    /// RDS.
    pub const ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";
    /// RTDS.
    pub const RUNTIME: &str = "type.googleapis.com/envoy.service.runtime.v3.Runtime";
}

impl TypeRule {
    /// A type that stands for itself: all of it by default, in no relation to others.
    pub const fn alone(type_url: &'static str) -> Self {
        Self {
            type_url,
            implied_wildcard: true,
            full_state: false,
            waits_for: &[],
            uses: &[],
            renews: None,
            vacant: None,
        }
    }

    const fn full(type_url: &'static str) -> Self {
        Self { full_state: true, ..Self::alone(type_url) }
    }

    const fn named(type_url: &'static str) -> Self {
        Self { implied_wildcard: false, ..Self::alone(type_url) }
    }
}

/// Envoy confirms clusters only once they are warm, and for that it needs endpoints and secrets; so
/// these two never wait, not even to say that one of them does not exist, and listeners and routes wait
/// for the clusters. A cluster that is replaced warms again and waits for its endpoints even if they are
/// the same; so they are sent again.
const ENVOY: [TypeRule; 6] = [
    TypeRule { renews: Some(envoy::ENDPOINTS), ..TypeRule::full(envoy::CLUSTER) },
    TypeRule { vacant: Some(no_endpoints), ..TypeRule::named(envoy::ENDPOINTS) },
    TypeRule::named(envoy::SECRET),
    TypeRule { waits_for: &[envoy::CLUSTER], uses: &[envoy::CLUSTER], ..TypeRule::full(envoy::LISTENER) },
    TypeRule { waits_for: &[envoy::CLUSTER], uses: &[envoy::CLUSTER], ..TypeRule::named(envoy::ROUTE) },
    TypeRule::named(envoy::RUNTIME),
];

/// Lets a cluster get warm although nothing is behind it.
fn no_endpoints(cluster: &str) -> Wanted {
    let none = ClusterLoadAssignment { cluster_name: cluster.to_owned(), ..Default::default() };
    Wanted::new(cluster, envoy::ENDPOINTS, none.encode_to_vec())
}

/// Longest name or version a peer may list, in bytes: twice a name and a mesh as long as they can be.
const LONGEST_NAME: usize = 1024;

impl Settings {
    /// For a control plane that synchronises its types with another: each for itself; a type this side
    /// lacks is empty.
    pub fn kds(identifier: impl Into<String>, types: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            identifier: identifier.into(),
            types: types.into_iter().map(TypeRule::alone).collect(),
            unknown: Unknown::Empty,
            make_before_break: false,
            patience: Duration::ZERO,
            limit: None,
            max_names: 1_000_000,
            max_name: LONGEST_NAME,
            max_bytes: 64 * 1024 * 1024,
        }
    }

    /// For Envoy and clients like it, over one aggregated stream.
    pub fn ads(identifier: impl Into<String>) -> Self {
        Self {
            types: ENVOY.to_vec(),
            unknown: Unknown::Empty,
            make_before_break: true,
            patience: Duration::from_secs(5),
            max_names: 100_000,
            max_bytes: 4 * 1024 * 1024,
            ..Self::kds(identifier, [])
        }
    }
}
