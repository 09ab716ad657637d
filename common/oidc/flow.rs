//! Logging in on the page: an authorization code, bound to one browser by state, nonce and PKCE.

use std::{net::IpAddr, time::Duration};

use chrono::{DateTime, TimeDelta, Utc};
use oauth2::{
    AuthType, AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken, DeviceAuthorizationUrl,
    EndpointMaybeSet, EndpointNotSet, EndpointSet, ErrorResponse, ExtraTokenFields, PkceCodeChallenge,
    PkceCodeVerifier, RedirectUrl, RequestTokenError, Scope, StandardRevocableToken, StandardTokenResponse,
    TokenUrl,
    basic::{
        BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
    },
};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{OidcError, OpenIdProvider, PageSession, ProviderMetadata, SHOWN};
use crate::{clip::clip, store::index::Index, token};

/// What is sealed here, so that nothing else can be taken for it.
const WHAT: &str = "login on the page";
/// How long somebody may take to log in.
const PATIENCE: TimeDelta = TimeDelta::minutes(10);
/// How long a code that the provider refused keeps its turn.
const PENALTY: Duration = Duration::from_secs(1);
/// Longest code of a provider.
const LONGEST_CODE: usize = 4096;

/// What a provider gives beside an access token.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct IdTokenFields {
    /// Who that is.
    #[serde(default)]
    pub id_token: Option<String>,
}

impl ExtraTokenFields for IdTokenFields {}

/// What a provider gives for a code.
pub type ProviderTokens = StandardTokenResponse<IdTokenFields, BasicTokenType>;

/// A client of a provider.
pub type OAuthClient = Client<
    BasicErrorResponse,
    ProviderTokens,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
    EndpointMaybeSet,
    EndpointMaybeSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointSet,
>;

/// The client of this name, public when it has no secret.
///
/// # Errors
/// [`OidcError::Document`] when the addresses of the provider are none.
pub fn oauth_client(
    metadata: &ProviderMetadata,
    id: &str,
    secret: Option<&str>,
) -> Result<OAuthClient, OidcError> {
    let login = metadata.authorization_endpoint.clone().map(AuthUrl::new).transpose().map_err(unusable)?;
    let device = metadata
        .device_authorization_endpoint
        .clone()
        .map(DeviceAuthorizationUrl::new)
        .transpose()
        .map_err(unusable)?;
    let tokens = TokenUrl::new(metadata.token_endpoint.clone()).map_err(unusable)?;
    let client = Client::new(ClientId::new(id.to_owned()))
        .set_auth_uri_option(login)
        .set_device_authorization_url_option(device)
        .set_token_uri(tokens);
    let client =
        if metadata.wants_secret_in_body() { client.set_auth_type(AuthType::RequestBody) } else { client };
    Ok(match secret {
        Some(secret) => client.set_client_secret(ClientSecret::new(secret.to_owned())),
        None => client,
    })
}

fn unusable(error: impl std::fmt::Display) -> OidcError {
    OidcError::Document { what: "the discovery document", reason: error.to_string() }
}

/// What came of asking for tokens, in our words.
pub fn refusal<T: ErrorResponse + 'static>(error: RequestTokenError<OidcError, T>) -> OidcError {
    match error {
        RequestTokenError::ServerResponse(said) => {
            OidcError::Refused(clip(&said.to_string(), SHOWN).to_owned())
        }
        RequestTokenError::Request(error) => error,
        // What it holds may be a token.
        RequestTokenError::Parse(..) => {
            OidcError::Document { what: "an answer", reason: "it does not hold tokens".to_owned() }
        }
        RequestTokenError::Other(why) => OidcError::Web(clip(&why, SHOWN).to_owned()),
    }
}

/// A login that somebody has begun. His browser keeps it, sealed, until he comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeFlow {
    state: String,
    nonce: String,
    verifier: String,
    redirect: String,
    /// Where he was.
    pub to: String,
    until: i64,
}

