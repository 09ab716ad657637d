#![allow(clippy::unwrap_used)]
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use common::kds::clock::ClockSkew;
use common::store::{
    Batch, Changes, Commit, Lease, Point, Revision, Snapshot, StoreIdentity, memory::MemoryStore,
};
use tokio::sync::watch;
use uuid::Uuid;

use super::*;

const PATIENCE: Patience =
    Patience { unknown_after: Duration::from_secs(10), offline_after: Duration::from_secs(20) };

fn report(instance: &str, epoch: u64, beat: u64) -> SessionReport {
    let status = ZoneStatus { status: ZoneHealth::Online, ..ZoneStatus::default() };
    SessionReport { instance: instance.to_owned(), epoch, beat, status }
}

#[tokio::test(start_paused = true)]
async fn another_instance_is_believed_while_it_speaks() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let (here, there) = ("here", "there");
    let other = Replicas::new(there.into(), Arc::clone(&store));
    let this = Replicas::new(here.into(), Arc::clone(&store));
    let health = || this.status("zone-1", Instant::now(), PATIENCE).map(|s| s.status);
    assert_eq!(health(), None);
    other.exchange(vec![("zone-1".into(), report(there, 3, 1))], |_| true).await.unwrap();
    this.exchange(Vec::new(), |_| true).await.unwrap();
    assert_eq!(health(), Some(ZoneHealth::Unknown), "nobody knows how old that is");
    other.exchange(vec![("zone-1".into(), report(there, 3, 2))], |_| true).await.unwrap();
    this.exchange(Vec::new(), |_| true).await.unwrap();
    assert_eq!(health(), Some(ZoneHealth::Online));
    assert_eq!(this.epoch("zone-1"), Some(3));
    assert_eq!(other.epoch("zone-1"), None, "that is its own");
    assert_eq!(this.instance("zone-1").as_deref(), Some(there));
    assert_eq!(other.instance("zone-1"), None);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(health(), Some(ZoneHealth::Unknown));
    tokio::time::advance(Duration::from_secs(10)).await;
    assert_eq!(health(), Some(ZoneHealth::Offline));

    let written = async || store.sessions(PREFIX).await.unwrap().len();
    assert_eq!(written().await, 1);
    this.exchange(Vec::new(), |zone| zone != "zone-1").await.unwrap();
    assert_eq!((health(), written().await), (None, 0), "the zone was deleted");
}

/// A store that can be away.
struct Away {
    store: MemoryStore,
    is_away: AtomicBool,
    /// Documents that were written.
    written: AtomicUsize,
    /// Documents cannot be read while somebody has it.
    hangs: tokio::sync::Mutex<()>,
}

impl Away {
    fn at_first_there() -> Arc<Self> {
        let (is_away, hangs) = (AtomicBool::new(false), tokio::sync::Mutex::default());
        let written = AtomicUsize::new(0);
        Arc::new(Self { store: MemoryStore::new(Uuid::nil()), is_away, written, hangs })
    }

    fn at_hand(&self) -> Result<&MemoryStore, StoreError> {
        match self.is_away.load(Ordering::Relaxed) {
            true => Err(StoreError::Unwritable("away".into())),
            false => Ok(&self.store),
        }
    }
}

