//! Settings of `strait-zone`.

use std::time::Duration;

use common::config::{
    AccessSection, ApiServer, Config, ConfigError, DataplaneDefaults, Diagnostics, General, Interval, KdsV1,
    Logging, PlatformKind, StoreSection, SyncLabels, TracingSection,
};
use serde::{Deserialize, Serialize};

mod dp_server;
mod monitoring;
mod proxies;
mod services;

pub use dp_server::{
    CheckDefaults, DpAuthn, DpProxy, DpProxyAuth, DpServer, DpToken, Hds, NodeAuth, NodeAuthn, ZoneProxy,
    ZoneProxyAuth,
};
pub use monitoring::MonitoringAssignmentServer;
pub use proxies::{MetricsSection, ProxySection, Runtime, Universal};
pub use services::{DnsServer, Ipam, MeshServiceSection};

/// All settings; the paths are Kuma's where Kuma has the setting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneConfig {
    /// Kuma's switch between its modes; here only a check that the file is meant for this process.
    pub mode: ZoneMode,
    /// Kuma's switch between where it runs; here only a check as well.
    pub environment: PlatformKind,
    /// Where resources live.
    pub store: StoreSection,
    /// Folder with files of resources, beside those that are applied; empty for none.
    pub resources: String,
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
    /// Traces of writes.
    pub tracing: TracingSection,
    /// What a fresh control plane makes for itself.
    pub defaults: DataplaneDefaults,
    /// The zone and its global.
    pub multizone: ZoneMultizoneSection,
    /// The listener proxies connect to.
    pub dp_server: DpServer,
    /// What proxies are told at their start.
    pub bootstrap_server: BootstrapServer,
    /// Serving configuration to proxies.
    pub xds_server: XdsServer,
    /// Limits of proxies.
    pub proxy: ProxySection,
    /// What is remembered of proxies.
    pub metrics: MetricsSection,
    /// When proxies are forgotten.
    pub runtime: Runtime,
    /// Names and addresses of services that are known by their tags.
    pub dns_server: DnsServer,
    /// Virtual addresses.
    pub ipam: Ipam,
    /// Services made of the tags of proxies.
    pub mesh_service: MeshServiceSection,
    /// The port where a Prometheus learns whose metrics to collect.
    pub monitoring_assignment_server: MonitoringAssignmentServer,
}

/// `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneMode {
    /// The only value this process accepts.
    #[default]
    Zone,
}

/// `multizone`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneMultizoneSection {
    /// The zone side.
    pub zone: ZoneSection,
}

/// `multizone.zone`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneSection {
    /// Name of this zone.
    pub name: String,
    /// Where global is: `grpcs://host:5685`, or `grpc://` without TLS; empty for a zone on its own.
    pub global_address: String,
    /// More addresses of the same global: its replicas, or relays before it. One of all is taken at a time.
    pub more_global_addresses: Vec<String>,
    /// The connection to global.
    pub kds: ZoneKdsSection,
    /// Accept policies without the label `kuma.io/origin: zone`.
    pub disable_origin_label_validation: bool,
}

impl Default for ZoneSection {
    fn default() -> Self {
        Self {
            name: "default".to_owned(),
            global_address: String::new(),
            more_global_addresses: Vec::new(),
            kds: ZoneKdsSection::default(),
            disable_origin_label_validation: false,
        }
    }
}

/// `multizone.zone.kds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneKdsSection {
    /// PEM file with the roots global's certificate is checked against; empty: those of the machine.
    pub root_ca_file: String,
    /// Do not check global's certificate.
    pub tls_skip_verify: bool,
    /// Zone token shown to global.
    pub token: String,
    /// File with the zone token; read at every connect.
    pub token_file: String,
    /// PEM file with a certificate shown to global; read at every connect. Empty: none is shown.
    pub client_cert_file: String,
    /// File with its key.
    pub client_key_file: String,
    /// PEM file with public Ed25519 keys: what global sends must be signed with one of them. Empty: it need not be.
    pub trusted_keys_file: String,
    /// Sync by the protocol before this one.
    pub v1: KdsV1,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// Labels that stay here.
    pub labels: SyncLabels,
}

