//! What a listener refuses: counted each time, and told now and then.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::{clip::clip, runtime::ToldNowAndThen};

/// What is told of an error, in bytes.
const DETAIL: usize = 256;

/// Why a connection was cut off, or not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No request came in time.
    NoRequest,
    /// A request or its answer took too long.
    SlowRequest,
    /// It sent too much that is no request.
    Flood,
    /// It waited, and somebody else came when its address had no more room.
    AddressShed,
    /// It waited, and somebody else came when the listener had no more room.
    Shed,
    /// Its address has no room and nobody there waits.
    Address,
    /// The listener has no room and nobody there waits.
    Full,
    /// The TLS handshake failed.
    Tls,
    /// The process has no file left for it.
    Files,
    /// It left its answers lying, and there was no more room for those of others.
    Answers,
}

impl Reason {
    /// All of them.
    pub(super) const ALL: [Self; 10] = [
        Self::NoRequest,
        Self::SlowRequest,
        Self::Flood,
        Self::AddressShed,
        Self::Shed,
        Self::Address,
        Self::Full,
        Self::Tls,
        Self::Files,
        Self::Answers,
    ];

    /// Its value of the metric's label.
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::NoRequest => "no_request",
            Self::SlowRequest => "slow_request",
            Self::Flood => "flood",
            Self::AddressShed => "address_shed",
            Self::Shed => "shed",
            Self::Address => "address",
            Self::Full => "full",
            Self::Tls => "tls",
            Self::Files => "files",
            Self::Answers => "answers",
        }
    }

    /// What it says to an operator.
    fn told(self) -> &'static str {
        match self {
            Self::NoRequest => "clients connect and ask nothing in time",
            Self::SlowRequest => "clients do not finish a request, or do not take its answer",
            Self::Flood => "clients send more control frames than any request needs",
            Self::AddressShed => "more clients of one address wait than it has room for; the oldest made way",
            Self::Shed => "more clients wait than there is room for; the oldest made way",
            Self::Address => "one address has more requests open than it has room for",
            Self::Full => "there are more connections than this process serves at once",
            Self::Tls => "TLS handshakes fail; do the clients trust this certificate?",
            Self::Files => "the system gives this process no more files",
            Self::Answers => {
                "clients leave more answers lying than there is room for; one of them was cut off"
            }
        }
    }
}

/// The refusals of one listener.
#[derive(Debug)]
pub(super) struct ListenerRefusals {
    listener: &'static str,
    counted: [ToldNowAndThen; Reason::ALL.len()],
}

/// What is to be told, by whoever holds no lock: a log that is not read makes its writer wait.
#[must_use = "nobody else tells it"]
#[derive(Debug)]
pub(super) struct Line {
    listener: &'static str,
    reason: Reason,
    count: u64,
    peer: Option<SocketAddr>,
}

impl Line {
    pub(super) fn tell(self, detail: &str) {
        let Self { listener, reason, count, peer } = self;
        let peer = peer.map(tracing::field::display);
        let detail = Some(clip(detail, DETAIL)).filter(|detail| !detail.is_empty());
        tracing::warn!(listener, reason = reason.label(), count, peer, detail, "{}", reason.told());
    }
}

impl ListenerRefusals {
    pub(super) fn new(listener: &'static str) -> Self {
        for reason in Reason::ALL {
            metrics::counter!("connections_refused_total", "listener" => listener, "reason" => reason.label())
                .absolute(0);
        }
        Self { listener, counted: Default::default() }
    }

    /// Counts one; the first, and then one in a while, is to be told with the number of those since.
    pub(super) fn note(&mut self, reason: Reason, peer: Option<SocketAddr>, now: Instant) -> Option<Line> {
        let listener = self.listener;
        metrics::counter!("connections_refused_total", "listener" => listener, "reason" => reason.label())
            .increment(1);
        Some(Line { listener, reason, count: self.counted[reason as usize].due(now)?, peer })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_told_on_its_own() {
        let mut refusals = ListenerRefusals::new("test");
        let start = Instant::now();
        assert!(refusals.note(Reason::Tls, None, start).is_some());
        assert!(refusals.note(Reason::Shed, None, start).is_some());
        assert!(refusals.note(Reason::Tls, None, start).is_none());
    }

    #[test]
    fn the_number_of_a_reason_is_its_place() {
        for (place, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(place, reason as usize);
        }
    }
}
