//! What survives: a lost wake-up, a restart, the end.

use super::*;

/// A process that dies after the commit tells nobody; a reader behind it must still find the change.
pub async fn a_reader_catches_up_when_the_wakeup_was_lost(stores: &dyn Stores) {
    let home = stores.fresh(RETAINED).await;
    let store = home.open().await;
    put(&*store, policy("seen", 1)).await;
    let mut reader = index_of(&*store).await;
    put(&*store, policy("unseen", 1)).await;
    put(&*store, policy("seen", 2)).await;
    // Neither closed nor waited for, as in a crash.
    drop(store);
    let store = home.open().await;
    follow(&*store, &mut reader, 1).await;
    assert_eq!(reader.revision, 3);
    assert_same(&reader, &index_of(&*store).await);
    assert_eq!(*store.watch_head().borrow(), 3, "a new reader starts from the head");
}

pub async fn reopening_keeps_everything(stores: &dyn Stores) {
    let home = stores.fresh(RETAINED).await;
    if !home.durable() {
        return;
    }
    let store = home.open().await;
    let identity = store.identity();
    store.transact(Batch::of([Write::put(mesh("m")), Write::put(policy("a", 1))])).await.unwrap();
    store.transact(Batch::of([Write::delete_when(mesh("m").key, Precondition::Exists)])).await.unwrap();
    let lease =
        store.acquire("leader", "a", std::time::Duration::from_secs(3600), false).await.unwrap().unwrap();
    store.put_sessions(vec![("zone/a".to_owned(), Some("{}".to_owned()))]).await.unwrap();
    let (before, log) = (index_of(&*store).await, logged(&*store).await);
    store.close().await;
    drop(store);

    let store = home.open().await;
    assert_eq!(store.identity(), identity);
    assert_same(&index_of(&*store).await, &before);
    assert_eq!(logged(&*store).await, log);
    assert_eq!(store.sessions("zone/").await.unwrap().len(), 1);
    let next = store.acquire("leader", "b", std::time::Duration::ZERO, true).await.unwrap().unwrap();
    assert_eq!(next.epoch, lease.epoch + 1);
    assert_eq!(put(&*store, policy("b", 1)).await.revision, before.revision + 1);
}

/// What changed at which revision, whatever became of it since.
async fn logged(store: &dyn Store) -> Vec<(Revision, ResourceKey)> {
    entries(store, 0).await.into_iter().map(|(revision, key, _)| (revision, key)).collect()
}

/// What was queued before the end is committed; what comes after is an error, not a hang.
pub async fn a_closed_store_says_so(stores: &dyn Stores) {
    let home = stores.fresh(RETAINED).await;
    if !home.durable() {
        return;
    }
    let store = home.open().await;
    let queued = put(&*store, policy("a", 1));
    let (commit, ()) = futures::future::join(queued, store.close()).await;
    assert_eq!(commit.revision, 1);
    let late = store.transact(Batch::of([Write::put(policy("b", 1))])).await;
    assert!(matches!(late, Err(StoreError::Backend { .. })), "{late:?}");
    store.snapshot().await.unwrap_err();
    store.close().await;
    assert_eq!(home.open().await.snapshot().await.unwrap().revision, 1);
}

/// Whatever was written, also what was refused, leaves a store that takes writes and holds what was written.
pub async fn a_sound_store_is_found_sound(stores: &dyn Stores) {
    let home = stores.fresh(10).await;
    let store = home.open().await;
    for n in 0..40 {
        put(&*store, policy(&format!("p{}", n % 7), n)).await;
        put_when(&*store, policy("p0", n), Precondition::Absent).await.unwrap_err();
    }
    let row = |key: &str, text: Option<&str>| (key.to_owned(), text.map(str::to_owned));
    store.put_sessions(vec![row("a", Some("1")), row("b", Some("2"))]).await.unwrap();
    store.put_sessions(vec![row("a", Some("3")), row("b", None)]).await.unwrap();
    store.check().await.unwrap();
    assert_eq!(*store.health().borrow(), crate::store::StoreHealth::default());
    let before = index_of(&*store).await;
    if home.durable() {
        store.close().await;
        drop(store);
        // Opening looks at everything there is.
        let store = home.open().await;
        assert_same(&index_of(&*store).await, &before);
        assert_eq!(store.sessions("").await.unwrap(), [("a".to_owned(), "3".to_owned())]);
    }
}
