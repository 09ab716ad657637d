//! What a batch may do and what it leaves behind.

use std::sync::Arc;

use super::*;
use crate::model::Origin;

pub async fn preconditions_decide(stores: &dyn Stores) {
    let store = store(stores).await;
    let key = policy("a", 0).key;
    let missing = put_when(&*store, policy("a", 0), Precondition::Exists).await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
    let missing = put_when(&*store, policy("a", 0), Precondition::At(1)).await;
    assert!(matches!(missing, Err(StoreError::NotFound { .. })), "{missing:?}");
    let created = put_when(&*store, policy("a", 0), Precondition::Absent).await.unwrap();
    let twice = put_when(&*store, policy("a", 1), Precondition::Absent).await;
    assert!(matches!(twice, Err(StoreError::AlreadyExists { .. })), "{twice:?}");
    let updated = put_when(&*store, policy("a", 1), Precondition::At(created.revision)).await.unwrap();
    let stale = put_when(&*store, policy("a", 2), Precondition::At(created.revision)).await;
    let Err(StoreError::Conflict { expected, actual, .. }) = stale else { panic!("{stale:?}") };
    assert_eq!((expected, actual), (created.revision, updated.revision));
    put_when(&*store, policy("a", 3), Precondition::Exists).await.unwrap();

    let delete = |when| store.transact(Batch::of([Write::delete_when(key.clone(), when)]));
    let stale = delete(Precondition::At(created.revision)).await;
    assert!(matches!(stale, Err(StoreError::Conflict { .. })), "{stale:?}");
    assert_eq!(delete(Precondition::Exists).await.unwrap().changed, std::slice::from_ref(&key));
    assert!(delete(Precondition::None).await.unwrap().changed.is_empty());
    let gone = delete(Precondition::Exists).await;
    assert!(matches!(gone, Err(StoreError::NotFound { .. })), "{gone:?}");
}

pub async fn equal_content_writes_nothing(stores: &dyn Stores) {
    let store = store(stores).await;
    let first = put(&*store, policy("a", 1)).await;
    let mut again = policy("a", 1);
    again.modified = time(60);
    let second = put(&*store, again).await;
    assert_eq!(second, Commit { revision: first.revision, changed: vec![] });
    assert_eq!(find(&*store, &policy("a", 1).key).await.unwrap().modified, time(0));

    // There and back, or born and gone, inside one batch: nobody saw it.
    let back = Batch::of([Write::put(policy("a", 2)), Write::put(policy("a", 1))]);
    assert_eq!(store.transact(back).await.unwrap(), second);
    let brief = Write::delete_when(policy("b", 1).key, Precondition::Exists);
    assert_eq!(store.transact(Batch::of([Write::put(policy("b", 1)), brief])).await.unwrap(), second);
    assert_eq!(store.transact(Batch::default()).await.unwrap(), second);
    assert_eq!(entries(&*store, first.revision).await, []);
    assert_eq!(store.snapshot().await.unwrap().revision, first.revision);
}

pub async fn revisions_are_dense(stores: &dyn Stores) {
    let store = store(stores).await;
    assert_eq!(store.snapshot().await.unwrap().revision, 0);
    for n in 1..=5 {
        assert_eq!(put(&*store, policy("a", n)).await.revision, n as u64);
        // Refused batches take no number.
        put_when(&*store, policy("a", 0), Precondition::Absent).await.unwrap_err();
    }
    let stored = find(&*store, &policy("a", 0).key).await.unwrap();
    assert_eq!((stored.revision, stored.spec.clone()), (5, policy("a", 5).spec));
}

pub async fn a_batch_is_seen_whole_or_not_at_all(stores: &dyn Stores) {
    let store = store(stores).await;
    put(&*store, policy("a", 0)).await;
    let refused = Batch::of([
        Write::put(policy("b", 1)),
        Write::delete_when(policy("a", 0).key, Precondition::None),
        Write::put_when(policy("c", 1), Precondition::Exists),
    ]);
    store.transact(refused).await.unwrap_err();
    assert_eq!(index_of(&*store).await.count(timeout_kind()), 1);
    assert_eq!(entries(&*store, 1).await, []);

    // A later write of a batch sees the earlier ones.
    let batch = Batch::of([
        Write::put(policy("b", 1)),
        Write::put_when(policy("b", 2), Precondition::Exists),
        Write::put_when(policy("c", 1), Precondition::Absent),
    ]);
    let commit = store.transact(batch).await.unwrap();
    assert_eq!(commit.revision, 2);
    let changed = entries(&*store, 1).await;
    assert_eq!(changed, [(2, policy("b", 0).key, true), (2, policy("c", 0).key, true)]);
    assert_eq!(find(&*store, &policy("b", 0).key).await.unwrap().spec, policy("b", 2).spec);
}

pub async fn created_is_kept(stores: &dyn Stores) {
    let store = store(stores).await;
    put(&*store, policy("a", 1)).await;
    let mut later = policy("a", 2);
    (later.created, later.modified) = (time(60), time(60));
    put(&*store, later.clone()).await;
    let stored = find(&*store, &later.key).await.unwrap();
    assert_eq!((stored.created, stored.modified), (time(0), time(60)));

    store.transact(Batch::of([Write::delete_when(later.key.clone(), Precondition::None)])).await.unwrap();
    put(&*store, later.clone()).await;
    assert_eq!(find(&*store, &later.key).await.unwrap().created, time(60), "it is another one now");
}

