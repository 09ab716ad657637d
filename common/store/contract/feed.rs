//! What a reader of the feed may rely on.

use std::collections::BTreeMap;

use futures::future::{join, join_all};

use super::*;
use crate::store::Point;

/// Two dozen batches of every sort.
async fn fill(store: &dyn Store) {
    for n in 0..24 {
        let name = format!("p{}", n % 5);
        let key = policy(&name, 0).key;
        let batch = match n % 4 {
            0 => vec![Write::put(policy(&name, n)), Write::put(policy("common", n))],
            1 => vec![Write::delete_when(key, Precondition::None), Write::put(policy("common", n))],
            2 => vec![Write::PutStatus { key, status: Some(Bytes::from(n.to_string())), now: time(1) }],
            _ => vec![Write::put(policy(&name, n))],
        };
        store.transact(Batch::of(batch)).await.unwrap();
    }
}

pub async fn resumes_from_every_revision(stores: &dyn Stores) {
    let store = store(stores).await;
    let mut cuts = vec![index_of(&*store).await];
    for n in 0..12 {
        let batch = [Write::put(policy(&format!("p{}", n % 3), n)), Write::put(mesh(&format!("m{n}")))];
        store.transact(Batch::of(batch)).await.unwrap();
        let old = mesh(&format!("m{}", n / 2)).key;
        store.transact(Batch::of([Write::delete_when(old, Precondition::None)])).await.unwrap();
        cuts.push(index_of(&*store).await);
    }
    let end = index_of(&*store).await;
    for cut in cuts {
        for page in [1, 3, usize::MAX] {
            let mut resumed = cut.clone();
            follow(&*store, &mut resumed, page).await;
            assert_same(&resumed, &end);
        }
    }
}

pub async fn pages_end_with_a_whole_batch(stores: &dyn Stores) {
    let store = store(stores).await;
    put(&*store, policy("first", 1)).await;
    let batch = Batch::of((0..7).map(|n| Write::put(policy(&format!("p{n}"), n))));
    store.transact(batch).await.unwrap();
    put(&*store, policy("last", 1)).await;
    for (limit, count, end) in [(0, 1, 1), (1, 1, 1), (2, 8, 2), (8, 8, 2), (9, 9, 3), (50, 9, 3)] {
        let page = store.changes_since(0.into(), limit).await.unwrap();
        let Changes::Since { changes, upto, head } = page else { panic!("{page:?}") };
        assert_eq!((changes.len(), upto.revision, head), (count, end, 3), "limit {limit}");
        assert!(changes.is_sorted_by_key(|c| c.revision));
    }
    let end = store.changes_since(3.into(), 10).await.unwrap();
    assert!(
        matches!(&end, Changes::Since { changes, upto, head: 3 } if changes.is_empty() && upto.revision == 3)
    );
    assert!(matches!(end, Changes::Since { upto, .. } if upto == index_of(&*store).await.point()));
}

pub async fn outside_the_window_a_reader_starts_over(stores: &dyn Stores) {
    let store = stores.fresh(10).await.open().await;
    assert_eq!(store.changes_since(1.into(), 10).await.unwrap(), Changes::Parted, "ahead of the head");
    for n in 0..50 {
        put(&*store, policy(&format!("p{}", n % 3), n)).await;
    }
    assert_eq!(store.changes_since(0.into(), 10).await.unwrap(), Changes::Resync, "trimmed long ago");
    assert_eq!(store.changes_since(51.into(), 10).await.unwrap(), Changes::Parted, "ahead of the head");
    assert_eq!(entries(&*store, 45).await.len(), 5);
    assert_eq!(entries(&*store, 50).await, []);
    // One batch larger than the window stays readable.
    let batch = Batch::of((0..30).map(|n| Write::put(policy(&format!("q{n}"), n))));
    store.transact(batch).await.unwrap();
    put(&*store, mesh("after")).await;
    assert_eq!(entries(&*store, 51).await.len(), 1);
}

/// A page has an end in bytes too, in stores that read it from elsewhere. However it is cut, each change is told in order,
/// with its revision, and ends at what is stored; what changed often is there once in the page.
pub async fn what_is_large_and_changes_often_is_told_change_by_change(stores: &dyn Stores) {
    const LARGE: usize = 3 << 20;
    let store = store(stores).await;
    let large =
        |name: &str, value: usize| policy(name, 0).with_spec(Bytes::from(vec![b'0' + value as u8; LARGE]));
    for n in 0..6 {
        let batch = [Write::put(large("rewritten", n)), Write::put(policy(&format!("p{n}"), n))];
        store.transact(Batch::of(batch)).await.unwrap();
    }
    for n in 0..4 {
        put(&*store, large(&format!("large-{n}"), n)).await;
    }
    let gone = large("large-0", 0).key;
    store.transact(Batch::of([Write::delete_when(gone.clone(), Precondition::None)])).await.unwrap();
    put(&*store, large("large-0", 7)).await;
    let stored = index_of(&*store).await;

    let (mut seen, mut folded, mut at) = (Vec::new(), Index::empty(store.identity()), Point::default());
    loop {
        let page = store.changes_since(at, usize::MAX).await.unwrap();
        let Changes::Since { changes, upto, head } = page else { panic!("{page:?}") };
        assert_eq!(head, stored.revision);
        assert!(
            upto.revision > at.revision && changes.last().unwrap().revision == upto.revision,
            "whole batches"
        );
        seen.extend(changes.iter().map(|change| (change.revision, change.key.name.to_string())));
        changes.iter().for_each(|change| folded.apply(change));
        folded.reach(upto);
        at = upto;
        if upto.revision == head {
            break;
        }
    }
    let twice = (1..=6).flat_map(|n| [(n, format!("p{}", n - 1)), (n, "rewritten".to_owned())]);
    let once = (7..=10).map(|n| (n, format!("large-{}", n - 7)));
    let again = (11..=12).map(|n| (n, "large-0".to_owned()));
    assert_eq!(seen, twice.chain(once).chain(again).collect::<Vec<_>>());
    assert_same(&folded, &stored);
}

