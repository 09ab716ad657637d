#![allow(clippy::unwrap_used)]

use std::sync::{
    Mutex,
    atomic::{AtomicBool, Ordering},
};

use async_trait::async_trait;
use common::store::{Batch, Changes, Commit, Point, Revision, Snapshot, StoreIdentity, memory::MemoryStore};
use tokio::{sync::watch, task::JoinHandle};
use uuid::Uuid;

use super::*;

/// Who, what, and at which epoch.
type Entry = (&'static str, &'static str, u64);

/// Who leads, in the order in which they began and ended.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<Entry>>>, Arc<tokio::sync::Notify>);

impl Log {
    fn note(&self, who: &'static str, what: &'static str, epoch: u64) {
        self.0.lock().unwrap().push((who, what, epoch));
        self.1.notify_waiters();
    }

    async fn until(&self, entry: Entry) {
        loop {
            let changed = self.1.notified();
            if self.0.lock().unwrap().contains(&entry) {
                return;
            }
            changed.await;
        }
    }

    fn all(&self) -> Vec<Entry> {
        self.0.lock().unwrap().clone()
    }
}

struct Noted(&'static str, Log);

impl Work for Noted {
    async fn lead(&self, fence: Fence, stop: CancellationToken) {
        self.1.note(self.0, "leads", fence.epoch);
        stop.cancelled().await;
        self.1.note(self.0, "ends", fence.epoch);
    }

    fn stand_by(&self) {
        self.1.note(self.0, "stands by", 0);
    }
}

/// The store as one replica reaches it.
struct Reached {
    store: Arc<MemoryStore>,
    cut: Arc<AtomicBool>,
}

#[async_trait]
impl Store for Reached {
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        steal: bool,
    ) -> Result<Option<Lease>, StoreError> {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.store.acquire(name, holder, ttl, steal).await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.store.release(lease).await
    }
    fn identity(&self) -> StoreIdentity {
        self.store.identity()
    }
    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        self.store.transact(batch).await
    }
    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        self.store.changes_since(after, limit).await
    }
    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.store.snapshot().await
    }
    fn watch_head(&self) -> watch::Receiver<Revision> {
        self.store.watch_head()
    }
    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        self.store.put_sessions(rows).await
    }
    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        self.store.claim_session(key, document, instead_of).await
    }
    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.store.sessions(prefix).await
    }
}

struct Replica {
    cut: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), LeadError>>,
}

fn candidate(store: &Arc<MemoryStore>, zone: &str, alone: bool) -> Candidate {
    let store = Arc::clone(store) as Arc<dyn Store>;
    Candidate::new(store, Mode::standalone_zone(zone), &Env::system("test"), alone)
}

fn start(store: &Arc<MemoryStore>, name: &'static str, log: &Log) -> Replica {
    let cut = Arc::new(AtomicBool::new(false));
    let reached = Reached { store: Arc::clone(store), cut: Arc::clone(&cut) };
    let candidate =
        Candidate::new(Arc::new(reached), Mode::standalone_zone("east"), &Env::system("test"), false);
    let stop = CancellationToken::new();
    let task = tokio::spawn(candidate.run(Noted(name, log.clone()), stop.clone()));
    Replica { cut, stop, task }
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(Uuid::nil()))
}

