//! Connections of zones: accepted, limited, and past their TLS handshake before the server sees them.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use common::runtime::accept;
use futures::Stream;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tonic::transport::server::{Connected, TcpConnectInfo};

/// Connections at once; more wait in the backlog of the listener.
const MAX_CONNECTIONS: usize = 10_000;
/// Longest TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections that are through and not taken yet.
const QUEUE: usize = 64;

trait Io: AsyncRead + AsyncWrite + Unpin + Send {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Io for T {}

/// The connection of one zone; its slot is free again when it is dropped.
pub(crate) struct ZoneConnection {
    io: Box<dyn Io>,
    local: Option<SocketAddr>,
    peer: SocketAddr,
    _slot: OwnedSemaphorePermit,
}

/// Accepts on `listener` until `shutdown`. The task of the first value feeds the second.
pub(crate) fn incoming(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shutdown: CancellationToken,
) -> (impl Future<Output = anyhow::Result<()>> + Send, impl Stream<Item = io::Result<ZoneConnection>>) {
    let (through, connections) = mpsc::channel(QUEUE);
    let accept = async move {
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let handshakes = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                accepted = accept(&listener, &slots) => accepted,
            };
            let Some((stream, peer, slot)) = accepted else { continue };
            let (tls, through) = (tls.clone(), through.clone());
            handshakes.spawn(async move {
                if let Some(connection) = shake_hands(stream, peer, slot, tls).await {
                    // Nobody takes it any more at shutdown.
                    let _late = through.send(Ok(connection)).await;
                }
            });
        }
    };
    (accept, ReceiverStream::new(connections))
}

async fn shake_hands(
    stream: TcpStream,
    peer: SocketAddr,
    slot: OwnedSemaphorePermit,
    tls: Option<TlsAcceptor>,
) -> Option<ZoneConnection> {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
    }
    let local = stream.local_addr().ok();
    let io: Box<dyn Io> = match tls {
        None => Box::new(stream),
        Some(acceptor) => match timeout(HANDSHAKE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => Box::new(stream),
            Ok(Err(error)) => {
                tracing::warn!(%peer, %error, "TLS handshake with a zone failed; does it trust this certificate?");
                return None;
            }
            Err(_) => {
                tracing::warn!(%peer, "TLS handshake with a zone took too long");
                return None;
            }
        },
    };
    Some(ZoneConnection { io, local, peer, _slot: slot })
}

impl Connected for ZoneConnection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        TcpConnectInfo { local_addr: self.local, remote_addr: Some(self.peer) }
    }
}

impl AsyncRead for ZoneConnection {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, buf)
    }
}

impl AsyncWrite for ZoneConnection {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
