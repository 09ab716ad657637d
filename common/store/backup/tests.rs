#![allow(clippy::unwrap_used)]

use bytes::Bytes;

use super::*;
use crate::{
    model::{Origin, ResourceKey, kinds},
    policy,
    store::{memory::MemoryStore, open, sqlite::SqliteStore},
};

fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap()
}

async fn filled() -> MemoryStore {
    let store = MemoryStore::new(Uuid::from_u128(7));
    let mesh = Resource::new(ResourceKey::global(&kinds::mesh::KIND, "default"), now());
    let mut timeout = Resource::new(ResourceKey::new(&policy::mesh_timeout::KIND, "default", "t"), now())
        .with_spec(&b"{}"[..]);
    timeout.labels.insert("a", "ü\n");
    timeout.owner = Some(mesh.key.clone());
    timeout.origin = Origin::Zone("east".into());
    timeout.status = Some(Bytes::from_static(b"{\"a\":1}"));
    store.transact(Batch::of([Write::put(mesh), Write::put(timeout)])).await.unwrap();
    store.put_sessions(vec![("k".to_owned(), Some("1".to_owned()))]).await.unwrap();
    store
}

async fn text(store: &dyn Store) -> Vec<u8> {
    take(store, now()).await.unwrap().flatten().collect()
}

/// Everything but the revisions.
async fn contents(store: &dyn Store) -> Vec<Resource> {
    let resources = store.snapshot().await.unwrap().resources;
    resources.into_iter().map(|resource| Resource { revision: 0, ..Resource::clone(&resource) }).collect()
}

#[tokio::test]
async fn a_store_is_filled_from_another_and_goes_on_in_a_later_epoch() {
    let from = filled().await;
    let text = text(&from).await;
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let restored = async |known: Option<StoreIdentity>, replace: bool| {
        let store = SqliteStore::open(&path).await.unwrap();
        let outcome = Backup::read(&text[..]).unwrap().restore(&store, known, replace).await;
        store.close().await;
        outcome
    };
    let next = restored(None, false).await.unwrap();
    assert_eq!(next, StoreIdentity { store_id: Uuid::from_u128(7), epoch: 2 });
    let store = open(&format!("sqlite:{}", path.display())).await.unwrap();
    assert_eq!(store.identity(), next);
    assert_eq!(contents(&*store).await, contents(&from).await);
    assert_eq!(store.sessions("").await.unwrap(), [("k".to_owned(), "1".to_owned())]);
    let head = store.snapshot().await.unwrap().revision;
    assert!(head > from.snapshot().await.unwrap().revision, "it does not go back");
    assert_eq!(
        store.changes_since(head.into(), 10).await.unwrap(),
        crate::store::Changes::Since { changes: vec![], upto: head.into(), head }
    );
    assert_eq!(store.changes_since((head - 1).into(), 10).await.unwrap(), crate::store::Changes::Resync);
    store.check().await.unwrap();
    store
        .transact(Batch::of([Write::delete_when(contents(&from).await[1].key.clone(), Precondition::Exists)]))
        .await
        .unwrap();
    store.close().await;

    assert!(matches!(restored(None, false).await, Err(BackupError::Occupied(1))));
    let raised = StoreIdentity { store_id: Uuid::from_u128(9), epoch: 5 };
    assert_eq!(restored(Some(raised), true).await.unwrap(), StoreIdentity { epoch: 6, ..raised });
    assert_eq!(restored(None, true).await.unwrap(), next, "another history knows nothing of this one");
    assert_eq!(restored(None, true).await.unwrap().epoch, 3, "never twice the same");
}

#[tokio::test]
async fn what_is_not_whole_is_refused_with_its_line() {
    let text = text(&filled().await).await;
    let lines: Vec<&[u8]> = text.split_inclusive(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), 5);
    let check = |text: &[u8], part: &str| {
        let error = Backup::read(text).err().unwrap().to_string();
        assert!(error.contains(part), "{error}");
    };
    check(b"", "no backup");
    check(b"{\"type\":\"Mesh\"}\n", "line 1");
    check(&lines[1..].concat(), "no backup");
    check(&lines[..4].concat(), "too early");
    check(&[&lines[..2].concat()[..], &lines[3..].concat()].concat(), "not what was written");
    check(&text[..text.len() - 1], "does not end");
    check(&[lines[0], lines[0]].concat(), "second backup");
    let other = String::from_utf8(text.clone()).unwrap();
    check(other.replacen("\"form\":1", "\"form\":2", 1).as_bytes(), "its form is 2");
    check(other.replacen("MeshTimeout", "MeshNothing", 1).as_bytes(), "unknown here");
    check(other.replacen("\"default\"", "\"defaulT\"", 1).as_bytes(), "not what was written");
}
