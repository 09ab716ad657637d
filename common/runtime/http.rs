//! HTTP over a listener the caller bound: plain or TLS, HTTP/1 and HTTP/2, bounded and stoppable.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use hyper::{Request, body::Incoming};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use super::accept;

/// What a handler may want to know about the connection; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Address of the client.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// Limits of one listener.
#[derive(Clone, Debug)]
pub struct HttpLimits {
    /// Connections at once; more wait in the backlog of the listener.
    pub connections: usize,
    /// Longest TLS handshake.
    pub handshake: Duration,
    /// Longest wait for the headers of a request.
    pub headers: Duration,
    /// How long open requests may take to end at shutdown.
    pub drain: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 4096,
            handshake: Duration::from_secs(10),
            headers: Duration::from_secs(10),
            drain: Duration::from_secs(5),
        }
    }
}

/// Serves `router` on `listener` until `shutdown`, then lets open requests end.
///
/// # Errors
/// Never before `shutdown`; the result fits a supervised task.
pub async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: HttpLimits,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let slots = Arc::new(Semaphore::new(limits.connections));
    let connections = TaskTracker::new();
    let server = Server { tls, router, limits, shutdown: shutdown.clone() };
    loop {
        let accepted = tokio::select! {
            () = shutdown.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        let Some((stream, peer, slot)) = accepted else { continue };
        let server = server.clone();
        connections.spawn(async move {
            server.connection(stream, peer).await;
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    // Every connection bounds its own end.
    connections.wait().await;
    Ok(())
}

#[derive(Clone)]
struct Server {
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: HttpLimits,
    shutdown: CancellationToken,
}

impl Server {
    async fn connection(&self, stream: TcpStream, peer: SocketAddr) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%peer, %error, "cannot set TCP_NODELAY");
        }
        let Some(acceptor) = &self.tls else {
            return self.requests(stream, Connection { peer, tls: false }).await;
        };
        match timeout(self.limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => self.requests(stream, Connection { peer, tls: true }).await,
            Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
            Err(_) => tracing::debug!(%peer, "TLS handshake took too long"),
        }
    }

    async fn requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        connection: Connection,
    ) {
        let router = self.router.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(axum::body::Body::new);
            request.extensions_mut().insert(connection);
            let response = router.clone().oneshot(request);
            async move { Ok::<_, Infallible>(response.await.unwrap_or_else(|never| match never {})) }
        });
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.limits.headers);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
        let serving = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(serving);
        let outcome = tokio::select! {
            outcome = &mut serving => outcome,
            () = self.shutdown.cancelled() => {
                serving.as_mut().graceful_shutdown();
                match timeout(self.limits.drain, serving).await {
                    Ok(outcome) => outcome,
                    Err(_) => return tracing::warn!(peer = %connection.peer, "closing a connection mid-request"),
                }
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(peer = %connection.peer, %error, "connection ended");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn serves_until_told_to_stop() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shutdown = CancellationToken::new();
        let router = Router::new().route("/ready", get(async || "yes"));
        let server = serve(listener, None, router, HttpLimits::default(), shutdown.clone());
        let server = tokio::spawn(server);

        let mut idle = TcpStream::connect(address).await.unwrap();
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(b"GET /ready HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut answer = vec![0; 1024];
        let length = client.read(&mut answer).await.unwrap();
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));

        shutdown.cancel();
        server.await.unwrap().unwrap();
        assert_eq!(client.read(&mut answer).await.unwrap(), 0, "the kept connection is closed");
        assert_eq!(idle.read(&mut answer).await.unwrap(), 0, "so is one that never asked");
        assert!(TcpStream::connect(address).await.is_err(), "nothing listens any more");
    }
}
