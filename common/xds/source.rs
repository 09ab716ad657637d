//! A whole stream in server role: several types over one stream, in either dialect.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::RandomState,
    time::Duration,
};

use tokio::time::Instant;

use super::{Delta, Dialect, Name, Repeat, Sotw, SourceSettings, TypeRule, Want};

mod hearing;
mod heartbeat;
mod report;
mod sending;
mod slot;
mod standing;
#[cfg(test)]
mod tests;

use slot::TypeSlot;

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

impl<D: Dialect> Source<D> {
    /// A stream on which nothing was said yet.
    pub fn new(mut settings: SourceSettings) -> Self {
        let slot = |rule: TypeRule| TypeSlot {
            rule,
            dialect: None,
            in_flight_since: None,
            sent: 0,
            acked: 0,
            listed: None,
            heartbeat: None,
            only_heartbeat: false,
        };
        let slots = std::mem::take(&mut settings.types).into_iter().map(slot).collect();
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
}
