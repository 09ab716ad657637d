//! The service behind a sidecar.

use std::{net::SocketAddr, path::PathBuf};

use super::{process::Process, wait::eventually};

/// A running echo service.
pub struct Echo {
    _process: Process,
}

impl Echo {
    /// An HTTP service that answers as `name`.
    pub async fn http(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, &[]).await
    }

    /// A service that sends its name and then every byte back.
    pub async fn tcp(name: &str, address: SocketAddr) -> Self {
        Self::start(name, address, &["--tcp"]).await
    }

    async fn start(name: &str, address: SocketAddr, extra: &[&str]) -> Self {
        let listen = address.to_string();
        let args = ["--listen", &listen, "--name", name].into_iter().chain(extra.iter().copied());
        let process = Process::start(name, &program(), args);
        eventually(&format!("{name} listens"), || tokio::net::TcpStream::connect(address)).await;
        Self { _process: process }
    }
}

/// Cargo builds examples before it runs tests, next to the binaries.
pub fn program() -> PathBuf {
    let binaries = PathBuf::from(env!("CARGO_BIN_EXE_straitctl"));
    let program = binaries.parent().expect("a binary lies in a folder").join("examples/echo");
    assert!(program.exists(), "no {}: cargo build --example echo", program.display());
    program
}
