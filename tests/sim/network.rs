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
/// Where a zone may move to.
pub const SECOND_GLOBAL: &str = "global-2";
pub const PORT: u16 = 5685;

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

/// Dials the simulated global and counts how often.
#[derive(Clone, Default)]
pub struct SimDial {
    pub dials: Arc<AtomicUsize>,
    to: Option<&'static str>,
}

impl Dials for SimDial {
    fn to(&self, target: &MoveTarget) -> Result<Arc<dyn Dial>, DialError> {
        let known = [GLOBAL, SECOND_GLOBAL].into_iter().find(|host| *host == target.to);
        let to = Some(known.ok_or_else(|| DialError::Address(target.to.clone()))?);
        Ok(Arc::new(Self { to, ..self.clone() }))
    }
}

#[async_trait]
impl Dial for SimDial {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        self.dials.fetch_add(1, Ordering::Relaxed);
        let host = self.to.unwrap_or(GLOBAL);
        let connector = tower::service_fn(move |_: Uri| async move {
            Ok::<_, io::Error>(TokioIo::new(TcpStream::connect((host, PORT)).await?))
        });
        Ok(endpoint.connect_with_connector(connector).await?)
    }
}