const WRITERS: usize = 16;
const ROUNDS: usize = 12;

/// Each writer makes resources of its own and, in the same batch, replaces one that all share, knowing
/// its revision.
async fn write(store: &dyn Store, writer: usize) -> Vec<(Revision, ResourceKey)> {
    let mut written = Vec::new();
    let mut when = Precondition::Absent;
    for round in 0..ROUNDS {
        let own = policy(&format!("w{writer}-{round}"), writer);
        let shared = policy("shared", writer * ROUNDS + round);
        let revision = loop {
            let batch = [Write::put(own.clone()), Write::put_when(shared.clone(), when.clone())];
            when = match store.transact(Batch::of(batch)).await {
                Ok(commit) => break commit.revision,
                Err(StoreError::AlreadyExists { .. }) => Precondition::At(0),
                Err(StoreError::Conflict { actual, .. }) => Precondition::At(actual),
                Err(error) => panic!("{error}"),
            }
        };
        when = Precondition::At(revision);
        written.push((revision, own.key));
        // And one that contends with nobody, so that groups form.
        let alone = policy(&format!("s{writer}-{round}"), writer);
        written.push((put(store, alone.clone()).await.revision, alone.key));
    }
    written
}

/// Reads the feed while others write, until it reached `end`.
async fn read(store: &dyn Store, end: Revision) -> BTreeMap<ResourceKey, Vec<Revision>> {
    let mut head = store.watch_head();
    let mut seen: BTreeMap<ResourceKey, Vec<Revision>> = BTreeMap::new();
    let mut at = 0;
    while at < end {
        let page = store.changes_since(at.into(), 7).await.unwrap();
        let Changes::Since { changes, upto, .. } = page else { panic!("{page:?}") };
        let revisions: Vec<Revision> = changes.iter().map(|c| c.revision).collect();
        assert!(revisions.iter().all(|r| (at + 1..=upto.revision).contains(r)) && revisions.is_sorted());
        changes.into_iter().for_each(|c| seen.entry(c.key).or_default().push(c.revision));
        if upto.revision == at {
            head.changed().await.unwrap();
        }
        at = upto.revision;
    }
    seen
}

pub async fn concurrent_writers_lose_nothing(stores: &dyn Stores) {
    let store = store(stores).await;
    let total = WRITERS * ROUNDS;
    let writers = join_all((0..WRITERS).map(|writer| write(&*store, writer)));
    let (written, seen) = join(writers, read(&*store, 2 * total as u64)).await;

    let mut revisions = Vec::new();
    for (revision, key) in written.into_iter().flatten() {
        assert_eq!(seen.get(&key), Some(&vec![revision]), "{key}");
        revisions.push(revision);
    }
    revisions.sort_unstable();
    assert!(revisions.into_iter().eq(1..=2 * total as u64), "dense, each commit its own");
    assert_eq!(seen[&policy("shared", 0).key].len(), total, "no replacement was lost");
    let mut folded = Index::empty(store.identity());
    follow(&*store, &mut folded, 5).await;
    assert_same(&folded, &index_of(&*store).await);
}

/// A database that was taken back to an earlier time, or a standby that had not got everything, takes writes again before
/// its reader looks, and comes to the same revisions and beyond.
pub async fn a_store_that_lost_its_end_is_noticed_wherever_it_goes_on(stores: &dyn Stores) {
    let home = stores.fresh(RETAINED).await;
    let store = home.open().await;
    put(&*store, policy("kept", 1)).await;
    let mut before = index_of(&*store).await;
    store.close().await;
    drop(store);
    home.keep_aside().await;

    let store = home.open().await;
    let mut ends = Vec::new();
    for n in 0..3 {
        put(&*store, policy("lost", n)).await;
        ends.push(index_of(&*store).await);
    }
    // Whoever followed is where one is who took a snapshot.
    let mut followed = before.clone();
    follow(&*store, &mut followed, 1).await;
    assert_eq!(followed.point(), ends[2].point());
    store.close().await;
    drop(store);
    home.go_back().await;

    let store = home.open().await;
    let parted = async |reader: &Index| store.changes_since(reader.point(), 10).await.unwrap();
    for written in 0..6 {
        for end in &ends {
            assert_eq!(parted(end).await, Changes::Parted, "{} of {}", end.revision, written + 1);
        }
        put(&*store, policy("instead", written)).await;
    }
    let mut late = index_of(&*store).await;
    assert!(find(&*store, &policy("lost", 0).key).await.is_none());
    put(&*store, policy("instead", 7)).await;
    for reader in [&mut before, &mut late] {
        follow(&*store, reader, 2).await;
        assert_same(reader, &index_of(&*store).await);
    }
    // Who does not know which commit made its revision is told what is there.
    assert!(matches!(store.changes_since(3.into(), 10).await.unwrap(), Changes::Since { .. }));
}

pub async fn the_head_wakes_a_reader(stores: &dyn Stores) {
    let store = store(stores).await;
    fill(&*store).await;
    let mut head = store.watch_head();
    let before = *head.borrow_and_update();
    assert_eq!(before, store.snapshot().await.unwrap().revision);
    let (commit, woken) = join(put(&*store, mesh("new")), head.changed()).await;
    woken.unwrap();
    assert_eq!(*head.borrow(), commit.revision);
}
