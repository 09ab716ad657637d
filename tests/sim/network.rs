//! The simulated network: listeners and connectors of turmoil in the shapes the control planes take.

use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use common::runtime::Accept;
use hyper_util::rt::TokioIo;
use tonic::transport::{Channel, Endpoint, Uri};
use turmoil::net::{TcpListener, TcpStream};
use zone::kds::{Dial, DialError, Dials, MoveTarget};

pub const GLOBAL: &str = "global";
/// Another instance of it, on the same store.
pub const ANOTHER: &str = "global-2";
/// Another replica of the first zone, on the same store.
pub const ZONE_REPLICA: &str = "zone-1-again";
/// Where a zone may move to.
pub const SECOND_GLOBAL: &str = "another-global";
pub const PORT: u16 = 5685;
pub const RELAYS: [&str; 2] = ["relay-1", "relay-2"];

/// Where connections arrive at this host.
pub struct Listener(TcpListener);

pub async fn listener() -> Listener {
    Listener(TcpListener::bind(("0.0.0.0", PORT)).await.unwrap())
}

impl Accept for Listener {
    type Io = TcpStream;

    async fn accept(&mut self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await
    }
}

/// Dials some simulated hosts in turn and counts how often.
#[derive(Clone)]
pub struct SimDial {
    pub dials: Arc<AtomicUsize>,
    /// Taken in turn.
    instances: &'static [&'static str],
}

impl SimDial {
    pub fn to(instances: &'static [&'static str]) -> Self {
        Self { dials: Arc::default(), instances }
    }

    /// The same to others, counted together.
    pub fn instead_to(&self, instances: &'static [&'static str]) -> Self {
        Self { instances, ..self.clone() }
    }
}

impl Dials for SimDial {
    fn to(&self, target: &MoveTarget) -> Result<Arc<dyn Dial>, DialError> {
        let known: [&'static [&'static str]; 2] = [&[GLOBAL], &[SECOND_GLOBAL]];
        let known = known.into_iter().find(|hosts| hosts.contains(&target.to.as_str()));
        let instances = known.ok_or_else(|| DialError::Address(target.to.clone()))?;
        Ok(Arc::new(Self { instances, ..self.clone() }))
    }
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        let instance = self.instances[self.dials.fetch_add(1, Ordering::Relaxed) % self.instances.len()];
        let connector = tower::service_fn(move |_: Uri| async move {
            Ok::<_, io::Error>(TokioIo::new(TcpStream::connect((instance, PORT)).await?))
        });
        Ok(endpoint.connect_with_connector(connector).await?)
    }
}
