//! Requests to a control plane, and errors people can act on.

use std::{error::Error, io::Write, path::PathBuf, time::Duration};

use anyhow::{Context, anyhow, bail};
use common::{rest::REVISION, tls::Trust};
use reqwest::{
    ClientBuilder, Method, StatusCode, Url,
    header::{self, HeaderMap, HeaderValue, IF_NONE_MATCH},
    redirect::Policy,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    body::{self, LONGEST, LONGEST_LIST, NoBody},
    machine::{self, LocalCredential},
};

/// Longest time a document from the web may take.
const FETCH: Duration = Duration::from_secs(60);

/// One control plane.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlPlaneEndpoint {
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) ca_cert_file: Option<PathBuf>,
    pub(crate) skip_verify: bool,
    /// Whether its token is of somebody who logged in through a provider.
    pub(crate) logs_in: bool,
    /// What to show where nobody named a credential.
    pub(crate) found: Option<LocalCredential>,
}

impl ControlPlaneEndpoint {
    /// Whether somebody said what to show.
    pub(crate) fn has_credential(&self) -> bool {
        let is_credential = |name: &str| name.eq_ignore_ascii_case(header::AUTHORIZATION.as_str());
        self.token.is_some() || self.headers.iter().any(|(name, _)| is_credential(name))
    }
}

/// Talks to one control plane.
pub(crate) struct ApiClient {
    http: reqwest::Client,
    base: Url,
    advice: Advice,
}

/// What to do when the control plane refuses us.
#[derive(Clone, Debug, Default)]
struct Advice {
    unknown: Option<String>,
    forbidden: Option<String>,
}

impl Advice {
    fn of(found: Option<&LocalCredential>) -> Self {
        match found {
            None => Self::default(),
            Some(LocalCredential::Token(_)) => Self {
                unknown: Some(
                    "; the token in the work folder here is not one of this control plane: --work-dir names its \
                     folder, --token shows another token"
                        .to_owned(),
                ),
                forbidden: None,
            },
            Some(LocalCredential::Nothing(why)) => Self { unknown: None, forbidden: Some(format!("; {why}")) },
        }
    }
}

/// An answer that is not a failure of the connection.
pub(crate) struct ApiAnswer {
    pub(crate) status: StatusCode,
    pub(crate) body: String,
    /// Of the write, if it names one.
    pub(crate) revision: Option<u64>,
    what: String,
    advice: Advice,
}

impl ApiClient {
    /// A client of `endpoint` whose requests take at most `timeout`.
    pub(crate) fn new(endpoint: ControlPlaneEndpoint, timeout: Duration) -> anyhow::Result<Self> {
        let base = address(&endpoint.url)?;
        let trust = Trust::from_settings(endpoint.ca_cert_file.as_deref(), endpoint.skip_verify)?;
        let mut headers = header::HeaderMap::new();
        headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
        let advice = match endpoint.logs_in {
            true => {
                Advice { unknown: Some("; log in again with `straitctl login`".to_owned()), forbidden: None }
            }
            false => Advice::of(endpoint.found.as_ref()),
        };
        let (token, stays) = match endpoint.found {
            Some(LocalCredential::Token(token)) => (Some(token), true),
            Some(LocalCredential::Nothing(_)) | None => (endpoint.token, false),
        };
        let bearer =
            token.map(|token| (header::AUTHORIZATION.to_string(), format!("Bearer {}", token.trim())));
        for (name, value) in endpoint.headers.into_iter().chain(bearer) {
            let name: header::HeaderName =
                name.parse().with_context(|| format!("{name:?} is not a header name"))?;
            let value = value.parse().with_context(|| format!("the value of header {name} is not text"))?;
            headers.insert(name, value);
        }
        let http = http(&trust, headers, timeout)?;
        let http = if stays { staying_here(http) } else { http };
        Ok(Self { http: http.build().context("prepare the connection")?, base, advice })
    }

    /// The host of the control plane, as an address has it.
    pub(crate) fn host(&self) -> String {
        self.base.host_str().unwrap_or("localhost").to_owned()
    }

