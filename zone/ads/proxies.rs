//! Who is connected, and what each of them should have.
//!
//! A stream joins and leaves; the push loop publishes; nobody waits for anybody. A proxy may have more
//! than one stream for a moment, while it reconnects before the loss of the old one was noticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

pub use super::seat::{AskedProxy, ProxyView, StreamId, StreamSeat, StreamView, TypeView};
use super::{
    config::ProxyConfig,
    convergence::Convergence,
    inquiry::InquiryScope,
    node::{Proxy, ProxyId},
    signals::{Signal, StreamSignals},
};
use crate::deadlines::Deadlines;

/// How many proxies are looked at before whoever publishes gets a chance.
const AT_ONCE: usize = 256;

/// What of its configuration could not be made, among what a proxy does without.
const UNMADE: &str = "configuration";

/// All proxies with a stream here.
pub struct Proxies {
    state: Mutex<ProxiesState>,
    /// How far they are.
    convergence: Arc<Convergence>,
    /// Wakes the push loop: someone came or left.
    moved: Notify,
    /// Wakes whoever clears up: someone who registered itself is gone.
    departed: Notify,
}

#[derive(Default)]
struct ProxiesState {
    next: StreamId,
    connected: BTreeMap<ProxyId, Connected>,
    /// Who came or left since the push loop last asked.
    movement: BTreeSet<ProxyId>,
    departures: Deadlines<ProxyId, Instant>,
}

struct Connected {
    proxy: Arc<Proxy>,
    streams: BTreeMap<StreamId, Arc<StreamSeat>>,
    config: watch::Sender<Option<Arc<ProxyConfig>>>,
    problems: Arc<[String]>,
    lacks: Option<Arc<str>>,
}

/// Who came and who left.
#[derive(Debug, Default)]
pub struct Movement {
    /// Those who are here now; some of them may have been here before.
    pub arrived: Vec<Arc<Proxy>>,
    /// Those who are not here any more.
    pub left: Vec<ProxyId>,
}

/// Membership of one stream; ends when dropped.
pub struct ProxySession {
    proxies: Arc<Proxies>,
    id: ProxyId,
    /// Which stream.
    pub stream: StreamId,
    /// What the proxy should have, newest only.
    pub config: watch::Receiver<Option<Arc<ProxyConfig>>>,
    /// What outsiders see of the stream, and ask it.
    pub seat: Arc<StreamSeat>,
    deregister_after: Option<Duration>,
}

impl Default for Proxies {
    fn default() -> Self {
        let (moved, departed) = (Notify::new(), Notify::new());
        Self { state: Mutex::default(), convergence: Arc::default(), moved, departed }
    }
}

impl Proxies {
    /// Where streams have greater numbers than `first`, counted with those of others.
    pub fn numbered_from(first: StreamId, convergence: Arc<Convergence>) -> Self {
        let state = Mutex::new(ProxiesState { next: first, ..ProxiesState::default() });
        Self { state, convergence, ..Self::default() }
    }

    /// How far they are.
    pub fn convergence(&self) -> &Arc<Convergence> {
        &self.convergence
    }

    fn lock(&self) -> MutexGuard<'_, ProxiesState> {
        // Nothing below panics between two related changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of `proxy` begins, which `signals` wake. `deregister_after` says that its resource goes when it does,
    /// and how long after.
    pub fn join(
        self: &Arc<Self>,
        proxy: Arc<Proxy>,
        deregister_after: Option<Duration>,
        view: StreamView,
        signals: Arc<StreamSignals>,
    ) -> ProxySession {
        let id = proxy.id.clone();
        let mut state = self.lock();
        state.next += 1;
        let stream = state.next;
        let seat = Arc::new(StreamSeat::new(stream, view, signals));
        state.departures.remove(&id);
        let connected = state.connected.entry(id.clone()).or_insert_with(|| Connected {
            proxy: Arc::clone(&proxy),
            streams: BTreeMap::new(),
            config: watch::Sender::new(None),
            problems: Arc::default(),
            lacks: None,
        });
        // What the newest stream says about the proxy counts.
        connected.proxy = proxy;
        connected.streams.insert(stream, Arc::clone(&seat));
        let config = connected.config.subscribe();
        state.movement.insert(id.clone());
        drop(state);
        self.moved.notify_one();
        ProxySession { proxies: Arc::clone(self), id, stream, config, seat, deregister_after }
    }

