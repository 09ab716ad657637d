//! Keeps the index equal to the store.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rand::Rng;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Changes, Store, StoreError,
    index::{Index, IndexReader},
};
use crate::{
    events::{Event, EventBus, ResourceChange},
    model::ResourceKey,
};

/// Entries read from the feed at once.
const PAGE: usize = 1_000;
/// The head is only a hint, so the feed is read this often even when nobody woke us.
const IDLE_READ: Duration = Duration::from_secs(5);
/// Pause after a failed read; doubled up to [`IDLE_READ`] while reads fail.
const RETRY: Duration = Duration::from_millis(250);
/// How often the index is compared with everything in the store. It never differs, unless something
/// wrote past the feed.
const AUDIT: Duration = Duration::from_secs(600);

/// The one writer of the index.
pub struct Feed {
    store: Arc<dyn Store>,
    index: watch::Sender<Arc<Index>>,
    losses: watch::Sender<u64>,
    bus: EventBus,
    /// When all of it was last read.
    read: watch::Sender<Instant>,
}

impl Feed {
    /// Loads the index; the process is not ready before this returned.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn load(store: Arc<dyn Store>) -> Result<Self, StoreError> {
        let index = Index::of(store.identity(), store.snapshot().await?);
        measure(&index);
        let (index, losses) = (watch::Sender::new(Arc::new(index)), watch::Sender::new(0));
        Ok(Self { store, index, losses, bus: EventBus::new(1), read: watch::Sender::new(Instant::now()) })
    }

    /// Tells `bus` what changes, once the index shows it.
    #[must_use]
    pub fn telling(self, bus: EventBus) -> Self {
        Self { bus, ..self }
    }

    /// A handle for readers.
    pub fn reader(&self) -> IndexReader {
        IndexReader::new(self.index.subscribe()).hearing_of(self.losses.subscribe())
    }

    /// When the store was last read up to its end.
    pub fn last_read(&self) -> watch::Receiver<Instant> {
        self.read.subscribe()
    }

    /// Follows the store until `shutdown`. A store that cannot be read is tried again: readers keep the
    /// last index meanwhile.
    ///
    /// # Errors
    /// [`StoreError::Foreign`] when the store is no longer the one that was opened.
    pub async fn run(self, shutdown: CancellationToken) -> Result<(), StoreError> {
        let mut head = self.store.watch_head();
        let mut retry = RETRY;
        let mut audit_at = Instant::now() + AUDIT;
        while !shutdown.is_cancelled() {
            // Seen before it is read: a commit during the read wakes us again.
            head.mark_unchanged();
            let mut outcome = self.catch_up().await;
            if outcome.is_ok() {
                self.read.send_replace(Instant::now());
            }
            if outcome.is_ok() && Instant::now() >= audit_at {
                audit_at = Instant::now() + AUDIT;
                outcome = self.audit().await;
            }
            let failed = outcome.is_err();
            match outcome {
                Ok(()) if retry > RETRY => tracing::info!("the change feed can be read again"),
                Err(error @ StoreError::Foreign(_)) => return Err(error),
                Err(error) if retry == RETRY => {
                    tracing::warn!(%error, "cannot read the change feed, readers keep the last index");
                }
                _ => {}
            }
            // Replicas that lost one database together do not come back together.
            let apart = || rand::rng().random_range(0.75..=1.0);
            let pause = if failed { retry.mul_f64(apart()) } else { IDLE_READ };
            retry = if failed { (retry * 2).min(IDLE_READ) } else { RETRY };
            tokio::select! {
                () = shutdown.cancelled() => {}
                Ok(()) = head.changed(), if !failed => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        Ok(())
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        while self.advance().await? {}
        Ok(())
    }

    /// Shows what is stored now, if that is anything new. A page may show a resource as a later batch left it, beyond
    /// the page; so what is read between two pages was never so, and is shown to nobody: a zone could be sent what the
    /// rest of that batch keeps from it.
    async fn advance(&self) -> Result<bool, StoreError> {
        let current = Arc::clone(&self.index.borrow());
        let (mut next, mut told, mut seen) = (Index::clone(&current), Vec::new(), 0);
        loop {
            match self.store.changes_since(next.point(), PAGE).await? {
                Changes::Since { changes, upto, head } => {
                    // A database shows a commit before the memory of the process that made it: whatever a page may have
                    // shown of the head of its time is told to the end.
                    seen = seen.max(head);
                    let is_last = upto.revision == next.revision || upto.revision >= seen;
                    changes.iter().for_each(|change| next.apply(change));
                    next.reach(upto);
                    // Without the contents: what a later page replaces is let go with its page.
                    told.extend(changes.iter().map(ResourceChange::from));
                    if is_last {
                        break;
                    }
                }
                Changes::Resync => {
                    tracing::info!(
                        current.revision,
                        "the change feed no longer reaches back, taking a snapshot"
                    );
                    self.replace(Index::of(self.store.identity(), self.store.snapshot().await?));
                    return Ok(true);
                }
                Changes::Parted => {
                    self.start_over(&current).await?;
                    return Ok(true);
                }
            }
        }
        if next.revision == current.revision {
            return Ok(false);
        }
        measure(&next);
        self.index.send_replace(Arc::new(next));
        self.bus.resources_changed(&told);
        Ok(true)
    }

    /// Shows what is left of a store that lost its end.
    async fn start_over(&self, known: &Index) -> Result<(), StoreError> {
        let left = Index::of(self.store.identity(), self.store.snapshot().await?);
        tracing::error!(
            known.revision,
            left.revision,
            "the database lost the end of what was stored, as by a failover to a standby that was behind: what was \
             acknowledged last may be gone; taking what is there"
        );
        self.replace(left);
        self.losses.send_modify(|losses| *losses += 1);
        Ok(())
    }

    fn replace(&self, index: Index) {
        let revision = index.revision;
        measure(&index);
        self.index.send_replace(Arc::new(index));
        self.bus.publish(Event::IndexReplaced { revision });
    }

    /// Has the store look for damage, then compares the index with all of it and repairs the index.
    async fn audit(&self) -> Result<(), StoreError> {
        self.store.check().await?;
        let stored = Index::of(self.store.identity(), self.store.snapshot().await?);
        // Whatever was written before the snapshot is in the index then, and what was written since is known.
        self.catch_up().await?;
        let current = Arc::clone(&self.index.borrow());
        let (mut later, mut read): (BTreeSet<ResourceKey>, _) = (BTreeSet::new(), stored.point());
        loop {
            let Changes::Since { changes, upto, head } = self.store.changes_since(read, PAGE).await? else {
                // The next audit looks.
                return Ok(());
            };
            later.extend(changes.into_iter().map(|change| change.key));
            let is_last = upto.revision == read.revision || upto.revision >= head;
            read = upto;
            if is_last {
                break;
            }
        }
        let mut differing = stored.changed_since(&current);
        differing.retain(|key| !later.contains(key) && stored.get(key) != current.get(key));
        if !differing.is_empty() {
            tracing::error!(
                revision = stored.revision,
                ?differing,
                "the index differs from the store in what nobody has changed since; something wrote past the change \
                 feed; taking what is stored"
            );
            self.replace(Index::of(self.store.identity(), self.store.snapshot().await?));
        }
        Ok(())
    }
}

/// How far this process is: among replicas of one store, who is behind.
fn measure(index: &Index) {
    // Exact up to 2^53 revisions.
    metrics::gauge!("store_revision").set(index.revision as f64);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::{
        collections::VecDeque,
        sync::{
            Mutex,
            atomic::{AtomicBool, Ordering},
        },
    };

    use async_trait::async_trait;
    use uuid::Uuid;

    use super::*;
    use crate::{
        model::{Resource, ResourceKey, kinds},
        store::{
            Batch, Change, Commit, Lease, Point, Revision, Snapshot, StoreIdentity, Write,
            contract::index_of, memory::MemoryStore,
        },
    };

    /// A store whose wake-ups are all lost, and which can be made to write past its feed, to be written to whenever
    /// somebody takes a snapshot, and to become another.
    struct Deaf {
        store: Mutex<Arc<MemoryStore>>,
        head: watch::Sender<Revision>,
        past: Mutex<Option<Arc<Resource>>>,
        is_busy: AtomicBool,
        /// What it answers next, whatever is in it.
        pages: Mutex<VecDeque<Changes>>,
    }

    impl Deaf {
        fn with_retention(retained: usize) -> Arc<Self> {
            let store = Mutex::new(Arc::new(MemoryStore::with_retention(Uuid::nil(), retained)));
            let (head, past, pages) = (watch::Sender::new(0), Mutex::default(), Mutex::default());
            Arc::new(Self { store, head, past, is_busy: AtomicBool::default(), pages })
        }

        fn store(&self) -> Arc<MemoryStore> {
            Arc::clone(&self.store.lock().unwrap())
        }
    }

    #[async_trait]
    impl Store for Deaf {
        fn identity(&self) -> StoreIdentity {
            self.store().identity()
        }
        async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
            self.store().transact(batch).await
        }
        async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
            let scripted = self.pages.lock().unwrap().pop_front();
            if let Some(page) = scripted {
                return Ok(page);
            }
            self.store().changes_since(after, limit).await
        }
        async fn snapshot(&self) -> Result<Snapshot, StoreError> {
            if self.is_busy.load(Ordering::Relaxed) {
                put(self, format!("busy-{}", self.store().snapshot().await?.revision)).await;
            }
            let mut snapshot = self.store().snapshot().await?;
            snapshot.resources.extend(self.past.lock().unwrap().clone());
            Ok(snapshot)
        }
        fn watch_head(&self) -> watch::Receiver<Revision> {
            self.head.subscribe()
        }
        async fn acquire(
            &self,
            name: &str,
            holder: &str,
            ttl: Duration,
            steal: bool,
        ) -> Result<Option<Lease>, StoreError> {
            self.store().acquire(name, holder, ttl, steal).await
        }
        async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
            self.store().release(lease).await
        }
        async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
            self.store().put_sessions(rows).await
        }
        async fn claim_session(
            &self,
            key: &str,
            document: &str,
            instead_of: Option<&str>,
        ) -> Result<String, StoreError> {
            self.store().claim_session(key, document, instead_of).await
        }
        async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
            self.store().sessions(prefix).await
        }
    }

    fn zone(name: &str) -> Resource {
        Resource::new(ResourceKey::global(&kinds::zone::KIND, name), chrono::DateTime::UNIX_EPOCH)
    }

    async fn put(store: &dyn Store, name: String) -> Revision {
        store.transact(Batch::of([Write::put(zone(&name))])).await.unwrap().revision
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_wakeup_costs_a_moment_and_an_overrun_window_a_snapshot() {
        let store = Deaf::with_retention(10);
        let bus = EventBus::new(64);
        let mut events = bus.subscribe("test");
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap().telling(bus);
        let reader = feed.reader();
        let shutdown = CancellationToken::new();
        let written = async {
            for burst in [3, 50] {
                let mut last = 0;
                for n in 0..burst {
                    last = put(&*store, format!("{burst}-{n}")).await;
                }
                let index = reader.wait_for(last).await.unwrap();
                let stored = index_of(&*store).await;
                assert!(index.revision == stored.revision && index.iter().eq(stored.iter()));
            }
            // The bus tells each change as long as the feed does, else that there is more than it can tell.
            let Ok(Event::ResourcesChanged(changes)) = events.next().await else { panic!("no changes") };
            let told: Vec<_> = changes.iter().map(|c| (c.revision, &*c.key.name, c.deleted)).collect();
            assert_eq!(told, [(1, "3-0", false), (2, "3-1", false), (3, "3-2", false)]);
            assert_eq!(events.next().await, Ok(Event::IndexReplaced { revision: 53 }));
            shutdown.cancel();
        };
        let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), written);
        followed.unwrap();
    }

    /// The first page is read from a database and shows `early` as the third batch left it, the second comes from a memory
    /// that has not heard of that batch. Between the two everything was never so.
    #[tokio::test]
    async fn what_a_page_shows_of_a_later_batch_is_shown_to_nobody_without_the_rest_of_it() {
        let store = Deaf::with_retention(10);
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let change = |revision: Revision, name: &str, is_at: Revision| {
            let resource = Resource { revision: is_at, ..zone(name) };
            Change { revision, key: resource.key.clone(), resource: Some(Arc::new(resource)) }
        };
        let page = |changes: Vec<Change>, upto: Revision, head: Revision| Changes::Since {
            changes,
            upto: upto.into(),
            head,
        };
        store.pages.lock().unwrap().extend([
            page(vec![change(1, "early", 3)], 1, 3),
            page(vec![change(2, "other", 2)], 2, 2),
            page(vec![change(3, "early", 3), change(3, "late", 3)], 3, 3),
            // Short, and not the last.
            page(vec![change(4, "other", 4)], 4, 5),
            page(vec![change(5, "other", 5)], 5, 5),
        ]);
        let mut shown = Vec::new();
        while !store.pages.lock().unwrap().is_empty() {
            assert!(feed.advance().await.unwrap());
            let index = feed.reader().current();
            shown.push((index.revision, index.count(&kinds::zone::KIND)));
        }
        assert_eq!(shown, [(3, 3), (5, 3)]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_past_the_feed_is_found() {
        let store = Deaf::with_retention(10);
        let bus = EventBus::new(64);
        let mut events = bus.subscribe("test");
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap().telling(bus);
        let mut reader = feed.reader();
        *store.past.lock().unwrap() = Some(Arc::new(zone("smuggled")));
        let shutdown = CancellationToken::new();
        let found = async {
            while reader.latest().find(&kinds::zone::KIND, "", "smuggled").is_none() {
                assert!(reader.changed().await);
            }
            assert_eq!(events.next().await, Ok(Event::IndexReplaced { revision: 0 }));
            shutdown.cancel();
        };
        let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), found);
        followed.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_written_past_the_feed_is_found_also_where_somebody_writes_all_the_time() {
        let store = Deaf::with_retention(1_000);
        let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
        let mut reader = feed.reader();
        *store.past.lock().unwrap() = Some(Arc::new(zone("smuggled")));
        store.is_busy.store(true, Ordering::Relaxed);
        let shutdown = CancellationToken::new();
        let found = async {
            while reader.latest().find(&kinds::zone::KIND, "", "smuggled").is_none() {
                assert!(reader.changed().await);
            }
            shutdown.cancel();
        };
        let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), found);
        followed.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_store_has_lost_is_lost_also_when_it_is_past_its_old_end_already() {
        for written_instead in [0, 2, 9] {
            let store = Deaf::with_retention(1_000);
            put(&*store, "kept".to_owned()).await;
            let behind = store.store().copy();
            put(&*store, "revoked".to_owned()).await;
            put(&*store, "revoked".to_owned() + "-too").await;
            let bus = EventBus::new(64);
            let mut events = bus.subscribe("test");
            let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap().telling(bus);
            let reader = feed.reader();
            let (loss, shutdown) = (reader.loss(), CancellationToken::new());
            assert_eq!(reader.current().count(&kinds::zone::KIND), 3);
            *store.store.lock().unwrap() = Arc::new(behind);
            for n in 0..written_instead {
                put(&*store, format!("instead-{n}")).await;
            }
            let noticed = async {
                loss.await;
                let (index, stored) = (reader.current(), index_of(&*store).await);
                assert!(index.point() == stored.point() && index.iter().eq(stored.iter()));
                assert_eq!(events.next().await, Ok(Event::IndexReplaced { revision: 1 + written_instead }));
                // Who waits for what was lost is not kept waiting, and who comes now hears of no loss.
                let stale = reader.wait_long_for(100).await.unwrap();
                assert_eq!(stale.revision, 1 + written_instead);
                assert!(futures::poll!(std::pin::pin!(reader.loss())).is_pending());
                shutdown.cancel();
            };
            let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), noticed);
            followed.unwrap();
        }
    }
}
