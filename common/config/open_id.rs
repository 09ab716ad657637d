//! Whom a provider of OpenID Connect vouches for: `apiServer.authn.openIdConnect`.

use std::{net::IpAddr, path::Path};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// Help for the settings of this file, by path.
pub(super) const HELP: &[(&str, &str)] = &[
    (
        "apiServer.authn.openIdConnect.issuer",
        "Provider whose tokens are believed, as its tokens name it; empty: none",
    ),
    (
        "apiServer.authn.openIdConnect.clientId",
        "Client of the page at the provider; empty: no login on the page",
    ),
    ("apiServer.authn.openIdConnect.clientSecret", "Its secret; empty: a public client"),
    ("apiServer.authn.openIdConnect.clientSecretFile", "The same in a file"),
    (
        "apiServer.authn.openIdConnect.cliClientId",
        "Public client of straitctl, for the device flow; empty: no straitctl login",
    ),
    (
        "apiServer.authn.openIdConnect.audience",
        "A further audience whose tokens are accepted; empty: those of the clients alone",
    ),
    ("apiServer.authn.openIdConnect.scopes", "What is asked for at a login"),
    ("apiServer.authn.openIdConnect.usernameClaim", "Claim that names a user"),
    ("apiServer.authn.openIdConnect.usernamePrefix", "What stands before it in the name of the user here"),
    (
        "apiServer.authn.openIdConnect.groupsClaim",
        "Claim that lists the groups of a user; a claim in a claim as outer.inner",
    ),
    ("apiServer.authn.openIdConnect.groupsPrefix", "What stands before each in the name of the group here"),
    (
        "apiServer.authn.openIdConnect.caFile",
        "Roots the provider is checked against, PEM; empty: the machine's",
    ),
];

/// What the names of users and groups that mean something to a control plane begin with.
pub(crate) const RESERVED: &str = "mesh-system:";

/// `apiServer.authn.openIdConnect`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct OpenIdConnectSection {
    /// Who vouches; nobody when empty.
    pub issuer: String,
    /// The client of the page.
    pub client_id: String,
    /// Its secret.
    pub client_secret: String,
    /// The file with it.
    pub client_secret_file: String,
    /// The client of `straitctl`.
    pub cli_client_id: String,
    /// A further audience of tokens.
    pub audience: String,
    /// What is asked for.
    pub scopes: Vec<String>,
    /// Claim with the name of a user.
    pub username_claim: String,
    /// Before that name.
    pub username_prefix: String,
    /// Claim with the groups of a user.
    pub groups_claim: String,
    /// Before each of them.
    pub groups_prefix: String,
    /// Roots of the provider.
    pub ca_file: String,
}

impl Default for OpenIdConnectSection {
    fn default() -> Self {
        let empty = String::new;
        Self {
            issuer: empty(),
            client_id: empty(),
            client_secret: empty(),
            client_secret_file: empty(),
            cli_client_id: empty(),
            audience: empty(),
            scopes: ["openid", "profile", "email"].map(str::to_owned).to_vec(),
            username_claim: "sub".to_owned(),
            username_prefix: empty(),
            groups_claim: "groups".to_owned(),
            groups_prefix: empty(),
            ca_file: empty(),
        }
    }
}

impl OpenIdConnectSection {
    /// Whether a provider is believed.
    pub fn is_on(&self) -> bool {
        !self.issuer.is_empty()
    }

    /// Where the roots of the provider are, if it has its own.
    pub fn ca_file(&self) -> Option<&Path> {
        Some(self.ca_file.as_str()).filter(|file| !file.is_empty()).map(Path::new)
    }

    /// What belongs together is there, and nothing that a claim says can mean what only a control plane means.
    pub(super) fn validate(&self) -> Result<(), ConfigError> {
        let rule = |name: &str, reason: &str| {
            Err(ConfigError::rule(&format!("apiServer.authn.openIdConnect.{name}"), reason))
        };
        let nobody = [&self.client_id, &self.cli_client_id, &self.audience].iter().all(|one| one.is_empty());
        if !self.is_on() {
            let alone = "needs apiServer.authn.openIdConnect.issuer, the address of the provider";
            return if nobody { Ok(()) } else { rule("clientId", alone) };
        }
        if protected_url(&self.issuer).is_none() {
            return rule(
                "issuer",
                "must be an https:// address (http:// only on this machine), as the tokens name it",
            );
        }
        if nobody {
            return rule(
                "clientId",
                "is needed for logins on the page, cliClientId for those of straitctl, or audience for tokens",
            );
        }
        if !self.client_secret.is_empty() && !self.client_secret_file.is_empty() {
            return rule("clientSecretFile", "cannot be set together with clientSecret");
        }
        if self.username_claim.is_empty() {
            return rule("usernameClaim", "cannot be empty");
        }
        if !self.scopes.iter().any(|scope| scope == "openid") {
            return rule("scopes", "must have openid among them");
        }
        let is_reserved = |prefix: &str| {
            !prefix.is_empty() && (prefix.starts_with(RESERVED) || RESERVED.starts_with(prefix))
        };
        if is_reserved(&self.username_prefix) || is_reserved(&self.groups_prefix) {
            return rule(
                "usernamePrefix",
                "and groupsPrefix cannot begin like mesh-system:, which only a control plane gives",
            );
        }
        Ok(())
    }
}

/// The address `text` is, where what is sent there is encrypted or stays on this machine.
pub fn protected_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str()?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let is_here = || {
        host == "localhost"
            || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    };
    let plain = url.username().is_empty() && url.password().is_none() && url.fragment().is_none();
    (plain && (url.scheme() == "https" || (url.scheme() == "http" && is_here()))).then_some(url)
}
