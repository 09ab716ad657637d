//! How a zone or a relay reaches global: plain or over TLS. Tests bring their own.

use std::{path::PathBuf, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, pki_types::ServerName};
use thiserror::Error;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

use crate::tls::{KeyPairPem, TlsError, Trust};

/// The protocol, as TLS names it.
const H2: &str = "h2";
/// Idle time after which the connection is probed; peers of other makes hang up on probes that come more
/// often than every 15 s.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long a probe may take.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What a peer may send before it must wait for this side.
const WINDOW: u32 = 1024 * 1024;

/// Makes connections to global.
#[async_trait]
pub trait Dial: Send + Sync + 'static {
    /// A fresh connection, with the settings of `endpoint` wherever it leads.
    ///
    /// # Errors
    /// [`DialError`] saying why there is none.
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError>;
}

/// Why there is no connection.
#[derive(Debug, Error)]
pub enum DialError {
    /// The address is not one.
    #[error("{0:?} is not the address of a global: use grpcs://host:port, or grpc://host:port without TLS")]
    Address(String),
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection failed.
    #[error("connect to global: {}", chain(.0, OF_ZONE))]
    Connect(#[from] tonic::transport::Error),
    /// The connection of a process with other settings than a zone failed.
    #[error("connect to global: {}", chain(.error, .section))]
    ConnectOf {
        /// Where the settings of the connection are.
        section: &'static str,
        /// What failed.
        error: tonic::transport::Error,
    },
}

/// Where a zone has the settings of its connection.
const OF_ZONE: &str = "multizone.zone";

/// Why the connection failed, which hides behind the error, and what to do where that is known.
fn chain(error: &tonic::transport::Error, section: &str) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let next = error.to_string();
        // One that only passes another on says the same.
        if !text.ends_with(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    let remedy = [
        ("UnknownIssuer", "name the authority of its certificate in", "kds.rootCaFile"),
        ("NotValidForName", "use a name of its certificate in", "globalAddress"),
        ("CertificateRequired", "global wants a certificate: name one in", "kds.clientCertFile"),
        ("InvalidContentType", "it does not speak TLS there: check", "globalAddress"),
    ];
    if section != OF_ZONE && text.contains("CertificateRequired") {
        return format!(
            "{text}; only a zone shows certificates: set multizone.global.kds.auth of global to either"
        );
    }
    match remedy.iter().find(|(mark, ..)| text.contains(mark)) {
        Some((_, remedy, setting)) => format!("{text}; {remedy} {section}.{setting}"),
        None => text,
    }
}

/// The settings of every connection to global. `agent` says who connects, and in which version.
pub fn endpoint(connect_timeout: Duration, agent: &str) -> Endpoint {
    let endpoint = Endpoint::from_static("http://global")
        .connect_timeout(connect_timeout)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW * 2);
    let plain = endpoint.clone();
    endpoint.user_agent(agent).unwrap_or(plain)
}

/// A global at an address, over TLS when the address says so.
#[derive(Clone)]
pub struct Trusted {
    host: String,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    trust: Trust,
    shown: Option<ClientCertificateFiles>,
    section: &'static str,
}

/// Where the certificate is that is shown to global. Read at every connect, so that it can be replaced.
#[derive(Clone, Debug)]
pub struct ClientCertificateFiles {
    /// The chain, leaf first.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

impl Trusted {
    /// From `grpcs://host:port` (checked against `trust`) or `grpc://host:port`.
    ///
    /// # Errors
    /// [`DialError`] when the address or the trust cannot be used.
    pub fn new(address: &str, trust: &Trust) -> Result<Self, DialError> {
        let wrong = || DialError::Address(address.to_owned());
        let uri: Uri = address.parse().map_err(|_| wrong())?;
        let host = uri.host().ok_or_else(wrong)?.trim_matches(['[', ']']).to_owned();
        let tls = match uri.scheme_str() {
            Some("grpcs") => Some(Arc::new(trust.client_config(&[H2])?)),
            Some("grpc") => None,
            _ => return Err(wrong()),
        };
        if let Some(tls) = &tls
            && tls.alpn_protocols.is_empty()
        {
            return Err(wrong());
        }
        let port = uri.port_u16().unwrap_or(5685);
        Ok(Self { host, port, tls, trust: trust.clone(), shown: None, section: OF_ZONE })
    }

    /// The same, showing the certificate in these files.
    #[must_use]
    pub fn showing(self, shown: Option<ClientCertificateFiles>) -> Self {
        Self { shown, ..self }
    }

    /// With the certificate that is in the files now.
    fn current(&self) -> Result<Self, TlsError> {
        let (Some(_), Some(files)) = (&self.tls, &self.shown) else { return Ok(self.clone()) };
        let pair = KeyPairPem::read(&files.certificate, &files.key)?;
        let tls = self.trust.client_config_showing(&[H2], Some(&pair))?;
        Ok(Self { tls: Some(Arc::new(tls)), ..self.clone() })
    }

    /// The same, with errors that name settings of this section.
    pub fn of_section(self, section: &'static str) -> Self {
        Self { section, ..self }
    }
}

#[async_trait]
impl Dial for Trusted {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        let to = self.current()?;
        let connector = tower::service_fn(move |_: Uri| {
            let to = to.clone();
            async move {
                let tcp = TcpStream::connect((to.host.as_str(), to.port)).await?;
                tcp.set_nodelay(true)?;
                Ok::<_, std::io::Error>(match to.tls {
                    None => Either::Plain(TokioIo::new(tcp)),
                    Some(config) => {
                        let name = ServerName::try_from(to.host).map_err(std::io::Error::other)?;
                        let tls = TlsConnector::from(config).connect(name, tcp).await?;
                        Either::Tls(Box::new(TokioIo::new(tls)))
                    }
                })
            }
        });
        let section = self.section;
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| DialError::ConnectOf { section, error })
    }
}

use either::Either;

mod either {
    //! One type for both sorts of connection.

    use std::{
        io,
        pin::Pin,
        task::{Context, Poll},
    };

    use hyper::rt::{Read, ReadBufCursor, Write};
    use hyper_util::rt::TokioIo;
    use tokio::net::TcpStream;
    use tokio_rustls::client::TlsStream;

    pub(super) enum Either {
        Plain(TokioIo<TcpStream>),
        Tls(Box<TokioIo<TlsStream<TcpStream>>>),
    }

    impl Read for Either {
        fn poll_read(
            self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Self::Plain(io) => Pin::new(io).poll_read(cx, buf),
                Self::Tls(io) => Pin::new(io.as_mut()).poll_read(cx, buf),
            }
        }
    }

    impl Write for Either {
        fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
            match self.get_mut() {
                Self::Plain(io) => Pin::new(io).poll_write(cx, buf),
                Self::Tls(io) => Pin::new(io.as_mut()).poll_write(cx, buf),
            }
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Self::Plain(io) => Pin::new(io).poll_flush(cx),
                Self::Tls(io) => Pin::new(io.as_mut()).poll_flush(cx),
            }
        }

        fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            match self.get_mut() {
                Self::Plain(io) => Pin::new(io).poll_shutdown(cx),
                Self::Tls(io) => Pin::new(io.as_mut()).poll_shutdown(cx),
            }
        }
    }
}
