//! What a stream serves and in which order.

use std::{sync::Arc, time::Duration};

use prost::Message;

use super::{NamePool, Wanted};
use crate::proto::envoy::config::endpoint::v3::ClusterLoadAssignment;

/// How one end in server role behaves.
#[derive(Clone, Debug)]
pub struct SourceSettings {
    /// Who answers: `control_plane.identifier`.
    pub identifier: String,
    /// The types served, in the order they are sent in.
    pub types: Vec<TypeRule>,
    /// What a peer gets that asks for another type.
    pub unknown: Unknown,
    /// The type a request means that names none, where a stream is about one type only.
    pub implied: Option<&'static str>,
    /// Whether a removal waits until nothing can refer to the removed resource any more.
    pub make_before_break: bool,
    /// How long a type waits at most for the types it [waits for](TypeRule::waits_for).
    pub patience: Duration,
    /// How many bytes a delta response may have, unless it is about one resource; what does not fit follows once it
    /// was answered. Between control planes only for peers that agreed to it: others take the first response for
    /// the full state.
    pub limit: Option<usize>,
    /// How long a peer that can tell time keeps what is [perishable](TypeRule::perishable) without a word from this
    /// side; `None` for as long as it likes.
    pub ttl: Option<Duration>,
    /// How many names a peer may list per type.
    pub max_names: usize,
    /// How many bytes a name or a version a peer lists may have.
    pub max_name: usize,
    /// How many bytes of names one stream may make this side remember, over all types.
    pub max_bytes: usize,
    /// Where the names of peers are kept that ask for the same; one for all streams of a server.
    pub names: Arc<NamePool>,
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
    /// What changed of a few names of this type may be told before more that waits of other types. Only for
    /// what means something to a peer as it is now.
    pub overtakes: bool,
    /// What stands for a name that does not exist, where the dialect has no other word for that.
    pub vacant: Option<fn(&str) -> Wanted>,
    /// Peers are not told that a resource is gone: what they do then is worse than keeping it.
    pub stays: bool,
    /// A resource of this type may do harm when nobody looks after it any more.
    pub perishable: bool,
    /// The version of a state of the world is always that of its content, and never one that authors gave: for
    /// peers who know by nothing else that something is gone.
    pub by_content: bool,
    /// After a refusal that names nothing, halves are offered until what was meant is found.
    pub narrows: bool,
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
    /// SRDS.
    pub const SCOPED_ROUTE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
    /// VHDS.
    pub const VIRTUAL_HOST: &str = "type.googleapis.com/envoy.config.route.v3.VirtualHost";
    /// LEDS.
    pub const LB_ENDPOINT: &str = "type.googleapis.com/envoy.config.endpoint.v3.LbEndpoint";
    /// ECDS.
    pub const EXTENSION_CONFIG: &str = "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig";
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
            overtakes: false,
            vacant: None,
            stays: false,
            perishable: false,
            by_content: false,
            narrows: false,
        }
    }

    /// The same for peers that take items one by one and may not say which one they refuse.
    const fn narrowed(type_url: &'static str) -> Self {
        Self { narrows: true, ..Self::full(type_url) }
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
/// the same; so they are sent again. With a route configuration it drops the virtual hosts it was sent for it; so are
/// they.
const ENVOY: [TypeRule; 7] = [
    TypeRule { renews: Some(envoy::ENDPOINTS), ..TypeRule::full(envoy::CLUSTER) },
    TypeRule {
        overtakes: true,
        vacant: Some(no_endpoints),
        perishable: true,
        ..TypeRule::named(envoy::ENDPOINTS)
    },
    TypeRule::named(envoy::SECRET),
    TypeRule { waits_for: &[envoy::CLUSTER], uses: &[envoy::CLUSTER], ..TypeRule::full(envoy::LISTENER) },
    TypeRule {
        waits_for: &[envoy::CLUSTER],
        uses: &[envoy::CLUSTER],
        renews: Some(envoy::VIRTUAL_HOST),
        ..TypeRule::named(envoy::ROUTE)
    },
    TypeRule {
        waits_for: &[envoy::CLUSTER],
        uses: &[envoy::CLUSTER],
        ..TypeRule::named(envoy::VIRTUAL_HOST)
    },
    TypeRule { perishable: true, ..TypeRule::named(envoy::RUNTIME) },
];

/// Types that only streams of their own serve: of these a control plane of a mesh has nothing, and says so.
const BESIDE_ADS: [TypeRule; 3] = [
    TypeRule::alone(envoy::SCOPED_ROUTE),
    TypeRule::named(envoy::LB_ENDPOINT),
    // An Envoy without the configuration of a filter refuses traffic.
    TypeRule { stays: true, ..TypeRule::named(envoy::EXTENSION_CONFIG) },
];

/// Lets a cluster get warm although nothing is behind it.
fn no_endpoints(cluster: &str) -> Wanted {
    let none = ClusterLoadAssignment { cluster_name: cluster.to_owned(), ..Default::default() };
    Wanted::new(cluster, envoy::ENDPOINTS, none.encode_to_vec())
}

/// Bytes of a response that is one of several: half of what libraries of gRPC take if nobody asks them for more.
const RESPONSE: usize = 2 << 20;

/// Longest name or version a peer may list, in bytes: twice a name and a mesh as long as they can be.
const LONGEST_NAME: usize = 1024;

impl SourceSettings {
    /// For a control plane that synchronises its types with another: each for itself; a type this side
    /// lacks is empty.
    pub fn kds(identifier: impl Into<String>, types: impl IntoIterator<Item = &'static str>) -> Self {
        Self {
            identifier: identifier.into(),
            types: types.into_iter().map(TypeRule::narrowed).collect(),
            unknown: Unknown::Empty,
            implied: None,
            make_before_break: false,
            patience: Duration::ZERO,
            limit: None,
            ttl: None,
            max_names: 1_000_000,
            max_name: LONGEST_NAME,
            max_bytes: 64 * 1024 * 1024,
            names: Arc::default(),
        }
    }

    /// For Envoy and clients like it, over one aggregated stream.
    pub fn ads(identifier: impl Into<String>) -> Self {
        Self {
            types: ENVOY.to_vec(),
            unknown: Unknown::Empty,
            make_before_break: true,
            patience: Duration::from_secs(5),
            limit: Some(RESPONSE),
            max_names: 100_000,
            max_bytes: 4 * 1024 * 1024,
            ..Self::kds(identifier, [])
        }
    }

    /// The same for a peer that asks again and again, and tells by the version whether anything differs.
    #[must_use]
    pub fn polled(mut self) -> Self {
        self.types.iter_mut().for_each(|rule| rule.by_content = true);
        // Nobody would say later that it is still good.
        Self { ttl: None, ..self }
    }

    /// For Envoy and clients like it, over a stream that is about one type only. Nothing orders it with the
    /// streams of other types.
    pub fn alone(identifier: impl Into<String>, type_url: &'static str) -> Self {
        let rule = ENVOY.iter().chain(&BESIDE_ADS).find(|rule| rule.type_url == type_url);
        Self {
            types: vec![rule.copied().unwrap_or(TypeRule::alone(type_url))],
            unknown: Unknown::Refuse,
            implied: Some(type_url),
            ..Self::ads(identifier)
        }
    }
}
