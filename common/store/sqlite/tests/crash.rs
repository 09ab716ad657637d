//! A process that dies in the middle of what it does to its files. What it leaves behind is put together from
//! what there was before and after each step; the next start finds everything that was acknowledged.

use super::{
    damage::{PAGE, contents, fill},
    *,
};

pub(super) fn copy_all(from: &Path, to: &Path, names: &[&str]) {
    for name in names {
        fs::copy(from.join(name), to.join(name)).unwrap();
    }
}

/// The journal is folded into the database page by page, and given up only when all of them are there.
#[tokio::test]
async fn a_crash_while_the_journal_is_folded_in_loses_nothing() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    let wanted = contents(&store).await.unwrap();
    let journal = fs::read(folder.path().join("store.db-wal")).unwrap();
    let before = fs::read(&path).unwrap();
    let mut pen = store.connections.bare_pen().await.unwrap();
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(&mut *pen).await.unwrap();
    pen.put_down();
    let after = fs::read(&path).unwrap();
    assert!(after.len() > before.len(), "something was folded in");

    let pages = after.len() / PAGE;
    for written in [0, 1, pages / 3, pages / 2, pages - 1, pages] {
        // Some pages are there, the next one is torn, the others are as before.
        let mut bytes = after[..written * PAGE].to_vec();
        bytes.extend(before.get(bytes.len()..).unwrap_or_default());
        let torn = written * PAGE + PAGE / 2;
        if torn < after.len() {
            bytes.resize(bytes.len().max(torn), 0);
            bytes[written * PAGE..torn].copy_from_slice(&after[written * PAGE..torn]);
        }
        let crashed = TempDir::new().unwrap();
        fs::write(crashed.path().join("store.db"), bytes).unwrap();
        fs::write(crashed.path().join("store.db-wal"), &journal).unwrap();
        copy_all(folder.path(), crashed.path(), &["store.db.acknowledged"]);
        let store = SqliteStore::open(crashed.path().join("store.db")).await;
        let store = store.unwrap_or_else(|error| panic!("{written} of {pages} pages: {error}"));
        assert_eq!(contents(&store).await.unwrap(), wanted, "{written} of {pages} pages");
    }
}

/// A deleted database is copied to one name, which is changed when the copy is whole, and changed again into that
/// of the database.
#[tokio::test]
async fn a_crash_while_a_deleted_database_is_written_again_loses_nothing_that_was_copied() {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
    fill(&store).await;
    let wanted = contents(&store).await.unwrap();
    store.close().await;
    let whole = fs::read(folder.path().join("store.db")).unwrap();
    // What lies beside it by then: the journal of the deleted file, a copy that was begun, one that is whole.
    let steps: [(&str, &[&str]); 3] = [
        ("whole, and the old journal is there", &["store.db-wal", "store.db-shm"]),
        ("whole, and half of the old journal is gone", &["store.db-shm"]),
        ("whole, and nothing else is there", &[]),
    ];
    for (step, beside) in steps {
        let crashed = TempDir::new().unwrap();
        fs::write(crashed.path().join("store.db.rescued"), &whole).unwrap();
        for name in beside {
            fs::write(crashed.path().join(name), [0x37; 8_192]).unwrap();
        }
        copy_all(folder.path(), crashed.path(), &["store.db.acknowledged"]);
        let store = SqliteStore::open(crashed.path().join("store.db")).await;
        let store = store.unwrap_or_else(|error| panic!("{step}: {error}"));
        assert_eq!(contents(&store).await.unwrap(), wanted, "{step}");
        store.close().await;
        assert!(!crashed.path().join("store.db.rescued").exists(), "{step}");
    }
    // A copy that is not whole is none.
    let crashed = TempDir::new().unwrap();
    copy_all(folder.path(), crashed.path(), &["store.db", "store.db.acknowledged"]);
    fs::write(crashed.path().join("store.db.partial"), &whole[..whole.len() / 2]).unwrap();
    let store = SqliteStore::open(crashed.path().join("store.db")).await.unwrap();
    assert_eq!(contents(&store).await.unwrap(), wanted);
}

/// A copy that nobody needs any more must not come back when the database that took its place is deleted.
#[tokio::test]
async fn a_copy_beside_a_database_is_put_aside() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    fill(&store).await;
    store.close().await;
    fs::rename(&path, folder.path().join("store.db.rescued")).unwrap();
    let other = TempDir::new().unwrap();
    let another = SqliteStore::open(other.path().join("store.db")).await.unwrap();
    another.transact(Batch::of([Write::put(zone("another"))])).await.unwrap();
    another.close().await;
    fs::copy(other.path().join("store.db"), &path).unwrap();
    SqliteStore::open(&path).await.unwrap().close().await;
    assert!(folder.path().join("store.db.rescued.unused").exists(), "it is kept for a person to look at");
    fs::remove_file(&path).unwrap();
    let store = SqliteStore::open(&path).await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().revision, 0, "what was deleted is not replaced by it");
}
