//! Settings of `strait-relay`.

use common::config::{Config, ConfigError, Diagnostics, General, Logging, StoreSection};
use serde::{Deserialize, Serialize};

use crate::config::{GlobalSection, SecretsTo, ZoneAuth};

/// All settings. The listener for zones is the one of global, so its settings are too.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RelayConfig {
    /// Where what global says is kept.
    pub store: StoreSection,
    /// Health, readiness, metrics.
    pub diagnostics: Diagnostics,
    /// Folders, certificates, shutdown.
    pub general: General,
    /// Logs.
    pub logging: Logging,
    /// Global above, zones below.
    pub multizone: RelayMultizoneSection,
}

/// `multizone`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RelayMultizoneSection {
    /// The connection to global.
    pub relay: RelaySection,
    /// The listener zones connect to.
    pub global: GlobalSection,
}

/// `multizone.relay`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RelaySection {
    /// Name of this relay.
    pub name: String,
    /// Where global is: `grpcs://host:5685`, or `grpc://` without TLS.
    pub global_address: String,
    /// The connection to global.
    pub kds: RelayKdsSection,
}

impl Default for RelaySection {
    fn default() -> Self {
        let (name, global_address) = ("relay".to_owned(), String::new());
        Self { name, global_address, kds: RelayKdsSection::default() }
    }
}

/// `multizone.relay.kds`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RelayKdsSection {
    /// PEM file with the roots global's certificate is checked against; empty: those of the machine.
    pub root_ca_file: String,
    /// Do not check global's certificate.
    pub tls_skip_verify: bool,
    /// Token with scope `relay`, shown to global.
    pub token: String,
    /// File with that token; read at every connect.
    pub token_file: String,
}

