//! Binding ports, with errors that say which setting to change.

use std::net::{IpAddr, SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;

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
