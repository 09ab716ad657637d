//! What only this store can do wrong: several replicas, and a server that goes away.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::join_all;
use sqlx::{Executor, PgConnection};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::AbortOnDropHandle;

use super::{fate::DoubtfulCommit, *};
use crate::{
    model::{Resource, ResourceKey, kinds},
    store::{CommitId, Write, feed::Feed, index::Index, salvage},
    testing::{postgres::Cluster, swallower::Swallower},
};

fn zone(name: &str) -> Resource {
    Resource::new(ResourceKey::global(&kinds::zone::KIND, name), chrono::DateTime::UNIX_EPOCH)
}

async fn open(cluster: &Cluster, database: &str) -> PostgresStore {
    PostgresStore::open(&cluster.connection(database).url()).await.unwrap()
}

async fn put(store: &PostgresStore, name: &str) -> Result<Commit, StoreError> {
    store.transact(Batch::of([Write::put(zone(name))])).await
}

#[tokio::test]
async fn replicas_share_one_history() {
    let cluster = Cluster::start().await.unwrap();
    let (a, b) = tokio::join!(open(&cluster, "shared"), open(&cluster, "shared"));
    assert_eq!(a.identity(), b.identity());

    // A write of one wakes the reader of the other.
    let b: Arc<dyn Store> = Arc::new(b);
    let feed = Feed::load(Arc::clone(&b)).await.unwrap();
    let reader = feed.reader();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let seen = async {
        let commit = put(&a, "first").await.unwrap();
        let index = reader.wait_for(commit.revision).await.unwrap();
        assert!(index.find(&kinds::zone::KIND, "", "first").is_some());
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), seen);
    followed.unwrap();

    // Both write at once: one order, no gap, the same for both.
    let writes = (0..120).map(|n| {
        let batch = Batch::of([Write::put(zone(&format!("z{n}")))]);
        if n % 2 == 0 { a.transact(batch) } else { b.transact(batch) }
    });
    let commits = join_all(writes).await;
    let mut revisions: Vec<Revision> = commits.into_iter().map(|c| c.unwrap().revision).collect();
    revisions.sort_unstable();
    assert!(revisions.into_iter().eq(2..=121));
    let (of_a, of_b) = (a.snapshot().await.unwrap(), b.snapshot().await.unwrap());
    assert_eq!((of_a.revision, of_a.resources.len()), (121, 121));
    assert_eq!(of_a.resources, of_b.resources);
    let Changes::Since { changes, upto, .. } = b.changes_since(0.into(), usize::MAX).await.unwrap() else {
        panic!()
    };
    let mut folded = Index::empty(b.identity());
    changes.iter().for_each(|change| folded.apply(change));
    assert_eq!((upto.revision, folded.iter().count()), (121, 121));

    // A lease of one keeps the other out, by the clock of the database.
    let hour = Duration::from_secs(3600);
    assert!(a.acquire("leader", "a", hour, false).await.unwrap().is_some());
    assert!(b.acquire("leader", "b", hour, false).await.unwrap().is_none());
}

#[tokio::test]
async fn a_page_of_the_feed_has_each_resource_once_and_ends_in_bytes() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    let large = |name: &str, byte: u8| zone(name).with_spec(vec![byte; 3 << 20]);
    for (name, byte) in [("rewritten", 1), ("rewritten", 2), ("a", 9), ("b", 9), ("c", 9)] {
        store.transact(Batch::of([Write::put(large(name, byte))])).await.unwrap();
    }
    let Changes::Since { changes, upto, head } = store.changes_since(0.into(), 100).await.unwrap() else {
        panic!()
    };
    assert_eq!((changes.len(), upto.revision, head), (4, 4, 5), "9 MiB, and none begins after 8");
    let [first, second] = [0, 1].map(|n: usize| changes[n].resource.as_ref().unwrap());
    assert!(Arc::ptr_eq(first, second) && first.revision == 2 && first.spec[0] == 2);
    let Changes::Since { changes, upto, head } = store.changes_since(upto, 100).await.unwrap() else {
        panic!()
    };
    assert_eq!((changes.len(), upto.revision, head), (1, 5, 5));
    store.close().await;
}

