//! A whole stream in server role: several types over one stream, in either dialect.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::{
    Delta, Dialect, Name, Part, Settings, Sotw, Subscription, TypeRule, Unknown, Want,
    dialect::{Header, Heard},
};
use crate::{clip::clip, proto::google::rpc::Status};

mod report;
#[cfg(test)]
mod tests;

pub use report::{Event, Malformed, Output, Progress};

/// A delta stream in server role.
pub type DeltaSource = Source<Delta>;
/// A state-of-the-world stream in server role.
pub type SotwSource = Source<Sotw>;

/// The state of one stream in server role.
///
/// Feed it with [`handle`](Self::handle), then take responses with [`next`](Self::next) for as long as
/// there is room to send them; what changes in the meantime merges. [`step`](Self::step) does both.
#[derive(Debug)]
pub struct Source<D: Dialect> {
    settings: Settings,
    slots: Vec<Slot<D>>,
    /// Types asked for that are not served, each owed one empty answer.
    unserved: VecDeque<String>,
    nonce: u64,
    revision: u64,
    greeted: bool,
}

/// Something a stream has to react to.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a, R> {
    /// The peer sent this.
    Request(&'a R),
    /// The wanted version of these names, by type, may have changed. Changes that belong together come
    /// in one input, or a cluster could go before the listener that uses it was told.
    Changed(&'a BTreeMap<&'static str, Vec<Name>>),
    /// Anything may have changed.
    Resync,
    /// The state of a type got known, or the [deadline](Source::deadline) passed.
    Wake,
}

#[derive(Debug)]
struct Slot<D> {
    rule: TypeRule,
    /// `None` until the peer asks for the type.
    dialect: Option<D>,
    in_flight_since: Option<Instant>,
    sent: u64,
    acked: u64,
}

/// What an error shows of the type of a request, in bytes.
const LONGEST_TYPE: usize = 256;
/// Empty answers that may wait; a peer asks for each type once.
const MAX_UNSERVED: usize = 64;

impl<D: Dialect> Source<D> {
    /// A stream on which nothing was said yet.
    pub fn new(settings: Settings) -> Self {
        let slot = |&rule: &TypeRule| Slot { rule, dialect: None, in_flight_since: None, sent: 0, acked: 0 };
        let slots = settings.types.iter().map(slot).collect();
        Self { settings, slots, unserved: VecDeque::new(), nonce: 0, revision: 0, greeted: false }
    }

    /// Bounds the bytes of a response from now on, once the peer turned out to understand that.
    pub fn limit_bytes(&mut self, limit: Option<usize>) {
        self.settings.limit = limit;
    }

    /// Takes one input and hands out everything there is to send.
    pub fn step(
        &mut self,
        now: Instant,
        input: Input<'_, D::Request>,
        want: &dyn Want,
    ) -> Result<Vec<Output<D::Response>>, Malformed> {
        let event = self.handle(input, want)?;
        let mut outputs: Vec<_> = event.into_iter().map(Output::Event).collect();
        outputs.extend(std::iter::from_fn(|| self.next(now, want)).map(Output::Send));
        Ok(outputs)
    }

    /// Takes one input. An error means that the stream must end.
    pub fn handle(
        &mut self,
        input: Input<'_, D::Request>,
        want: &dyn Want,
    ) -> Result<Option<Event>, Malformed> {
        let before = self.revision;
        // A request may arrive before the change that the newest `want` already shows was told.
        if !self.greeted || !matches!(input, Input::Request(_)) {
            self.revision = want.revision();
        }
        match input {
            Input::Request(request) => return self.request(request),
            Input::Changed(changed) => {
                for slot in &mut self.slots {
                    if let Some(names) = changed.get(slot.rule.type_url) {
                        slot.change(before, |dialect| {
                            names.iter().for_each(|name| dialect.subscription_mut().touch(name));
                        });
                    }
                }
            }
            Input::Resync => {
                for slot in &mut self.slots {
                    slot.change(before, |dialect| dialect.subscription_mut().rescan());
                }
            }
            Input::Wake => {}
        }
        Ok(None)
    }

