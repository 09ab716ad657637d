//! What stands before several replicas: passes connections on to those that take them.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A balancer of connections, gone with this value.
pub struct Balancer {
    at: SocketAddr,
    task: JoinHandle<()>,
}

impl Balancer {
    /// One that passes on to the first of these that takes a connection.
    pub async fn before(behind: &[SocketAddr]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let at = listener.local_addr().expect("a bound listener has an address");
        let task = tokio::spawn(serve(listener, behind.to_vec()));
        Self { at, task }
    }

    /// Its port, at `localhost`.
    pub fn port(&self) -> u16 {
        self.at.port()
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, behind: Vec<SocketAddr>) {
    while let Ok((mut near, _)) = listener.accept().await {
        let behind = behind.clone();
        tokio::spawn(async move {
            for at in behind {
                if let Ok(mut far) = TcpStream::connect(at).await {
                    // Either end may go; the other one sees it by its connection.
                    let _ended = copy_bidirectional(&mut near, &mut far).await;
                    return;
                }
            }
        });
    }
}