impl Default for ZoneKdsSection {
    fn default() -> Self {
        Self {
            root_ca_file: String::new(),
            tls_skip_verify: false,
            token: String::new(),
            token_file: String::new(),
            client_cert_file: String::new(),
            client_key_file: String::new(),
            trusted_keys_file: String::new(),
            v1: KdsV1::default(),
            max_msg_size: 10 * 1024 * 1024,
            labels: SyncLabels::default(),
        }
    }
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
    /// File it logs to; empty for none.
    pub admin_access_log_path: String,
    /// Whether a proxy that names a work folder gets its admin endpoint on a socket there.
    pub envoy_admin_unix_socket: bool,
    /// Template of the configuration of a DNS server that runs beside a proxy; empty: its own.
    pub corefile_template_path: String,
}

impl Default for BootstrapParams {
    fn default() -> Self {
        Self {
            xds_host: String::new(),
            xds_port: 0,
            xds_connect_timeout: Interval::seconds(1),
            admin_address: "127.0.0.1".to_owned(),
            admin_port: 9901,
            admin_access_log_path: "/dev/null".to_owned(),
            envoy_admin_unix_socket: true,
            corefile_template_path: String::new(),
        }
    }
}

/// Shortest time after which a proxy may drop what it hears nothing of: it hears three times of it within that.
const SHORTEST_TTL: Duration = Duration::from_secs(3);

/// `xdsServer`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct XdsServer {
    /// How long a proxy that registered itself may be away before its resource is deleted.
    pub dataplane_deregistration_delay: Interval,
    /// How often counters of a proxy's subscription are written.
    pub dataplane_status_flush_interval: Interval,
    /// How long a proxy keeps endpoints and runtime layers of which it hears nothing; 0: for as long as it likes.
    pub resource_ttl: Interval,
}