#[tokio::test]
async fn a_server_that_comes_back_is_used_again() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "before").await.unwrap();
    cluster.stop().unwrap();
    let error = put(&store, "meanwhile").await.unwrap_err().to_string();
    assert!(error.contains("commit to the database") && !error.contains("any@"), "{error}");
    store.snapshot().await.unwrap_err();

    cluster.start_again().unwrap();
    let mut head = store.watch_head();
    assert_eq!(put(&store, "after").await.unwrap().revision, 2);
    head.changed().await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().resources.len(), 2);
    // Replicas hear each other again.
    let other = open(&cluster, "store").await;
    let commit = put(&other, "elsewhere").await.unwrap();
    head.wait_for(|head| *head >= commit.revision).await.unwrap();
}

/// Puts another database in the place of one that is in use, as an address does that leads to a standby from now on.
async fn put_in_place(cluster: &Cluster, database: &str, other: &str) {
    let options = cluster.connection("postgres").url();
    let mut connection = PgConnection::connect(&options).await.unwrap();
    for statement in [
        format!("ALTER DATABASE {database} ALLOW_CONNECTIONS false"),
        format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'"),
        format!("ALTER DATABASE {database} RENAME TO before_{other}"),
        format!("ALTER DATABASE {other} RENAME TO {database}"),
    ] {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_standby_that_was_behind_is_noticed_when_it_takes_over() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "kept").await.unwrap();
    store.close().await;
    let mut connection = PgConnection::connect(&cluster.connection("postgres").url()).await.unwrap();
    for statement in ["CREATE DATABASE behind TEMPLATE store", "CREATE DATABASE further TEMPLATE store"] {
        connection.execute(statement).await.unwrap();
    }
    connection.close().await.unwrap();
    let further = open(&cluster, "further").await;
    for n in 0..4 {
        put(&further, &format!("instead-{n}")).await.unwrap();
    }
    further.close().await;

    let store = Arc::new(open(&cluster, "store").await);
    put(&store, "lost").await.unwrap();
    let feed = Feed::load(Arc::clone(&store) as Arc<dyn Store>).await.unwrap();
    let reader = feed.reader();
    let shutdown = tokio_util::sync::CancellationToken::new();
    let names = || reader.current().iter().map(|zone| zone.name().to_owned()).collect::<Vec<_>>();
    let noticed = async {
        let loss = reader.loss();
        put_in_place(&cluster, "store", "behind").await;
        loss.await;
        assert_eq!(names(), ["kept"]);
        store.watch_head().wait_for(|head| *head == 1).await.unwrap();
        put(&store, "also lost").await.unwrap();
        reader.wait_for(2).await.unwrap();

        let loss = reader.loss();
        put_in_place(&cluster, "store", "further").await;
        loss.await;
        assert_eq!(names(), ["instead-0", "instead-1", "instead-2", "instead-3", "kept"]);
        assert_eq!(put(&store, "new").await.unwrap().revision, 6);
        reader.wait_for(6).await.unwrap();
        shutdown.cancel();
    };
    let (followed, ()) = tokio::join!(feed.run(shutdown.clone()), noticed);
    followed.unwrap();
}

/// Stands between a store and its server and, once armed, swallows the answer to the next commit.
struct Cutter {
    url: String,
    armed: Arc<AtomicBool>,
    _task: AbortOnDropHandle<()>,
}

