//! Settings about the listener proxies connect to.

use std::net::{IpAddr, Ipv4Addr};

use common::config::Interval;
use serde::{Deserialize, Serialize};

/// `dpServer`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DpServer {
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub port: u16,
    /// How proxies prove who they are.
    pub authn: DpAuthn,
    /// Certificate; empty means the one of `general`.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_key_file: String,
    /// Whether there is no TLS at all: for clients that know none, where nobody else can listen.
    pub plaintext: bool,
    /// How proxies look whether their workloads serve.
    pub hds: Hds,
}

/// `dpServer.hds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Hds {
    /// Whether they do.
    pub enabled: bool,
    /// How often they say what they found.
    pub interval: Interval,
    /// How they look, where a probe does not say it.
    pub check_defaults: CheckDefaults,
}

impl Default for Hds {
    fn default() -> Self {
        Self { enabled: true, interval: Interval::seconds(5), check_defaults: CheckDefaults::default() }
    }
}

/// `dpServer.hds.checkDefaults`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CheckDefaults {
    /// How often.
    pub interval: Interval,
    /// How long the workload may take.
    pub timeout: Interval,
    /// After how many successes it serves.
    pub healthy_threshold: u32,
    /// After how many failures it does not.
    pub unhealthy_threshold: u32,
}

impl Default for CheckDefaults {
    fn default() -> Self {
        Self {
            interval: Interval::seconds(1),
            timeout: Interval::seconds(2),
            healthy_threshold: 1,
            unhealthy_threshold: 1,
        }
    }
}

impl Default for DpServer {
    fn default() -> Self {
        Self {
            interface: Ipv4Addr::UNSPECIFIED.into(),
            port: 5678,
            authn: DpAuthn::default(),
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
            plaintext: false,
            hds: Hds::default(),
        }
    }
}

/// `dpServer.authn`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DpAuthn {
    /// Of dataplanes.
    pub dp_proxy: DpProxy,
    /// Of zone ingresses and egresses.
    pub zone_proxy: ZoneProxy,
    /// Of nodes that belong to no mesh.
    pub node: NodeAuthn,
}

/// `dpServer.authn.node`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NodeAuthn {
    /// Which proof.
    #[serde(rename = "type")]
    pub kind: NodeAuth,
}

/// `dpServer.authn.node.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeAuth {
    /// A user token in the name of the node, of the group `mesh-system:node`.
    #[default]
    #[serde(rename = "userToken")]
    UserToken,
    /// None: whoever reaches the port may be any node.
    #[serde(rename = "none")]
    None,
}

/// `dpServer.authn.dpProxy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DpProxy {
    /// Which proof.
    #[serde(rename = "type")]
    pub kind: DpProxyAuth,
    /// What is asked of dataplane tokens.
    pub dp_token: DpToken,
}

/// `dpServer.authn.dpProxy.dpToken`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DpToken {
    /// Whether the token of a proxy that brings its own resource must name all tags and the workload that are in
    /// it: one that names only a proxy lets it take any service's place.
    pub require_bound: bool,
}

/// `dpServer.authn.dpProxy.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DpProxyAuth {
    /// A dataplane token.
    #[default]
    #[serde(rename = "dpToken")]
    DpToken,
    /// None: whoever reaches the port may be any dataplane.
    #[serde(rename = "none")]
    None,
}

/// `dpServer.authn.zoneProxy`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneProxy {
    /// Which proof.
    #[serde(rename = "type")]
    pub kind: ZoneProxyAuth,
}

/// `dpServer.authn.zoneProxy.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ZoneProxyAuth {
    /// A zone token with the scope of the proxy.
    #[default]
    #[serde(rename = "zoneToken")]
    ZoneToken,
    /// None: whoever reaches the port may be any zone proxy.
    #[serde(rename = "none")]
    None,
}