pub async fn owned_resources_fall_with_their_owner(stores: &dyn Stores) {
    let store = store(stores).await;
    let owned = |name: &str, owner: &Resource| {
        let mut resource = policy(name, 1);
        resource.owner = Some(owner.key.clone());
        resource
    };
    let (mesh, other) = (mesh("default"), mesh("other"));
    let child = owned("child", &mesh);
    let grandchild = owned("grandchild", &child);
    let moved = owned("moved", &mesh);
    let all = [&mesh, &other, &child, &grandchild, &moved].map(|r| Write::put(r.clone()));
    store.transact(Batch::of(all)).await.unwrap();
    put(&*store, owned("moved", &other)).await;

    let commit =
        store.transact(Batch::of([Write::delete_when(mesh.key.clone(), Precondition::Exists)])).await;
    let fallen = vec![mesh.key.clone(), child.key, grandchild.key];
    let commit = commit.unwrap();
    assert_eq!(commit.changed, fallen);
    let tombstones = fallen.into_iter().map(|key| (commit.revision, key, false)).collect::<Vec<_>>();
    assert_eq!(entries(&*store, commit.revision - 1).await, tombstones);
    assert_eq!(index_of(&*store).await.iter().count(), 2);

    // Adopted and orphaned within one batch, with what it owned before.
    let child = owned("child", &moved);
    put(&*store, child.clone()).await;
    let adopted = owned("moved", &mesh);
    let batch =
        [Write::put(mesh.clone()), Write::put(adopted), Write::delete_when(mesh.key, Precondition::None)];
    assert_eq!(store.transact(Batch::of(batch)).await.unwrap().changed, [child.key, moved.key]);
}

pub async fn another_origin_is_refused_and_both_are_named(stores: &dyn Stores) {
    let store = store(stores).await;
    let (east, west) = (Origin::Zone("east".into()), Origin::Zone("west".into()));
    let of = |origin: &Origin, value| {
        let mut resource = policy("shared", value);
        resource.origin = origin.clone();
        resource
    };
    put_when(&*store, of(&east, 1), Precondition::OwnedBy(east.clone())).await.unwrap();
    let refused = put_when(&*store, of(&west, 2), Precondition::OwnedBy(west.clone())).await.unwrap_err();
    let text = refused.to_string();
    assert!(matches!(refused, StoreError::ForeignOrigin { .. }), "{text}");
    assert!(text.contains("zone east") && text.contains("zone west"), "{text}");
    let delete =
        |origin: &Origin| Write::delete_when(of(origin, 0).key, Precondition::OwnedBy(origin.clone()));
    let refused = store.transact(Batch::of([delete(&Origin::Global)])).await.unwrap_err().to_string();
    assert!(refused.contains("zone east") && refused.contains("global"), "{refused}");
    assert_eq!(find(&*store, &of(&east, 0).key).await.unwrap().origin, east);
    store.transact(Batch::of([delete(&east)])).await.unwrap();
}

pub async fn status_has_its_own_owner(stores: &dyn Stores) {
    let store = store(stores).await;
    let key = policy("a", 1).key;
    let status = |text: Option<&'static str>| {
        let status = text.map(|t| Bytes::from_static(t.as_bytes()));
        Batch::of([Write::PutStatus { key: key.clone(), status, now: time(60) }])
    };
    assert!(store.transact(status(Some("{}"))).await.unwrap().changed.is_empty(), "there is nothing yet");
    put(&*store, policy("a", 1)).await;
    assert!(store.transact(status(None)).await.unwrap().changed.is_empty());
    assert_eq!(store.transact(status(Some("{\"up\":true}"))).await.unwrap().revision, 2);
    assert!(store.transact(status(Some("{\"up\":true}"))).await.unwrap().changed.is_empty());
    let stored = find(&*store, &key).await.unwrap();
    assert_eq!(stored.status.as_deref(), Some(&b"{\"up\":true}"[..]));
    assert_eq!((&stored.spec, stored.modified), (&policy("a", 1).spec, time(60)));
    store.transact(status(None)).await.unwrap();
    assert_eq!(find(&*store, &key).await.unwrap().status, None);
}

pub async fn every_field_comes_back(stores: &dyn Stores) {
    let store = store(stores).await;
    let mut wanted = mesh("übung-😀 'quoted\"").with_label("kuma.io/display-name", "Übung\n\"'\\");
    wanted.spec = Bytes::from((0..=255).collect::<Vec<u8>>());
    wanted.status = Some(Bytes::from_static(b""));
    wanted.origin = Origin::Zone("east".into());
    wanted.owner = Some(policy("owner", 0).key);
    wanted.created = time(-5_000_000_000);
    wanted.revision = put(&*store, wanted.clone()).await.revision;
    assert_eq!(find(&*store, &wanted.key).await.as_deref(), Some(&wanted));
    let Changes::Since { changes, upto, .. } = store.changes_since(0.into(), 10).await.unwrap() else {
        panic!("resync")
    };
    assert_eq!((changes[0].resource.clone(), upto.revision), (Some(Arc::new(wanted)), 1));
}
