//! `straitctl login`: somebody shows in a browser, of whatever machine, who he is, and this program gets a token that the
//! control plane believes. It is renewed when it has run out, as long as the provider lets it.

use std::{path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use chrono::TimeDelta;
use clap::Args;
use common::{
    config::protected_url,
    oidc::{
        OAuthClient, ProviderMetadata, ProviderTokens, ProviderWeb, discovery_url, oauth_client, refusal,
    },
    runtime::{Clock, SystemClock},
    token,
};
use oauth2::{RefreshToken, Scope, StandardDeviceAuthorizationResponse, TokenResponse};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::{
    ConnectionArgs,
    client::{ApiClient, ControlPlaneEndpoint},
    config::{ConfigFile, ProviderLogin},
    output,
};

/// Asked for where the provider knows it, so that the login can be renewed.
const OFFLINE: &str = "offline_access";
/// A token that is good for no longer than this is renewed.
const SOON: TimeDelta = TimeDelta::seconds(10);
/// How often a new token is shown to a control plane that does not take it yet, and the pause between.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_secs(3);

#[derive(Args)]
pub(crate) struct Login {
    /// Control plane to log in to, by its name; the current one when absent
    #[arg(long, value_name = "NAME")]
    control_plane: Option<String>,
    /// Certificate authority of the provider, as PEM; the roots of the machine when absent
    #[arg(long, value_name = "FILE")]
    provider_ca_cert_file: Option<PathBuf>,
    /// Log in although another control plane of the config file takes the same tokens, so that each can act as you at the
    /// other
    #[arg(long)]
    shared_client: bool,
}

#[derive(Args)]
pub(crate) struct Logout {
    /// Control plane to log out of, by its name; the current one when absent
    #[arg(long, value_name = "NAME")]
    control_plane: Option<String>,
}

impl Login {
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<()> {
        let mut file = ConfigFile::open(connection.config_file.as_deref())?;
        let name = file.place_for_login(self.control_plane.as_deref(), connection)?;
        let endpoint = connection.trusting(file.address_of(&name)?);
        if protected_url(&endpoint.url).is_none() {
            bail!(
                "{} is no https:// address: who is on the way could have you log in to himself",
                endpoint.url
            );
        }
        let ways: Value = ApiClient::new(endpoint.clone(), connection.api_timeout)?.get("/authn").await?;
        let (issuer, client_id, scopes) = way(&ways)?;
        let ca = self.provider_ca_cert_file.map(|path| path.canonicalize().unwrap_or(path));
        let mut login = ProviderLogin { issuer, client_id, ca_cert_file: ca, ..ProviderLogin::default() };
        // It names the client itself, and could name that of another one to get a token that is good there.
        if let Some(other) = file.other_with_client_of(&name, &login).filter(|_| !self.shared_client) {
            bail!(
                "{name} and {other} name the same client of {} ({:?}): each would get tokens that are good at the other. \
                 Give each control plane a client of its own; --shared-client logs in all the same",
                login.issuer,
                login.client_id
            );
        }
        output::note!("{name} gets a token for the client {:?} of {}", login.client_id, login.issuer);
        let provider = LoginProvider::of(&login).await?;
        login.take(provider.device_flow(scopes).await?)?;
        let shown = ControlPlaneEndpoint { token: Some(login.id_token.clone()), logs_in: true, ..endpoint };
        let who = who_am_i(&ApiClient::new(shown, connection.api_timeout)?).await?;
        let _alone = file.lock()?;
        let mut file = ConfigFile::open(connection.config_file.as_deref())?;
        file.place_for_login(Some(&name), connection)?;
        file.keep_login(&name, &login)?;
        let groups: Vec<&str> =
            who["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        output::line(&format!(
            "logged in to {name} as {} ({})",
            who["name"].as_str().unwrap_or("-"),
            groups.join(", ")
        ));
        Ok(())
    }
}

impl Logout {
    pub(crate) async fn run(self, connection: &ConnectionArgs) -> anyhow::Result<()> {
        let file = ConfigFile::open(connection.config_file.as_deref())?;
        let name = file.name_of(self.control_plane.as_deref());
        let alone = file.lock()?;
        let mut file = ConfigFile::open(connection.config_file.as_deref())?;
        let Some(login) = file.login_of(&name) else { bail!("nobody has logged in to {name}") };
        file.forget_login(&name)?;
        drop(alone);
        // Out of our hands it is in any case.
        if let Err(error) = give_back(&login).await {
            output::note!("the provider was not told: {error:#}");
        }
        output::line(&format!("logged out of {name}"));
        Ok(())
    }
}

/// Who the control plane takes us for. A key that is new to it is fetched by it meanwhile.
async fn who_am_i(client: &ApiClient) -> anyhow::Result<Value> {
    for _ in 0..TRIES {
        let answer = client.send(Method::GET, "/who-am-i", None).await?;
        if !matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::SERVICE_UNAVAILABLE) {
            return answer.success()?.json();
        }
        tokio::time::sleep(PAUSE).await;
    }
    client.get("/who-am-i").await
}