    fn leave(&self, session: &ProxySession) {
        let mut state = self.lock();
        let Some(connected) = state.connected.get_mut(&session.id) else { return };
        connected.streams.remove(&session.stream);
        if !connected.streams.is_empty() {
            return;
        }
        state.connected.remove(&session.id);
        state.movement.insert(session.id.clone());
        self.moved.notify_one();
        if let Some(after) = session.deregister_after {
            state.departures.set(session.id.clone(), Instant::now() + after);
            drop(state);
            self.departed.notify_one();
        }
    }

    /// Waits until someone comes or leaves. One wake may stand for many.
    pub async fn movement(&self) {
        self.moved.notified().await;
    }

    /// Everyone who came or left since the last call, as they are now.
    pub fn take_movement(&self) -> Movement {
        let mut state = self.lock();
        let mut movement = Movement::default();
        for id in std::mem::take(&mut state.movement) {
            match state.connected.get(&id) {
                Some(connected) => movement.arrived.push(Arc::clone(&connected.proxy)),
                None => movement.left.push(id),
            }
        }
        movement
    }

    /// What `proxy` should have from now on, with what could not be done for it. Without a new
    /// configuration it keeps what it has. Gives those problems that are new, where there are others than before. `lacks`
    /// is the first of them by which it does without something.
    pub fn publish(
        &self,
        proxy: &ProxyId,
        config: Option<Arc<ProxyConfig>>,
        problems: Arc<[String]>,
        lacks: Option<Arc<str>>,
    ) -> Option<Vec<String>> {
        let mut state = self.lock();
        let connected = state.connected.get_mut(proxy)?;
        let known = std::mem::replace(&mut connected.problems, problems);
        if let Some(config) = config {
            let number = config.number();
            connected.streams.keys().for_each(|stream| self.convergence.owes(*stream, number));
            connected.config.send_replace(Some(config));
            connected.streams.values().for_each(|seat| seat.signals.raise(Signal::Configured));
        }
        if Arc::ptr_eq(&known, &connected.problems) || known == connected.problems {
            return None;
        }
        connected.streams.keys().for_each(|stream| self.convergence.lacks(*stream, UNMADE, lacks.as_deref()));
        connected.lacks = lacks;
        let known: BTreeSet<&String> = known.iter().collect();
        Some(connected.problems.iter().filter(|problem| !known.contains(problem)).cloned().collect())
    }

    /// Waits until someone's absence is long enough to act on, and names them. Those who came back
    /// meanwhile are not named.
    pub async fn overdue(&self) -> Vec<ProxyId> {
        loop {
            let now = Instant::now();
            let next = {
                let mut state = self.lock();
                let due = state.departures.take(now);
                if !due.is_empty() {
                    return due;
                }
                state.departures.next()
            };
            match next {
                Some(at) => tokio::select! {
                    () = tokio::time::sleep_until(at) => {}
                    () = self.departed.notified() => {}
                },
                None => self.departed.notified().await,
            }
        }
    }

    /// What to do about the absence of `proxy` could not be done, and is due again after a while, unless it came back.
    pub fn due_again(&self, proxy: &ProxyId, after: Duration) {
        let mut state = self.lock();
        if !state.connected.contains_key(proxy) {
            state.departures.set(proxy.clone(), Instant::now() + after);
            drop(state);
            self.departed.notify_one();
        }
    }

    /// Whether a stream of `proxy` is here.
    pub fn is_connected(&self, proxy: &ProxyId) -> bool {
        self.lock().connected.contains_key(proxy)
    }

    /// Whether one is here, or what it brought along is still to be seen to because it left.
    pub fn is_expected(&self, proxy: &ProxyId) -> bool {
        let state = self.lock();
        state.connected.contains_key(proxy) || state.departures.has(proxy)
    }

    /// Everyone, for those who look from outside.
    pub fn view(&self) -> Vec<ProxyView> {
        self.view_of(|_, _| true)
    }

    /// All who are meant.
    pub fn meant(&self, is: impl Fn(&Proxy) -> bool) -> Vec<ProxyId> {
        self.each_now(|proxy, _| is(proxy), |now| now.proxy.id.clone())
    }

    /// Asks the streams of `proxy` what they told it; `None` when it is gone.
    pub fn ask_one(&self, scope: InquiryScope, proxy: &ProxyId) -> Option<AskedProxy> {
        let now = self.lock().connected.get(proxy).map(Connected::now);
        now.map(|now| now.ask(scope))
    }

    /// Those with a stream that is meant, with those streams.
    pub fn view_of(&self, is: impl Fn(&Proxy, StreamId) -> bool) -> Vec<ProxyView> {
        self.each_now(is, ConnectedNow::view)
    }

