//! When a peer is told that what it holds is still good, which it would drop otherwise.

use tokio::time::Instant;

use super::Source;
use crate::xds::{
    Dialect, Name, ResponseParts, Want,
    dialect::{Header, SaidBefore},
};

/// A peer hears about what it holds so many times before it would drop it: two words may get lost or be late.
const TIMES: u32 = 3;

/// The next word about one type.
#[derive(Debug)]
pub(super) struct Heartbeat {
    pub(super) due: Instant,
    /// The names up to this one were told in this round.
    after: Option<Name>,
    /// Version of the last response that said more and was accepted: what the peer says it has.
    version: String,
    /// Version of such a response that waits for its answer.
    offered: Option<String>,
}

impl Heartbeat {
    /// The response in flight got its answer.
    pub(super) fn settled(&mut self, accepted: bool) {
        if let Some(version) = self.offered.take().filter(|_| accepted) {
            self.version = version;
        }
    }
}

impl<D: Dialect> Source<D> {
    /// Notes that something of type `i` was sent, and when it has to be said again that it is good.
    pub(super) fn note_perishable(&mut self, i: usize, sent: &ResponseParts, now: Instant) {
        let Some(ttl) = sent.ttl else { return };
        let first = || {
            let due = now + ttl / TIMES;
            Box::new(Heartbeat { due, after: None, version: String::new(), offered: None })
        };
        self.slots[i].heartbeat.get_or_insert_with(first).offered = Some(sent.version.clone());
    }

    /// A word about what the peer holds of a type for which it is time.
    pub(super) fn next_heartbeat(&mut self, now: Instant, want: &dyn Want) -> Option<ResponseParts> {
        let ttl = self.ttl?;
        for slot in &mut self.slots {
            let (Some(dialect), Some(heartbeat)) = (&mut slot.dialect, &mut slot.heartbeat) else { continue };
            if heartbeat.due > now || slot.in_flight_since.is_some() {
                continue;
            }
            let header = Header { nonce: self.nonce + 1, identifier: &self.settings.identifier };
            let (after, version) = (heartbeat.after.as_ref(), heartbeat.version.as_str());
            let told = SaidBefore { version, after, limit: self.settings.limit };
            let told = dialect.still_good(want, told, &header);
            let until = told.as_ref().and_then(|(_, until)| until.clone());
            if until.is_none() {
                heartbeat.due = now + ttl / TIMES;
            }
            heartbeat.after = until;
            if let Some((parts, _)) = told {
                self.nonce += 1;
                slot.in_flight_since = Some(now);
                slot.only_heartbeat = true;
                return Some(ResponseParts { ttl: Some(ttl), ..parts });
            }
        }
        None
    }

    /// When the next word is due, of types that are not about to be answered.
    pub(super) fn heartbeat_due(&self) -> Option<Instant> {
        let idle = self.slots.iter().filter(|slot| slot.in_flight_since.is_none());
        idle.filter_map(|slot| Some(slot.heartbeat.as_ref()?.due)).min()
    }
}
