//! The simulated network: listeners and connectors of turmoil in the shapes the control planes take.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use async_trait::async_trait;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::{Channel, Endpoint, Uri, server::Connected};
use turmoil::net::{TcpListener, TcpStream};
use zone::kds::{Dial, DialError};

pub const GLOBAL: &str = "global";
pub const PORT: u16 = 5685;

/// Connections arriving at this host.
pub async fn incoming() -> impl futures::Stream<Item = io::Result<Accepted>> {
    let listener = TcpListener::bind(("0.0.0.0", PORT)).await.unwrap();
    futures::stream::unfold(listener, |listener| async {
        let accepted = listener.accept().await.map(|(stream, _)| Accepted(stream));
        Some((accepted, listener))
    })
}

/// Dials the simulated global and counts how often.
#[derive(Clone, Default)]
pub struct SimDial {
    pub dials: Arc<AtomicUsize>,
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let connector = tower::service_fn(|_: Uri| async {
            Ok::<_, io::Error>(TokioIo::new(TcpStream::connect((GLOBAL, PORT)).await?))
        });
        Ok(endpoint.connect_with_connector(connector).await?)
    }
}

pub struct Accepted(TcpStream);

impl Connected for Accepted {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Accepted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Accepted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
