//! The files of a store, with anything in them: opened as what was written, or refused with a reason.

use std::{fs, path::PathBuf, sync::LazyLock};

use chrono::DateTime;
use common::{
    model::{Resource, ResourceKey, kinds},
    store::{Batch, Store, StoreError, Write, sqlite::SqliteStore},
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::{Target, choice};
use crate::corpus::Corpus;

/// What takes the place of the note beside a database, or of parts of the database.
pub static STORE: Target = Target { name: "store-files", costs: 30, run, seeds };

const NAMES: [&str; 3] = ["a", "b", "c"];

struct Original {
    runtime: Runtime,
    folder: TempDir,
    database: Vec<u8>,
    note: Vec<u8>,
}

static ORIGINAL: LazyLock<Original> = LazyLock::new(|| {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let folder = TempDir::new().expect("a temporary folder");
    let path = folder.path().join("original.db");
    runtime.block_on(async {
        let store = SqliteStore::open(&path).await.expect("a new store");
        let mesh = |name: &str| {
            Write::put(Resource::new(ResourceKey::global(&kinds::mesh::KIND, name), DateTime::UNIX_EPOCH))
        };
        store.transact(Batch::of(NAMES.map(mesh))).await.expect("a write");
        store.close().await;
    });
    let read = |name: &str| fs::read(folder.path().join(name)).expect("it was just written");
    let (database, note) = (read("original.db"), read("original.db.acknowledged"));
    Original { runtime, folder, database, note }
});

fn path() -> PathBuf {
    ORIGINAL.folder.path().join("strait.db")
}

fn run(data: &[u8]) {
    let Some((which, data)) = choice(data, 3) else { return };
    let original = &*ORIGINAL;
    let (mut database, mut note) = (original.database.clone(), original.note.clone());
    match which {
        0 => note = data.to_vec(),
        1 => patch(&mut database, data),
        _ => database = data.to_vec(),
    }
    let beside = |suffix: &str| PathBuf::from(format!("{}{suffix}", path().display()));
    for left_over in ["-wal", "-shm", ".lock"] {
        let _there_may_be_none = fs::remove_file(beside(left_over));
    }
    fs::write(path(), &database).expect("the folder can be written");
    fs::write(beside(".acknowledged"), &note).expect("the folder can be written");
    original.runtime.block_on(open());
}

/// Three bytes say where the fourth goes.
fn patch(database: &mut [u8], data: &[u8]) {
    for change in data.chunks_exact(4) {
        let at = usize::from(change[0]) << 16 | usize::from(change[1]) << 8 | usize::from(change[2]);
        let at = at % database.len();
        database[at] = change[3];
    }
}

async fn open() {
    match SqliteStore::open(path()).await {
        Ok(store) => {
            let read = store.snapshot().await;
            store.close().await;
            if let Ok(snapshot) = read {
                let names = snapshot.resources.iter().map(|resource| resource.name());
                assert!(names.into_iter().all(|name| NAMES.contains(&name)), "nobody wrote that");
            }
        }
        Err(StoreError::Damaged(why) | StoreError::Foreign(why)) => assert!(!why.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn seeds(_corpus: &Corpus) -> Vec<Vec<u8>> {
    let original = &*ORIGINAL;
    let of = |which: u8, data: &[u8]| [&[which][..], data].concat();
    let later = String::from_utf8_lossy(&original.note).replace(" 0000", " 0009");
    vec![
        of(0, &original.note),
        of(0, later.as_bytes()),
        of(1, &[0, 0, 100, 1]),
        of(1, &[0, 16, 9, 7, 0, 32, 1, 1]),
        of(2, &original.database),
        of(2, b"SQLite format 3\0"),
        of(2, b""),
    ]
}