impl Default for XdsServer {
    fn default() -> Self {
        Self {
            dataplane_deregistration_delay: Interval::seconds(10),
            dataplane_status_flush_interval: Interval::seconds(10),
            resource_ttl: Interval::seconds(0),
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
        ("environment", "Kept for files written for Kuma: must be universal, which is without Kubernetes"),
        ("store.unsafeDelete", "Allow deletes that orphan something (a mesh in use)"),
        ("defaults.skipMeshCreation", "A zone on its own: do not create the mesh `default`"),
        ("multizone.zone.name", "Name of this zone, a DNS label"),
        ("multizone.zone.globalAddress", "grpcs://host:5685 (or grpc:// without TLS); empty: no global"),
        (
            "multizone.zone.moreGlobalAddresses",
            "More such addresses of that global, or of relays; one is taken at a time",
        ),
        ("multizone.zone.kds.rootCaFile", "Roots global's certificate is checked against, PEM"),
        ("multizone.zone.kds.tlsSkipVerify", "Do not check global's certificate (unsafe)"),
        ("multizone.zone.kds.token", "Zone token with scope cp, shown to global"),
        ("multizone.zone.kds.tokenFile", "File with that token; read at every connect"),
        (
            "multizone.zone.kds.clientCertFile",
            "Certificate shown to global; read at every connect; empty: none",
        ),
        ("multizone.zone.kds.clientKeyFile", "Key of that certificate"),
        (
            "multizone.zone.kds.trustedKeysFile",
            "Public Ed25519 keys, PEM: take from global only what one of them signed; empty: take all",
        ),
        ("multizone.zone.kds.v1.enabled", "Sync by KDS v1, for a global that speaks nothing newer"),
        ("multizone.zone.kds.maxMsgSize", "Largest sync message, in bytes"),
        ("multizone.zone.kds.labels.skipPrefixes", "Labels that begin so are not sent to global"),
        ("multizone.zone.disableOriginLabelValidation", "Accept policies without origin label in the API"),
        ("dpServer.interface", "Address proxies connect to"),
        ("dpServer.port", "Port proxies connect to; 0: a free one"),
        ("dpServer.authn.dpProxy.type", "How dataplanes prove who they are: dpToken or none (unsafe)"),
        (
            "dpServer.authn.dpProxy.dpToken.requireBound",
            "Let a proxy bring its own resource only with a token that names all its tags and its workload",
        ),
        ("dpServer.authn.zoneProxy.type", "How zone proxies prove who they are: zoneToken or none (unsafe)"),
        ("resources", "Folder of YAML files with resources, followed as they change; empty: none"),
        ("dpServer.authn.node.type", "How nodes of no mesh prove who they are: userToken or none (unsafe)"),
        ("dpServer.plaintext", "Whether it speaks without TLS (unsafe: tokens and keys are for all to read)"),
        ("dpServer.hds.enabled", "Whether proxies look whether their workloads serve"),
        ("dpServer.hds.interval", "How often they say what they found"),
        ("dpServer.hds.checkDefaults.interval", "How often they look, where a probe does not say it"),
        ("dpServer.hds.checkDefaults.timeout", "How long a workload may take to answer a probe"),
        ("dpServer.hds.checkDefaults.healthyThreshold", "After how many good probes a workload serves"),
        ("dpServer.hds.checkDefaults.unhealthyThreshold", "After how many bad probes it does not"),
        ("dpServer.tlsCertFile", "Certificate shown to proxies; empty: the general one"),
        ("dpServer.tlsKeyFile", "Key of that certificate"),
        ("bootstrapServer.params.xdsHost", "Host proxies connect to; empty: where they asked"),
        ("bootstrapServer.params.xdsPort", "Port proxies connect to; 0: the port of dpServer"),
        ("bootstrapServer.params.xdsConnectTimeout", "How long that may take"),
        ("bootstrapServer.params.adminAddress", "Address of Envoy's admin listener"),
        ("bootstrapServer.params.adminPort", "Its port, unless the dataplane names one; 0: none"),
        ("bootstrapServer.params.adminAccessLogPath", "File it logs to; empty: none"),
        (
            "bootstrapServer.params.envoyAdminUnixSocket",
            "Whether it is a socket in the work folder of the proxy",
        ),
        (
            "bootstrapServer.params.corefileTemplatePath",
            "Template for the DNS server beside a proxy; empty: its own",
        ),
        ("proxy.gateway.globalDownstreamMaxConnections", "Connections a builtin gateway takes; 0: 50000"),
        ("metrics.dataplane.subscriptionLimit", "How many connections of a proxy are remembered"),
        ("metrics.dataplane.idleTimeout", "Silence after which a proxy of another replica is offline"),
        ("runtime.universal.dataplaneCleanupAge", "Absence after which a dataplane is deleted"),
        (
            "runtime.universal.zoneResourceCleanupAge",
            "Absence after which a zone ingress or egress is deleted",
        ),
        ("runtime.universal.spire.socketPath", "Socket of the SPIRE agent beside a proxy that names none"),
        ("dnsServer.domain", "Below which services that are known by their tags have names"),
        ("dnsServer.CIDR", "Virtual addresses of services that are known by their tags"),
        ("dnsServer.serviceVipPort", "The port on which they are called there"),
        ("xdsServer.dataplaneDeregistrationDelay", "Absence after which a self-registered proxy is deleted"),
        ("xdsServer.dataplaneStatusFlushInterval", "How often counters of proxies are written"),
        (
            "xdsServer.resourceTtl",
            "How long proxies keep endpoints they hear nothing of; 0: as long as they like, else 3s or more",
        ),
        (
            "monitoringAssignmentServer.enabled",
            "Tell a Prometheus on a port of its own whose metrics to collect",
        ),
        ("monitoringAssignmentServer.interface", "Address where a Prometheus asks"),
        ("monitoringAssignmentServer.port", "Port where a Prometheus asks; 0: a free one"),
        (
            "monitoringAssignmentServer.defaultFetchTimeout",
            "How long it waits for a change, where it does not say it",
        ),
        ("monitoringAssignmentServer.tlsEnabled", "Whether that port speaks TLS"),
        ("monitoringAssignmentServer.tlsCertFile", "Certificate shown there; empty: the general one"),
        ("monitoringAssignmentServer.tlsKeyFile", "Key of that certificate"),
        ("ipam.meshService.cidr", "Virtual addresses of services of one zone"),
        ("ipam.meshExternalService.cidr", "Virtual addresses of services outside the mesh"),
        ("ipam.meshMultiZoneService.cidr", "Virtual addresses of services of several zones"),
        ("meshService.deletionGracePeriod", "How long a generated service stays without any proxy"),
    ];

    const ELSEWHERE: &'static [&'static str] = &["MULTIZONE_GLOBAL_"];

