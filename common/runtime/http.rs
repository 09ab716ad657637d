//! HTTP over a listener the caller bound: plain or TLS, HTTP/1 and HTTP/2, gRPC included. Every port of a
//! process is served here, so that a client can hold none of them:
//!
//! ```text
//!  accept ──► connections: is there room, and who makes way? ──► TLS ──► HTTP ──► handler
//!                 │                                                        │         │
//!                 └── progress: by when must it come further? ◄── watched ─┴─────────┘ vouches for the client
//! ```

mod answers;
mod certificate;
mod client;
mod completion;
mod connections;
mod guest;
mod limits;
mod paced;
mod progress;
mod refusal;
mod turns;
mod watched;

use std::{convert::Infallible, fs::File, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{Router, body::Body};
use hyper::{
    Request, Response, StatusCode, Version,
    body::Incoming,
    header::{self, HeaderValue},
};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

pub use self::{
    certificate::PeerCertificate,
    client::{Client, Knock},
    completion::{Completion, Unattended},
    guest::Parked,
    limits::Limits,
    turns::{Crowded, FairTurn, FairTurns, SharedTurn, TurnOwner, network},
};
use self::{
    connections::{Connections, Seat},
    paced::Paced,
    progress::Over,
    refusal::Reason,
    watched::{Open, WatchedIo, WatchedRequestBody, WatchedResponseBody},
};
use super::Accept;

/// Pause after the system refused to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a handler may want to know about the connection; an extension of every request.
#[derive(Clone, Copy, Debug)]
pub struct Connection {
    /// Address of the client.
    pub peer: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
}

/// A server of one listener.
pub struct Server {
    name: &'static str,
    tls: Option<TlsAcceptor>,
    limits: Limits,
    spare_files: usize,
}

impl Server {
    /// A server without TLS, known to metrics as `name`.
    pub fn new(name: &'static str, limits: Limits) -> Self {
        Self { name, tls: None, limits, spare_files: 0 }
    }

    /// The same with TLS, if there is a certificate.
    #[must_use]
    pub fn with_tls(self, tls: Option<TlsAcceptor>) -> Self {
        Self { tls, ..self }
    }

    /// The same with so many files held back for when the process has no other left.
    #[must_use]
    pub fn with_spare_files(self, spare_files: usize) -> Self {
        Self { spare_files, ..self }
    }

    /// Serves `router` on `listener` until `shutdown`, then lets open requests end.
    ///
    /// # Errors
    /// Never before `shutdown`; the result fits a supervised task.
    pub async fn serve(
        self,
        listener: impl Accept,
        router: Router,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let open = TaskTracker::new();
        let mut door = ConnectionAcceptor {
            listener,
            connections: Connections::new(self.name, self.limits, open.clone()),
            spares: Spares::new(self.spare_files),
        };
        let server = ConnectionServer { name: self.name, tls: self.tls, router, shutdown: shutdown.clone() };
        loop {
            let accepted = tokio::select! {
                () = shutdown.cancelled() => break,
                accepted = door.next() => accepted,
            };
            let Some((stream, seat)) = accepted else { continue };
            let server = server.clone();
            open.spawn(async move { server.connection(stream, seat).await });
        }
        drop(door);
        open.close();
        // Every connection bounds its own end; what goes on without one is near its end.
        open.wait().await;
        Ok(())
    }
}

/// Where connections come in.
struct ConnectionAcceptor<L> {
    listener: L,
    connections: Arc<Connections>,
    spares: Spares,
}

impl<L: Accept> ConnectionAcceptor<L> {
    /// The next connection that there is room for; `None` where one was refused.
    async fn next(&mut self) -> Option<(L::Io, Seat)> {
        self.connections.settled().await;
        self.spares.refill();
        match self.listener.accept().await {
            Ok((stream, peer)) => match self.connections.enter(peer, Instant::now()) {
                Ok(seat) => Some((stream, seat)),
                Err(reason) => {
                    self.connections.note(reason, Some(peer), "");
                    None
                }
            },
            Err(error) => {
                let lacking = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
                if error.raw_os_error().is_none_or(|code| lacking.iter().all(|e| e.raw_os_error() != code)) {
                    // The client went away before it was accepted.
                    tracing::debug!(%error, "cannot accept a connection");
                } else if !self.spares.give() {
                    self.connections.out_of_files(&error.to_string());
                    sleep(ACCEPT_PAUSE).await;
                }
                None
            }
        }
    }
}

/// Files held back. One that is closed is there for the connection that is accepted next.
struct Spares {
    files: Vec<File>,
    wanted: usize,
}

impl Spares {
    fn new(wanted: usize) -> Self {
        Self { files: Vec::new(), wanted }
    }

    fn refill(&mut self) {
        while self.files.len() < self.wanted {
            let Ok(file) = File::open("/dev/null") else { return };
            self.files.push(file);
        }
    }

    fn give(&mut self) -> bool {
        self.files.pop().is_some()
    }
}

/// What TLS says of a client.
struct Encrypted {
    /// The certificate that was asked for and shown.
    shown: Option<Arc<PeerCertificate>>,
}

#[derive(Clone)]
struct ConnectionServer {
    name: &'static str,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: CancellationToken,
}

impl ConnectionServer {
    async fn connection<IO>(&self, stream: IO, seat: Seat)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let seat = Arc::new(seat);
        let limits = seat.limits().clone();
        let stream = WatchedIo::new(stream, Arc::clone(&seat.guest), limits.clone());
        let Some(acceptor) = &self.tls else {
            return self.requests(stream, &seat, &limits, None).await;
        };
        let encrypted = tokio::select! {
            encrypted = acceptor.accept(stream) => encrypted,
            over = seat.guest.over(&limits) => return seat.ended(over),
            () = self.shutdown.cancelled() => return,
        };
        match encrypted {
            Ok(stream) => {
                let chain = stream.get_ref().1.peer_certificates();
                let shown = chain.and_then(|chain| PeerCertificate::read(chain.first()?)).map(Arc::new);
                self.requests(stream, &seat, &limits, Some(Encrypted { shown })).await;
            }
            Err(_) if seat.guest.progress().is_flooded() => seat.note(Reason::Flood, ""),
            // Who only looks whether the port is open is not worth a word.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                tracing::debug!(listener = self.name, peer = %seat.guest.peer(), "left during TLS");
            }
            Err(error) => seat.note(Reason::Tls, &error.to_string()),
        }
    }

    async fn requests<IO>(&self, stream: IO, seat: &Arc<Seat>, limits: &Limits, encrypted: Option<Encrypted>)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, client) = (self.router.clone(), Client::at(seat));
        let (guest, peer) = (Arc::clone(&seat.guest), seat.guest.peer());
        let tls = encrypted.is_some();
        let shown = encrypted.and_then(|encrypted| encrypted.shown);
        let connections = Arc::clone(seat.connections());
        let window = limits.window as usize;
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let multiplexed = request.version() == Version::HTTP_2;
            let open = Open::new(Arc::clone(&guest), multiplexed);
            // With HTTP/1 nothing comes that nobody asked for, and asking would invite it.
            let window = if multiplexed { window } else { 0 };
            let mut request = request.map(|body| Body::new(WatchedRequestBody::new(body, &open, window)));
            request.extensions_mut().insert(Connection { peer, tls });
            request.extensions_mut().insert(client.clone());
            if let Some(shown) = &shown {
                request.extensions_mut().insert(Arc::clone(shown));
            }
            let response = router.clone().oneshot(request);
            let (guest, connections) = (Arc::clone(&guest), Arc::clone(&connections));
            async move {
                let response = tokio::select! {
                    biased;
                    // What was begun for it is dropped, unless it is to be done to its end.
                    () = guest.displaced() => nobody_waits(),
                    response = response => response.unwrap_or_else(|never| match never {}),
                };
                Ok::<_, Infallible>(counted(response, open, connections))
            }
        });
        let protocol = limits.protocol();
        let mut serving = pin!(protocol.serve_connection(TokioIo::new(Paced::new(stream)), service));
        let mut closing = pin!(sleep_until(Instant::now()));
        let mut leaving = false;
        let outcome = loop {
            tokio::select! {
                outcome = serving.as_mut() => break outcome,
                () = self.shutdown.cancelled(), if !leaving => {}
                over = seat.guest.over(limits), if !leaving => match over {
                    Some(Over::Idle) => {}
                    cut => return seat.ended(cut),
                },
                () = seat.guest.displaced(), if leaving => return,
                () = closing.as_mut(), if leaving => {
                    return tracing::debug!(listener = self.name, %peer, "closing a connection mid-request");
                }
            }
            leaving = true;
            serving.as_mut().graceful_shutdown();
            closing.as_mut().reset(Instant::now() + limits.drain);
        };
        if seat.guest.progress().is_flooded() {
            seat.note(Reason::Flood, "");
        } else if let Err(error) = outcome {
            tracing::debug!(listener = self.name, %peer, %error, "connection ended");
        }
    }
}

/// An answer for a client whose connection made way; if it hears it, it may come again.
fn nobody_waits() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
    response
}

/// Counts the body of an answer; only then somebody else has the turn in which it was made.
fn counted(
    response: Response<Body>,
    open: Open,
    connections: Arc<Connections>,
) -> Response<WatchedResponseBody> {
    let (mut head, body) = response.into_parts();
    let turn = head.extensions.remove::<FairTurn>();
    let answer = WatchedResponseBody::new(body, open, connections);
    drop(turn);
    Response::from_parts(head, answer)
}

impl Seat {
    /// Notes why the connection was cut off, unless that was done when it was displaced.
    fn ended(&self, over: Option<Over>) {
        if let Some(Over::Refused(reason)) = over {
            self.note(reason, "");
        }
    }
}

#[cfg(test)]
mod tests;
