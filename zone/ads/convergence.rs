//! How far the connected proxies are: up to which revision all that follows from the store was made, sent to those it
//! concerns, and answered by them.
//!
//! Configurations are numbered as they are published, and a stream owes an answer from the first number on that it has
//! not answered for. When nothing is left to make, the revision everything was made from is marked with the last
//! number; it is reached once nobody owes anything up to there. So what is kept grows with the streams, and neither
//! with the revisions nor with the resources.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use common::{
    kds::proxies::{NAMED, ProxyProgress, ProxyRefusal},
    redact,
    rest::ProxyProgressSource,
    store::Revision,
};
use tokio::sync::watch;

use super::seat::StreamId;

/// Marked revisions that are kept. Without one in between a revision counts as reached a little later.
const MARKS: usize = 64;
/// Bytes kept of a reason.
const KEPT: usize = 512;

/// Who makes configurations, each for clients of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// Proxies of meshes.
    Meshes,
    /// Nodes that belong to none.
    Nodes,
}

/// The proxies of a process, as far as they have come. Calls do not wait.
#[derive(Debug)]
pub struct Convergence {
    accounts: Mutex<Accounts>,
    moved: watch::Sender<()>,
}

impl Default for Convergence {
    fn default() -> Self {
        Self { accounts: Mutex::default(), moved: watch::Sender::new(()) }
    }
}

impl Convergence {
    /// A number for a configuration that is to be published.
    pub fn number(&self) -> u64 {
        let mut accounts = self.lock();
        accounts.published += 1;
        accounts.published
    }

    /// From now on `stream` of this proxy owes answers for what it is given, and at first for whatever that will be:
    /// until then nobody knows that the proxy has what was published before it came.
    pub fn open(&self, stream: StreamId, proxy: String) {
        self.change(|accounts| accounts.open(stream, proxy));
    }

    /// The stream is no more.
    pub fn close(&self, stream: StreamId) {
        self.change(|accounts| accounts.close(stream));
    }

    /// The stream is given the configuration with this number.
    pub fn owes(&self, stream: StreamId, number: u64) {
        self.change(|accounts| accounts.owes(stream, number));
    }

    /// The proxy has answered for the configuration with this number, and for all before.
    pub fn settled(&self, stream: StreamId, number: u64) {
        self.change(|accounts| accounts.settled(stream, number));
    }

    /// The proxy does without something: `subject` tells what, `reason` why; `None` when that is over.
    pub fn lacks(&self, stream: StreamId, subject: &str, reason: Option<&str>) {
        self.change(|accounts| accounts.lacks(stream, subject, reason));
    }

    /// All that follows from the store up to `revision` is published `of` these.
    pub fn mark(&self, of: MadeFor, revision: Revision) {
        self.change(|accounts| accounts.mark(of, revision));
    }

    /// How far they are.
    pub fn progress(&self) -> ProxyProgress {
        self.lock().progress()
    }

    /// The revision all of them have reached.
    pub fn reached(&self) -> Revision {
        self.lock().reached()
    }

    /// Changes when they came further, or one does without something else than before.
    pub fn moved(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }

    fn change(&self, change: impl FnOnce(&mut Accounts) -> bool) {
        let changed = change(&mut self.lock());
        if changed {
            self.moved.send_replace(());
        }
    }

    fn lock(&self) -> MutexGuard<'_, Accounts> {
        // Nothing below panics between two related changes.
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ProxyProgressSource for Convergence {
    fn proxy_progress(&self) -> ProxyProgress {
        self.progress()
    }

    fn progressed(&self) -> watch::Receiver<()> {
        self.moved()
    }
}

/// What each stream owes. Pure; a change tells whether it is worth telling others.
#[derive(Debug, Default)]
struct Accounts {
    /// Number of the last configuration.
    published: u64,
    streams: BTreeMap<StreamId, StreamAccount>,
    /// Who owes an answer, and from which number on.
    owing: BTreeSet<(u64, StreamId)>,
    /// Who does without something.
    lacking: BTreeSet<StreamId>,
    /// How far what is made for each is.
    made: [Marks; 2],
}

/// How far all who are served by one maker are.
#[derive(Debug, Default)]
struct Marks {
    /// Revisions that are not reached, each with the last number that was published for it.
    waiting: VecDeque<(u64, Revision)>,
    reached: Revision,
}

#[derive(Debug, Default)]
struct StreamAccount {
    proxy: String,
    /// The first number that is not answered for.
    since: Option<u64>,
    /// The last number it was given.
    newest: u64,
    lacks: BTreeMap<String, String>,
}

impl Accounts {
    fn open(&mut self, stream: StreamId, proxy: String) -> bool {
        // Less than any number that is published.
        let since = 0;
        self.streams.insert(stream, StreamAccount { proxy, since: Some(since), ..StreamAccount::default() });
        self.owing.insert((since, stream));
        false
    }