impl Cutter {
    async fn before(mut connection: crate::testing::postgres::Connection) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = (connection.host.clone(), connection.port);
        connection.port = listener.local_addr().unwrap().port();
        let armed = Arc::new(AtomicBool::new(false));
        let shared = Arc::clone(&armed);
        let task = tokio::spawn(async move {
            let mut relays = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((&*server.0, server.1)).await.unwrap();
                relays.spawn(relay(client, server, Arc::clone(&shared)));
            }
        });
        Self { url: connection.url(), armed, _task: AbortOnDropHandle::new(task) }
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, armed: Arc<AtomicBool>) {
    let (mut up, mut down) = (vec![0; 65536], vec![0; 65536]);
    let mut cut = false;
    loop {
        let done = tokio::select! {
            read = client.read(&mut up) => {
                let sent = &up[..read.unwrap_or(0)];
                cut |= sent.windows(6).any(|w| w == b"COMMIT") && armed.swap(false, Ordering::SeqCst);
                sent.is_empty() || server.write_all(sent).await.is_err()
            }
            read = server.read(&mut down) => {
                // The server has committed by the time it answers; nobody hears it.
                let answer = &down[..read.unwrap_or(0)];
                cut || answer.is_empty() || client.write_all(answer).await.is_err()
            }
        };
        if done {
            return;
        }
    }
}

/// A store behind a way on which connections can fall silent, and one that is beside it.
async fn behind(cluster: &Cluster, database: &str) -> (Swallower, PostgresStore, PostgresStore) {
    let beside = open(cluster, database).await;
    let mut connection = cluster.connection(database);
    let way = Swallower::before(connection.port).await.unwrap();
    connection.port = way.port();
    let store = PostgresStore::open(&connection.url()).await.unwrap();
    put(&store, "first").await.unwrap();
    (way, store, beside)
}

#[tokio::test]
async fn silent_connections_that_nobody_uses_are_replaced() {
    let cluster = Cluster::start().await.unwrap();
    let (way, store, beside) = behind(&cluster, "store").await;
    let several = (0..READERS).map(|_| store.sessions(""));
    join_all(several).await.into_iter().for_each(|read| drop(read.unwrap()));
    let mut nudged = store.nudged();
    way.silence();
    put(&store, "second").await.unwrap();
    store.sessions("").await.unwrap();
    assert_eq!(store.snapshot().await.unwrap().resources.len(), 2);
    // So is the one that hears of others.
    nudged.changed().await.unwrap();
    let commit = put(&beside, "elsewhere").await.unwrap();
    store.watch_head().wait_for(|head| *head >= commit.revision).await.unwrap();
    nudged.mark_unchanged();
    beside.nudge(Nudge::Mail).await.unwrap();
    nudged.changed().await.unwrap();

    way.silence_all();
    store.changes_since(0.into(), 1).await.unwrap_err();
    store.close().await;
}

#[tokio::test]
async fn a_connection_that_falls_silent_while_it_is_used_is_given_up() {
    let cluster = Cluster::start().await.unwrap();
    let read = async {
        let (way, store, _) = behind(&cluster, "read").await;
        way.silence_at("c_checksum");
        let error = store.changes_since(0.into(), 10).await.unwrap_err().to_string();
        assert!(way.was_sent() && error.contains("no answer for 15s"), "{error}");
        let Changes::Since { changes, .. } = store.changes_since(0.into(), 10).await.unwrap() else {
            panic!()
        };
        assert_eq!(changes.len(), 1);
    };
    let written = async {
        let (way, store, beside) = behind(&cluster, "write").await;
        // Alone in its message, unlike the name of a level of isolation.
        way.silence_at("COMMIT\0");
        let error = put(&store, "second").await.unwrap_err().to_string();
        assert!(way.was_sent() && error.contains("did not happen"), "{error}");
        assert_eq!(put(&store, "third").await.unwrap().revision, 2, "the number was not used up");
        assert_eq!(beside.snapshot().await.unwrap().resources.len(), 2);
    };
    tokio::join!(read, written);
}

