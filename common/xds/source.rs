//! A whole stream in server role: several types over one stream, in either dialect.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::RandomState,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Delta, DeltaPart, Dialect, Interest, Name, Outline, Repeat, ResponseParts, Sotw, SourceSettings,
    Standing, Subscription, TypeRule, Unknown, Version, Want,
    dialect::{Envelope, Header, Heard, NOT_NOW},
    outline::{Listed, Unreadable},
    variant,
};
use crate::{clip::clip, proto::google::rpc::Status};

mod heartbeat;
mod report;
#[cfg(test)]
mod tests;

use heartbeat::Heartbeat;

pub use report::{Malformed, SourceEvent, SourceOutput, TypeProgress};

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
    settings: SourceSettings,
    slots: Vec<TypeSlot<D>>,
    /// Types asked for that are not served, each owed one empty answer.
    unserved: VecDeque<String>,
    nonce: u64,
    revision: u64,
    /// The id of its node, once the peer said it.
    node: Option<Box<str>>,
    /// What no peer knows of how lists of names are told from each other. It decides nothing but that.
    hasher: RandomState,
    /// How long the peer keeps what perishes.
    ttl: Option<Duration>,
}

/// Something a stream has to react to.
#[derive(Debug)]
pub enum Input<'a, R> {
    /// The peer sent this.
    Request(&'a R),
    /// The peer answered, and repeated the [names it is known to list](Source::repeat).
    Repeat(&'a Repeat),
    /// The wanted version of these names, by type, may have changed. Changes that belong together come
    /// in one input, or a cluster could go before the listener that uses it was told.
    Changed(&'a BTreeMap<&'static str, Vec<Name>>),
    /// Anything may have changed.
    Resync,
    /// The state of a type got known, or the [deadline](Source::deadline) passed.
    Wake,
}

impl<R> Copy for Input<'_, R> {}

impl<R> Clone for Input<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

#[derive(Debug)]
struct TypeSlot<D> {
    rule: TypeRule,
    /// `None` until the peer asks for the type.
    dialect: Option<D>,
    in_flight_since: Option<Instant>,
    sent: u64,
    acked: u64,
    /// What tells the names that were listed last, where a request lists them all.
    listed: Option<u64>,
    /// Of what perishes.
    heartbeat: Option<Box<Heartbeat>>,
    /// The response in flight says of what the peer has that it is still good, and nothing more.
    only_heartbeat: bool,
}

/// What an error shows of the type of a request, in bytes.
const LONGEST_TYPE: usize = 256;
/// Empty answers that may wait; a peer asks for each type once.
const MAX_UNSERVED: usize = 64;

impl<D: Dialect> Source<D> {
    /// A stream on which nothing was said yet.
    pub fn new(settings: SourceSettings) -> Self {
        let slot = |&rule: &TypeRule| TypeSlot {
            rule,
            dialect: None,
            in_flight_since: None,
            sent: 0,
            acked: 0,
            listed: None,
            heartbeat: None,
            only_heartbeat: false,
        };
        let slots = settings.types.iter().map(slot).collect();
        Self {
            settings,
            slots,
            unserved: VecDeque::new(),
            nonce: 0,
            revision: 0,
            node: None,
            hasher: RandomState::new(),
            ttl: None,
        }
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
    ) -> Result<Vec<SourceOutput<D::Response>>, Malformed> {
        let event = self.handle(input, want)?;
        let mut outputs: Vec<_> = event.into_iter().map(SourceOutput::Event).collect();
        outputs.extend(std::iter::from_fn(|| self.next(now, want)).map(SourceOutput::Send));
        Ok(outputs)
    }

    /// Takes one input. An error means that the stream must end.
    pub fn handle(
        &mut self,
        input: Input<'_, D::Request>,
        want: &dyn Want,
    ) -> Result<Option<SourceEvent>, Malformed> {
        let before = self.revision;
        // A request may arrive before the change that the newest `want` already shows was told.
        if self.node.is_none() || !matches!(input, Input::Request(_) | Input::Repeat(_)) {
            self.revision = want.revision();
        }
        match input {
            Input::Request(request) => return self.request(request, want),
            Input::Repeat(repeat) => return self.repeated(repeat),
            Input::Changed(changed) => {
                for slot in &mut self.slots {
                    if let Some(names) = changed.get(slot.rule.type_url) {
                        slot.change(before, |dialect| {
                            dialect.subscription_mut().touch(names);
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

    /// Looks through a request as it came, before anything of it is kept.
    ///
    /// # Errors
    /// [`Unreadable`] when it cannot be one.
    pub fn outline<'m>(&self, message: &'m [u8]) -> Result<Outline<'m>, Unreadable> {
        Outline::of(message, &D::REQUEST, &self.hasher)
    }

    /// Whether a request is not too large to be decoded.
    ///
    /// # Errors
    /// [`Malformed`] when it is: the stream must end.
    pub fn admit(&self, outline: &Outline<'_>) -> Result<(), Malformed> {
        self.measure(&Envelope {
            node: None,
            type_url: outline.type_url,
            is_first: outline.nonce.is_empty(),
            names: outline.names,
            held: outline.held,
            bytes: outline.bytes,
            longest: outline.longest,
            error: None,
        })
    }

    /// The type a request is about that names `type_url`.
    pub fn type_of<'t>(&self, type_url: &'t str) -> &'t str {
        self.settings.implied.filter(|_| type_url.is_empty()).unwrap_or(type_url)
    }

    /// The request as an answer that needs no decoding, if its names are those that were listed before.
    pub fn repeat(&self, outline: &Outline<'_>) -> Option<Repeat> {
        let type_url = self.type_of(outline.type_url);
        let slot = self.slots.iter().find(|slot| slot.rule.type_url == type_url)?;
        let is_known = slot.dialect.is_some() && slot.listed == Some(outline.listed);
        if is_known { outline.repeat() } else { None }
    }

    /// The next response to send, or `None` when there is none before the next input.
    pub fn next(&mut self, now: Instant, want: &dyn Want) -> Option<D::Response> {
        self.next_parts(now, want).as_ref().map(D::message)
    }

    /// The same in parts that are shared with others who are sent the same.
    pub fn next_parts(&mut self, now: Instant, want: &dyn Want) -> Option<ResponseParts> {
        if let Some(type_url) = self.unserved.pop_front() {
            self.nonce += 1;
            let header = Header { nonce: self.nonce, identifier: &self.settings.identifier };
            return Some(D::nothing(type_url, &header));
        }
        let ordered = self.settings.make_before_break;
        for i in 0..self.slots.len() {
            if !self.must_wait(i, now) {
                let part = if self.may_remove(i) { DeltaPart::All } else { DeltaPart::Updates };
                if let Some(response) = self.send(i, part, now, want) {
                    return Some(response);
                }
            }
        }
        let from_last_to_first = (0..self.slots.len()).rev().filter(|_| ordered);
        for i in from_last_to_first {
            if self.may_remove(i)
                && let Some(response) = self.send(i, DeltaPart::Removals, now, want)
            {
                return Some(response);
            }
        }
        self.next_heartbeat(now, want)
    }

    /// About how many names there is something to say, over all types; [`usize::MAX`] when that is not known
    /// before all is looked at.
    pub fn burden(&self) -> usize {
        let burdens = self.slots.iter().filter_map(|slot| slot.dialect.as_ref()).map(D::burden);
        burdens.fold(0, usize::saturating_add)
    }

    /// Of what there is to send, a response about at most `names` names that may [overtake] the rest.
    ///
    /// [overtake]: TypeRule::overtakes
    pub fn next_ahead(&mut self, now: Instant, want: &dyn Want, names: usize) -> Option<ResponseParts> {
        for i in 0..self.slots.len() {
            let is_light = self.slots[i].dialect.as_ref().is_some_and(|dialect| dialect.burden() <= names);
            if self.slots[i].rule.overtakes
                && is_light
                && let Some(response) = self.send(i, DeltaPart::Updates, now, want)
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

    /// The same of what `is_meant`, by type and name. How many resources that is.
    pub fn reconsider_some(&mut self, is_meant: impl Fn(&str, &str) -> bool) -> usize {
        let mut count = 0;
        for slot in &mut self.slots {
            let type_url = slot.rule.type_url;
            slot.change(self.revision, |dialect| {
                count += dialect.subscription_mut().reconsider_some(|name| is_meant(type_url, name));
            });
        }
        count
    }

    /// Takes back a response that turned out not to fit into a message: the peer has not taken what is in it, and is
    /// offered it again when it has changed.
    pub fn unsent(&mut self, response: &ResponseParts) {
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == response.type_url) else {
            return;
        };
        let (nonce, refusal) = (response.nonce.to_string(), Status::default());
        let _told_by_nobody =
            slot.hear(self.revision, Some(&refusal), |dialect| dialect.hear_again(&nonce, Some(&refusal)));
    }

    /// Whether the peer took all there is. What it refused and is offered again, it has not taken before
    /// it says so.
    pub fn is_content(&self) -> bool {
        let mut states = self.slots.iter().filter_map(TypeSlot::subscription);
        self.is_settled() && states.all(Subscription::is_accepted)
    }

    /// Whether the peer refuses something.
    pub fn is_refused(&self) -> bool {
        self.slots.iter().filter_map(TypeSlot::subscription).any(|state| !state.is_accepted())
    }

    /// Whether the peer refused what there is under this name.
    pub fn refuses(&self, type_url: &str, name: &str) -> bool {
        let of_type = self.slots.iter().filter(|slot| slot.rule.type_url == type_url);
        of_type
            .filter_map(TypeSlot::subscription)
            .any(|state| state.refused().contains_key(name) || state.is_kept(name))
    }

    /// Whether the peer asked for this type.
    pub fn is_asked_for(&self, type_url: &str) -> bool {
        self.slots.iter().any(|slot| slot.rule.type_url == type_url && slot.dialect.is_some())
    }

    /// Which resources of a type the peer asked for; `None` while it asked for none.
    pub fn interest(&self, type_url: &str) -> Option<&Interest> {
        let of_type = self.slots.iter().find(|slot| slot.rule.type_url == type_url)?;
        of_type.subscription().map(Subscription::interest)
    }

    /// How far the peer is with this version of a resource.
    pub fn standing(&self, type_url: &str, name: &str, version: Version) -> Standing {
        let of_type = self.slots.iter().find(|slot| slot.rule.type_url == type_url);
        let state = of_type.and_then(TypeSlot::subscription);
        state.map_or(Standing::NotSent, |state| state.standing(name, version))
    }

    /// When to send [`Input::Wake`], if nothing else happens: a type has waited long enough for another.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let waiting = self.slots.iter().filter(|slot| {
            slot.in_flight_since.is_none() && slot.subscription().is_some_and(|s| s.has_updates())
        });
        let since =
            waiting.flat_map(|slot| slot.rule.waits_for).filter_map(|other| self.in_flight_since(other));
        let patience = since.map(|since| since + self.settings.patience);
        patience.chain(self.heartbeat_due()).filter(|at| *at > now).min()
    }

    /// Since when a response of this type waits for its answer.
    pub fn in_flight_since(&self, type_url: &str) -> Option<Instant> {
        self.slots.iter().find(|slot| slot.rule.type_url == type_url)?.in_flight_since
    }

    /// Since when the oldest response waits for its answer.
    pub fn stalled_since(&self) -> Option<Instant> {
        self.slots.iter().filter_map(|slot| slot.in_flight_since).min()
    }

    /// How far the peer is, for every type it asked for.
    pub fn progress(&self) -> impl Iterator<Item = TypeProgress> {
        self.slots.iter().filter_map(|slot| slot.progress(self.revision))
    }

    /// Whether the peer has answered for everything it asked for.
    pub fn is_settled(&self) -> bool {
        self.slots.iter().all(|slot| slot.dialect.is_none() || slot.is_idle())
    }

    /// The same, but for removals that wait because something was refused that may need what goes.
    pub fn is_answered(&self) -> bool {
        (0..self.slots.len()).all(|i| {
            let slot = &self.slots[i];
            let has_updates = || slot.subscription().is_some_and(Subscription::has_updates);
            let keeps = || slot.in_flight_since.is_none() && !has_updates() && !self.may_remove(i);
            slot.dialect.is_none() || slot.is_idle() || keeps()
        })
    }

    fn request(&mut self, request: &D::Request, want: &dyn Want) -> Result<Option<SourceEvent>, Malformed> {
        let envelope = D::envelope(request);
        let envelope = Envelope { type_url: self.type_of(envelope.type_url), ..envelope };
        if envelope.type_url.is_empty() {
            return Err(Malformed::NoType);
        }
        let is_first = self.node.is_none();
        self.greet(envelope.node.map(|node| &*node.id))?;
        if let Some(node) = envelope.node.filter(|_| is_first) {
            self.ttl = self.settings.ttl.filter(|_| D::keeps_time(&node.client_features));
        }
        self.measure(&envelope)?;
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == envelope.type_url) else {
            return self.unserved(envelope.type_url, envelope.is_first);
        };
        let (mut paged, max) = (None, self.settings.max_names);
        let event = match &mut slot.dialect {
            None => Some(slot.open(request, envelope.held, want)),
            Some(dialect) => {
                paged = dialect.take_page(&slot.rule, request, want);
                match paged {
                    Some(_) => slot.paged(),
                    None => slot.hear(self.revision, envelope.error, |dialect| dialect.hear(request)),
                }
            }
        };
        if paged.is_some_and(|listed| listed > max) {
            return Err(Malformed::TooManyNames { type_url: envelope.type_url.to_owned(), max });
        }
        let is_stale = matches!(event, Some(SourceEvent::Stale { .. }));
        // A request that was overtaken adds names and takes none away, so the next list is neither.
        let listed = D::listed(request).filter(|_| !is_stale);
        slot.listed = listed.map(|names| Listed::of(names, &self.hasher));
        if let Some(dialect) = &mut slot.dialect {
            dialect.subscription_mut().share_names(&self.settings.names);
        }
        let listed = slot.subscription().map_or(0, |s| s.interest().names().len());
        let max_bytes = self.settings.max_bytes;
        if listed > max {
            return Err(Malformed::TooManyNames { type_url: envelope.type_url.to_owned(), max });
        }
        let remembered: usize =
            self.slots.iter().filter_map(|slot| slot.dialect.as_ref()).map(D::bytes).sum();
        if remembered > max_bytes { Err(Malformed::TooManyBytes { max: max_bytes }) } else { Ok(event) }
    }

    /// Whether the peer lists no more than it may, and nothing that is longer than a name.
    fn measure(&self, envelope: &Envelope<'_>) -> Result<(), Malformed> {
        let type_url = || clip(envelope.type_url, LONGEST_TYPE).to_owned();
        let max = self.settings.max_names;
        if envelope.names > max || envelope.held > max {
            return Err(Malformed::TooManyNames { type_url: type_url(), max });
        }
        let (longest, max) = (envelope.longest.max(envelope.type_url.len()), self.settings.max_name);
        if longest > max {
            return Err(Malformed::LongName { type_url: type_url(), bytes: longest, max });
        }
        let max = self.settings.max_bytes;
        if envelope.bytes > max { Err(Malformed::TooManyBytes { max }) } else { Ok(()) }
    }

    /// Heeds what a request says about who asks: the first one has to, the others may, and it stays the same.
    fn greet(&mut self, id: Option<&str>) -> Result<(), Malformed> {
        let id = id.filter(|id| !id.is_empty());
        match (&self.node, id) {
            (None, None) => return Err(Malformed::NoNode),
            (None, Some(id)) => self.node = Some(id.into()),
            (Some(known), Some(id)) if **known != *id => return Err(Malformed::OtherNode),
            (Some(_), _) => {}
        }
        Ok(())
    }

    fn repeated(&mut self, repeat: &Repeat) -> Result<Option<SourceEvent>, Malformed> {
        self.greet(repeat.node.as_deref())?;
        let type_url = self.type_of(&repeat.type_url);
        let Some(slot) = self.slots.iter_mut().find(|slot| slot.rule.type_url == type_url) else {
            return Ok(None);
        };
        let error = repeat.error.as_ref();
        Ok(slot.hear(self.revision, error, |dialect| dialect.hear_again(&repeat.nonce, error)))
    }

    fn unserved(&mut self, type_url: &str, is_first: bool) -> Result<Option<SourceEvent>, Malformed> {
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
        Ok(Some(SourceEvent::Unserved { type_url }))
    }

    fn send(&mut self, i: usize, part: DeltaPart, now: Instant, want: &dyn Want) -> Option<ResponseParts> {
        let header = Header { nonce: self.nonce + 1, identifier: &self.settings.identifier };
        let slot = self.slots.get_mut(i)?;
        let dialect = slot.dialect.as_mut()?;
        let mut response = dialect.next(want, part, self.settings.limit, &header)?;
        if slot.rule.stays {
            response.removed.clear();
        }
        if slot.rule.perishable {
            response.ttl = self.ttl;
        }
        self.nonce += 1;
        slot.in_flight_since = Some(now);
        slot.only_heartbeat = false;
        if dialect.subscription().is_drained() {
            slot.sent = self.revision;
        }
        if let Some(renewed) = slot.rule.renews {
            self.renew(i, renewed);
        }
        self.note_perishable(i, &response, now);
        Some(response)
    }

    /// What was sent of type `i` is followed by what there is under the same names of another type.
    fn renew(&mut self, i: usize, renewed: &str) {
        let Some(other) = self.slots.iter().position(|other| other.rule.type_url == renewed) else { return };
        let Some(mut dialect) = self.slots[other].dialect.take() else { return };
        let (sent, renewed) = (self.slots[i].subscription(), dialect.subscription_mut());
        if !sent.is_some_and(|sent| renewed.renew_everything(sent)) {
            let names = sent.map(Subscription::in_flight).unwrap_or_default();
            // Another variant of a cluster gets warm by the same endpoints.
            names.iter().for_each(|name| renewed.renew(&variant::plain_name(name).into()));
        }
        self.slots[other].dialect = Some(dialect);
    }

    /// Whether additions to type `i` must wait for the peer to be ready for them. For the rest of a response that the
    /// byte limit cut short there is no end of patience: a part of it was never sent, and who is told to use that
    /// would be told to use what it does not have.
    fn must_wait(&self, i: usize, now: Instant) -> bool {
        let patience = self.settings.patience;
        let waits_for = self.slots[i].rule.waits_for;
        let others = self.slots.iter().filter(|slot| waits_for.contains(&slot.rule.type_url));
        let mut flights = others.filter_map(|slot| Some((slot.in_flight_since?, slot.subscription()?)));
        flights.any(|(since, state)| now < since + patience || state.is_cut_short())
    }

    /// Whether nothing the peer uses can refer to what type `i` no longer has. A refused listener leaves
    /// the older one in place, so what that one needs stays too; where there was none, nothing has to stay, and a
    /// cluster that a policy takes away goes.
    fn may_remove(&self, i: usize) -> bool {
        let type_url = self.slots[i].rule.type_url;
        let users = self.slots.iter().filter(|slot| slot.rule.uses.contains(&type_url));
        !self.settings.make_before_break
            || users.filter_map(|user| Some((user, user.subscription()?))).all(|(user, state)| {
                user.in_flight_since.is_none() && state.is_drained() && !state.keeps_older()
            })
    }
}

impl<D: Dialect> TypeSlot<D> {
    fn subscription(&self) -> Option<&Subscription> {
        self.dialect.as_ref().map(D::subscription)
    }

    fn open(&mut self, request: &D::Request, resumed: usize, want: &dyn Want) -> SourceEvent {
        let dialect = self.dialect.insert(D::open(&self.rule, request, want));
        let wildcard = dialect.subscription().interest().wildcard;
        SourceEvent::Subscribed { type_url: self.rule.type_url, wildcard, resumed }
    }

    /// The peer goes on listing what it holds, which says nothing about anything it was sent.
    fn paged(&mut self) -> Option<SourceEvent> {
        self.in_flight_since = None;
        None
    }

    fn hear(
        &mut self,
        revision: u64,
        error: Option<&Status>,
        hear: impl FnOnce(&mut D) -> Heard,
    ) -> Option<SourceEvent> {
        let type_url = self.rule.type_url;
        let mut heard = Heard::default();
        self.change(revision, |dialect| heard = hear(dialect));
        let Some(settled) = heard.settled else {
            return heard.stale.then_some(SourceEvent::Stale { type_url });
        };
        self.in_flight_since = None;
        if let Some(heartbeat) = &mut self.heartbeat {
            heartbeat.settled(error.is_none());
        }
        if self.only_heartbeat && error.is_none() {
            // The peer took nothing that it had not taken before.
            return None;
        }
        // Innocent neighbours of what was refused are yet to arrive.
        if !self.subscription().is_some_and(Subscription::is_narrowing) {
            self.acked = self.sent;
        }
        let (nonce, accepted) = (settled.nonce, settled.accepted);
        Some(match error {
            None => SourceEvent::Acked { type_url, nonce, accepted },
            Some(status) => {
                let (refused, message) = (settled.refused, beginning(&status.message));
                let passing = status.code == NOT_NOW;
                SourceEvent::Nacked { type_url, nonce, accepted, refused, message, passing }
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

    fn progress(&self, head: u64) -> Option<TypeProgress> {
        let state = self.subscription()?;
        let (sent, acked) = if self.is_idle() { (head, head) } else { (self.sent, self.acked) };
        Some(TypeProgress {
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