    fn validate(&self) -> Result<(), ConfigError> {
        self.general.validate()?;
        self.api_server.authn.validate()?;
        self.ipam.ranges()?;
        self.dns_server.naming()?;
        self.runtime.universal.spire.socket()?;
        if self.metrics.dataplane.idle_timeout.0.is_zero() {
            return Err(ConfigError::rule("metrics.dataplane.idleTimeout", "must be longer than nothing"));
        }
        let ttl = self.xds_server.resource_ttl.0;
        if !ttl.is_zero() && ttl < SHORTEST_TTL {
            return Err(ConfigError::rule("xdsServer.resourceTtl", "must be 0 or at least 3s"));
        }
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
        let (certificate, key) = (&zone.kds.client_cert_file, &zone.kds.client_key_file);
        for (has, lacks, missing) in
            [(certificate, key, "clientKeyFile"), (key, certificate, "clientCertFile")]
        {
            if !has.is_empty() && lacks.is_empty() {
                let setting = format!("multizone.zone.kds.{missing}");
                return Err(ConfigError::rule(&setting, "a certificate and its key are needed together"));
            }
        }
        let address = zone.global_address.as_str();
        if !address.is_empty() && !address.starts_with("grpc://") && !address.starts_with("grpcs://") {
            return Err(ConfigError::rule(
                "multizone.zone.globalAddress",
                format!("{address:?} must start with grpcs:// (TLS) or grpc:// (plain text)"),
            ));
        }
        for address in &zone.more_global_addresses {
            if !address.starts_with("grpc://") && !address.starts_with("grpcs://") {
                return Err(ConfigError::rule(
                    "multizone.zone.moreGlobalAddresses",
                    format!("{address:?} must start with grpcs:// (TLS) or grpc:// (plain text)"),
                ));
            }
        }
        if zone.global_address.is_empty() && !zone.more_global_addresses.is_empty() {
            return Err(ConfigError::rule(
                "multizone.zone.moreGlobalAddresses",
                "needs a first address in multizone.zone.globalAddress",
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
        let check_more = |address: &str, more: &[&str]| {
            let mut config = ZoneConfig::default();
            address.clone_into(&mut config.multizone.zone.global_address);
            config.multizone.zone.more_global_addresses = more.iter().map(ToString::to_string).collect();
            config.validate().is_ok()
        };
        assert!(check_more("grpcs://a:5685", &["grpcs://b:5685", "grpc://c"]));
        assert!(!check_more("grpcs://a:5685", &["b:5685"]));
        assert!(!check_more("", &["grpcs://b:5685"]));
    }

    #[test]
    fn a_certificate_comes_with_its_key() {
        let check = |certificate: &str, key: &str| {
            let mut config = ZoneConfig::default();
            certificate.clone_into(&mut config.multizone.zone.kds.client_cert_file);
            key.clone_into(&mut config.multizone.zone.kds.client_key_file);
            config.validate().map_err(|error| error.to_string())
        };
        assert!(check("", "").is_ok() && check("a.crt", "a.key").is_ok());
        assert!(check("a.crt", "").unwrap_err().contains("clientKeyFile"));
        assert!(check("", "a.key").unwrap_err().contains("clientCertFile"));
    }

    #[test]
    fn a_time_to_live_is_long_enough_to_be_renewed() {
        let check = |seconds: u64| {
            let mut config = ZoneConfig::default();
            config.xds_server.resource_ttl = Interval::seconds(seconds);
            config.validate().map_err(|error| error.to_string())
        };
        assert!(check(0).is_ok() && check(3).is_ok());
        assert!(check(2).unwrap_err().contains("xdsServer.resourceTtl"));
    }

    #[test]
    fn ranges_of_addresses_are_checked() {
        let mut config = ZoneConfig::default();
        assert!(config.validate().is_ok());
        config.ipam.mesh_service.cidr = "241.0.0.0".to_owned();
        let refused = config.validate().unwrap_err().to_string();
        assert!(refused.contains("ipam.meshService.cidr"), "{refused}");
        for (domain, cidr, port, setting) in [
            ("mesh.", "240.0.0.0/4", 80, "dnsServer.domain"),
            ("Mesh", "240.0.0.0/4", 80, "dnsServer.domain"),
            ("mesh", "240.0.0.0", 80, "dnsServer.CIDR"),
            ("mesh", "fd00::/8", 80, "dnsServer.CIDR"),
            ("mesh", "240.0.0.0/4", 0, "dnsServer.serviceVipPort"),
        ] {
            let dns_server =
                DnsServer { domain: domain.to_owned(), cidr: cidr.to_owned(), service_vip_port: port };
            let refused = ZoneConfig { dns_server, ..ZoneConfig::default() }.validate().unwrap_err();
            assert!(refused.to_string().contains(setting), "{refused}");
        }
        let usual = DnsServer::default().naming().unwrap();
        assert_eq!(usual, crate::mesh::Naming::default());
    }
}
