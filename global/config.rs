//! Settings of `strait-global`.

use std::net::{IpAddr, Ipv4Addr};

use common::config::{
    AccessSection, ApiServer, Config, ConfigError, DataplaneDefaults, Diagnostics, General, Interval, KdsV1,
    Logging, PlatformKind, StoreSection, SyncLabels, TracingSection,
};
use common::kds::quota::ZoneQuota;
use serde::{Deserialize, Serialize};

/// All settings; the paths are Kuma's where Kuma has the setting.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GlobalConfig {
    /// Kuma's switch between its modes; here only a check that the file is meant for this process.
    pub mode: GlobalMode,
    /// Kuma's switch between where it runs; here only a check as well.
    pub environment: PlatformKind,
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
    /// Traces of writes.
    pub tracing: TracingSection,
    /// What a fresh control plane makes for itself.
    pub defaults: DataplaneDefaults,
    /// Zones.
    pub multizone: GlobalMultizoneSection,
    /// Changes that go out in waves.
    pub rollouts: RolloutsSection,
}

/// `rollouts`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RolloutsSection {
    /// Who answers their queries.
    pub prometheus: RolloutsPrometheus,
}

/// `rollouts.prometheus`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RolloutsPrometheus {
    /// Its address; empty: nobody is asked.
    pub address: String,
}

/// `mode`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GlobalMode {
    /// The only value this process accepts.
    #[default]
    Global,
}

/// `multizone`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GlobalMultizoneSection {
    /// The global side.
    pub global: GlobalSection,
}

/// `multizone.global`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GlobalSection {
    /// The listener zones connect to.
    pub kds: GlobalKdsSection,
}

/// `multizone.global.kds`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GlobalKdsSection {
    /// On which address.
    pub interface: IpAddr,
    /// On which port; 0 takes a free one.
    pub grpc_port: u16,
    /// TLS; without it every zone must connect in plain text.
    pub tls_enabled: bool,
    /// Certificate; empty means the one of `general`.
    pub tls_cert_file: String,
    /// Its key.
    pub tls_key_file: String,
    /// PEM file with the authorities that sign certificates of zones; empty: none is asked for.
    pub client_ca_file: String,
    /// PEM file with an Ed25519 key that signs what zones are sent; empty: nothing is signed.
    pub signing_key_file: String,
    /// How zones prove who they are.
    pub auth: ZoneAuth,
    /// Which zones get the secrets of a mesh.
    pub secrets_to: SecretsTo,
    /// A zone that connects for the first time is created.
    pub auto_register_zones: bool,
    /// Sync by the protocol before this one.
    pub v1: KdsV1,
    /// Largest message, in bytes.
    pub max_msg_size: usize,
    /// What one zone may own here.
    pub zone_quota: ZoneQuotaSection,
    /// Pings.
    pub zone_health_check: ZoneHealthCheck,
    /// How often counters of a zone's subscription are written.
    pub zone_insight_flush_interval: Interval,
    /// Labels that stay here.
    pub labels: SyncLabels,
}

impl Default for GlobalKdsSection {
    fn default() -> Self {
        Self {
            interface: Ipv4Addr::UNSPECIFIED.into(),
            grpc_port: 5685,
            tls_enabled: true,
            tls_cert_file: String::new(),
            tls_key_file: String::new(),
            client_ca_file: String::new(),
            signing_key_file: String::new(),
            auth: ZoneAuth::Token,
            secrets_to: SecretsTo::All,
            auto_register_zones: true,
            v1: KdsV1::default(),
            max_msg_size: 10 * 1024 * 1024,
            zone_quota: ZoneQuotaSection::default(),
            zone_health_check: ZoneHealthCheck::default(),
            zone_insight_flush_interval: Interval::seconds(10),
            labels: SyncLabels::default(),
        }
    }
}

/// `multizone.global.kds.zoneQuota`. Zero is no limit.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneQuotaSection {
    /// Resources of all kinds together.
    pub total: usize,
    /// Resources of one kind.
    pub per_kind: usize,
    /// Bytes of what they say.
    pub bytes: usize,
}

impl Default for ZoneQuotaSection {
    fn default() -> Self {
        let ZoneQuota { total, per_kind, bytes } = ZoneQuota::default();
        Self { total, per_kind, bytes }
    }
}

/// `multizone.global.kds.secretsTo`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretsTo {
    /// Every zone gets the secrets of every mesh, as from Kuma: a first proxy starts while global is away.
    #[default]
    All,
    /// Only zones in which proxies of the mesh are, or an egress, which serves every mesh.
    Running,
}

/// `multizone.global.kds.auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ZoneAuth {
    /// A zone token with scope `cp`.
    #[default]
    Token,
    /// A certificate of one of the authorities of `clientCaFile`, made for the zone.
    Certificate,
    /// Such a certificate where one is shown, else a token.
    Either,
    /// Whoever reaches the port may claim any zone: only for zones of Kuma, which have no credential.
    None,
}

/// `multizone.global.kds.zoneHealthCheck`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ZoneHealthCheck {
    /// How often a zone pings.
    pub poll_interval: Interval,
    /// Silence after which a zone is offline.
    pub timeout: Interval,
    /// How long a zone is offline before what it exports is withdrawn from the others; 0 for never.
    pub withdraw_after: Interval,
}

impl Default for ZoneHealthCheck {
    fn default() -> Self {
        Self {
            poll_interval: Interval::seconds(5),
            timeout: Interval::seconds(20),
            withdraw_after: Interval::seconds(0),
        }
    }
}

