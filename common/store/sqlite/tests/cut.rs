//! Files that are cut off in place under the running process, as `: > file` does to make room on a full disk. Nothing is
//! acknowledged that a crash right after would lose.

use std::{fs::File, io::Write as _};

use super::{
    super::{connections::NoPen, files::Files},
    crash::copy_all,
    damage::{PAGE, contents, fill},
    *,
};

/// Cuts the file to what `keep` says of its length.
fn cut(path: &Path, keep: impl Fn(usize) -> usize) -> u64 {
    let file = File::options().write(true).open(path).unwrap();
    let length = usize::try_from(file.metadata().unwrap().len()).unwrap();
    assert!(keep(length) < length, "there is something to cut off");
    file.set_len(keep(length) as u64).unwrap();
    keep(length) as u64
}

const CUTS: [fn(usize) -> usize; 4] =
    [|_| 0, |length| length / 2, |length| length - PAGE, |length| length - 1];

/// What a start finds behind a crash in this moment.
async fn crashed(folder: &Path) -> (TempDir, Result<SqliteStore, StoreError>) {
    let copy = TempDir::new().unwrap();
    let there = ["store.db", "store.db-wal", "store.db.acknowledged", "store.db.rescued"];
    let there: Vec<&str> = there.into_iter().filter(|name| folder.join(name).exists()).collect();
    copy_all(folder, copy.path(), &there);
    let store = SqliteStore::open(copy.path().join("store.db")).await;
    (copy, store)
}

#[tokio::test]
async fn a_journal_that_is_cut_off_is_written_again_before_anything_is_acknowledged() {
    for (which, keep) in CUTS.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).await.unwrap();
        fill(&store).await;
        cut(&folder.path().join("store.db-wal"), keep);
        store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
        let wanted = contents(&store).await.unwrap();
        assert!(wanted.names().contains(&"late".to_owned()), "cut {which}");
        let (_folder, found) = crashed(folder.path()).await;
        assert_eq!(contents(&found.unwrap()).await.unwrap(), wanted, "cut {which}, after a crash");
        // The lease of before is still held, and the next write needs no repair.
        assert!(store.acquire("leader", "b", Duration::from_secs(1), false).await.unwrap().is_none());
        store.transact(Batch::of([Write::put(zone("later"))])).await.unwrap();
        assert_eq!(store.health().borrow().damage, None, "cut {which}");
        store.close().await;
        assert!(!folder.path().join("store.db.rescued").exists(), "cut {which}");
        SqliteStore::open(&path).await.unwrap();
    }
}

/// As with a file that is overwritten, cut off and deleted in one go: half of it is neither folded in nor copied.
#[tokio::test]
async fn a_journal_that_is_cut_off_before_a_name_goes_is_written_again_as_well() {
    for gone in ["store.db-wal", "store.db"] {
        for (which, keep) in CUTS.into_iter().enumerate() {
            let folder = TempDir::new().unwrap();
            let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
            fill(&store).await;
            cut(&folder.path().join("store.db-wal"), keep);
            fs::remove_file(folder.path().join(gone)).unwrap();
            store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
            let wanted = contents(&store).await.unwrap();
            assert!(wanted.names().contains(&"late".to_owned()), "cut {which}, without {gone}");
            let (_folder, found) = crashed(folder.path()).await;
            assert_eq!(contents(&found.unwrap()).await.unwrap(), wanted, "cut {which}, without {gone}");
            assert_eq!(store.health().borrow().damage, None, "cut {which}, without {gone}");
        }
    }
}

/// Whoever cut something off may put it back himself.
#[tokio::test]
async fn a_journal_that_is_whole_again_is_used_again() {
    let folder = TempDir::new().unwrap();
    let (path, journal) = (folder.path().join("store.db"), folder.path().join("store.db-wal"));
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    let whole = fs::read(&journal).unwrap();
    cut(&journal, |length| length / 2);
    File::options().write(true).open(&journal).unwrap().write_all(&whole).unwrap();
    store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
    let wanted = contents(&store).await.unwrap();
    store.close().await;
    drop(store);
    assert!(!journal.exists(), "the last connection folds it in");
    assert_eq!(contents(&SqliteStore::open(&path).await.unwrap()).await.unwrap(), wanted);
}

#[tokio::test]
async fn a_connection_that_somebody_has_for_long_has_forgotten_nothing() {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
    let pen = store.connections.bare_pen().await.unwrap();
    tokio::time::pause();
    let waited = store.connections.same_pen().await;
    assert!(matches!(waited, Err(NoPen::Unconnected(sqlx::Error::PoolTimedOut))));
    tokio::time::resume();
    pen.put_down();
    assert!(matches!(store.connections.same_pen().await, Ok(Some(_))));
}