#[tokio::test]
async fn what_is_asked_about_the_past_holds_up_nobody_else() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "first").await.unwrap();
    let mut others = store.read.pool().begin().await.unwrap();
    sqlx::query("LOCK TABLE history").execute(&mut *others).await.unwrap();
    let query = HistoryQuery { limit: 10, ..HistoryQuery::default() };
    let mut asking = std::pin::pin!(join_all((0..3 * READERS).map(|_| store.history(&query))));
    let reading = async {
        while store.past.count("past").in_use < HISTORIANS {
            tokio::task::yield_now().await;
        }
        store.changes_since(0.into(), 10).await.unwrap();
        store.acquire("leader", "a", Duration::from_secs(60), false).await.unwrap();
        store.sessions("").await.unwrap();
    };
    tokio::select! { biased; _ = &mut asking => panic!("the history was locked"), () = reading => {} }
    others.rollback().await.unwrap();
    asking.await;
}

#[tokio::test]
async fn a_commit_whose_answer_was_lost_is_not_lost() {
    let cluster = Cluster::start().await.unwrap();
    let cutter = Cutter::before(cluster.connection("store")).await;
    let store = PostgresStore::open(&cutter.url).await.unwrap();
    put(&store, "first").await.unwrap();
    cutter.armed.store(true, Ordering::SeqCst);
    assert_eq!(put(&store, "second").await.unwrap().revision, 2);
    assert!(!cutter.armed.load(Ordering::SeqCst), "an answer was swallowed");
    assert_eq!(put(&store, "third").await.unwrap().revision, 3);
    assert_eq!(store.snapshot().await.unwrap().resources.len(), 3);
}

#[tokio::test]
async fn a_commit_that_the_server_ended_did_not_happen() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "first").await.unwrap();
    // The connection is ended from within the commit itself.
    for statement in [
        "CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql AS \
            'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON resources DEFERRABLE INITIALLY DEFERRED \
            FOR EACH ROW EXECUTE FUNCTION die()",
    ] {
        sqlx::query(statement).execute(store.read.pool()).await.unwrap();
    }
    let error = put(&store, "second").await.unwrap_err().to_string();
    assert!(error.contains("did not happen"), "{error}");
    sqlx::query("DROP TRIGGER die ON resources").execute(store.read.pool()).await.unwrap();
    assert_eq!(put(&store, "third").await.unwrap().revision, 2, "the number was not used up");
}

#[tokio::test]
async fn the_fate_of_a_transaction_is_learnt_from_the_server() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "first").await.unwrap();
    let of = |commit| DoubtfulCommit { store: store.identity(), revision: 2, commit };
    let log = "INSERT INTO changes (revision, ordinal, kind, mesh, name, op, commit_id) \
        VALUES (2, 0, 'Zone', '', 'x', 'put', $1)";
    for happens in [false, true] {
        let commit = CommitId::by_chance();
        let mut transaction = store.read.pool().begin().await.unwrap();
        sqlx::query("UPDATE meta SET revision = 2").execute(&mut *transaction).await.unwrap();
        sqlx::query(log).bind(commit.column()).execute(&mut *transaction).await.unwrap();
        let asked = fate::fate(&store.write, of(commit));
        let ends = async {
            if happens { transaction.commit().await.unwrap() } else { transaction.rollback().await.unwrap() }
        };
        let (fate, ()) = tokio::join!(asked, ends);
        assert_eq!(fate.unwrap(), Some(happens), "it is waited for while it is under way");
    }
    // Another transaction has its revision, as where a server took over that never heard of it.
    let lost = of(CommitId::by_chance());
    assert_eq!(fate::fate(&store.write, lost).await.unwrap(), Some(false));
    let another = StoreIdentity { epoch: store.identity().epoch + 1, ..store.identity() };
    assert!(fate::fate(&store.write, DoubtfulCommit { store: another, ..lost }).await.is_err());
    sqlx::query("UPDATE meta SET oldest = 2").execute(store.read.pool()).await.unwrap();
    assert_eq!(fate::fate(&store.write, lost).await.unwrap(), None, "nobody can tell any more");
}

