//! What may be asked of the Envoy of a proxy, and of what the control plane has for it, and who can ask.
//!
//! A zone asks its own Envoys, global asks the zone; who wants to know sees no difference.

mod mailbox;

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use self::mailbox::{Mailbox, Undelivered};
use crate::{events::StreamKind, model::ResourceKey};

/// A question to one Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// The configuration it runs with; Envoy leaves out private keys.
    ConfigDump {
        /// With the endpoints, which make most of it.
        include_eds: bool,
    },
    /// Its counters.
    Stats {
        /// How to write them.
        format: AdminFormat,
        /// Only those that were ever changed.
        used_only: bool,
    },
    /// Its clusters and the state of their endpoints.
    Clusters {
        /// How to write them.
        format: AdminFormat,
    },
    /// What it is to run with. That is asked of its control plane.
    Plan(ConfigOptions),
}

/// Which configuration is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigOptions {
    /// With the policies that are only being tried out.
    pub shadow: bool,
    /// And what they change.
    pub diff: bool,
}

impl ConfigOptions {
    /// From the query of a request; an error names the parameter that makes no sense.
    ///
    /// # Errors
    /// The name of a parameter with another value than those there are.
    pub fn parse(query: &[(String, String)]) -> Result<Self, &'static str> {
        let value = |name: &str| {
            let found = query.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
        };
        let shadow = match value("shadow") {
            None | Some("0" | "f" | "F" | "false" | "False" | "FALSE") => false,
            Some("1" | "t" | "T" | "true" | "True" | "TRUE") => true,
            Some(_) => return Err("shadow"),
        };
        let include = value("include");
        if include.into_iter().flat_map(|list| list.split(',')).any(|word| word != "diff") {
            return Err("include");
        }
        Ok(Self { shadow, diff: include.is_some() })
    }
}

/// How an answer is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminFormat {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Ask {
    /// Path and query under which it is answered, by Envoy where it is asked.
    pub fn path(self) -> String {
        let (path, parameters) = match self {
            Self::ConfigDump { include_eds } => ("/config_dump", vec![("include_eds", include_eds)]),
            Self::Stats { used_only, .. } => {
                ("/stats", vec![("usedonly", used_only), ("format=json", self.is_json())])
            }
            Self::Clusters { .. } => ("/clusters", vec![("format=json", self.is_json())]),
            Self::Plan(ConfigOptions { shadow, diff }) => {
                ("/_config", vec![("shadow=true", shadow), ("include=diff", diff)])
            }
        };
        let set: Vec<&str> = parameters.into_iter().filter_map(|(name, set)| set.then_some(name)).collect();
        if set.is_empty() { path.to_owned() } else { format!("{path}?{}", set.join("&")) }
    }

    /// Whether the answer is JSON.
    pub fn is_json(self) -> bool {
        match self {
            Self::ConfigDump { .. } | Self::Plan(_) => true,
            Self::Stats { format, .. } | Self::Clusters { format } => format == AdminFormat::Json,
        }
    }

    /// The stream of a zone on which global asks it.
    pub fn stream(self) -> StreamKind {
        match self {
            Self::ConfigDump { .. } | Self::Plan(_) => StreamKind::ConfigDump,
            Self::Stats { .. } => StreamKind::Stats,
            Self::Clusters { .. } => StreamKind::Clusters,
        }
    }
}

/// Who can ask Envoys, and say what they are to run with.
#[async_trait]
pub trait EnvoyAdmin: Send + Sync + 'static {
    /// The answer of the Envoy of `proxy`: a `Dataplane`, `ZoneIngress` or `ZoneEgress` by its name here.
    ///
    /// # Errors
    /// [`AskError`].
    async fn ask(&self, proxy: &ResourceKey, ask: Ask) -> Result<Bytes, AskError>;
}

/// Why there is no answer, and what to do.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AskError {
    /// There is no such proxy.
    #[error("{0} does not exist here")]
    Unknown(ResourceKey),
    /// Its Envoy is not there.
    #[error(
        "the Envoy of {0} is not connected here: start it, or ask the replica of its zone that its insight names"
    )]
    NotConnected(ResourceKey),
    /// Its Envoy is there, but not to be asked.
    #[error("the Envoy of {proxy} cannot be asked: {reason}")]
    Closed {
        /// Which proxy.
        proxy: ResourceKey,
        /// Why, and what to do.
        reason: String,
    },
    /// Its Envoy could not be asked, or answered with an error.
    #[error("ask the Envoy of {proxy} at {address}: {reason}")]
    Failed {
        /// Which proxy.
        proxy: ResourceKey,
        /// Where its admin endpoint is.
        address: String,
        /// What went wrong.
        reason: String,
    },
    /// The answer is longer than a message may be.
    #[error(
        "the answer has {bytes} bytes and {limit} fit in a message: ask the control plane of the zone itself"
    )]
    TooLong {
        /// How long it is.
        bytes: usize,
        /// How long it may be.
        limit: usize,
    },
    /// Too much is asked at once.
    #[error("{0} questions are being answered already: ask again in a moment")]
    Busy(usize),
    /// Nobody answered.
    #[error("no answer within {0:?}: ask again, or look at the load of the zone and of the proxy")]
    TooLate(Duration),
    /// The zone is not there to be asked.
    #[error("zone {zone} cannot be asked: {reason}")]
    ZoneAway {
        /// Which zone.
        zone: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The zone does not know what it was asked.
    #[error("the zone of {0} shows what its Envoy runs with and nothing else: ask its own control plane")]
    Unplanned(ResourceKey),
    /// The replica of this control plane that can ask did not get an answer.
    #[error("asked through its replica {instance}: {reason}")]
    Elsewhere {
        /// Which instance.
        instance: String,
        /// In its words.
        reason: String,
    },
    /// The zone answered with an error.
    #[error("zone {zone}: {reason}")]
    Zone {
        /// Which zone.
        zone: String,
        /// In its words.
        reason: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_is_asked_in_its_own_words() {
        let path = |ask: Ask, expected: &str| assert_eq!(ask.path(), expected, "{ask:?}");
        path(Ask::ConfigDump { include_eds: false }, "/config_dump");
        path(Ask::ConfigDump { include_eds: true }, "/config_dump?include_eds");
        path(Ask::Stats { format: AdminFormat::Text, used_only: false }, "/stats");
        path(Ask::Stats { format: AdminFormat::Json, used_only: true }, "/stats?usedonly&format=json");
        path(Ask::Clusters { format: AdminFormat::Text }, "/clusters");
        path(Ask::Clusters { format: AdminFormat::Json }, "/clusters?format=json");
        path(Ask::Plan(ConfigOptions { shadow: true, diff: true }), "/_config?shadow=true&include=diff");
    }
}
