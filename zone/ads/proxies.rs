//! Who is connected, and what each of them should have.
//!
//! A stream joins and leaves; the push loop publishes; nobody waits for anybody. A proxy may have more
//! than one stream for a moment, while it reconnects before the loss of the old one was noticed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, watch},
    time::Instant,
};

use super::{
    config::Config,
    node::{Proxy, ProxyId},
};

/// One stream of one proxy, unique in this process.
pub type StreamId = u64;

/// All proxies with a stream here.
pub struct Proxies {
    state: Mutex<State>,
    /// Wakes the push loop: someone came who has no configuration yet.
    arrived: Notify,
    /// Wakes whoever clears up: someone who registered itself is gone.
    departed: Notify,
}

#[derive(Default)]
struct State {
    next: StreamId,
    connected: BTreeMap<ProxyId, Connected>,
    arrivals: BTreeSet<ProxyId>,
    departures: BTreeMap<ProxyId, Instant>,
}

struct Connected {
    proxy: Arc<Proxy>,
    streams: BTreeMap<StreamId, Arc<Mutex<StreamView>>>,
    config: watch::Sender<Option<Arc<Config>>>,
    problems: Vec<String>,
}

/// What one stream has been told, for those who look from outside.
#[derive(Clone, Debug, Default)]
pub struct StreamView {
    /// Address of the peer.
    pub peer: String,
    /// Which protocol it speaks.
    pub protocol: &'static str,
    /// State of each type it asked for.
    pub types: BTreeMap<String, TypeView>,
}

/// What one stream has been told about one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeView {
    /// Responses sent.
    pub sent: u64,
    /// Version of the last one, where the protocol has such a thing.
    pub version: String,
    /// Whether the last one was acknowledged.
    pub acknowledged: bool,
    /// Why the proxy refuses something, in its words; `None` once it refuses nothing.
    pub last_rejection: Option<String>,
}

/// One proxy as the outside sees it.
#[derive(Clone, Debug)]
pub struct ProxyView {
    /// Which one, with what it said about itself.
    pub proxy: Arc<Proxy>,
    /// What it should have; `None` until that is known.
    pub config: Option<Arc<Config>>,
    /// What went wrong when its configuration was last made.
    pub problems: Vec<String>,
    /// Its streams.
    pub streams: Vec<StreamView>,
}

/// Membership of one stream; ends when dropped.
pub struct Session {
    proxies: Arc<Proxies>,
    id: ProxyId,
    /// Which stream.
    pub stream: StreamId,
    /// What the proxy should have, newest only.
    pub config: watch::Receiver<Option<Arc<Config>>>,
    /// What outsiders see of the stream.
    pub view: Arc<Mutex<StreamView>>,
    deregister_after: Option<Duration>,
}

impl Default for Proxies {
    fn default() -> Self {
        Self { state: Mutex::default(), arrived: Notify::new(), departed: Notify::new() }
    }
}

impl Proxies {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing below panics between two related changes.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream of `proxy` begins. `deregister_after` says that its resource goes when it does, and how
    /// long after.
    pub fn join(
        self: &Arc<Self>,
        proxy: Arc<Proxy>,
        deregister_after: Option<Duration>,
        view: StreamView,
    ) -> Session {
        let view = Arc::new(Mutex::new(view));
        let id = proxy.id.clone();
        let mut state = self.lock();
        state.next += 1;
        let stream = state.next;
        state.departures.remove(&id);
        let connected = state.connected.entry(id.clone()).or_insert_with(|| Connected {
            proxy: Arc::clone(&proxy),
            streams: BTreeMap::new(),
            config: watch::Sender::new(None),
            problems: Vec::new(),
        });
        // What the newest stream says about the proxy counts.
        connected.proxy = proxy;
        connected.streams.insert(stream, Arc::clone(&view));
        let config = connected.config.subscribe();
        state.arrivals.insert(id.clone());
        drop(state);
        self.arrived.notify_one();
        Session { proxies: Arc::clone(self), id, stream, config, view, deregister_after }
    }

    fn leave(&self, session: &Session) {
        let mut state = self.lock();
        let Some(connected) = state.connected.get_mut(&session.id) else { return };
        connected.streams.remove(&session.stream);
        if !connected.streams.is_empty() {
            return;
        }
        state.connected.remove(&session.id);
        state.arrivals.remove(&session.id);
        if let Some(after) = session.deregister_after {
            state.departures.insert(session.id.clone(), Instant::now() + after);
            drop(state);
            self.departed.notify_one();
        }
    }

    /// Waits until someone arrives. One wake may stand for many.
    pub async fn arrival(&self) {
        self.arrived.notified().await;
    }