#[async_trait]
impl Store for Away {
    fn identity(&self) -> StoreIdentity {
        self.store.identity()
    }
    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        self.at_hand()?.transact(batch).await
    }
    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        self.at_hand()?.changes_since(after, limit).await
    }
    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.at_hand()?.snapshot().await
    }
    fn watch_head(&self) -> watch::Receiver<Revision> {
        self.store.watch_head()
    }
    async fn acquire(
        &self,
        name: &str,
        holder: &str,
        ttl: Duration,
        steal: bool,
    ) -> Result<Option<Lease>, StoreError> {
        self.at_hand()?.acquire(name, holder, ttl, steal).await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.at_hand()?.release(lease).await
    }
    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        let store = self.at_hand()?;
        self.written.fetch_add(rows.len(), Ordering::Relaxed);
        store.put_sessions(rows).await
    }
    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        self.at_hand()?.claim_session(key, document, instead_of).await
    }
    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        let _free = self.hangs.lock().await;
        self.at_hand()?.sessions(prefix).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_store_is_nobodys_silence() {
    let away = Away::at_first_there();
    let store = Arc::clone(&away) as Arc<dyn Store>;
    let other = Replicas::new("there".into(), Arc::clone(&store));
    let this = Replicas::new("here".into(), store);
    let health = || this.status("zone-1", Instant::now(), PATIENCE).map(|s| s.status);
    let speaks =
        async |beat| other.exchange(vec![("zone-1".into(), report("there", 3, beat))], |_| true).await;
    speaks(1).await.unwrap();
    this.exchange(Vec::new(), |_| true).await.unwrap();
    speaks(2).await.unwrap();
    this.exchange(Vec::new(), |_| true).await.unwrap();
    away.is_away.store(true, Ordering::Relaxed);
    for _ in 0..20 {
        assert!(speaks(3).await.is_err() && this.exchange(Vec::new(), |_| true).await.is_err());
        tokio::time::advance(EXCHANGE).await;
        assert_eq!(health(), Some(ZoneHealth::Online), "nobody could have said anything");
    }
    assert_eq!(this.shut_until(Instant::now()), Some(Instant::now()));
    away.is_away.store(false, Ordering::Relaxed);
    // The other instance has not got round to it yet.
    this.exchange(Vec::new(), |_| true).await.unwrap();
    let back = Instant::now();
    tokio::time::advance(EXCHANGE + Duration::from_secs(4)).await;
    assert_eq!(this.shut_until(Instant::now()), Some(back), "zones can come from then on");
    assert_eq!(health(), Some(ZoneHealth::Online));
    // And it never does.
    tokio::time::advance(EXCHANGE).await;
    assert_eq!(health(), Some(ZoneHealth::Unknown));
    tokio::time::advance(EXCHANGE * 2).await;
    assert_eq!(health(), Some(ZoneHealth::Offline));
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_store_that_takes_long_is_nobodys_silence() {
    let away = Away::at_first_there();
    let store = Arc::clone(&away) as Arc<dyn Store>;
    let other = Replicas::new("there".into(), Arc::clone(&store));
    let this = Arc::new(Replicas::new("here".into(), store));
    let health = || this.status("zone-1", Instant::now(), PATIENCE).map(|s| s.status);
    for beat in 1..=2 {
        other.exchange(vec![("zone-1".into(), report("there", 3, beat))], |_| true).await.unwrap();
        this.exchange(Vec::new(), |_| true).await.unwrap();
    }
    tokio::time::advance(EXCHANGE).await;
    let hanging = away.hangs.lock().await;
    let mut asking = std::pin::pin!(this.exchange(Vec::new(), |_| true));
    assert!(futures::poll!(&mut asking).is_pending());
    tokio::time::advance(EXCHANGE * 4).await;
    assert_eq!(health(), Some(ZoneHealth::Online), "it is still asked");
    drop(hanging);
    asking.await.unwrap();
    assert_eq!(health(), Some(ZoneHealth::Online), "the time it took does not count");
    tokio::time::advance(EXCHANGE).await;
    assert_eq!(health(), Some(ZoneHealth::Unknown));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_renews_is_offline_in_the_end() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::nil()));
    let dead = Replicas::new("dead".into(), Arc::clone(&store));
    dead.exchange(vec![("zone-1".into(), report("dead", 3, 1))], |_| true).await.unwrap();
    let this = Replicas::new("here".into(), store);
    this.exchange(Vec::new(), |_| true).await.unwrap();
    let health = || this.status("zone-1", Instant::now(), PATIENCE).map(|s| s.status);
    tokio::time::advance(Duration::from_secs(19)).await;
    assert_eq!(health(), Some(ZoneHealth::Unknown));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert_eq!(health(), Some(ZoneHealth::Offline));
}

#[tokio::test(start_paused = true)]
async fn who_can_have_no_others_writes_what_is_new_and_still_sees_that_the_store_is_away() {
    let away = Away::at_first_there();
    let this = Replicas::new("here".into(), Arc::clone(&away) as Arc<dyn Store>);
    let mut noted = NotedReports::default();
    let mut beats = async |beat: u64, acked: u64| {
        let own = |n: u64| {
            let mut said = report("here", 1, beat);
            said.status.clock = Some(ClockSkew { ahead_ms: beat.cast_signed(), ..ClockSkew::default() });
            said.status.down.acked = if n == 7 { acked } else { 0 };
            (Arc::from(format!("zone-{n}")), said)
        };
        let due = noted.due((0..100).map(own).collect());
        let written = this.write(&due).await;
        if written.is_ok() {
            noted.note(&due);
        }
        written.is_ok()
    };
    let rows = || away.written.swap(0, Ordering::Relaxed);
    assert!(beats(1, 0).await);
    assert_eq!(rows(), 100);
    for beat in 2..=51 {
        assert!(beats(beat, 0).await);
    }
    assert_eq!(rows(), 50, "one each time, in turn");
    assert!(beats(52, 9).await);
    assert_eq!(rows(), 2, "that, and what is new");
    assert_eq!(this.shut_until(Instant::now()), None);
    away.is_away.store(true, Ordering::Relaxed);
    tokio::time::advance(EXCHANGE).await;
    assert!(!beats(53, 11).await);
    assert_eq!(this.shut_until(Instant::now()), Some(Instant::now()), "at the next beat");
    away.is_away.store(false, Ordering::Relaxed);
    tokio::time::advance(EXCHANGE).await;
    assert!(beats(54, 11).await);
    assert_eq!(rows(), 2, "what could not be written is new still");
    assert_eq!(
        this.shut_until(Instant::now() + EXCHANGE),
        Some(Instant::now()),
        "zones can come from then on"
    );
}