#[tokio::test(start_paused = true)]
async fn one_replica_leads_and_another_follows_when_it_stops() {
    let (store, log) = (store(), Log::default());
    let first = start(&store, "a", &log);
    log.until(("a", "leads", 1)).await;
    let second = start(&store, "b", &log);
    log.until(("b", "stands by", 0)).await;
    let stopped = Instant::now();
    first.stop.cancel();
    log.until(("b", "leads", 2)).await;
    assert!(stopped.elapsed() <= RENEW, "nobody waits for a lease that was given back");
    first.task.await.unwrap().unwrap();
    second.stop.cancel();
    second.task.await.unwrap().unwrap();
    let leads: Vec<_> = log.all().into_iter().filter(|(_, what, _)| *what != "stands by").collect();
    assert_eq!(leads, [("a", "leads", 1), ("a", "ends", 1), ("b", "leads", 2), ("b", "ends", 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_ends_before_another_begins() {
    let (store, log) = (store(), Log::default());
    let first = start(&store, "a", &log);
    log.until(("a", "leads", 1)).await;
    let _second = start(&store, "b", &log);
    log.until(("b", "stands by", 0)).await;
    let cut = Instant::now();
    first.cut.store(true, Ordering::Relaxed);
    log.until(("b", "leads", 2)).await;
    assert!(cut.elapsed() <= TERM + RENEW);
    let all = log.all();
    let at = |entry| all.iter().position(|e| *e == entry).unwrap();
    assert!(at(("a", "ends", 1)) < at(("b", "leads", 2)), "{all:?}");
    // Back again, it waits for its turn.
    first.cut.store(false, Ordering::Relaxed);
    log.until(("a", "stands by", 0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_has_its_store_alone_waits_for_nobody() {
    let (store, log) = (store(), Log::default());
    // What a process that was killed left behind.
    store.acquire(LEASE, "dead", TERM, false).await.unwrap().unwrap();
    let started = Instant::now();
    let stop = CancellationToken::new();
    let task = tokio::spawn(candidate(&store, "east", true).run(Noted("a", log.clone()), stop.clone()));
    log.until(("a", "leads", 2)).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    stop.cancel();
    task.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_zone_under_another_name_waits_until_the_former_one_is_gone() {
    let (store, log) = (store(), Log::default());
    assert_eq!(candidate(&store, "east", true).enter().await.unwrap(), None);
    // The lease of the one that began to start runs out, and another replica leads.
    tokio::time::advance(TERM).await;
    let running = start(&store, "east", &log);
    log.until(("east", "leads", 2)).await;
    let west = candidate(&store, "west", false);
    let refused = west.enter().await.unwrap_err().to_string();
    assert!(refused.contains("zone east runs on this store") && refused.contains("10s"), "{refused}");
    running.stop.cancel();
    running.task.await.unwrap().unwrap();
    assert_eq!(west.enter().await.unwrap().as_deref(), Some("east"));

    // A replica of the former one that only stood by, or starts now, hears whose the store is.
    let late = candidate(&store, "east", false).enter().await.unwrap_err().to_string();
    assert!(late.contains("zone west runs on this store"), "{late}");
    let standby = start(&store, "standby", &log);
    let told = standby.task.await.unwrap().unwrap_err().to_string();
    assert!(told.contains("belongs to zone west, and this is zone east"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn of_zones_that_start_at_once_on_one_store_one_has_it_and_nobody_is_renamed() {
    for names in [["east", "west"], ["west", "east"]] {
        let store = store();
        let [first, second] = names.map(|name| candidate(&store, name, false));
        let (first, second) = tokio::join!(first.enter(), second.enter());
        assert_eq!(first.unwrap(), None);
        let refused = second.unwrap_err().to_string();
        assert!(refused.contains(&format!("zone {} runs on this store", names[0])), "{refused}");
        let here = Arc::clone(&store) as Arc<dyn Store>;
        let owner = role::owner(&here, &Mode::standalone_zone(names[1])).await.unwrap();
        assert_eq!(owner, StoreOwner::Zone(names[0].to_owned()));
    }
}

#[tokio::test(start_paused = true)]
async fn who_finds_a_lease_of_a_zone_that_has_not_said_its_name_waits_for_the_name() {
    let store = store();
    let dead = candidate(&store, "dead", false);
    dead.ask(false).await.unwrap().unwrap();
    let began = Instant::now();
    assert_eq!(candidate(&store, "east", false).enter().await.unwrap(), None);
    assert!(began.elapsed() <= TERM + LOOK);
    // Replicas of one zone start together.
    assert_eq!(candidate(&store, "east", false).enter().await.unwrap(), None);
}
