//! What a listener grants its clients. Every option of HTTP is set here, since most have no limit by default.

use std::time::Duration;

use hyper_util::{
    rt::{TokioExecutor, TokioTimer},
    server::conn::auto,
};

/// Largest list of headers of a request, in bytes; also the buffer of an HTTP/1 connection is bounded by it.
const HEADERS: u32 = 16 << 10;
/// Headers of an HTTP/1 request.
const HEADER_COUNT: usize = 100;
/// Bytes buffered for an HTTP/1 connection in each direction.
const BUFFER: usize = 64 << 10;
/// Streams a client may reset before they were looked at; one more ends its connection.
const PENDING_RESETS: usize = 20;
/// Streams this side may reset for errors of the client; one more ends its connection.
const LOCAL_RESETS: usize = 256;
/// Largest HTTP/2 frame, the smallest the protocol allows as a limit.
const FRAME: u32 = 16 << 10;
/// A client that is silent for this long is asked whether it is there.
const PING_AFTER: Duration = Duration::from_secs(30);
/// And has this long to answer.
const PING_WAIT: Duration = Duration::from_secs(20);
/// Bytes beyond bodies that a connection may send in a burst: a hundred requests at once with 2 KiB of headers
/// each, and what is read in one turn before its requests are looked at, with the TLS around it.
const NOISE: u64 = 256 << 10;

/// Limits of one listener.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once.
    pub connections: usize,
    /// Of these, connections whose client has not shown who it is. A client that comes when they are taken
    /// displaces the one that has said nothing for longest.
    pub unknown: usize,
    /// Of these, connections from one address, or from one network of 64 bits with IPv6.
    pub unknown_per_address: usize,
    /// Connections of one client that has shown who it is; those beyond count as unknown.
    pub per_peer: usize,
    /// The same of all clients that share a credential or an address: a stolen token shows as many names as
    /// its thief likes, and who sits behind one address may be thousands.
    pub per_share: usize,
    /// Time from the connection to its first request, TLS included, and for the headers of a later one. A
    /// client must send a first byte within half of it.
    pub first_request: Duration,
    /// Longest exchange with a client that has not shown who it is.
    pub request: Duration,
    /// How long a connection may be kept without a request.
    pub idle: Duration,
    /// How long a client may leave a response lying, unless it has shown who it is.
    pub unread: Duration,
    /// Bytes of answers that lie ready for clients that have not shown who they are. One answer that is longer
    /// is given while no other lies there.
    pub answers: usize,
    /// How long open requests may take to end at shutdown.
    pub drain: Duration,
    /// Whether HTTP/1 is spoken beside HTTP/2.
    pub http1: bool,
    /// Requests at once on an HTTP/2 connection.
    pub streams: u32,
    /// What a client may send of one body before it must wait; of all bodies of a connection, twice that.
    pub window: u32,
    /// Bytes buffered for an HTTP/2 stream until its client takes them.
    pub send_buffer: usize,
    /// When an HTTP/2 connection is silent for this long its client is asked whether it is there, and has
    /// as long again to answer; `None` for the usual.
    pub ping: Option<Duration>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            unknown: 2048,
            unknown_per_address: 1024,
            per_peer: 256,
            per_share: 2048,
            first_request: Duration::from_secs(10),
            request: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            unread: Duration::from_secs(30),
            answers: 64 << 20,
            drain: Duration::from_secs(5),
            http1: true,
            streams: 100,
            window: 256 << 10,
            send_buffer: 128 << 10,
            ping: None,
        }
    }
}

impl Limits {
    /// The same for `connections` at once. No address takes more than half of what unknown clients have, and
    /// no address or credential more than half of everything.
    #[must_use]
    pub fn for_connections(self, connections: usize) -> Self {
        let unknown = self.unknown.min(connections).max(1);
        let unknown_per_address = self.unknown_per_address.min(unknown.div_ceil(2));
        let per_share = connections.div_ceil(2);
        Self { connections, unknown, unknown_per_address, per_share, ..self }
    }

    /// The same where clients show who they are: half of the connections stay for those who have.
    #[must_use]
    pub fn keeping_room_for_the_known(self) -> Self {
        let unknown = self.unknown.min(self.connections.div_ceil(2));
        Self { unknown, ..self }.for_connections(self.connections)
    }

    /// Bytes a connection may send in a burst without them belonging to a body that is read. While a body
    /// arrives, a whole window may wait for its reader.
    pub(super) fn noise(&self, body: bool) -> u64 {
        NOISE + if body { self.in_flight() } else { 0 }
    }

    /// Bytes of bodies that a connection can have sent without anybody having taken them.
    pub(super) fn in_flight(&self) -> u64 {
        u64::from(self.window) * 2
    }

    pub(super) fn protocol(&self) -> auto::Builder<TokioExecutor> {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // Deadlines are those of `progress`, which tells an idle connection from a slow request.
            .header_read_timeout(None)
            .max_headers(HEADER_COUNT)
            .max_buf_size(BUFFER)
            .half_close(false)
            .keep_alive(true);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.ping.unwrap_or(PING_AFTER))
            .keep_alive_timeout(self.ping.unwrap_or(PING_WAIT))
            .max_concurrent_streams(self.streams)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(LOCAL_RESETS)
            .max_header_list_size(HEADERS)
            .max_frame_size(FRAME)
            .max_send_buf_size(self.send_buffer)
            .adaptive_window(false)
            .initial_stream_window_size(self.window)
            .initial_connection_window_size(self.window.saturating_mul(2));
        if self.http1 { builder } else { builder.http2_only() }
    }
}