    /// Asks the streams that are meant what they told their proxies.
    pub fn ask(&self, scope: InquiryScope, is: impl Fn(&Proxy, StreamId) -> bool) -> Vec<AskedProxy> {
        self.each_now(is, |now| now.ask(scope))
    }

    /// Ends the streams that are meant; their proxies come back by themselves. Gives how many there were.
    pub fn dismiss(&self, is: impl Fn(&Proxy, StreamId) -> bool) -> usize {
        self.each_now(is, ConnectedNow::dismiss).into_iter().sum()
    }

    /// This one, for those who look from outside.
    pub fn get(&self, proxy: &ProxyId) -> Option<ProxyView> {
        let now = self.lock().connected.get(proxy).map(Connected::now);
        now.map(ConnectedNow::view)
    }

    /// The first one that `is` meant, for those who look from outside.
    pub fn find(&self, is: impl Fn(&ProxyId) -> bool) -> Option<ProxyView> {
        let now = {
            let state = self.lock();
            state.connected.iter().find(|(id, _)| is(id)).map(|(_, connected)| connected.now())
        };
        now.map(ConnectedNow::view)
    }

    /// What `look` sees of those with streams that are meant. The lock is held while a few are listed, and while none is
    /// looked at.
    fn each_now<T>(&self, is: impl Fn(&Proxy, StreamId) -> bool, look: impl Fn(ConnectedNow) -> T) -> Vec<T> {
        let mut seen = Vec::new();
        let mut last: Option<ProxyId> = None;
        loop {
            let few = self.after(last.as_ref());
            match few.last() {
                Some(now) => last = Some(now.proxy.id.clone()),
                None => return seen,
            }
            for mut now in few {
                let proxy = &now.proxy;
                now.streams.retain(|seat| is(proxy, seat.id));
                if !now.streams.is_empty() {
                    seen.push(look(now));
                }
            }
        }
    }

    /// The next few proxies behind this one.
    fn after(&self, last: Option<&ProxyId>) -> Vec<ConnectedNow> {
        let state = self.lock();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = state.connected.range::<ProxyId, _>((from, Bound::Unbounded));
        behind.take(AT_ONCE).map(|(_, connected)| connected.now()).collect()
    }
}

impl Connected {
    fn now(&self) -> ConnectedNow {
        ConnectedNow {
            proxy: Arc::clone(&self.proxy),
            config: self.config.borrow().clone(),
            problems: Arc::clone(&self.problems),
            streams: self.streams.values().map(Arc::clone).collect(),
        }
    }
}

/// One proxy as it was a moment ago, to be looked at without the lock.
struct ConnectedNow {
    proxy: Arc<Proxy>,
    config: Option<Arc<ProxyConfig>>,
    problems: Arc<[String]>,
    streams: Vec<Arc<StreamSeat>>,
}

impl ConnectedNow {
    fn view(self) -> ProxyView {
        let streams = self.streams.iter().map(|seat| seat.view()).collect();
        ProxyView { proxy: self.proxy, config: self.config, problems: self.problems, streams }
    }

    fn ask(self, scope: InquiryScope) -> AskedProxy {
        let asked = |seat: &Arc<StreamSeat>| (seat.view(), seat.ask(scope));
        let streams = self.streams.iter().map(asked).collect();
        AskedProxy { proxy: self.proxy, config: self.config, problems: self.problems, streams }
    }

    fn dismiss(self) -> usize {
        self.streams.iter().for_each(|seat| seat.signals.raise(Signal::Dismissed));
        self.streams.len()
    }
}

impl ProxySession {
    /// Whose stream it is.
    pub fn id(&self) -> &ProxyId {
        &self.id
    }

    /// From now on the stream answers for what it is given.
    pub fn attend(&self) {
        let state = self.proxies.lock();
        let convergence = &self.proxies.convergence;
        convergence.open(self.stream, self.id.to_string());
        let problem = state.connected.get(&self.id).and_then(|connected| connected.lacks.as_deref());
        if let Some(problem) = problem {
            convergence.lacks(self.stream, UNMADE, Some(problem));
        }
    }

    /// It was given the configuration with this number.
    pub fn owes(&self, number: u64) {
        self.proxies.convergence.owes(self.stream, number);
    }

    /// Its proxy has answered for that.
    pub fn settled(&self, number: u64) {
        self.proxies.convergence.settled(self.stream, number);
    }

    /// Its proxy does without something of this type, for this reason; `None` when that is over.
    pub fn lacks(&self, type_url: &str, reason: Option<&str>) {
        self.proxies.convergence.lacks(self.stream, type_url, reason);
    }

