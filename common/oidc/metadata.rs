//! What a provider says about itself: its discovery document.

use serde::{Deserialize, Serialize};

use super::{OidcError, SHOWN};
use crate::{clip::clip, config::protected_url};

const WHAT: &str = "the discovery document";

/// Where a provider is asked for what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderMetadata {
    /// The provider, as its tokens name it.
    pub issuer: String,
    /// Where people log in.
    #[serde(default)]
    pub authorization_endpoint: Option<String>,
    /// Where codes become tokens.
    pub token_endpoint: String,
    /// Where its keys are.
    pub jwks_uri: String,
    /// Where a device begins a login.
    #[serde(default)]
    pub device_authorization_endpoint: Option<String>,
    /// Where people log out.
    #[serde(default)]
    pub end_session_endpoint: Option<String>,
    /// Where tokens are given back.
    #[serde(default)]
    pub revocation_endpoint: Option<String>,
    /// What can be asked for, as far as it says so.
    #[serde(default)]
    pub scopes_supported: Vec<String>,
    /// How clients prove themselves; by their secret in a header when it does not say.
    #[serde(default)]
    pub token_endpoint_auth_methods_supported: Vec<String>,
}

/// Where the discovery document of `issuer` is.
pub fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.trim_end_matches('/'))
}

impl ProviderMetadata {
    /// Reads the document of `issuer`.
    ///
    /// # Errors
    /// [`OidcError::Document`] when it is none, is another's, or names an address where anybody could listen.
    pub fn parse(document: &[u8], issuer: &str) -> Result<Self, OidcError> {
        let unusable =
            |reason: String| OidcError::Document { what: WHAT, reason: clip(&reason, SHOWN).to_owned() };
        let found: Self = serde_json::from_slice(document).map_err(|error| unusable(error.to_string()))?;
        if found.issuer != issuer {
            let other = clip(&found.issuer, SHOWN);
            return Err(unusable(format!("it is of {other:?}, and the setting says {issuer:?}")));
        }
        let optional = [
            &found.authorization_endpoint,
            &found.device_authorization_endpoint,
            &found.end_session_endpoint,
            &found.revocation_endpoint,
        ];
        let named = [&found.token_endpoint, &found.jwks_uri];
        for address in named.into_iter().chain(optional.into_iter().flatten()) {
            if protected_url(address).is_none() {
                let address = clip(address, SHOWN);
                return Err(unusable(format!("{address:?} is no https:// address")));
            }
        }
        Ok(found)
    }

    /// Whether clients show their secret in the body of a request, because the provider takes it nowhere else.
    pub fn wants_secret_in_body(&self) -> bool {
        let takes = |method: &str| self.token_endpoint_auth_methods_supported.iter().any(|one| one == method);
        takes("client_secret_post") && !takes("client_secret_basic")
    }

    /// Whether it says that `scope` can be asked for.
    pub fn knows_scope(&self, scope: &str) -> bool {
        self.scopes_supported.iter().any(|known| known == scope)
    }
}
