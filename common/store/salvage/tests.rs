//! Damaged rows in either store, and the way on.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use sqlx::{Connection, Executor, PgConnection, SqliteConnection};
use tempfile::TempDir;

use super::*;
use crate::{
    model::{Resource, ResourceKey, kinds},
    store::{Batch, Changes, Store, Write, open},
    testing::postgres::Cluster,
};

const ROW: &str = "resource/Zone//first";

/// No sum fits any more; what `second` holds can still be read.
const DAMAGE: [&str; 4] = [
    "UPDATE resources SET spec = 'x' WHERE name = 'first'",
    "UPDATE resources SET labels = '{\"a\":\"b\"}' WHERE name = 'second'",
    "UPDATE sessions SET document = 'y' WHERE key = 'a'",
    "UPDATE changes SET name = 'nobody' WHERE name = 'third'",
];

/// A store that is damaged past its process.
trait Home {
    fn url(&self) -> String;
    async fn damage(&self, statements: &[&'static str]);
}

struct File(TempDir);

impl Home for File {
    fn url(&self) -> String {
        format!("sqlite:{}", self.0.path().join("store.db").display())
    }

    async fn damage(&self, statements: &[&'static str]) {
        let mut connection = SqliteConnection::connect(&self.url()).await.unwrap();
        for statement in statements {
            connection.execute(*statement).await.unwrap();
        }
        connection.close().await.unwrap();
    }
}

struct Server(Cluster);

impl Home for Server {
    fn url(&self) -> String {
        self.0.connection("store").url()
    }

    async fn damage(&self, statements: &[&'static str]) {
        let mut connection = PgConnection::connect(&self.url()).await.unwrap();
        // A disk does not tell either.
        for table in ["resources", "sessions"] {
            let quiet =
                sqlx::AssertSqlSafe(format!("ALTER TABLE {table} DISABLE TRIGGER forget_old_checksum"));
            sqlx::query(quiet).execute(&mut connection).await.unwrap();
        }
        for statement in statements {
            connection.execute(*statement).await.unwrap();
        }
        connection.close().await.unwrap();
    }
}

fn zone(name: &str) -> Resource {
    Resource::new(ResourceKey::global(&kinds::zone::KIND, name), chrono::DateTime::UNIX_EPOCH)
}

async fn filled(url: &str) {
    let store = open(url).await.unwrap();
    for name in ["first", "second", "third"] {
        store.transact(Batch::of([Write::put(zone(name))])).await.unwrap();
    }
    store.put_sessions(vec![("a".to_owned(), Some("{}".to_owned()))]).await.unwrap();
    store.close().await;
}

/// Opens the store and reads all of it.
async fn read(url: &str) -> Result<Arc<dyn Store>, StoreError> {
    let store = open(url).await?;
    let read = async {
        store.snapshot().await?;
        store.sessions("").await?;
        store.check().await
    };
    match read.await {
        Ok(()) => Ok(store),
        Err(error) => {
            store.close().await;
            Err(error)
        }
    }
}

async fn listed(url: &str) -> Vec<String> {
    list(url).await.unwrap().iter().map(ToString::to_string).collect()
}

async fn goes_on_without_what_is_damaged(home: &impl Home) {
    let url = home.url();
    filled(&url).await;
    assert_eq!(listed(&url).await, [""; 0], "nothing is damaged yet");
    home.damage(&DAMAGE).await;
    let error = read(&url).await.err().unwrap().to_string();
    assert!(error.contains(ROW) && error.contains("`salvage list`"), "{error}");
    let mut found = listed(&url).await;
    found.sort();
    assert_eq!(found, ["log", ROW, "resource/Zone//second", "session/a"]);

    let folder = TempDir::new().unwrap();
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    let settled = async |row: &str, settlement, name: &str| settle(&url, row, settlement, &file(name)).await;
    let error = settled("resource/Zone//third", Settlement::Remove, "unknown").await.unwrap_err();
    assert!(matches!(error, SalvageError::Unknown { .. }), "a sound row is nobody's to remove: {error}");
    let error = settled(ROW, Settlement::Accept, "unusable").await.unwrap_err();
    assert!(matches!(error, SalvageError::Unusable { .. }), "{error}");
    assert!(!file("unknown").exists() && !file("unusable").exists(), "nothing was touched");

    settled(ROW, Settlement::Remove, "first").await.unwrap();
    let kept = std::fs::read_to_string(file("first")).unwrap();
    let kept: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!((&kept["row"], &kept["columns"]["spec"]), (&json!(ROW), &json!("x")), "{kept}");
    let error = settled("resource/Zone//second", Settlement::Accept, "first").await.unwrap_err();
    assert!(matches!(error, SalvageError::Backup { .. }), "what was kept is not written over: {error}");
    settled("resource/Zone//second", Settlement::Accept, "second").await.unwrap();
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(file("second")).unwrap()).unwrap();
    assert_eq!(kept["resource"]["labels"]["a"], "b", "it can be applied: {kept}");
    settled("session/a", Settlement::Remove, "session").await.unwrap();
    assert_eq!(listed(&url).await, [""; 0], "the log was begun anew");

    let store = read(&url).await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    let names: Vec<&str> = snapshot.resources.iter().map(|resource| resource.name()).collect();
    assert_eq!(names, ["second", "third"]);
    assert_eq!(&snapshot.resources[0].labels["a"], "b");
    assert_eq!(store.changes_since(3.into(), 10).await.unwrap(), Changes::Resync, "everybody takes it anew");
    let commit = store.transact(Batch::of([Write::put(zone("late"))])).await.unwrap();
    assert_eq!(commit.revision, snapshot.revision + 1);
    store.close().await;
    // And once more, as the next start finds it.
    read(&url).await.unwrap().close().await;
}

#[tokio::test]
async fn a_file_goes_on_without_what_is_damaged() {
    goes_on_without_what_is_damaged(&File(TempDir::new().unwrap())).await;
}

#[tokio::test]
async fn a_server_goes_on_without_what_is_damaged() {
    goes_on_without_what_is_damaged(&Server(Cluster::start().await.unwrap())).await;
}

/// A name that is damaged is not found by any index, and may be no text.
#[tokio::test]
async fn a_row_whose_name_is_damaged_is_found_where_it_is() {
    let home = Server(Cluster::start().await.unwrap());
    filled(&home.url()).await;
    home.damage(&["UPDATE resources SET name = 'f/../rst' || chr(7) WHERE name = 'first'"]).await;
    let row = "resource/Zone//f/../rst\\u{7}";
    // The changes say what it was called.
    assert_eq!(listed(&home.url()).await, [row, "log"]);
    let folder = TempDir::new().unwrap();
    settle(&home.url(), row, Settlement::Remove, &folder.path().join("kept")).await.unwrap();
    assert_eq!(read(&home.url()).await.unwrap().snapshot().await.unwrap().resources.len(), 2);
}

#[tokio::test]
async fn a_file_in_use_or_without_structure_is_left_alone() {
    let home = File(TempDir::new().unwrap());
    let error = list(&home.url()).await.unwrap_err().to_string();
    assert!(error.contains("store.db does not exist"), "{error}");
    filled(&home.url()).await;
    let store = open(&home.url()).await.unwrap();
    let error = list(&home.url()).await.unwrap_err().to_string();
    assert!(error.contains("in use by process"), "{error}");
    store.close().await;
    let path = home.0.path().join("store.db");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4_096..].fill(0xee);
    std::fs::write(&path, bytes).unwrap();
    let error = list(&home.url()).await.unwrap_err().to_string();
    assert!(error.contains("restore it from a backup") && !error.contains("salvage"), "{error}");
    let error = list("memory:").await.unwrap_err();
    assert!(matches!(error, SalvageError::Nothing(_)), "{error}");
}
