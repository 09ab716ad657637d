//! Asking a provider over the web: bounded in time and length, and nowhere else than asked.

use std::{error::Error, future::Future, path::Path, pin::Pin, time::Duration};

use oauth2::{AsyncHttpClient, HttpRequest, HttpResponse};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Client, Response, header, redirect::Policy};

use super::OidcError;
use crate::tls::Trust;

/// Longest time one answer may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest answer in bytes.
const LONGEST: usize = 256 << 10;

/// A client of a provider. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProviderWeb {
    /// For `https://`.
    far: Client,
    /// For `http://`, which is on this machine, and goes through no proxy that the environment names.
    here: Client,
}

impl ProviderWeb {
    /// One that checks the provider against these roots, or against those of the machine.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn new(ca_file: Option<&Path>) -> anyhow::Result<Self> {
        let tls = Trust::from_settings(ca_file, false)?.client_config(&["h2", "http/1.1"])?;
        let client = || {
            Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .user_agent(concat!("strait/", env!("CARGO_PKG_VERSION")))
                .timeout(TIMEOUT)
                // A redirect would carry a code or a secret on to somebody else.
                .redirect(Policy::none())
        };
        Ok(Self { far: client().build()?, here: client().no_proxy().build()? })
    }

    fn to(&self, url: &str) -> &Client {
        if url.starts_with("https://") { &self.far } else { &self.here }
    }

    /// The document at `url`.
    ///
    /// # Errors
    /// [`OidcError::Web`].
    pub async fn get(&self, url: &str) -> Result<Vec<u8>, OidcError> {
        let answer = self.to(url).get(url).send().await.map_err(|error| failed(&error))?;
        if !answer.status().is_success() {
            return Err(OidcError::Web(format!("{url} answered {}", answer.status())));
        }
        body(answer).await
    }

    /// Gives a refresh token of a public client back (RFC 7009).
    ///
    /// # Errors
    /// [`OidcError::Web`] when it is not taken.
    pub async fn revoke(&self, endpoint: &str, client_id: &str, token: &str) -> Result<(), OidcError> {
        let fields = [("token", token), ("token_type_hint", "refresh_token"), ("client_id", client_id)];
        let encoded =
            fields.map(|(name, value)| format!("{name}={}", utf8_percent_encode(value, NON_ALPHANUMERIC)));
        let request = self
            .to(endpoint)
            .post(endpoint)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = request.body(encoded.join("&")).send().await.map_err(|error| failed(&error))?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(OidcError::Web(format!("it answered {}", answer.status()))),
        }
    }

    async fn send(&self, request: HttpRequest) -> Result<HttpResponse, OidcError> {
        let (parts, sent) = request.into_parts();
        let url = parts.uri.to_string();
        let request = self.to(&url).request(parts.method, &url).headers(parts.headers).body(sent);
        let answer = request.send().await.map_err(|error| failed(&error))?;
        let mut response = HttpResponse::new(Vec::new());
        *response.status_mut() = answer.status();
        response.headers_mut().clone_from(answer.headers());
        *response.body_mut() = body(answer).await?;
        Ok(response)
    }
}

impl<'c> AsyncHttpClient<'c> for ProviderWeb {
    type Error = OidcError;
    type Future = Pin<Box<dyn Future<Output = Result<HttpResponse, OidcError>> + Send + 'c>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

async fn body(mut answer: Response) -> Result<Vec<u8>, OidcError> {
    let mut whole = Vec::new();
    while let Some(part) = answer.chunk().await.map_err(|error| failed(&error))? {
        if whole.len() + part.len() > LONGEST {
            return Err(OidcError::Web(format!("its answer is longer than {LONGEST} bytes")));
        }
        whole.extend_from_slice(&part);
    }
    Ok(whole)
}

/// The innermost cause, without the address, which may have a code in it.
fn failed(error: &reqwest::Error) -> OidcError {
    if error.is_timeout() {
        return OidcError::Web("it took too long".to_owned());
    }
    let mut cause: &dyn Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    OidcError::Web(cause.to_string())
}
