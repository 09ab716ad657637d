//! Plays the Envoys of a mesh: thousands of proxies in one process, each with a connection and a stream of its
//! own, that ask, acknowledge and count, and decode next to nothing.
//!
//! ```text
//!  scenario ──► admin (REST): mesh, dataplanes, policies, tokens
//!  fleet ──► proxy ══ ADS, SotW or Delta ══► a zone of Strait, or a control plane of Kuma
//!              └──► observer: when the last proxy had acknowledged, and how much was sent
//! ```

mod admin;
mod exercise;
mod fleet;
mod local_zone;
mod observer;
pub mod process;
mod proxy;
mod references;
mod response;
mod scenario;
mod subscriptions;
mod tls;
pub mod wire;

pub use self::{
    admin::{AdminApi, AdminError},
    exercise::{Exercise, Storm},
    fleet::{Fleet, FleetError, FleetOptions, Recording, Slowness},
    local_zone::StandaloneZone,
    observer::{Observation, Observer, Traffic, Watched},
    proxy::PlayError,
    response::BrokenStream,
    scenario::{Scenario, ServiceNumber},
    tls::{TrustError, Trusting},
};

/// A type of resource an Envoy asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// CDS.
    Cluster,
    /// EDS.
    Endpoint,
    /// LDS.
    Listener,
    /// RDS.
    Route,
    /// SDS.
    Secret,
}

impl ResourceType {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Cluster, Self::Endpoint, Self::Listener, Self::Route, Self::Secret];

    /// The type URL.
    pub const fn url(self) -> &'static str {
        match self {
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
        }
    }

    /// Its short name.
    pub const fn short(self) -> &'static str {
        match self {
            Self::Cluster => "CDS",
            Self::Endpoint => "EDS",
            Self::Listener => "LDS",
            Self::Route => "RDS",
            Self::Secret => "SDS",
        }
    }

    fn of(url: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.url().as_bytes() == url)
    }
}

/// How configuration is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum AdsProtocol {
    /// State of the world: what is listed is everything.
    #[default]
    Sotw,
    /// Incremental: what changed, and what is gone.
    Delta,
}
