//! The files of the database, deleted, moved, replaced or written under the running process.

use std::{
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use reqwest::StatusCode;

use super::writers::{Book, Writers, put_one, say};
use crate::harness::{Global, eventually};

fn file(global: &Global, ending: &str) -> PathBuf {
    global.folder.path().join(format!("strait.db{ending}"))
}

async fn unready(global: &Global) -> String {
    eventually("not ready", || async move { global.not_ready().await.ok_or("ready") }).await
}

/// Waits until the process found a repaired file by itself.
async fn there_again(path: &Path) {
    eventually("the file is there again", || async move {
        if path.exists() { Ok(()) } else { Err(format!("no {}", path.display())) }
    })
    .await;
}

/// Kills the process and looks whether everything is in the files.
async fn survives_a_crash(global: &mut Global, book: &Book) {
    global.process.kill();
    global.start_again().await;
    book.check(global).await;
}

#[tokio::test]
async fn deleted_files_are_written_again_before_anything_is_acknowledged() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let sets: &[&[&str]] =
        &[&[""], &["", "-wal", "-shm"], &["-wal"], &["-shm"], &["-wal", "-shm"], &[".lock"]];
    for (round, endings) in sets.iter().enumerate() {
        let writers = Writers::on(&global, &book, round);
        writers.more(20).await;
        for ending in *endings {
            fs::remove_file(file(&global, ending)).unwrap();
        }
        writers.more(20).await;
        // What is acknowledged from now on is in files that have their names.
        for ending in *endings {
            there_again(&file(&global, ending)).await;
        }
        writers.end().await;
        global.ready().await;
        book.check(&global).await;
        survives_a_crash(&mut global, &book).await;
    }
    book.print("deleted files", sets.len());
}

/// `: > strait.db-wal`, on a full disk.
#[tokio::test]
async fn a_journal_that_is_cut_off_in_place_loses_nothing_that_was_acknowledged() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let cuts: [fn(u64) -> u64; 3] = [|_| 0, |length| length / 2, |length| length.saturating_sub(4_096)];
    for (round, keep) in cuts.iter().enumerate() {
        let writers = Writers::on(&global, &book, round);
        writers.more(20).await;
        let journal = fs::File::options().write(true).open(file(&global, "-wal")).unwrap();
        journal.set_len(keep(journal.metadata().unwrap().len())).unwrap();
        writers.more(20).await;
        writers.end().await;
        global.ready().await;
        book.check(&global).await;
        survives_a_crash(&mut global, &book).await;
    }
    // And while nobody writes, with an end of the process before it was noticed.
    let journal = fs::File::options().write(true).open(file(&global, "-wal")).unwrap();
    assert!(put_one(&global, "kept").await.is_success());
    journal.set_len(0).unwrap();
    assert!(global.process.stop().await.success());
    global.start_again().await;
    book.check(&global).await;
    global.get("/meshes/default/meshtimeouts/kept").await;
    book.print("journal cut off", cuts.len() + 1);
}

#[tokio::test]
async fn a_database_that_is_deleted_while_nobody_writes_is_there_again() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(20).await;
    writers.end().await;
    fs::remove_file(file(&global, "")).unwrap();
    there_again(&file(&global, "")).await;
    global.ready().await;
    assert_eq!(fs::metadata(file(&global, "")).unwrap().mode() & 0o077, 0, "still for its owner only");
    survives_a_crash(&mut global, &book).await;
    book.print("deleted while idle", 1);
}

#[tokio::test]
async fn a_database_that_was_moved_away_refuses_writes_until_it_is_back() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    for (round, endings) in [&[""][..], &["", "-wal", "-shm"]].into_iter().enumerate() {
        let writers = Writers::on(&global, &book, round);
        writers.more(20).await;
        let aside = |ending: &str| global.folder.path().join(format!("aside.db{ending}"));
        for ending in endings {
            fs::rename(file(&global, ending), aside(ending)).unwrap();
        }
        writers.refused(10).await;
        let told = unready(&global).await;
        assert!(told.contains("strait.db: it was moved away: put it back"), "{told}");
        assert!(!file(&global, "").exists(), "nothing is made in its place");
        global.get("/meshes/default").await;
        for ending in endings {
            fs::rename(aside(ending), file(&global, ending)).unwrap();
        }
        writers.more(20).await;
        global.ready().await;
        writers.end().await;
        book.check(&global).await;
        survives_a_crash(&mut global, &book).await;
    }
    book.print("moved files", 2);
}

#[tokio::test]
async fn a_database_in_the_place_of_another_is_not_written_to() {
    let mut other = Global::start().await;
    assert!(other.process.stop().await.success());
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(20).await;
    let (foreign, copy) = (fs::read(file(&other, "")).unwrap(), global.folder.path().join("copy.db"));
    fs::write(&copy, &foreign).unwrap();
    fs::rename(&copy, file(&global, "")).unwrap();
    writers.refused(10).await;
    let told = unready(&global).await;
    assert!(told.contains("strait.db: it was replaced by another file"), "{told}");
    global.get("/meshes/default").await;
    assert!(global.healthy().await && global.process.runs());
    assert_eq!(fs::read(file(&global, "")).unwrap(), foreign, "the other file is left alone");
    // Out of the way with it: what was there is written again.
    fs::remove_file(file(&global, "")).unwrap();
    writers.more(20).await;
    writers.end().await;
    global.ready().await;
    book.check(&global).await;
    survives_a_crash(&mut global, &book).await;
    book.print("replaced database", 1);
}

/// `cp` writes into the file that is open.
#[tokio::test]
async fn a_database_that_was_written_over_is_served_from_memory_and_not_written_to() {
    let mut other = Global::start().await;
    assert!(other.process.stop().await.success());
    let mut global = Global::start().await;
    assert!(put_one(&global, "kept").await.is_success());
    // What the journal holds stays what it was; once it is folded in, there is only the database. So nobody else
    // writes here: a zone that connects does.
    assert!(global.process.stop().await.success());
    global.start_again().await;
    let foreign = fs::read(file(&other, "")).unwrap();
    fs::write(file(&global, ""), &foreign).unwrap();
    let told = unready(&global).await;
    assert!(told.contains("strait.db"), "{told}");
    assert_eq!(put_one(&global, "late").await, StatusCode::SERVICE_UNAVAILABLE);
    global.get("/meshes/default/meshtimeouts/kept").await;
    assert!(global.healthy().await && global.process.runs());
    let metrics = global.metrics().await;
    assert!(metrics.lines().any(|l| l.starts_with("store_damaged{") && l.ends_with(" 1")), "{metrics}");
    say("database written over: noticed, served from memory");
}
