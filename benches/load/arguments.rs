//! What `strait-load` is told.

use std::{path::PathBuf, time::Duration};

use clap::Parser;
use load::{AdsProtocol, Scenario};

/// Plays the proxies of a mesh and says what that costs the control plane.
///
/// Makes a mesh with dataplanes and policies through the REST API, connects one stream for each proxy, and
/// prints: how long the first configuration of all takes; how long after a change the last proxy has
/// acknowledged it, and how much was sent for it; and how much memory a proxy costs the server.
///
/// Size a zone with one command, which starts one for it:
///
///   strait-load --start target/release/strait-zone --proxies 1000 --services 200 --outbounds 50
///
/// Measure one that runs (policies and tokens are made at its global):
///
///   strait-load --xds https://zone:5678 --ca both.crt --api https://zone:5682 --user-token zone.token \
///               --policy-api https://global:5682 --policy-user-token global.token
///
/// A control plane of Kuma takes the same options.
#[derive(Debug, Parser)]
#[command(name = "strait-load", version, verbatim_doc_comment)]
pub struct Arguments {
    /// Starts this strait-zone, on its own, in a temporary folder; no other address is needed then
    #[arg(long, value_name = "PROGRAM")]
    pub start: Option<PathBuf>,
    /// Where proxies connect to; http:// without TLS
    #[arg(long, value_name = "URL", default_value = "https://localhost:5678")]
    pub xds: String,
    /// Certificates the server of the proxies and the APIs are checked against, in one file; without it proxies
    /// believe anybody, and the APIs have to have a certificate this machine knows
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// REST API of the zone, where dataplanes are written
    #[arg(long, value_name = "URL", default_value = "http://localhost:5681")]
    pub api: String,
    /// REST API of its global, where mesh, policies and tokens are made; that of the zone when it has none
    #[arg(long, value_name = "URL")]
    pub policy_api: Option<String>,
    /// File with the token of an administrator there, such as `.strait/admin-user-token`
    #[arg(long, value_name = "FILE")]
    pub user_token: Option<PathBuf>,
    /// The same for the API of global
    #[arg(long, value_name = "FILE")]
    pub policy_user_token: Option<PathBuf>,
    /// File with a token that every proxy shows
    #[arg(long, value_name = "FILE", conflicts_with_all = ["tokens", "no_tokens"])]
    pub token: Option<PathBuf>,
    /// Folder with a file for each proxy, named like it, with its token; else they are made by the API
    #[arg(long, value_name = "FOLDER", conflicts_with = "no_tokens")]
    pub tokens: Option<PathBuf>,
    /// Shows no tokens
    #[arg(long)]
    pub no_tokens: bool,
    /// Process of the control plane, when it runs on this machine; its memory and processor time are shown
    #[arg(long)]
    pub pid: Option<u32>,

    /// Name of the mesh
    #[arg(long, default_value = "load")]
    pub mesh: String,
    /// Proxies to play
    #[arg(long, default_value_t = 100)]
    pub proxies: usize,
    /// Services
    #[arg(long, default_value_t = 100)]
    pub services: usize,
    /// Services each proxy calls
    #[arg(long, default_value_t = 50)]
    pub outbounds: usize,
    /// Endpoints whose proxies are not played; what changes is one of them
    #[arg(long, default_value_t = 100)]
    pub endpoints: usize,
    /// Policies for one service each
    #[arg(long, default_value_t = 10)]
    pub policies: usize,
    /// Workloads talk plain text to each other
    #[arg(long)]
    pub no_mtls: bool,
    /// Everything is there from an earlier run
    #[arg(long)]
    pub prepared: bool,
    /// Deletes everything at the end
    #[arg(long)]
    pub delete: bool,

    /// What the proxies speak
    #[arg(long, value_enum, default_value_t)]
    pub protocol: AdsProtocol,
    /// Handshakes at once
    #[arg(long, default_value_t = 200)]
    pub connecting: usize,
    /// Every so many-th proxy reads slowly; 0 for none
    #[arg(long, default_value_t = 0)]
    pub slow_every: usize,
    /// Bytes a slow proxy reads in a second
    #[arg(long, default_value_t = 65_536)]
    pub slow_rate: u32,
    /// How often each kind of change is made
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Endpoints that change every second of a storm; 0 for no storm
    #[arg(long, default_value_t = 0)]
    pub storm: usize,
    /// Seconds of the storm
    #[arg(long, default_value_t = 60)]
    pub storm_seconds: usize,
    /// Seconds to stay connected at the end
    #[arg(long, default_value_t = 0)]
    pub stay: u64,
    /// Longest wait for anything, in seconds
    #[arg(long, default_value_t = 600)]
    pub patience: u64,
}

impl Arguments {
    /// The mesh that is played.
    pub fn scenario(&self) -> Scenario {
        Scenario {
            mesh: self.mesh.clone(),
            proxies: self.proxies,
            services: self.services.max(1),
            outbounds: self.outbounds,
            endpoints: self.endpoints,
            mtls: !self.no_mtls,
        }
    }

    /// Longest wait for anything.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(self.patience)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn arguments_are_sound() {
        Arguments::command().debug_assert();
    }
}
