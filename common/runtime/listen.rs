//! Binding ports, with errors that say which setting to change, and accepting within a limit.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use thiserror::Error;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

/// Pause after the operating system refused to accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why a port could not be bound.
#[derive(Debug, Error)]
#[error("listen on {address} (setting {setting}), {hint}")]
pub struct BindError {
    address: SocketAddr,
    setting: &'static str,
    hint: &'static str,
    #[source]
    source: std::io::Error,
}

/// Binds `interface:port`; 0 takes a free port. `setting` is where the address was configured.
///
/// # Errors
/// [`BindError`] naming address and setting.
pub async fn bind(setting: &'static str, interface: IpAddr, port: u16) -> Result<TcpListener, BindError> {
    let address = SocketAddr::new(interface, port);
    TcpListener::bind(address).await.map_err(|source| {
        let hint = match source.kind() {
            std::io::ErrorKind::AddrInUse => {
                "another process listens there: stop it, or choose another port (0 takes a free one)"
            }
            std::io::ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose a higher one",
            std::io::ErrorKind::AddrNotAvailable => {
                "this machine has no such address: choose another interface"
            }
            _ => "choose another interface or port",
        };
        BindError { address, setting, hint, source }
    })
}

/// Takes a slot, then accepts one connection; the slot belongs to the connection. `None` after a refusal of
/// the operating system, which is logged and followed by a pause, and when `slots` is closed.
pub async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, peer)) => Some((stream, peer, slot)),
        Err(error) => {
            let address = listener.local_addr().ok();
            tracing::warn!(?address, %error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}
