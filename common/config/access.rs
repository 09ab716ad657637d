//! Who a caller of the API is, and what he may do: `access` and `apiServer.authn`, under Kuma's names.

use serde::{Deserialize, Serialize};

use super::{ConfigError, OpenIdConnectSection};
use crate::access::Access;

/// Help for the settings of this file, by path.
pub(super) const HELP: &[(&str, &str)] = &[
    ("apiServer.authn.type", "How callers prove who they are: tokens"),
    (
        "apiServer.authn.localhostIsAdmin",
        "Callers from this machine are administrators, and whoever a proxy here speaks for (unsafe)",
    ),
    ("apiServer.authn.anonymousMayWrite", "Callers from elsewhere write without a token (unsafe)"),
    (
        "apiServer.authn.tokens.bootstrapAdminToken",
        "Keep a token of the administrator: the file admin-user-token in general.workDir, and a global secret",
    ),
    ("apiServer.authn.tokens.enableIssuer", "Make user tokens for those who may ask for them"),
    ("access.type", "How rights are given: static"),
    ("access.static.adminResources.users", "Users who may read and write secrets"),
    ("access.static.adminResources.groups", "Groups who may read and write secrets"),
    ("access.static.readResources.users", "Users who may read what is kept for nobody"),
    ("access.static.readResources.groups", "Groups who may read what is kept for nobody"),
    ("access.static.generateDpToken.users", "Users who may make dataplane tokens"),
    ("access.static.generateDpToken.groups", "Groups who may make dataplane tokens"),
    ("access.static.generateUserToken.users", "Users who may make user tokens"),
    ("access.static.generateUserToken.groups", "Groups who may make user tokens"),
    ("access.static.generateZoneToken.users", "Users who may make zone tokens"),
    ("access.static.generateZoneToken.groups", "Groups who may make zone tokens"),
    ("access.static.viewConfigDump.users", "Users who may see the configuration of proxies"),
    ("access.static.viewConfigDump.groups", "Groups who may see the configuration of proxies"),
    ("access.static.viewStats.users", "Users who may see the stats of Envoys"),
    ("access.static.viewStats.groups", "Groups who may see the stats of Envoys"),
    ("access.static.viewClusters.users", "Users who may see the clusters of Envoys"),
    ("access.static.viewClusters.groups", "Groups who may see the clusters of Envoys"),
    ("access.static.controlPlaneMetadata.users", "Users who may see the settings of this process"),
    ("access.static.controlPlaneMetadata.groups", "Groups who may see the settings of this process"),
];

/// `access`: who may do what.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AccessSection {
    /// How rights are given.
    #[serde(rename = "type")]
    pub kind: AccessType,
    /// Rights by name of user and group.
    #[serde(rename = "static")]
    pub rules: Access,
}

/// `access.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AccessType {
    /// The settings of `access.static`.
    #[default]
    Static,
}

/// `apiServer.authn`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Authn {
    /// How callers prove who they are.
    #[serde(rename = "type")]
    pub kind: AuthnType,
    /// Callers from this machine are administrators, as with Kuma. So is then everybody for whom a proxy on
    /// this machine speaks without saying so.
    pub localhost_is_admin: bool,
    /// Callers from elsewhere who show nothing may write, as with Kuma.
    pub anonymous_may_write: bool,
    /// User tokens.
    pub tokens: UserTokens,
    /// Whom a provider vouches for.
    pub open_id_connect: OpenIdConnectSection,
}

/// `apiServer.authn.type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum AuthnType {
    /// A user token.
    #[default]
    Tokens,
    /// A client certificate. Kuma has it; named here so that it is refused in words.
    AdminClientCerts,
}

/// `apiServer.authn.tokens`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct UserTokens {
    /// Keep a token of the administrator in the work folder, and make one more, kept as a global secret.
    pub bootstrap_admin_token: bool,
    /// Make user tokens on request.
    pub enable_issuer: bool,
}

impl Default for UserTokens {
    fn default() -> Self {
        Self { bootstrap_admin_token: true, enable_issuer: true }
    }
}

impl Authn {
    /// Only what is there can be asked for.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] when callers would have to prove themselves in a way that does not exist, or what is said of a
    /// provider does not fit together.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.kind {
            AuthnType::Tokens => self.open_id_connect.validate(),
            AuthnType::AdminClientCerts => Err(ConfigError::rule(
                "apiServer.authn.type",
                "adminClientCerts is not supported: use tokens, and give every caller a user token \
                 (`straitctl generate user-token`)",
            )),
        }
    }
}
