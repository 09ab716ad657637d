//! Which history global shows to its zones.
//!
//! It is that of the store until an operator says that it goes on in another one: a store that was restored from a
//! backup shows the next epoch, and one that was filled from what zones hold goes on with the history they followed.
//! What was said is kept beside the resources, so that all replicas show the same.

use std::sync::Arc;

use common::{
    kds::headers::Upstream,
    store::{Revision, Store, StoreError, StoreIdentity},
};
use tokio::sync::watch;

/// Under this key the store remembers it.
const HISTORY: &str = "kds/history";

/// The history shown. Cheap to clone.
#[derive(Clone)]
pub(crate) struct ZoneHistory(Arc<HistoryInner>);

struct HistoryInner {
    store: Arc<dyn Store>,
    shown: watch::Sender<StoreIdentity>,
}

impl ZoneHistory {
    /// The history of `store` itself, until [`ZoneHistory::refresh`] finds that another was said.
    pub(crate) fn of(store: Arc<dyn Store>) -> Self {
        let shown = watch::Sender::new(store.identity());
        Self(Arc::new(HistoryInner { store, shown }))
    }

    /// What zones are shown.
    pub(crate) fn shown(&self) -> StoreIdentity {
        *self.0.shown.borrow()
    }

    /// The same, to see it change.
    pub(super) fn watch(&self) -> watch::Receiver<StoreIdentity> {
        self.0.shown.subscribe()
    }

    /// Reads what was said, here or by another replica. True when zones are shown something else now.
    ///
    /// # Errors
    /// When the store cannot be read; what was shown is shown further.
    pub(crate) async fn refresh(&self) -> Result<bool, StoreError> {
        let rows = self.0.store.sessions(HISTORY).await?;
        let said = rows.iter().find(|(key, _)| key == HISTORY).and_then(|(_, text)| Upstream::parse(text));
        Ok(self.show(said.map_or_else(|| self.0.store.identity(), identity)))
    }

    /// Goes on as `next` from `revision` on, for all replicas.
    ///
    /// # Errors
    /// When it cannot be written down; nothing changes then.
    pub(crate) async fn go_on(&self, next: StoreIdentity, revision: Revision) -> Result<(), StoreError> {
        let text = Upstream::new(next, revision).to_text();
        self.0.store.put_sessions(vec![(HISTORY.to_owned(), Some(text))]).await?;
        self.show(next);
        Ok(())
    }

    fn show(&self, next: StoreIdentity) -> bool {
        self.0.shown.send_if_modified(|shown| std::mem::replace(shown, next) != next)
    }
}

fn identity(at: Upstream) -> StoreIdentity {
    StoreIdentity { store_id: at.store_id, epoch: at.epoch }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use common::store::memory::MemoryStore;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn what_one_replica_says_all_of_them_show() {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Uuid::from_u128(7)));
        let (here, there) = (ZoneHistory::of(Arc::clone(&store)), ZoneHistory::of(Arc::clone(&store)));
        assert!(!here.refresh().await.unwrap(), "nobody said anything");
        assert_eq!(here.shown(), store.identity());
        let next = StoreIdentity { store_id: Uuid::from_u128(1), epoch: 4 };
        here.go_on(next, 12).await.unwrap();
        assert_eq!((here.shown(), there.shown()), (next, store.identity()));
        assert!(there.refresh().await.unwrap());
        assert_eq!(there.shown(), next);
        assert!(!there.refresh().await.unwrap());
    }
}
