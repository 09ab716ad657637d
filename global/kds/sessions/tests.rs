#![allow(clippy::unwrap_used)]
use std::{pin::pin, task::Poll};

use async_trait::async_trait;
use common::{
    kds::{features::Features, headers::KdsCaller},
    store::{Batch, Changes, Commit, Lease, Point, Revision, Snapshot, StoreIdentity, memory::MemoryStore},
};
use uuid::Uuid;

use super::*;

/// A store that never hands out a lease.
struct NoLeases(MemoryStore);

#[async_trait]
impl Store for NoLeases {
    fn identity(&self) -> StoreIdentity {
        self.0.identity()
    }
    async fn transact(&self, batch: Batch) -> Result<Commit, StoreError> {
        self.0.transact(batch).await
    }
    async fn changes_since(&self, after: Point, limit: usize) -> Result<Changes, StoreError> {
        self.0.changes_since(after, limit).await
    }
    async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        self.0.snapshot().await
    }
    fn watch_head(&self) -> watch::Receiver<Revision> {
        self.0.watch_head()
    }
    async fn acquire(
        &self,
        _name: &str,
        _holder: &str,
        _ttl: Duration,
        _steal: bool,
    ) -> Result<Option<Lease>, StoreError> {
        std::future::pending().await
    }
    async fn release(&self, lease: &Lease) -> Result<(), StoreError> {
        self.0.release(lease).await
    }
    async fn put_sessions(&self, rows: Vec<(String, Option<String>)>) -> Result<(), StoreError> {
        self.0.put_sessions(rows).await
    }
    async fn claim_session(
        &self,
        key: &str,
        document: &str,
        instead_of: Option<&str>,
    ) -> Result<String, StoreError> {
        self.0.claim_session(key, document, instead_of).await
    }
    async fn sessions(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.0.sessions(prefix).await
    }
}

fn caller(zone: &str) -> ZoneCaller {
    let caller = KdsCaller {
        zone: zone.to_owned(),
        features: Features::default(),
        session: None,
        token: None,
        version: String::new(),
        issuing_request: None,
    };
    caller.into()
}

#[tokio::test(start_paused = true)]
async fn who_hangs_up_before_his_session_is_there_has_begun_one() {
    let store = Arc::new(NoLeases(MemoryStore::new(Uuid::nil())));
    let sessions = Sessions::new(store, Env::system("here"), EventBus::new(64), watch::Sender::new(()));
    let stolen = caller("stolen");
    let mut begun = 0;
    for _ in 0..2 * SESSIONS.burst {
        // Or what is free would be waited for: a task may not take without end.
        tokio::task::yield_now().await;
        let joining = pin!(sessions.join(&stolen, DateTime::UNIX_EPOCH, StreamKind::GlobalToZone));
        // Dropped after the first look, as the call of a peer that goes.
        match futures::poll!(joining) {
            Poll::Pending => begun += 1,
            Poll::Ready(joined) => assert!(matches!(joined, Err(JoinError::TooOften { .. }))),
        }
    }
    assert_eq!(begun, SESSIONS.burst);
    assert!(matches!(sessions.require_pace("stolen"), Err(JoinError::TooOften { .. })));
    assert!(sessions.require_pace("honest").is_ok());
}