#[test]
fn a_name_that_something_else_took_meanwhile_is_left_to_it() {
    let folder = TempDir::new().unwrap();
    let (path, moved) = (folder.path().join("store.db"), folder.path().join("moved.db"));
    fs::write(&path, "ours").unwrap();
    let files = Files::of(&path);
    files.begin().unwrap();
    fs::rename(&path, &moved).unwrap();
    files.free_name().unwrap();
    fs::write(&path, "of somebody else").unwrap();
    files.free_name().unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "of somebody else");
    fs::rename(&moved, &path).unwrap();
    files.free_name().unwrap();
    assert!(!path.exists());
}

/// What is in the database already is not missed.
#[tokio::test]
async fn a_folded_journal_that_is_cut_off_begins_anew() {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
    fill(&store).await;
    let mut pen = store.connections.bare_pen().await.unwrap();
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *pen).await.unwrap();
    store.connections.files().written().await;
    pen.put_down();
    cut(&folder.path().join("store.db-wal"), |length| length / 2);
    store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
    let wanted = contents(&store).await.unwrap();
    let (_folder, found) = crashed(folder.path()).await;
    assert_eq!(contents(&found.unwrap()).await.unwrap(), wanted);
}

#[tokio::test]
async fn a_store_that_is_closed_folds_no_half_of_a_journal() {
    for is_gone in [false, true] {
        let folder = TempDir::new().unwrap();
        let (path, journal) = (folder.path().join("store.db"), folder.path().join("store.db-wal"));
        let store = SqliteStore::open(&path).await.unwrap();
        fill(&store).await;
        let wanted = contents(&store).await.unwrap();
        cut(&journal, |length| length / 2);
        if is_gone {
            fs::remove_file(&journal).unwrap();
        }
        store.close().await;
        drop(store);
        let store = SqliteStore::open(&path).await.unwrap();
        assert_eq!(contents(&store).await.unwrap(), wanted, "without its name: {is_gone}");
    }
}

async fn refuses_writes(store: &SqliteStore, what: &str) {
    for name in ["first", "second"] {
        let refused = store.transact(Batch::of([Write::put(zone(name))])).await.unwrap_err();
        assert!(matches!(refused, StoreError::Unwritable(_)), "{refused}");
    }
    let health = store.health().borrow().clone();
    assert!(health.damage.as_deref().is_some_and(|damage| damage.contains(what)), "{:?}", health.damage);
    store.put_sessions(vec![("late".to_owned(), None)]).await.unwrap_err();
}

/// A journal that somebody's reading keeps from being folded, and is longer than what is kept in memory, beside a connection
/// that had to make room.
#[tokio::test]
async fn what_was_cut_off_and_is_not_in_memory_stops_all_writes() {
    let cuts: [fn(usize) -> usize; 2] = [|_| 0, |length| length - PAGE];
    for (which, keep) in cuts.into_iter().enumerate() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).await.unwrap();
        fill(&store).await;
        let mut reader = store.connections.reader().await.unwrap();
        sqlx::query("BEGIN").execute(&mut *reader).await.unwrap();
        sqlx::query("SELECT COUNT(*) FROM meta").execute(&mut *reader).await.unwrap();
        for n in 0..18 {
            let long = zone(&format!("long-{n}")).with_spec(vec![b'x'; 1 << 20]);
            store.transact(Batch::of([Write::put(long)])).await.unwrap();
        }
        let mut pen = store.connections.bare_pen().await.unwrap();
        sqlx::query("PRAGMA shrink_memory").execute(&mut *pen).await.unwrap();
        pen.put_down();
        let kept = cut(&folder.path().join("store.db-wal"), keep);
        refuses_writes(&store, "the end of its journal was cut off").await;
        drop(reader);
        store.close().await;
        let journal = fs::metadata(folder.path().join("store.db-wal")).unwrap();
        assert_eq!(journal.len(), kept, "cut {which}: nothing is written, nothing is folded");
        let (_folder, refused) = crashed(folder.path()).await;
        let refused = refused.err().unwrap().to_string();
        // By halves, as far as the reader let it, it was folded before.
        assert!(
            ["was acknowledged", "is damaged"].iter().any(|why| refused.contains(why)),
            "cut {which}: {refused}"
        );
    }
}

#[tokio::test]
async fn a_database_that_is_cut_off_is_not_written_to() {
    let cuts: [fn(usize) -> usize; 3] = [|_| 0, |length| length / 2, |length| length - PAGE];
    for keep in cuts {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("store.db");
        let store = SqliteStore::open(&path).await.unwrap();
        fill(&store).await;
        store.close().await;
        drop(store);
        let store = SqliteStore::open(&path).await.unwrap();
        store.transact(Batch::of([Write::put(zone("early"))])).await.unwrap();
        let journal = fs::read(folder.path().join("store.db-wal")).unwrap();
        let kept = cut(&path, keep);
        refuses_writes(&store, "store.db is damaged: its end was cut off").await;
        store.close().await;
        assert_eq!(fs::metadata(&path).unwrap().len(), kept, "nothing is folded into a part of it");
        assert_eq!(fs::read(folder.path().join("store.db-wal")).unwrap(), journal);
    }
}