impl Config for RelayConfig {
    const HELP: &'static [(&'static str, &'static str)] = &[
        ("store.unsafeDelete", "Has no effect on a relay"),
        ("multizone.relay.name", "Name of this relay, as in its token"),
        ("multizone.relay.globalAddress", "grpcs://host:5685 (or grpc:// without TLS) of global"),
        ("multizone.relay.kds.rootCaFile", "Roots global's certificate is checked against, PEM"),
        ("multizone.relay.kds.tlsSkipVerify", "Do not check global's certificate (unsafe)"),
        ("multizone.relay.kds.token", "Zone token with scope relay, shown to global"),
        ("multizone.relay.kds.tokenFile", "File with that token; read at every connect"),
        ("multizone.global.kds.interface", "Address zones connect to"),
        ("multizone.global.kds.grpcPort", "Port zones connect to; 0: a free one"),
        ("multizone.global.kds.tlsEnabled", "TLS for zones"),
        ("multizone.global.kds.tlsCertFile", "Certificate shown to zones; empty: the general one"),
        ("multizone.global.kds.tlsKeyFile", "Key of that certificate"),
        ("multizone.global.kds.clientCaFile", "Must stay empty: zones below a relay show tokens"),
        ("multizone.global.kds.signingKeyFile", "Must stay empty: global signs, and a relay passes that on"),
        ("multizone.global.kds.auth", "How zones prove who they are: token, or none (unsafe)"),
        ("multizone.global.kds.secretsTo", "Must stay all: a relay does not know where meshes run"),
        ("multizone.global.kds.autoRegisterZones", "Has no effect on a relay: global decides"),
        ("multizone.global.kds.v1.enabled", "Must stay false: a relay speaks KDS v2 only"),
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
            "Has no effect on a relay: global withdraws what lost zones export",
        ),
        ("multizone.global.kds.zoneInsightFlushInterval", "Has no effect on a relay: global writes insights"),
        ("multizone.global.kds.labels.skipPrefixes", "Labels that begin so are not sent to zones"),
    ];

    const ELSEWHERE: &'static [&'static str] =
        &["MULTIZONE_ZONE_", "DP_SERVER_", "BOOTSTRAP_SERVER_", "XDS_", "API_SERVER_"];

    fn validate(&self) -> Result<(), ConfigError> {
        self.general.validate()?;
        let relay = &self.multizone.relay;
        let label = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let edges = [relay.name.chars().next(), relay.name.chars().last()];
        if relay.name.len() > 63
            || !relay.name.chars().all(label)
            || edges.iter().any(|c| c.is_none_or(|c| c == '-'))
        {
            let text = format!(
                "{:?} is not a DNS label: up to 63 of a-z, 0-9 and -, with no - at either end",
                relay.name
            );
            return Err(ConfigError::rule("multizone.relay.name", text));
        }
        let address = &relay.global_address;
        if !address.starts_with("grpc://") && !address.starts_with("grpcs://") {
            return Err(ConfigError::rule(
                "multizone.relay.globalAddress",
                format!(
                    "{address:?} must start with grpcs:// (TLS) or grpc:// (plain text): a relay has a global"
                ),
            ));
        }
        let kds = &self.multizone.global.kds;
        // Global sees the connection of the relay, and no certificate that was shown to it.
        if matches!(kds.auth, ZoneAuth::Certificate | ZoneAuth::Either) || !kds.client_ca_file.is_empty() {
            return Err(ConfigError::rule(
                "multizone.global.kds.auth",
                "zones below a relay prove themselves by tokens, which global checks as well: token or none, \
                 without clientCaFile",
            ));
        }
        if kds.secrets_to == SecretsTo::Running {
            return Err(ConfigError::rule(
                "multizone.global.kds.secretsTo",
                "must be all: a relay does not know where meshes run",
            ));
        }
        if !kds.signing_key_file.is_empty() {
            return Err(ConfigError::rule(
                "multizone.global.kds.signingKeyFile",
                "must be empty: global signs, and a relay passes that on, so that a stolen one can sign nothing",
            ));
        }
        if kds.v1.enabled {
            return Err(ConfigError::rule(
                "multizone.global.kds.v1.enabled",
                "must be false: a relay speaks KDS v2 only",
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
    use crate::config::GlobalKdsSection;

    #[test]
    fn every_setting_has_help() {
        let defaults = serde_json::to_value(RelayConfig::default()).unwrap();
        let missing: Vec<_> = common::config::leaves(&defaults)
            .into_iter()
            .filter(|leaf| common::config::help::<RelayConfig>(&leaf.path).is_none())
            .map(|leaf| leaf.path)
            .collect();
        assert_eq!(missing, Vec::<String>::new());
    }

    #[test]
    fn what_works_through_no_relay_is_refused_by_name() {
        let refused = |change: fn(&mut GlobalKdsSection)| {
            let mut config = RelayConfig::default();
            config.multizone.relay.global_address = "grpcs://global:5685".to_owned();
            change(&mut config.multizone.global.kds);
            config.validate().err().map(|error| error.to_string())
        };
        assert_eq!(refused(|_| {}), None);
        let by_name = |change, setting: &str| {
            let error = refused(change).unwrap();
            assert!(error.contains(setting), "{error}");
        };
        by_name(|kds| kds.auth = ZoneAuth::Certificate, "multizone.global.kds.auth");
        by_name(|kds| kds.auth = ZoneAuth::Either, "multizone.global.kds.auth");
        by_name(|kds| kds.client_ca_file = "ca.crt".to_owned(), "multizone.global.kds.auth");
        by_name(|kds| kds.secrets_to = SecretsTo::Running, "multizone.global.kds.secretsTo");
        by_name(|kds| kds.v1.enabled = true, "multizone.global.kds.v1.enabled");
    }

    #[test]
    fn a_relay_has_a_name_and_a_global() {
        let check = |name: &str, address: &str| {
            let mut config = RelayConfig::default();
            name.clone_into(&mut config.multizone.relay.name);
            address.clone_into(&mut config.multizone.relay.global_address);
            config.validate().is_ok()
        };
        assert!(check("relay-1", "grpcs://global:5685"));
        for (name, address) in [("relay-1", ""), ("relay-1", "http://x"), ("", "grpc://x"), ("R", "grpc://x")]
        {
            assert!(!check(name, address), "{name:?} {address:?}");
        }
    }
}