#[tokio::test]
async fn a_value_the_database_cannot_hold_hurts_only_its_batch() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    let writes = ["first", "second", "nul\0", "third"].map(|name| put(&store, name));
    let outcome: Vec<bool> = join_all(writes).await.into_iter().map(|commit| commit.is_ok()).collect();
    assert_eq!(outcome, [true, true, false, true]);
    assert_eq!(store.snapshot().await.unwrap().revision, 3);
}

#[tokio::test]
async fn a_row_that_is_not_what_was_written_is_noticed() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "first").await.unwrap();
    let run = async |statement: &'static str| {
        sqlx::query(statement).execute(store.read.pool()).await.unwrap();
    };
    // A replica of a version without checksums changes the row and leaves the sum.
    run("UPDATE resources SET labels = '{}', display_name = 'older', revision = 1").await;
    store.snapshot().await.unwrap();
    let other = open(&cluster, "store").await;
    let unsummed: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM resources WHERE checksum IS NULL")
        .fetch_one(store.read.pool())
        .await
        .unwrap();
    assert_eq!(unsummed, 0, "the next start gives it one");
    other.close().await;
    assert!(store.health().borrow().trouble().is_none());

    run("ALTER TABLE resources DISABLE TRIGGER forget_old_checksum").await;
    run("UPDATE resources SET spec = 'x'").await;
    let error = store.snapshot().await.unwrap_err();
    assert!(matches!(&error, StoreError::Damaged(what) if what.contains("resource/Zone//first")), "{error}");
    assert!(store.health().borrow().damage.is_some());
    let refused = put(&store, "late").await.unwrap_err();
    assert!(matches!(refused, StoreError::Unwritable(_)), "{refused}");

    // Somebody takes it out; the process finds out by itself.
    let folder = tempfile::TempDir::new().unwrap();
    let (url, kept) = (cluster.connection("store").url(), folder.path().join("kept"));
    salvage::settle(&url, "resource/Zone//first", salvage::Settlement::Remove, &kept).await.unwrap();
    store.health().wait_for(|health| health.trouble().is_none()).await.unwrap();
    put(&store, "late").await.unwrap();
    let snapshot = store.snapshot().await.unwrap();
    assert_eq!(snapshot.resources.iter().map(|r| r.name()).collect::<Vec<_>>(), ["late"]);
}

async fn unsummed(store: &PostgresStore) -> i64 {
    let count = sqlx::query_scalar("SELECT COUNT(*) FROM resources WHERE checksum IS NULL");
    count.fetch_one(store.read.pool()).await.unwrap()
}

#[tokio::test]
async fn rows_of_an_older_version_get_checksums_a_batch_at_a_time_while_others_write() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    let many = 2 * sums::BATCH + 10;
    let writes = (0..many).map(|n| Write::put(zone(&format!("old-{n:04}"))));
    store.transact(Batch::of(writes)).await.unwrap();
    let before = store.snapshot().await.unwrap();
    sqlx::query("UPDATE resources SET checksum = NULL").execute(store.read.pool()).await.unwrap();
    let writing = join_all((0..58).map(|n| {
        let name = format!("old-{:04}", n * 7);
        let store = &store;
        async move {
            let changed = zone(&name).with_label("kuma.io/display-name", "newer");
            store.transact(Batch::of([Write::put(changed)])).await.unwrap();
        }
    }));
    let (other, _) = tokio::join!(open(&cluster, "store"), writing);
    assert_eq!(unsummed(&store).await, 0);
    store.check().await.unwrap();
    let after = other.snapshot().await.unwrap();
    assert_eq!(after.resources.len(), before.resources.len());
}

async fn filled(store: &PostgresStore) -> u64 {
    let mut connection = store.read.pool().acquire().await.unwrap();
    sums::fill(&mut connection).await.unwrap()
}