    /// Changes what outsiders see of the stream.
    pub fn update(&self, change: impl FnOnce(&mut StreamView)) {
        self.seat.update(change);
    }

    /// Version of the last response about this type.
    pub fn version(&self, type_url: &str) -> String {
        self.seat.version(type_url)
    }
}

impl Drop for ProxySession {
    fn drop(&mut self) {
        self.seat.inquiries.close();
        self.proxies.leave(self);
        self.proxies.convergence.close(self.stream);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use common::xds::Want;

    use crate::{ads::node::ProxyKind, generator::ResourceSet};

    const DELAY: Duration = Duration::from_secs(10);

    fn proxy(name: &str) -> Arc<Proxy> {
        let id = ProxyId::new(ProxyKind::Dataplane, "default", name);
        Arc::new(Proxy { id, cluster: Arc::default(), metadata: Arc::default(), user_agent: String::new() })
    }

    fn join(proxies: &Arc<Proxies>, name: &str) -> ProxySession {
        proxies.join(proxy(name), Some(DELAY), StreamView::default(), Arc::default())
    }

    #[tokio::test]
    async fn what_is_published_reaches_every_stream_and_a_failure_keeps_the_last_good() {
        let proxies = Arc::new(Proxies::default());
        let (first, second) = (join(&proxies, "web"), join(&proxies, "web"));
        proxies.movement().await;
        let id = proxy("web").id.clone();
        let arrived: Vec<ProxyId> = proxies.take_movement().arrived.iter().map(|p| p.id.clone()).collect();
        assert_eq!(arrived, std::slice::from_ref(&id));
        let config = Arc::new(ProxyConfig::new(3, ResourceSet::default()));
        proxies.publish(&id, Some(config), Arc::default(), None);
        let publish = |problem: &str| proxies.publish(&id, None, [problem.to_owned()].into(), None);
        assert_eq!(publish("broken policy"), Some(vec!["broken policy".to_owned()]));
        assert_eq!(publish("broken policy"), None);
        for session in [&first, &second] {
            assert_eq!(session.config.borrow().as_ref().unwrap().revision(), 3);
        }
        assert_eq!(*proxies.view()[0].problems, ["broken policy"]);
        drop(first);
        assert!(proxies.is_connected(&id));
        drop(second);
        assert!(!proxies.is_connected(&id));
        assert_eq!(proxies.take_movement().left, [id]);
    }

    #[tokio::test]
    async fn who_does_without_something_refuses_and_who_is_told_more_does_not() {
        let proxies = Arc::new(Proxies::default());
        let first = join(&proxies, "out");
        proxies.movement().await;
        first.attend();
        let refusing = || proxies.convergence().progress().refusing;
        let publish = |problems: &[&str], lacks: Option<&str>| {
            let problems = problems.iter().map(|problem| (*problem).to_owned()).collect();
            proxies.publish(&proxy("out").id, None, problems, lacks.map(Arc::from))
        };
        assert!(publish(&["a name is another one's"], None).is_some(), "it is told");
        assert_eq!(refusing(), 0);
        let second = join(&proxies, "out");
        second.attend();
        assert_eq!(refusing(), 0);
        assert!(publish(&["broken policy", "a name is another one's"], Some("broken policy")).is_some());
        assert_eq!(refusing(), 2);
        let third = join(&proxies, "out");
        third.attend();
        assert_eq!(refusing(), 3);
        publish(&["a name is another one's"], None);
        assert_eq!(refusing(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_who_stay_away_are_overdue() {
        let proxies = Arc::new(Proxies::default());
        let start = Instant::now();
        drop(join(&proxies, "gone"));
        drop(join(&proxies, "back"));
        let back = join(&proxies, "back");
        drop(proxies.join(proxy("by-api"), None, StreamView::default(), Arc::default()));
        assert_eq!(proxies.overdue().await, [proxy("gone").id.clone()]);
        assert_eq!(start.elapsed(), DELAY);
        drop(back);
        assert_eq!(proxies.overdue().await, [proxy("back").id.clone()]);
        assert_eq!(start.elapsed(), 2 * DELAY);
        // What could not be done then is due again, for who is still away.
        let gone = proxy("gone").id.clone();
        let here = join(&proxies, "back");
        for id in [&gone, here.id()] {
            proxies.due_again(id, DELAY);
        }
        assert_eq!(proxies.overdue().await, [gone]);
        assert_eq!(start.elapsed(), 3 * DELAY);
    }
}