/// Provider, client and scopes of what the control plane says about logging in.
fn way(ways: &Value) -> anyhow::Result<(String, String, Vec<String>)> {
    let provider = &ways["openIdConnect"];
    let text = |name: &str| provider[name].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
    let Some(issuer) = text("issuer") else {
        bail!(
            "this control plane believes no provider (apiServer.authn.openIdConnect.issuer); show a user token instead"
        );
    };
    let Some(client) = text("cliClientId") else {
        bail!("this control plane names no client for straitctl (apiServer.authn.openIdConnect.cliClientId)");
    };
    let scopes = provider["scopes"].as_array().into_iter().flatten().filter_map(Value::as_str);
    Ok((issuer, client, scopes.map(str::to_owned).collect()))
}

impl ProviderLogin {
    /// Takes what the provider gave. What it did not give anew stays good.
    fn take(&mut self, tokens: ProviderTokens) -> anyhow::Result<()> {
        // The old one may be good no more, whatever else there is.
        if let Some(renewing) = tokens.refresh_token() {
            self.refresh_token = Some(renewing.secret().clone());
        }
        let token = tokens.extra_fields().id_token.clone();
        self.id_token = token.ok_or_else(|| anyhow!("{} gave no ID token", self.issuer))?;
        Ok(())
    }

    fn is_due(&self) -> bool {
        token::expiry(&self.id_token).is_some_and(|end| end <= SystemClock.now() + SOON)
    }
}

/// The provider, as who logs in asks it.
struct LoginProvider {
    web: ProviderWeb,
    metadata: ProviderMetadata,
    client: OAuthClient,
}

impl LoginProvider {
    async fn of(login: &ProviderLogin) -> anyhow::Result<Self> {
        let issuer = &login.issuer;
        if protected_url(issuer).is_none() {
            bail!(
                "the control plane names {issuer:?} as provider, which is no https:// address: nobody should log in there"
            );
        }
        let web = ProviderWeb::new(login.ca_cert_file.as_deref())?;
        let document =
            web.get(&discovery_url(issuer)).await.with_context(|| format!("ask the provider {issuer}"))?;
        let metadata = ProviderMetadata::parse(&document, issuer)?;
        let client = oauth_client(&metadata, &login.client_id, None)?;
        Ok(Self { web, metadata, client })
    }

    /// Says where to show oneself, and waits for that.
    async fn device_flow(&self, mut scopes: Vec<String>) -> anyhow::Result<ProviderTokens> {
        if self.metadata.knows_scope(OFFLINE) && !scopes.iter().any(|scope| scope == OFFLINE) {
            scopes.push(OFFLINE.to_owned());
        }
        let issuer = &self.metadata.issuer;
        let asking = self.client.exchange_device_code();
        let asking = asking
            .map_err(|_| anyhow!("{issuer} has no device flow (RFC 8628); show a user token instead"))?;
        let begun: StandardDeviceAuthorizationResponse = asking
            .add_scopes(scopes.into_iter().map(Scope::new))
            .request_async(&self.web)
            .await
            .map_err(refusal)?;
        let place = begun
            .verification_uri_complete()
            .map_or(begun.verification_uri().as_str(), |uri| uri.secret().as_str());
        output::note!("Open {place}");
        output::note!("in a browser, log in there, and confirm the code {}", begun.user_code().secret());
        // The pauses are those the provider asks for.
        let waiting = self.client.exchange_device_access_token(&begun);
        Ok(waiting.request_async(&self.web, tokio::time::sleep, None).await.map_err(refusal)?)
    }
}

/// Renews the login of the current context if it has run out. What comes of it is seen when the control plane is asked.
pub(crate) async fn renew(connection: &ConnectionArgs) {
    if connection.address.is_some() || connection.token.is_some() {
        return;
    }
    if let Err(error) = renew_current(connection).await {
        output::note!("the login could not be renewed: {error:#}");
    }
}

async fn renew_current(connection: &ConnectionArgs) -> anyhow::Result<()> {
    let open = || ConfigFile::open(connection.config_file.as_deref());
    let due = |file: &ConfigFile| {
        let name = file.name_of(None);
        file.login_of(&name).filter(ProviderLogin::is_due).map(|login| (name, login))
    };
    // An unreadable file is told of by who needs it.
    let Ok(file) = open() else { return Ok(()) };
    if due(&file).is_none() {
        return Ok(());
    }
    // A refresh token may be good only once, so one program at a time shows it. Another may just have done it.
    let _alone = file.lock()?;
    let mut file = open()?;
    let Some((name, mut login)) = due(&file) else { return Ok(()) };
    let Some(renewing) = login.refresh_token.clone() else {
        bail!("{} gave nothing to renew it with, and it has run out", login.issuer);
    };
    let provider = LoginProvider::of(&login).await?;
    let renewing = RefreshToken::new(renewing);
    let asking = provider.client.exchange_refresh_token(&renewing);
    let taken = login.take(asking.request_async(&provider.web).await.map_err(refusal)?);
    file.keep_login(&name, &login)?;
    taken
}

/// Tells the provider that nobody uses this any more, where it wants to know.
async fn give_back(login: &ProviderLogin) -> anyhow::Result<()> {
    let Some(token) = &login.refresh_token else { return Ok(()) };
    let provider = LoginProvider::of(login).await?;
    let Some(place) = &provider.metadata.revocation_endpoint else { return Ok(()) };
    Ok(provider.web.revoke(place, &login.client_id, token).await?)
}
