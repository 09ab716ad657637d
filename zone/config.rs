//! Settings of `strait-zone`.

use std::net::{IpAddr, Ipv4Addr};

use common::config::{
    AccessSection, ApiServer, Config, ConfigError, DataplaneDefaults, Diagnostics, General, Interval,
    Logging, StoreSection, SyncLabels,
};
use serde::{Deserialize, Serialize};

/// All settings; the paths are Kuma's where Kuma has the setting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneConfig {
    /// Kuma's switch between its modes; here only a check that the file is meant for this process.
    pub mode: Mode,
    /// Where resources live.
    pub store: StoreSection,
    /// REST.
    pub api_server: ApiServer,
    /// Who may do what in REST.
    pub access: AccessSection,
    /// Health, readiness, metrics.
    pub diagnostics: Diagnostics,
    /// Folders, certificates, shutdown.
    pub general: General,
    /// Logs.
    pub logging: Logging,
    /// What a fresh control plane makes for itself.
    pub defaults: DataplaneDefaults,
    /// The zone and its global.
    pub multizone: Multizone,
    /// The listener proxies connect to.
    pub dp_server: DpServer,
    /// What proxies are told at their start.
    pub bootstrap_server: BootstrapServer,
    /// Serving configuration to proxies.
    pub xds_server: XdsServer,
}

/// `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The only value this process accepts.
    #[default]
    Zone,
}

/// `multizone`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Multizone {
    /// The zone side.
    pub zone: Zone,
}

/// `multizone.zone`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Zone {
    /// Name of this zone.
    pub name: String,
    /// Where global is: `grpcs://host:5685`, or `grpc://` without TLS; empty for a zone on its own.
    pub global_address: String,
    /// The connection to global.
    pub kds: Kds,
    /// Accept policies without the label `kuma.io/origin: zone`.
    pub disable_origin_label_validation: bool,
}

impl Default for Zone {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            global_address: String::new(),
            kds: Kds::default(),
            disable_origin_label_validation: false,
        }
    }
}

/// `multizone.zone.kds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Kds {
    /// PEM file with the roots global's certificate is checked against; empty: those of the machine.
    pub root_ca_file: String,
    /// Do not check global's certificate.
    pub tls_skip_verify: bool,
    /// Zone token shown to global.
    pub token: String,
    /// File with the zone token; read at every connect.
    pub token_file: String,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Labels that stay here.
    pub labels: SyncLabels,
}

impl Default for Kds {
    fn default() -> Self {
        Self {
            root_ca_file: String::new(),
            tls_skip_verify: false,
            token: String::new(),
            token_file: String::new(),
            max_msg_size: 10 * 1024 * 1024,
            labels: SyncLabels::default(),
        }
    }
}

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
}

impl Default for DpServer {
    fn default() -> Self {
        Self {
            interface: Ipv4Addr::UNSPECIFIED.into(),
            port: 5678,
            authn: DpAuthn::default(),
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
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
    /// Whether the token of a proxy that brings its own resource must name the tag `kuma.io/service` or a
    /// workload: one that names only a proxy lets it take any service's place.
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

/// `bootstrapServer`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BootstrapServer {
    /// What goes into a bootstrap.
    pub params: BootstrapParams,
}

/// `bootstrapServer.params`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BootstrapParams {
    /// Host proxies connect to; empty: the one the bootstrap was asked at.
    pub xds_host: String,
    /// Port proxies connect to; 0: the port of `dpServer`.
    pub xds_port: u16,
    /// How long that may take.
    pub xds_connect_timeout: Interval,
    /// Address of Envoy's admin listener.
    pub admin_address: String,
    /// Its port, unless the dataplane names one; 0 for none.
    pub admin_port: u16,
}

impl Default for BootstrapParams {
    fn default() -> Self {
        Self {
            xds_host: String::new(),
            xds_port: 0,
            xds_connect_timeout: Interval::seconds(1),
            admin_address: "127.0.0.1".to_owned(),
            admin_port: 9901,
        }
    }
}

/// `xdsServer`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct XdsServer {
    /// How long a proxy that registered itself may be away before its resource is deleted.
    pub dataplane_deregistration_delay: Interval,
    /// How often counters of a proxy's subscription are written.
    pub dataplane_status_flush_interval: Interval,
}

impl Default for XdsServer {
    fn default() -> Self {
        Self {
            dataplane_deregistration_delay: Interval::seconds(10),
            dataplane_status_flush_interval: Interval::seconds(10),
        }
    }
}

impl ZoneConfig {
    /// Whether this zone has a global.
    pub fn is_federated(&self) -> bool {
        !self.multizone.zone.global_address.is_empty()
    }
}

