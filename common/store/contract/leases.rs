//! Leases, fences and session documents.

use std::time::Duration;

use futures::future::join_all;

use super::*;
use crate::store::{Fence, Lease};

const LONG: Duration = Duration::from_secs(3600);
const OVER: Duration = Duration::ZERO;

async fn take(store: &dyn Store, holder: &str, ttl: Duration, steal: bool) -> Option<Lease> {
    store.acquire("leader", holder, ttl, steal).await.unwrap()
}

pub async fn epochs_only_rise(stores: &dyn Stores) {
    let store = store(stores).await;
    let a = take(&*store, "a", LONG, false).await.unwrap();
    assert_eq!((a.name.as_str(), a.holder.as_str(), a.epoch), ("leader", "a", 1));
    assert_eq!(take(&*store, "b", LONG, false).await, None, "held");
    assert_eq!(take(&*store, "a", LONG, false).await.unwrap().epoch, 1, "renewed");
    let b = take(&*store, "b", LONG, true).await.unwrap();
    assert_eq!(b.epoch, 2, "stolen");
    assert_eq!(take(&*store, "a", LONG, false).await, None);
    store.release(&a).await.unwrap();
    assert_eq!(take(&*store, "a", LONG, false).await, None, "an old holder gives nothing back");
    store.release(&b).await.unwrap();
    assert_eq!(take(&*store, "a", OVER, false).await.unwrap().epoch, 3, "free");
    assert_eq!(take(&*store, "b", LONG, false).await.unwrap().epoch, 4, "expired");
    let other = store.acquire("other", "b", LONG, false).await.unwrap().unwrap();
    assert_eq!(other.epoch, 1, "each lease counts its own");
}

pub async fn a_fence_stops_the_writer_of_an_old_epoch(stores: &dyn Stores) {
    let store = store(stores).await;
    let fenced = |epoch, value| {
        let fence = Fence { name: "leader".to_owned(), epoch };
        store.transact(Batch::of([Write::put(policy("a", value))]).fenced(fence))
    };
    let nobody = fenced(1, 0).await;
    assert!(matches!(nobody, Err(StoreError::Fenced { actual: 0, .. })), "{nobody:?}");
    take(&*store, "a", LONG, false).await.unwrap();
    fenced(1, 1).await.unwrap();
    take(&*store, "b", LONG, true).await.unwrap();
    let old = fenced(1, 2).await;
    let Err(StoreError::Fenced { held: 1, actual: 2, .. }) = old else { panic!("{old:?}") };
    // The old epoch is refused also when nothing would change.
    fenced(1, 1).await.unwrap_err();
    fenced(2, 3).await.unwrap();
    assert_eq!(find(&*store, &policy("a", 0).key).await.unwrap().spec, policy("a", 3).spec);
}

pub async fn of_many_claims_at_once_one_counts(stores: &dyn Stores) {
    let store = store(stores).await;
    let names: Vec<String> = (0..12).map(|n| format!("zone {n}")).collect();
    let claims = names.iter().map(|name| store.claim_session("whose", name, None));
    let told: Vec<String> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
    let owner = &told[0];
    assert!(names.contains(owner) && told.iter().all(|one| one == owner), "{told:?}");
    assert_eq!(store.sessions("whose").await.unwrap(), [("whose".to_owned(), owner.clone())]);
    // Only who is named is replaced, and by one only.
    assert_eq!(store.claim_session("whose", "other", Some("nobody")).await.unwrap(), *owner);
    let claims = ["a", "b"].map(|name| store.claim_session("whose", name, Some(owner)));
    let told: Vec<String> = join_all(claims).await.into_iter().map(Result::unwrap).collect();
    assert!(told[0] == told[1] && ["a", "b"].contains(&&*told[0]), "{told:?}");
    // It is a document like others, with its checksum.
    store.check().await.unwrap();
    assert_eq!(store.sessions("").await.unwrap(), [("whose".to_owned(), told[0].clone())]);
    assert_eq!(store.claim_session("more", "x", Some("y")).await.unwrap(), "x");
}

pub async fn sessions_stay_out_of_the_feed(stores: &dyn Stores) {
    let store = store(stores).await;
    let row = |key: &str, document: &str| (key.to_owned(), Some(document.to_owned()));
    let rows = vec![row("zone/b", "old"), row("zone/a", "{\"n\":1}"), row("zone_c", "x"), row("zone/b", "2")];
    store.put_sessions(rows).await.unwrap();
    let pairs = |rows: Vec<(String, String)>| {
        rows.into_iter().map(|(key, document)| format!("{key}={document}")).collect::<Vec<_>>()
    };
    assert_eq!(pairs(store.sessions("zone/").await.unwrap()), ["zone/a={\"n\":1}", "zone/b=2"]);
    store.put_sessions(vec![("zone/a".to_owned(), None), row("zone/%", "ü")]).await.unwrap();
    assert_eq!(pairs(store.sessions("").await.unwrap()), ["zone/%=ü", "zone/b=2", "zone_c=x"]);
    store.put_sessions(vec![]).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().revision, 0);
}
