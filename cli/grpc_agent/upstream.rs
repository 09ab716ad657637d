//! The connection to the zone.

use std::{fs, io, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use common::tls::Trust;
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    client::conn::http2::{self, SendRequest},
    header,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::{ClientConfig, pki_types::ServerName};
use thiserror::Error;
use tokio::{net::TcpStream, sync::Mutex, time::timeout};
use tokio_rustls::TlsConnector;

/// Idle time after which the connection is probed.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// Longest time a connection is waited for, with TLS and the greeting of HTTP/2.
const CONNECT: Duration = Duration::from_secs(10);
/// Port of the server for proxies.
const PORT: u16 = 5678;

/// Why nothing can be passed on.
#[derive(Debug, Error)]
pub(super) enum UpstreamError {
    #[error("{0:?} is not the address of a zone's server for proxies, like https://localhost:5678")]
    Address(String),
    #[error("the token would go to {0} in clear: say https://, or leave out --token-file")]
    TokenInClear(String),
    #[error(transparent)]
    Tls(#[from] common::tls::TlsError),
    #[error("read the token in {path}: {source}")]
    Token { path: PathBuf, source: io::Error },
    #[error("the token in {0} is not one: it holds what no header can")]
    TokenMalformed(PathBuf),
    #[error("connect to the zone at {to}: {source}")]
    Connect { to: String, source: io::Error },
    #[error("talk to the zone: {0}")]
    Talk(#[from] hyper::Error),
    #[error("pass on a request: {0}")]
    Request(#[from] hyper::http::Error),
}

/// A zone, with the one connection there is to it.
pub(super) struct ZoneConnection {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    token_file: Option<PathBuf>,
    open: Mutex<Option<SendRequest<Incoming>>>,
}

impl ZoneConnection {
    /// Nothing is connected before it is needed.
    pub(super) fn new(
        address: &str,
        trust: &Trust,
        token_file: Option<PathBuf>,
    ) -> Result<Self, UpstreamError> {
        let wrong = || UpstreamError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let tls = match uri.scheme_str() {
            Some("https") => Some(Arc::new(trust.client_config(&["h2"])?)),
            // The token is a secret, and everybody on the way would read it.
            Some("http") if token_file.is_some() && !is_here(&host) => {
                return Err(UpstreamError::TokenInClear(host));
            }
            Some("http") => None,
            _ => return Err(wrong()),
        };
        let port = uri.port_u16().unwrap_or(PORT);
        Ok(Self { host, port, tls, token_file, open: Mutex::new(None) })
    }

    /// Sends a request on with the token of the proxy.
    pub(super) async fn pass_on(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let (mut parts, body) = request.into_parts();
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        parts.uri = Uri::builder().scheme(scheme).authority(self.authority()).path_and_query(path).build()?;
        parts.headers.remove(header::HOST);
        if let Some(token) = self.token()? {
            parts.headers.insert(header::AUTHORIZATION, token);
        }
        let mut connection = self.connection().await?;
        Ok(connection.send_request(Request::from_parts(parts, body)).await?)
    }

    fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Read each time, because tokens are replaced before they end.
    fn token(&self) -> Result<Option<header::HeaderValue>, UpstreamError> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let text =
            fs::read_to_string(path).map_err(|source| UpstreamError::Token { path: path.clone(), source })?;
        let mut token = header::HeaderValue::from_str(&format!("Bearer {}", text.trim()))
            .map_err(|_| UpstreamError::TokenMalformed(path.clone()))?;
        token.set_sensitive(true);
        Ok(Some(token))
    }

    /// The connection there is, or a new one.
    async fn connection(&self) -> Result<SendRequest<Incoming>, UpstreamError> {
        let mut open = self.open.lock().await;
        if let Some(connection) = open.as_ref().filter(|connection| !connection.is_closed()) {
            return Ok(connection.clone());
        }
        let connection = timeout(CONNECT, self.connect()).await.unwrap_or_else(|_| {
            let source = io::ErrorKind::TimedOut.into();
            Err(UpstreamError::Connect { to: self.authority(), source })
        })?;
        Ok(open.insert(connection).clone())
    }

    async fn connect(&self) -> Result<SendRequest<Incoming>, UpstreamError> {
        let connect = |source| UpstreamError::Connect { to: self.authority(), source };
        let tcp = TcpStream::connect((self.host.as_str(), self.port)).await.map_err(connect)?;
        tcp.set_nodelay(true).map_err(connect)?;
        match &self.tls {
            None => talk(tcp).await,
            Some(config) => {
                let name = ServerName::try_from(self.host.clone());
                let name = name.map_err(|error| connect(io::Error::other(error)))?;
                let tls = TlsConnector::from(Arc::clone(config)).connect(name, tcp).await;
                talk(tls.map_err(connect)?).await
            }
        }
    }
}

/// Whether this is a name or an address of this machine alone.
fn is_here(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// HTTP/2 over what is connected, until one side hangs up.
async fn talk<S>(stream: S) -> Result<SendRequest<Incoming>, UpstreamError>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
{
    let (connection, running) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE)
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(stream))
        .await?;
    tokio::spawn(async move {
        if let Err(error) = running.await {
            crate::output::note!("the connection to the zone ended: {error}");
        }
    });
    Ok(connection)
}