/// While versions change, a replica that knows no checksums writes beside one that does.
#[tokio::test]
async fn what_an_older_replica_writes_is_read_and_counted_and_soon_has_a_checksum() {
    let cluster = Cluster::start().await.unwrap();
    let store = open(&cluster, "store").await;
    put(&store, "changed").await.unwrap();
    put(&store, "left").await.unwrap();
    let before = store.snapshot().await.unwrap();
    for statement in [
        "UPDATE resources SET display_name = 'older', revision = 3 WHERE name = 'changed'",
        "INSERT INTO resources (kind, mesh, name, origin_zone, display_name, labels, spec, created, modified, \
            revision) SELECT kind, mesh, 'made', origin_zone, 'made', labels, spec, 0, 0, 3 FROM resources LIMIT 1",
        "INSERT INTO changes (revision, ordinal, kind, mesh, name, op) \
            VALUES (3, 0, 'Zone', '', 'made', 'put'), (3, 1, 'Zone', '', 'changed', 'put')",
        "UPDATE meta SET revision = 3",
    ] {
        sqlx::query(statement).execute(store.read.pool()).await.unwrap();
    }
    assert_eq!(unsummed(&store).await, 2);
    // It does not say which commit it made either, which nobody holds against it.
    let known = Point { revision: before.revision, commit: before.commit };
    let Changes::Since { changes, upto, .. } = store.changes_since(known, 10).await.unwrap() else {
        panic!()
    };
    assert_eq!((changes.len(), upto, store.snapshot().await.unwrap().commit), (2, 3.into(), None));
    assert!(matches!(store.changes_since(upto, 10).await.unwrap(), Changes::Since { .. }));
    assert_eq!(store.snapshot().await.unwrap().resources.len(), 3, "they are taken as they are");
    assert_eq!(filled(&store).await, 2, "the audit, or the next start, counts them");
    assert_eq!(filled(&store).await, 0);
    store.check().await.unwrap();
    sqlx::query("ALTER TABLE resources DISABLE TRIGGER forget_old_checksum")
        .execute(store.read.pool())
        .await
        .unwrap();
    sqlx::query("UPDATE resources SET spec = 'x' WHERE name = 'made'")
        .execute(store.read.pool())
        .await
        .unwrap();
    store.check().await.unwrap_err();
}

#[tokio::test]
async fn a_database_that_is_not_ours_is_left_alone() {
    let cluster = Cluster::start().await.unwrap();
    let refused = async |database: &str, expected: &str| {
        let url = cluster.connection(database).url();
        let error = PostgresStore::open(&url).await.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, StoreError::Foreign(_)) && text.contains(expected), "{text}");
    };
    let run = async |database: &str, statement: &'static str| {
        let url = cluster.connection(database).url();
        let mut connection = PgConnection::connect(&url).await.unwrap();
        connection.execute(statement).await.unwrap();
        connection.close().await.unwrap();
    };
    run("other", "CREATE TABLE resources (a int)").await;
    refused("other", "another program").await;

    open(&cluster, "newer").await.close().await;
    let migration = "INSERT INTO _sqlx_migrations VALUES (9999, 'later', now(), true, '\\x00', 1)";
    run("newer", migration).await;
    refused("newer", "newer").await;

    let store = open(&cluster, "replaced").await;
    run("replaced", "UPDATE meta SET epoch = epoch + 1").await;
    let error = put(&store, "late").await.unwrap_err().to_string();
    assert!(error.contains("restart it"), "{error}");
    assert!(matches!(store.changes_since(0.into(), 1).await, Err(StoreError::Foreign(_))));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_named_without_the_password() {
    let error = PostgresStore::open("postgres://strait:secret@127.0.0.1:1/db").await.err().unwrap();
    let StoreError::Backend { doing, source } = &error else { panic!("{error}") };
    assert_eq!(doing, "connect to the database db at 127.0.0.1:1");
    assert!(source.to_string().contains("refused"), "{source}");
    assert!(!format!("{error} {error:?}").contains("secret"));
    let error = PostgresStore::open("postgres://strait:secret@[/db").await.err().unwrap();
    assert!(!format!("{error} {error:?}").contains("secret"), "{error:?}");
}
