//! HTTP over a listener the caller bound: plain or TLS, HTTP/1 and HTTP/2, gRPC included. Every port of a
//! process is served here, so that a client can hold none of them:
//!
//! ```text
//!  accept ──► connections: is there room, and who makes way? ──► TLS ──► HTTP ──► handler
//!                 │                                                        │         │
//!                 └── progress: by when must it come further? ◄── watched ─┴─────────┘ vouches for the client
//! ```

mod connections;
mod limits;
mod progress;
mod refusal;
mod watched;

use std::{
    convert::Infallible,
    fs::File,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{Router, body::Body};
use hyper::{Request, Version, body::Incoming};
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{Instant, sleep, sleep_until},
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

pub use self::limits::Limits;
use self::{
    connections::{Connections, Seat},
    progress::Over,
    refusal::Reason,
    watched::{Answer, Open, Question, WatchedIo},
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

/// The client of a connection, an extension of every request: a handler that has checked who the client is
/// says so, and its connection may live as long as it likes.
#[derive(Clone, Default)]
pub struct Client(Weak<Seat>);

impl Client {
    /// The client has shown that it is `name`; by `credential`, where others may show that as well.
    pub fn vouch(&self, name: &str, credential: Option<&str>) {
        if let Some(seat) = self.0.upgrade() {
            seat.vouch(name, credential);
        }
    }

    /// Begins one of the long exchanges of this client. One that has not shown who it is may have `most`
    /// at once: they cost more than the connection they share.
    pub fn knock(&self, most: usize) -> Option<Knock> {
        let Some(seat) = self.0.upgrade().filter(|seat| !seat.is_known()) else {
            return Some(Knock(None));
        };
        let counted = &seat.knocks;
        let more = |held: usize| (held < most).then_some(held + 1);
        counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Knock(Some(Arc::clone(counted))))
    }
}

/// One of the few long exchanges of a client that was unknown when it began; it counts until it is dropped.
pub struct Knock(Option<Arc<AtomicUsize>>);

impl Drop for Knock {
    fn drop(&mut self) {
        if let Some(counted) = &self.0 {
            counted.fetch_sub(1, Ordering::Relaxed);
        }
    }
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
        let mut door = Door {
            listener,
            connections: Connections::new(self.name, self.limits),
            spares: Spares::new(self.spare_files),
        };
        let open = TaskTracker::new();
        let server = Serving { name: self.name, tls: self.tls, router, shutdown: shutdown.clone() };
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
        // Every connection bounds its own end.
        open.wait().await;
        Ok(())
    }
}

/// Where connections come in.
struct Door<L> {
    listener: L,
    connections: Arc<Connections>,
    spares: Spares,
}

impl<L: Accept> Door<L> {
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

#[derive(Clone)]
struct Serving {
    name: &'static str,
    tls: Option<TlsAcceptor>,
    router: Router,
    shutdown: CancellationToken,
}

impl Serving {
    async fn connection<IO>(&self, stream: IO, seat: Seat)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let seat = Arc::new(seat);
        let limits = seat.limits().clone();
        let stream = WatchedIo::new(stream, Arc::clone(&seat.guest), limits.clone());
        let Some(acceptor) = &self.tls else { return self.requests(stream, &seat, &limits, false).await };
        let encrypted = tokio::select! {
            encrypted = acceptor.accept(stream) => encrypted,
            over = seat.guest.over(&limits) => return seat.ended(over),
            () = self.shutdown.cancelled() => return,
        };
        match encrypted {
            Ok(stream) => self.requests(stream, &seat, &limits, true).await,
            Err(_) if seat.guest.progress().is_flooded() => seat.note(Reason::Flood, ""),
            // Who only looks whether the port is open is not worth a word.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                tracing::debug!(listener = self.name, peer = %seat.guest.peer(), "left during TLS");
            }
            Err(error) => seat.note(Reason::Tls, &error.to_string()),
        }
    }

    async fn requests<IO>(&self, stream: IO, seat: &Arc<Seat>, limits: &Limits, tls: bool)
    where
        IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (router, client) = (self.router.clone(), Client(Arc::downgrade(seat)));
        let (guest, peer) = (Arc::clone(&seat.guest), seat.guest.peer());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let open = Open::new(Arc::clone(&guest), request.version() == Version::HTTP_2);
            let mut request =
                request.map(|body| Body::new(Question::new(body, Arc::clone(&guest), open.number())));
            request.extensions_mut().insert(Connection { peer, tls });
            request.extensions_mut().insert(client.clone());
            let response = router.clone().oneshot(request);
            async move {
                let response = response.await.unwrap_or_else(|never| match never {});
                Ok::<_, Infallible>(response.map(|body| Answer::new(body, open)))
            }
        });
        let protocol = limits.protocol();
        let mut serving = pin!(protocol.serve_connection(TokioIo::new(stream), service));
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