    /// Sends a request and takes any answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<ApiAnswer> {
        self.send_with(method, path, body, HeaderMap::new()).await
    }

    /// Puts what must not be there yet; 412 when it is.
    pub(crate) async fn put_new(&self, path: &str, body: &Value) -> anyhow::Result<ApiAnswer> {
        let condition = HeaderMap::from_iter([(IF_NONE_MATCH, HeaderValue::from_static("*"))]);
        self.send_with(Method::PUT, path, Some(body), condition).await
    }

    async fn send_with(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: HeaderMap,
    ) -> anyhow::Result<ApiAnswer> {
        let url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let mut request = self.http.request(method.clone(), &url).headers(headers);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|error| self.explain(&error))?;
        let status = answer.status();
        let revision = answer.headers().get(REVISION).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = self.text(answer).await?;
        Ok(ApiAnswer { status, body, revision, what: format!("{method} {url}"), advice: self.advice.clone() })
    }

    /// Writes the answer down as it comes; an error for anything but success.
    pub(crate) async fn download(&self, path: &str, to: &mut impl Write) -> anyhow::Result<()> {
        let url = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        let request = self.http.get(&url);
        let mut answer = request.send().await.map_err(|error| self.explain(&error))?;
        let status = answer.status();
        if !status.is_success() {
            let body = self.text(answer).await?;
            let what = format!("GET {url}");
            let advice = self.advice.clone();
            return Err(ApiAnswer { status, body, revision: None, what, advice }.error());
        }
        while let Some(chunk) = answer.chunk().await.map_err(|error| self.explain(&error))? {
            to.write_all(&chunk)?;
        }
        Ok(())
    }

    /// A document; an error for anything but success.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.send(Method::GET, path, None).await?.success()?.json()
    }

    /// What the control plane warns of in its settings; nothing when it does not say.
    pub(crate) async fn warnings(&self) -> Vec<String> {
        let index: Value = self.get("/").await.unwrap_or_default();
        warnings(&index)
    }

    /// All items of a list, page by page. `path` may have a query.
    pub(crate) async fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let separator = if path.contains('?') { '&' } else { '?' };
        let (mut items, mut bytes) = (Vec::new(), 0_usize);
        loop {
            let page = format!("{path}{separator}size=1000&offset={}", items.len());
            let page = self.send(Method::GET, &page, None).await?.success()?;
            bytes = bytes.saturating_add(page.body.len());
            if bytes > LONGEST_LIST {
                bail!("the list is longer than {} MiB: ask for a part of it", LONGEST_LIST >> 20);
            }
            let (found, last) = self.items(page.json()?)?;
            let empty = found.is_empty();
            items.extend(found);
            if empty || last {
                return Ok(items);
            }
        }
    }

    /// The items of one page, which `path` says.
    pub(crate) async fn page(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        Ok(self.items(self.get(path).await?)?.0)
    }

    /// The items of a list, and whether it is its last page.
    fn items(&self, mut page: Value) -> anyhow::Result<(Vec<Value>, bool)> {
        match page.get_mut("items").map(Value::take) {
            Some(Value::Array(items)) => Ok((items, page["next"].is_null())),
            _ => bail!("the answer has no items; is {} a control plane?", self.base),
        }
    }

    async fn text(&self, answer: reqwest::Response) -> anyhow::Result<String> {
        body::text(answer, LONGEST).await.map_err(|error| match error {
            NoBody::Broken(error) => self.explain(&error),
            NoBody::TooLong(_) => anyhow!("{}: {error}", self.base),
        })
    }

    fn explain(&self, error: &reqwest::Error) -> anyhow::Error {
        let mut causes = vec![];
        let mut source = error.source();
        while let Some(cause) = source {
            causes.push(cause.to_string());
            source = cause.source();
        }
        let cause = causes.pop().unwrap_or_else(|| error.to_string());
        let base = &self.base;
        if error.is_timeout() {
            return anyhow!("{base} did not answer in time; --api-timeout gives it longer");
        }
        if cause.contains("certificate") || cause.contains("UnknownIssuer") {
            return anyhow!(
                "{base} shows a certificate nobody here vouches for ({cause}); name its authority with \
                 --ca-cert-file"
            );
        }
        if cause.contains("InvalidContentType") {
            return anyhow!("{base} does not speak TLS: name it with http://, or the port that does");
        }
        if cause.contains("invalid HTTP version") {
            return anyhow!(
                "{base} does not speak HTTP: is it the API of a control plane (5681, or 5682 with https://)?"
            );
        }
        if error.is_connect() {
            return anyhow!(
                "cannot reach the control plane at {base} ({cause}); is it running? --address names another \
                 one, `straitctl config control-planes list` shows the known ones"
            );
        }
        anyhow!("request to {base} failed: {cause}")
    }
}

