//! Bits of the database that are not what was written, when the process starts.

use std::{collections::BTreeSet, fs, path::Path, sync::Arc};

use rand::{Rng, SeedableRng, rngs::StdRng};
use sqlx::Connection;

use super::{
    knob,
    writers::{Book, Writers, put_one, say},
};
use crate::harness::{Global, eventually, process::Process};

const SEED: u64 = 6;

/// Puts a copy of the files of a database in their place.
fn put_back(from: &Path, to: &Path) {
    for entry in fs::read_dir(to).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.file_name().unwrap().to_str().unwrap().starts_with("strait.db") {
            fs::remove_file(entry).unwrap();
        }
    }
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Copies what is there of the files of a database.
fn keep(from: &Path, to: &Path) {
    for ending in ["", "-wal", ".acknowledged"] {
        let name = format!("strait.db{ending}");
        if from.join(&name).exists() {
            fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }
}

/// What becomes of a start.
pub enum Start {
    /// The process ended and said this.
    Refused(String),
    /// It runs and serves all there was.
    AsBefore,
}

/// Starts the process again, and looks for everything when it runs; it does not go on running.
pub async fn start(global: &mut Global, book: &Book) -> Start {
    let (program, args) = global.command();
    let mut process = Process::start("global", program, args);
    let url = global.ready_url();
    let ready = eventually("ready or ended", || {
        let runs = process.runs();
        let asked = reqwest::get(url.clone());
        async move {
            match asked.await {
                _ if !runs => Ok(false),
                Ok(answer) if answer.status().is_success() => Ok(true),
                _ => Err("neither"),
            }
        }
    })
    .await;
    if !ready {
        process.ended().await;
        return Start::Refused(process.log());
    }
    book.check(global).await;
    process.kill();
    Start::AsBefore
}

const PAGE: usize = 4_096;

/// The pages that a journal holds.
fn journaled(journal: &[u8]) -> BTreeSet<usize> {
    let frames = journal.get(32..).unwrap_or_default().chunks_exact(24 + PAGE);
    frames.map(|frame| u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]]) as usize).collect()
}

/// The pages that hold resources.
async fn resource_pages(database: &Path) -> Vec<usize> {
    let url = format!("sqlite:{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let pages = sqlx::query_scalar("SELECT pageno FROM dbstat WHERE name = 'resources'");
    let pages: Vec<i64> = pages.fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    pages.into_iter().map(|page| page.try_into().unwrap()).collect()
}

/// The journal hides what it holds of a database that was written over, and nothing else.
#[tokio::test]
async fn a_page_that_was_written_over_beside_the_journal_stops_the_start() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let (old, crashed) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    for (round, folder) in [(0, old.path()), (1, crashed.path())] {
        let writers = Writers::on(&global, &book, round);
        writers.more(60).await;
        writers.end().await;
        assert!(global.process.stop().await.success());
        keep(global.folder.path(), folder);
        global.start_again().await;
    }
    // The database is whole, and a journal begins that covers a page or two.
    assert!(put_one(&global, "late").await.is_success());
    global.process.kill();
    keep(global.folder.path(), crashed.path());
    let journal = journaled(&fs::read(crashed.path().join("strait.db-wal")).unwrap());
    let now = fs::read(crashed.path().join("strait.db")).unwrap();
    let then = fs::read(old.path().join("strait.db")).unwrap();
    let at = |page: usize| (page - 1) * PAGE..page * PAGE;
    let pages = resource_pages(&old.path().join("strait.db")).await;
    let page = pages.into_iter().find(|&page| {
        !journal.contains(&page) && then.get(at(page)).is_some_and(|old| now.get(at(page)) != Some(old))
    });
    let page = page.expect("some page of resources is not in the journal and was another before");
    assert!(!journal.is_empty(), "some pages are in the journal");
    for (what, bytes) in [("what it held before", &then[at(page)]), ("of another program", &[0x2a; PAGE][..])]
    {
        put_back(crashed.path(), global.folder.path());
        let mut written = now.clone();
        written[at(page)].copy_from_slice(bytes);
        fs::write(global.folder.path().join("strait.db"), written).unwrap();
        match start(&mut global, &book).await {
            Start::Refused(log) => assert!(log.contains("strait.db"), "{what}: it names the file: {log}"),
            Start::AsBefore => panic!("page {page} is {what}, and it starts"),
        }
    }
    put_back(crashed.path(), global.folder.path());
    global.start_again().await;
    book.check(&global).await;
    say("pages written over beside a journal: 2, refused 2");
}

#[tokio::test]
async fn a_flipped_bit_stops_the_start_or_changes_nothing() {
    let mut global = Global::start().await;
    let book = Arc::new(Book::default());
    let writers = Writers::on(&global, &book, 0);
    writers.more(60).await;
    writers.end().await;
    // Once with everything in the journal, once folded into the database.
    let (crashed, folded) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
    global.process.kill();
    keep(global.folder.path(), crashed.path());
    global.start_again().await;
    assert!(global.process.stop().await.success());
    keep(global.folder.path(), folded.path());

    let mut random = StdRng::seed_from_u64(SEED);
    let (mut refused, mut harmless) = (0, 0);
    let flips = knob("FAULT_FLIPS", 20);
    for flip in 0..flips {
        let (from, name) = match flip % 4 {
            0 => (crashed.path(), "strait.db-wal"),
            _ => (folded.path(), "strait.db"),
        };
        put_back(from, global.folder.path());
        let path = global.folder.path().join(name);
        let mut bytes = fs::read(&path).unwrap();
        let at = random.random_range(0..bytes.len());
        bytes[at] ^= 1 << random.random_range(0..8);
        fs::write(&path, bytes).unwrap();
        match start(&mut global, &book).await {
            Start::Refused(log) => {
                refused += 1;
                assert!(log.contains("strait.db"), "byte {at} of {name}: it names the file: {log}");
            }
            Start::AsBefore => harmless += 1,
        }
    }
    assert!(refused > flips / 3, "only {refused} of {flips} were refused");
    say(&format!("bit flips: {flips}, refused {refused}, nothing changed {harmless}, unnoticed 0"));
    put_back(folded.path(), global.folder.path());
    global.start_again().await;
    book.check(&global).await;
}