    /// The next response to send, or `None` when there is none before the next input.
    pub fn next(&mut self, now: Instant, want: &dyn Want) -> Option<D::Response> {
        if let Some(type_url) = self.unserved.pop_front() {
            self.nonce += 1;
            let header = Header { nonce: self.nonce, identifier: &self.settings.identifier };
            return Some(D::nothing(&type_url, &header));
        }
        let ordered = self.settings.make_before_break;
        for i in 0..self.slots.len() {
            if !self.must_wait(i, now) {
                let part = if self.may_remove(i) { Part::All } else { Part::Updates };
                if let Some(response) = self.send(i, part, now, want) {
                    return Some(response);
                }
            }
        }
        let from_last_to_first = (0..self.slots.len()).rev().filter(|_| ordered);
        for i in from_last_to_first {
            if self.may_remove(i)
                && let Some(response) = self.send(i, Part::Removals, now, want)
            {
                return Some(response);
            }
        }
        None
    }

    /// Offers again what the peer refused, as it is.
    pub fn reconsider(&mut self) {
        for slot in &mut self.slots {
            slot.change(self.revision, |dialect| dialect.subscription_mut().reconsider());
        }
    }

    /// Whether the peer took all there is. What it refused and is offered again, it has not taken before
    /// it says so.
    pub fn is_content(&self) -> bool {
        let mut states = self.slots.iter().filter_map(Slot::subscription);
        self.is_settled() && states.all(|state| state.refused().is_empty())
    }

    /// Whether the peer refused what there is under this name.
    pub fn refuses(&self, type_url: &str, name: &str) -> bool {
        let of_type = self.slots.iter().filter(|slot| slot.rule.type_url == type_url);
        of_type.filter_map(Slot::subscription).any(|state| state.refused().contains_key(name))
    }

    /// When to send [`Input::Wake`], if nothing else happens: a type has waited long enough for another.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let waiting = self.slots.iter().filter(|slot| {
            slot.in_flight_since.is_none() && slot.subscription().is_some_and(|s| s.has_updates())
        });
        let since = waiting.flat_map(|slot| slot.rule.waits_for).filter_map(|other| self.flight_of(other));
        since.map(|since| since + self.settings.patience).filter(|at| *at > now).min()
    }

    /// Since when the oldest response waits for its answer.
    pub fn stalled_since(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.in_flight_since).min()
    }

    /// How far the peer is, for every type it asked for.
    pub fn progress(&self) -> impl Iterator<Item = Progress> {
        self.slots.iter().filter_map(|slot| slot.progress(self.revision))
    }

    /// Whether the peer has answered for everything it asked for.
    pub fn is_settled(&self) -> bool {
        self.slots.iter().all(|slot| slot.dialect.is_none() || slot.is_idle())
    }

    fn request(&mut self, request: &D::Request) -> Result<Option<Event>, Malformed> {
        let envelope = D::envelope(request);
        if envelope.type_url.is_empty() {
            return Err(Malformed::NoType);
        }
        if !self.greeted && envelope.node.is_none_or(|node| node.id.is_empty()) {
            return Err(Malformed::NoNode);
        }
        self.greeted = true;
        let max = self.settings.max_names;
        let too_many = || Malformed::TooManyNames { type_url: envelope.type_url.to_owned(), max };
        if envelope.names > max || envelope.held > max {
            return Err(too_many());
        }
        let type_url = || clip(envelope.type_url, LONGEST_TYPE).to_owned();
        let (longest, too_long) = (envelope.longest.max(envelope.type_url.len()), self.settings.max_name);
        if longest > too_long {
            return Err(Malformed::LongName { type_url: type_url(), bytes: longest, max: too_long });
        }
        let max_bytes = self.settings.max_bytes;
        if envelope.bytes > max_bytes {
            return Err(Malformed::TooManyBytes { max: max_bytes });
        }
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == envelope.type_url) else {
            return self.unserved(envelope.type_url, envelope.is_first);
        };
        let event = match &mut slot.dialect {
            None => Some(slot.open(request, envelope.held)),
            Some(_) => slot.hear(request, envelope.error, self.revision),
        };
        let listed = slot.subscription().map_or(0, |s| s.interest().names().len());
        if listed > max {
            return Err(too_many());
        }
        let remembered: usize =
            self.slots.iter().filter_map(Slot::subscription).map(Subscription::bytes).sum();
        if remembered > max_bytes { Err(Malformed::TooManyBytes { max: max_bytes }) } else { Ok(event) }
    }

    fn unserved(&mut self, type_url: &str, is_first: bool) -> Result<Option<Event>, Malformed> {
        let type_url = type_url.to_owned();
        if self.settings.unknown == Unknown::Refuse {
            return Err(Malformed::UnknownType { type_url });
        }
        if !is_first {
            return Ok(None);
        }
        if self.unserved.len() == MAX_UNSERVED {
            return Err(Malformed::TooManyTypes);
        }
        self.unserved.push_back(type_url.clone());
        Ok(Some(Event::Unserved { type_url }))
    }

    fn send(&mut self, i: usize, part: Part, now: Instant, want: &dyn Want) -> Option<D::Response> {
        let header = Header { nonce: self.nonce + 1, identifier: &self.settings.identifier };
        let slot = self.slots.get_mut(i)?;
        let dialect = slot.dialect.as_mut()?;
        let response = dialect.next(want, part, self.settings.limit, &header)?;
        self.nonce += 1;
        slot.in_flight_since = Some(now);
        if dialect.subscription().is_drained() {
            slot.sent = self.revision;
        }
        if let Some(renewed) = slot.rule.renews {
            let names: Vec<Name> =
                dialect.subscription().in_flight().into_iter().flatten().cloned().collect();
            let others = self.slots.iter_mut().filter(|other| other.rule.type_url == renewed);
            for other in others.filter_map(|other| other.dialect.as_mut()) {
                names.iter().for_each(|name| other.subscription_mut().renew(name));
            }
        }
        Some(response)
    }

    /// Whether additions to type `i` must wait for the peer to be ready for them.
    fn must_wait(&self, i: usize, now: Instant) -> bool {
        let patience = self.settings.patience;
        let waits_for = self.slots[i].rule.waits_for;
        waits_for.iter().filter_map(|other| self.flight_of(other)).any(|since| now < since + patience)
    }

    /// Whether nothing the peer uses can refer to what type `i` no longer has. A refused listener leaves
    /// the older one in place, so what that one needs stays too.
    fn may_remove(&self, i: usize) -> bool {
        let type_url = self.slots[i].rule.type_url;
        let users = self.slots.iter().filter(|slot| slot.rule.uses.contains(&type_url));
        !self.settings.make_before_break
            || users.filter_map(|user| Some((user, user.subscription()?))).all(|(user, state)| {
                user.in_flight_since.is_none() && state.is_drained() && state.refused().is_empty()
            })
    }

    fn flight_of(&self, type_url: &str) -> Option<Instant> {
        self.slots.iter().find(|slot| slot.rule.type_url == type_url)?.in_flight_since
    }
}