impl Config for GlobalConfig {
    const HELP: &'static [(&'static str, &'static str)] = &[
        ("mode", "Kept for files written for Kuma: must be global"),
        ("environment", "Kept for files written for Kuma: must be universal, which is without Kubernetes"),
        ("store.unsafeDelete", "Allow deletes that orphan something (a mesh in use, a zone online)"),
        ("defaults.skipMeshCreation", "Do not create the mesh `default`"),
        ("multizone.global.kds.interface", "Address zones connect to"),
        ("multizone.global.kds.grpcPort", "Port zones connect to; 0: a free one"),
        ("multizone.global.kds.tlsEnabled", "TLS for zones"),
        ("multizone.global.kds.tlsCertFile", "Certificate shown to zones; empty: the general one"),
        ("multizone.global.kds.tlsKeyFile", "Key of that certificate"),
        (
            "multizone.global.kds.clientCaFile",
            "Authorities that sign certificates of zones; empty: none are asked for",
        ),
        (
            "multizone.global.kds.signingKeyFile",
            "Ed25519 key, PEM, that signs what zones are sent; empty: nothing is signed",
        ),
        (
            "multizone.global.kds.auth",
            "How zones prove who they are: token, certificate, either of them, or none (Kuma zones, unsafe)",
        ),
        (
            "multizone.global.kds.secretsTo",
            "Zones that get the secrets of a mesh: all, or those with its proxies running",
        ),
        ("multizone.global.kds.autoRegisterZones", "Create a zone when it connects for the first time"),
        ("multizone.global.kds.v1.enabled", "Let zones sync by KDS v1 as well, as those of Kuma before 2.9"),
        ("multizone.global.kds.maxMsgSize", "Largest sync message, in bytes"),
        ("multizone.global.kds.zoneQuota.total", "Resources that one zone may own here; 0: any number"),
        (
            "multizone.global.kds.zoneQuota.perKind",
            "Resources of one kind that one zone may own here; 0: any number",
        ),
        (
            "multizone.global.kds.zoneQuota.bytes",
            "Bytes that what one zone owns here may have, with labels and 256 for each resource; 0: any number",
        ),
        ("multizone.global.kds.zoneHealthCheck.pollInterval", "How often a zone pings, from 100ms to 1h"),
        ("multizone.global.kds.zoneHealthCheck.timeout", "Silence after which a zone is offline"),
        (
            "multizone.global.kds.zoneHealthCheck.withdrawAfter",
            "How long a zone is offline before other zones lose what it exports; 0: never, as with Kuma",
        ),
        ("multizone.global.kds.zoneInsightFlushInterval", "How often sync counters are written"),
        ("multizone.global.kds.labels.skipPrefixes", "Labels that begin so are not sent to zones"),
        (
            "rollouts.prometheus.address",
            "Prometheus that answers the queries of rollouts, http://host:9090 or https://...; empty: none",
        ),
    ];

    const ELSEWHERE: &'static [&'static str] =
        &["MULTIZONE_ZONE_", "DP_SERVER_", "BOOTSTRAP_SERVER_", "XDS_"];

    fn validate(&self) -> Result<(), ConfigError> {
        self.general.validate()?;
        self.api_server.authn.validate()?;
        let kds = &self.multizone.global.kds;
        let by_certificate = matches!(kds.auth, ZoneAuth::Certificate | ZoneAuth::Either);
        if by_certificate && (kds.client_ca_file.is_empty() || !kds.tls_enabled) {
            return Err(ConfigError::rule(
                "multizone.global.kds.auth",
                "certificate and either need multizone.global.kds.clientCaFile, and tlsEnabled",
            ));
        }
        if !by_certificate && !kds.client_ca_file.is_empty() {
            return Err(ConfigError::rule(
                "multizone.global.kds.clientCaFile",
                "says nothing unless multizone.global.kds.auth is certificate or either",
            ));
        }
        let health = &kds.zone_health_check;
        if health.timeout < health.poll_interval {
            return Err(ConfigError::rule(
                "multizone.global.kds.zoneHealthCheck.timeout",
                "must not be shorter than pollInterval, or every zone is offline between two pings",
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
        let defaults = serde_json::to_value(GlobalConfig::default()).unwrap();
        let missing: Vec<_> = common::config::leaves(&defaults)
            .into_iter()
            .filter(|leaf| common::config::help::<GlobalConfig>(&leaf.path).is_none())
            .map(|leaf| leaf.path)
            .collect();
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn a_file_for_kuma_says_where_it_runs_and_that_is_not_kubernetes() {
        let read = |environment: &str| {
            serde_json::from_value::<GlobalConfig>(serde_json::json!({"environment": environment}))
        };
        assert!(read("universal").is_ok());
        let refused = read("kubernetes").unwrap_err().to_string();
        assert!(refused.contains("kubernetes") && refused.contains("universal"), "{refused}");
    }

    #[test]
    fn certificates_of_zones_need_an_authority() {
        let check = |auth: ZoneAuth, file: &str, tls: bool| {
            let mut config = GlobalConfig::default();
            let kds = &mut config.multizone.global.kds;
            (kds.auth, kds.client_ca_file, kds.tls_enabled) = (auth, file.to_owned(), tls);
            config.validate().is_ok()
        };
        for auth in [ZoneAuth::Certificate, ZoneAuth::Either] {
            assert!(check(auth, "ca.pem", true));
            assert!(!check(auth, "", true) && !check(auth, "ca.pem", false));
        }
        assert!(!check(ZoneAuth::Token, "ca.pem", true), "nobody would look at it");
    }

    #[test]
    fn a_timeout_below_the_poll_interval_is_refused() {
        let mut config = GlobalConfig::default();
        config.multizone.global.kds.zone_health_check.timeout = Interval::seconds(1);
        assert!(config.validate().is_err());
    }
}
