//! Bits of the database that are not what was written, when the process starts.

use std::{fs, path::Path, sync::Arc};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    knob,
    writers::{Book, Writers, say},
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
enum Start {
    /// The process ended and said this.
    Refused(String),
    /// It runs and serves all there was.
    AsBefore,
}

async fn start(global: &mut Global, book: &Book) -> Start {
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
