//! The contract on every store of this crate.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::{collection::vec, option, prelude::*, test_runner::TestRunner};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, postgres::PgConnectOptions};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::{
    history::{Op, When},
    *,
};
use crate::{
    store::{memory::MemoryStore, postgres::PostgresStore, recent::Recent, sqlite::SqliteStore},
    testing::postgres::Cluster,
};

struct Memory;

/// What is there, and what was kept aside.
struct MemoryHome(Mutex<[Arc<MemoryStore>; 2]>);

#[async_trait]
impl Stores for Memory {
    async fn fresh(&self, retained: usize) -> Arc<dyn Home> {
        let store = Arc::new(MemoryStore::with_retention(Uuid::nil(), retained));
        Arc::new(MemoryHome(Mutex::new([Arc::clone(&store), store])))
    }
}

#[async_trait]
impl Home for MemoryHome {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0.lock().unwrap()[0]) as Arc<dyn Store>
    }

    fn durable(&self) -> bool {
        false
    }

    async fn keep_aside(&self) {
        let mut stores = self.0.lock().unwrap();
        stores[1] = Arc::new(stores[0].copy());
    }

    async fn go_back(&self) {
        let mut stores = self.0.lock().unwrap();
        stores[0] = Arc::clone(&stores[1]);
    }
}

struct Sqlite {
    folder: TempDir,
    made: AtomicUsize,
    remembers: bool,
}

impl Sqlite {
    /// `remembers`: whether the feed is read from memory where that is possible.
    fn new(remembers: bool) -> Self {
        Self { folder: TempDir::new().unwrap(), made: AtomicUsize::new(0), remembers }
    }
}

struct SqliteHome {
    path: PathBuf,
    retained: usize,
    remembers: bool,
}

#[async_trait]
impl Stores for Sqlite {
    async fn fresh(&self, retained: usize) -> Arc<dyn Home> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = self.folder.path().join(format!("{number}.db"));
        Arc::new(SqliteHome { path, retained, remembers: self.remembers })
    }
}

#[async_trait]
impl Home for SqliteHome {
    async fn open(&self) -> Arc<dyn Store> {
        let recent = Recent::new(if self.remembers { self.retained } else { 0 });
        Arc::new(SqliteStore::open_with(&self.path, self.retained, recent).await.unwrap())
    }

    fn durable(&self) -> bool {
        true
    }

    async fn keep_aside(&self) {
        replace(&self.path.with_extension("aside"), &self.path);
    }

    async fn go_back(&self) {
        replace(&self.path, &self.path.with_extension("aside"));
    }
}

/// Puts one store, with the note beside it, in the place of another.
fn replace(place: &Path, by: &Path) {
    for ending in ["", ".acknowledged"] {
        let named = |path: &Path| format!("{}{ending}", path.display());
        fs::copy(named(by), named(place)).unwrap();
    }
}

struct Postgres {
    cluster: Cluster,
    made: AtomicUsize,
}

impl Postgres {
    async fn start() -> Self {
        Self { cluster: Cluster::start().await.unwrap(), made: AtomicUsize::new(0) }
    }
}

struct PostgresHome(String, usize);

#[async_trait]
impl Stores for Postgres {
    async fn fresh(&self, retained: usize) -> Arc<dyn Home> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        Arc::new(PostgresHome(self.cluster.connection(&format!("store{number}")).url(), retained))
    }
}

#[async_trait]
impl Home for PostgresHome {
    async fn open(&self) -> Arc<dyn Store> {
        Arc::new(PostgresStore::connect(self.0.parse().unwrap(), self.1).await.unwrap())
    }

    fn durable(&self) -> bool {
        true
    }

    async fn keep_aside(&self) {
        copy_database(&self.0, "", "_aside").await;
    }

    async fn go_back(&self) {
        copy_database(&self.0, "_aside", "").await;
    }
}

/// Makes one database a copy of another; both are named after that of the URL.
async fn copy_database(url: &str, from: &str, to: &str) {
    let options: PgConnectOptions = url.parse().unwrap();
    let name = options.get_database().unwrap().to_owned();
    let mut connection = options.database("postgres").connect().await.unwrap();
    for statement in [
        format!("DROP DATABASE IF EXISTS {name}{to} WITH (FORCE)"),
        format!("CREATE DATABASE {name}{to} TEMPLATE {name}{from}"),
    ] {
        sqlx::query(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

fn when() -> impl Strategy<Value = When> {
    prop_oneof![
        4 => Just(When::Always),
        1 => Just(When::Absent),
        1 => Just(When::Exists),
        1 => (0u8..12).prop_map(When::At),
        2 => any::<bool>().prop_map(When::OwnedBy),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let put = (0u8..6, 0u8..3, option::of(0u8..6), when());
    prop_oneof![
        4 => put.prop_map(|(name, value, owner, when)| Op::Put { name, value, owner, when }),
        1 => (0u8..6, 0u8..3).prop_map(|(name, value)| Op::Status { name, value }),
        2 => (0u8..6, when()).prop_map(|(name, when)| Op::Delete { name, when }),
    ]
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn histories(runtime: &Runtime, stores: &dyn Stores, cases: u32) {
    let mut runner =
        TestRunner::new(ProptestConfig { cases, failure_persistence: None, ..Default::default() });
    let strategy = (vec(vec(op(), 1..4), 1..16), 0usize..12);
    let outcome = runner.run(&strategy, |(history, alone)| {
        runtime.block_on(history::check(stores, &history, alone));
        Ok(())
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[tokio::test]
async fn memory_keeps_the_contract() {
    run_all(&Memory).await;
}

#[tokio::test]
async fn sqlite_keeps_the_contract() {
    run_all(&Sqlite::new(true)).await;
    run_all(&Sqlite::new(false)).await;
}

#[test]
fn memory_keeps_random_histories() {
    histories(&runtime(), &Memory, 256);
}

#[test]
fn sqlite_keeps_random_histories() {
    histories(&runtime(), &Sqlite::new(true), 24);
    histories(&runtime(), &Sqlite::new(false), 24);
}

#[tokio::test]
async fn postgres_keeps_the_contract() {
    run_all(&Postgres::start().await).await;
}

#[test]
fn postgres_keeps_random_histories() {
    let runtime = runtime();
    let stores = runtime.block_on(Postgres::start());
    histories(&runtime, &stores, 16);
}