    /// Everyone who arrived since the last call.
    pub fn take_arrivals(&self) -> BTreeSet<ProxyId> {
        std::mem::take(&mut self.lock().arrivals)
    }

    /// Everyone who is connected.
    pub fn connected(&self) -> Vec<Arc<Proxy>> {
        self.lock().connected.values().map(|c| Arc::clone(&c.proxy)).collect()
    }

    /// What `proxy` should have from now on, with what could not be done for it. Without a new
    /// configuration it keeps what it has.
    pub fn publish(&self, proxy: &ProxyId, config: Option<Arc<Config>>, problems: Vec<String>) {
        let mut state = self.lock();
        let Some(connected) = state.connected.get_mut(proxy) else { return };
        connected.problems = problems;
        if let Some(config) = config {
            connected.config.send_replace(Some(config));
        }
    }

    /// Waits until someone's absence is long enough to act on, and names them. Those who came back
    /// meanwhile are not named.
    pub async fn overdue(&self) -> Vec<ProxyId> {
        loop {
            let now = Instant::now();
            let next = {
                let mut state = self.lock();
                let due = state.departures.iter().filter(|(_, at)| **at <= now);
                let due: Vec<ProxyId> = due.map(|(id, _)| id.clone()).collect();
                if !due.is_empty() {
                    state.departures.retain(|id, _| !due.contains(id));
                    return due;
                }
                state.departures.values().min().copied()
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

    /// Whether a stream of `proxy` is here.
    pub fn is_connected(&self, proxy: &ProxyId) -> bool {
        self.lock().connected.contains_key(proxy)
    }

    /// Everyone, for those who look from outside.
    pub fn view(&self) -> Vec<ProxyView> {
        self.lock().connected.values().map(Connected::view).collect()
    }

    /// The first one that `is` meant, for those who look from outside.
    pub fn find(&self, is: impl Fn(&ProxyId) -> bool) -> Option<ProxyView> {
        let state = self.lock();
        state.connected.iter().find(|(id, _)| is(id)).map(|(_, connected)| connected.view())
    }
}

impl Connected {
    fn view(&self) -> ProxyView {
        ProxyView {
            proxy: Arc::clone(&self.proxy),
            config: self.config.borrow().clone(),
            problems: self.problems.clone(),
            streams: self.streams.values().map(|view| lock(view).clone()).collect(),
        }
    }
}

impl Session {
    /// Whose stream it is.
    pub fn id(&self) -> &ProxyId {
        &self.id
    }

    /// Changes what outsiders see of the stream.
    pub fn update(&self, change: impl FnOnce(&mut StreamView)) {
        change(&mut lock(&self.view));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.proxies.leave(self);
    }
}

fn lock(view: &Mutex<StreamView>) -> MutexGuard<'_, StreamView> {
    view.lock().unwrap_or_else(PoisonError::into_inner)
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
        Arc::new(Proxy { id, metadata: Arc::default(), user_agent: String::new() })
    }

    fn join(proxies: &Arc<Proxies>, name: &str) -> Session {
        proxies.join(proxy(name), Some(DELAY), StreamView::default())
    }

    #[tokio::test]
    async fn what_is_published_reaches_every_stream_and_a_failure_keeps_the_last_good() {
        let proxies = Arc::new(Proxies::default());
        let (first, second) = (join(&proxies, "web"), join(&proxies, "web"));
        proxies.arrival().await;
        let id = proxy("web").id.clone();
        assert_eq!(proxies.take_arrivals(), BTreeSet::from([id.clone()]));
        proxies.publish(&id, Some(Arc::new(Config::new(3, ResourceSet::default()))), Vec::new());
        proxies.publish(&id, None, vec!["broken policy".to_owned()]);
        for session in [&first, &second] {
            assert_eq!(session.config.borrow().as_ref().unwrap().revision(), 3);
        }
        assert_eq!(proxies.view()[0].problems, ["broken policy"]);
        drop(first);
        assert!(proxies.is_connected(&id));
        drop(second);
        assert!(!proxies.is_connected(&id));
    }

    #[tokio::test(start_paused = true)]
    async fn only_those_who_stay_away_are_overdue() {
        let proxies = Arc::new(Proxies::default());
        let start = Instant::now();
        drop(join(&proxies, "gone"));
        drop(join(&proxies, "back"));
        let back = join(&proxies, "back");
        drop(proxies.join(proxy("by-api"), None, StreamView::default()));
        assert_eq!(proxies.overdue().await, [proxy("gone").id.clone()]);
        assert_eq!(start.elapsed(), DELAY);
        drop(back);
        assert_eq!(proxies.overdue().await, [proxy("back").id.clone()]);
        assert_eq!(start.elapsed(), 2 * DELAY);
    }
}