impl ApiAnswer {
    /// The answer, unless it is an error.
    pub(crate) fn success(self) -> anyhow::Result<Self> {
        if self.status.is_success() { Ok(self) } else { Err(self.error()) }
    }

    /// The body.
    pub(crate) fn json<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_str(&self.body)
            .with_context(|| format!("{}: the answer is not what was expected", self.what))
    }

    /// What went wrong, in the words of the server.
    pub(crate) fn error(&self) -> anyhow::Error {
        let Advice { unknown, forbidden } = &self.advice;
        let hint = match self.status {
            StatusCode::UNAUTHORIZED => unknown
                .as_deref()
                .unwrap_or("; the token is not valid, make one with `straitctl generate user-token`"),
            StatusCode::NOT_FOUND => "; is this the API of a control plane?",
            StatusCode::FORBIDDEN => forbidden
                .as_deref()
                .unwrap_or("; send the token of someone who may with --token or STRAITCTL_TOKEN"),
            _ => "",
        };
        let parsed: Option<Value> = serde_json::from_str(&self.body).ok();
        let text = |name: &str| parsed.as_ref().and_then(|b| b[name].as_str()).unwrap_or_default().to_owned();
        let (title, detail) = (text("title"), text("detail"));
        // Whoever answers in this form is one.
        let hint = if title.is_empty() || self.status != StatusCode::NOT_FOUND { hint } else { "" };
        if title.is_empty() {
            let body = self.body.trim();
            let body = if body.is_empty() { "no body" } else { body };
            return anyhow!("{} answered {}: {body}{hint}", self.what, self.status);
        }
        let mut message = format!("{title} ({detail}){hint}");
        let parameters = parsed.as_ref().and_then(|b| b["invalid_parameters"].as_array());
        for parameter in parameters.into_iter().flatten() {
            let part = |name: &str| parameter[name].as_str().unwrap_or_default();
            message.push_str(&format!("\n  {}: {}", part("field"), part("reason")));
        }
        anyhow!(message)
    }
}

fn http(trust: &Trust, headers: header::HeaderMap, timeout: Duration) -> anyhow::Result<ClientBuilder> {
    Ok(reqwest::Client::builder()
        .tls_backend_preconfigured(trust.client_config(&["h2", "http/1.1"])?)
        .user_agent(concat!("straitctl/", env!("CARGO_PKG_VERSION")))
        .default_headers(headers)
        .timeout(timeout))
}

/// What is sent goes to this machine only: by no proxy, to no address somebody else resolves, and not on to
/// where an answer points.
fn staying_here(client: ClientBuilder) -> ClientBuilder {
    client.no_proxy().redirect(Policy::none()).resolve_to_addrs(machine::LOCALHOST, &machine::loopback())
}

/// The text at any address of the web.
pub(crate) async fn fetch(url: &str) -> anyhow::Result<String> {
    let client = http(&Trust::System, header::HeaderMap::new(), FETCH)?;
    let client = client.build().context("prepare the connection")?;
    let answer = client.get(url).send().await.and_then(reqwest::Response::error_for_status);
    let answer = answer.with_context(|| format!("fetch {url}"))?;
    body::text(answer, LONGEST).await.with_context(|| format!("fetch {url}"))
}

/// The warnings in what a control plane says about itself.
pub(crate) fn warnings(index: &Value) -> Vec<String> {
    let warnings = index["strait"]["warnings"].as_array().into_iter().flatten();
    warnings.filter_map(|warning| warning.as_str().map(str::to_owned)).collect()
}

/// The address of a control plane; `http` when no scheme is given.
pub(crate) fn address(text: &str) -> anyhow::Result<Url> {
    let full = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    let url = Url::parse(&full)
        .with_context(|| format!("{text:?} is not an address like http://localhost:5681"))?;
    if !matches!(url.scheme(), "http" | "https") {
        bail!("{text:?}: the address of a control plane starts with http:// or https://");
    }
    Ok(url)
}
