//! Which host name is asked for next. Names come from whoever writes an address, so nobody's names keep those of others
//! waiting: each proxy of the zone, and each other zone, has a number of names, a few questions at a time, and its turn.
//! Proxies with one token have one turn among them, since with it come as many as its bearer likes. Pure: it is told the time and what was answered.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use common::model::ResourceKey;
use tokio::time::Instant;

use crate::{account::Account, mesh::Hosts, share::FairShare};

/// How often a name is asked for again that has an address.
const REFRESH: Duration = Duration::from_secs(30);
/// The first pause after a name was not found, and the longest: it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Names of one proxy, and of another zone.
const NAMES_OF_PROXY: usize = 64;
const NAMES_OF_ZONE: usize = 1000;
/// Questions at a time for one of them, for all proxies of the zone together, and for all other zones.
const AT_ONCE: usize = 4;
const AT_ONCE_TOGETHER: usize = 16;
/// Questions at a time for proxies with one token.
const AT_ONCE_IN_LINE: usize = AT_ONCE_TOGETHER / 2;

/// Whose name it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum NameOwner {
    /// A proxy of the zone, and on whose account it is there.
    Proxy(Account, ResourceKey),
    /// Another zone; global has no name.
    Zone(Arc<str>),
}

impl NameOwner {
    fn most_names(&self) -> usize {
        match self {
            Self::Proxy(..) => NAMES_OF_PROXY,
            Self::Zone(_) => NAMES_OF_ZONE,
        }
    }

    fn side(&self) -> AskingSide {
        match self {
            Self::Proxy(..) => AskingSide::Here,
            Self::Zone(_) => AskingSide::Elsewhere,
        }
    }

    fn line(&self) -> TurnLine {
        match self {
            Self::Proxy(account @ Account::Token(_), _) => TurnLine::Account(account.clone()),
            alone => TurnLine::Alone(alone.clone()),
        }
    }
}

/// Those who have one turn among them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TurnLine {
    Alone(NameOwner),
    Account(Account),
}

/// Who has a turn.
#[derive(Debug, Default)]
struct TurnQueue {
    /// Next first.
    lines: VecDeque<TurnLine>,
    /// Who waits in each, next first.
    waiting: BTreeMap<TurnLine, VecDeque<NameOwner>>,
    /// How many questions are asked for each.
    at_once: BTreeMap<TurnLine, usize>,
}

impl TurnQueue {
    fn push(&mut self, owner: NameOwner) {
        let line = owner.line();
        let waiting = self.waiting.entry(line.clone()).or_default();
        if waiting.is_empty() {
            self.lines.push_back(line);
        }
        waiting.push_back(owner);
    }

