//! What only this store can do wrong: the file.

#![allow(clippy::unwrap_used)]

mod crash;
mod cut;
mod damage;

use std::{fs, os::unix::fs::PermissionsExt};

use sqlx::{ConnectOptions, Connection, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;

use super::*;
use crate::{
    model::{Resource, ResourceKey, kinds},
    store::Write,
};

async fn connect(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

async fn refused(path: &Path, expected: &str) {
    let error = SqliteStore::open(path).await.err().unwrap();
    let text = error.to_string();
    assert!(matches!(error, StoreError::Foreign(_) | StoreError::Damaged(_)), "{text}");
    assert!(text.contains(expected), "{text}");
    assert!(text.contains(&path.display().to_string()), "{text}");
}

fn zone(name: &str) -> Resource {
    Resource::new(ResourceKey::global(&kinds::zone::KIND, name), chrono::DateTime::UNIX_EPOCH)
}

#[tokio::test]
async fn a_file_that_is_not_ours_is_left_alone() {
    let folder = TempDir::new().unwrap();
    let text = folder.path().join("notes.txt");
    fs::write(&text, "not a database").unwrap();
    refused(&text, "is not a database").await;
    assert_eq!(fs::read(&text).unwrap(), b"not a database");

    let other = folder.path().join("other.db");
    let mut connection = connect(&other).await;
    sqlx::query("CREATE TABLE resources (a)").execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let before = fs::read(&other).unwrap();
    refused(&other, "another program").await;
    assert_eq!(fs::read(&other).unwrap(), before);
}

#[tokio::test]
async fn a_damaged_file_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    let mut bytes = fs::read(&path).unwrap();
    bytes[HEADER..].fill(0xee);
    fs::write(&path, bytes).unwrap();
    refused(&path, "restore it from a backup").await;
}

const HEADER: usize = 100;

#[tokio::test]
async fn a_newer_version_is_refused() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    SqliteStore::open(&path).await.unwrap().close().await;
    let mut connection = connect(&path).await;
    let newer = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (9999, 'later', 1, x'00', 0)";
    sqlx::query(newer).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    refused(&path, "newer").await;
}

#[tokio::test]
async fn nobody_else_can_read_it() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("strait.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.transact(Batch::of([Write::put(zone("east"))])).await.unwrap();
    let of_database = |name: &str| name.ends_with(".db") || name.ends_with("-wal") || name.ends_with("-shm");
    let entries = fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let files: Vec<_> = entries.filter(|e| of_database(e.file_name().to_str().unwrap())).collect();
    assert_eq!(files.len(), 3);
    for file in files {
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o077, 0, "{}", file.path().display());
    }
}

#[tokio::test]
async fn a_second_process_is_kept_out() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let first = SqliteStore::open(&path).await.unwrap();
    refused(&path, &format!("in use by process {}", std::process::id())).await;
    first.close().await;
    SqliteStore::open(&path).await.unwrap();
}

#[tokio::test]
async fn kinds_of_a_newer_version_are_kept_and_not_served() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.transact(Batch::of([Write::put(zone("east"))])).await.unwrap();
    let mut pen = store.connections.bare_pen().await.unwrap();
    for statement in [
        "INSERT INTO resources SELECT 'Unheard', mesh, name, origin_zone, display_name, labels, spec, status, \
            owner_kind, owner_mesh, owner_name, created, modified, 2, NULL FROM resources",
        "INSERT INTO changes VALUES (2, 0, 'Unheard', '', 'east', 'put', NULL, NULL)",
        "UPDATE meta SET revision = 2, checksum = NULL",
    ] {
        sqlx::query(statement).execute(&mut *pen).await.unwrap();
    }
    inspect::fill(&mut pen).await.unwrap();
    pen.put_down();
    let Changes::Since { changes, upto, .. } = store.changes_since(1.into(), 10).await.unwrap() else {
        panic!()
    };
    assert_eq!((changes.len(), upto.revision), (0, 2), "a reader passes over them");
    store.close().await;

    let store = SqliteStore::open(&path).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!((snapshot.resources.len(), snapshot.revision), (1, 2));
    store.transact(Batch::of([Write::put(zone("west"))])).await.unwrap();
    let kept: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM resources WHERE kind = 'Unheard'")
        .fetch_one(&mut *store.connections.reader().await.unwrap())
        .await
        .unwrap();
    assert_eq!(kept, 1);
}

/// A thousand changes of one large resource are not a thousand copies of it, and large ones not a thousand at once.
#[tokio::test]
async fn a_page_of_the_feed_has_each_resource_once_and_ends_in_bytes() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let store = SqliteStore::open_with(&path, 1_000, Recent::new(0)).await.unwrap();
    let large = |name: &str, byte: u8| zone(name).with_spec(vec![byte; 3 << 20]);
    for byte in 0..5 {
        store.transact(Batch::of([Write::put(large("rewritten", byte))])).await.unwrap();
    }
    for name in ["a", "b", "c"] {
        store.transact(Batch::of([Write::put(large(name, 9))])).await.unwrap();
    }
    let page = async |after: Revision| {
        let Changes::Since { changes, upto, head } = store.changes_since(after.into(), 100).await.unwrap()
        else {
            panic!()
        };
        (changes, upto.revision, head)
    };
    let (changes, upto, head) = page(0).await;
    assert_eq!((changes.len(), upto, head), (7, 7, 8), "9 MiB, and none begins after 8");
    let first = changes[0].resource.as_ref().unwrap();
    assert!(changes[..5].iter().all(|c| Arc::ptr_eq(c.resource.as_ref().unwrap(), first)));
    assert_eq!((first.revision, first.spec[0]), (5, 4));
    let (changes, upto, head) = page(upto).await;
    assert_eq!((changes.len(), upto, head), (1, 8, 8));
    assert_eq!(page(upto).await, (vec![], 8, 8));
}

#[tokio::test]
async fn readers_cannot_write_and_the_writer_is_durable() {
    let folder = TempDir::new().unwrap();
    let store = SqliteStore::open(folder.path().join("store.db")).await.unwrap();
    let mut reader = store.connections.reader().await.unwrap();
    let refused = sqlx::query("DELETE FROM meta").execute(&mut *reader).await.unwrap_err();
    assert!(refused.to_string().contains("readonly"), "{refused}");
    let mut pen = store.connections.bare_pen().await.unwrap();
    let journal: String = sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *pen).await.unwrap();
    let flush: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(&mut *pen).await.unwrap();
    assert_eq!((journal.as_str(), flush), ("wal", 2));
}
