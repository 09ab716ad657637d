//! Binding ports, with errors that say which setting to change.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
};

use socket2::SockRef;
use thiserror::Error;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
};

/// Connections the system holds for a listener where it does not say how many it may.
const BACKLOG: u32 = 1024;
/// Bytes of a connection that the system takes in before its client has window for them. By itself it would
/// take in megabytes for a client that reads nothing, which no budget of this process would see.
const UNSENT: u32 = 128 << 10;

/// Why a port could not be bound.
#[derive(Debug, Error)]
#[error("listen on {address} (setting {setting}), {hint}")]
pub struct BindError {
    address: SocketAddr,
    setting: &'static str,
    hint: &'static str,
    #[source]
    source: io::Error,
}

/// Binds `interface:port`; 0 takes a free one. `setting` is where the address was configured.
///
/// # Errors
/// [`BindError`] naming address and setting.
pub fn bind(setting: &'static str, interface: IpAddr, port: u16) -> Result<TcpListener, BindError> {
    let address = SocketAddr::new(interface, port);
    listen(address).map_err(|source| {
        let hint = match source.kind() {
            io::ErrorKind::AddrInUse => {
                "another process listens there: stop it, or choose another port (0 takes a free one)"
            }
            io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
            io::ErrorKind::AddrNotAvailable => "this machine has no such address: choose another interface",
            _ => "choose another interface or port",
        };
        BindError { address, setting, hint, source }
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A restart does not wait for the last connections of the process before it.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    // Accepted connections have it from here.
    SockRef::from(&socket).set_tcp_notsent_lowat(UNSENT)?;
    socket.listen(backlog())
}

/// As many as the system lets wait: a burst is accepted late rather than lost.
fn backlog() -> u32 {
    let allowed = fs::read_to_string("/proc/sys/net/core/somaxconn");
    allowed.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(BACKLOG)
}

/// Where a server gets its connections from: a bound port, or a simulated one.
pub trait Accept: Send + 'static {
    /// A connection.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection and the address of its client.
    ///
    /// # Errors
    /// When the system refuses, for lack of files most likely.
    fn accept(&mut self) -> impl Future<Output = io::Result<(Self::Io, SocketAddr)>> + Send;
}

impl Accept for TcpListener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, peer) = Self::accept(self).await?;
        if let Err(error) = stream.set_nodelay(true) {
            // Only of a connection that is gone already.
            tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
        }
        Ok((stream, peer))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[tokio::test]
    async fn the_system_takes_in_little_for_a_client_that_reads_nothing() {
        let mut listener = bind("test", [127, 0, 0, 1].into(), 0).unwrap();
        let client = TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        let _deaf = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = Accept::accept(&mut listener).await.unwrap();
        let (piece, mut taken) = (vec![b'x'; 64 << 10], 0);
        stream.writable().await.unwrap();
        while let Ok(bytes) = stream.try_write(&piece) {
            taken += bytes;
        }
        assert!(taken <= 4 * UNSENT as usize, "{taken} bytes");
    }
}
