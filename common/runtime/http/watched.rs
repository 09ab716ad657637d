//! A connection and its bodies, with what happens on them told to their [`Guest`].

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::{Limits, answers::Held, connections::Connections, guest::Guest};

/// Largest piece of an answer that is handed on at once, so that a client that takes nothing shows.
const PIECE: usize = 64 << 10;

/// The bytes of a connection, as they are on the wire.
pub(super) struct WatchedIo<IO> {
    io: IO,
    guest: Arc<Guest>,
    limits: Limits,
}

impl<IO> WatchedIo<IO> {
    pub(super) fn new(io: IO, guest: Arc<Guest>, limits: Limits) -> Self {
        Self { io, guest, limits }
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for WatchedIo<IO> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.io).poll_read(cx, buf))?;
        let bytes = buf.filled().len() - before;
        if bytes == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut progress = this.guest.progress();
        let sooner = progress.heard(bytes, &this.limits, Instant::now());
        let flooded = progress.is_flooded();
        drop(progress);
        if flooded {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        if sooner {
            this.guest.hurry();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for WatchedIo<IO> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = ready!(Pin::new(&mut this.io).poll_write(cx, buf))?;
        this.guest.told(bytes, Instant::now());
        Poll::Ready(Ok(bytes))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let bytes = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, bufs))?;
        this.guest.told(bytes, Instant::now());
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

/// The body of a request.
pub(super) struct WatchedRequestBody {
    body: Incoming,
    guest: Arc<Guest>,
    number: u64,
    /// What may lie there that nobody has read, in bytes.
    window: usize,
}

impl WatchedRequestBody {
    pub(super) fn new(body: Incoming, open: &Open, window: usize) -> Self {
        let (guest, number) = (Arc::clone(&open.guest), open.number);
        if body.is_end_stream() {
            guest.progress().arrived(number);
        }
        Self { body, guest, number, window }
    }
}

impl Drop for WatchedRequestBody {
    /// What came of a body that nobody reads on came for a request all the same, and is not counted against the
    /// connection: a client may give up what it has begun to send.
    fn drop(&mut self) {
        let mut cx = Context::from_waker(Waker::noop());
        let mut left = self.window;
        while left > 0 && !self.body.is_end_stream() {
            let Poll::Ready(Some(Ok(frame))) = Pin::new(&mut self.body).poll_frame(&mut cx) else { break };
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            left = left.saturating_sub(bytes.max(1));
            self.guest.progress().left_over(bytes);
        }
    }
}

impl HttpBody for WatchedRequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        let mut progress = this.guest.progress();
        if let Some(Ok(frame)) = &frame {
            progress.took(frame.data_ref().map_or(0, Bytes::len));
        }
        if frame.is_none() || this.body.is_end_stream() {
            progress.arrived(this.number);
        }
        drop(progress);
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// An exchange, from the head of its request to the end of its answer, or to where it was given up.
pub(super) struct Open {
    guest: Arc<Guest>,
    number: u64,
    whole: bool,
}

impl Open {
    pub(super) fn new(guest: Arc<Guest>, multiplexed: bool) -> Self {
        let number = guest.progress().asked(multiplexed, Instant::now());
        guest.hurry();
        Self { guest, number, whole: false }
    }

    fn offer(&self, lying: Option<Instant>) {
        if self.guest.progress().offered(self.number, lying) {
            self.guest.hurry();
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.guest.progress().answered(self.number, self.whole, Instant::now());
        self.guest.hurry();
    }
}

/// The body of an answer.
pub(super) struct WatchedResponseBody {
    body: Body,
    rest: Bytes,
    open: Open,
    connections: Arc<Connections>,
    /// For what the handler has made and nobody has asked `body` for yet.
    made: Option<Held>,
}

impl WatchedResponseBody {
    pub(super) fn new(body: Body, open: Open, connections: Arc<Connections>) -> Self {
        // Nobody is there to take it.
        let body = if open.guest.is_displaced() { Body::empty() } else { body };
        let mut open = open;
        open.whole = body.is_end_stream();
        open.offer(Some(Instant::now()));
        let made = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
        let made = made.and_then(|bytes| connections.hold(&open.guest, bytes, Instant::now()));
        Self { body, rest: Bytes::new(), open, connections, made }
    }

    /// Counts a piece of the body until it is gone.
    fn counted(&mut self, data: Bytes) -> Bytes {
        let made = self.made.take();
        let held = made.or_else(|| self.connections.hold(&self.open.guest, data.len(), Instant::now()));
        match held {
            Some(held) => held.with(data),
            None => data,
        }
    }

    fn last(&mut self, trailers: Frame<Bytes>) -> Frame<Bytes> {
        self.open.whole = true;
        trailers
    }
}

impl HttpBody for WatchedResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(cx) else {
                this.open.offer(None);
                return Poll::Pending;
            };
            match frame {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => this.rest = this.counted(data),
                    Err(trailers) => return Poll::Ready(Some(Ok(this.last(trailers)))),
                },
                end => {
                    this.open.whole = end.is_none();
                    return Poll::Ready(end);
                }
            }
        }
        let piece = this.rest.split_to(this.rest.len().min(PIECE));
        this.open.whole = this.rest.is_empty() && this.body.is_end_stream();
        this.open.offer(Some(Instant::now()));
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, body) = (self.rest.len() as u64, self.body.size_hint());
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