    fn pop(&mut self) -> Option<NameOwner> {
        let may = |line: &TurnLine| self.at_once.get(line).is_none_or(|count| *count < AT_ONCE_IN_LINE);
        // Few have so many that they are passed over.
        let place = self.lines.iter().position(may)?;
        let line = self.lines.remove(place)?;
        let waiting = self.waiting.get_mut(&line)?;
        let owner = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&line);
        } else {
            self.lines.push_back(line);
        }
        owner
    }

    fn asked(&mut self, owner: &NameOwner) {
        *self.at_once.entry(owner.line()).or_default() += 1;
    }

    fn answered(&mut self, owner: &NameOwner) {
        let line = owner.line();
        if let Some(count) = self.at_once.get_mut(&line) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.at_once.remove(&line);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum AskingSide {
    Here,
    Elsewhere,
}

/// All names that occur, and what is known of them.
#[derive(Debug, Default)]
pub(super) struct HostQuestions {
    resources: BTreeMap<ResourceKey, (NameOwner, BTreeSet<String>)>,
    owners: BTreeMap<NameOwner, OwnNames>,
    names: BTreeMap<String, AskedName>,
    /// When names are to be asked for that are not yet ready.
    timers: BTreeSet<(Instant, String)>,
    turns: BTreeMap<AskingSide, TurnQueue>,
    /// What is being asked for, and on whose account.
    asking: BTreeMap<String, NameOwner>,
    at_once: BTreeMap<AskingSide, usize>,
    hosts: Hosts,
    sequence: u64,
}

/// The names of one owner.
#[derive(Debug)]
struct OwnNames {
    /// Those that are asked for, and those beyond.
    share: FairShare<String>,
    /// Those to be asked for now, in order.
    ready: BTreeSet<(u64, String)>,
    at_once: usize,
    has_turn: bool,
}

impl OwnNames {
    fn of(owner: &NameOwner) -> Self {
        Self {
            share: FairShare::new(owner.most_names()),
            ready: BTreeSet::new(),
            at_once: 0,
            has_turn: false,
        }
    }
}

#[derive(Debug)]
struct AskedName {
    owners: BTreeSet<NameOwner>,
    phase: Phase,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Until then.
    Rests(Instant),
    /// At this place among those that are ready.
    Ready(u64),
    Asked,
}

impl HostQuestions {
    /// What a resource has for names now; says whether its owner has more than it may.
    pub(super) fn set(
        &mut self,
        key: &ResourceKey,
        owner: NameOwner,
        names: BTreeSet<String>,
        now: Instant,
    ) -> bool {
        let before = self.resources.remove(key);
        // What stays is taken first, so that nothing is let go in between.
        for name in &names {
            self.take(&owner, name, now);
        }
        if let Some((owner, names)) = before {
            for name in &names {
                self.drop_one(&owner, name, now);
            }
        }
        let exceeds = self.owners.get(&owner).is_some_and(|own| own.share.beyond() > 0);
        if !names.is_empty() {
            self.resources.insert(key.clone(), (owner, names));
        }
        exceeds
    }

    /// What is to be asked for now; to be called until there is nothing.
    pub(super) fn next(&mut self, now: Instant) -> Option<String> {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, name)) = self.timers.pop_first() {
                self.make_ready(&name);
            }
        }
        [AskingSide::Here, AskingSide::Elsewhere].into_iter().find_map(|side| self.next_of(side))
    }

    /// When there is something to be asked for at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Takes in the answer to a question; says whether the name was not known to fail so far.
    pub(super) fn answered(&mut self, name: &str, address: Option<IpAddr>, now: Instant) -> bool {
        if let Some(owner) = self.asking.remove(name) {
            let together = self.at_once.entry(owner.side()).or_default();
            *together = together.saturating_sub(1);
            self.turns.entry(owner.side()).or_default().answered(&owner);
            if let Some(own) = self.owners.get_mut(&owner) {
                own.at_once = own.at_once.saturating_sub(1);
            }
            self.give_turn(&owner);
            self.forget_if_done(&owner);
        }
        // Nobody may want to know any more.
        let Some(asked) = self.names.get_mut(name) else { return false };
        let news = address.is_none() && asked.failures == 0;
        asked.failures = if address.is_some() { 0 } else { asked.failures.saturating_add(1) };
        let pause = match (address, self.hosts.0.contains_key(name)) {
            (Some(_), _) => REFRESH,
            (None, known) => pause(asked.failures).max(if known { REFRESH } else { FIRST_PAUSE }),
        };
        if let Some(address) = address
            && self.hosts.0.get(name) != Some(&address)
        {
            self.hosts.0.insert(name.to_owned(), address);
        }
        asked.phase = Phase::Rests(now + pause);
        self.timers.insert((now + pause, name.to_owned()));
        news
    }

    /// What names stand for: one that is not found any more keeps its address.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    fn take(&mut self, owner: &NameOwner, name: &str, now: Instant) {
        let own = self.owners.entry(owner.clone()).or_insert_with(|| OwnNames::of(owner));
        if own.share.add(&name.to_owned()) {
            self.want(owner, name, now);
        }
    }

    fn drop_one(&mut self, owner: &NameOwner, name: &str, now: Instant) {
        let Some(own) = self.owners.get_mut(owner) else { return };
        let vacated = own.share.remove(&name.to_owned());
        if vacated.let_go {
            self.want_no_more(owner, name);
        }
        for name in vacated.follows {
            self.want(owner, &name, now);
        }
        self.forget_if_done(owner);
    }

    fn forget_if_done(&mut self, owner: &NameOwner) {
        let is_done = |own: &OwnNames| own.share.is_empty() && own.at_once == 0;
        if self.owners.get(owner).is_some_and(is_done) {
            self.owners.remove(owner);
        }
    }

    fn want(&mut self, owner: &NameOwner, name: &str, now: Instant) {
        let new = || AskedName { owners: BTreeSet::new(), phase: Phase::Rests(now), failures: 0 };
        let is_new = !self.names.contains_key(name);
        let asked = self.names.entry(name.to_owned()).or_insert_with(new);
        asked.owners.insert(owner.clone());
        match asked.phase {
            // It was let go while it was being asked for.
            _ if is_new && self.asking.contains_key(name) => asked.phase = Phase::Asked,
            Phase::Rests(_) if is_new => {
                self.timers.insert((now, name.to_owned()));
            }
            Phase::Ready(place) => {
                if let Some(own) = self.owners.get_mut(owner) {
                    own.ready.insert((place, name.to_owned()));
                }
                self.give_turn(owner);
            }
            Phase::Rests(_) | Phase::Asked => {}
        }
    }

    fn want_no_more(&mut self, owner: &NameOwner, name: &str) {
        let Some(asked) = self.names.get_mut(name) else { return };
        asked.owners.remove(owner);
        if let (Phase::Ready(place), Some(own)) = (asked.phase, self.owners.get_mut(owner)) {
            own.ready.remove(&(place, name.to_owned()));
        }
        if asked.owners.is_empty() {
            if let Phase::Rests(until) = asked.phase {
                self.timers.remove(&(until, name.to_owned()));
            }
            self.names.remove(name);
            self.hosts.0.remove(name);
        }
    }

    fn make_ready(&mut self, name: &str) {
        let Some(asked) = self.names.get_mut(name) else { return };
        self.sequence += 1;
        asked.phase = Phase::Ready(self.sequence);
        for owner in asked.owners.clone() {
            if let Some(own) = self.owners.get_mut(&owner) {
                own.ready.insert((self.sequence, name.to_owned()));
            }
            self.give_turn(&owner);
        }
    }

    /// Puts an owner behind those who have a turn, if it can use one.
    fn give_turn(&mut self, owner: &NameOwner) {
        let Some(own) = self.owners.get_mut(owner) else { return };
        if !own.has_turn && !own.ready.is_empty() && own.at_once < AT_ONCE {
            own.has_turn = true;
            self.turns.entry(owner.side()).or_default().push(owner.clone());
        }
    }

    fn next_of(&mut self, side: AskingSide) -> Option<String> {
        if *self.at_once.entry(side).or_default() >= AT_ONCE_TOGETHER {
            return None;
        }
        loop {
            let owner = self.turns.get_mut(&side)?.pop()?;
            let Some(own) = self.owners.get_mut(&owner) else { continue };
            own.has_turn = false;
            let Some((_, name)) = own.ready.first().cloned().filter(|_| own.at_once < AT_ONCE) else {
                continue;
            };
            own.at_once += 1;
            *self.at_once.entry(side).or_default() += 1;
            self.turns.entry(side).or_default().asked(&owner);
            if let Some(asked) = self.names.get_mut(&name) {
                if let Phase::Ready(place) = asked.phase {
                    for other in &asked.owners {
                        if let Some(own) = self.owners.get_mut(other) {
                            own.ready.remove(&(place, name.clone()));
                        }
                    }
                }
                asked.phase = Phase::Asked;
            }
            self.asking.insert(name.clone(), owner.clone());
            self.give_turn(&owner);
            return Some(name);
        }
    }
}

/// The pause after so many failures in a row.
fn pause(failures: u32) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests;
