//! The REST API of a control plane, as far as a mesh is made with it. Kuma's has the same paths.

use futures::{StreamExt, TryStreamExt, stream};
use reqwest::{Certificate, Client, Method, RequestBuilder, StatusCode};
use serde_json::{Value, json};
use thiserror::Error;

use crate::Scenario;

/// Requests at once.
const AT_ONCE: usize = 16;
/// How often a request is made that finds the server busy.
const ATTEMPTS: u32 = 20;

/// Why something could not be made.
#[derive(Debug, Error)]
pub enum AdminError {
    /// No answer.
    #[error("{what}: {source}")]
    Silent {
        /// What was asked for.
        what: String,
        /// Why.
        source: reqwest::Error,
    },
    /// Certificates that are none.
    #[error("use the certificates the API is checked against: {0}")]
    Authorities(#[source] reqwest::Error),
    /// A refusal.
    #[error("{what}: {status}: {answer}")]
    Refused {
        /// What was asked for.
        what: String,
        /// The status.
        status: StatusCode,
        /// The body of the answer.
        answer: String,
    },
}

/// A control plane, through its API.
#[derive(Clone, Debug)]
pub struct AdminApi {
    http: Client,
    url: String,
    token: Option<String>,
}

impl AdminApi {
    /// The API at this URL; `token` is that of a user.
    pub fn new(url: &str, token: Option<String>) -> Self {
        Self { http: Client::new(), url: url.trim_end_matches('/').to_owned(), token }
    }

    /// The same, whose certificate may also be one of those in this PEM.
    ///
    /// # Errors
    /// [`AdminError::Authorities`].
    pub fn trusting(self, pem: &[u8]) -> Result<Self, AdminError> {
        let authorities = Certificate::from_pem_bundle(pem).map_err(AdminError::Authorities)?;
        let http = Client::builder().tls_certs_merge(authorities).build();
        Ok(Self { http: http.map_err(AdminError::Authorities)?, ..self })
    }

    /// Stores a document, whatever was there before.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn put(&self, document: &Value) -> Result<(), AdminError> {
        self.put_at(&path(document), document).await
    }

    /// Stores a document of any kind where it belongs.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn put_at(&self, path: &str, document: &Value) -> Result<(), AdminError> {
        let request = || self.request(Method::PUT, path).json(document);
        self.ask(format!("PUT {path}"), request).await.map(drop)
    }

    /// Stores many documents, several at once.
    ///
    /// # Errors
    /// The first [`AdminError`].
    pub async fn put_all(&self, documents: impl Iterator<Item = Value>) -> Result<(), AdminError> {
        let puts = stream::iter(documents).map(|document| async move { self.put(&document).await });
        puts.buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Deletes what a document describes; it may be gone already.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn delete(&self, document: &Value) -> Result<(), AdminError> {
        let path = path(document);
        match self.ask(format!("DELETE {path}"), || self.request(Method::DELETE, &path)).await {
            Err(AdminError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(()),
            other => other.map(drop),
        }
    }

    /// Whether there is something at `path`.
    ///
    /// # Errors
    /// [`AdminError`].
    pub async fn has(&self, path: &str) -> Result<bool, AdminError> {
        match self.ask(format!("GET {path}"), || self.request(Method::GET, path)).await {
            Err(AdminError::Refused { status: StatusCode::NOT_FOUND, .. }) => Ok(false),
            other => other.map(|_| true),
        }
    }

    /// A token for each of these proxies.
    ///
    /// # Errors
    /// The first [`AdminError`].
    pub async fn tokens(&self, mesh: &str, names: Vec<String>) -> Result<Vec<String>, AdminError> {
        let tokens = stream::iter(names).map(|name| async move {
            let asked = json!({"mesh": mesh, "name": name, "validFor": "240h"});
            let request = || self.request(Method::POST, "/tokens/dataplane").json(&asked);
            self.ask(format!("make a token for {name}"), request).await
        });
        tokens.buffered(AT_ONCE).try_collect().await
    }

    /// All documents of a scenario but its policies.
    ///
    /// # Errors
    /// The first [`AdminError`].
    pub async fn put_dataplanes(&self, scenario: &Scenario) -> Result<(), AdminError> {
        self.put_all((0..scenario.endpoints).map(|n| scenario.endpoint_document(n, 0))).await?;
        self.put_all((0..scenario.proxies).map(|n| scenario.proxy_document(n))).await
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    async fn ask(&self, what: String, request: impl Fn() -> RequestBuilder) -> Result<String, AdminError> {
        let mut attempt = 1;
        loop {
            let silent = |source| AdminError::Silent { what: what.clone(), source };
            let answer = request().send().await.map_err(silent)?;
            let status = answer.status();
            let answer = answer.text().await.map_err(silent)?;
            if status.is_success() {
                return Ok(answer);
            }
            let busy = [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(&status);
            if !busy || attempt == ATTEMPTS {
                return Err(AdminError::Refused { what, status, answer });
            }
            attempt += 1;
            tokio::time::sleep(std::time::Duration::from_millis(50) * attempt).await;
        }
    }
}

/// Where a document is stored.
fn path(document: &Value) -> String {
    let text = |member: &str| document[member].as_str().unwrap_or_default();
    let name = text("name");
    let collection = match text("type") {
        "Mesh" => return format!("/meshes/{name}"),
        "Dataplane" => "dataplanes",
        "MeshTimeout" => "meshtimeouts",
        "MeshHTTPRoute" => "meshhttproutes",
        other => unreachable!("no scenario has a {other}"),
    };
    format!("/meshes/{}/{collection}/{name}", text("mesh"))
}