    fn close(&mut self, stream: StreamId) -> bool {
        let Some(account) = self.streams.remove(&stream) else { return false };
        if let Some(since) = account.since {
            self.owing.remove(&(since, stream));
        }
        let lacked = self.lacking.remove(&stream);
        self.advance() || lacked
    }

    fn owes(&mut self, stream: StreamId, number: u64) -> bool {
        let Some(account) = self.streams.get_mut(&stream) else { return false };
        account.newest = account.newest.max(number);
        if account.since.is_none() {
            account.since = Some(number);
            self.owing.insert((number, stream));
        }
        false
    }

    fn settled(&mut self, stream: StreamId, number: u64) -> bool {
        let Some(account) = self.streams.get_mut(&stream) else { return false };
        let Some(since) = account.since.filter(|since| *since <= number) else { return false };
        self.owing.remove(&(since, stream));
        // Which numbers after this one it was given is not kept; any of them may be the next.
        account.since = (account.newest > number).then_some(number + 1);
        if let Some(next) = account.since {
            self.owing.insert((next, stream));
        }
        self.advance()
    }

    fn lacks(&mut self, stream: StreamId, subject: &str, reason: Option<&str>) -> bool {
        let Some(account) = self.streams.get_mut(&stream) else { return false };
        let changed = match reason {
            Some(reason) => {
                let reason = redact::words(reason, KEPT);
                let known = account.lacks.insert(subject.to_owned(), reason.clone());
                known.as_ref() != Some(&reason)
            }
            None => account.lacks.remove(subject).is_some(),
        };
        match account.lacks.is_empty() {
            true => self.lacking.remove(&stream),
            false => self.lacking.insert(stream),
        };
        changed
    }

    fn mark(&mut self, of: MadeFor, revision: Revision) -> bool {
        let published = self.published;
        let waiting = &mut self.made[of as usize].waiting;
        // Nothing was published since, or there are many already: the newer one stands for both.
        let is_full = waiting.len() == MARKS;
        match waiting.back_mut().filter(|last| last.0 == published || is_full) {
            Some(last) => *last = (published, revision),
            None => waiting.push_back((published, revision)),
        }
        self.advance()
    }

    /// Passes the marks up to which nobody owes anything; whether there was one that counts.
    fn advance(&mut self) -> bool {
        let before = self.reached();
        let first = self.owing.first().map_or(u64::MAX, |(since, _)| *since);
        for made in &mut self.made {
            while let Some((_, revision)) = made.waiting.pop_front_if(|(number, _)| *number < first) {
                made.reached = revision;
            }
        }
        self.reached() != before
    }

    fn reached(&self) -> Revision {
        self.made.iter().map(|made| made.reached).min().unwrap_or_default()
    }

    fn progress(&self) -> ProxyProgress {
        let name = |stream: &StreamId| self.streams.get(stream).map(|account| account.proxy.clone());
        let refusal = |stream: &StreamId| {
            let account = self.streams.get(stream)?;
            let reason = account.lacks.values().next()?;
            Some(ProxyRefusal::new(&account.proxy, reason))
        };
        ProxyProgress {
            acked: self.reached(),
            connected: self.streams.len() as u64,
            behind: self.owing.len() as u64,
            waiting: self.owing.iter().take(NAMED).filter_map(|(_, stream)| name(stream)).collect(),
            refusing: self.lacking.len() as u64,
            refusals: self.lacking.iter().take(NAMED).filter_map(refusal).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