impl Config for ZoneConfig {
    const HELP: &'static [(&'static str, &'static str)] = &[
        ("mode", "Kept for files written for Kuma: must be zone"),
        ("store.unsafeDelete", "Allow deletes that orphan something (a mesh in use)"),
        ("defaults.skipMeshCreation", "A zone on its own: do not create the mesh `default`"),
        ("multizone.zone.name", "Name of this zone, a DNS label"),
        ("multizone.zone.globalAddress", "grpcs://host:5685 (or grpc:// without TLS); empty: no global"),
        ("multizone.zone.kds.rootCaFile", "Roots global's certificate is checked against, PEM"),
        ("multizone.zone.kds.tlsSkipVerify", "Do not check global's certificate (unsafe)"),
        ("multizone.zone.kds.token", "Zone token with scope cp, shown to global"),
        ("multizone.zone.kds.tokenFile", "File with that token; read at every connect"),
        ("multizone.zone.kds.maxMsgSize", "Largest sync message, in bytes"),
        ("multizone.zone.kds.labels.skipPrefixes", "Labels that begin so are not sent to global"),
        ("multizone.zone.disableOriginLabelValidation", "Accept policies without origin label in the API"),
        ("dpServer.interface", "Address proxies connect to"),
        ("dpServer.port", "Port proxies connect to; 0: a free one"),
        ("dpServer.authn.dpProxy.type", "How dataplanes prove who they are: dpToken or none (unsafe)"),
        (
            "dpServer.authn.dpProxy.dpToken.requireBound",
            "Let a proxy bring its own resource only with a token bound to kuma.io/service or a workload",
        ),
        ("dpServer.authn.zoneProxy.type", "How zone proxies prove who they are: zoneToken or none (unsafe)"),
        ("dpServer.tlsCertFile", "Certificate shown to proxies; empty: the general one"),
        ("dpServer.tlsKeyFile", "Key of that certificate"),
        ("bootstrapServer.params.xdsHost", "Host proxies connect to; empty: where they asked"),
        ("bootstrapServer.params.xdsPort", "Port proxies connect to; 0: the port of dpServer"),
        ("bootstrapServer.params.xdsConnectTimeout", "How long that may take"),
        ("bootstrapServer.params.adminAddress", "Address of Envoy's admin listener"),
        ("bootstrapServer.params.adminPort", "Its port, unless the dataplane names one; 0: none"),
        ("xdsServer.dataplaneDeregistrationDelay", "Absence after which a self-registered proxy is deleted"),
        ("xdsServer.dataplaneStatusFlushInterval", "How often counters of proxies are written"),
    ];

    const ELSEWHERE: &'static [&'static str] = &["MULTIZONE_GLOBAL_"];

    fn validate(&self) -> Result<(), ConfigError> {
        self.general.validate()?;
        self.api_server.authn.validate()?;
        let zone = &self.multizone.zone;
        let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let name = zone.name.as_str();
        let edges = [name.chars().next(), name.chars().last()];
        if name.len() > 63 || !name.chars().all(label) || edges.iter().any(|c| c.is_none_or(|c| c == '-')) {
            return Err(ConfigError::rule(
                "multizone.zone.name",
                format!("{name:?} is not a DNS label: up to 63 of a-z, 0-9 and -, with no - at either end"),
            ));
        }
        let address = zone.global_address.as_str();
        if !address.is_empty() && !address.starts_with("grpc://") && !address.starts_with("grpcs://") {
            return Err(ConfigError::rule(
                "multizone.zone.globalAddress",
                format!("{address:?} must start with grpcs:// (TLS) or grpc:// (plain text)"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_help() {
        let defaults = serde_json::to_value(ZoneConfig::default()).unwrap();
        let missing: Vec<_> = common::config::leaves(&defaults)
            .into_iter()
            .filter(|leaf| common::config::help::<ZoneConfig>(&leaf.path).is_none())
            .map(|leaf| leaf.path)
            .collect();
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn bad_names_and_addresses_are_refused() {
        let check = |name: &str, address: &str| {
            let mut config = ZoneConfig::default();
            name.clone_into(&mut config.multizone.zone.name);
            address.clone_into(&mut config.multizone.zone.global_address);
            config.validate().is_ok()
        };
        assert!(check("zone-1", "grpcs://global:5685"));
        for name in ["", "-a", "a-", "Zone", "a.b", &"a".repeat(64)] {
            assert!(!check(name, ""), "{name:?}");
        }
        assert!(!check("zone-1", "http://global:5685"));
    }
}