impl<D: Dialect> Slot<D> {
    fn subscription(&self) -> Option<&Subscription> {
        self.dialect.as_ref().map(D::subscription)
    }

    fn open(&mut self, request: &D::Request, resumed: usize) -> Event {
        let dialect = self.dialect.insert(D::open(&self.rule, request));
        let wildcard = dialect.subscription().interest().wildcard;
        Event::Subscribed { type_url: self.rule.type_url, wildcard, resumed }
    }

    fn hear(&mut self, request: &D::Request, error: Option<&Status>, revision: u64) -> Option<Event> {
        let type_url = self.rule.type_url;
        let mut heard = Heard::default();
        self.change(revision, |dialect| heard = dialect.hear(request));
        let Some(settled) = heard.settled else { return heard.stale.then_some(Event::Stale { type_url }) };
        self.in_flight_since = None;
        self.acked = self.sent;
        let (nonce, accepted) = (settled.nonce, settled.accepted);
        Some(match error {
            None => Event::Acked { type_url, nonce, accepted },
            Some(status) => {
                let (refused, message) = (settled.refused, beginning(&status.message));
                Event::Nacked { type_url, nonce, accepted, refused, message }
            }
        })
    }

    /// Applies a change of the world. While there was nothing to tell, the peer was up to date.
    fn change(&mut self, before: u64, apply: impl FnOnce(&mut D)) {
        if self.is_idle() {
            (self.sent, self.acked) = (before, before);
        }
        if let Some(dialect) = &mut self.dialect {
            apply(dialect);
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight_since.is_none() && self.subscription().is_some_and(|state| state.is_drained())
    }

    fn progress(&self, head: u64) -> Option<Progress> {
        let state = self.subscription()?;
        let (sent, acked) = if self.is_idle() { (head, head) } else { (self.sent, self.acked) };
        Some(Progress {
            type_url: self.rule.type_url,
            head,
            sent,
            acked,
            pending: state.pending(),
            refused: state.refused().len(),
            in_flight_since: self.in_flight_since,
        })
    }
}

/// A peer's words end in logs and status; they may be long.
fn beginning(message: &str) -> String {
    const LONGEST: usize = 4096;
    clip(message, LONGEST).to_owned()
}
