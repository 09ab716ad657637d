//! What a role can allow.

use serde::{Deserialize, Serialize};

use crate::model::{Kind, kinds::secret};

/// What a role can allow, and what a route needs.
///
/// Two stand for several others: `tokens` for making all sorts of tokens, `config-dump` for everything that is asked of
/// Envoys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RoleVerb {
    /// See a resource and what is known about it.
    #[serde(alias = "view")]
    Read,
    /// Make or change a resource.
    #[serde(alias = "put")]
    Write,
    /// Delete a resource.
    Delete,
    /// See a secret.
    ViewSecrets,
    /// Make tokens of every sort.
    Tokens,
    /// Make tokens of proxies.
    GenerateDataplaneToken,
    /// Make tokens of zones.
    GenerateZoneToken,
    /// Make tokens of users. Who may can be anybody.
    GenerateUserToken,
    /// See all of what Envoys say.
    ConfigDump,
    /// See the configuration of proxies.
    ViewConfigDump,
    /// See the stats of Envoys.
    ViewStats,
    /// See the clusters of Envoys.
    ViewClusters,
    /// See the settings of the process.
    #[serde(alias = "view-settings")]
    Settings,
    /// Look into the audit log.
    #[serde(alias = "view-audit")]
    Audit,
    /// Take a backup, secrets and all.
    Backup,
    /// Rebuild, approve, move and disconnect.
    Operate,
    /// What is kept for administrators: writing secrets and roles, asking what others may do.
    Admin,
}

/// By what a rule can limit a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerbLimit {
    /// Types of resources.
    Kind,
    /// Meshes.
    Mesh,
    /// Names.
    Name,
    /// Zones.
    Zone,
}

impl RoleVerb {
    /// All of them, in the order in which they are listed for people.
    pub const ALL: [Self; 17] = [
        Self::Read,
        Self::Write,
        Self::Delete,
        Self::ViewSecrets,
        Self::Tokens,
        Self::GenerateDataplaneToken,
        Self::GenerateZoneToken,
        Self::GenerateUserToken,
        Self::ConfigDump,
        Self::ViewConfigDump,
        Self::ViewStats,
        Self::ViewClusters,
        Self::Settings,
        Self::Audit,
        Self::Backup,
        Self::Operate,
        Self::Admin,
    ];

    /// As it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::ViewSecrets => "view-secrets",
            Self::Tokens => "tokens",
            Self::GenerateDataplaneToken => "generate-dataplane-token",
            Self::GenerateZoneToken => "generate-zone-token",
            Self::GenerateUserToken => "generate-user-token",
            Self::ConfigDump => "config-dump",
            Self::ViewConfigDump => "view-config-dump",
            Self::ViewStats => "view-stats",
            Self::ViewClusters => "view-clusters",
            Self::Settings => "settings",
            Self::Audit => "audit",
            Self::Backup => "backup",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// Completes "cannot".
    pub const fn deed(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Delete => "delete",
            Self::ViewSecrets | Self::Admin => "access",
            Self::Tokens => "generate tokens",
            Self::GenerateDataplaneToken => "generate a dataplane token",
            Self::GenerateZoneToken => "generate a zone token",
            Self::GenerateUserToken => "generate a user token",
            Self::ConfigDump => "ask Envoys",
            Self::ViewConfigDump => "view the configuration of an Envoy",
            Self::ViewStats => "view the stats of an Envoy",
            Self::ViewClusters => "view the clusters of an Envoy",
            Self::Settings => "access the control plane metadata",
            Self::Audit => "look into the audit log",
            Self::Backup => "take a backup, which holds all secrets",
            Self::Operate => "operate this control plane",
        }
    }

    /// The verb of this name.
    pub fn parse(name: &str) -> Option<Self> {
        use serde::de::{IntoDeserializer, value::Error};
        let text: serde::de::value::StrDeserializer<'_, Error> = name.into_deserializer();
        Self::deserialize(text).ok()
    }

    /// The verbs this one stands for; itself where it stands for no others.
    pub const fn parts(&self) -> &[Self] {
        match self {
            Self::Tokens => &[Self::GenerateDataplaneToken, Self::GenerateZoneToken, Self::GenerateUserToken],
            Self::ConfigDump => &[Self::ViewConfigDump, Self::ViewStats, Self::ViewClusters],
            _ => std::slice::from_ref(self),
        }
    }

    /// Whether a rule with this verb has to say which types it is about.
    pub const fn names_kinds(self) -> bool {
        matches!(self, Self::Read | Self::Write | Self::Delete | Self::ViewSecrets | Self::Admin)
    }

    /// Whether a rule can limit it by that.
    pub const fn has_limit(self, by: VerbLimit) -> bool {
        match self {
            Self::GenerateDataplaneToken => !matches!(by, VerbLimit::Kind),
            Self::GenerateZoneToken => matches!(by, VerbLimit::Zone),
            Self::Tokens
            | Self::GenerateUserToken
            | Self::Settings
            | Self::Audit
            | Self::Backup
            | Self::Operate => false,
            _ => true,
        }
    }

    /// What takes the place of this verb for resources of `kind`: some are kept for administrators.
    pub fn on(self, kind: &Kind) -> Self {
        match self {
            Self::Read if kind == &secret::SECRET || kind == &secret::GLOBAL_SECRET => Self::ViewSecrets,
            Self::Read | Self::Write | Self::Delete if kind.admin_only => Self::Admin,
            verb => verb,
        }
    }
}
