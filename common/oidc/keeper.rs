//! The provider the settings name: what is known of it, kept up to date beside the requests, and whom its tokens mean.

use std::{fs, future::Future, net::IpAddr, sync::Arc, time::Duration};

use anyhow::Context;
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use chrono::{DateTime, Utc};
use tokio::{
    sync::{Notify, watch},
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{
    ClaimMapping, ExpectedToken, OidcError, ProviderKeys, ProviderMetadata, ProviderWeb, discovery_url,
    issuer_of,
    verify::{end_of, verify},
};
use crate::{
    access::User,
    clip::clip,
    config::OpenIdConnectSection,
    runtime::{
        Entropy,
        http::{FairTurn, FairTurns},
    },
};

/// Shortest time from one good look at the provider to the next, however many tokens name unknown keys.
pub(super) const SOONEST: Duration = Duration::from_secs(10);
/// How long its keys are used without another look.
const REGULAR: Duration = Duration::from_secs(60 * 60);
/// Pauses after it did not answer: the first, doubled each time, up to the longest.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Logins that may ask the provider at once, in turn between the addresses they come from.
const LOGINS: usize = 8;
/// Longest time a login waits for its turn.
const TURN: Duration = Duration::from_secs(15);
/// What strangers are told when the provider could not be asked. Its own words, and those of the network, are in the log.
const UNREACHED: &str = "it could not be asked; the log of this control plane says why";
/// Longest reason that is kept.
const LONGEST_REASON: usize = 1024;

/// What a provider said about itself.
#[derive(Clone, Debug)]
pub(super) struct KnownProvider {
    pub(super) metadata: ProviderMetadata,
    keys: ProviderKeys,
}

/// What is known of the provider, and what went wrong at the last look.
#[derive(Clone, Debug, Default)]
struct ProviderView {
    known: Option<Arc<KnownProvider>>,
    trouble: Option<String>,
}

/// Vouches for people.
pub struct OpenIdProvider {
    settings: OpenIdConnectSection,
    secret: Option<String>,
    mapping: ClaimMapping,
    web: ProviderWeb,
    view: watch::Sender<ProviderView>,
    wanted: Notify,
    logins: Arc<FairTurns>,
}

impl OpenIdProvider {
    /// The one that the settings name. It is not asked yet: see [`Self::run`].
    ///
    /// # Errors
    /// When a file in the settings cannot be used.
    pub fn new(settings: &OpenIdConnectSection) -> anyhow::Result<Self> {
        let setting = "apiServer.authn.openIdConnect";
        let web = ProviderWeb::new(settings.ca_file()).with_context(|| format!("use {setting}.caFile"))?;
        let secret = match (&*settings.client_secret, &*settings.client_secret_file) {
            ("", "") => None,
            ("", file) => {
                let read = fs::read_to_string(file);
                Some(
                    read.with_context(|| format!("read {setting}.clientSecretFile {file}"))?
                        .trim()
                        .to_owned(),
                )
            }
            (secret, _) => Some(secret.to_owned()),
        };
        Ok(Self {
            mapping: ClaimMapping::from(settings),
            settings: settings.clone(),
            secret,
            web,
            view: watch::Sender::default(),
            wanted: Notify::new(),
            logins: Arc::new(FairTurns::new(LOGINS)),
        })
    }

    /// Looks at the provider until the process stops: at once, now and then, and when a token names an unknown key.
    pub async fn run(self: Arc<Self>, entropy: Entropy, shutdown: CancellationToken) {
        let keeping = keep(&self.view, &self.wanted, &entropy, || self.fetch());
        tokio::select! {
            () = keeping => {}
            () = shutdown.cancelled() => {}
        }
    }

    async fn fetch(&self) -> Result<KnownProvider, OidcError> {
        let issuer = &self.settings.issuer;
        let document = self.web.get(&discovery_url(issuer)).await?;
        let metadata = ProviderMetadata::parse(&document, issuer)?;
        let keys = ProviderKeys::parse(&self.web.get(&metadata.jwks_uri).await?)?;
        Ok(KnownProvider { metadata, keys })
    }

    /// What the settings say.
    pub fn settings(&self) -> &OpenIdConnectSection {
        &self.settings
    }

    /// Whether `token` says that this provider made it. That is not checked.
    pub fn claims(&self, token: &str) -> bool {
        issuer_of(token).is_some_and(|issuer| issuer == self.settings.issuer)
    }

    /// Who shows this token, without asking anybody.
    ///
    /// # Errors
    /// [`OidcError`] saying why it is not accepted.
    pub fn user(&self, token: &str, now: DateTime<Utc>) -> Result<User, OidcError> {
        let clients = [&*self.settings.client_id, &*self.settings.cli_client_id];
        let expected = ExpectedToken {
            issuer: &self.settings.issuer,
            clients: &clients,
            audience: &self.settings.audience,
            nonce: None,
        };
        self.check(token, &expected, now).map(|(user, _)| user)
    }

    /// Who has just logged in on the page, and until when. Waits for the key when it is new.
    pub(super) async fn logged_in(
        &self,
        token: &str,
        nonce: &str,
        now: DateTime<Utc>,
    ) -> Result<(User, DateTime<Utc>), OidcError> {
        let clients = [&*self.settings.client_id];
        let expected = ExpectedToken {
            issuer: &self.settings.issuer,
            clients: &clients,
            audience: "",
            nonce: Some(nonce),
        };
        let mut looks = self.view.subscribe();
        match self.check(token, &expected, now) {
            Err(OidcError::Key(_)) => {
                let _looked = timeout(2 * SOONEST, looks.changed()).await;
                self.check(token, &expected, now)
            }
            checked => checked,
        }
    }

    fn check(
        &self,
        token: &str,
        expected: &ExpectedToken<'_>,
        now: DateTime<Utc>,
    ) -> Result<(User, DateTime<Utc>), OidcError> {
        let known = self.known()?;
        let claims = verify(token, &known.keys, expected, now).inspect_err(|error| {
            if matches!(error, OidcError::Key(_)) {
                self.wanted.notify_one();
            }
        })?;
        let end = end_of(&claims).ok_or(OidcError::Time("without an end"))?;
        Ok((self.mapping.user(&claims)?, end))
    }

    /// What it said about itself.
    pub(super) fn known(&self) -> Result<Arc<KnownProvider>, OidcError> {
        let view = self.view.borrow();
        view.known.clone().ok_or_else(|| OidcError::Unknown {
            issuer: self.settings.issuer.clone(),
            reason: view.trouble.as_ref().map_or("it is being asked", |_| UNREACHED).to_owned(),
        })
    }

    /// Takes what it would say about itself.
    #[cfg(test)]
    pub(super) fn learn(&self, metadata: ProviderMetadata, keys: ProviderKeys) {
        let known = Some(Arc::new(KnownProvider { metadata, keys }));
        self.view.send_replace(ProviderView { known, trouble: None });
    }

    /// Where people log out there, if they can.
    pub fn end_session_endpoint(&self) -> Option<String> {
        self.known().ok()?.metadata.end_session_endpoint.clone()
    }

    pub(super) fn web(&self) -> &ProviderWeb {
        &self.web
    }

    pub(super) fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    /// A turn to ask it for somebody who logs in from this address: strangers can make a control plane do that.
    pub(super) async fn turn(&self, from: IpAddr) -> Result<FairTurn, OidcError> {
        let turn = timeout(TURN, self.logins.take(from)).await;
        turn.map_err(|_| OidcError::Busy)?.map_err(|_| OidcError::Busy)
    }

    /// What tells sessions apart for which this provider vouched by these settings from all others.
    pub(super) fn seal_of_settings(&self) -> String {
        let client = (&self.settings.issuer, &self.settings.client_id);
        let settled = serde_json::to_vec(&(client, &self.mapping)).unwrap_or_default();
        BASE64_URL_SAFE_NO_PAD.encode(digest(&SHA256, &settled))
    }
}

/// Looks with `fetch` and tells what came of it. What was known stays known when a look fails.
async fn keep<F: Future<Output = Result<KnownProvider, OidcError>>>(
    view: &watch::Sender<ProviderView>,
    wanted: &Notify,
    entropy: &Entropy,
    fetch: impl Fn() -> F,
) {
    let mut pause = FIRST_PAUSE;
    loop {
        match fetch().await {
            Ok(known) => {
                metrics::counter!("openid_fetches_total", "outcome" => "done").increment(1);
                let before = view.send_replace(ProviderView { known: Some(Arc::new(known)), trouble: None });
                if before.known.is_none() || before.trouble.is_some() {
                    tracing::info!("the keys of the provider of OpenID Connect are here");
                }
                pause = FIRST_PAUSE;
                sleep(SOONEST).await;
                let _wanted = timeout(entropy.about(REGULAR), wanted.notified()).await;
            }
            Err(error) => {
                metrics::counter!("openid_fetches_total", "outcome" => "failed").increment(1);
                let why = clip(&error.to_string(), LONGEST_REASON).to_owned();
                if view.borrow().trouble.as_ref() != Some(&why) {
                    tracing::warn!(
                        error = why,
                        "the keys of the provider of OpenID Connect could not be fetched"
                    );
                }
                view.send_modify(|view| view.trouble = Some(why));
                sleep(entropy.about(pause)).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
        }
    }
}

#[cfg(test)]
mod tests;