impl CodeFlow {
    /// The address at the provider to send somebody to, who comes back to `redirect` and then to `to`.
    ///
    /// # Errors
    /// [`OidcError`] when nothing is known of the provider, or there is no client for this.
    pub fn begin(
        provider: &OpenIdProvider,
        redirect: &str,
        to: &str,
        now: DateTime<Utc>,
    ) -> Result<(String, Self), OidcError> {
        let client = client(provider, redirect)?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let nonce = CsrfToken::new_random();
        let scopes = provider.settings().scopes.iter().cloned().map(Scope::new);
        let asking = client.authorize_url(CsrfToken::new_random).map_err(unusable)?;
        let (url, state) = asking
            .add_scopes(scopes)
            .add_extra_param("nonce", nonce.secret().clone())
            .set_pkce_challenge(challenge)
            .url();
        let flow = Self {
            state: state.into_secret(),
            nonce: nonce.into_secret(),
            verifier: verifier.into_secret(),
            redirect: redirect.to_owned(),
            to: to.to_owned(),
            until: (now + PATIENCE).timestamp(),
        };
        Ok((url.to_string(), flow))
    }

    /// What the browser keeps meanwhile.
    ///
    /// # Errors
    /// [`OidcError::Unsealed`] when there is no key to seal it with.
    pub fn seal(&self, index: &Index) -> Result<String, OidcError> {
        let content = serde_json::to_vec(self).unwrap_or_default();
        token::seal(index, WHAT, &content).map_err(|error| OidcError::Unsealed(error.to_string()))
    }

    /// What the browser kept; nothing when we did not seal it.
    pub fn open(index: &Index, sealed: &str) -> Option<Self> {
        serde_json::from_slice(&token::unseal(index, WHAT, sealed)?).ok()
    }

    /// Whether who comes back with `state` is who was sent, in time.
    pub fn is_of(&self, state: &str, now: DateTime<Utc>) -> bool {
        !state.is_empty() && self.state == state && now.timestamp() < self.until
    }

    /// Who has logged in, for the code he brought from this address.
    ///
    /// # Errors
    /// [`OidcError`] when the provider does not take the code, or its token says nobody.
    pub async fn finish(
        &self,
        provider: &OpenIdProvider,
        code: &str,
        from: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<PageSession, OidcError> {
        if code.is_empty() || code.len() > LONGEST_CODE {
            return Err(OidcError::Refused("it sent no code".to_owned()));
        }
        let _turn = provider.turn(from).await?;
        let client = client(provider, &self.redirect)?;
        let asking = client
            .exchange_code(AuthorizationCode::new(code.to_owned()))
            .set_pkce_verifier(PkceCodeVerifier::new(self.verifier.clone()));
        let tokens = match asking.request_async(provider.web()).await.map_err(refusal) {
            Ok(tokens) => tokens,
            Err(error) => {
                // Anybody can make up codes, and the provider counts those that we bring against us.
                sleep(PENALTY).await;
                return Err(error);
            }
        };
        let none = || OidcError::Refused("it gave no ID token".to_owned());
        let token = tokens.extra_fields().id_token.as_deref().ok_or_else(none)?;
        let (user, until) = provider.logged_in(token, &self.nonce, now).await?;
        Ok(PageSession::new(user, provider, until))
    }
}

/// The client of the page.
fn client(provider: &OpenIdProvider, redirect: &str) -> Result<OAuthClient, OidcError> {
    let id = &provider.settings().client_id;
    if id.is_empty() {
        return Err(OidcError::NoClient("apiServer.authn.openIdConnect.clientId"));
    }
    let known = provider.known()?;
    let redirect = RedirectUrl::new(redirect.to_owned()).map_err(unusable)?;
    Ok(oauth_client(&known.metadata, id, provider.secret())?.set_redirect_uri(redirect))
}
