//! A network in memory: thousands of connections without a file each, and relays that can be cut off it.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use common::runtime::Accept;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};
use tonic::transport::{Channel, Endpoint, Uri};
use zone::kds::{Dial, DialError};

/// Bytes under way in one direction.
const BUFFER: usize = 64 * 1024;

/// Where connections arrive.
pub struct WireListener {
    arriving: mpsc::UnboundedReceiver<DuplexStream>,
    count: u32,
}

/// Leads to one listener, while there is one.
#[derive(Clone)]
pub struct WireDial(mpsc::UnboundedSender<DuplexStream>);

pub fn wire() -> (Arc<WireDial>, WireListener) {
    let (sender, arriving) = mpsc::unbounded_channel();
    (Arc::new(WireDial(sender)), WireListener { arriving, count: 0 })
}

impl Accept for WireListener {
    type Io = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, SocketAddr)> {
        let Some(stream) = self.arriving.recv().await else { return std::future::pending().await };
        // Everyone comes from an address of his own.
        self.count += 1;
        let address = Ipv4Addr::from_bits(0x0a00_0000 + (self.count << 8));
        Ok((stream, SocketAddr::from((address, 1000))))
    }
}

#[async_trait]
impl Dial for WireDial {
    async fn dial(&self, endpoint: Endpoint) -> Result<Channel, DialError> {
        let to = self.0.clone();
        let connector = tower::service_fn(move |_: Uri| {
            let (near, far) = duplex(BUFFER);
            let sent = to.send(far);
            async move {
                sent.map_err(|_| io::Error::from(io::ErrorKind::ConnectionRefused))?;
                Ok::<_, io::Error>(TokioIo::new(near))
            }
        });
        Ok(endpoint.connect_with_connector(connector).await?)
    }
}
